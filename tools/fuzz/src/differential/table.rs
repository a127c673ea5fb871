//! Tables and their entries.

use super::statement::{Action, Body, Table};
use super::types::{Ty, literal};
use rand::Rng;
use rand::rngs::StdRng;

/// A table, and its direct counter if it has one.
pub(super) fn table(
    mut body: Body<'_>,
    index: u32,
    actions: &[Action],
    lines: &mut Vec<String>,
) -> Table {
    let name = format!("t{index}");
    let random = &mut *body.random;
    let listed: Vec<&Action> = actions.iter().filter(|_| random.random_bool(0.7)).collect();
    let listed = if listed.is_empty() { vec![&actions[0]] } else { listed };
    let in_code = random.random_bool(0.4);
    // Many entries with few different keys: several match, and which of them comes first shows.
    let crowded = in_code && random.random_bool(0.4);
    let keys: Vec<(Ty, &str)> = (0..[0, 1, 1, 1, 2, 2, 3][random.random_range(0..7)])
        .map(|_| key(in_code, crowded, random))
        .collect();
    let several = keys.iter().filter(|(_, kind)| *kind == "lpm").count() > 1;
    let keys: Vec<(Ty, &str)> = keys
        .into_iter()
        .map(|(ty, kind)| (ty, if several && kind == "lpm" { "exact" } else { kind }))
        .collect();
    let counted =
        (!in_code && !keys.is_empty() && random.random_bool(0.3)).then(|| random.random_bool(0.5));
    if let Some(by_action) = counted {
        lines.push(format!("    direct_counter(CounterType.packets_and_bytes) d{index};"));
        if by_action {
            lines.push(format!("    action n{index}() {{"));
            lines.push(format!("        d{index}.count();"));
            lines.push("    }".into());
        }
    }
    lines.push(format!("    table {name} {{"));
    if !keys.is_empty() {
        lines.push("        key = {".into());
        for (i, (ty, kind)) in keys.iter().enumerate() {
            let level = body.random.random_range(0..3);
            let expression = body.expression(*ty, level);
            lines.push(format!("            {expression} : {kind} @name(\"k{i}\");"));
        }
        lines.push("        }".into());
    }
    let random = &mut *body.random;
    let mut names: Vec<String> = listed.iter().map(|action| action.name.clone()).collect();
    let counting = counted
        .filter(|by_action| *by_action)
        .map(|_| Action { name: format!("n{index}"), parameters: Vec::new() });
    let listed: Vec<&Action> = listed.into_iter().chain(&counting).collect();
    names.extend(counting.iter().map(|action| action.name.clone()));
    let call = |action: &Action, random: &mut StdRng| {
        let arguments: Vec<String> =
            action.parameters.iter().map(|ty| literal(*ty, random)).collect();
        format!("{}({})", action.name, arguments.join(", "))
    };
    lines.push(format!("        actions = {{ {}; NoAction; }}", names.join("; ")));
    if random.random_bool(0.8) {
        let word = if random.random() { "const " } else { "" };
        let action = listed[random.random_range(0..listed.len())];
        lines.push(format!("        {word}default_action = {};", call(action, random)));
    }
    lines.extend(counted.map(|_| format!("        counters = d{index};")));
    if !keys.is_empty() && (in_code || random.random_bool(0.3)) {
        let most = if crowded { 9 } else { 5 };
        entries(&keys, (in_code, most), &listed, call, random, lines);
    }
    lines.push("    }".into());
    names.push("NoAction".into());
    Table { name, actions: names }
}

fn key(in_code: bool, crowded: bool, random: &mut StdRng) -> (Ty, &'static str) {
    if crowded {
        let kind = ["ternary", "ternary", "range", "optional"][random.random_range(0..4)];
        return (Ty::bits(random.random_range(1..4)), kind);
    }
    let width = if random.random_bool(0.6) {
        random.random_range(1..6)
    } else {
        super::types::width(random)
    };
    let signed = width > 1 && random.random_bool(0.15);
    let kinds: &[&str] = if in_code {
        &["exact", "lpm", "ternary", "range", "optional"]
    } else {
        &["exact", "exact", "lpm", "ternary"]
    };
    let kind = kinds[random.random_range(0..kinds.len())];
    let ty = if kind == "exact" && random.random_bool(0.1) {
        Ty::Bool
    } else {
        Ty::Bits { width, signed }
    };
    (ty, kind)
}

fn entries(
    keys: &[(Ty, &str)],
    (in_code, most): (bool, u32),
    listed: &[&Action],
    call: impl Fn(&Action, &mut StdRng) -> String,
    random: &mut StdRng,
    lines: &mut Vec<String>,
) {
    let (word, mut used) = (if in_code { "const entries" } else { "entries" }, Vec::new());
    let ranked = !in_code && keys.iter().any(|(_, kind)| *kind == "ternary");
    // Written priorities go down or up by 50, so that those which follow by the delta meet none.
    let written = ranked && random.random_bool(0.6);
    if ranked && random.random_bool(0.4) {
        lines.push(format!("        largest_priority_wins = {};", random.random_bool(0.3)));
    }
    if ranked && random.random_bool(0.4) {
        lines.push(format!("        priority_delta = {};", random.random_range(1..8)));
    }
    let up = random.random_bool(0.5);
    lines.push(format!("        {word} = {{"));
    for rank in 0..random.random_range(1..most) {
        let matches: Vec<String> =
            keys.iter().map(|(ty, kind)| entry_match(*ty, kind, random)).collect();
        let text = if let [one] = &matches[..] {
            one.clone()
        } else {
            format!("({})", matches.join(", "))
        };
        // (Each match has one writing, so equal entries have equal texts.)
        if used.contains(&text) {
            continue;
        }
        let action = listed[random.random_range(0..listed.len())];
        let number = if up { 300 + 50 * rank } else { 800 - 50 * rank };
        let priority = if written && (used.is_empty() || random.random_bool(0.6)) {
            format!("priority = {number} : ")
        } else {
            String::new()
        };
        lines.push(format!("            {priority}{text} : {};", call(action, random)));
        used.push(text);
    }
    lines.push("        }".into());
}

fn entry_match(ty: Ty, kind: &str, random: &mut StdRng) -> String {
    let Ty::Bits { width, signed } = ty else { return literal(ty, random) };
    let cast = |text: String| if signed { format!("(int<{width}>)({text})") } else { text };
    match kind {
        "lpm" => {
            let length = random.random_range(0..=width);
            let all = u128::MAX >> (128 - width);
            let mask = if length == 0 { 0 } else { (all >> (width - length)) << (width - length) };
            let value = super::types::number(width, random) & mask;
            format!("{} &&& {}", cast(format!("{width}w{value}")), cast(format!("{width}w{mask}")))
        }
        "ternary" if random.random_bool(0.6) => {
            let mask = super::types::number(width, random);
            let value = super::types::number(width, random) & mask;
            format!("{} &&& {}", cast(format!("{width}w{value}")), cast(format!("{width}w{mask}")))
        }
        "range" => case_range(width, signed, random),
        "optional" | "ternary" if random.random_bool(0.2) => "_".into(),
        _ => literal(ty, random),
    }
}

fn case_range(width: u32, signed: bool, random: &mut StdRng) -> String {
    let width_of_number = if signed { width - 1 } else { width };
    let (a, b) = (
        super::types::number(width_of_number, random),
        super::types::number(width_of_number, random),
    );
    let prefix = if signed { "s" } else { "w" };
    if signed && random.random() {
        return format!("(-{width}s{a}) .. {width}s{b}");
    }
    format!("{width}{prefix}{} .. {width}{prefix}{}", a.min(b), a.max(b))
}

//! Functions, actions, tables and controls.

use super::{Callable, Inside, Kind, Parameter, Scope};
use rand::Rng;
use rand::rngs::StdRng;

/// Functions that every program has.
pub(super) fn fixed(prefix: &str, lines: &mut Vec<String>) -> Vec<Callable> {
    let head = Kind::Head.name(prefix);
    lines.push(format!("T {prefix}mid<T>(in T x) {{"));
    lines.extend(["    return x;", "}"].map(String::from));
    lines.push(format!("void {prefix}mswap<T>(inout T a, inout T b) {{"));
    lines.extend(["    T c = a;", "    a = b;", "    b = c;", "}"].map(String::from));
    // What the fields of an invalid header are is left open.
    lines.push(format!("bit<8> {prefix}mread(in {head} h) {{"));
    lines.extend(
        ["    if (h.isValid()) { return h.v ^ h.w; }", "    return 8w77;", "}"].map(String::from),
    );
    lines.push(format!("bit<8> {prefix}mstep(inout bit<8> x) {{"));
    lines.extend(["    x = x + 37;", "    return x;", "}"].map(String::from));
    lines.push(format!("{head} {prefix}mcopy(in {head} h) {{"));
    lines.push(format!("    {head} copy = h;"));
    lines.extend(
        ["    if (h.isValid()) { copy.w = h.v + 1; }", "    return copy;", "}"].map(String::from),
    );
    let parameter = |name: &str, direction, kind| Parameter { name: name.into(), direction, kind };
    let callable = |name: &str, parameters| {
        let name = format!("{prefix}{name}");
        Callable { name, result: Some(Kind::Byte), parameters, cost: 1, constructed: false }
    };
    vec![
        callable("mread", vec![parameter("h", "in", Kind::Head)]),
        callable("mstep", vec![parameter("x", "inout", Kind::Byte)]),
    ]
}

fn kind(random: &mut StdRng) -> Kind {
    if random.random_bool(0.3) { Kind::Byte } else { Kind::ALL[random.random_range(0..6)] }
}

/// Drawn parameters with a direction.
pub(super) fn parameters(random: &mut StdRng, most: usize) -> Vec<Parameter> {
    let list = 0..random.random_range(1..=most);
    list.map(|index| Parameter {
        name: format!("p{index}"),
        direction: ["in", "inout", "inout", "out"][random.random_range(0..4)],
        kind: kind(random),
    })
    .collect()
}

pub(super) fn declared(prefix: &str, parameters: &[Parameter]) -> String {
    let one = |parameter: &Parameter| {
        let text =
            format!("{} {} {}", parameter.direction, parameter.kind.name(prefix), parameter.name);
        text.trim_start().to_owned()
    };
    parameters.iter().map(one).collect::<Vec<_>>().join(", ")
}

pub(super) fn function(
    prefix: &str,
    random: &mut StdRng,
    index: u32,
    functions: &[Callable],
    lines: &mut Vec<String>,
) -> Callable {
    let name = format!("{prefix}mf{index}");
    let parameters = parameters(random, 3);
    let kinds = [Kind::Byte, Kind::Byte, Kind::Byte, Kind::Head, Kind::Pair, Kind::Nest];
    let result = kinds[random.random_range(0..kinds.len())];
    lines.push(format!("{} {name}({}) {{", result.name(prefix), declared(prefix, &parameters)));
    let mut scope = Scope::new(prefix, random, Inside::Function);
    scope.functions = functions.to_vec();
    scope.result = Some(result);
    // Functions are called everywhere: theirs are small bodies.
    scope.cost = super::MOST_COST * 3 / 4;
    let before = scope.cost;
    scope.enter(&parameters);
    let count = scope.random.random_range(1..4);
    // What they declare is there for the result.
    for _ in 0..count {
        scope.statements(1, 1);
    }
    let value = scope.value(result, 1);
    scope.line(format!("return {value};"));
    let cost = scope.cost - before + 2;
    lines.append(&mut scope.lines);
    lines.push("}".into());
    Callable { name, result: Some(result), parameters, cost, constructed: false }
}

/// A control with registers, actions, tables and instances of others.
pub(super) fn control(
    prefix: &str,
    random: &mut StdRng,
    name: &str,
    functions: &[Callable],
    controls: &[Callable],
    lines: &mut Vec<String>,
) -> Callable {
    let name = format!("{prefix}{name}");
    let parameters = parameters(random, 4);
    let given = random.random_bool(0.5);
    let constructor = if given { "(bit<8> given)" } else { "" };
    lines.push(format!("control {name}({}){constructor} {{", declared(prefix, &parameters)));
    lines.push("    register<bit<8>>(8) left;".into());
    lines.push("    register<bit<4>>(8) nibbles;".into());
    lines.push("    counter(8, CounterType.packets) seen;".into());
    // Locals of the control itself: new at each application.
    lines.push("    bit<8> own = 9;".into());
    lines.push(format!("    {prefix}mh_t fresh;"));
    let mut scope = Scope::new(prefix, random, Inside::Control);
    scope.functions = functions.to_vec();
    scope.registers = true;
    for (index, inner) in controls.iter().enumerate() {
        // Twice, so that each has registers of its own.
        for copy in 0..scope.random.random_range(0..3) {
            let instance = format!("i{index}_{copy}");
            let argument =
                if inner.constructed { scope.pick(256).to_string() } else { String::new() };
            lines.push(format!("    {}({argument}) {instance};", inner.name));
            scope.instances.push(Callable { name: instance, ..inner.clone() });
        }
        if !inner.constructed {
            scope.direct.push(inner.clone());
        }
    }
    let mut places = Vec::new();
    for (path, kind) in [("own", Kind::Byte), ("fresh", Kind::Head)] {
        places.push(super::Place { path: path.into(), kind, writable: true });
    }
    if given {
        places.push(super::Place { path: "given".into(), kind: Kind::Byte, writable: false });
    }
    // Parameters that are `out` have no value yet when actions are written, but when they run.
    for parameter in &parameters {
        let writable = parameter.direction != "in";
        places.push(super::Place { path: parameter.name.clone(), kind: parameter.kind, writable });
    }
    let mut actions = Vec::new();
    for index in 0..scope.random.random_range(1..4) {
        let made = action(&mut scope, index, &places, &actions, lines);
        actions.push(made);
    }
    scope.actions = actions;
    for index in 0..scope.random.random_range(0..3) {
        table(&mut scope, index, &places, lines);
    }
    lines.push("    apply {".into());
    scope.indent = 2;
    scope.places = places.iter().filter(|place| !place.path.starts_with('p')).cloned().collect();
    scope.enter(&parameters);
    let count = scope.random.random_range(3..8);
    scope.statements(count, 2);
    let cost = scope.cost;
    lines.append(&mut scope.lines);
    lines.extend(["    }", "}"].map(String::from));
    Callable { name, result: None, parameters, cost, constructed: given }
}

fn action(
    control: &mut Scope<'_>,
    index: u32,
    places: &[super::Place],
    known: &[Callable],
    lines: &mut Vec<String>,
) -> Callable {
    let name = format!("act{index}");
    let mut parameters: Vec<Parameter> = Vec::new();
    if control.pick(3) > 0 {
        let mut drawn = self::parameters(control.random, 2);
        drawn.iter_mut().for_each(|parameter| parameter.name = parameter.name.replace('p', "q"));
        parameters = drawn;
    }
    if control.pick(2) == 0 {
        parameters.push(Parameter { name: "data".into(), direction: "", kind: Kind::Byte });
    }
    lines.push(format!("    action {name}({}) {{", declared(control.prefix, &parameters)));
    let mut scope = Scope::new(control.prefix, control.random, Inside::Action);
    scope.indent = 2;
    scope.functions.clone_from(&control.functions);
    scope.actions = known.to_vec();
    scope.registers = true;
    scope.places = places.to_vec();
    scope.cost = super::MOST_COST * 3 / 4;
    let before = scope.cost;
    scope.enter(&parameters);
    let count = scope.random.random_range(1..4);
    scope.statements(count, 1);
    let cost = scope.cost - before + 1;
    lines.append(&mut scope.lines);
    lines.push("    }".into());
    Callable { name, result: None, parameters, cost, constructed: false }
}

/// A table with keys that have effects, and actions with bound arguments.
fn table(control: &mut Scope<'_>, index: u32, places: &[super::Place], lines: &mut Vec<String>) {
    let name = format!("tab{index}");
    let mut scope = Scope::new(control.prefix, control.random, Inside::Control);
    scope.functions.clone_from(&control.functions);
    scope.places = places.to_vec();
    let (mut listed, mut calls) = (Vec::new(), Vec::new());
    for action in &control.actions {
        let directed: Vec<Parameter> =
            action.parameters.iter().filter(|p| !p.direction.is_empty()).cloned().collect();
        let has_data = directed.len() < action.parameters.len();
        let bound = Callable { parameters: directed, ..action.clone() };
        let Some(arguments) = scope.arguments(&bound, 1, "") else { continue };
        if listed.is_empty() || scope.pick(3) > 0 {
            let annotation = ["", "", "", "@tableonly "][scope.pick(4) as usize];
            listed.push((format!("{annotation}{}({arguments})", action.name), action.name.clone()));
            calls.push((action.name.clone(), arguments, has_data));
        }
    }
    if listed.is_empty() {
        return;
    }
    let kinds: Vec<&str> =
        (0..1 + scope.pick(3)).map(|_| ["exact", "ternary"][scope.pick(2) as usize]).collect();
    // Now and then the second key changes what the first one is.
    let stepped =
        if scope.pick(3) == 0 { scope.place(super::Kind::Byte, super::Use::Change) } else { None };
    lines.push(format!("    table {name} {{"));
    lines.push("        key = {".into());
    for (at, kind) in kinds.iter().enumerate() {
        let expression = match (&stepped, at) {
            (Some(place), 0) => place.clone(),
            (Some(place), 1) => format!("{}mstep({place})", scope.prefix),
            _ => scope.byte(2),
        };
        lines.push(format!("            ({expression})[1:0] : {kind} @name(\"k{at}\");"));
    }
    lines.push("        }".into());
    let actions: Vec<&str> = listed.iter().map(|(text, _)| text.as_str()).collect();
    lines.push(format!("        actions = {{ {}; @defaultonly NoAction; }}", actions.join("; ")));
    lines.push("        default_action = NoAction();".into());
    entries(&mut scope, &kinds, &calls, lines);
    lines.push("    }".into());
    control.tables.push((name, listed.into_iter().map(|(_, name)| name).collect()));
}

fn entries(
    scope: &mut Scope<'_>,
    kinds: &[&str],
    calls: &[(String, String, bool)],
    lines: &mut Vec<String>,
) {
    let ranked = kinds.contains(&"ternary");
    let constant = scope.pick(2) == 0;
    let written = ranked && !constant && scope.pick(2) == 0;
    if ranked && !constant && scope.pick(2) == 0 {
        let word = ["true", "false"][scope.pick(2) as usize];
        lines.push(format!("        largest_priority_wins = {word};"));
    }
    if ranked && !constant && scope.pick(3) == 0 {
        lines.push(format!("        priority_delta = {};", 1 + scope.pick(9)));
    }
    lines.push(format!("        {}entries = {{", if constant { "const " } else { "" }));
    let mut used = Vec::new();
    for rank in 0..1 + scope.pick(5) {
        let one = |scope: &mut Scope<'_>, kind: &&str| match *kind {
            "ternary" if scope.pick(3) == 0 => "_".to_owned(),
            "ternary" if scope.pick(2) == 0 => {
                ["0 &&& 1", "1 &&& 1", "2 &&& 2"][scope.pick(3) as usize].into()
            }
            _ => scope.pick(4).to_string(),
        };
        let matches: Vec<String> = kinds.iter().map(|kind| one(scope, kind)).collect();
        let text = if let [only] = &matches[..] {
            only.clone()
        } else {
            format!("({})", matches.join(", "))
        };
        if used.contains(&text) {
            continue;
        }
        let (name, arguments, has_data) = &calls[scope.pick(calls.len() as u32) as usize];
        let mut list = Vec::new();
        // The bound arguments may be repeated, or left out.
        if !arguments.is_empty() && !arguments.contains(" = ") && scope.pick(2) == 0 {
            list.push(arguments.clone());
        }
        if *has_data {
            let data = scope.pick(256);
            list.push(data.to_string());
        }
        let priority = match written && (used.is_empty() || scope.pick(2) == 0) {
            true => format!("priority = {} : ", 900 - 60 * rank),
            false => String::new(),
        };
        lines.push(format!("            {priority}{text} : {name}({});", list.join(", ")));
        used.push(text);
    }
    lines.push("        }".into());
}

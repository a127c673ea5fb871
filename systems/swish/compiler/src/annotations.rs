//! Annotations that would do nothing are errors: P4 lets a compiler ignore those it does not know,
//! and a variable without the group that was meant is shared with other switches.

use p4_ir::ExternInstance;
use xdp_backend::system::Generator;

/// Of shared variables.
const KNOWN: [&str; 4] = ["group", "merge", "members", "slots"];
/// Of counters and sketches only.
const OF_CELLS: [(&str, &str); 2] = [
    ("slots", "@slots is of counters with Shared.EWO: no other variables have slots"),
    ("members", "@members is of counters and sketches with Shared.SDW"),
];

/// Tells annotations that do nothing. `has_cells`: a counter or a sketch, which tells by itself
/// with which consistency they do something.
pub(crate) fn check(generator: &mut Generator<'_>, instance: &ExternInstance, has_cells: bool) {
    let mut seen: Vec<&str> = vec![];
    for annotation in &instance.annotations {
        let name = annotation.name.as_str();
        let mut refuse = |message: &str, help: &str| {
            let message = format!("{} {}: {message}", instance.extern_type, instance.name);
            generator.error(instance.location, &message, Some(help));
        };
        if KNOWN.contains(&name) && seen.contains(&name) {
            refuse(
                &format!("@{name} is given twice, and only the first one counts"),
                "write it once",
            );
        }
        if let Some((_, why)) = OF_CELLS.iter().find(|it| it.0 == name && !has_cells) {
            refuse(why, "leave it out");
        }
        if let Some(meant) = KNOWN.iter().find(|known| is_near(name, known)) {
            let message = format!("@{name} is no annotation of shared variables");
            refuse(&message, &format!("write @{meant}, or leave it out"));
        }
        seen.push(name);
    }
}

/// Whether one name is probably a misspelt other one: one or two letters are wrong.
fn is_near(name: &str, known: &str) -> bool {
    name != known && (1..=2).contains(&distance(name.as_bytes(), known.as_bytes()))
}

/// Letters to add, take away or replace.
fn distance(one: &[u8], other: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.iter().enumerate() {
        let mut before = row[0];
        row[0] = at + 1;
        for (place, wanted) in other.iter().enumerate() {
            let replaced = before + usize::from(letter != wanted);
            before = row[place + 1];
            row[place + 1] = replaced.min(before + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_names_are_told_from_others() {
        for (name, known) in [("grup", "group"), ("slot", "slots"), ("member", "members")] {
            assert!(is_near(name, known), "{name}");
        }
        for name in ["group", "name", "id", "hidden", "alias", "metadata", "pure", "deprecated"] {
            assert!(!KNOWN.iter().any(|known| is_near(name, known)), "{name}");
        }
    }
}

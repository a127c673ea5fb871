//! What `stateplane check` tells of shared variables: memory, and bytes of messages.

use command_line::Sizes;
use manifest::{Manifest, StateObject};
use serde_json::{Value, json};
use swish_protocol::control::{USUAL_DEAD_MS, USUAL_SLOW_MS};
use swish_protocol::memory::{Memory, Settings, Traffic, Unit, Variable};
use swish_protocol::objects::{Consistency, SYSTEM};
pub use swish_switch::variables::variables;

/// Updates a second of one switch, as an example.
const MUCH_PER_S: u64 = 1_000_000;

const HEAD: &[&str] =
    &["shared variable", "consistency", "group", "size", "declared", "in maps", "factor", "sent"];

/// What a program's variables take. `None`: it has none.
pub(crate) fn of(manifest: &Manifest) -> Result<Option<Sizes>, serde_json::Error> {
    let variables = variables(manifest)?;
    if variables.is_empty() {
        return Ok(None);
    }
    let memory = Memory::of(&variables);
    let objects = || manifest.state_objects.iter().filter(|it| it.system == SYSTEM);
    let all = || variables.iter().zip(&memory.of_variables).zip(objects());
    let field = json!({
        "variables": all().map(|((it, bytes), of)| told(it, *bytes, of)).collect::<Value>(),
        "fixed_bytes": memory.fixed,
        "bytes_per_cpu": memory.per_cpu,
    });
    Ok(Some(Sizes {
        head: HEAD,
        rows: all().map(|((it, bytes), of)| row(it, *bytes, of)).collect(),
        notes: notes(&variables, &memory),
        field: ("shared", field),
    }))
}

fn factor(variable: &Variable, bytes: u64) -> f64 {
    bytes as f64 / variable.declared_bytes().max(1) as f64
}

/// The name of the object's group.
fn group(object: &StateObject) -> &str {
    object.settings.get("group").and_then(Value::as_str).unwrap_or_default()
}

/// Windows after which it begins anew, if it does.
fn period(object: &StateObject) -> Option<u64> {
    object.settings.get("period").and_then(Value::as_u64).filter(|it| *it > 0)
}

fn told(variable: &Variable, bytes: u64, object: &StateObject) -> Value {
    let factor = (factor(variable, bytes) * 100.0).round() / 100.0;
    json!({
        "name": object.name,
        "consistency": variable.consistency().name(),
        "group": group(object),
        "period_windows": period(object),
        "size": variable.size,
        "declared_bytes": variable.declared_bytes(),
        "map_bytes": bytes,
        "factor": factor,
        "sent": variable.traffic(),
    })
}

fn row(variable: &Variable, bytes: u64, object: &StateObject) -> Vec<String> {
    let what = match &variable.settings {
        Settings::Cells(_) => "cells",
        _ if variable.key_bytes == 0 => "values",
        _ => "keys",
    };
    let sent: Vec<String> = variable.traffic().iter().map(sent).collect();
    let anew = period(object).map_or_else(String::new, |it| format!(", anew in {it} windows"));
    vec![
        object.name.clone(),
        variable.consistency().name().to_owned(),
        format!("{}{anew}", group(object)),
        format!("{} {what}", variable.size),
        human(variable.declared_bytes()),
        human(bytes),
        format!("{:.1}", factor(variable, bytes)),
        sent.join("; "),
    ]
}

fn sent(traffic: &Traffic) -> String {
    let Traffic { of, frames, bytes, payload } = *traffic;
    let plural = if frames == 1 { "" } else { "s" };
    match of {
        Unit::Window => format!("a window: {frames} frame{plural}, {}", human(bytes)),
        Unit::Update => format!("an update: {payload} bytes of a frame of {bytes}"),
        Unit::GossipRound => {
            format!("a gossip round: {frames} frame{plural}, {}", human(bytes))
        }
        Unit::Write => format!("a write: {bytes} bytes a hop"),
        Unit::Answer => format!("its answer: {bytes} bytes"),
    }
}

/// What the table's words mean, and what is not a variable's.
fn notes(variables: &[Variable], memory: &Memory) -> Vec<String> {
    let has = |wanted| variables.iter().any(|it| it.consistency() == wanted);
    let mut notes = vec![format!(
        "  plus {} for all variables together, and {} for each CPU",
        human(memory.fixed),
        human(memory.per_cpu)
    )];
    if has(Consistency::Sdw) {
        notes.push("  a window: frames to each other member, if all cells change".into());
        notes.push(bound());
    }
    if has(Consistency::Ewo) {
        notes.push(
            "  an update: bytes to each other member; a frame carries several. A gossip round: \
             frames to one member, if all slots are in use"
                .into(),
        );
    }
    if has(Consistency::Sro) {
        notes.push(
            "  a write: to the head, and from each member to the next; the tail answers. Packets \
             that wait for the answer take more memory (`commit` in switch.toml)"
                .into(),
        );
    }
    notes
}

/// What a program does not say: how many updates there are. `--check` of a switch knows its bound.
fn bound() -> String {
    let [dies, slow] = [USUAL_DEAD_MS, USUAL_SLOW_MS].map(|ms| ms * MUCH_PER_S / 1000);
    let [dead_s, slow_s] = [USUAL_DEAD_MS, USUAL_SLOW_MS].map(|ms| ms as f64 / 1000.0);
    format!(
        "  B (`bound` in switch.toml) must be at least updates per second x seconds that a window \
         stands still: for 1 M updates/s {dies}, if a switch dies (`dead_ms` of controllers: \
         {dead_s} s), and {slow}, if one is slow (`slow_ms`: {slow_s} s)"
    )
}

/// Bytes for people.
fn human(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| bytes >> shift != 0) {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / f64::from(1u32 << shift)),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn bytes_have_the_unit_that_they_fill() {
        let texts = [0, 1023, 1024, 1536, 1 << 20, 5 << 30].map(human);
        assert_eq!(texts, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "5.0 GiB"]);
    }
}

//! The counters of counted packets, as the store and the switches have them.

use lab::error::{Error, Result};
use lab::instance::Lab;
use lab::process;
use lab::topology::{Role, in_mode};
use serde_json::Value;
use std::collections::BTreeMap;

/// Where the ports are in a key, in hexadecimal digits: after two addresses.
const SOURCE_PORT: std::ops::Range<usize> = 16..20;
const DESTINATION_PORT: std::ops::Range<usize> = 20..24;

/// What is acknowledged, by source port: the count, and which switch owns the flow (its
/// `switch_id`).
pub type Recorded = BTreeMap<u16, (u64, Option<u32>)>;

/// Counters by source port.
#[derive(Debug, Default)]
pub struct Held {
    /// The store's; without a store what switches have: the larger where several have one.
    pub recorded: Recorded,
    /// What each switch has, by its `switch_id`. A switch that owns a flow no more has an old count
    /// of it.
    pub switches: BTreeMap<u32, BTreeMap<u16, u64>>,
}

/// Asks all stores and switches for the counters of packets to `port`.
///
/// # Errors
/// One of them does not tell.
pub fn held(lab: &Lab, port: u16) -> Result<Held> {
    let mut held = Held { recorded: BTreeMap::new(), switches: of_switches(lab, port)? };
    match recorded(lab, port)? {
        Some(recorded) => held.recorded = recorded,
        None => {
            for (source, count) in held.switches.values().flatten() {
                let known = held.recorded.entry(*source).or_default();
                known.0 = known.0.max(*count);
            }
        }
    }
    Ok(held)
}

/// What the stores have; none if there are none.
fn recorded(lab: &Lab, port: u16) -> Result<Option<Recorded>> {
    let mut addresses = Vec::new();
    let mut asking = None;
    for (node, spec) in &lab.topology().node {
        if spec.role == Role::Store
            && spec.daemon.iter().any(|daemon| in_mode(&daemon.modes, lab.mode()))
        {
            let variables = lab.variables(node);
            addresses.extend(variables.get("address").map(|address| format!("{address}:5407")));
            asking = Some((node, variables));
        }
    }
    let Some((node, variables)) = asking else { return Ok(None) };
    let word = |name: &str| variables.get(name).cloned().unwrap_or_default();
    let secrets = format!("{}/fabric.secrets", word("lab_dir"));
    let mut command = vec![word("stateplane")];
    command.extend(
        ["state", "list", "--json", "--limit", "1000000", "--secrets", &secrets]
            .map(str::to_string),
    );
    command.extend(addresses.into_iter().flat_map(|address| ["--store".to_string(), address]));
    let (good, said) = process::run(Some(&lab.netns(node)?), &command)?;
    let reply: Value =
        if good { serde_json::from_str(&said).unwrap_or_default() } else { Value::Null };
    let Some(records) = reply.as_array().or_else(|| reply["records"].as_array()) else {
        return Err(Error::Command { command: command.join(" "), reason: said });
    };
    let mut found = BTreeMap::new();
    for record in records {
        let digits = |part: &str, range: std::ops::Range<usize>| {
            u64::from_str_radix(record[part]["hex"].as_str()?.get(range)?, 16).ok()
        };
        if digits("key", DESTINATION_PORT) == Some(port.into())
            && let (Some(source), Some(count)) =
                (digits("key", SOURCE_PORT), digits("value", 0..16))
        {
            let owner = record["owner"].as_u64().and_then(|owner| u32::try_from(owner).ok());
            found.insert(source as u16, (count, owner));
        }
    }
    Ok(Some(found))
}

fn of_switches(lab: &Lab, port: u16) -> Result<BTreeMap<u32, BTreeMap<u16, u64>>> {
    let mut counts: BTreeMap<u32, BTreeMap<u16, u64>> = BTreeMap::new();
    for (node, spec) in &lab.topology().node {
        if spec.role != Role::Switch {
            continue;
        }
        let variables = lab.variables(node);
        let binary = variables.get("stateplane").cloned().unwrap_or_default();
        let switch_id = variables.get("switch_id").and_then(|id| id.parse().ok()).unwrap_or(0);
        let name = format!("{}-{node}", lab.name());
        let command =
            [&binary, "switch", "flows", "--switch", &name, "--json", "--limit", "100000"]
                .map(str::to_string);
        let (good, said) = process::run(None, &command)?;
        let reply: Value =
            if good { serde_json::from_str(&said).unwrap_or_default() } else { Value::Null };
        let Some(flows) = reply["flows"].as_array() else {
            return Err(Error::Command { command: command.join(" "), reason: said });
        };
        let of_switch = counts.entry(switch_id).or_default();
        for flow in flows {
            let field = |part: &str, name: &str| {
                let pair = flow[part].as_array()?.iter().find(|pair| pair[0] == name)?;
                number(pair[1].as_str()?)
            };
            let key = (field("key", "source_port"), field("key", "destination_port"));
            if let ((Some(source), Some(destination)), Some(count)) =
                (key, field("value", "packets"))
                && destination == u64::from(port)
                && let Ok(source) = u16::try_from(source)
            {
                of_switch.insert(source, count);
            }
        }
    }
    Ok(counts)
}

fn number(text: &str) -> Option<u64> {
    text.strip_prefix("0x")
        .map_or_else(|| text.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_come_in_two_forms() {
        assert_eq!((number("0x10"), number("12"), number("x")), (Some(16), Some(12), None));
    }
}

//! `stateplane kv verify`: whether the members of each chain hold the same.
//!
//! A chain's members are read from its tail to its head, while writes go on. A predecessor is read
//! later, and what it has is at least as new (NetChain, Invariant 1). So it is a fault if a key is
//! newer at the successor, or is there only, or has another value with the same version. A key that
//! is newer at the predecessor is no fault: the write is on its way, or it was lost there, and its
//! client was told "unknown".

use crate::cluster::{Controller, Said};
use crate::text::{from_hex, named};
use clap::Args;
use command_line::{outln, print_table};
use netchain_client::Key;
use netchain_daemon::GroupStatus;
use netchain_switch::{Held, HeldKey, HeldWanted};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};
use wire::ToolType;

/// Exit code: members differ, or a group could not be compared.
const DIFFERENT: u8 = 1;
/// A group that changes meanwhile is read so often.
const TRIES: u32 = 8;
/// The time in between: a failover takes less than all of them.
const PAUSE: Duration = Duration::from_millis(250);
/// How often progress is told.
const TELL: Duration = Duration::from_secs(2);
/// Differences that are printed; all are counted.
const MOST_TOLD: usize = 100;

const EXAMPLES: &str = "Examples:
  stateplane kv verify --address 10.2.1.10:5411 --secrets fabric.secrets
  stateplane kv verify --group 7 --address 10.2.1.10:5411 --secrets fabric.secrets
  stateplane kv --json verify --address 10.2.1.10:5411 --secrets fabric.secrets

The controller says which switches are in which chain; the switches say what they hold. Requests go
on meanwhile. A write that the head has and the tail has not yet is counted as under way, and is no
difference: its client was not told that it is done.

Exit codes: 0 all members of all chains agree; 1 some differ, or groups could not be compared, which
are named; 2 the controller does not answer.";

/// Words after `kv verify`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VerifyArgs {
    /// Only this group, by its number in `kv status --groups`.
    #[arg(long)]
    group: Option<usize>,
    #[command(flatten)]
    controller: Controller,
}

/// A key at two neighbours in a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Difference {
    group: usize,
    #[serde(flatten)]
    key: Value,
    what: &'static str,
    /// Nearer to the head.
    switch: Ipv4Addr,
    version: Option<u64>,
    successor: Ipv4Addr,
    successor_version: u64,
}

#[derive(Debug, Serialize)]
struct NotCompared {
    group: usize,
    why: String,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
struct Found {
    groups: usize,
    /// With deleted ones.
    keys: u64,
    /// At two neighbours, the one in front is newer.
    under_way: u64,
    different: u64,
    /// The first of them.
    differences: Vec<Difference>,
    not_compared: Vec<NotCompared>,
}

/// A key's slot: version, digest, and whether it is a tombstone.
type Slot = (u64, u64, bool);
type Keys = BTreeMap<String, Slot>;

/// Compares, and prints; the exit code.
pub fn verify(args: &VerifyArgs, as_json: bool) -> Said<u8> {
    let mut found = Found::default();
    let groups = args.controller.groups()?;
    let chosen: Vec<&GroupStatus> =
        groups.iter().filter(|it| args.group.is_none_or(|group| it.group == group)).collect();
    if let (Some(group), true) = (args.group, chosen.is_empty()) {
        let last = groups.len().saturating_sub(1);
        return Err(format!("there is no group {group}: they are 0 to {last}").into());
    }
    let mut told = Instant::now();
    for (at, group) in chosen.iter().enumerate() {
        if told.elapsed() >= TELL {
            eprintln!("{at} of {} groups, {} keys", chosen.len(), found.keys);
            told = Instant::now();
        }
        found.groups += 1;
        if let Err(why) = one(&args.controller, group, &mut found) {
            found.not_compared.push(NotCompared { group: group.group, why });
        }
    }
    if as_json {
        outln!("{}", command_line::json(&found));
    } else {
        print(&found);
    }
    Ok(if found.different == 0 && found.not_compared.is_empty() { 0 } else { DIFFERENT })
}

fn print(found: &Found) {
    let Found { groups, keys, under_way, different, .. } = found;
    outln!("{groups} groups, {keys} keys: {different} differ, {under_way} under way");
    if !found.differences.is_empty() {
        let version = |version: Option<u64>| version.map_or("none".into(), |it| it.to_string());
        let row = |it: &Difference| {
            let named = it.key.get("key").or_else(|| it.key.get("key_hex"));
            vec![
                it.group.to_string(),
                named.and_then(Value::as_str).unwrap_or_default().to_owned(),
                it.what.to_owned(),
                format!("{} has {}", it.switch, version(it.version)),
                format!("{} has {}", it.successor, it.successor_version),
            ]
        };
        let rows = found.differences.iter().map(row).collect();
        print_table(&["group", "key", "difference", "predecessor", "successor"], rows);
        let left = different - found.differences.len() as u64;
        if left > 0 {
            outln!("and {left} more");
        }
    }
    for NotCompared { group, why } in &found.not_compared {
        outln!("group {group} was not compared: {why}");
    }
}

/// Compares a group's members; else why that cannot be done.
fn one(controller: &Controller, group: &GroupStatus, found: &mut Found) -> Result<(), String> {
    let mut now = Some(group.clone());
    let mut why = String::new();
    for _ in 0..TRIES {
        let Some(group) = now.take() else { break };
        match group.stage.as_str() {
            "lost" => return Err("it is lost: see kv refound".into()),
            "serving" => match members(controller, &group) {
                Ok(members) => {
                    compare(&group, &members, found);
                    return Ok(());
                }
                Err(problem) => why = problem,
            },
            stage => why = format!("it is {stage}"),
        }
        std::thread::sleep(PAUSE);
        let groups = controller.groups().map_err(|error| error.to_string())?;
        now = groups.into_iter().find(|it| it.group == group.group);
    }
    Err(why)
}

/// What each full member holds, from the tail on.
fn members(controller: &Controller, group: &GroupStatus) -> Result<Vec<(Ipv4Addr, Keys)>, String> {
    let status = controller.status().map_err(|error| error.to_string())?;
    let door = |switch: &Ipv4Addr| -> Result<SocketAddrV4, String> {
        let found = status.switches.iter().find(|it| it.address == *switch);
        found.and_then(|it| it.reports_from).ok_or_else(|| {
            format!("the controller has heard no report of {switch}: see whether it runs")
        })
    };
    let full = group.chain.iter().rev().filter(|it| group.joining != Some(**it));
    full.map(|switch| Ok((*switch, held(controller, group, *switch, door(switch)?)?))).collect()
}

fn held(
    controller: &Controller,
    group: &GroupStatus,
    switch: Ipv4Addr,
    door: SocketAddrV4,
) -> Result<Keys, String> {
    let number = u16::try_from(group.group).map_err(|error| error.to_string())?;
    let (mut keys, mut from) = (Keys::new(), 0);
    loop {
        let wanted = HeldWanted { group: number, from };
        let json = serde_json::to_vec(&wanted).map_err(|error| error.to_string())?;
        let page: Held = controller
            .ask_at(door, ToolType::StateRequest, &json)
            .map_err(|error| format!("{switch}: {error}"))?;
        if page.view != Some(group.view) {
            let group = group.group;
            return Err(format!(
                "{switch} has another view of it than the controller: it changes; compare it again \
                 with --group {group}"
            ));
        }
        merge(&mut keys, page.keys);
        match page.next {
            Some(next) if next > from => from = next,
            Some(next) => return Err(format!("{switch}: slot {next} comes after slot {from}")),
            None => return Ok(keys),
        }
    }
}

/// Takes a page over. Two slots have one key while two packets insert it at once; one of them is
/// given back, and its packet finds the other.
fn merge(keys: &mut Keys, page: Vec<HeldKey>) {
    for HeldKey { key, version, digest, deleted } in page {
        let held = keys.entry(key).or_insert((version, digest, deleted));
        if held.0 < version {
            *held = (version, digest, deleted);
        }
    }
}

/// `members`: tail first.
fn compare(group: &GroupStatus, members: &[(Ipv4Addr, Keys)], found: &mut Found) {
    found.keys += members.last().map_or(0, |(_, keys)| keys.len() as u64);
    for pair in members.windows(2) {
        let [(successor, behind), (switch, front)] = pair else { continue };
        for (key, (successor_version, digest, deleted)) in behind {
            let own = front.get(key);
            let what = match own {
                // Members free a tombstone one after the other.
                None if *deleted && *successor_version < u64::from(group.floor) << 48 => continue,
                None => "only behind",
                Some((version, ..)) if version < successor_version => "newer behind",
                Some((version, ..)) if version > successor_version => {
                    found.under_way += 1;
                    continue;
                }
                Some((_, own, _)) if own != digest => "two values",
                Some(_) => continue,
            };
            found.different += 1;
            if found.differences.len() < MOST_TOLD {
                let bytes = from_hex(key).and_then(|bytes| bytes.try_into().ok());
                found.differences.push(Difference {
                    group: group.group,
                    key: named(&Key(bytes.unwrap_or_default())),
                    what,
                    switch: *switch,
                    version: own.map(|(version, ..)| *version),
                    successor: *successor,
                    successor_version: *successor_version,
                });
            }
        }
        found.under_way += front.keys().filter(|key| !behind.contains_key(*key)).count() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_slots_the_newer_one_counts() {
        let held = |version| {
            let (key, digest, deleted) = ("61".into(), version + 10, false);
            HeldKey { key, version, digest, deleted }
        };
        let mut keys = Keys::new();
        merge(&mut keys, vec![held(5), held(6), held(4)]);
        assert_eq!(keys, Keys::from([("61".to_owned(), (6, 16, false))]));
    }

    #[test]
    fn only_what_is_newer_in_front_is_no_difference() {
        let group = GroupStatus {
            group: 3,
            view: 1,
            session: 1,
            stage: "serving".into(),
            chain: vec![],
            joining: None,
            floor: 2,
            collecting: true,
        };
        let key = |letter: u8| format!("{letter:02x}{}", "00".repeat(15));
        let keys = |all: &[(u8, u64, u64)]| -> Keys {
            all.iter()
                .map(|(letter, version, digest)| {
                    (key(*letter), (*version, *digest, letter.is_ascii_uppercase()))
                })
                .collect()
        };
        let (tail, head) = (Ipv4Addr::new(10, 9, 0, 2), Ipv4Addr::new(10, 9, 0, 1));
        let behind = keys(&[(b'a', 5, 1), (b'b', 5, 1), (b'c', 6, 1), (b'd', 5, 1), (b'e', 1, 1)]);
        // A tombstone that is freed already in front.
        let behind = behind.into_iter().chain(keys(&[(b'G', 5, 1)])).collect();
        let front = keys(&[(b'a', 5, 1), (b'b', 6, 2), (b'c', 5, 1), (b'd', 5, 2), (b'f', 1, 1)]);
        let mut found = Found::default();
        compare(&group, &[(tail, behind), (head, front)], &mut found);
        assert_eq!((found.keys, found.under_way, found.different), (5, 2, 3));
        let told: Vec<_> =
            found.differences.iter().map(|it| (it.key["key"].as_str(), it.what)).collect();
        let expected =
            [(Some("c"), "newer behind"), (Some("d"), "two values"), (Some("e"), "only behind")];
        assert_eq!(told, expected);
    }
}

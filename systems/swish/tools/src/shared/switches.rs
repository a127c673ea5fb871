//! What the switches of this machine say of their groups; no controller is asked.

use super::{LeaveArgs, Said, bytes};
use command_line::{outln, print_table};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use swish_switch::load::{GroupLoad, is_late};
use swish_switch::{ChainLoad, EventualLoad};
use switch_agent::{RunDirectory, client};

/// From one look to the next.
const LOOK: Duration = Duration::from_millis(50);

/// What an agent answers.
#[derive(Debug, Serialize, Deserialize)]
struct Groups {
    #[serde(default)]
    shared: Vec<GroupLoad>,
    #[serde(default)]
    shared_eventual: Vec<EventualLoad>,
    #[serde(default)]
    shared_chain: Option<ChainLoad>,
}

/// A switch of this machine.
#[derive(Debug, Serialize)]
struct Switch {
    switch: String,
    #[serde(flatten)]
    groups: Groups,
}

/// Prints the groups of all switches of this machine.
pub(super) fn status(json: bool) -> Said<u8> {
    let mut switches = vec![];
    for name in switch_agent::known() {
        let run = RunDirectory::of(&name)?;
        match client::ask_system::<Groups>(&run, &json!({"op": "shared"})) {
            Ok(groups) => switches.push(Switch { switch: name, groups }),
            Err(error) => eprintln!("stateplane shared: {name}: {error}"),
        }
    }
    if switches.is_empty() {
        return Err(
            "no switch of this machine shares variables; --address asks a controller".into()
        );
    }
    let eventual = |it: &EventualLoad| it.fault.is_none() && (it.leaves || it.view != 0);
    let well = |it: &GroupLoad| it.fault.is_none() && (it.leaves || !is_late(it));
    let chain = |it: &ChainLoad| it.notes().is_empty();
    let all = |Switch { groups, .. }: &Switch| {
        groups.shared.iter().all(well)
            && groups.shared_chain.iter().all(chain)
            && groups.shared_eventual.iter().all(eventual)
    };
    let code = u8::from(!switches.iter().all(all));
    if json {
        outln!("{}", command_line::json(&switches));
        return Ok(code);
    }
    for (at, Switch { switch, groups }) in switches.iter().enumerate() {
        if at > 0 {
            outln!("");
        }
        outln!("switch {switch}");
        print(groups);
    }
    Ok(code)
}

/// How many members there are, as far as the switch knows, if it is to be one.
fn members(of: &[Ipv4Addr], leaves: bool, is_out: bool) -> String {
    match (leaves, is_out) {
        (false, _) => of.len().to_string(),
        (true, false) => "leaving".to_owned(),
        (true, true) => "left".to_owned(),
    }
}

fn print(groups: &Groups) {
    let row = |it: &GroupLoad| {
        vec![
            it.group.clone(),
            "sdw".to_owned(),
            members(&it.members, it.leaves, it.window == 0),
            it.view.to_string(),
            it.window.to_string(),
            format!("{} ms", it.age_ms),
            it.relaxation.to_string(),
            format!("{}/s", bytes(it.bytes_per_s)),
            bytes(it.memory_bytes),
        ]
    };
    let eventual = |it: &EventualLoad| {
        let members = members(&it.members, it.leaves, it.view == 0);
        let (group, view) = (it.group.clone(), it.view.to_string());
        let none = String::new;
        vec![group, "ewo".to_owned(), members, view, none(), none(), none(), none(), none()]
    };
    let chain = |it: &ChainLoad| {
        let members = members(&it.members, it.leaves, it.view == 0);
        let (group, view, memory) = (it.group.clone(), it.view.to_string(), bytes(it.memory_bytes));
        let none = String::new;
        vec![group, "sro".to_owned(), members, view, none(), none(), none(), none(), memory]
    };
    let rows = groups.shared.iter().map(row).chain(groups.shared_eventual.iter().map(eventual));
    let rows = rows.chain(groups.shared_chain.iter().map(chain));
    print_table(
        &["group", "", "members", "view", "window", "age", "r", "received", "memory"],
        rows.collect(),
    );
    if let Some(chain) = &groups.shared_chain {
        let ChainLoad { group, applied, committed, .. } = chain;
        outln!("  group {group}: {applied} batches, {committed} of them at all switches");
        for note in chain.notes() {
            outln!("  group {group}: {note}");
        }
    }
    for EventualLoad { group, fault, .. } in &groups.shared_eventual {
        if let Some(fault) = fault {
            outln!("  group {group}: {fault}");
        }
    }
    for group in &groups.shared {
        for note in group.notes() {
            outln!("  group {}: {note}", group.group);
        }
        if let Some(fault) = &group.fault {
            outln!("  group {}: {fault}", group.group);
        }
    }
}

/// Lets a switch leave or come back, and waits until it has.
pub(super) fn moves(args: &LeaveArgs, leaves: bool) -> Said<u8> {
    let run = client::find(args.switch.as_deref())?;
    let op = if leaves { "shared_leave" } else { "shared_join" };
    let mut groups: Groups = client::ask_system(&run, &json!({"op": op, "group": args.group}))?;
    let until = Instant::now() + Duration::from_millis(args.timeout_ms);
    let asked = |group: &String| args.group.as_ref().is_none_or(|name| group == name);
    loop {
        let windows = groups.shared.iter().map(|it| (&it.group, it.leaves, it.window == 0));
        let chain = groups.shared_chain.iter();
        let chain =
            chain.map(|it| (&it.group, it.leaves, if leaves { it.view == 0 } else { !it.reads }));
        let eventual = groups.shared_eventual.iter();
        let eventual = eventual.map(|it| (&it.group, it.leaves, it.view == 0));
        let mut all = windows.chain(chain).chain(eventual);
        let waits =
            all.find(|(group, wish, out)| asked(group) && *wish == leaves && *out != leaves);
        let Some((group, ..)) = waits else {
            outln!("{}: {}", run.name(), if leaves { "has left" } else { "shares again" });
            return Ok(0);
        };
        if Instant::now() >= until {
            let why = "the controller does not decide, or it is the last member";
            eprintln!("stateplane shared: group {group}: not done yet: {why}");
            return Ok(1);
        }
        std::thread::sleep(LOOK);
        groups = client::ask_system(&run, &json!({"op": "shared"}))?;
    }
}

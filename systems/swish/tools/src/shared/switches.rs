//! What the switches of this machine say of their groups; no controller is asked.

use super::{LeaveArgs, Said, bytes};
use command_line::{outln, print_table};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::{Duration, Instant};
use swish_switch::EventualLoad;
use swish_switch::load::{GroupLoad, is_late};
use switch_agent::{RunDirectory, client};

/// From one look to the next.
const LOOK: Duration = Duration::from_millis(50);

/// What an agent answers.
#[derive(Debug, Serialize, Deserialize)]
struct Groups {
    shared: Vec<GroupLoad>,
    shared_eventual: Vec<EventualLoad>,
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
    let well = |it: &GroupLoad| it.fault.is_none() && (it.leaves || !is_late(it));
    let code = u8::from(!switches.iter().all(|it| it.groups.shared.iter().all(well)));
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

fn print(groups: &Groups) {
    let row = |it: &GroupLoad| {
        vec![
            it.group.clone(),
            "sdw".to_owned(),
            if it.leaves { "left".to_owned() } else { it.members.len().to_string() },
            it.view.to_string(),
            it.window.to_string(),
            format!("{} ms", it.age_ms),
            it.relaxation.to_string(),
            format!("{}/s", bytes(it.bytes_per_s)),
            bytes(it.memory_bytes),
        ]
    };
    let eventual = |it: &EventualLoad| {
        let members = it.members.len().to_string();
        let (group, view) = (it.group.clone(), it.view.to_string());
        let none = String::new;
        vec![group, "ewo".to_owned(), members, view, none(), none(), none(), none(), none()]
    };
    let rows = groups.shared.iter().map(row).chain(groups.shared_eventual.iter().map(eventual));
    print_table(
        &["group", "", "members", "view", "window", "age", "r", "received", "memory"],
        rows.collect(),
    );
    for group in &groups.shared {
        for switch in &group.held_up {
            outln!("  group {}: {switch} holds it up", group.group);
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
    let asked = |it: &&GroupLoad| args.group.as_ref().is_none_or(|name| it.group == *name);
    let done = |it: &GroupLoad| !asked(&it) || it.leaves != leaves || (it.window == 0) == leaves;
    loop {
        let Some(waits) = groups.shared.iter().find(|it| !done(it)) else {
            outln!("{}: {}", run.name(), if leaves { "has left" } else { "shares again" });
            return Ok(0);
        };
        if Instant::now() >= until {
            let why = "the controller does not decide, or it is the last member";
            eprintln!("stateplane shared: group {}: not done yet: {why}", waits.group);
            return Ok(1);
        }
        std::thread::sleep(LOOK);
        groups = client::ask_system(&run, &json!({"op": "shared"}))?;
    }
}

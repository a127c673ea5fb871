//! What the switches of this machine say of their groups; no controller is asked.

use super::groups::Groups;
use super::{LeaveArgs, Said, bytes};
use command_line::{outln, print_table};
use serde::Serialize;
use serde_json::json;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use swish_protocol::objects::SYSTEM;
use swish_switch::load::GroupLoad;
use swish_switch::{ChainLoad, EventualLoad};
use switch_agent::{RunDirectory, client};

/// From one look to the next.
const LOOK: Duration = Duration::from_millis(50);

/// A switch of this machine.
#[derive(Debug, Serialize)]
struct Switch {
    switch: String,
    #[serde(flatten)]
    groups: Groups,
    /// Why its agent does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Whether the program of a switch has shared variables, as far as this user may know.
fn shares(run: &RunDirectory) -> bool {
    let manifest = run.running_manifest();
    manifest.map_or(true, |it| it.state_objects.iter().any(|it| it.system == SYSTEM))
}

/// Prints the groups of a switch of this machine, or of all.
pub(super) fn status(switch: Option<&str>, json: bool) -> Said<u8> {
    let mut switches = vec![];
    for name in switch.map_or_else(switch_agent::known, |name| vec![name.to_owned()]) {
        let run = RunDirectory::of(&name)?;
        if !shares(&run) {
            continue;
        }
        let (groups, error) = match client::ask_system(&run, &json!({"op": "shared"})) {
            Ok(groups) => (groups, None),
            Err(error) => (Groups::default(), Some(error.to_string())),
        };
        if let Some(error) = &error {
            eprintln!("stateplane shared: {error}");
        }
        switches.push(Switch { switch: name, groups, error });
    }
    if let (Some(name), true) = (switch, switches.is_empty()) {
        return Err(format!("the program of switch {name} shares no variables").into());
    }
    if switches.is_empty() {
        return Err(
            "no switch of this machine shares variables; --address asks a controller".into()
        );
    }
    if switches.iter().all(|it| it.error.is_some()) {
        return Err("no agent answers; --address asks a controller".into());
    }
    let code = code(&switches);
    if json {
        outln!("{}", command_line::json(&switches));
        return Ok(code);
    }
    for (at, Switch { switch, groups, error }) in switches.iter().enumerate() {
        if at > 0 {
            outln!("");
        }
        outln!("switch {switch}");
        match error {
            Some(_) => outln!("  its agent does not answer"),
            None => print(groups),
        }
    }
    Ok(code)
}

/// 1: some switch does not share its groups, or its agent does not answer.
fn code(switches: &[Switch]) -> u8 {
    u8::from(!switches.iter().all(|it| it.error.is_none() && it.groups.are_well()))
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
            it.window_text(),
            it.age_text(),
            it.relaxation_text(),
            format!("{}/s", bytes(it.bytes_per_s)),
            bytes(it.memory_bytes),
        ]
    };
    let eventual = |it: &EventualLoad| {
        let members = members(&it.members, it.leaves, it.view == 0);
        let (group, view, age) = (it.group.clone(), it.view.to_string(), it.age_ms);
        let (received, memory) = (bytes(it.bytes_per_s), bytes(it.memory_bytes));
        let (age, received, none) = (format!("{age} ms"), format!("{received}/s"), String::new);
        vec![group, "ewo".to_owned(), members, view, none(), age, none(), received, memory]
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
        for note in chain.notes().into_iter().chain(chain.excluded.notes()) {
            outln!("  group {group}: {note}");
        }
    }
    for note in groups.notes() {
        outln!("  {note}");
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
            eprintln!("stateplane shared: group {group}: {}", not_yet(leaves, run.name()));
            return Ok(1);
        }
        std::thread::sleep(LOOK);
        groups = client::ask_system(&run, &json!({"op": "shared"}))?;
    }
}

/// Why a switch has not left or come back in time, and what becomes of the wish.
fn not_yet(leaves: bool, switch: &str) -> String {
    let why = "not done yet: no controller decides (`stateplane shared status` tells)";
    if leaves {
        format!(
            "{why}, or this is the last member. The switch leaves as soon as that is decided; \
             until then it is `leaving`, and with SDW its packets count nothing. `stateplane \
             shared join --switch {switch}` takes it back"
        )
    } else {
        format!("{why}. The switch joins as soon as one does")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_that_waits_says_how_to_take_it_back() {
        let text = not_yet(true, "s1");
        assert!(text.contains("it is `leaving`"), "{text}");
        assert!(text.contains("`stateplane shared join --switch s1` takes it back"), "{text}");
        assert!(!not_yet(false, "s1").contains("leave"));
    }

    #[test]
    fn an_agent_that_does_not_answer_is_not_well() {
        let switch = |error: Option<&str>| Switch {
            switch: "s1".into(),
            groups: Groups::default(),
            error: error.map(str::to_owned),
        };
        assert_eq!(code(&[switch(None)]), 0);
        let all = [switch(None), switch(Some("no agent runs"))];
        assert_eq!(code(&all), 1);
        let json = serde_json::to_value(&all[1]).expect("JSON");
        assert_eq!(json["error"], "no agent runs");
    }
}

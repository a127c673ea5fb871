//! Chaos in small: a few rounds that must pass, and the same faults without replicated state, which
//! must be found. Needs root. Waits for timers.

mod common;

use chaos::plan;
use common::{must, one_at_a_time, skip, stateplane, topology};
use history::{Event, Timed, linearizable};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// `stateplane lab chaos` in both labs, with seed 1 and these rounds; its results go to `folder`.
fn chaos<T>(folder: &Path, rounds: &str, more: &[&str], run: impl FnOnce(&[&str]) -> T) -> T {
    let (nat, counter) = (topology("nat.toml"), topology("flow_counter.toml"));
    let [nat, counter, folder] =
        [&nat, &counter, folder].map(|path| path.to_str().expect("UTF-8 path"));
    let labs = ["--topology", nat, "--topology", counter, "--out", folder];
    run(&[&["lab", "chaos", "--seed", "1", "--rounds", rounds], &labs[..], more].concat())
}

/// What a run has left on the host: labs of chaos are called after their process.
fn nothing_left() {
    let labs = std::fs::read_dir(lab::instance::LABS_DIR).into_iter().flatten().flatten();
    let names: Vec<String> =
        labs.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    for name in names.iter().filter(|name| name.starts_with("chaos-")) {
        let pid = name.rsplit('-').next().expect("a process");
        assert!(Path::new("/proc").join(pid).exists(), "lab {name} is left over");
    }
}

/// All packets of flows that have ended are accounted for: each line of the file of losses has a
/// number or none, a place and a cause.
fn every_loss_is_named(folder: &Path, counts: &Value, events: &[Timed]) {
    let text = std::fs::read_to_string(folder.join("losses-counter.jsonl")).expect("the losses");
    let losses: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a loss")).collect();
    assert!(losses.iter().all(|it| it["place"].is_string() && it["cause"].is_string()), "{text}");
    let counted = losses.iter().filter(|it| it["number"].is_u64()).count() as u64;
    assert_eq!(Some(counted), counts["counted_and_lost"].as_u64(), "{counts}");
    assert_eq!(Some(losses.len() as u64 - counted), counts["lost"].as_u64(), "{counts}");
    every_packet_is_out_or_lost(&losses, events);
}

/// Of every flow, also of those that lasted until the end: each packet got out or is named, and so
/// does each number.
fn every_packet_is_out_or_lost(losses: &[Value], events: &[Timed]) {
    let word = |it: &Value, name: &str| it[name].as_u64().expect("a number") as u32;
    let mut packets: BTreeSet<(u32, u32)> =
        losses.iter().map(|it| (word(it, "flow"), word(it, "packet"))).collect();
    let mut numbers: BTreeSet<(u32, u64)> =
        losses.iter().filter_map(|it| Some((word(it, "flow"), it["number"].as_u64()?))).collect();
    let mut last: BTreeMap<u32, u64> = BTreeMap::new();
    for timed in events {
        if let Event::Output { flow, packet, count } = timed.event {
            packets.insert((flow, packet));
            numbers.insert((flow, count));
            let last = last.entry(flow).or_default();
            *last = count.max(*last);
        }
    }
    for timed in events {
        if let Event::Input { flow, packet } = timed.event {
            assert!(
                packets.contains(&(flow, packet)),
                "packet {packet} of flow {flow} is neither out nor named"
            );
        }
    }
    for (flow, last) in last {
        let missing = (1..=last).find(|number| !numbers.contains(&(flow, *number)));
        assert_eq!(missing, None, "a number of flow {flow} that no packet has, of {last}");
    }
}

/// The history of a real run with one mistake in it is refused: a number that two packets have, an
/// update that was lost, a number too high.
fn seeded_mistakes_are_found(events: &[Timed]) {
    let all: Vec<_> = history::operations(events).into_values().collect();
    let flow = all.iter().max_by_key(|flow| flow.len()).expect("a flow");
    assert_eq!(linearizable::check(flow), Ok(()));
    let answered: Vec<usize> = (0..flow.len()).filter(|at| flow[*at].returned.is_some()).collect();
    let (middle, last) = (answered[answered.len() / 2], answered[answered.len() - 1]);
    let with = |at: usize, change: &dyn Fn(u64) -> u64| {
        let mut wrong = flow.clone();
        wrong[at].returned = wrong[at].returned.map(|(when, count)| (when, change(count)));
        linearizable::check(&wrong)
    };
    let earlier = flow[answered[0]].returned.expect("an answer").1;
    assert!(with(middle, &|_| earlier).is_err(), "a number that another packet has");
    assert!(with(last, &|count| count - 1).is_err(), "an update that was lost");
    assert!(
        with(last, &|_| flow.len() as u64 + 1).is_err(),
        "a count of more packets than there were"
    );
    // Of the last packet the counter tells, and nothing else does.
    let (when, count) = flow[last].returned.expect("an answer");
    let read = |count| {
        let read = linearizable::Operation {
            input: linearizable::Counter::Read,
            invoked: when + 1,
            returned: Some((when + 2, count)),
        };
        linearizable::check(&[&flow[..], &[read]].concat())
    };
    assert_eq!(read(count), Ok(()));
    assert!(read(count - 1).is_err(), "the last update is lost");
}

#[test]
fn random_failures_break_no_connection_and_lose_no_count() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let folder = tempfile::tempdir().expect("a folder");
    // Round 1 of seed 1 cuts s1's power; the rounds of both labs have links cut, agents killed and
    // messages lost.
    let report = chaos(folder.path(), "3", &["--json"], must);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["labs"][0]["rounds"].as_array().map(Vec::len), Some(3), "{report}");
    assert!(report["labs"][0]["connections"]["exchanges"].as_u64() > Some(1_000), "{report}");
    let counts = &report["labs"][1]["counts"];
    assert!(
        counts["out"].as_u64() > Some(1_000) && counts["counters"].as_u64() >= Some(60),
        "{report}"
    );
    assert_eq!(report["open_files"][0], report["open_files"][1], "files are left open");
    let lines =
        std::fs::File::open(folder.path().join("history-counter.jsonl")).expect("the history");
    let events = history::read_lines(std::io::BufReader::new(lines)).expect("events");
    let history = history::History::of(events.clone());
    assert_eq!(Some(history.outputs() as u64), counts["out"].as_u64());
    assert_eq!(history.check(), Ok(()));
    every_loss_is_named(folder.path(), counts, &events);
    assert!(counts["histories"].as_u64() >= counts["counters"].as_u64(), "{report}");
    let bindings = &report["labs"][0]["bindings"];
    assert!(
        bindings["flows"].as_u64() >= Some(56) && bindings["operations"].as_u64() > Some(2_000),
        "{report}"
    );
    seeded_mistakes_are_found(&events);
    nothing_left();
}

#[test]
fn broken_connections_and_counts_that_come_twice_are_found() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let folder = tempfile::tempdir().expect("a folder");
    let output = chaos(folder.path(), "1", &["--mode", "plain"], stateplane);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let text = std::fs::read_to_string(folder.path().join("chaos.json")).expect("the report");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    for lab in 0..2 {
        assert!(report["labs"][lab]["violations"].as_u64() > Some(0), "{report}");
    }
    let found = report["labs"][1]["violation"].to_string();
    assert!(
        found.contains("got out as") || found.contains("both counted as"),
        "a count that comes twice: {found}"
    );
    assert!(found.contains("not linearizable"), "{found}");
    assert!(
        report["labs"][0]["violation"].to_string().contains("not linearizable"),
        "bindings that change: {report}"
    );
    let folders = std::fs::read_dir(folder.path()).expect("the results").flatten();
    let names: Vec<String> =
        folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    assert!(names.contains(&"nat-round-1".to_string()), "{names:?}");
    nothing_left();
}

/// A member of etcd and a controller beside each store: two rounds in which both are killed, in
/// each lab.
#[test]
fn controllers_that_elect_one_of_them_survive_random_failures() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let killed = |file: &str, round: u64| -> BTreeSet<String> {
        let lab = lab::topology::Topology::read(Path::new(&topology(file))).expect("a topology");
        let steps = plan::draw(1, &lab.name, round, &plan::Site::of(&lab, "etcd"));
        let of_process = |step: plan::Step| match step.fault {
            plan::Fault::Process { process: daemon, .. } => Some(daemon),
            _ => None,
        };
        steps.into_iter().filter_map(of_process).collect()
    };
    let both = |file: &str, from: u64| {
        let all =
            killed(file, from).union(&killed(file, from + 1)).cloned().collect::<BTreeSet<_>>();
        all.contains("etcd") && all.contains("controller")
    };
    let from = (1..10_000)
        .find(|from| both("nat.toml", *from) && both("flow_counter.toml", *from))
        .expect("a round");
    let folder = tempfile::tempdir().expect("a folder");
    let report =
        chaos(folder.path(), "2", &["--mode", "etcd", "--from", &from.to_string(), "--json"], must);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["labs"][0]["rounds"].as_array().map(Vec::len), Some(2), "{report}");
    assert!(report["labs"][0]["connections"]["exchanges"].as_u64() > Some(500), "{report}");
    assert!(report["labs"][1]["counts"]["out"].as_u64() > Some(500), "{report}");
    nothing_left();
}

//! A switch whose windows may cost little makes long pauses, and another one leaves meanwhile: what
//! operators are told. No time is asserted, so that the test holds beside other work: a status
//! counts only if the first switch said before and after it that it is in the same pause.

use super::{deaths, mesh, status};
use crate::common::{TestLab, json, must, one_at_a_time, skip, wait_for};
use crate::probes::Host;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Cells that are updated all the time: of two counters, 45 blocks each.
const CELLS: u32 = 16_000;
/// A cell that only one host updates.
const OWN: u32 = 16_300;
/// Members that hold up all others for longer are removed. Pauses of the first switch are longer:
/// 1 Mbit/s for 90 blocks to three others takes 3 s.
const SLOW_MS: u64 = 1000;
/// The switch that makes pauses.
const SLOWEST: &str = "10.9.0.1";

/// A lab in which the first switch may send 1 Mbit/s.
fn up(folder: &std::path::Path) -> TestLab {
    let file = mesh::topology(folder, 4);
    let mut text = std::fs::read_to_string(&file).expect("the topology");
    assert_eq!(text.matches("bound = ${bound}").count(), 1, "of one group");
    text = text.replace("bound = ${bound}", "bound = ${bound}\nbandwidth_mbps = ${mbps}");
    for number in 1..=4 {
        let own = format!("number = \"{number}\"");
        let mbps = if number == 1 { 1 } else { 1000 };
        text = text.replace(&own, &format!("{own}\nmbps = \"{mbps}\""));
    }
    std::fs::write(&file, text).expect("written");
    let slow = format!("slow_ms={SLOW_MS}");
    // (An agent that gets no CPU for a while is not dead.)
    let sets = ["dead_ms=5000", &slow, "cells=16384", "kind=SUMS"];
    let sets: Vec<&str> = sets.iter().flat_map(|it| ["--set", it]).collect();
    TestLab::up("shared-pause", file.to_str().expect("UTF-8"), &sets)
}

/// A host that updates the cells of its switch, until this is dropped: also if the test fails.
struct Sender {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sender {
    fn begin(lab: &TestLab, number: u32) -> Sender {
        let (host, stop) = (Host::of(lab, number), Arc::<AtomicBool>::default());
        let until = Arc::clone(&stop);
        let sends = move || {
            let mut at = 0;
            while !until.load(Ordering::Relaxed) {
                host.send((at..at + 16).map(|it| it % CELLS));
                at = (at + 16) % CELLS;
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        Sender { stop, thread: Some(std::thread::spawn(sends)) }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// What a switch says of the group `main`.
struct Said {
    at: Instant,
    window: u64,
    pause_ms: u64,
    held_up: Vec<String>,
}

impl Said {
    fn by(lab: &TestLab, number: u32) -> Said {
        let at = Instant::now();
        let output = crate::common::stateplane(&["shared", "status", "--json"]);
        // (1: a group is held up.)
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        let all = json(&String::from_utf8(output.stdout).expect("UTF-8"));
        let name = format!("{}-s{number}", lab.name);
        let switch = all.as_array().into_iter().flatten().find(|it| it["switch"] == name.as_str());
        let groups = switch.expect("the lab's switch")["shared"].as_array().expect("groups");
        let group = groups.iter().find(|it| it["group"] == "main").expect("the group");
        let held_up = group["held_up"].as_array().into_iter().flatten();
        Said {
            at,
            window: group["window"].as_u64().expect("a window"),
            pause_ms: group["pause_ms"].as_u64().expect("a pause"),
            held_up: held_up.map(|it| it.as_str().expect("an address").to_owned()).collect(),
        }
    }
}

/// The group `main`, as the controller tells it.
fn main_group(status: &Value) -> Option<&Value> {
    status["groups"].as_array()?.iter().find(|it| it["group"] == "main")
}

/// How the controller says that a switch is in the group. `None`: it did not answer in time.
fn standing(status: &Value, number: usize) -> Option<&str> {
    main_group(status)?["switches"][number - 1]["standing"].as_str()
}

/// The controller says that all is well in a pause of the first switch, between what that switch
/// said before and after it. `None`: it was asked at another time, or did not know of the pause.
fn is_well_in_a_pause(lab: &TestLab) -> Option<u64> {
    let before = Said::by(lab, 1);
    assert!(before.pause_ms == 0 || before.held_up.is_empty(), "s1 pauses, and waits for a member");
    let asked = Instant::now();
    let all = status(lab);
    let after = Said::by(lab, 1);
    let group = main_group(&all)?;
    let reported = Duration::from_millis(group["switches"][0]["report_ms"].as_u64()?);
    let knows = asked.checked_sub(reported)? > before.at;
    let is_one_pause = before.window == after.window && after.pause_ms > 0 && before.pause_ms > 0;
    if !knows || !is_one_pause {
        return None;
    }
    assert!(group["held_up"].is_null(), "in a pause of s1: {all}");
    Some(before.window)
}

/// Updates a cell until so many updates are answered. How many were not: they count or not.
fn update(host: &Host, answered: usize) -> usize {
    let (mut counted, mut unknown) = (0, 0);
    while counted < answered {
        match host.ask(OWN, 1) {
            Some(probe) if probe.window > 0 => counted += 1,
            Some(_) => panic!("the switch is no member"),
            None => unknown += 1,
        }
        assert!(unknown < 50, "the switch answers");
    }
    unknown
}

#[test]
fn a_pause_is_no_fault_and_a_switch_can_leave_in_it() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let folder = tempfile::tempdir().expect("a folder");
    let lab = up(folder.path());
    wait_for("all switches are members", || status(&lab)["settled"] == true);
    // (The packets of the others are few: their windows cost nothing.)
    let sender = Sender::begin(&lab, 1);

    // Windows turn at the pace of the slowest, in longer pauses than members may be slow.
    let mut paused = BTreeSet::new();
    wait_for("s1 makes long pauses in four windows", || {
        let said = Said::by(&lab, 1);
        if said.pause_ms > SLOW_MS {
            paused.insert(said.window);
        }
        paused.len() >= 4
    });
    wait_for("s2 says that it waits for s1 alone", || Said::by(&lab, 2).held_up == [SLOWEST]);
    let mut well = BTreeSet::new();
    wait_for("the controller is asked in pauses of two windows", || {
        well.extend(is_well_in_a_pause(&lab));
        well.len() >= 2
    });
    assert_eq!(deaths(&lab), 0, "a pause is no reason to remove a switch");
    println!("pauses in windows {paused:?}; all was well in those of {well:?}");

    // Two windows and their pauses pass until what s3 has counts.
    let unknown = update(&Host::of(&lab, 3), 50);
    let name = format!("{}-s3", lab.name);
    let mut said: Vec<String> = vec![];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            must(&["shared", "leave", "--switch", &name, "--timeout-ms", "60000"]);
        });
        wait_for("s3 has left", || {
            let all = status(&lab);
            let now = standing(&all, 3).unwrap_or_default();
            if !now.is_empty() && said.last().is_none_or(|it| it != now) {
                said.push(now.to_owned());
            }
            now == "left"
        });
    });
    println!("s3 was {said:?}");
    assert!(said.iter().any(|it| it == "leaving"), "{said:?}");
    wait_for("the others go on", || status(&lab)["settled"] == true);
    let all = Host::of(&lab, 1).read(OWN).counter as usize;
    assert!((50..=50 + unknown).contains(&all), "s3 made 50 to {} updates: {all}", 50 + unknown);
    drop(sender);
    assert_eq!(deaths(&lab), 0);
    lab.down();
}

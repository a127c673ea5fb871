//! A switch whose windows may cost little makes long pauses, and another one leaves meanwhile: what
//! operators are told.

use super::{deaths, mesh, status};
use crate::common::{TestLab, json, must, one_at_a_time, skip, wait_for};
use crate::probes::Host;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Cells that are updated all the time: of two variables, three blocks each.
const CELLS: u32 = 1000;
/// A cell that no other host updates.
const OWN: u32 = 2000;

/// A lab in which the first switch may send 1 Mbit/s, and one that holds up all others for 200 ms
/// is removed. (Switches that are silent for a while on a busy machine are not.)
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
    let sets = ["--set", "slow_ms=200", "--set", "dead_ms=500"];
    TestLab::up("shared-pause", file.to_str().expect("UTF-8"), &sets)
}

/// Hosts that update cells, until this is dropped: also if the test fails.
struct Senders {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Senders {
    fn begin(lab: &TestLab) -> Senders {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (1..=4).map(|number| floods(lab, number, &stop)).collect();
        Senders { stop, threads }
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|it| drop(it.join()));
    }
}

fn floods(lab: &TestLab, number: u32, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (host, stop) = (Host::of(lab, number), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut at = 0;
        while !stop.load(Ordering::Relaxed) {
            host.send((at..at + 16).map(|it| it % CELLS));
            at += 16;
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

/// Members that a switch waits for, in the group `main`, as it says itself.
fn held_up(lab: &TestLab, number: u32) -> Vec<String> {
    let all = json(&run_status(&["shared", "status", "--json"]));
    let name = format!("{}-s{number}", lab.name);
    let switch = all.as_array().into_iter().flatten().find(|it| it["switch"] == name.as_str());
    let groups = switch.expect("the lab's switch")["shared"].as_array().expect("groups");
    let group = groups.iter().find(|it| it["group"] == "main").expect("the group");
    let members = group["held_up"].as_array().into_iter().flatten();
    members.map(|it| it.as_str().expect("an address").to_owned()).collect()
}

/// (1: a group is held up.)
fn run_status(words: &[&str]) -> String {
    let output = crate::common::stateplane(words);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// How the controller says that a switch is in the group `main`. None: it did not answer in time.
fn standing(status: &Value, number: usize) -> Option<String> {
    let group = status["groups"].as_array()?.iter().find(|it| it["group"] == "main")?;
    Some(group["switches"][number - 1]["standing"].as_str()?.to_owned())
}

/// All say for 3 s that the first switch makes the pauses. (On a busy machine another one may be
/// late now and then, or the controller's answer.)
fn all_name_the_slowest(lab: &TestLab) {
    let (began, mut looks, mut waited, mut others) = (Instant::now(), 0, 0, vec![]);
    while began.elapsed() < Duration::from_secs(3) {
        let (of_2, of_1, all) = (held_up(lab, 2), held_up(lab, 1), status(lab));
        let names_slowest = of_2.iter().all(|it| it == "10.9.0.1");
        looks += 1;
        waited += usize::from(names_slowest && !of_2.is_empty());
        let is_settled = all["settled"] == true && all["groups"][0]["held_up"].is_null();
        if !(names_slowest && of_1.is_empty() && is_settled) {
            others.push(format!("s2 waits for {of_2:?}, s1 for {of_1:?}: {all}"));
        }
    }
    println!("s2 said {waited} times of {looks} that it waits; {} were otherwise", others.len());
    assert!(waited > 0, "s2 never says that it waits");
    assert!(others.len() * 5 <= looks, "{} of {looks}: {others:#?}", others.len());
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
    let senders = Senders::begin(&lab);
    std::thread::sleep(Duration::from_millis(500));

    // Windows turn, at the pace of the slowest. Switches that wait name it; none is removed.
    let reader = Host::of(&lab, 2);
    let (began, first) = (Instant::now(), reader.read(0).window);
    all_name_the_slowest(&lab);
    let windows = reader.read(0).window - first;
    let each = began.elapsed() / u32::try_from(windows).expect("few").max(1);
    println!("{windows} windows of {each:?}");
    assert!(windows >= 3 && each > Duration::from_millis(100), "{windows} windows of {each:?}");
    assert_eq!(deaths(&lab), 0, "a pause is no reason to remove a switch");

    // Two windows and their pauses pass until what s3 has counts.
    let unknown = update(&Host::of(&lab, 3), 50);
    let name = format!("{}-s3", lab.name);
    let (mut said, begun): (Vec<String>, _) = (vec![], Instant::now());
    let left = std::thread::scope(|scope| {
        let leaves = scope.spawn(|| {
            must(&["shared", "leave", "--switch", &name]);
            Instant::now()
        });
        while said.last().is_none_or(|it| it != "left") {
            assert!(begun.elapsed() < Duration::from_secs(10), "s3 is {said:?}");
            let Some(now) = standing(&status(&lab), 3) else { continue };
            if said.last() != Some(&now) {
                said.push(now);
            }
        }
        leaves.join().expect("it leaves")
    });
    println!("s3 left after {:?}, and was {said:?}", left.duration_since(begun));
    assert!(["leaving", "left"].iter().all(|it| said.iter().any(|was| was == it)), "{said:?}");
    wait_for("the others go on", || status(&lab)["settled"] == true);
    let all = Host::of(&lab, 1).read(OWN).counter as usize;
    assert!((50..=50 + unknown).contains(&all), "s3 made 50 to {} updates: {all}", 50 + unknown);
    drop(senders);
    assert_eq!(deaths(&lab), 0);
    lab.down();
}

//! Switches with EWO, and their controller, die for real, are cut off, leave and come back, while
//! hosts write: all come to read what the hosts' ledgers say. Needs root. Waits for timers.

#[path = "common/cells.rs"]
mod cells;
#[path = "common/chaos.rs"]
mod chaos;
mod common;
#[path = "lab_eventual_failures/hosts.rs"]
mod hosts;
#[path = "lab_shared_failures/mesh.rs"]
mod mesh;

use cells::{Cells, Host, add, all_write, converge, read};
use chaos::Chaos;
use common::{TestLab, env_number, skip, wait_for};
use hosts::{Hosts, SENT, Truth};
use mesh::status;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const TOPOLOGY: &str = "../../systems/swish/lab/failures.toml";
const GROUPS: [&str; 3] = ["main", "sets", "other"];
const ALL: [u64; 4] = [1, 2, 3, 4];
const NAMES: [&str; 4] = ["s1", "s2", "s3", "s4"];
/// One lab at a time: all share two cores.
static LAB: Mutex<()> = Mutex::new(());

/// A lab of four switches that share eventual.p4's variables.
fn up(folder: &Path) -> TestLab {
    up_with("eventual-dead", folder, 4, 16)
}

/// The same of so many switches, with so many slots.
fn up_with(test: &str, folder: &Path, count: u32, slots: u32) -> TestLab {
    let file = mesh::with_groups(folder, count, &GROUPS, "gossip_ms = 100\n");
    let slots = format!("kind=SLOTS={slots}");
    let sets = ["--set", "program=eventual", "--set", &slots];
    let lab = TestLab::up(test, file.to_str().expect("UTF-8"), &sets);
    mesh::wait_for_hosts(&lab, count);
    settle(&lab);
    lab
}

fn settle(lab: &TestLab) {
    wait_for("all switches have all", || status(lab)["settled"] == true);
}

/// These are members of all groups, and have all.
fn are_members(status: &Value, numbers: &[u64]) -> bool {
    let groups = status["groups"].as_array().into_iter().flatten();
    let members = |group: &Value| -> Vec<u64> {
        let switches = group["switches"].as_array().into_iter().flatten();
        let members = switches.filter(|it| it["standing"] == "member");
        members.filter_map(|it| Some(it["number"].as_u64()? + 1)).collect()
    };
    groups.map(members).filter(|it| it == numbers).count() == GROUPS.len()
}

/// A lab, and what its cells must be.
struct Running {
    lab: TestLab,
    truth: Cells,
    seed: u64,
}

impl Running {
    /// The hosts of these switches write, each something.
    fn write(&mut self, numbers: &[u64]) {
        self.seed += 2;
        let updates = all_write(&self.lab, numbers, self.seed, Duration::from_millis(400));
        assert!(updates.iter().all(|it| !it.is_empty()), "each host writes");
        updates.iter().for_each(|it| add(&mut self.truth, it));
    }

    fn converge(&self, numbers: &[u64]) {
        converge(&self.lab, numbers, &self.truth);
    }

    fn wait_members(&self, numbers: &[u64]) {
        wait_for(&format!("{numbers:?} are members"), || are_members(&status(&self.lab), numbers));
    }

    /// All links of a switch.
    fn links(&self, state: &str, of: &str) {
        self.lab.links(state, of, &["s1", "s2", "s3", "s4", "controller"]);
    }
}

/// Lives of the group with counters, that have slots at a switch.
fn lives(lab: &TestLab, switch: &str) -> u32 {
    let text = lab.metrics(switch);
    let name = "stateplane_switch_shared_lives{group=\"main\"} ";
    let lives = text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
    lives.unwrap_or_else(|| panic!("{switch}: {text}"))
}

/// No switch has dropped what it must not.
fn is_clean(lab: &TestLab, switches: &[&str]) {
    let reasons = ["forged", "faults", "malformed", "no_slot", "cell_stuck"];
    lab.is_clean("swish", switches, &reasons);
}

#[test]
fn switches_die_and_return() {
    if skip() {
        return;
    }
    let _one = LAB.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = Running { lab: up(folder.path()), truth: Cells::new(), seed: 1 };
    run.write(&[1, 2, 3, 4]);
    run.converge(&[1, 2, 3, 4]);

    // One dies, and then the controller. All that it had sent stays.
    let killed = Instant::now();
    run.lab.kill_now("s4");
    run.lab.fail("s4");
    run.wait_members(&[1, 2, 3]);
    println!("s4 is no member {:?} after SIGKILL", killed.elapsed());
    run.write(&[1, 2, 3]);
    run.lab.kill_daemon("controller", "controller");
    run.write(&[1, 2, 3]);
    run.converge(&[1, 2, 3]);
    run.lab.restart_daemon("controller", "controller");

    // It comes back with a life of its own. When it is said to have all, it has.
    run.lab.restore("s4");
    let begun = Instant::now();
    settle(&run.lab);
    println!("s4 has all {:?} after it began", begun.elapsed());
    assert_eq!(read(&Host::of(&run.lab, 4), &run.truth), run.truth);

    // An agent dies: packets go on, in the same life.
    run.lab.kill_daemon("s2", "switch");
    run.write(&[1, 2, 3, 4]);
    run.wait_members(&[1, 3, 4]);
    run.lab.restart_daemon("s2", "switch");
    settle(&run.lab);
    run.converge(&[1, 2, 3, 4]);

    // One is cut off, and counts alone: all of it counts when it is back.
    run.links("down", "s3");
    run.wait_members(&[1, 2, 4]);
    run.write(&[1, 2, 3, 4]);
    run.links("up", "s3");
    settle(&run.lab);
    run.converge(&[1, 2, 3, 4]);

    // One leaves; what its packets change meanwhile counts when it is back.
    let name = format!("{}-s2", run.lab.name);
    common::must(&["shared", "leave", "--switch", &name]);
    run.wait_members(&[1, 3, 4]);
    run.write(&[1, 3, 4]);
    run.converge(&[1, 3, 4]);
    run.write(&[2]);
    common::must(&["shared", "join", "--switch", &name]);
    settle(&run.lab);
    run.converge(&[1, 2, 3, 4]);
    is_clean(&run.lab, &NAMES);
    assert_eq!(NAMES.map(|it| lives(&run.lab, it)), [5; 4]);
    run.lab.down();
}

/// Nineteen lives, and a counter has 16 slots.
#[test]
fn slots_are_given_back() {
    if skip() {
        return;
    }
    let _one = LAB.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = Running { lab: up(folder.path()), truth: Cells::new(), seed: 100 };
    let others = ["s2", "s3", "s4"];
    for _ in 0..5 {
        run.write(&ALL);
        run.converge(&ALL);
        others.iter().for_each(|it| run.lab.kill_now(it));
        others.iter().for_each(|it| run.lab.fail(it));
        run.wait_members(&[1]);
        run.write(&[1]);
        others.iter().for_each(|it| run.lab.restore(it));
        settle(&run.lab);
        // Four members, the base, and half of what they leave.
        wait_for("few lives have slots", || others.iter().all(|it| lives(&run.lab, it) <= 11));
    }
    run.write(&ALL);
    run.converge(&ALL);
    println!("lives with slots: {:?}", NAMES.map(|it| lives(&run.lab, it)));
    is_clean(&run.lab, &NAMES);
    run.lab.down();
}

fn drawn(rng: &mut StdRng, count: u32) -> Chaos {
    let mut all: Vec<u32> = (1..=count).collect();
    all.shuffle(rng);
    let some = rng.random_range(1..count) as usize;
    let (one, other) = (all[0], all[1]);
    match rng.random_range(0..12) {
        0..4 => Chaos::Kills { dead: all[..some].to_vec(), controller: rng.random_bool(0.4) },
        4..6 => Chaos::Rolls { dead: all[..some.min(3)].to_vec() },
        6 => Chaos::Agent { of: one, ms: rng.random_range(0..500) },
        7 => Chaos::Controller { ms: rng.random_range(0..1500) },
        8..10 => Chaos::CutOff { of: one, ms: rng.random_range(50..3000) },
        10 => Chaos::Cut { one, other, ms: rng.random_range(300..4000) },
        _ => Chaos::Lossy { one, other },
    }
}

/// A round of chaos while hosts write. All switches come to read the same, and what they must.
fn round_of(lab: &TestLab, rng: &mut StdRng, chaos: &Chaos, count: u32, truth: &mut Truth) {
    let hosts = Hosts::begin(lab, count, rng.random_range(0..1 << 20));
    std::thread::sleep(SENT + Duration::from_millis(rng.random_range(100..1000)));
    let deaths = chaos.happen(lab, count, rng);
    settle(lab);
    std::thread::sleep(Duration::from_millis(200));
    let ledgers = hosts.end();
    settle(lab);
    truth.add(&ledgers, &deaths);
    let (may, kept) = truth.check(truth.converged(lab, count), &ledgers, &deaths);
    println!("  {kept} of the {may} that may be lost are kept");
    let switches: Vec<String> = (1..=count).map(|it| format!("s{it}")).collect();
    let switches: Vec<&str> = switches.iter().map(String::as_str).collect();
    is_clean(lab, &switches);
}

/// Room for eight members, and for seven that die in each of five rounds.
const SLOTS: u32 = 48;

/// Labs of 4 to 8 switches, each for five rounds. ROUNDS, SEED: how many, and which ones.
#[test]
#[ignore = "minutes"]
fn nothing_of_the_living_is_lost_in_chaos() {
    if skip() {
        return;
    }
    let _one = LAB.lock();
    let rounds = env_number("ROUNDS").unwrap_or(10);
    let seed = env_number("SEED").unwrap_or_else(|| rand::random_range(0..1_000_000));
    println!("SEED={seed} ROUNDS={rounds}");
    let mut rng = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().expect("a folder");
    for first in (0..rounds).step_by(5) {
        let count = rng.random_range(4..=8);
        let lab = up_with("eventual-chaos", folder.path(), count, SLOTS);
        let mut truth = Truth::default();
        for round in first..rounds.min(first + 5) {
            let chaos = drawn(&mut rng, count);
            println!("round {round} with {count} switches: {chaos:?}");
            round_of(&lab, &mut rng, &chaos, count, &mut truth);
        }
        lab.down();
    }
}

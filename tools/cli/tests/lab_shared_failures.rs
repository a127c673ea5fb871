//! Switches of a group, and their controller, die for real and come back: windows go on without
//! them, and no update of a living switch is lost. Truth is what the hosts sent and got back. Needs
//! root. Waits for timers.

mod common;
#[path = "lab_shared_failures/mesh.rs"]
mod mesh;
#[path = "lab_shared_failures/pauses.rs"]
mod pauses;
#[path = "lab_shared_failures/probes.rs"]
mod probes;
#[path = "lab_shared_failures/recovery.rs"]
mod recovery;
#[path = "lab_shared_failures/watch.rs"]
mod watch;

use common::{TestLab, env_number, one_at_a_time, skip, wait_for};
use mesh::status;
use probes::{Death, Hosts, Ledger, Truth};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use std::time::{Duration, Instant};

const TOPOLOGY: &str = "../../systems/swish/lab/failures.toml";

/// A lab whose hosts write all the time.
struct Running {
    lab: TestLab,
    count: u32,
    hosts: Hosts,
    deaths: Vec<Death>,
    truth: Truth,
    seed: u64,
}

impl Running {
    fn begin(lab: TestLab, count: u32, seed: u64) -> Running {
        wait_for("all switches are members", || status(&lab)["settled"] == true);
        let hosts = Hosts::begin(&lab, count, seed);
        Running { lab, count, hosts, deaths: vec![], truth: Truth::new(), seed }
    }

    fn others(&self, dead: &[u32]) -> Vec<u32> {
        (1..=self.count).filter(|number| !dead.contains(number)).collect()
    }

    /// SIGKILL to all of these switches at once. When that was.
    fn kill(&mut self, dead: &[u32]) -> Instant {
        let living = self.others(dead);
        let window = living.iter().map(|it| self.hosts.window(*it)).min().expect("a living switch");
        let far = Instant::now() + Duration::from_secs(3600);
        let died = dead.iter().map(|number| Death { number: *number, window, until: far });
        self.deaths.extend(died);
        let killed = Instant::now();
        dead.iter().for_each(|number| self.lab.kill_now(&format!("s{number}")));
        dead.iter().for_each(|number| self.lab.fail(&format!("s{number}")));
        killed
    }

    fn restore(&mut self, dead: &[u32]) {
        for number in dead {
            let last = self.deaths.iter_mut().rfind(|it| it.number == *number);
            last.expect("a death").until = Instant::now();
            self.lab.restore(&format!("s{number}"));
        }
    }

    /// The windows of these switches go on.
    fn move_on(&self, numbers: &[u32], windows: u64) {
        for number in numbers {
            let first = self.hosts.window(*number);
            let what = format!("{windows} windows at s{number}");
            wait_for(&what, || self.hosts.window(*number) >= first + windows);
        }
    }

    fn settle(&self) {
        wait_for("all switches are members", || status(&self.lab)["settled"] == true);
    }

    /// The hosts pause: all read the same, and what they must. What they sent since the last time.
    fn check(&mut self) -> Vec<Ledger> {
        self.seed += 1;
        let begun = std::mem::replace(&mut self.hosts, Hosts::none());
        let ledgers = begun.end();
        probes::add(&mut self.truth, &ledgers, &self.deaths);
        probes::all_have(&self.lab, &self.others(&[]), &mut self.truth);
        ledgers
    }

    fn go_on(&mut self) {
        self.deaths.clear();
        self.hosts = Hosts::begin(&self.lab, self.count, self.seed);
    }
}

/// Members of each group, by their numbers from 1 on.
fn members(status: &Value) -> Vec<Vec<u32>> {
    let of = |group: &Value| -> Vec<u32> {
        let switches = group["switches"].as_array().into_iter().flatten();
        let members = switches.filter(|it| it["standing"] == "member");
        members.filter_map(|it| Some(it["number"].as_u64()? as u32 + 1)).collect()
    };
    status["groups"].as_array().into_iter().flatten().map(of).collect()
}

/// Members of a lab that the controller removed, in all its groups.
fn deaths(lab: &TestLab) -> u64 {
    let text = lab.metrics("controller");
    let of = |what: &str| {
        let name = format!("stateplane_shared_controller_{what}_total ");
        let count = text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok());
        count.unwrap_or_else(|| panic!("{text}"))
    };
    of("deaths") + of("slow")
}

/// What packets of the newer program bring back.
const MARK: u32 = 0x1234_5678;

/// A switch that has left gets a newer program with the same variables, and joins again by itself.
fn upgrade(lab: &TestLab, node: &str) {
    lab.kill_daemon(node, "switch");
    let source = common::topology("../../systems/swish/p4/probe/probe.p4");
    let object = lab::Lab::open(&lab.name).expect("a lab").dir().join("probe.o");
    let [source, object] = [&source, &object].map(|it| it.to_str().expect("UTF-8 path"));
    let (cells, mark) = ("CELLS=4096", format!("NEWER={MARK}"));
    common::must(&["compile", source, "-D", cells, "-D", "MIXED", "-D", &mark, "-o", object]);
    lab.restart_daemon(node, "switch");
}

/// One, two and three of four switches die at once, and come back; then the controller does.
#[test]
fn windows_go_on_without_the_dead() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let mut run = Running::begin(TestLab::up("shared-dead", TOPOLOGY, &[]), 4, 1);
    for dead in [&[4][..], &[1, 3], &[2, 3, 4]] {
        run.move_on(&[1, 2, 3, 4], 20);
        let before = deaths(&run.lab);
        let killed = run.kill(dead);
        let living = run.others(dead);
        wait_for("the dead are no members", || {
            let members = members(&status(&run.lab));
            members.len() == 2 && members.iter().all(|it| *it == living)
        });
        let removed = killed.elapsed();
        run.move_on(&living, 20);
        let only = deaths(&run.lab) - before == 2 * dead.len() as u64;
        run.restore(dead);
        run.settle();
        run.move_on(&[1, 2, 3, 4], 5);
        let ledgers = run.check();
        // (A living switch may look dead on a machine that is busy: it is removed, and returns.)
        let same = if only { probes::agree(&ledgers, &run.deaths) } else { 0 };
        let until = killed + Duration::from_secs(2);
        let pause = |it: &Ledger| probes::longest_pause(it, killed, until);
        let pauses = ledgers.iter().filter(|it| living.contains(&it.number)).map(pause);
        let pause = pauses.max().expect("a living switch");
        println!("{dead:?}: removed {removed:?} after SIGKILL; windows stood still for {pause:?}");
        assert!(same > 100 || !only, "{same} values were read at two switches");
        run.go_on();
    }

    run.lab.kill_daemon("controller", "controller");
    run.move_on(&[1, 2, 3, 4], 50);
    run.lab.restart_daemon("controller", "controller");
    run.settle();
    run.check();
    run.go_on();

    // One leaves while its host writes: nothing of it is lost.
    run.move_on(&[1, 2, 3, 4], 20);
    let name = format!("{}-s2", run.lab.name);
    common::must(&["shared", "leave", "--switch", &name]);
    assert_eq!(members(&status(&run.lab)), [[1, 3, 4], [1, 3, 4]]);
    run.move_on(&[1, 3, 4], 10);
    upgrade(&run.lab, "s2");
    run.settle();
    run.move_on(&[1, 2, 3, 4], 5);
    let marked = |number| probes::Host::of(&run.lab, number).ask(0, 0).map(|it| it.age == MARK);
    assert_eq!([2, 3].map(marked), [Some(true), Some(false)], "only s2 has the newer program");
    run.check();
    watch::is_complete(&run.lab);
    run.lab.down();
}

/// What a round of chaos does. Switches and links by number.
#[derive(Clone, Debug)]
enum Chaos {
    /// These die at once; the controller, too, half-way through their removal.
    Kills {
        dead: Vec<u32>,
        controller: bool,
    },
    /// One after the other, and the first is back before the last dies.
    Rolls {
        dead: Vec<u32>,
    },
    /// Only the agent dies: packets go on.
    Agent {
        of: u32,
    },
    Controller,
    /// A link is down for so long; at 2 s one of its ends is removed.
    Cut {
        one: u32,
        other: u32,
        ms: u64,
    },
    /// Messages on the link are lost: it is down every few ms.
    Lossy {
        one: u32,
        other: u32,
    },
}

fn drawn(rng: &mut StdRng, count: u32) -> Chaos {
    let mut all: Vec<u32> = (1..=count).collect();
    all.shuffle(rng);
    let some = rng.random_range(1..count) as usize;
    let (one, other) = (all[0], all[1]);
    match rng.random_range(0..10) {
        0..4 => Chaos::Kills { dead: all[..some].to_vec(), controller: rng.random_bool(0.4) },
        4 => Chaos::Rolls { dead: all[..some.min(3)].to_vec() },
        5 => Chaos::Agent { of: one },
        6 => Chaos::Controller,
        7 => Chaos::Cut { one, other, ms: rng.random_range(300..4000) },
        _ => Chaos::Lossy { one, other },
    }
}

impl Running {
    fn chaos(&mut self, rng: &mut StdRng, chaos: &Chaos) {
        let some = |rng: &mut StdRng, most: u64| {
            std::thread::sleep(Duration::from_millis(rng.random_range(0..most)));
        };
        match chaos {
            Chaos::Kills { dead, controller } => {
                self.kill(dead);
                some(rng, 250);
                if *controller {
                    self.lab.kill_daemon("controller", "controller");
                    some(rng, 500);
                    self.lab.restart_daemon("controller", "controller");
                }
                self.move_on(&self.others(dead), 10);
                self.restore(dead);
            }
            Chaos::Rolls { dead } => {
                for number in dead {
                    self.kill(&[*number]);
                    some(rng, 400);
                    self.restore(&[*number]);
                }
            }
            Chaos::Agent { of } => {
                self.lab.kill_daemon(&format!("s{of}"), "switch");
                some(rng, 500);
                self.lab.restart_daemon(&format!("s{of}"), "switch");
            }
            Chaos::Controller => {
                self.lab.kill_daemon("controller", "controller");
                self.move_on(&self.others(&[]), 10);
                self.lab.restart_daemon("controller", "controller");
            }
            Chaos::Cut { one, other, ms } => {
                self.lab.link("down", &format!("s{one}"), &format!("s{other}"));
                std::thread::sleep(Duration::from_millis(*ms));
                self.lab.link("up", &format!("s{one}"), &format!("s{other}"));
            }
            Chaos::Lossy { one, other } => {
                let lab = lab::Lab::open(&self.lab.name).expect("a lab");
                let (one, other) = (format!("s{one}"), format!("s{other}"));
                for up in [false, true].into_iter().cycle().take(30) {
                    lab.set_link(&one, &other, up).unwrap_or_else(|error| panic!("{error}"));
                    some(rng, 40);
                }
            }
        }
    }
}

/// Labs of 4 to 8 switches, each for ten rounds. ROUNDS, SEED: how many, and which ones.
#[test]
#[ignore = "minutes"]
fn nothing_of_the_living_is_lost_in_chaos() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let rounds = env_number("ROUNDS").unwrap_or(50);
    let seed = env_number("SEED").unwrap_or_else(|| rand::random_range(0..1_000_000));
    println!("SEED={seed} ROUNDS={rounds}");
    let mut rng = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().expect("a folder");
    let mut compared = 0;
    for first in (0..rounds).step_by(10) {
        let count = rng.random_range(4..=8);
        let file = mesh::topology(folder.path(), count);
        let lab = TestLab::up("shared-chaos", file.to_str().expect("UTF-8"), &[]);
        let mut run = Running::begin(lab, count, seed + first);
        for round in first..rounds.min(first + 10) {
            let chaos = drawn(&mut rng, count);
            println!("round {round} with {count} switches: {chaos:?}");
            let before = deaths(&run.lab);
            run.move_on(&run.others(&[]), 10);
            run.chaos(&mut rng, &chaos);
            run.settle();
            run.move_on(&run.others(&[]), 3);
            let ledgers = run.check();
            // (Of a living switch that was removed, the last window may be another one.)
            let mut gone = run.deaths.iter().map(|it| it.number).collect::<Vec<_>>();
            gone.sort_unstable();
            gone.dedup();
            if deaths(&run.lab).checked_sub(before) == Some(2 * gone.len() as u64) {
                compared += probes::agree(&ledgers, &run.deaths);
            }
            if round + 1 < rounds.min(first + 10) {
                run.go_on();
            }
        }
        run.lab.down();
    }
    println!("{compared} values were read at two switches");
}

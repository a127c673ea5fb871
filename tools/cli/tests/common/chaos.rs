//! Random faults of switches that share a group, and of their controller: what a round of chaos
//! does to a lab.
#![allow(dead_code, reason = "each test program uses a part of it")]

use crate::common::TestLab;
use rand::Rng;
use rand::rngs::StdRng;
use std::time::{Duration, Instant};

/// What a round of chaos does. Switches and links by number.
#[derive(Clone, Debug)]
pub enum Chaos {
    /// These die at once; the controller, too, half-way through their removal.
    Kills { dead: Vec<u32>, controller: bool },
    /// One after the other, and the first is back before the last dies.
    Rolls { dead: Vec<u32> },
    /// Only the agent dies: packets go on.
    Agent { of: u32, ms: u64 },
    /// Only the controller dies.
    Controller { ms: u64 },
    /// All links of a switch are down for so long: it lives. (With SRO it may read until its lease
    /// is over.)
    CutOff { of: u32, ms: u64 },
    /// A link is down for so long. (With SRO one of its ends is removed at 2 s.)
    Cut { one: u32, other: u32, ms: u64 },
    /// Messages on the link are lost: it is down every few ms.
    Lossy { one: u32, other: u32 },
}

/// A switch died, and began its next life.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    pub number: u32,
    pub at: Instant,
    /// What was answered by then is of the life that ended.
    pub until: Instant,
}

/// SIGKILL to all processes of these switches at once, then their power is cut. When that began.
pub fn kill(lab: &TestLab, dead: &[u32]) -> Instant {
    let killed = Instant::now();
    dead.iter().for_each(|number| lab.kill_now(&format!("s{number}")));
    dead.iter().for_each(|number| lab.fail(&format!("s{number}")));
    killed
}

fn restore(lab: &TestLab, number: u32, at: Instant) -> Death {
    let until = Instant::now();
    lab.restore(&format!("s{number}"));
    Death { number, at, until }
}

fn sleep(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

fn daemon_dies(lab: &TestLab, (node, daemon): (&str, &str), ms: u64) {
    lab.kill_daemon(node, daemon);
    sleep(ms);
    lab.restart_daemon(node, daemon);
}

fn cut_off(lab: &TestLab, of: u32, count: u32, ms: u64) {
    let switches = (1..=count).map(|it| format!("s{it}"));
    let ends: Vec<String> = switches.chain(["controller".to_owned()]).collect();
    let ends: Vec<&str> = ends.iter().map(String::as_str).collect();
    lab.links("down", &format!("s{of}"), &ends);
    sleep(ms);
    lab.links("up", &format!("s{of}"), &ends);
}

fn cut(lab: &TestLab, (one, other): (&str, &str), ms: u64) {
    lab.link("down", one, other);
    sleep(ms);
    lab.link("up", one, other);
}

fn lose(lab: &TestLab, (one, other): (&str, &str), rng: &mut StdRng) {
    let lab = lab::Lab::open(&lab.name).expect("a lab");
    for up in [false, true].into_iter().cycle().take(30) {
        lab.set_link(one, other, up).unwrap_or_else(|error| panic!("{error}"));
        sleep(rng.random_range(0..40));
    }
}

impl Chaos {
    /// Does that in a lab of so many switches. At the end all run and all links are up again, but
    /// not all switches may be members yet. Returned is which switches died.
    pub fn happen(&self, lab: &TestLab, count: u32, rng: &mut StdRng) -> Vec<Death> {
        let name = |number: &u32| format!("s{number}");
        match self {
            Chaos::Kills { dead, controller } => {
                let at = kill(lab, dead);
                sleep(rng.random_range(0..250));
                if *controller {
                    daemon_dies(lab, ("controller", "controller"), rng.random_range(0..500));
                }
                sleep(rng.random_range(0..1500));
                return dead.iter().map(|number| restore(lab, *number, at)).collect();
            }
            Chaos::Rolls { dead } => {
                let roll = |number: &u32| {
                    let at = kill(lab, &[*number]);
                    sleep(rng.random_range(0..800));
                    let death = restore(lab, *number, at);
                    sleep(rng.random_range(0..400));
                    death
                };
                return dead.iter().map(roll).collect();
            }
            Chaos::Agent { of, ms } => daemon_dies(lab, (&name(of), "switch"), *ms),
            Chaos::Controller { ms } => daemon_dies(lab, ("controller", "controller"), *ms),
            Chaos::CutOff { of, ms } => cut_off(lab, *of, count, *ms),
            Chaos::Cut { one, other, ms } => cut(lab, (&name(one), &name(other)), *ms),
            Chaos::Lossy { one, other } => lose(lab, (&name(one), &name(other)), rng),
        }
        vec![]
    }
}

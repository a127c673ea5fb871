//! Random faults in the lab, drawn from a seed, and what clients heard meanwhile.

use crate::cluster::{Cluster, Lossy};
use crate::load::Load;
use chaos::inject;
use chaos::plan::{Fault, Step, link, power, process};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use simnet::{Direction, Links};
use std::time::{Duration, Instant};

const SWITCHES: [&str; 4] = ["s1", "s2", "s3", "s4"];
/// A round's faults begin within this time, in milliseconds.
const BEGIN_WITHIN_MS: u64 = 700;

fn any_fault(random: &mut StdRng) -> Fault {
    let switch = SWITCHES[random.random_range(0..SWITCHES.len())];
    let directions = [Direction::Carrier, Direction::Both, Direction::Into, Direction::OutOf];
    match random.random_range(0..12) {
        0..=1 => power(switch),
        2..=4 => link(switch, "core", *directions.choose(random).expect("one")),
        5 => {
            let others: Vec<&&str> = SWITCHES.iter().filter(|it| **it != switch).collect();
            link(switch, others.choose(random).expect("one"), Direction::Carrier)
        }
        6..=7 => Fault::Freeze { machine: switch.to_owned() },
        8 => process(switch, "switch"),
        9..=10 => process("controller", "controller"),
        _ => Fault::Links(Links::Loss { percent: 30 }),
    }
}

/// One switch has one fault, and two may lose their power.
fn draw(seed: u64, round: u64) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003) ^ round);
    let wanted = random.random_range(1..=3);
    let mut steps: Vec<Step> = vec![];
    while steps.len() < wanted {
        let fault = any_fault(&mut random);
        let touched = |step: &Step| match (step.fault.machine(), fault.machine()) {
            (Some(one), Some(other)) => one == other,
            _ => step.fault == fault,
        };
        let (at_ms, lasts_ms) =
            (random.random_range(0..BEGIN_WITHIN_MS), random.random_range(50..1_200));
        let is_power = |fault: &Fault| matches!(fault, Fault::Crash { .. });
        let powerless = steps.iter().filter(|step| is_power(&step.fault)).count();
        if !steps.iter().any(touched) && (powerless < 2 || !is_power(&fault)) {
            steps.push(Step { at_ms, lasts_ms, fault });
        }
    }
    steps
}

/// Faults that have begun.
struct Under<'a> {
    cluster: &'a Cluster,
    lab: lab::Lab,
    lossy: Option<Lossy<'a>>,
}

impl<'a> Under<'a> {
    fn begin(&mut self, fault: &Fault) {
        match fault {
            Fault::Links(Links::Loss { percent }) => {
                self.lossy = Some(self.cluster.lose(*percent));
            }
            fault => inject::begin(&self.lab, fault).unwrap_or_else(|error| panic!("{error}")),
        }
    }

    fn end(&mut self, fault: &Fault) {
        match fault {
            Fault::Links(Links::Loss { .. }) => self.lossy = None,
            fault => inject::end(&self.lab, fault).unwrap_or_else(|error| panic!("{error}")),
        }
    }
}

/// A round of faults under load. All are repaired, the chains become whole, and what clients heard
/// is judged.
pub fn round(cluster: &Cluster, seed: u64, round: u64) {
    let steps = draw(seed, round);
    let told: Vec<String> = steps.iter().map(Step::to_string).collect();
    println!("SEED={seed} round {round}: {}", told.join("; "));
    let load = Load::start(cluster, round as usize, |_| None);
    std::thread::sleep(Duration::from_millis(200));
    let lab = lab::Lab::open(&cluster.lab.name).expect("the lab");
    let mut under = Under { cluster, lab, lossy: None };
    let mut events: Vec<(u64, bool, &Fault)> = vec![];
    for Step { at_ms, lasts_ms, fault } in &steps {
        events.extend([(*at_ms, true, fault), (at_ms + lasts_ms, false, fault)]);
    }
    events.sort_by_key(|(at_ms, ..)| *at_ms);
    let began = Instant::now();
    for (at_ms, begins, fault) in events {
        std::thread::sleep(Duration::from_millis(at_ms).saturating_sub(began.elapsed()));
        match begins {
            true => under.begin(fault),
            false => under.end(fault),
        }
    }
    cluster.settle(&format!("SEED={seed} round {round}: the chains are whole"));
    std::thread::sleep(Duration::from_millis(200));
    let ended = load.end();
    println!("round {round}: {}", ended.summary());
    ended.check(cluster);
}

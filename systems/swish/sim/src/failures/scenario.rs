//! What fails in a run, drawn from its seed.

use crate::scenario::{NetworkFault, Step, fault, of_all_blocks, packets};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use simnet::{Conditions, Cut, Direction, Fault, swarm};

/// How long packets and failures go on, in ns.
pub(super) const BUSY_NS: u64 = 120_000_000;

/// One thing that happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// Packets that update, one after another.
    Packets {
        /// At which switch.
        switch: usize,
        /// Of which CPU.
        cpu: u32,
        /// Cell and amount of each.
        packets: Vec<(u32, u32)>,
    },
    /// A switch dies, with all that it has.
    Dies {
        /// Which.
        switch: usize,
    },
    /// What is dead of a switch is back.
    Returns {
        /// Which.
        switch: usize,
    },
    /// Only the agent dies.
    AgentDies {
        /// Of which switch.
        switch: usize,
    },
    /// An operator lets a switch leave all groups, and come back.
    Leaves {
        /// Which.
        switch: usize,
        /// Or it comes back.
        leaves: bool,
    },
    /// An agent and the controller do not hear each other: a living switch looks dead.
    Deaf {
        /// Which switch's.
        switch: usize,
        /// For how long.
        for_ns: u64,
    },
    /// The controller dies.
    ControllerDies,
    /// It is back, with its database.
    ControllerReturns,
    /// The network fails for so long.
    Network {
        /// How.
        fault: NetworkFault,
        /// For how long.
        for_ns: u64,
    },
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureScenario {
    /// What is drawn in the run follows from it.
    pub seed: u64,
    /// 2 to 5.
    pub switches: usize,
    /// Of a window, at the least, in ns.
    pub period_ns: u64,
    /// A seal ends after so long without a word of the controller.
    pub seal_ns: u64,
    /// What the network does to every message.
    pub conditions: Conditions,
    /// In order of time.
    pub steps: Vec<Step<Failure>>,
}

impl FailureScenario {
    /// The run of this seed.
    pub fn of_seed(seed: u64) -> FailureScenario {
        let mut rng = StdRng::seed_from_u64(seed ^ 0xfa11);
        let switches = rng.random_range(2..=5);
        let conditions = Conditions {
            loss: swarm(&mut rng, 0.5, 0.2),
            duplication: swarm(&mut rng, 0.5, 0.3),
            delay_min_ns: 5_000,
            delay_max_ns: if rng.random_bool(0.5) { 40_000 } else { 300_000 },
            stragglers: swarm(&mut rng, 0.4, 0.1),
            straggle_ns: 4_000_000,
            slow_ns: 2_000_000,
        };
        let mut steps: Vec<Step<Failure>> = vec![];
        for _ in 0..rng.random_range(20..80) {
            let (switch, cpu) =
                (rng.random_range(0..switches), rng.random_range(0..crate::switch::CPUS));
            let failure = Failure::Packets { switch, cpu, packets: packets(&mut rng) };
            steps.push(Step { at_ns: rng.random_range(12_000_000..BUSY_NS), action: failure });
        }
        for _ in 0..rng.random_range(1..6) {
            let at_ns = rng.random_range(15_000_000..BUSY_NS);
            let back_ns = at_ns + rng.random_range(1_000_000..40_000_000);
            fails(&mut rng, switches, at_ns, back_ns, &mut steps);
        }
        steps.sort_by_key(|step| step.at_ns);
        FailureScenario {
            seed,
            switches,
            period_ns: *[500_000, 1_000_000, 3_000_000]
                .get(rng.random_range(0..3usize))
                .unwrap_or(&1_000_000),
            seal_ns: *[3_000_000, 10_000_000]
                .get(rng.random_range(0..2usize))
                .unwrap_or(&3_000_000),
            conditions,
            steps,
        }
    }
}

impl FailureScenario {
    /// The same with windows of many messages: packets change all blocks now and then, and before a
    /// switch dies.
    pub fn of_large(seed: u64) -> FailureScenario {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x1a46e);
        let whole = FailureScenario::of_seed(seed);
        let mut steps = whole.steps.clone();
        let mut bursts = |at_ns, switch| {
            let packets = of_all_blocks(&mut rng);
            steps.push(Step { at_ns, action: Failure::Packets { switch, cpu: 0, packets } });
        };
        for at in 0..4 * whole.switches {
            let part_ns = (BUSY_NS - 12_000_000) / (4 * whole.switches as u64);
            bursts(12_000_000 + at as u64 * part_ns, at % whole.switches);
        }
        for step in &whole.steps {
            if let Failure::Dies { switch } = step.action {
                bursts(step.at_ns - 4_000_000, switch);
                bursts(step.at_ns - 2_000_000, switch);
            }
        }
        steps.sort_by_key(|step| step.at_ns);
        let duplication = whole.conditions.duplication.min(0.02);
        let conditions = Conditions { duplication, ..whole.conditions };
        FailureScenario { conditions, steps, ..whole }
    }
}

fn fails(
    rng: &mut StdRng,
    switches: usize,
    at_ns: u64,
    back_ns: u64,
    steps: &mut Vec<Step<Failure>>,
) {
    let switch = rng.random_range(0..switches);
    let for_ns = back_ns - at_ns;
    let mut at = |at_ns, action| steps.push(Step { at_ns, action });
    match rng.random_range(0..11) {
        0..4 => {
            // (So that it has sent something, which only some members may have.)
            for _ in 0..3 {
                let packets = packets(rng);
                let before_ns = at_ns - rng.random_range(3_000_000..8_000_000);
                at(before_ns, Failure::Packets { switch, cpu: 0, packets });
            }
            if rng.random_bool(0.6) {
                let peer = Some((switch + rng.random_range(1..switches)) % switches);
                let direction = Direction::OutOf;
                let fault = Fault::Cut(Cut { machine: switch, peer, direction });
                at(at_ns - 4_000_000, Failure::Network { fault, for_ns: 4_000_000 });
            }
            at(at_ns, Failure::Dies { switch });
            if rng.random_bool(0.3) {
                let second = rng.random_range(0..switches);
                let later_ns = at_ns + rng.random_range(0..12_000_000);
                at(later_ns, Failure::Dies { switch: second });
                at(back_ns.max(later_ns), Failure::Returns { switch: second });
            }
            at(back_ns, Failure::Returns { switch });
            if rng.random_bool(0.3) {
                // Half-way through the removal.
                let dies_ns = at_ns + rng.random_range(4_000_000..9_000_000);
                at(dies_ns, Failure::ControllerDies);
                at(dies_ns + rng.random_range(0..12_000_000), Failure::ControllerReturns);
            }
        }
        4 => {
            at(at_ns, Failure::AgentDies { switch });
            at(back_ns, Failure::Returns { switch });
        }
        5..8 => at(at_ns, Failure::Deaf { switch, for_ns }),
        8 => {
            at(at_ns, Failure::ControllerDies);
            at(back_ns, Failure::ControllerReturns);
        }
        9 => {
            at(at_ns, Failure::Leaves { switch, leaves: true });
            at(back_ns, Failure::Leaves { switch, leaves: false });
        }
        _ => {
            let fault = fault(rng, switches);
            at(at_ns, Failure::Network { fault, for_ns });
        }
    }
}

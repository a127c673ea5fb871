//! What happens in a run, drawn from its seed.

use crate::program::{EVENTUAL_CELLS, EVENTUAL_SLOTS};
use crate::scenario::{BUSY_NS, NetworkFault, Step, conditions, fault};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use simnet::Conditions;

/// One thing that happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Packets, one after another: cell and amount of each; 0: it only reads.
    Packets {
        /// At which switch.
        switch: usize,
        /// The packets.
        packets: Vec<(u32, u32)>,
    },
    /// The switch begins anew, empty.
    Restart {
        /// Which.
        switch: usize,
    },
    /// The agent of a switch makes no frames for so long.
    Idle {
        /// Which switch.
        switch: usize,
        /// For how long.
        for_ns: u64,
    },
    /// The controller decides on other members. A switch that is removed goes on alone.
    View {
        /// A bit for each switch: it is a member.
        members: u32,
    },
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
pub struct Scenario {
    /// What is drawn in the run follows from it.
    pub seed: u64,
    /// 2 to 8.
    pub switches: usize,
    /// Of all messages of a switch and group.
    pub bytes_per_s: u64,
    /// What the network does to every message.
    pub conditions: Conditions,
    /// How long packets and faults go on.
    pub busy_ns: u64,
    /// In order of time.
    pub steps: Vec<Step<Action>>,
}

impl Scenario {
    /// The run of this seed.
    pub fn of_seed(seed: u64) -> Scenario {
        let mut rng = StdRng::seed_from_u64(seed);
        let switches = *[2, 2, 3, 3, 4, 5, 8].get(rng.random_range(0..7usize)).unwrap_or(&2);
        let conditions = conditions(&mut rng, 0.6);
        let count = rng.random_range(5..50);
        let mut steps: Vec<Step<Action>> = (0..count).map(|_| step(&mut rng, switches)).collect();
        steps.sort_by_key(|step| step.at_ns);
        let bytes_per_s = if rng.random_bool(0.3) { 20_000_000 } else { 1_000_000_000 };
        Scenario { seed, switches, bytes_per_s, conditions, busy_ns: BUSY_NS, steps }
    }

    /// One with far more lives than a cell has slots.
    pub fn of_lives(seed: u64) -> Scenario {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x11ef);
        let switches = rng.random_range(2..5);
        let conditions = conditions(&mut rng, 0.3);
        let mut steps: Vec<Step<Action>> = vec![];
        for life in 0..LIVES {
            let from_ns = life * LIFE_NS;
            let mut at = |action, rng: &mut StdRng| {
                let at_ns = from_ns + rng.random_range(0..LIFE_NS / 2);
                steps.push(Step { at_ns, action });
            };
            for _ in 0..rng.random_range(1..5) {
                let switch = rng.random_range(0..switches);
                at(Action::Packets { switch, packets: packets(&mut rng) }, &mut rng);
            }
            at(Action::Restart { switch: rng.random_range(0..switches) }, &mut rng);
            if rng.random_bool(0.1) {
                // (Somebody is away for a while.)
                at(Action::View { members: rng.random() }, &mut rng);
                let at_ns = from_ns + LIFE_NS / 2;
                steps.push(Step { at_ns, action: Action::View { members: u32::MAX } });
            }
        }
        steps.sort_by_key(|step| step.at_ns);
        let busy_ns = LIVES * LIFE_NS;
        Scenario { seed, switches, bytes_per_s: 1_000_000_000, conditions, busy_ns, steps }
    }
}

/// Of [`Scenario::of_lives`]: how many begin, and from one to the next.
const LIVES: u64 = 2 * EVENTUAL_SLOTS as u64;
const LIFE_NS: u64 = 16_000_000;

fn step(rng: &mut StdRng, switches: usize) -> Step<Action> {
    let switch = rng.random_range(0..switches);
    let for_ns = rng.random_range(50_000..5_000_000);
    let action = match rng.random_range(0..20) {
        0..13 => Action::Packets { switch, packets: packets(rng) },
        13 => Action::View { members: rng.random() },
        14 => Action::Restart { switch },
        15 => Action::Idle { switch, for_ns },
        _ => Action::Network { fault: fault(rng, switches), for_ns },
    };
    Step { at_ns: rng.random_range(0..BUSY_NS), action }
}

fn packets(rng: &mut StdRng) -> Vec<(u32, u32)> {
    let (count, cells) = match rng.random_range(0..6) {
        0 => (rng.random_range(100..300), EVENTUAL_CELLS),
        1 => (rng.random_range(1..40), 2),
        _ => (rng.random_range(1..8), EVENTUAL_CELLS),
    };
    let packet = |rng: &mut StdRng| {
        let amount = match rng.random_range(0..8) {
            0 => 0,
            1 => rng.random(),
            _ => 1 << rng.random_range(0..32),
        };
        (rng.random_range(0..cells), amount)
    };
    (0..count).map(|_| packet(rng)).collect()
}

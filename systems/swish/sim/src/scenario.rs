//! What happens in a run, drawn from its seed.

use crate::program::CELLS;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use simnet::{Conditions, Cut, Direction, Fault, swarm};
use swish_switch::group::Caps;

/// Switches are called by their places.
pub(crate) type NetworkFault = Fault<usize, ()>;

/// How long packets and faults go on, in ns.
pub(crate) const BUSY_NS: u64 = 24_000_000;

/// One thing that happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Packets that update, one after another.
    Packets {
        /// At which switch.
        switch: usize,
        /// Of which CPU.
        cpu: u32,
        /// Cell and amount of each; 0: it only reads.
        packets: Vec<(u32, u32)>,
    },
    /// A packet is under way on a CPU for so long.
    Slow {
        /// At which switch.
        switch: usize,
        /// Of which CPU.
        cpu: u32,
        /// Cell and amount.
        packet: (u32, u32),
        /// It stands between "unknown" and its pin.
        unknown: bool,
        /// For how long.
        for_ns: u64,
    },
    /// The agent of a switch makes no frames for so long.
    Idle {
        /// Which switch.
        switch: usize,
        /// For how long.
        for_ns: u64,
    },
    /// The network fails for so long.
    Network {
        /// How.
        fault: NetworkFault,
        /// For how long.
        for_ns: u64,
    },
}

/// An action at its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Step<A = Action> {
    /// In ns.
    pub at_ns: u64,
    /// What.
    pub action: A,
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What is drawn in the run follows from it.
    pub seed: u64,
    /// 2 to 8; [`Scenario::of_many`] has more.
    pub switches: usize,
    /// Of a window, at the least, in ns.
    pub period_ns: u64,
    /// Of all switches.
    pub caps: Caps,
    /// B.
    pub bound: u64,
    /// Children in the aggregation tree at the most; 0: there is none.
    pub fan_out: u32,
    /// A frame stays on its CPU, as on a veth; else it comes in on any.
    pub frames_stay: bool,
    /// Nothing fails: what windows of many messages must do then is checked, too.
    pub is_exact: bool,
    /// What the network does to every message.
    pub conditions: Conditions,
    /// In order of time.
    pub steps: Vec<Step>,
}

impl Scenario {
    /// The run of this seed.
    pub fn of_seed(seed: u64) -> Scenario {
        let mut rng = StdRng::seed_from_u64(seed);
        let switches = *[2, 2, 2, 3, 3, 4, 5, 8].get(rng.random_range(0..8usize)).unwrap_or(&2);
        let conditions = conditions(&mut rng, 0.4);
        let count = rng.random_range(10..60);
        let mut steps: Vec<Step> = (0..count).map(|_| step(&mut rng, switches)).collect();
        steps.sort_by_key(|step| step.at_ns);
        Scenario {
            seed,
            switches,
            period_ns: *[0, 300_000, 1_000_000, 2_000_000]
                .get(rng.random_range(0..4usize))
                .unwrap_or(&0),
            bound: if rng.random_bool(0.3) { rng.random_range(3..200) } else { 1 << 32 },
            conditions,
            steps,
            caps: caps(&mut rng),
            fan_out: 0,
            frames_stay: false,
            is_exact: false,
        }
    }

    /// The run of this seed with a cap on CPU time, without another pause. Its program is of
    /// [`crate::Program::compile_busy`].
    pub fn of_cpu_cap(seed: u64) -> Scenario {
        let mut rng = StdRng::seed_from_u64(seed ^ 0xcb0);
        let cpu_percent = *[20, 60, 150].get(rng.random_range(0..3usize)).unwrap_or(&20);
        let caps = Caps { cpu_percent, ..Caps::default() };
        let whole = Scenario::of_seed(seed);
        let conditions = Conditions { loss: whole.conditions.loss.min(0.1), ..whole.conditions };
        Scenario { period_ns: 0, caps, conditions, ..whole }
    }

    /// The same with an aggregation tree, most often of a depth of 2 or 3.
    pub fn of_tree(seed: u64) -> Scenario {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x7ee);
        let sizes = [(2, 2), (3, 2), (4, 2), (5, 4), (6, 4), (7, 2), (7, 2), (8, 2)];
        let (switches, fan_out) = *sizes.get(rng.random_range(0..sizes.len())).unwrap_or(&(7, 2));
        let count = rng.random_range(10..60);
        let mut steps: Vec<Step> = (0..count).map(|_| step(&mut rng, switches)).collect();
        steps.sort_by_key(|step| step.at_ns);
        Scenario { switches, fan_out, steps, ..Scenario::of_seed(seed) }
    }

    /// One of the two, in turn.
    pub fn of_large_or_exact(seed: u64) -> Scenario {
        if seed.is_multiple_of(2) { Scenario::of_exact(seed) } else { Scenario::of_large(seed) }
    }

    /// A run of so many switches, whose network loses and doubles messages. (Each of them sends all
    /// others something, so a window takes a while.)
    pub fn of_many(seed: u64, switches: usize) -> Scenario {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut steps: Vec<Step> = (0..3 * switches).map(|_| step(&mut rng, switches)).collect();
        steps.sort_by_key(|step| step.at_ns);
        let conditions = Conditions { loss: 0.1, duplication: 0.1, ..conditions(&mut rng, 0.1) };
        let (period_ns, bound, caps) = (3_000_000, 1 << 32, Caps::default());
        let (fan_out, frames_stay, is_exact) = (0, false, false);
        Scenario {
            seed,
            switches,
            period_ns,
            caps,
            bound,
            fan_out,
            frames_stay,
            is_exact,
            conditions,
            steps,
        }
    }

    /// A run with windows of many messages (`layouts::MANY`), in half of which frames stay on their
    /// CPUs. (README.md: with more duplicates there would be more and more frames.)
    pub fn of_large(seed: u64) -> Scenario {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x1a46e);
        let whole = Scenario::of_seed(seed);
        let switches = *[2, 2, 3, 4].get(rng.random_range(0..4usize)).unwrap_or(&2);
        let mut steps: Vec<Step> =
            (0..rng.random_range(5..25)).map(|_| step(&mut rng, switches)).collect();
        steps.extend((0..3 * switches).map(|at| all_blocks(&mut rng, at % switches)));
        steps.sort_by_key(|step| step.at_ns);
        let loss = whole.conditions.loss.min(0.2);
        let duplication = swarm(&mut rng, 0.6, 0.02);
        Scenario {
            switches,
            bound: 1 << 32,
            frames_stay: rng.random_bool(0.5),
            conditions: Conditions { loss, duplication, ..whole.conditions },
            steps,
            ..whole
        }
    }

    /// The same in which nothing fails, and frames stay on their CPUs.
    pub fn of_exact(seed: u64) -> Scenario {
        let mut rng = StdRng::seed_from_u64(seed ^ 0xe8ac7);
        let switches = rng.random_range(2..4);
        let mut steps: Vec<Step> =
            (0..20 * switches).map(|at| all_blocks(&mut rng, at % switches)).collect();
        steps.sort_by_key(|step| step.at_ns);
        let good = Conditions { delay_min_ns: 5_000, delay_max_ns: 40_000, ..Conditions::GOOD };
        Scenario {
            switches,
            period_ns: *[0, 300_000, 1_000_000].get(rng.random_range(0..3usize)).unwrap_or(&0),
            caps: Caps::default(),
            bound: 1 << 32,
            frames_stay: true,
            is_exact: true,
            conditions: good,
            steps,
            ..Scenario::of_seed(seed)
        }
    }
}

/// A third of all runs has a cap on bandwidth.
fn caps(rng: &mut StdRng) -> Caps {
    let bandwidth_mbps = *[400, 2000].get(rng.random_range(0..6)).unwrap_or(&0);
    Caps { bandwidth_mbps, ..Caps::default() }
}

/// What the network does to every message; it loses up to `most_loss` of them.
pub(crate) fn conditions(rng: &mut StdRng, most_loss: f64) -> Conditions {
    Conditions {
        loss: swarm(rng, 0.6, most_loss),
        duplication: swarm(rng, 0.6, 0.5),
        delay_min_ns: 5_000,
        delay_max_ns: if rng.random_bool(0.5) { 40_000 } else { 400_000 },
        stragglers: swarm(rng, 0.5, 0.2),
        straggle_ns: 6_000_000,
        slow_ns: 2_000_000,
    }
}

fn step(rng: &mut StdRng, switches: usize) -> Step {
    let (switch, cpu) = (rng.random_range(0..switches), rng.random_range(0..crate::switch::CPUS));
    let for_ns = rng.random_range(50_000..5_000_000);
    let action = match rng.random_range(0..20) {
        0..12 => Action::Packets { switch, cpu, packets: packets(rng) },
        12..16 => Action::Slow {
            switch,
            cpu,
            packet: packet(rng, 0, CELLS),
            unknown: rng.random_bool(0.2),
            for_ns,
        },
        16 => Action::Idle { switch, for_ns },
        _ => Action::Network { fault: fault(rng, switches), for_ns },
    };
    Step { at_ns: rng.random_range(0..BUSY_NS), action }
}

pub(crate) fn fault(rng: &mut StdRng, switches: usize) -> NetworkFault {
    let machine = rng.random_range(0..switches);
    match rng.random_range(0..4) {
        0 => Fault::Slow { machine },
        1 => Fault::Links(simnet::Links::Loss { percent: rng.random_range(20..100) }),
        _ => {
            let other = (machine + rng.random_range(1..switches)) % switches;
            let direction = match rng.random_range(0..3) {
                0 => Direction::Both,
                1 => Direction::Into,
                _ => Direction::OutOf,
            };
            Fault::Cut(Cut { machine, peer: rng.random_bool(0.6).then_some(other), direction })
        }
    }
}

fn packet(rng: &mut StdRng, from: u32, cells: u32) -> (u32, u32) {
    let amount = match rng.random_range(0..8) {
        0 => 0,
        1 => rng.random(),
        _ => 1 << rng.random_range(0..32),
    };
    (from + rng.random_range(0..cells.min(CELLS - from)), amount)
}

/// Packets that change a cell of each block, and so many of one that messages have whole blocks: as
/// many messages as there are blocks.
pub(crate) fn of_all_blocks(rng: &mut StdRng) -> Vec<(u32, u32)> {
    let full = rng.random_range(0..CELLS / 360) * 360;
    let each = (0..CELLS / 360).map(|block| block * 360).chain([full; 120]);
    each.map(|first| (first + rng.random_range(0..360), 1 << rng.random_range(0..32))).collect()
}

fn all_blocks(rng: &mut StdRng, switch: usize) -> Step {
    let cpu = rng.random_range(0..crate::switch::CPUS);
    let action = Action::Packets { switch, cpu, packets: of_all_blocks(rng) };
    Step { at_ns: rng.random_range(0..BUSY_NS), action }
}

/// Of all densities: so that messages of all shapes occur.
pub(crate) fn packets(rng: &mut StdRng) -> Vec<(u32, u32)> {
    let from = rng.random_range(0..CELLS / 360) * 360;
    let (count, cells) = match rng.random_range(0..8) {
        0 => (rng.random_range(60..200), 360),
        1 => (rng.random_range(30..60), 720),
        2 => (rng.random_range(10..30), 360),
        3 => (rng.random_range(30..120), CELLS),
        4 => (rng.random_range(1..20), 3),
        _ => (rng.random_range(1..8), CELLS),
    };
    let from = if cells == CELLS { 0 } else { from };
    (0..count).map(|_| packet(rng, from, cells)).collect()
}

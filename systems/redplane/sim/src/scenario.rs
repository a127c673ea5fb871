//! What a run does, step by step: drawn from its seed before it begins, so that a failing run can
//! be made shorter by leaving steps out.

use crate::faults::Faults;
use crate::program::Kind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Switches of the world.
pub const SWITCHES: usize = 2;
/// Servers of the store, spare ones among them.
pub const SERVERS: usize = 4;
const MS: u64 = 1_000_000;

/// A machine of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Machine {
    /// A switch and its agent.
    Switch(usize),
    /// A server of the store.
    Server(usize),
    /// The controller.
    Controller,
}

/// What goes wrong. The only process apart from its machine is a switch's [`AGENT`].
pub type Fault = simnet::Fault<Machine, &'static str>;
/// A switch's agent, as a process.
pub const AGENT: &str = "agent";

/// What happens at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A packet of a flow comes to a switch.
    Packet {
        /// The switch.
        switch: usize,
        /// The flow (or tenant).
        flow: u32,
        /// It only reads.
        read: bool,
    },
    /// Something goes wrong for so many ns. A process that dies comes back by the next such fault.
    Fault(Fault, u64),
    /// The machine with this number takes the secrets of this step of the rotation.
    Rotate(usize, usize),
}

/// An action, and how long after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Virtual time that passes first.
    pub pause_ns: u64,
    /// What happens then.
    pub action: Action,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What the network does with each message is drawn from this.
    pub seed: u64,
    /// How often it loses and delays.
    pub faults: Faults,
    /// Flows, or tenants.
    pub flows: u32,
    /// What happens.
    pub steps: Vec<Step>,
}

/// Of every so many packets some only read, where the program has reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Flows, or tenants.
    pub flows: u32,
    /// Packets.
    pub packets: u32,
    /// Longest pause between two packets, in ns.
    pub pause_max_ns: u64,
    /// Of a hundred packets so many only read.
    pub reads_percent: u32,
}

impl Scenario {
    /// The swarm's run of a seed.
    pub fn of_seed(seed: u64, kind: Kind) -> Scenario {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut faults = Faults::swarm(&mut rng);
        let reads = kind != Kind::Snapshots;
        let longer = kind != Kind::Linearizable && !kind.is_asynchronous();
        // An asynchronous object loses what was not stored: only where nothing is lost can its
        // history be judged whole.
        if kind.is_asynchronous() && rng.random_bool(0.5) {
            faults = faults.kept();
        }
        // Parts of snapshots that never meet: many are lost, and then the next owner's come.
        if kind == Kind::Snapshots && rng.random_bool(0.25) {
            faults.loss = rng.random_range(0.1..0.5);
            faults.moves = faults.moves.max(0.1);
        }
        let workload = Workload {
            flows: rng.random_range(1..=4),
            packets: packets(&mut rng),
            // Ports and backends are idle after a while, and snapshots overdue: there runs are
            // longer.
            pause_max_ns: [300_000, 2 * MS, 8 * MS, 60 * MS]
                [rng.random_range(0..if longer { 4 } else { 3 })],
            reads_percent: if reads { [0, 30, 60, 90][rng.random_range(0..4)] } else { 0 },
        };
        Scenario::draw(seed, faults, workload)
    }

    /// A run with these faults.
    pub fn draw(seed: u64, faults: Faults, workload: Workload) -> Scenario {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x57e9_5eed);
        let mut steps = Vec::new();
        let mut at_switch = vec![0usize; workload.flows as usize];
        for packet in 1..=workload.packets {
            fail(&mut rng, &faults, packet, workload.packets, &mut steps);
            let flow = rng.random_range(0..workload.flows);
            if rng.random_bool(faults.moves) {
                at_switch[flow as usize] ^= 1;
            }
            let stray = usize::from(rng.random_bool(faults.strays));
            let read = rng.random_range(0..100) < workload.reads_percent;
            let pause_ns = match rng.random_range(0..1000) {
                // Long enough that flows are released; that released ones are removed; that the
                // controller acts.
                0..10 => 250 * MS,
                10..12 => 2_500 * MS,
                _ => rng.random_range(1_000..workload.pause_max_ns.max(2_000)),
            };
            steps.push(Step {
                pause_ns,
                action: Action::Packet { switch: at_switch[flow as usize] ^ stray, flow, read },
            });
        }
        Scenario { seed, faults, flows: workload.flows, steps }
    }
}

/// How long a run is. What needs many steps is rare beside what needs few, and short runs are many:
/// so most are short, and some are long.
fn packets(rng: &mut StdRng) -> u32 {
    match rng.random_range(0..16) {
        0 => rng.random_range(60..=240),
        1..4 => rng.random_range(40..=80),
        _ => rng.random_range(12..=40),
    }
}

/// What fails before a packet, and which machine takes other secrets.
fn fail(rng: &mut StdRng, faults: &Faults, packet: u32, packets: u32, steps: &mut Vec<Step>) {
    let step = |(fault, for_ns)| Step { pause_ns: 0, action: Action::Fault(fault, for_ns) };
    steps.extend(faults.draw(rng).into_iter().map(step));
    if faults.rotation {
        // Each step goes round the machines, and is done before the next begins.
        let (machines, at) = (SERVERS + SWITCHES + 1, packet as usize * 40 / packets as usize);
        let before = (packet as usize - 1) * 40 / packets as usize;
        for at in before + 1..=at {
            if let Some(step) =
                [5, 15, 25].iter().position(|from| (*from..from + machines).contains(&at))
            {
                let action = Action::Rotate(at - [5, 15, 25][step], step + 1);
                steps.push(Step { pause_ns: 0, action });
            }
        }
    }
}

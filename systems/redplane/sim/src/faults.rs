//! How bad a run is: the probabilities from which its faults are drawn.

use crate::scenario::{AGENT, Fault, Machine, SERVERS, SWITCHES};
use rand::Rng;
use rand::rngs::StdRng;
use simnet::{Cut, Direction};

/// How bad the network and the machines are. Probabilities are per message, or per step (about one
/// packet).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// A message is lost.
    pub loss: f64,
    /// A message comes twice.
    pub duplication: f64,
    /// Longest delay of a message, in ns (drawn evenly from 10 µs up: they overtake each other).
    pub delay_max_ns: u64,
    /// A message takes up to 600 ms: longer than leases, and than it takes to replace a server.
    pub stragglers: f64,
    /// A RECALL, RELEASE or RELEASE_ACK is lost, beside the others.
    pub hand_over_loss: f64,
    /// Longest extra delay of one of these, in ns.
    pub hand_over_delay_ns: u64,
    /// Per step: a flow's packets take the other switch from now on.
    pub moves: f64,
    /// Per step: a flow's packet takes the other switch, only this one.
    pub strays: f64,
    /// Per step: a switch dies, and comes back empty after up to five leases; what is sent to it
    /// meanwhile is lost.
    pub crashes: f64,
    /// Per step: the same of one that comes back with all of its state, as it was (its machine's
    /// ports were dead, or its host stood still without queues).
    pub outages: f64,
    /// Per step: a switch stands still, for up to five leases; what arrives waits.
    pub freezes: f64,
    /// Per step: a switch's agent dies, or comes back.
    pub agent_deaths: f64,
    /// By how many parts per million the clocks of switches and servers run fast or slow at most.
    pub drift_ppm: i64,
    /// By how much any two may differ, as the store is told (`clock_drift_ppm`).
    pub drift_bound_ppm: u32,
    /// What switches take off a lease, and the store adds to it, beside the declared drift, in ns:
    /// in a simulation nothing else is needed.
    pub margin_ns: u64,
    /// The secrets change in the middle of the run, one machine after the other.
    pub rotation: bool,
    /// Per step: a server of the store dies, and comes back empty, as another incarnation.
    pub store_crashes: f64,
    /// Per step: a server stands still; what arrives waits.
    pub store_freezes: f64,
    /// Per step: a server is slow: what arrives there takes up to 30 ms longer.
    pub store_slowness: f64,
    /// Per step: a link between two machines, or one machine's every link, is cut, in one direction
    /// or both.
    pub cuts: f64,
    /// Per step: the controller dies, and comes back with what its database has.
    pub controller_crashes: f64,
}

impl Faults {
    /// A network with short delays, on which nothing goes wrong.
    pub const NONE: Faults = Faults {
        loss: 0.0,
        duplication: 0.0,
        delay_max_ns: 300_000,
        stragglers: 0.0,
        hand_over_loss: 0.0,
        hand_over_delay_ns: 0,
        moves: 0.0,
        strays: 0.0,
        crashes: 0.0,
        outages: 0.0,
        freezes: 0.0,
        agent_deaths: 0.0,
        drift_ppm: 0,
        drift_bound_ppm: DRIFT_BOUND_PPM[0],
        margin_ns: MARGIN_NS,
        rotation: false,
        store_crashes: 0.0,
        store_freezes: 0.0,
        store_slowness: 0.0,
        cuts: 0.0,
        controller_crashes: 0.0,
    };

    /// All of them at once, each of them moderate.
    pub const EVERYTHING: Faults = Faults {
        loss: 0.03,
        duplication: 0.05,
        delay_max_ns: 10_000_000,
        stragglers: 0.01,
        hand_over_loss: 0.1,
        hand_over_delay_ns: 20_000_000,
        moves: 0.05,
        strays: 0.05,
        crashes: 0.01,
        outages: 0.01,
        freezes: 0.01,
        agent_deaths: 0.01,
        drift_ppm: 450,
        drift_bound_ppm: 1000,
        margin_ns: 0,
        rotation: true,
        store_crashes: 0.01,
        store_freezes: 0.01,
        store_slowness: 0.01,
        cuts: 0.01,
        controller_crashes: 0.01,
    };

    /// As a run has them: [`simnet::swarm`].
    pub fn swarm(rng: &mut impl Rng) -> Faults {
        let mut some = |chance, most| simnet::swarm(rng, chance, most);
        let mut faults = Faults {
            loss: some(0.5, 0.2),
            duplication: some(0.5, 0.3),
            stragglers: some(0.3, 0.1),
            hand_over_loss: some(0.25, 0.6),
            moves: some(0.8, 0.2),
            strays: some(0.3, 0.3),
            crashes: some(0.4, 0.05),
            outages: some(0.3, 0.05),
            freezes: some(0.4, 0.05),
            agent_deaths: some(0.25, 0.05),
            store_crashes: some(0.4, 0.06),
            store_freezes: some(0.25, 0.05),
            store_slowness: some(0.25, 0.05),
            cuts: some(0.4, 0.08),
            controller_crashes: some(0.3, 0.05),
            ..Faults::NONE
        };
        faults.delay_max_ns =
            [100_000, 300_000, 2_000_000, 10_000_000, 30_000_000][rng.random_range(0..5)];
        if rng.random_bool(0.25) {
            faults.hand_over_delay_ns = rng.random_range(1_000_000..60_000_000);
        }
        faults.drift_bound_ppm = DRIFT_BOUND_PPM[rng.random_range(0..2)];
        faults.drift_ppm = match rng.random_range(0..4) {
            0 => 0,
            1 | 2 => within(faults.drift_bound_ppm),
            // Beyond what is declared; what must hold then is less (see
            // `Faults::clocks_are_sound`).
            _ => rng.random_range(1_000..300_000),
        };
        faults.rotation = rng.random_bool(0.15);
        // With margins as they are configured, drift within the bound could not matter.
        faults.margin_ns = if rng.random_bool(0.5) { 0 } else { MARGIN_NS };
        faults
    }

    /// What goes wrong at a step, and for how many ns.
    pub fn draw(&self, rng: &mut StdRng) -> Vec<(Fault, u64)> {
        let mut drawn = Vec::new();
        let switch = rng.random_range(0..SWITCHES);
        let server = rng.random_range(0..SERVERS);
        let mut fails = |fault, for_ns| drawn.push((fault, for_ns));
        let (a_switch, a_server) = (Machine::Switch(switch), Machine::Server(server));
        let crash = |machine, keeps_state| Fault::Crash { machine, keeps_state };
        if rng.random_bool(self.crashes) {
            fails(crash(a_switch, false), down(rng));
        }
        if rng.random_bool(self.outages) {
            fails(crash(a_switch, true), down(rng));
        }
        if rng.random_bool(self.freezes) {
            fails(Fault::Freeze { machine: a_switch }, rng.random_range(MS..300 * MS));
        }
        if rng.random_bool(self.agent_deaths) {
            fails(Fault::Process { machine: a_switch, process: AGENT }, 0);
        }
        if rng.random_bool(self.store_crashes) {
            fails(crash(a_server, false), rng.random_range(MS..800 * MS));
        }
        if rng.random_bool(self.store_freezes) {
            fails(Fault::Freeze { machine: a_server }, rng.random_range(MS..400 * MS));
        }
        if rng.random_bool(self.store_slowness) {
            fails(Fault::Slow { machine: a_server }, rng.random_range(MS..400 * MS));
        }
        if rng.random_bool(self.cuts) {
            let cut = cut(rng);
            fails(Fault::Cut(cut), rng.random_range(MS..500 * MS));
        }
        if rng.random_bool(self.controller_crashes) {
            fails(crash(Machine::Controller, false), rng.random_range(MS..600 * MS));
        }
        drawn
    }

    /// Do the clocks keep to the declared bound? Beyond it a switch may believe in a lease that is
    /// over, and answer reads from what is old; updates are fenced all the same, whatever clocks
    /// do.
    pub fn clocks_are_sound(&self) -> bool {
        self.drift_ppm <= within(self.drift_bound_ppm)
    }

    /// Does every switch keep its state, and hand it over when asked? Then also an asynchronous
    /// object loses nothing.
    pub fn keeps_state(&self) -> bool {
        *self == self.kept()
    }

    /// The same network with switches and servers that keep their state, and hand it over when
    /// asked.
    pub fn kept(&self) -> Faults {
        Faults {
            duplication: self.duplication,
            delay_max_ns: self.delay_max_ns.min(2_000_000),
            moves: self.moves,
            strays: self.strays,
            drift_ppm: self.drift_ppm,
            drift_bound_ppm: self.drift_bound_ppm,
            margin_ns: self.margin_ns,
            rotation: self.rotation,
            controller_crashes: self.controller_crashes,
            ..Faults::NONE
        }
    }

    /// Copies with one kind of fault less each, for shrinking.
    pub fn lesser(&self) -> Vec<Faults> {
        let mut lesser = Vec::new();
        let mut without = |change: fn(&mut Faults)| {
            let mut faults = *self;
            change(&mut faults);
            if faults != *self {
                lesser.push(faults);
            }
        };
        without(|faults| faults.loss = 0.0);
        without(|faults| faults.duplication = 0.0);
        without(|faults| faults.delay_max_ns = faults.delay_max_ns.min(300_000));
        without(|faults| faults.stragglers = 0.0);
        without(|faults| faults.hand_over_loss = 0.0);
        without(|faults| faults.hand_over_delay_ns = 0);
        without(|faults| faults.drift_ppm = 0);
        without(|faults| faults.margin_ns = MARGIN_NS);
        lesser
    }
}

/// In ns.
const MS: u64 = 1_000_000;
/// The margins of either side when they are not thin.
const MARGIN_NS: u64 = 5_000_000;
/// What is usual, and one of which even a short lease shows something.
const DRIFT_BOUND_PPM: [u32; 2] = [1_000, 100_000];

/// If each clock is off by no more than this, any two differ by less than the bound.
fn within(bound_ppm: u32) -> i64 {
    i64::from(bound_ppm) * 45 / 100
}

/// How long a switch is away: hardly (what was sent to its last life comes to its next), for some
/// messages, for some leases.
fn down(rng: &mut StdRng) -> u64 {
    let most_ns = [MS, 10 * MS, 300 * MS][rng.random_range(0..3)];
    rng.random_range(most_ns / 100..most_ns)
}

fn any_machine(rng: &mut StdRng) -> Machine {
    match rng.random_range(0..SWITCHES + SERVERS + 1) {
        at if at < SWITCHES => Machine::Switch(at),
        at if at < SWITCHES + SERVERS => Machine::Server(at - SWITCHES),
        _ => Machine::Controller,
    }
}

fn cut(rng: &mut StdRng) -> Cut<Machine> {
    let machine = any_machine(rng);
    let peer = rng.random_bool(0.75).then(|| any_machine(rng)).filter(|peer| *peer != machine);
    let direction = if rng.random_bool(0.5) { Direction::Both } else { Direction::OutOf };
    Cut { machine, peer, direction }
}

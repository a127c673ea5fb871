//! How bad a run is: the probabilities from which its faults are drawn.

use rand::Rng;
use simnet::Conditions;

const MS: u64 = 1_000_000;

/// How bad the network and the machines are. Probabilities are per message, or per step (about one
/// request).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// A message is lost.
    pub loss: f64,
    /// A message comes twice.
    pub duplication: f64,
    /// Longest delay of a message, in ns (drawn evenly: they overtake each other).
    pub delay_max_ns: u64,
    /// A message takes up to half a second: longer than leases, and than a failover.
    pub stragglers: f64,
    /// Per step: a switch loses power, and comes back with empty slots.
    pub power_cuts: f64,
    /// Per step: the same of one that comes back as it was: its ports were dead.
    pub outages: f64,
    /// Per step: a switch stands still; what arrives waits.
    pub freezes: f64,
    /// Per step: a client or the controller stands still.
    pub stalls: f64,
    /// Per step: a switch's agent dies, and comes back after a while. The data plane goes on.
    pub agent_deaths: f64,
    /// Per step: what is sent to a switch takes longer.
    pub slowness: f64,
    /// Per step: a link, or a machine's every link, is cut, in one direction or both.
    pub cuts: f64,
    /// Per step: a switch is cut off from all others and the controller, and not from its clients.
    pub isolations: f64,
    /// Per step: the controller dies, and another one goes on from the database.
    pub controller_deaths: f64,
    /// Per message of the controller, and per write of its database: it dies just then.
    pub controller_steps: f64,
    /// Per step: an operator drains a switch, or ends that.
    pub drains: f64,
    /// Per step: an operator has tombstones collected.
    pub collections: f64,
    /// By how many parts per million a clock runs fast or slow at most; two differ by less than
    /// 1 %.
    pub drift_ppm: i64,
}

impl Faults {
    /// A network with short delays, on which nothing goes wrong.
    pub const NONE: Faults = Faults {
        loss: 0.0,
        duplication: 0.0,
        delay_max_ns: 300_000,
        stragglers: 0.0,
        power_cuts: 0.0,
        outages: 0.0,
        freezes: 0.0,
        stalls: 0.0,
        agent_deaths: 0.0,
        slowness: 0.0,
        cuts: 0.0,
        isolations: 0.0,
        controller_deaths: 0.0,
        controller_steps: 0.0,
        drains: 0.0,
        collections: 0.0,
        drift_ppm: 0,
    };

    /// As a run has them: [`simnet::swarm`].
    pub fn swarm(rng: &mut impl Rng) -> Faults {
        let mut some = |chance, most| simnet::swarm(rng, chance, most);
        let mut faults = Faults {
            loss: some(0.5, 0.3),
            duplication: some(0.5, 0.3),
            stragglers: some(0.4, 0.1),
            power_cuts: some(0.6, 0.12),
            outages: some(0.3, 0.08),
            freezes: some(0.4, 0.08),
            stalls: some(0.25, 0.05),
            agent_deaths: some(0.25, 0.05),
            slowness: some(0.25, 0.05),
            cuts: some(0.4, 0.12),
            isolations: some(0.3, 0.06),
            controller_deaths: some(0.3, 0.08),
            controller_steps: some(0.25, 0.2),
            drains: some(0.2, 0.05),
            collections: some(0.4, 0.1),
            ..Faults::NONE
        };
        faults.delay_max_ns = [100_000, 300_000, 2 * MS, 10 * MS][rng.random_range(0..4)];
        faults.drift_ppm = [0, 1_000, 4_900][rng.random_range(0..3)];
        faults
    }

    /// What the network is told.
    pub(crate) fn conditions(&self) -> Conditions {
        Conditions {
            loss: self.loss,
            duplication: self.duplication,
            delay_max_ns: self.delay_max_ns,
            stragglers: self.stragglers,
            straggle_ns: 500 * MS,
            ..Conditions::GOOD
        }
    }

    /// Copies with one kind of fault less each, for shrinking.
    pub fn lesser(&self) -> Vec<Faults> {
        let changes: [fn(&mut Faults); 6] = [
            |it| it.loss = 0.0,
            |it| it.duplication = 0.0,
            |it| it.stragglers = 0.0,
            |it| it.controller_steps = 0.0,
            |it| it.drift_ppm = 0,
            |it| it.delay_max_ns = it.delay_max_ns.min(300_000),
        ];
        let without = changes.into_iter().map(|change| {
            let mut faults = *self;
            change(&mut faults);
            faults
        });
        without.filter(|faults| faults != self).collect()
    }
}

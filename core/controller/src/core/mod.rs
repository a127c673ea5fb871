//! The sans-IO core of a controller: `(now, report or timer) -> views`. The rules, and why they
//! lose nothing, are in `core/controller/docs/protocol.md`.
//!
//! Owns who is alive and who is in which chain; must not know sockets, clocks, files, or what the
//! store stores. Each decision is a new `Views` with the next version; it is sent to nobody before
//! the caller has said that it is persistent.

mod decide;
mod mutation;
mod rebuild;
mod ring;
mod seen;

pub use decide::Why;
pub use mutation::Mutation;
#[cfg(feature = "mutations")]
pub use mutation::plant;
pub use rebuild::{Rebuild, RebuildProblem};
pub use ring::{Ring, Server};
pub use seen::Seen;

use decide::JoinWatch;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddrV4;
use wire::{Control, MOST_MACHINE_BYTES, Malformed, Refusal, Report, Reporter, ShardView, Views};

/// How often everything is looked at.
const LOOK_NS: u64 = 10_000_000;
/// Not more often than this are the same views sent to the same peer.
const PUSH_AGAIN_NS: u64 = 20_000_000;
/// Peers that have been silent for so long are forgotten.
const FORGET_NS: u64 = 60_000_000_000;
/// Servers and switches that are kept in mind, at most.
const MOST_PEERS: usize = 65_536;

/// Configuration of a controller.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Shards of the cluster.
    pub shards: u16,
    /// Servers in each chain: one more than may die at once.
    pub chain_length: usize,
    /// The cluster begins when servers of so many machines have reported.
    pub founding_servers: usize,
    /// A server that has not reported, or that its predecessor has not heard of, for so long is
    /// taken out of its chains, in ns.
    pub dead_ns: u64,
    /// A copy that makes no progress for so long is given up, in ns.
    pub join_timeout_ns: u64,
    /// Servers that catch up at the same time, over all shards.
    pub most_joins: usize,
    /// When no chain has lost or got a member for this time, heads are spread evenly over the
    /// servers, in ns.
    pub reorder_after_ns: u64,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Input<'a> {
    /// A genuine datagram came.
    Datagram {
        /// Its sender.
        from: SocketAddrV4,
        /// All of it.
        bytes: &'a [u8],
    },
    /// `next_deadline` has passed.
    Timer,
    /// The decision that was given out as `persist` is persistent.
    Persisted,
    /// The decision was not made persistent; it is as if it had not been made. What the database
    /// has, if that could be read.
    Refused(Option<Views>),
    /// The database has other views than this controller: another one decided.
    Loaded(Views),
    /// Whether this controller is the one that decides.
    Leading(bool),
}

/// What an operator should know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A shard's chain is to change.
    Decided {
        /// The shard.
        shard: u16,
        /// Its new view.
        view: ShardView,
        /// The reason.
        why: Why,
    },
    /// A server or switch was heard of for the first time.
    Appeared(SocketAddrV4, Reporter),
    /// A server's or switch's reports are missing.
    Silent(SocketAddrV4, Reporter),
    /// A server reports that it hears nothing from anybody.
    Deaf(SocketAddrV4),
    /// A server is configured for another number of shards.
    ShardsMismatch(SocketAddrV4, u16),
    /// A switch reports with the number of another one that lives, and is refused.
    Refused(SocketAddrV4, Refusal),
    /// A server has views that are newer than this controller's database: it is not the cluster's
    /// newest.
    Behind(SocketAddrV4, u64),
}

/// What the core wants done.
#[derive(Debug, Default)]
pub struct Outputs {
    /// Datagrams, with no tag yet.
    pub datagrams: Vec<(SocketAddrV4, Vec<u8>)>,
    /// To be made persistent, then answered by `Persisted` or `Refused`.
    pub persist: Option<Views>,
    /// To be logged.
    pub events: Vec<Event>,
}

/// What a controller counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Reports taken.
    pub reports: u64,
    /// Reports that were older than one that was taken.
    pub reports_old: u64,
    /// Datagrams that are not reports.
    pub malformed: u64,
    /// Reports of switches that were refused: another switch has the number.
    pub switches_refused: u64,
    /// Decisions made persistent.
    pub decisions: u64,
    /// Views sent.
    pub views_sent: u64,
}

/// A controller.
pub struct Controller {
    settings: Settings,
    /// Persistent.
    views: Views,
    deciding: Option<Views>,
    leading: bool,
    /// Nobody can be called silent who had no time to be heard.
    listening_since_ns: u64,
    /// When any server's report came last, and since when they come again after there were none:
    /// whose silence would that have been?
    heard_server_ns: u64,
    hearing_since_ns: u64,
    peers: BTreeMap<SocketAddrV4, Seen>,
    /// Where each switch reported from last, by its number.
    switches: HashMap<u32, SocketAddrV4>,
    /// The switch that was refused last: told once.
    refused: Option<SocketAddrV4>,
    /// As it was when last looked at.
    ring: Ring,
    joins: HashMap<u16, JoinWatch>,
    /// Tail and joining server between which a copy made no progress: not again before this time.
    failed_joins: HashMap<(SocketAddrV4, SocketAddrV4), u64>,
    /// When a chain last lost or got a member, or a change of order was given up.
    changed_ns: u64,
    /// Since when the shard that drains does.
    draining_since_ns: u64,
    look_at_ns: u64,
    encoded: Vec<u8>,
    /// The answer to a report.
    heard: Vec<u8>,
    counters: Counters,
}

impl Controller {
    /// What it goes by.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A controller with the views that its database has (none: `Views::default()`).
    pub fn new(settings: Settings, views: Views, leading: bool, now_ns: u64) -> Controller {
        let mut controller = Controller {
            views: Views::default(),
            deciding: None,
            leading,
            listening_since_ns: now_ns,
            heard_server_ns: now_ns,
            hearing_since_ns: now_ns,
            peers: BTreeMap::new(),
            switches: HashMap::new(),
            refused: None,
            ring: Ring::default(),
            joins: HashMap::new(),
            failed_joins: HashMap::new(),
            changed_ns: now_ns,
            draining_since_ns: now_ns,
            look_at_ns: now_ns,
            encoded: Vec::new(),
            heard: Control::Heard.encode().unwrap_or_default(), // a header: fits
            counters: Counters::default(),
            settings,
        };
        controller.set_views(views);
        controller
    }

    /// Takes one input.
    pub fn handle(&mut self, now_ns: u64, input: Input<'_>, out: &mut Outputs) {
        match input {
            Input::Datagram { from, bytes } => match Control::decode(bytes) {
                Ok(Control::Report { sent_ns, incarnation, report }) => {
                    self.report(now_ns, from, sent_ns, incarnation, report, out);
                }
                Ok(
                    Control::Views(_)
                    | Control::Heard
                    | Control::ViewsWanted
                    | Control::Refused { .. }
                    | Control::OtherSecrets,
                ) => self.counters.malformed += 1,
                Err(reason) => self.malformed(reason),
            },
            Input::Timer => self.look(now_ns, out),
            Input::Persisted => {
                if let Some(views) = self.deciding.take() {
                    self.counters.decisions += 1;
                    self.set_views(views);
                    self.push_to_all(now_ns, out);
                }
            }
            Input::Refused(views) => {
                self.deciding = None;
                if let Some(views) = views.filter(|views| views.version > self.views.version) {
                    self.set_views(views);
                }
            }
            Input::Loaded(views) => {
                if views.version > self.views.version && self.deciding.is_none() {
                    self.set_views(views);
                }
            }
            Input::Leading(leading) => self.leading = leading,
        }
    }

    /// When `Input::Timer` is due.
    pub fn next_deadline(&self) -> u64 {
        self.look_at_ns
    }

    /// The persistent views.
    pub fn views(&self) -> &Views {
        &self.views
    }

    /// The servers and switches that were heard of.
    pub fn peers(&self) -> impl Iterator<Item = (&SocketAddrV4, &Seen)> {
        self.peers.iter()
    }

    /// Whether this controller decides.
    pub fn is_leading(&self) -> bool {
        self.leading
    }

    /// What it counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether the peer reported within `dead_ms`, and by its report heard somebody within it. (One
    /// that can send but hears nothing is no use to anybody, and what it complains of is its own
    /// fault.)
    pub fn is_alive(&self, now_ns: u64, seen: &Seen) -> bool {
        now_ns < seen.heard_ns + self.settings.dead_ns
            && seen.heard_ns < seen.hearing_ns + self.settings.dead_ns
    }

    fn malformed(&mut self, _reason: Malformed) {
        self.counters.malformed += 1;
    }

    fn set_views(&mut self, views: Views) {
        self.views = views;
        // Fits: the number of shards is bounded, and servers are named once.
        self.encoded = Control::Views(self.views.clone()).encode().unwrap_or_default();
        self.joins.retain(|shard, _| {
            self.views.shards.get(usize::from(*shard)).is_some_and(|view| view.joining.is_some())
        });
    }

    fn report(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        sent_ns: u64,
        incarnation: u64,
        report: Report,
        out: &mut Outputs,
    ) {
        if self.peers.len() >= MOST_PEERS && !self.peers.contains_key(&from) {
            return;
        }
        let report = match report.machine.len() {
            0 => Report { machine: from.to_string(), ..report },
            1..=MOST_MACHINE_BYTES => report,
            _ => return self.malformed(Malformed::Json),
        };
        if let Some(refusal) = self.refusal(now_ns, from, &report) {
            self.counters.switches_refused += 1;
            if self.refused.replace(from) != Some(from) {
                out.events.push(Event::Refused(from, refusal.clone()));
            }
            let refused = Control::Refused { sent_ns, incarnation, refusal };
            out.datagrams.extend(refused.encode().ok().map(|bytes| (from, bytes)));
            return;
        }
        let (reporter, version) = (report.reporter, report.version);
        let mismatch = reporter == Reporter::Server && report.shards != self.settings.shards;
        let seen = self.peers.entry(from).or_insert_with(|| {
            out.events.push(Event::Appeared(from, reporter));
            Seen::new(now_ns, reporter)
        });
        if !seen.take(now_ns, sent_ns, incarnation, report) {
            self.counters.reports_old += 1;
            return;
        }
        self.counters.reports += 1;
        if let Reporter::Switch { switch_id } = reporter {
            self.switches.insert(switch_id, from);
        }
        if reporter == Reporter::Server {
            let deaf = now_ns >= self.heard_server_ns + self.settings.dead_ns / 2;
            self.hearing_since_ns = if deaf { now_ns } else { self.hearing_since_ns };
            self.heard_server_ns = now_ns;
        }
        out.datagrams.push((from, self.heard.clone()));
        if mismatch && !std::mem::replace(&mut seen.mismatch, mismatch) {
            out.events.push(Event::ShardsMismatch(from, self.settings.shards));
        }
        if version > self.views.version
            && self.deciding.as_ref().is_none_or(|views| version > views.version)
        {
            if !std::mem::replace(&mut seen.ahead, true) {
                out.events.push(Event::Behind(from, version));
            }
        } else {
            seen.ahead = false;
            if version < self.views.version && now_ns >= seen.pushed_ns + PUSH_AGAIN_NS {
                self.push(now_ns, from, out);
            }
        }
    }

    /// Why a switch is refused: another one that lives has its number
    /// (`core/controller/docs/protocol.md`, "Rules of the controller", 12). A restarted
    /// switch reports from the same address.
    fn refusal(&self, now_ns: u64, from: SocketAddrV4, report: &Report) -> Option<Refusal> {
        let Reporter::Switch { switch_id } = report.reporter else { return None };
        let address = *self.switches.get(&switch_id)?;
        let other = self.peers.get(&address)?;
        let refused = !report.accepted
            && address.ip() != from.ip()
            && other.reporter == report.reporter
            && self.is_alive(now_ns, other);
        let name = other.load.as_ref().map(|load| load.name.clone()).unwrap_or_default();
        refused.then_some(Refusal { switch_id, address, name })
    }

    fn look(&mut self, now_ns: u64, out: &mut Outputs) {
        self.look_at_ns = now_ns + LOOK_NS;
        let dead_ns = self.settings.dead_ns;
        for (address, seen) in &mut self.peers {
            let deaf = seen.heard_ns >= seen.hearing_ns + dead_ns;
            if deaf && !std::mem::replace(&mut seen.deaf, true) {
                out.events.push(Event::Deaf(*address));
            } else if !deaf && std::mem::replace(&mut seen.deaf, false) {
                seen.since_ns = now_ns;
            }
            if now_ns >= seen.heard_ns + dead_ns && !std::mem::replace(&mut seen.silent, true) {
                out.events.push(Event::Silent(*address, seen.reporter));
            }
        }
        self.peers.retain(|_, seen| now_ns < seen.heard_ns + FORGET_NS);
        let peers = &self.peers;
        self.switches.retain(|_, address| peers.contains_key(address));
        self.failed_joins.retain(|_, until| now_ns < *until);
        let settled = now_ns >= self.listening_since_ns + 2 * dead_ns && self.hears(now_ns);
        // With newer views about than ours, whatever we decided would be on old grounds.
        // (Newer than what we have now: who has died since, and had views that are read by now,
        // reports them for ever.)
        let behind = self.peers.values().any(|seen| seen.version > self.views.version);
        if self.leading
            && settled
            && !behind
            && self.deciding.is_none()
            && !self.is_of_other_shards()
        {
            let decided = self.decide(now_ns, out);
            self.deciding.clone_from(&decided);
            if let Some(views) =
                decided.clone().filter(|_| mutation::planted(Mutation::SentBeforePersisted))
            {
                self.set_views(views);
                self.push_to_all(now_ns, out);
            }
            out.persist = decided;
        }
    }

    /// Whether the views are of a cluster with another number of shards than this controller is
    /// configured for: servers would take none that it decides.
    pub fn is_of_other_shards(&self) -> bool {
        self.views.version > 0 && self.views.shards.len() != usize::from(self.settings.shards)
    }

    /// Can this controller tell a dead server from its own link that is cut? Not while no server at
    /// all is heard (reports come five times in `dead_ns`), nor before each had `dead_ns` to be
    /// heard again: the first whose report gets through is not the only one that lives. Before
    /// there are chains nobody can be taken out.
    fn hears(&self, now_ns: u64) -> bool {
        let dead_ns = self.settings.dead_ns;
        let hears = now_ns < self.heard_server_ns + dead_ns / 2
            && now_ns >= self.hearing_since_ns + dead_ns;
        hears || self.views.version == 0
    }

    fn push_to_all(&mut self, now_ns: u64, out: &mut Outputs) {
        let peers: Vec<_> = self.peers.keys().copied().collect();
        peers.into_iter().for_each(|peer| self.push(now_ns, peer, out));
    }

    fn push(&mut self, now_ns: u64, to: SocketAddrV4, out: &mut Outputs) {
        if let Some(seen) = self.peers.get_mut(&to) {
            seen.pushed_ns = now_ns;
            self.counters.views_sent += 1;
            out.datagrams.push((to, self.encoded.clone()));
        }
    }
}

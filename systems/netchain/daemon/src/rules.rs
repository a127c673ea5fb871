//! NetChain's rules, as the platform's shell runs them.

use crate::config::Config;
use crate::decision::{Decided, Founded};
use crate::orders::{Orders, Request};
use crate::reports::{Refused, Reports, is_report};
use crate::status::{self, GroupsWanted};
use controller::shell::{Input, Kept, Outputs, Rules, Trouble};
use netchain_controller::{self as core, Controller, Event, Settings, State, Walks};
use netchain_protocol::control;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{Control, Kind, ToolType, kind};

const MS_NS: u64 = 1_000_000;
/// How often everything is looked at, beside at each report.
const LOOK_NS: u64 = 5 * MS_NS;
/// A configuration that was lost is sent again after this time.
const AGAIN_MS: u64 = 20;
/// A controller that begins waits so long for switches that nobody has heard yet.
const BEGIN_MS: u64 = 10_000;

/// See the module.
pub(crate) struct Switches {
    pub config: Config,
    /// None: nothing is decided yet.
    core: Option<Controller>,
    /// The longest lease that a switch may have been told of.
    lease_ms: u32,
    /// What the persistent decision has of that: switches are told of no longer one.
    told_lease_ms: u32,
    pub leading: bool,
    /// What the first decision will be, while it is being written.
    founding: Option<Founded>,
    pub reports: Reports,
    pub orders: Orders,
    /// Of the decision that is being written.
    undecided: Vec<Event>,
    /// A switch has a newer decision than the database.
    behind: Option<(Trouble, u64)>,
    /// A switch with another founding file reports.
    strangers: Option<Trouble>,
    /// The database is another cluster's.
    fault: Option<String>,
    /// Groups that do not answer, and since when.
    paused_since_ns: BTreeMap<usize, u64>,
    look_at_ns: u64,
    pub decisions: u64,
    pub deaths: u64,
    pub mute: u64,
    pub losses: u64,
    pub collections: u64,
    pub moves: u64,
}

impl Switches {
    pub fn new(config: Config, kept: Decided, leading: bool, now_ns: u64) -> Switches {
        let mut rules = Switches {
            lease_ms: config.lease_ms,
            told_lease_ms: 0,
            config,
            core: None,
            leading,
            founding: None,
            reports: Reports::default(),
            orders: Orders::new(),
            undecided: vec![],
            behind: None,
            strangers: None,
            fault: None,
            paused_since_ns: BTreeMap::new(),
            look_at_ns: now_ns,
            decisions: 0,
            deaths: 0,
            mute: 0,
            losses: 0,
            collections: 0,
            moves: 0,
        };
        rules.load(now_ns, kept);
        rules
    }

    pub fn core(&self) -> Option<&Controller> {
        self.core.as_ref()
    }

    pub fn state(&self) -> Option<&State> {
        self.core.as_ref().map(Controller::state)
    }

    pub fn behind(&self) -> Option<&Trouble> {
        self.behind.as_ref().map(|(trouble, _)| trouble)
    }

    /// How long the group has not answered that waits longest.
    pub fn longest_pause_ns(&self, now_ns: u64) -> u64 {
        let first = self.paused_since_ns.values().min();
        first.map_or(0, |since_ns| now_ns.saturating_sub(*since_ns))
    }

    /// Another view does not end a pause.
    fn note_pauses(&mut self, now_ns: u64) {
        let mut before = std::mem::take(&mut self.paused_since_ns);
        let groups = self.state().map_or(&[][..], |state| &state.groups).iter().enumerate();
        let paused = groups.filter(|(_, group)| status::is_paused(&group.stage));
        let since = |(at, _)| (at, before.remove(&at).unwrap_or(now_ns));
        self.paused_since_ns = paused.map(since).collect();
    }

    fn settings(&self) -> Settings {
        Settings {
            failures: self.config.ring.founding().failures,
            dead_ms: self.config.dead_ms,
            agent_ms: self.config.agent_ms,
            lease_ms: u64::from(self.lease_ms),
            most_joins: self.config.most_joins,
            again_ms: AGAIN_MS,
            begin_ms: BEGIN_MS,
            collect_percent: self.config.collect_percent,
            collect_gap_ms: self.config.collect_gap_s * 1_000,
            rebalance_after_ms: self.config.rebalance_after_s * 1_000,
        }
    }

    /// Goes on from what the database has.
    fn load(&mut self, now_ns: u64, kept: Decided) {
        let Some(Founded { ring, lease_ms, state }) = kept.0 else { return };
        let own = self.config.ring.fingerprint();
        if ring != own {
            self.fault = Some(format!(
                "the database belongs to the cluster that was founded as {ring:08x}, but `cluster` \
                 names the founding file of {own:08x}: name the right file, or another database"
            ));
            return;
        }
        self.told_lease_ms = lease_ms;
        let longest_ms = self.lease_ms.max(lease_ms);
        let longer = std::mem::replace(&mut self.lease_ms, longest_ms) < longest_ms;
        match &mut self.core {
            Some(core) if !longer => {
                core.handle(now_ns / MS_NS, core::Input::Loaded(state));
            }
            _ => self.begin(now_ns, state),
        }
    }

    fn begin(&mut self, now_ns: u64, state: State) {
        let placement = Box::new(Walks::of(&self.config.ring));
        let mut core = Controller::new(self.settings(), placement, state);
        core.handle(now_ns / MS_NS, core::Input::Leading(self.leading));
        self.core = Some(core);
    }

    /// The first decision: the founding's chains.
    fn found(&mut self, out: &mut Outputs<Decided>) {
        if !self.leading || self.founding.is_some() || self.fault.is_some() {
            return;
        }
        let ring = &self.config.ring;
        let switches: Vec<Ipv4Addr> = ring.members().iter().map(|it| it.address).collect();
        let chains = (0..ring.groups()).filter_map(|group| ring.chain_of(group)).collect();
        let founded = self.founded(State::found(&switches, chains));
        self.founding = Some(founded.clone());
        out.persist = Some(Decided(Some(founded)));
    }

    fn founded(&self, state: State) -> Founded {
        Founded { ring: self.config.ring.fingerprint(), lease_ms: self.lease_ms, state }
    }

    fn datagram(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        bytes: &[u8],
        out: &mut Outputs<Decided>,
    ) -> Option<core::Input> {
        if !kind(bytes).is_ok_and(is_report) {
            self.reports.counters.malformed += 1;
            return None;
        }
        let ring = self.config.ring.fingerprint();
        let state = self.core.as_ref()?.state();
        let decided = |it: &Ipv4Addr| state.switches.get(it).map(|it| it.incarnation);
        match self.reports.take(from, bytes, ring, decided) {
            Ok(report) => {
                self.compare(now_ns, &report);
                if self.reports.is_to_be_told(now_ns, &report.switch) {
                    out.datagrams.extend(Control::Heard.encode().ok().map(|bytes| (from, bytes)));
                }
                Some(core::Input::Report(report))
            }
            Err(Refused::OtherCluster) => {
                let stranger = self.strangers.get_or_insert_with(|| Trouble::since(now_ns));
                stranger.what = format!(
                    "{from} reports with another founding file, or is not listed in this controller's"
                );
                None
            }
            Err(Refused::Malformed | Refused::Old) => None,
        }
    }

    /// A switch with a newer decision than the database's: nothing may be decided then. (The rules
    /// take no report of it.)
    fn compare(&mut self, now_ns: u64, report: &core::Report) {
        let own = self.state().map_or(0, |state| state.version);
        if report.applied <= own {
            return;
        }
        let (trouble, newest) = self.behind.get_or_insert_with(|| (Trouble::since(now_ns), 0));
        *newest = report.applied.max(*newest);
        trouble.what = format!(
            "{} has decision {newest}, but this controller's database has decision {own}: the \
             database is lost, or an old copy; give the controller the newest database",
            report.switch
        );
    }

    fn wanted(&mut self, now_ns: u64, wanted: core::Outputs, out: &mut Outputs<Decided>) {
        if wanted.persist.is_some() {
            self.undecided = wanted.events;
        }
        let own = self.state().map_or(0, |state| state.version);
        self.behind.take_if(|(_, newest)| *newest <= own);
        match (wanted.persist, &mut self.core) {
            (Some(_), Some(core)) if self.behind.is_some() => {
                self.undecided.clear();
                core.handle(now_ns / MS_NS, core::Input::NotPersisted);
            }
            (persist, _) => {
                out.persist = persist.map(|state| Decided(Some(self.founded(state))));
            }
        }
        let ring = self.config.ring.fingerprint();
        let lease_ms = self.config.lease_ms.min(self.told_lease_ms);
        for (switch, config) in wanted.configs {
            let Some(to) = self.reports.address(&switch) else { continue };
            let decided = control::Decided { ring, lease_ms, config };
            match decided.encode() {
                Some(parts) => out.datagrams.extend(parts.into_iter().map(|it| (to, it))),
                None => tracing::error!(%switch, "a decision is too long for its messages"),
            }
        }
    }

    fn log(&mut self, event: Event) {
        let name = &self.config.shell.name;
        match event {
            Event::Died(switch) => {
                self.deaths += 1;
                tracing::warn!(name, %switch, "dead: most others do not hear it");
            }
            Event::Mute(switch) => {
                self.mute += 1;
                tracing::warn!(
                    name,
                    %switch,
                    "its agent does not report, though others hear the switch: out of its chains"
                );
            }
            Event::Emptied(switch) => {
                tracing::warn!(name, %switch, "it has lost its keys: out of its chains");
            }
            Event::Returned(switch) => tracing::info!(name, %switch, "serves again"),
            Event::Moves(group, switch) => {
                self.moves += 1;
                tracing::info!(name, group, %switch, "joins: the group moves to it");
            }
            Event::Joins(group, switch) => tracing::info!(name, group, %switch, "joins"),
            Event::Joined(group, switch) => tracing::info!(name, group, %switch, "joined"),
            Event::Collects(group) => tracing::info!(name, group, "its tombstones are collected"),
            Event::Collected(group) => {
                self.collections += 1;
                tracing::info!(name, group, "its tombstones are gone");
            }
            Event::Left(group, switch) => tracing::info!(name, group, %switch, "left"),
            Event::Lost(group) => {
                self.losses += 1;
                tracing::error!(
                    name,
                    group,
                    "all members are lost, and the group's keys with them: `stateplane kv refound \
                     {group}` begins it anew, empty"
                );
            }
        }
    }
}

impl Rules for Switches {
    type Decision = Decided;

    fn handle(&mut self, now_ns: u64, input: Input<'_, Decided>, out: &mut Outputs<Decided>) {
        let input = match input {
            Input::Datagram { from, bytes } => match self.datagram(now_ns, from, bytes, out) {
                Some(input) => input,
                None => return,
            },
            Input::Timer => {
                self.look_at_ns = now_ns + LOOK_NS;
                self.note_pauses(now_ns);
                core::Input::Timer
            }
            Input::Persisted => {
                self.decisions += 1;
                self.told_lease_ms = self.lease_ms;
                for event in std::mem::take(&mut self.undecided) {
                    self.log(event);
                }
                if let Some(founded) = self.founding.take() {
                    tracing::info!(name = self.config.shell.name, "the cluster is founded");
                    self.begin(now_ns, founded.state);
                }
                core::Input::Persisted
            }
            Input::Refused(found) => {
                (self.founding, self.undecided) = (None, vec![]);
                if let Some(core) = &mut self.core {
                    core.handle(now_ns / MS_NS, core::Input::NotPersisted);
                }
                self.load(now_ns, found.unwrap_or_default());
                core::Input::Timer
            }
            Input::Loaded(kept) => return self.load(now_ns, kept),
            Input::Leading(leading) => {
                self.leading = leading;
                core::Input::Leading(leading)
            }
        };
        let Some(core) = &mut self.core else { return self.found(out) };
        let wanted = core.handle(now_ns / MS_NS, input);
        self.wanted(now_ns, wanted, out);
    }

    fn next_deadline(&self) -> u64 {
        self.look_at_ns
    }

    fn version(&self) -> u64 {
        self.state().map_or(0, |state| state.version)
    }

    fn is_leading(&self) -> bool {
        self.leading
    }

    fn fault(&self) -> Option<String> {
        self.fault.clone()
    }

    fn look(&mut self, now_ns: u64, _kept: &Kept) {
        let name = &self.config.shell.name;
        let behind = self.behind.as_mut().map(|(trouble, _)| trouble);
        for trouble in behind.into_iter().chain(&mut self.strangers) {
            if trouble.lasts(now_ns) && trouble.is_to_be_told(now_ns) {
                tracing::error!(name, "{}", trouble.what);
            }
        }
    }

    fn status(&self, now_ns: u64, kept: &Kept) -> Vec<u8> {
        status::status(self, kept, now_ns).into_json()
    }

    fn metrics(&self, now_ns: u64, kept: &Kept, bad_tag: u64) -> String {
        crate::metrics::render(self, kept, now_ns, bad_tag)
    }

    fn question(&mut self, _now_ns: u64, question: ToolType, json: &[u8]) -> Option<Vec<u8>> {
        match question {
            ToolType::StateRequest => {
                let wanted: GroupsWanted = serde_json::from_slice(json).ok()?;
                serde_json::to_vec(&status::groups(self.state(), wanted)).ok()
            }
            ToolType::OrderRequest => {
                let request: Request = serde_json::from_slice(json).ok()?;
                let state = self.core.as_ref().map(Controller::state).filter(|_| self.leading);
                let (answer, input) = self.orders.take(request, state);
                if let (Some(input), Some(core)) = (input, &mut self.core) {
                    core.wish(input);
                }
                serde_json::to_vec(&answer).ok()
            }
            _ => None,
        }
    }

    fn waits(kind: Kind) -> bool {
        is_report(kind)
            || matches!(kind, Kind::Tool(ToolType::StatusRequest | ToolType::OrderRequest))
    }
}

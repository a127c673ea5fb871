//! The machine around the rules: `(now, input) -> outputs`.

use crate::collect::Collections;
use crate::decide::{Event, Facts, Look};
use crate::moves::Moves;
use crate::mutation::{self, Mutation};
use crate::state::{Stage, State};
use crate::{Config, Placement, Report, Settings};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A genuine report came.
    Report(Report),
    /// Some milliseconds have passed.
    Timer,
    /// The decision that was given out as `persist` is persistent.
    Persisted,
    /// It is not, and is as if it had not been made.
    NotPersisted,
    /// An operator wants the switch out of all chains, or back.
    Drain(Ipv4Addr, bool),
    /// An operator founds a lost group again, empty.
    Refound(u16),
    /// An operator wants the tombstones of a group, or of all, collected.
    Collect(Option<u16>),
    /// An operator wants chains to move to their best switches now.
    Rebalance,
    /// Another controller has decided this, and it is persistent.
    Loaded(State),
    /// Whether this controller is the one that decides. It is from the beginning.
    Leading(bool),
}

/// What the controller wants done.
#[derive(Debug, Default)]
pub struct Outputs {
    /// To be sent.
    pub configs: Vec<(Ipv4Addr, Config)>,
    /// To be made persistent, then answered by `Persisted` or `NotPersisted`.
    pub persist: Option<State>,
    /// To be logged.
    pub events: Vec<Event>,
}

/// What is known of a switch.
#[derive(Clone, Debug)]
struct Seen {
    report: Report,
    heard_ms: u64,
    /// When a report of this life first had each of the newest versions.
    applied_at_ms: BTreeMap<u64, u64>,
}

/// Versions of a switch whose first report is kept in mind.
const MOST_VERSIONS: usize = 64;

/// The time passes in steps of some milliseconds. In a longer one the controller stood still.
const STILL_MS: u64 = 30;

/// A controller.
pub struct Controller {
    settings: Settings,
    placement: Box<dyn Placement>,
    /// Persistent.
    state: State,
    deciding: Option<State>,
    seen: BTreeMap<Ipv4Addr, Seen>,
    /// When each switch was sent which version.
    sent: BTreeMap<Ipv4Addr, (u64, u64)>,
    wishes: Vec<Input>,
    collections: Collections,
    moves: Moves,
    leading: bool,
    began_ms: Option<u64>,
    /// Of the newest input.
    now_ms: Option<u64>,
}

impl Controller {
    /// Goes on from a persistent state.
    pub fn new(settings: Settings, placement: Box<dyn Placement>, state: State) -> Controller {
        Controller {
            settings,
            placement,
            state,
            deciding: None,
            seen: BTreeMap::new(),
            sent: BTreeMap::new(),
            wishes: vec![],
            collections: Collections::default(),
            moves: Moves::default(),
            leading: true,
            began_ms: None,
            now_ms: None,
        }
    }

    /// Its configuration.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether it decides.
    pub fn is_leading(&self) -> bool {
        self.leading
    }

    /// The newest report of each switch, and when it came.
    pub fn seen(&self) -> impl Iterator<Item = (&Report, u64)> {
        self.seen.values().map(|seen| (&seen.report, seen.heard_ms))
    }

    /// What is decided and persistent.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Takes an operator's wish, which the next input decides on.
    pub fn wish(&mut self, wish: Input) {
        if wish.is_wish() {
            self.wishes.push(wish);
        }
    }

    /// Takes an input at `now_ms`, on a clock that never goes back.
    pub fn handle(&mut self, now_ms: u64, input: Input) -> Outputs {
        let mut outputs = Outputs::default();
        self.began_ms.get_or_insert(now_ms);
        self.stood_still(now_ms);
        match input {
            Input::Report(report) => self.report(now_ms, report),
            Input::Persisted => {
                if let Some(state) = self.deciding.take() {
                    self.collections.persisted(&self.state, &state, now_ms);
                    self.state = state;
                }
            }
            Input::NotPersisted => {
                // The next input decides again: what this one gave is not looked at.
                self.deciding = None;
                return outputs;
            }
            Input::Timer => {}
            Input::Loaded(state) => {
                if state.version > self.state.version && self.deciding.is_none() {
                    self.state = state;
                }
            }
            Input::Leading(leading) => {
                if leading && !self.leading {
                    self.began_ms = Some(now_ms);
                }
                self.leading = leading;
            }
            wish => self.wishes.push(wish),
        }
        if !self.leading {
            self.wishes.clear();
            self.collections.forget();
            self.moves = Moves::default();
            return outputs;
        }
        if self.deciding.is_none() {
            self.decide(now_ms, &mut outputs);
        }
        self.send(now_ms, &mut outputs);
        outputs
    }

    /// A controller that got no CPU for a while has heard nobody meanwhile. Reports wait for it,
    /// and it takes one after the other: those that it has not yet come to would be silent.
    fn stood_still(&mut self, now_ms: u64) {
        let before = self.now_ms.replace(now_ms).unwrap_or(now_ms);
        let still_ms = now_ms.saturating_sub(before);
        if still_ms >= STILL_MS {
            for seen in self.seen.values_mut() {
                seen.heard_ms = (seen.heard_ms + still_ms).min(now_ms);
            }
            self.moves.stood_still(still_ms);
        }
    }

    fn report(&mut self, now_ms: u64, report: Report) {
        // One with a newer version than what is persistent is another controller's: what this one
        // has is old. It must not take that version for its own.
        if !self.state.switches.contains_key(&report.switch) || report.applied > self.state.version
        {
            return;
        }
        // A report that was overtaken says less. One of another life is a late one of an earlier
        // life, as long as this one reports: a switch takes longer to begin anew.
        let old = self.seen.get(&report.switch).is_some_and(|seen| {
            if seen.report.incarnation == report.incarnation {
                seen.report.applied > report.applied
            } else {
                now_ms.saturating_sub(seen.heard_ms) < self.settings.dead_ms
            }
        });
        if old {
            return;
        }
        let before = self.seen.remove(&report.switch);
        let before = before.filter(|it| it.report.incarnation == report.incarnation);
        let mut applied_at_ms = before.map(|it| it.applied_at_ms).unwrap_or_default();
        applied_at_ms.entry(report.applied).or_insert(now_ms);
        if applied_at_ms.len() > MOST_VERSIONS {
            // (What is known of an older version is then known a little later.)
            applied_at_ms.pop_first();
        }
        self.seen.insert(report.switch, Seen { report, heard_ms: now_ms, applied_at_ms });
    }

    fn facts(&self, now_ms: u64) -> BTreeMap<Ipv4Addr, Facts> {
        let dead_ms = self.settings.dead_ms;
        let facts = self.seen.iter().map(|(address, seen)| {
            let missed = seen.report.silent_ms.iter().filter(|(_, silent)| *silent >= dead_ms);
            let facts = Facts {
                incarnation: seen.report.incarnation,
                applied: seen.report.applied,
                applied_at_ms: seen.applied_at_ms.clone(),
                reports: now_ms.saturating_sub(seen.heard_ms) < dead_ms,
                quiet_ms: now_ms.saturating_sub(seen.heard_ms),
                silent: seen.report.silent_ms.iter().map(|(address, _)| *address).collect(),
                misses: missed.map(|(address, _)| *address).collect(),
                copied: seen.report.copied.iter().copied().collect(),
                used_percent: seen.report.used_percent,
            };
            (*address, facts)
        });
        facts.collect()
    }

    /// What is seen now, with nothing decided yet.
    fn look<'a>(&'a self, now_ms: u64, facts: &'a BTreeMap<Ipv4Addr, Facts>) -> Look<'a> {
        let mut state = self.state.clone();
        state.version += 1;
        Look {
            now_ms,
            began_ms: self.began_ms.unwrap_or(now_ms),
            settings: &self.settings,
            placement: &*self.placement,
            facts,
            state,
            events: vec![],
            changed: false,
            resumed: false,
        }
    }

    /// How many groups are to move to better switches, and in how many milliseconds the first one
    /// may begin; None: an operator must order it.
    pub fn to_move(&self, now_ms: u64) -> (usize, Option<u64>) {
        self.look(now_ms, &self.facts(now_ms)).outlook(&self.moves)
    }

    fn decide(&mut self, now_ms: u64, outputs: &mut Outputs) {
        let facts = self.facts(now_ms);
        let mut moves = std::mem::take(&mut self.moves);
        let mut collections = std::mem::take(&mut self.collections);
        let wishes = std::mem::take(&mut self.wishes);
        let mut look = self.look(now_ms, &facts);
        for wish in wishes {
            match wish {
                Input::Drain(switch, draining) => look.drain(switch, draining),
                Input::Refound(group) => look.refound(group),
                Input::Collect(wanted) => {
                    let all = 0..look.state.groups.len() as u16;
                    collections.want(all.filter(|it| wanted.is_none_or(|one| one == *it)));
                }
                Input::Rebalance => moves.order(),
                _ => {}
            }
        }
        look.all(&collections, &mut moves);
        let Look { changed, state, mut events, .. } = look;
        (self.moves, self.collections) = (moves, collections);
        if changed {
            outputs.events.append(&mut events);
            outputs.persist = Some(state.clone());
            self.deciding = Some(state);
        }
    }

    /// Sends to each switch that has not confirmed it what it has to do.
    fn send(&mut self, now_ms: u64, outputs: &mut Outputs) {
        let state = match &self.deciding {
            Some(deciding) if mutation::planted(Mutation::SentBeforePersisted) => deciding,
            _ => &self.state,
        };
        for (address, seen) in &self.seen {
            let Some(switch) = state.switches.get(address) else { continue };
            let confirmed = seen.report.applied >= state.version && !seen.report.asks;
            if confirmed || seen.report.incarnation != switch.incarnation {
                continue;
            }
            let again = self.sent.get(address).is_some_and(|(version, at_ms)| {
                *version == state.version && now_ms.saturating_sub(*at_ms) < self.settings.again_ms
            });
            if !again && let Some(config) = state.config_of(*address) {
                self.sent.insert(*address, (state.version, now_ms));
                outputs.configs.push((*address, config));
            }
        }
    }
}

impl Input {
    /// Is it an operator's?
    fn is_wish(&self) -> bool {
        use Input::{Collect, Drain, Rebalance, Refound};
        matches!(self, Drain(..) | Refound(_) | Collect(_) | Rebalance)
    }
}

impl Look<'_> {
    fn drain(&mut self, switch: Ipv4Addr, draining: bool) {
        if let Some(switch) = self.state.switches.get_mut(&switch)
            && switch.draining != draining
        {
            switch.draining = draining;
            self.changed = true;
        }
    }

    /// A lost group begins again, empty, with a session above all earlier ones.
    fn refound(&mut self, number: u16) {
        let version = self.state.version;
        let members = self.placement.candidates(number);
        let alive = |it: &Ipv4Addr| {
            self.state.is_serving(it) && self.facts.get(it).is_some_and(|facts| facts.reports)
        };
        let members: Vec<Ipv4Addr> =
            members.iter().copied().filter(alive).take(self.settings.failures + 1).collect();
        let Some(group) = self.state.groups.get_mut(usize::from(number)) else { return };
        if group.stage == Stage::Lost && !members.is_empty() {
            group.change(members, None, version);
            self.changed = true;
        }
    }
}

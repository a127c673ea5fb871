//! The machine around the rules of all groups.

use crate::exclusion;
use crate::group::{Group, MemberStatus, Stage};
use crate::mutation::{Mutation, planted};
use crate::state::{Decided, State};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use swish_protocol::control::{Message, group_of, name_hash};

/// A group, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// Switches that may be members; their numbers are their places.
    pub switches: Vec<Ipv4Addr>,
}

/// What is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// By name.
    pub groups: BTreeMap<String, GroupSettings>,
    /// A switch that has not reported for so long is dead.
    pub dead_ns: u64,
    /// So is one that was asked to seal, for a view without a dead member, and has not reported for
    /// so long: at the most `dead_ns`.
    pub asked_dead_ns: u64,
    /// One that holds its group up for so long is removed; 0: never.
    pub slow_ns: u64,
    /// A switch that is to join waits so long for others that are to join, too.
    pub join_ns: u64,
    /// A group all of whose members are silent for so long is lost: it begins anew.
    pub lost_ns: u64,
    /// Orders that were not followed yet go out again after this time.
    pub again_ns: u64,
    /// A member that cannot be sealed, or state that does not come, for so long: the attempt is
    /// made anew, without the member.
    pub seal_ns: u64,
    /// A controller that begins waits so long for switches that it has not heard yet.
    pub begin_ns: u64,
    /// SRO: a switch reads so long without word of the others.
    pub lease_ns: u64,
}

impl Settings {
    /// What reports call so: a configured group, or its variables of one consistency.
    fn group(&self, name: &str) -> Option<Group> {
        let found = self.groups.get(name).or_else(|| self.groups.get(group_of(name)))?;
        Some(Group::new(name.to_owned(), found.switches.clone()))
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A genuine message came.
    Message(SocketAddrV4, Message),
    /// Some time has passed.
    Timer,
    /// The decision that was given out as `persist` is persistent.
    Persisted,
    /// It is not, and is as if it had not been made.
    NotPersisted,
    /// Another controller has decided this, and it is persistent.
    Loaded(State),
    /// Whether this controller is the one that decides. It is from the beginning.
    Leading(bool),
}

/// What an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A member reports no more.
    Died(String, Ipv4Addr),
    /// A switch is no member any more, as an operator wanted; all its updates count.
    Left(String, Ipv4Addr),
    /// A member is excluded, as all others wait for it. Pairs of members: the first lacks messages
    /// of the second, by windows or by the chain.
    Slow(String, Ipv4Addr, Vec<(Ipv4Addr, Ipv4Addr)>),
    /// A new view, and how long its members stood still, in ms.
    Decided(String, Box<Decided>, u64),
    /// A group's last member died, and the values with it: the group begins anew.
    Lost(String),
    /// A switch's variables have another layout than the members'.
    Layout(String, Ipv4Addr),
    /// A switch is in this view, and the newest one that is known is the other one: nothing is
    /// decided for the group.
    Behind(String, Ipv4Addr, u32, u32),
    /// A switch is in this view, which is not known, and the group goes on in the other one. The
    /// switch's values are not the group's, and the switch is left alone.
    Unknown(String, Ipv4Addr, u32, u32),
    /// A decision was not taken: it is made anew.
    NotTaken(String, u32),
}

/// What the controller wants done.
#[derive(Debug, Default)]
pub struct Outputs {
    /// To be sent.
    pub messages: Vec<(SocketAddrV4, Message)>,
    /// To be made persistent, then answered by `Persisted` or `NotPersisted`.
    pub persist: Option<State>,
    /// To be logged.
    pub events: Vec<Event>,
}

/// The time passes in steps of some milliseconds. In a longer one the controller stood still.
const STILL_NS: u64 = 30_000_000;

/// A controller.
pub struct Controller {
    settings: Settings,
    state: State,
    /// The state that is being made persistent, and whose group it changes.
    deciding: Option<(State, String)>,
    /// By what reports call them: a group's variables of each consistency are one.
    groups: BTreeMap<String, Group>,
    leading: bool,
    /// Of the newest input.
    now_ns: Option<u64>,
}

impl Controller {
    /// Goes on from a persistent state.
    pub fn new(settings: Settings, state: State) -> Controller {
        let known = settings.groups.keys().chain(state.groups.keys());
        let group = |name: &String| Some((name.clone(), settings.group(name)?));
        let groups = known.filter_map(group).collect();
        Controller { settings, state, deciding: None, groups, leading: true, now_ns: None }
    }

    /// What is decided and persistent.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Its configuration.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether it decides.
    pub fn is_leading(&self) -> bool {
        self.leading
    }

    /// Names of all groups; of those with several consistencies, of each of these, once a switch
    /// has reported it.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.groups.keys()
    }

    /// What a group's switches report, and what is being done about it.
    pub fn group(&self, name: &str, now_ns: u64) -> Option<(Stage, Vec<MemberStatus>)> {
        let group = self.groups.get(name)?;
        let state = self.state.groups.get(name).cloned().unwrap_or_default();
        Some((group.stage(), group.members(&self.settings, &state, now_ns)))
    }

    /// Where a switch reports from.
    pub fn address_of(&self, group: &str, switch: Ipv4Addr) -> Option<SocketAddrV4> {
        self.groups.get(group)?.address_of(switch)
    }

    /// Takes an input at `now_ns`, on a clock that never goes back.
    pub fn handle(&mut self, now_ns: u64, input: Input) -> Outputs {
        let mut out = Outputs::default();
        // (A controller that got no CPU has heard no switch meanwhile: reports wait for it.)
        let before_ns = self.now_ns.replace(now_ns).unwrap_or(now_ns);
        let still_ns = now_ns.saturating_sub(before_ns);
        if still_ns >= STILL_NS {
            self.groups.values_mut().for_each(|group| group.stood_still(now_ns, still_ns));
        }
        match input {
            Input::Message(from, message) => self.message(now_ns, from, message, &mut out),
            Input::Persisted => {
                if let Some((state, name)) = self.deciding.take() {
                    self.state = state;
                    if let Some(group) = self.groups.get_mut(&name)
                        && let Some(decided) =
                            self.state.groups.get(&name).and_then(|it| it.newest())
                    {
                        group.persisted(now_ns, decided, &mut out);
                    }
                }
            }
            Input::NotPersisted => {
                if let Some((_, name)) = self.deciding.take()
                    && let Some(group) = self.groups.get_mut(&name)
                {
                    group.not_persisted();
                }
                // (The next input decides again.)
                return out;
            }
            Input::Loaded(state) => {
                if state.version > self.state.version && self.deciding.is_none() {
                    self.state = state;
                }
            }
            Input::Leading(leading) => {
                if leading != self.leading {
                    self.groups.values_mut().for_each(|group| group.begin(now_ns));
                }
                self.leading = leading;
            }
            Input::Timer => {}
        }
        if self.leading {
            self.step(now_ns, &mut out);
        }
        out
    }

    fn message(&mut self, now_ns: u64, from: SocketAddrV4, message: Message, out: &mut Outputs) {
        let name = match &message {
            Message::Report(report) => {
                let name = &report.group;
                if !self.groups.contains_key(name)
                    && let Some(group) = self.settings.group(name)
                {
                    self.groups.insert(name.clone(), group);
                }
                Some(name.clone())
            }
            Message::Ask(which, ..) | Message::Part(which, _) => {
                self.groups.keys().find(|name| name_hash(name) == which.group).cloned()
            }
            Message::Order(_) => None,
        };
        let Some((name, group)) =
            name.and_then(|name| Some((name.clone(), self.groups.get_mut(&name)?)))
        else {
            return;
        };
        match message {
            Message::Report(report) => {
                group.report(now_ns, self.settings.dead_ns, from, report, out);
            }
            Message::Part(which, part) => group.part(from, which, part),
            Message::Ask(which, offset, _) if self.leading => {
                let newest = self.state.groups.get(&name).and_then(|it| it.newest());
                out.messages.extend(group.ask(from, which, offset, newest));
            }
            _ => {}
        }
    }

    /// Whether members hold their group up: all consistencies of a group are judged together.
    fn judge(&mut self, now_ns: u64, out: &mut Outputs) {
        let mut parts: Vec<(&String, &mut Group)> = self.groups.iter_mut().collect();
        parts.sort_by_key(|(name, _)| group_of(name));
        let together = |one: &(&String, &mut Group), other: &(&String, &mut Group)| {
            group_of(one.0) == group_of(other.0)
        };
        for parts in parts.chunk_by_mut(together) {
            exclusion::judge(now_ns, &self.settings, &self.state, parts, out);
        }
    }

    fn step(&mut self, now_ns: u64, out: &mut Outputs) {
        self.judge(now_ns, out);
        let empty = crate::GroupState::default();
        for (name, group) in &mut self.groups {
            let known = self.state.groups.get(name).unwrap_or(&empty);
            let decided = group.step(now_ns, &self.settings, known, out);
            // (One after the other: a decision is the whole state.)
            if let Some((decided, oldest)) = decided.filter(|_| self.deciding.is_none()) {
                group.deciding();
                let mut state = self.state.clone();
                state.version += 1;
                let of = state.groups.entry(name.clone()).or_default();
                of.add(decided.clone(), oldest);
                if planted(Mutation::ToldBeforePersisted) {
                    group.persisted(now_ns, &decided, out);
                }
                out.persist = Some(state.clone());
                self.deciding = Some((state, name.clone()));
            }
        }
    }
}

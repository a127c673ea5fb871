//! The control plane of a run: agents, the controller, what they tell each other.

use super::{
    self as failures, Agent, CONTROLLER, TICK_NS, WRITE_NS, World, address, harness, shown, socket,
};
use crate::model::{Checked, violated};
use crate::switch::{CPUS, member};
use simnet::Treatment;
use std::net::Ipv4Addr;
use swish_controller::{Controller, Event, GroupSettings, Input, Outputs, Settings, State};
use swish_protocol::control::Message;
use swish_switch::group::Caps;
use swish_switch::membership::{self, Member, Pace};

impl World<'_> {
    pub(super) fn begin_agent(&mut self, place: usize) -> Checked {
        let settings = membership::Settings {
            own: address(place),
            incarnation: self.incarnations[place],
            period_ns: self.scenario.period_ns,
            caps: Caps::default(),
            bound: 1 << 32,
            cpus: CPUS,
            pace: Pace { report_ns: 1_000_000, seal_ns: self.scenario.seal_ns },
        };
        let switch = &self.switches[place];
        let member = |group| -> Checked<Member> {
            let group = switch.group(group).clone();
            let mut member = harness(Member::new(switch.dataplane(), group, settings.clone()))?;
            let Some(ring) = crate::switch::ring() else { return violated("harness", "no secret") };
            harness(member.secrets(switch.dataplane(), &ring))?;
            Ok(member)
        };
        let members = (0..switch.groups()).map(member).collect::<Checked<_>>()?;
        for group in 0..self.names.len() {
            // (What an earlier agent held is lost with it.)
            if self.seen[place][group].0 == 0 {
                self.truth[group].ends(place);
            }
        }
        *self.lives.entry(place).or_default() += 1;
        self.agents[place] = Some(Agent { members, next_ns: 0 });
        Ok(())
    }

    pub(super) fn begin_controller(&mut self) {
        // (Members' numbers are places in the list: most of it is switches that are never heard.)
        let all = 0..=member(self.scenario.switches - 1) as u8;
        let switches: Vec<Ipv4Addr> = all.map(|last| Ipv4Addr::new(10, 0, 0, last)).collect();
        let group = |name: &String| (name.clone(), GroupSettings { switches: switches.clone() });
        let settings = Settings {
            groups: self.names.iter().map(group).collect(),
            dead_ns: 5_000_000,
            asked_dead_ns: 2_500_000,
            slow_ns: 40_000_000,
            join_ns: 2_000_000,
            lost_ns: 30_000_000,
            again_ns: 1_000_000,
            seal_ns: 20_000_000,
            begin_ns: 10_000_000,
            lease_ns: 10_000_000,
        };
        *self.lives.entry(CONTROLLER).or_default() += 1;
        self.controller = Some(Controller::new(settings, self.state.clone()));
    }

    /// A decision is persistent.
    pub(super) fn written(&mut self, state: State) {
        for (group, name) in self.names.clone().iter().enumerate() {
            let newest = |state: &State| state.groups.get(name).and_then(|it| it.newest()).cloned();
            let (before, now) = (newest(&self.state), newest(&state));
            if let Some(decided) = now.filter(|now| Some(now) != before.as_ref()) {
                self.note(|| format!("decided for group {group}: {}", shown(&decided)));
                let what = match decided.turn {
                    _ if decided.joins.len() == decided.members.len() => "founds",
                    swish_protocol::control::Turn::Go if decided.lacks.is_empty() => "goes",
                    swish_protocol::control::Turn::Go => "copies",
                    _ if decided.extra.is_empty() => "redoes",
                    _ => "sums",
                };
                *self.outcome.decisions.entry(what).or_default() += 1;
                self.truth[group].decided(decided);
            }
        }
        self.state = state;
    }

    /// What the controller does with an input.
    pub(super) fn control(&mut self, input: Input) -> Checked {
        let Some(controller) = &mut self.controller else { return Ok(()) };
        let Outputs { messages, persist, events } = controller.handle(self.now_ns, input);
        for event in events {
            if let Event::Left(name, switch) = &event {
                let place = (0..self.scenario.switches).find(|place| address(*place) == *switch);
                let group = self.names.iter().position(|it| it == name);
                if let (Some(place), Some(group)) = (place, group) {
                    self.left[place][group] = true;
                }
            }
            self.note(|| format!("controller: {event:?}").chars().take(160).collect());
        }
        for (to, message) in messages {
            let place = (0..self.scenario.switches).find(|place| socket(*place) == to);
            place.into_iter().for_each(|place| self.tell(CONTROLLER, place, message.clone()));
        }
        if let Some(state) = persist {
            let life = self.lives.get(&CONTROLLER).copied().unwrap_or(0);
            self.events.push(self.now_ns + WRITE_NS, failures::Event::Written(life, state));
        }
        Ok(())
    }

    pub(super) fn tell(&mut self, from: usize, to: usize, message: Message) {
        let switch = from.min(to);
        if self.now_ns < self.deaf_until[switch] {
            return;
        }
        let life = self.lives.get(&to).copied().unwrap_or(0);
        for at_ns in self.network.send(self.now_ns, from, to, Treatment::default()) {
            self.events.push(at_ns, failures::Event::Told(from, to, life, message.clone()));
        }
    }

    pub(super) fn told(&mut self, from: usize, to: usize, life: u32, message: Message) -> Checked {
        if self.lives.get(&to) != Some(&life) {
            return Ok(());
        }
        if to == CONTROLLER {
            return self.control(Input::Message(socket(from), message));
        }
        // (What is said of one group is for its member.)
        let Some(mut agent) = self.agents[to].take() else { return Ok(()) };
        if self.log.is_some() && !matches!(message, Message::Part(..)) {
            self.note(|| format!("{to} is told {message:?}").chars().take(200).collect());
        }
        let now_ns = self.switches[to].clock(self.now_ns);
        let mut out = vec![];
        for (name, member) in self.names.iter().zip(&mut agent.members) {
            let own = match &message {
                Message::Order(order) => order.group == *name,
                Message::Ask(which, ..) | Message::Part(which, _) => {
                    which.group == swish_protocol::control::name_hash(name)
                }
                Message::Report(_) => false,
            };
            if own {
                let switch = &self.switches[to];
                let said =
                    member.message(switch.dataplane(), now_ns, socket(from), message.clone());
                out = harness(said)?;
            }
        }
        self.agents[to] = Some(agent);
        out.into_iter().for_each(|(_, message)| self.tell(to, CONTROLLER, message));
        self.watch(to)
    }

    pub(super) fn agent(&mut self, place: usize) -> Checked {
        self.events.push(self.now_ns + TICK_NS, failures::Event::Agent(place));
        let now_ns = self.switches[place].clock(self.now_ns);
        let Some(mut agent) = self.agents[place].take() else { return Ok(()) };
        let mut out = vec![];
        if agent.next_ns <= now_ns {
            for member in &mut agent.members {
                out.extend(harness(member.tick(self.switches[place].dataplane(), now_ns))?);
            }
        }
        agent.next_ns = agent.members.iter().map(|it| it.next_ns(now_ns)).min().unwrap_or(0);
        self.agents[place] = Some(agent);
        out.into_iter().for_each(|(_, message)| self.tell(place, CONTROLLER, message));
        self.watch(place)
    }
}

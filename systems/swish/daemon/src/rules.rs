//! The rules of all groups, as the platform's shell runs them.

use crate::config::Config;
use controller::shell::{Decision, Input, Kept, Outputs, Rules};
use std::net::SocketAddrV4;
use swish_controller::{self as core, Controller, Event, State};
use swish_protocol::control::{Message, is_report};
use wire::{Kind, ToolType};

/// How often everything is looked at, beside at each message.
const LOOK_NS: u64 = 2_000_000;

/// What is persistent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Decided(pub State);

impl Decision for Decided {
    const NAME: &'static str = "shared";
    const LOST: &'static str = "Stop all controllers and give them the newest backup of the \
                                database. Without one, run `stateplane switch detach NAME` for \
                                all switches of the group, and only then start them, empty";

    fn version(&self) -> u64 {
        self.0.version
    }

    fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).unwrap_or_default()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Decided> {
        serde_json::from_slice(bytes).ok().map(Decided)
    }
}

/// See the module.
pub(crate) struct Switches {
    name: String,
    core: Controller,
    look_at_ns: u64,
    pub decisions: u64,
    pub deaths: u64,
    pub slow: u64,
    pub losses: u64,
    pub malformed: u64,
}

impl Switches {
    pub fn new(config: Config, kept: Decided, leading: bool, now_ns: u64) -> Switches {
        let mut core = Controller::new(config.settings, kept.0);
        core.handle(now_ns, core::Input::Leading(leading));
        Switches {
            name: config.shell.name,
            core,
            look_at_ns: now_ns,
            decisions: 0,
            deaths: 0,
            slow: 0,
            losses: 0,
            malformed: 0,
        }
    }

    pub fn core(&self) -> &Controller {
        &self.core
    }

    fn datagram(&mut self, from: SocketAddrV4, bytes: &[u8]) -> Option<core::Input> {
        match Message::decode(bytes) {
            Ok(message) => Some(core::Input::Message(from, message)),
            Err(_) => {
                self.malformed += 1;
                None
            }
        }
    }

    fn log(&mut self, event: Event) {
        let (name, text) = (&self.name, text(&event));
        match event {
            Event::Died(group, switch) => {
                self.deaths += 1;
                tracing::warn!(name, group, %switch, "{text}");
            }
            Event::Left(group, switch) => tracing::info!(name, group, %switch, "{text}"),
            Event::Slow(group, switch, pairs) => {
                self.slow += 1;
                tracing::warn!(name, group, %switch, ?pairs, "{text}");
            }
            Event::Decided(group, decided, ms) => {
                self.decisions += 1;
                let members: Vec<String> =
                    decided.members.iter().map(|it| it.address.to_string()).collect();
                let members = members.join(" ");
                let (view, turn, window) = (decided.number, decided.turn, decided.window);
                tracing::info!(name, group, view, ?turn, window, members, ms, "{text}");
            }
            Event::Lost(group) => {
                self.losses += 1;
                tracing::error!(name, group, "{text}");
            }
            Event::Layout(group, switch) => tracing::error!(name, group, %switch, "{text}"),
            Event::Behind(group, switch, view, newest)
            | Event::Unknown(group, switch, view, newest) => {
                tracing::error!(name, group, %switch, view, newest, "{text}");
            }
            Event::NotTaken(group, view) => tracing::warn!(name, group, view, "{text}"),
        }
    }
}

/// An event as the log tells it, beside its group, switch and numbers.
fn text(event: &Event) -> String {
    let text = match event {
        Event::Died(..) => "dead: the switch reports no more",
        Event::Left(..) => "left, as an operator wanted",
        Event::Slow(..) => {
            "excluded for ten times slow_ms: messages between it and others do not come (`pairs`: \
             the first lacks messages of the second). Mend these links, or look why the switch is \
             slow; it joins by itself"
        }
        Event::Decided(..) => "decided",
        Event::Lost(..) => {
            "all members are lost, and the group's values with them: the group begins anew"
        }
        Event::Layout(..) => {
            "the switch's variables have another layout than the members': give all switches the \
             same program"
        }
        Event::Behind(..) => {
            return format!(
                "the switch is in a newer view than the database has: nothing is decided, and \
                 members go on as they are. {}",
                Decided::LOST
            );
        }
        Event::Unknown(..) => {
            "the switch is in a view that the database does not have, so its values are another \
             database's: the group goes on without the switch. Run `stateplane switch detach \
             NAME` there, and start it, empty"
        }
        Event::NotTaken(..) => "a member has not taken the decision: a new one is made",
    };
    text.to_owned()
}

impl Rules for Switches {
    type Decision = Decided;

    fn handle(&mut self, now_ns: u64, input: Input<'_, Decided>, out: &mut Outputs<Decided>) {
        let input = match input {
            Input::Datagram { from, bytes } => match self.datagram(from, bytes) {
                Some(input) => input,
                None => return,
            },
            Input::Timer => {
                self.look_at_ns = now_ns + LOOK_NS;
                core::Input::Timer
            }
            Input::Persisted => core::Input::Persisted,
            Input::Refused(found) => {
                self.core.handle(now_ns, core::Input::NotPersisted);
                core::Input::Loaded(found.unwrap_or_default().0)
            }
            Input::Loaded(kept) => core::Input::Loaded(kept.0),
            Input::Leading(leading) => core::Input::Leading(leading),
        };
        let wanted = self.core.handle(now_ns, input);
        wanted.events.into_iter().for_each(|event| self.log(event));
        let messages = wanted.messages.into_iter();
        out.datagrams.extend(messages.map(|(to, message)| (to, message.encode())));
        out.persist = wanted.persist.map(Decided);
    }

    fn next_deadline(&self) -> u64 {
        self.look_at_ns
    }

    fn version(&self) -> u64 {
        self.core.state().version
    }

    fn is_leading(&self) -> bool {
        self.core.is_leading()
    }

    fn status(&self, now_ns: u64, kept: &Kept) -> Vec<u8> {
        crate::status::status(self, kept, now_ns).into_json()
    }

    fn metrics(&self, now_ns: u64, kept: &Kept, bad_tag: u64) -> String {
        crate::metrics::render(self, kept, now_ns, bad_tag)
    }

    fn waits(kind: Kind) -> bool {
        is_report(kind) || matches!(kind, Kind::Tool(ToolType::StatusRequest))
    }
}

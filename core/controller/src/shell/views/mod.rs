//! The rules for chains of servers (`crate::core`), as the shell runs them.

mod rebuild;
mod render;
mod status;
mod watch;

pub use rebuild::{RebuildError, rebuild};
pub use status::{PeerStatus, ShardStatus, Status};

use super::rules::{Decision, Input, Outputs, Rules};
use super::{Kept, RunError};
use crate::config::Config;
use crate::core::{self, Controller, Event, Why};
use watch::Watch;
use wire::{Refusal, Views};

impl Decision for Views {
    const NAME: &'static str = "views";
    const LOST: &'static str = "Stop all controllers and run `stateplane controller rebuild`";

    fn version(&self) -> u64 {
        self.version
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.to_json()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Views> {
        Views::from_json(bytes).ok()
    }
}

/// Runs a controller of chains of servers: see [`super::serve`].
///
/// # Errors
/// As [`super::serve`].
pub fn run(config: &Config) -> Result<(), RunError> {
    super::serve(&config.shell, |views, leading, now_ns| Servers {
        name: config.shell.name.clone(),
        core: Controller::new(config.settings.clone(), views, leading, now_ns),
        watch: Watch::default(),
        undecided: vec![],
    })
}

struct Servers {
    name: String,
    core: Controller,
    watch: Watch,
    /// What the decision that is being written is about: told when it is written.
    undecided: Vec<Event>,
}

impl Servers {
    fn decided(&mut self) {
        for event in std::mem::take(&mut self.undecided) {
            self.watch.decided(&event);
            log_event(&event, &self.name);
        }
    }
}

impl Rules for Servers {
    type Decision = Views;

    fn handle(&mut self, now_ns: u64, input: Input<'_, Views>, out: &mut Outputs<Views>) {
        let input = match input {
            Input::Datagram { from, bytes } => core::Input::Datagram { from, bytes },
            Input::Timer => core::Input::Timer,
            Input::Persisted => {
                self.decided();
                core::Input::Persisted
            }
            Input::Refused(found) => {
                self.undecided.clear();
                core::Input::Refused(found)
            }
            Input::Loaded(views) => core::Input::Loaded(views),
            Input::Leading(leading) => core::Input::Leading(leading),
        };
        let mut wanted = core::Outputs::default();
        self.core.handle(now_ns, input, &mut wanted);
        for event in wanted.events {
            match event {
                Event::Decided { .. } => self.undecided.push(event),
                event => log_event(&event, &self.name),
            }
        }
        out.datagrams = wanted.datagrams;
        out.persist = wanted.persist;
    }

    fn next_deadline(&self) -> u64 {
        self.core.next_deadline()
    }

    fn version(&self) -> u64 {
        self.core.views().version
    }

    fn is_leading(&self) -> bool {
        self.core.is_leading()
    }

    fn fault(&self) -> Option<String> {
        let (cluster, configured) = (self.core.views().shards.len(), self.core.settings().shards);
        self.core.is_of_other_shards().then(|| {
            format!(
                "the cluster has {cluster} shards, as its database says: write `shards = \
                 {cluster}` instead of {configured}"
            )
        })
    }

    fn look(&mut self, now_ns: u64, kept: &Kept) {
        self.watch.look(now_ns, &self.name, &self.core, kept);
    }

    fn status(&self, now_ns: u64, kept: &Kept) -> Vec<u8> {
        status::status(&self.core, &self.watch, kept, now_ns).into_json()
    }

    fn metrics(&self, now_ns: u64, kept: &Kept, bad_tag: u64) -> String {
        render::render(&self.core, &self.watch, kept, now_ns, bad_tag)
    }
}

fn log_event(event: &Event, name: &str) {
    match event {
        Event::Decided { shard, view, why } => {
            let chain: Vec<_> =
                view.members.iter().map(|member| member.address.to_string()).collect();
            let joining =
                view.joining.map(|joining| joining.member.address.to_string()).unwrap_or_default();
            let (chain, view) = (chain.join(" "), view.number);
            if *why == Why::StateLost {
                tracing::error!(
                    name,
                    shard,
                    view,
                    ?why,
                    chain,
                    joining,
                    "decided: all servers of the shard's chain died, and their state is LOST: \
                     the shard begins anew, empty"
                );
            } else {
                tracing::info!(name, shard, view, ?why, chain, joining, "decided");
            }
        }
        Event::Appeared(address, reporter) => tracing::info!(name, %address, ?reporter, "reports"),
        Event::Deaf(address) => {
            tracing::warn!(name, %address, "it reports, but receives no message from any machine: it counts as dead; look for a link that is broken one way");
        }
        Event::Silent(address, reporter) => {
            tracing::warn!(name, %address, ?reporter, "reports are missing")
        }
        Event::ShardsMismatch(address, shards) => {
            tracing::error!(name, %address, "configured for another number of shards; write shards = {shards} there");
        }
        Event::Refused(address, Refusal { switch_id, address: other, name: called }) => {
            tracing::error!(
                name,
                %address,
                "switch_id = {switch_id} is that of switch {called:?} at {other}: refused; write another switch_id there"
            );
        }
        // Told by `Watch`, if it lasts.
        Event::Behind(..) => {}
    }
}

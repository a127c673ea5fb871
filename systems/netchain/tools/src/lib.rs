//! NetChain in the tools: what `systems/registry` hands to them.
//!
//! It owns: the command `kv`; its messages in a trace; keys in packet tests; what fuzzers feed
//! bytes to, and its state in generated programs. It must not know: the rules of clients and
//! switches.

#![forbid(unsafe_code)]

mod bench;
mod cluster;
mod doors;
mod founding;
mod generated;
mod inspect;
mod keys;
mod kv;
mod listing;
mod lock;
mod messages;
mod packet_test;
mod sim;
mod text;
mod verify;

use clap::{CommandFactory, FromArgMatches};
use command_line::{Plug, SwitchView};
use netchain_switch::{CLIENT_KEYS, CONTROLLED, ClientDrops, ControlledLoad, KeysLoad};
use serde::Deserialize;
use serde_json::{Map, Value};

/// What the registry lists.
pub struct NetChain;

impl command_line::System for NetChain {
    fn commands(&self) -> Vec<Plug> {
        let run = |arguments: &clap::ArgMatches| match kv::Args::from_arg_matches(arguments) {
            Ok(arguments) => kv::run(arguments),
            Err(error) => error.exit(),
        };
        vec![Plug { under: None, command: kv::Args::command(), run }]
    }

    fn switch(&self, told: &Map<String, Value>) -> Result<SwitchView, serde_json::Error> {
        let controlled = told.get(CONTROLLED).map(ControlledLoad::deserialize).transpose()?;
        let told = told.get(CLIENT_KEYS);
        let load = told.map(KeysLoad::deserialize).transpose()?;
        let mut notes = vec![];
        if let Some(fault) = load.as_ref().and_then(|load| load.fault.as_ref()) {
            notes.push(format!("client keys: {fault}; the keys read before stay in use"));
        }
        if load.as_ref().is_some_and(|load| load.open_to_all) {
            notes.push("everybody may read and write (open_to_all in switch.toml)".into());
        }
        notes.extend(controlled.iter().flat_map(notes_of_controllers));
        let clients = load.iter().flat_map(|load| &load.dropped);
        let more = clients.map(|ClientDrops { key, name, forged, denied, over_rate }| {
            format!("key {key} {name}: {forged} forged, {denied} denied, {over_rate} over its rate")
        });
        let fields = [(CLIENT_KEYS.to_owned(), told.cloned().unwrap_or_default())];
        let more = more.collect();
        Ok(SwitchView {
            notes,
            more,
            fields: fields.into_iter().collect(),
            ..SwitchView::default()
        })
    }
}

/// What is not well between a switch and its controllers.
fn notes_of_controllers(load: &ControlledLoad) -> Vec<String> {
    let mut notes: Vec<String> = load.fault.iter().cloned().collect();
    if load.controllers == 0 {
        notes.push(format!(
            "none of its {} controllers answers: it goes on with decision {}",
            load.configured, load.version
        ));
    }
    let dead: Vec<String> = load.stands_in.iter().map(ToString::to_string).collect();
    if !dead.is_empty() {
        notes.push(format!("answers for dead switches: {}", dead.join(", ")));
    }
    notes
}

/// It has no campaign of its own.
impl fuzz_door::Campaigns for NetChain {
    fn state(&self) -> &'static [&'static dyn fuzz_door::StateKind] {
        &[&generated::Slots]
    }
}

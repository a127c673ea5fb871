//! SwiSh in the tools: what `systems/registry` hands to them.
//!
//! It owns: the command `shared`; what `check` tells of memory and messages of shared variables;
//! windows of shared variables in packet tests; its messages in a trace. It must not know: when a
//! window turns.

#![forbid(unsafe_code)]

mod messages;
mod packet_test;
mod shared;
mod sizes;

use clap::{CommandFactory, FromArgMatches};
use command_line::{Plug, Sizes, SwitchView};
use manifest::Manifest;
use serde::Deserialize;
use serde_json::{Map, Value};
use shared::groups::Groups;
pub use sizes::variables;

/// What the registry lists.
pub struct SwiSh;

impl command_line::System for SwiSh {
    fn commands(&self) -> Vec<Plug> {
        let run = |arguments: &clap::ArgMatches| match shared::Command::from_arg_matches(arguments)
        {
            Ok(command) => shared::run(&command),
            Err(error) => error.exit(),
        };
        vec![Plug { under: None, command: shared::Command::command(), run }]
    }

    fn switch(&self, told: &Map<String, Value>) -> Result<SwitchView, serde_json::Error> {
        let groups = Groups::deserialize(Value::Object(told.clone()))?;
        Ok(SwitchView { notes: groups.notes(), ..SwitchView::default() })
    }

    fn sizes(&self, manifest: &Manifest) -> Result<Option<Sizes>, serde_json::Error> {
        sizes::of(manifest)
    }
}

/// It has none of its own yet.
impl fuzz_door::Campaigns for SwiSh {}

//! The command line: RedPlane's commands, and what `status` and `state` show of it.

mod flows;
mod sim;
mod state;
mod status;
mod store;

use crate::RedPlane;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use command_line::state::Source;
use command_line::{Plug, StoreView, SwitchView, System};
use serde_json::{Map, Value};

/// The arguments of a command, which clap has checked by the command itself.
fn parsed<A: FromArgMatches>(arguments: &ArgMatches) -> A {
    A::from_arg_matches(arguments).unwrap_or_else(|error| error.exit())
}

impl System for RedPlane {
    fn commands(&self) -> Vec<Plug> {
        vec![
            Plug {
                under: None,
                command: store::Args::command(),
                run: |arguments| store::run(parsed(arguments)),
            },
            Plug {
                under: None,
                command: sim::Args::command(),
                run: |arguments| sim::run(parsed(arguments)),
            },
            Plug {
                under: Some("switch"),
                command: flows::Args::command(),
                run: |arguments| flows::run(parsed(arguments)),
            },
        ]
    }

    fn switch(&self, told: &Map<String, Value>) -> Result<SwitchView, serde_json::Error> {
        status::switch(told)
    }

    fn store(&self, answer: &Value) -> Option<StoreView> {
        status::store(answer)
    }

    fn state(&self) -> Option<&'static dyn Source> {
        Some(&state::Stores)
    }
}

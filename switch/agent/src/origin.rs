//! Where a table's entries and default actions come from, and with that how long they stay
//! (docs/deploy.md, "Entries added at run time").

use crate::error::Result;
use crate::run_dir::State;
use dataplane::{ActionCall, ActionSpec, Dataplane, Entry, TableRef};
use serde::{Deserialize, Serialize};

/// Where an entry or a default action comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The program brings it.
    Program,
    /// The configuration has it: each start of the agent writes it again.
    Configuration,
    /// Somebody added or set it (`stateplane table`): it stays over restarts of the agent and new
    /// programs, and is gone with `detach`, `--fresh` and a reboot.
    RunTime,
}

impl Origin {
    /// As `stateplane table list` shows it.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Program => "program",
            Origin::Configuration => "configuration",
            Origin::RunTime => "run time",
        }
    }
}

/// What the program and the configuration bring to a table.
pub(crate) struct Origins<'a> {
    table: TableRef<'a>,
    program: Vec<Entry>,
    configured: Vec<Entry>,
    program_default: ActionCall,
    configured_default: Option<ActionCall>,
}

impl<'a> Origins<'a> {
    /// Of the table of this full name. What the configuration has that does not fit is left out.
    pub fn of(dataplane: &'a Dataplane, name: &str, state: &State) -> Result<Origins<'a>> {
        let table = dataplane.table(name)?;
        // A configuration may name a table by its last part.
        let is_it =
            |given: &str| dataplane.table(given).is_ok_and(|it| it.description().name == name);
        let entries = state.entries.iter().filter(|(given, _)| is_it(given));
        let configured = entries.filter_map(|(_, spec)| table.resolve(spec).ok()).collect();
        let mut defaults = state.defaults.iter().filter(|(given, _)| is_it(given));
        let configured_default =
            defaults.next().and_then(|(_, spec)| table.resolve_action(spec).ok());
        Ok(Origins {
            program: table.initial_entries()?,
            configured,
            program_default: table.initial_default()?,
            configured_default,
            table,
        })
    }

    /// Of an entry of the table that can be changed. One with another action than the configuration
    /// has was changed at run time; the next start changes it back.
    pub fn entry(&self, entry: &Entry) -> Origin {
        let is_in = |known: &[Entry]| known.iter().any(|it| self.table.same_entry(it, entry));
        if is_in(&self.configured) {
            Origin::Configuration
        } else if is_in(&self.program) {
            Origin::Program
        } else {
            Origin::RunTime
        }
    }

    /// Of the default action.
    pub fn default_action(&self, call: &ActionCall) -> Origin {
        if self.configured_default.as_ref() == Some(call) {
            Origin::Configuration
        } else if self.program_default == *call {
            Origin::Program
        } else {
            Origin::RunTime
        }
    }

    /// The default action, if it was set at run time.
    pub fn default_of_run_time(&self) -> Result<Option<ActionSpec>> {
        let (call, _) = self.table.default_action()?;
        if self.default_action(&call) != Origin::RunTime {
            return Ok(None);
        }
        let (name, arguments) = self.table.describe_action(&call);
        let arguments = arguments.into_iter().map(|(name, text)| (Some(name), text)).collect();
        Ok(Some(ActionSpec { name, arguments }))
    }
}

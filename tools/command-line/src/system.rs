//! Where a system plugs in: commands of its own, and what `status`, `state` and `check` show of it.

use crate::state::Source;
use clap::{ArgMatches, Command};
use manifest::Manifest;
use serde_json::{Map, Value};

/// A system, as the command line knows it. Parts that it has no use for stay as they are here.
pub trait System: Sync {
    /// Commands of its own.
    fn commands(&self) -> Vec<Plug> {
        vec![]
    }

    /// What `status` shows of a switch. `told`: what the switch's agent tells of all systems.
    ///
    /// # Errors
    /// The agent is of another version.
    fn switch(&self, _told: &Map<String, Value>) -> Result<SwitchView, serde_json::Error> {
        Ok(SwitchView::default())
    }

    /// What `status` shows of a store that answers with this status. `None`: the store is not this
    /// system's.
    fn store(&self, _status: &Value) -> Option<StoreView> {
        None
    }

    /// Where `state` finds what is in this system's objects. `None`: nowhere.
    fn state(&self) -> Option<&'static dyn Source> {
        None
    }

    /// What a program's objects of this system take, before it is loaded. `None`: nothing to tell.
    ///
    /// # Errors
    /// The manifest is of another version.
    fn sizes(&self, _manifest: &Manifest) -> Result<Option<Sizes>, serde_json::Error> {
        Ok(None)
    }
}

/// What state objects take in a switch's memory and on its links.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Names of columns.
    pub head: &'static [&'static str],
    /// A row for each object.
    pub rows: Vec<Vec<String>>,
    /// Below the table.
    pub notes: Vec<String>,
    /// The same for programs, and the field that has it.
    pub field: (&'static str, Value),
}

impl Sizes {
    /// Of all systems that have something to tell.
    ///
    /// # Errors
    /// The manifest is of another version.
    pub fn of_all(
        systems: &[&dyn System],
        manifest: &Manifest,
    ) -> Result<Vec<Sizes>, serde_json::Error> {
        systems.iter().filter_map(|it| it.sizes(manifest).transpose()).collect()
    }

    /// Prints table and notes.
    pub fn print(self) {
        crate::print_table(self.head, self.rows);
        for note in self.notes {
            crate::say(format_args!("{note}\n"));
        }
    }
}

/// A command that a system adds.
pub struct Plug {
    /// The command that it is a word of, such as `switch`; `None`: it stands alone.
    pub under: Option<&'static str>,
    /// Its name, arguments and help.
    pub command: Command,
    /// Runs it; the exit code.
    pub run: fn(&ArgMatches) -> u8,
}

/// What `status` shows of a system's state on a switch.
#[derive(Clone, Debug, Default)]
pub struct SwitchView {
    /// Shards with which the switch has a live session, and all. 0 of 0: it needs none.
    pub sessions: (usize, usize),
    /// Changes that are not acknowledged.
    pub pending: u64,
    /// In a word or two, why the switch is not well.
    pub fault: Option<&'static str>,
    /// Below the table: what is wrong, and what to do. The switch's name stands before each.
    pub notes: Vec<String>,
    /// Behind what is said of the state objects.
    pub more: Vec<String>,
    /// What JSON shows: the same names for each program.
    pub fields: Map<String, Value>,
}

impl SwitchView {
    /// What all systems show of a switch.
    ///
    /// # Errors
    /// The agent is of another version.
    pub fn of_all(
        systems: &[&dyn System],
        told: &Map<String, Value>,
    ) -> Result<SwitchView, serde_json::Error> {
        let mut all = SwitchView { fields: told.clone(), ..SwitchView::default() };
        for system in systems {
            let view = system.switch(told)?;
            all.sessions.0 += view.sessions.0;
            all.sessions.1 += view.sessions.1;
            all.pending += view.pending;
            all.fault = all.fault.or(view.fault);
            all.notes.extend(view.notes);
            all.more.extend(view.more);
            all.fields.extend(view.fields);
        }
        Ok(all)
    }
}

/// What `status` shows of a store.
#[derive(Clone, Debug)]
pub struct StoreView {
    /// It can do its work.
    pub ready: bool,
    /// Its row behind the store's address: names of columns, and their cells. [`StoreView::STATE`]
    /// is one of them. Stores of several systems share the columns that have the same name.
    pub columns: Vec<(&'static str, String)>,
    /// Below the table: what is wrong. The store's address stands before each.
    pub notes: Vec<String>,
}

impl StoreView {
    /// The column that each row has: also that of a store that gives no answer.
    pub const STATE: &'static str = "state";
}

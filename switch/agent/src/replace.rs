//! Exchanging the entries of tables as one (`Request::TableReplace`), and tables whose entries hold
//! for one incarnation of the switch.
//!
//! Entries of such a table say what the switch may do with the state that it has: its part in a
//! chain, say. Maps that are made anew have no state, so their table begins without entries, and
//! what misses there is refused by the program until somebody gives entries for this incarnation.
//! Neither the configuration nor an earlier program brings any.

use crate::agent::Agent;
use crate::control::Reply;
use crate::error::{Error, Result};
use dataplane::{Dataplane, EntrySpec, Filled, TableRef, TableVersion};
use serde::{Deserialize, Serialize};

/// All entries that a table is to have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TableContent {
    /// Table.
    pub table: String,
    /// Entries.
    pub entries: Vec<EntrySpec>,
    /// The table is left as it is if its entries have another version. None: whatever it has.
    #[serde(default)]
    pub version: Option<TableVersion>,
}

/// A table after an exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// Full name.
    pub table: String,
    /// Of its entries now.
    pub version: TableVersion,
}

/// An incarnation as people read and write it.
pub fn incarnation_text(incarnation: u32) -> String {
    format!("{incarnation:#010x}")
}

/// Why entries of a table cannot come from a configuration; none: they can.
pub(crate) fn not_configured(table: &TableRef<'_>) -> Option<String> {
    let description = table.description();
    description.per_incarnation.then(|| {
        format!(
            "table {}: its entries hold for one incarnation of the switch; give them with `stateplane table replace` to the switch that runs",
            description.name
        )
    })
}

/// Tables that wait for entries of this incarnation.
pub(crate) fn warn_of_empty(dataplane: &Dataplane, incarnation: u32) -> Result<()> {
    for description in dataplane.manifest().tables.iter().filter(|table| table.per_incarnation) {
        if dataplane.table(&description.name)?.list()?.is_empty() {
            tracing::warn!(
                "table {}: no entries yet for incarnation {}; packets miss there until `stateplane table replace` gives some",
                description.name,
                incarnation_text(incarnation)
            );
        }
    }
    Ok(())
}

impl Agent {
    /// Are entries meant for this incarnation of the switch? `None` fits tables whose entries hold
    /// for any.
    pub(crate) fn check_incarnation(
        &self,
        table: &TableRef<'_>,
        incarnation: Option<u32>,
    ) -> Result<()> {
        let (own, name) = (self.incarnation(), &table.description().name);
        match incarnation {
            Some(meant) if meant != own => Err(Error::Other(format!(
                "table {name}: the entries are for incarnation {}, but switch {} has incarnation \
                 {}: the switch has lost the state of the other incarnation; nothing is changed",
                incarnation_text(meant),
                self.config.name,
                incarnation_text(own)
            ))),
            None if table.description().per_incarnation => Err(Error::Other(format!(
                "table {name}: its entries hold for one incarnation of the switch; say which they are for (--incarnation; this switch has {})",
                incarnation_text(own)
            ))),
            _ => Ok(()),
        }
    }

    /// Exchanges the entries of each table as one, in the order given, after all of them have been
    /// found to fit. Returns when no running program has an earlier entry any more. The caller
    /// holds `changes`.
    pub(crate) fn replace(
        &self,
        contents: &[TableContent],
        incarnation: Option<u32>,
    ) -> Result<Reply> {
        let mut filled: Vec<(TableRef<'_>, Filled<'_>)> = vec![];
        for content in contents {
            let table = self.dataplane.table(&content.table)?;
            let name = &table.description().name;
            if filled.iter().any(|(other, _)| other.description().name == *name) {
                return Err(Error::Other(format!("table {name} is given twice")));
            }
            self.check_incarnation(&table, incarnation)?;
            let entries = content
                .entries
                .iter()
                .map(|entry| table.resolve(entry))
                .collect::<dataplane::Result<Vec<_>>>()?;
            // Before anything is exchanged; the exchange looks once more.
            table.check_version(content.version)?;
            filled.push((table, table.fill(&entries)?.expecting(content.version)));
        }
        let mut replaced: Vec<Replaced> = vec![];
        for (table, filled) in filled {
            let name = table.description().name.clone();
            let version = filled.exchange().map_err(|error| {
                let done: Vec<&str> = replaced.iter().map(|it| it.table.as_str()).collect();
                match done[..] {
                    [] => Error::from(error),
                    _ => Error::Other(format!(
                        "{error}; these tables were exchanged before: {}",
                        done.join(", ")
                    )),
                }
            })?;
            replaced.push(Replaced { table: name, version });
        }
        Ok(Reply::Replaced { incarnation: self.incarnation(), tables: replaced })
    }
}

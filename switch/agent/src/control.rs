//! The control socket: one JSON request a line, one JSON reply a line. Systems have requests of
//! their own (`Running::request`).

use crate::agent::Agent;
use crate::error::Result;
use crate::load::Load;
use crate::origin::{Origin, Origins};
use crate::replace::{Replaced, TableContent};
use dataplane::{
    ActionSpec, CounterValue, EntrySpec, KeySpec, ListedEntry, PortStats, TableVersion, Write,
};
use serde::{Deserialize, Serialize};

/// What can be asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// Who are you?
    Status,
    /// Which tables are there?
    Tables,
    /// A table's entries.
    TableList {
        /// Table.
        table: String,
    },
    /// A new entry, or (`replace`) another action for one that is there.
    TableAdd {
        /// Table.
        table: String,
        /// Entry.
        entry: EntrySpec,
        /// An entry that is there already gets the new action instead of an error.
        replace: bool,
        /// As of [`Request::TableReplace`].
        #[serde(default)]
        incarnation: Option<u32>,
    },
    /// Exchange all entries of tables, each as one, in this order; packets may see one table's new
    /// entries beside another's earlier ones. Answered when no packet uses an earlier entry any
    /// more. If one table cannot have its entries, none is changed.
    TableReplace {
        /// Tables.
        tables: Vec<TableContent>,
        /// The incarnation that the entries are for: refused by any other. Tables whose entries
        /// hold for one incarnation need it.
        incarnation: Option<u32>,
    },
    /// Delete an entry.
    TableDelete {
        /// Table.
        table: String,
        /// Its matches.
        keys: Vec<KeySpec>,
    },
    /// Set the default action; none: as compiled.
    TableSetDefault {
        /// Table.
        table: String,
        /// Action.
        action: Option<ActionSpec>,
    },
    /// Read a register's elements; none: all.
    RegisterRead {
        /// Register.
        register: String,
        /// Element.
        index: Option<u32>,
    },
    /// Write a register's element.
    RegisterWrite {
        /// Register.
        register: String,
        /// Element.
        index: u32,
        /// As text: decimal, 0x…, an address.
        value: String,
    },
    /// Read a counter's elements; none: all that are not zero.
    CounterRead {
        /// Counter.
        counter: String,
        /// Element.
        index: Option<u32>,
    },
    /// The ports and their counts.
    Ports,
    /// How much do you hold, and what waits?
    Load,
    /// End the agent.
    Stop {
        /// Take the program off the ports; if false it goes on forwarding.
        detach: bool,
    },
}

/// What is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// Done.
    Done,
    /// It was not done.
    Error {
        /// Why.
        error: String,
    },
    /// To [`Request::Status`].
    Status(Status),
    /// To [`Request::Tables`].
    Tables {
        /// One a table.
        tables: Vec<TableSummary>,
    },
    /// To [`Request::TableList`].
    Table(TableListing),
    /// To [`Request::TableReplace`].
    Replaced {
        /// The switch's.
        incarnation: u32,
        /// In the order in which they were exchanged.
        tables: Vec<Replaced>,
    },
    /// To [`Request::RegisterRead`].
    Register {
        /// Full name.
        register: String,
        /// `(index, value)`.
        elements: Vec<(u32, String)>,
        /// `(index, member)`: of those whose value an enum names.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        names: Vec<(u32, String)>,
        /// `(index, member)`: of those whose index an enum names.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        index_names: Vec<(u32, String)>,
    },
    /// To [`Request::CounterRead`].
    Counter {
        /// Full name.
        counter: String,
        /// `packets`, `bytes` or `packets_and_bytes`.
        unit: String,
        /// `(index, value)`.
        elements: Vec<(u32, CounterValue)>,
        /// `(index, member)`: of those whose index an enum names.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        index_names: Vec<(u32, String)>,
    },
    /// To [`Request::Ports`].
    Ports {
        /// One a port.
        ports: Vec<PortStatus>,
    },
    /// To [`Request::Load`].
    Load(Load),
}

/// Who runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Switch.
    pub name: String,
    /// P4 program.
    pub program: String,
    /// `started`, `took over` or `replaced`.
    pub how: String,
    /// In the state protocol.
    pub switch_id: u32,
    /// In the state protocol.
    pub incarnation: u32,
    /// Agent's process.
    pub pid: u32,
    /// Frames that the packet generator made.
    pub generated_frames: u64,
}

/// A table in a list of tables.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TableSummary {
    /// Control-plane name.
    pub name: String,
    /// `keyless`, `const`, `exact`, `lpm` or `ternary`.
    pub kind: String,
    /// `name: match_kind` of each key.
    pub keys: Vec<(String, String)>,
    /// Entries it holds.
    pub entries: usize,
    /// Those of them that were added at run time.
    #[serde(default)]
    pub at_run_time: usize,
    /// Entries that fit.
    pub size: u64,
    /// Of the entries, if they are exchanged as one.
    #[serde(default)]
    pub version: Option<TableVersion>,
    /// Entries hold for one incarnation of the switch.
    #[serde(default)]
    pub per_incarnation: bool,
}

/// A table's entries.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TableListing {
    /// Control-plane name.
    pub name: String,
    /// Key names, in order.
    pub keys: Vec<String>,
    /// Has priorities?
    pub ternary: bool,
    /// Entries.
    pub entries: Vec<ListedEntry>,
    /// Where each entry comes from, in the same order.
    #[serde(default)]
    pub origins: Vec<Origin>,
    /// Where the default action comes from.
    #[serde(default)]
    pub default_origin: Option<Origin>,
    /// Default action's name.
    pub default_action: String,
    /// `(parameter, value)`.
    pub default_arguments: Vec<(String, String)>,
    /// `(parameter, member)`: of those whose value an enum names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub default_argument_names: Vec<(String, String)>,
    /// Packets and bytes that ran the default action, if the table counts.
    pub default_counter: Option<(u64, u64)>,
    /// Of the entries, if they are exchanged as one. Entries that came while the list was made may
    /// be of a later version: a replacement that expects this one is refused then.
    #[serde(default)]
    pub version: Option<TableVersion>,
}

/// A port and its counts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PortStatus {
    /// P4 port.
    pub port: u32,
    /// Interface.
    pub interface: String,
    /// Is the program on it?
    pub attached: bool,
    /// Leads to other switches and the store.
    pub fabric: bool,
    /// Counts.
    #[serde(flatten)]
    pub stats: PortStats,
}

/// The version of a table's entries, if they are exchanged as one.
fn version(table: &dataplane::TableRef<'_>) -> Result<Option<TableVersion>> {
    Ok(table.is_exchanged().then(|| table.version()).transpose()?)
}

/// The members of an enum that name these elements' indexes.
fn index_names<T>(
    enumeration: Option<&manifest::Enumeration>,
    elements: &[(u32, T)],
) -> Vec<(u32, String)> {
    let name = |index: u32| Some((index, enumeration?.member(index.into())?.to_owned()));
    elements.iter().filter_map(|(index, _)| name(*index)).collect()
}

impl Agent {
    /// Carries a request out; [`Request::Stop`] is the caller's.
    pub(crate) fn answer(&self, request: Request) -> Reply {
        self.try_answer(request).unwrap_or_else(|error| Reply::Error { error: error.to_string() })
    }

    fn try_answer(&self, request: Request) -> Result<Reply> {
        // One change at a time: a ternary table's masks are read, changed and written back. Who
        // only reads, perhaps a million entries, holds nobody up: new views wait for the same lock.
        let changes = matches!(
            request,
            Request::TableAdd { .. }
                | Request::TableReplace { .. }
                | Request::TableDelete { .. }
                | Request::TableSetDefault { .. }
                | Request::RegisterWrite { .. }
        );
        let lock = || self.changes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _one_at_a_time = changes.then(lock);
        let dataplane = &*self.dataplane;
        match request {
            Request::Status => return Ok(Reply::Status(self.status())),
            Request::Tables => return self.tables(),
            Request::TableList { table } => return self.list(&table),
            Request::TableAdd { table, entry, replace, incarnation } => {
                let table = dataplane.table(&table)?;
                self.check_incarnation(&table, incarnation)?;
                table.write(
                    &table.resolve(&entry)?,
                    if replace { Write::Set } else { Write::Add },
                )?;
            }
            Request::TableReplace { tables, incarnation } => {
                return self.replace(&tables, incarnation);
            }
            Request::TableDelete { table, keys } => {
                let table = dataplane.table(&table)?;
                table.delete(&table.resolve_keys(&keys)?)?;
            }
            Request::TableSetDefault { table, action } => {
                let table = dataplane.table(&table)?;
                match action {
                    Some(action) => table.set_default(&table.resolve_action(&action)?)?,
                    None => table.reset_default()?,
                }
            }
            Request::RegisterRead { register, index } => {
                return self.read_register(&register, index);
            }
            Request::RegisterWrite { register, index, value } => {
                let register = dataplane.register(&register)?;
                let what = format!("register {}", register.name);
                let names = register.enumeration.as_ref();
                let value = dataplane::value::parse_member(&what, &value, register.width, names)?;
                dataplane.write_register(register, index, value)?;
            }
            Request::CounterRead { counter, index } => return self.read_counter(&counter, index),
            Request::Ports => return Ok(Reply::Ports { ports: self.ports()? }),
            Request::Load => return Ok(Reply::Load(self.load())),
            Request::Stop { .. } => {}
        }
        Ok(Reply::Done)
    }

    fn tables(&self) -> Result<Reply> {
        let mut tables = vec![];
        for description in &self.dataplane.manifest().tables {
            let table = self.dataplane.table(&description.name)?;
            let kind = match description.kind {
                manifest::TableKind::Keyless => "keyless",
                manifest::TableKind::Const => "const",
                manifest::TableKind::Exact { .. } => "exact",
                manifest::TableKind::Lpm { .. } => "lpm",
                manifest::TableKind::Ternary { .. } => "ternary",
            };
            let listed = table.list()?;
            let known = {
                let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                Origins::of(&self.dataplane, &description.name, &state)?
            };
            let at_run_time =
                |it: &&dataplane::Listed| !it.constant && known.entry(&it.entry) == Origin::RunTime;
            tables.push(TableSummary {
                name: description.name.clone(),
                kind: kind.to_owned(),
                keys: description
                    .keys
                    .iter()
                    .map(|key| (key.name.clone(), key.match_kind.clone()))
                    .collect(),
                entries: listed.len(),
                at_run_time: listed.iter().filter(at_run_time).count(),
                size: description.size,
                version: version(&table)?,
                per_incarnation: description.per_incarnation,
            });
        }
        Ok(Reply::Tables { tables })
    }

    fn list(&self, name: &str) -> Result<Reply> {
        let table = self.dataplane.table(name)?;
        let description = table.description();
        let version = version(&table)?;
        let (call, default_counter) = table.default_action()?;
        let (default_action, default_arguments) = table.describe_action(&call);
        let listed = table.list()?;
        let known = {
            let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            Origins::of(&self.dataplane, &description.name, &state)?
        };
        let origin = |listed: &dataplane::Listed| match listed.constant {
            true => Origin::Program,
            false => known.entry(&listed.entry),
        };
        Ok(Reply::Table(TableListing {
            name: description.name.clone(),
            keys: description.keys.iter().map(|key| key.name.clone()).collect(),
            ternary: matches!(description.kind, manifest::TableKind::Ternary { .. }),
            entries: listed.iter().map(|entry| table.describe(entry)).collect(),
            origins: listed.iter().map(origin).collect(),
            default_origin: Some(known.default_action(&call)),
            default_action,
            default_arguments,
            default_argument_names: table.argument_names(&call),
            default_counter,
            version,
        }))
    }

    fn read_register(&self, name: &str, index: Option<u32>) -> Result<Reply> {
        let register = self.dataplane.register(name)?;
        let (mut elements, mut names) = (vec![], vec![]);
        for index in index.map_or(0..register.size, |index| index..index.saturating_add(1)) {
            let value = self.dataplane.read_register(register, index)?;
            let (width, signed) = (register.width, register.signed);
            let member = register.enumeration.as_ref().and_then(|it| it.member(value));
            names.extend(member.map(|member| (index, member.to_owned())));
            elements.push((
                index,
                dataplane::value::format_number(value, width, signed, &register.name),
            ));
        }
        let index_names = index_names(register.index.as_ref(), &elements);
        Ok(Reply::Register { register: register.name.clone(), elements, names, index_names })
    }

    fn read_counter(&self, name: &str, index: Option<u32>) -> Result<Reply> {
        let counter = self.dataplane.counter(name)?;
        let mut elements = vec![];
        for element in index.map_or(0..counter.size, |index| index..index.saturating_add(1)) {
            let value = self.dataplane.read_counter(counter, element)?;
            if index.is_some() || value != CounterValue::default() {
                elements.push((element, value));
            }
        }
        let index_names = index_names(counter.index.as_ref(), &elements);
        let (counter, unit) = (counter.name.clone(), counter.unit.clone());
        Ok(Reply::Counter { counter, unit, elements, index_names })
    }
}

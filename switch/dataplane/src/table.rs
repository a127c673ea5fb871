//! Table entries: add, change, delete, list; default actions.

use crate::Dataplane;
use crate::error::{Error, Result};
use crate::layout;
use crate::layouts::core::CounterValue;
use crate::sys::{self, Update};
use crate::ternary::Ternary;
use crate::value::{Match, all_ones};
use c_layout::CStruct;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use manifest::{KeyMatch, Parameter, Table, TableKind};
use std::io;

/// An action with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionCall {
    /// Index into the table's actions.
    pub action: usize,
    /// One a parameter.
    pub arguments: Vec<u128>,
}

/// A table entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// One a key.
    pub matches: Vec<Match>,
    /// Ternary tables: higher wins, or smaller if the table says so (`largest_priority_wins =
    /// false`). Others: 0.
    pub priority: u32,
    /// What it runs.
    pub action: ActionCall,
}

/// An entry as it is in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The entry.
    pub entry: Entry,
    /// Packets and bytes that hit it, if the table has a direct counter.
    pub counter: Option<(u64, u64)>,
    /// In the code, not in a map: cannot be changed.
    pub constant: bool,
}

/// How a write treats an entry that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// There must be none.
    Add,
    /// There must be one.
    Modify,
    /// Either.
    Set,
}

/// A table of a loaded object.
#[derive(Clone, Copy)]
pub struct TableRef<'a> {
    pub(crate) dataplane: &'a Dataplane,
    pub(crate) table: &'a Table,
}

impl<'a> TableRef<'a> {
    /// What the manifest says of it.
    pub fn description(&self) -> &'a Table {
        self.table
    }

    pub(crate) fn fail<T>(&self, reason: impl Into<String>) -> Result<T> {
        Err(Error::Table { table: self.table.name.clone(), reason: reason.into() })
    }

    fn map(&self, name: &str) -> Result<&'a MapHandle> {
        self.dataplane.required_map(name, &format!("table {}", self.table.name))
    }

    fn ternary(&self) -> Result<Option<Ternary<'a>>> {
        let TableKind::Ternary { map, masks_map, max_masks, key_bytes } = &self.table.kind else {
            return Ok(None);
        };
        Ok(Some(Ternary {
            table: &self.table.name,
            entries: self.map(map)?,
            masks: self.map(masks_map)?,
            max_masks: *max_masks,
            key_bytes: *key_bytes as usize,
        }))
    }

    /// The parameters of the action at `index` of the table's list.
    pub fn parameters(&self, index: usize) -> &'a [Parameter] {
        self.table
            .actions
            .get(index)
            .and_then(|action| self.dataplane.manifest.actions.get(action.action as usize))
            .map_or(&[], |action| &action.parameters)
    }

    /// The control-plane name of the action at `index` of the table's list.
    pub fn action_name(&self, index: usize) -> &'a str {
        self.table
            .actions
            .get(index)
            .and_then(|action| self.dataplane.manifest.actions.get(action.action as usize))
            .map_or("?", |action| &action.name)
    }

    /// Defaults and initial entries, as compiled.
    pub(crate) fn initialise(&self) -> Result<()> {
        if self.table.default_map.is_some() {
            self.write_default(&self.read_manifest_call(&self.table.default_action)?)?;
        }
        if matches!(self.table.kind, TableKind::Keyless | TableKind::Const) {
            return Ok(());
        }
        if self.table.exchange {
            return self.replace(&self.initial_entries()?).map(drop);
        }
        for list in [&self.table.initial_entries, &self.table.const_entries] {
            for entry in self.read_entries(list)? {
                self.put(&entry, Write::Set)?;
            }
        }
        Ok(())
    }

    /// The entries that the program starts with, and that can be changed. Of those that match the
    /// same (`_` and `0 &&& 0`, say) only the first to match is there: a map has one place for
    /// them.
    pub fn initial_entries(&self) -> Result<Vec<Entry>> {
        self.read_entries(&self.table.initial_entries)
    }

    fn read_entries(&self, list: &[manifest::Entry]) -> Result<Vec<Entry>> {
        let mut entries: Vec<Entry> = Vec::new();
        for entry in list {
            let entry = self.read_manifest_entry(entry)?;
            match entries.iter_mut().find(|known| self.same_entry(known, &entry)) {
                Some(known)
                    if self.table.rank(known.priority) < self.table.rank(entry.priority) =>
                {
                    *known = entry
                }
                Some(_) => {}
                None => entries.push(entry),
            }
        }
        Ok(entries)
    }

    /// The default action that the program starts with.
    pub fn initial_default(&self) -> Result<ActionCall> {
        self.read_manifest_call(&self.table.default_action)
    }

    /// Would this entry be taken? Looks at names, values and the action, not at what the table
    /// holds.
    pub fn check(&self, entry: &Entry) -> Result<()> {
        self.fillable()?;
        self.normalise(&entry.matches)?;
        self.check_call(&entry.action, false)
    }

    /// Would this default action be taken?
    pub fn check_default(&self, call: &ActionCall) -> Result<()> {
        if self.table.const_default || self.table.default_map.is_none() {
            return self.fail("its default action is const");
        }
        self.check_call(call, true)
    }

    fn read_manifest_call(&self, call: &manifest::ActionCall) -> Result<ActionCall> {
        let arguments =
            call.arguments.iter().map(|text| self.manifest_number(text)).collect::<Result<_>>()?;
        Ok(ActionCall { action: call.action as usize, arguments })
    }

    fn manifest_number(&self, text: &str) -> Result<u128> {
        text.parse().or_else(|_| {
            self.fail(format!("the manifest has {text:?} where a number of 128 bits belongs"))
        })
    }

    fn read_manifest_entry(&self, entry: &manifest::Entry) -> Result<Entry> {
        let matches = entry
            .matches
            .iter()
            .map(|what| {
                Ok(match what {
                    KeyMatch::Any => Match::Any,
                    KeyMatch::Exact { value } => Match::Exact(self.manifest_number(value)?),
                    KeyMatch::Prefix { value, length } => {
                        Match::Prefix { value: self.manifest_number(value)?, length: *length }
                    }
                    KeyMatch::Mask { value, mask } => {
                        let mask = self.manifest_number(mask)?;
                        Match::Mask { value: self.manifest_number(value)? & mask, mask }
                    }
                    KeyMatch::Range { low, high } => {
                        let (low, high) = (self.manifest_number(low)?, self.manifest_number(high)?);
                        Match::Range { low, high }
                    }
                })
            })
            .collect::<Result<_>>()?;
        Ok(Entry {
            matches,
            priority: entry.priority,
            action: self.read_manifest_call(&entry.action)?,
        })
    }

    /// The matches in the form that the table's kind stores, or why they cannot be.
    fn normalise(&self, matches: &[Match]) -> Result<Vec<Match>> {
        if matches.len() != self.table.keys.len() {
            return self.fail(format!(
                "{} keys given, the table has {}",
                matches.len(),
                self.table.keys.len()
            ));
        }
        let one = |(key, what): (&manifest::Key, &Match)| {
            let full = what.mask(key.width) == all_ones(key.width);
            match key.match_kind.as_str() {
                "exact" if full => Ok(Match::Exact(what.value())),
                "exact" => {
                    self.fail(format!("key {} is matched exactly: give one value", key.name))
                }
                "lpm" => {
                    let mask = what.mask(key.width);
                    let length = mask.count_ones();
                    if mask != crate::value::prefix_mask(key.width, length) {
                        return self.fail(format!(
                            "key {} is matched by prefix: give value/length",
                            key.name
                        ));
                    }
                    Ok(Match::Prefix { value: what.value() & mask, length })
                }
                _ => Ok(*what),
            }
        };
        self.table.keys.iter().zip(matches).map(one).collect()
    }

    fn check_call(&self, call: &ActionCall, is_default: bool) -> Result<()> {
        let Some(action) = self.table.actions.get(call.action) else {
            return self.fail(format!("it has no action number {}", call.action));
        };
        let name = self.action_name(call.action);
        if is_default && action.table_only {
            return self.fail(format!("action {name} is @tableonly: it cannot be the default"));
        }
        if !is_default && action.default_only {
            return self.fail(format!("action {name} is @defaultonly: an entry cannot run it"));
        }
        let parameters = self.parameters(call.action);
        if parameters.len() != call.arguments.len() {
            return self.fail(format!(
                "action {name} takes {} arguments, {} given",
                parameters.len(),
                call.arguments.len()
            ));
        }
        for (parameter, argument) in parameters.iter().zip(&call.arguments) {
            if *argument > all_ones(parameter.width) {
                return self.fail(format!(
                    "action {name}: {argument} does not fit the {} bits of {}",
                    parameter.width, parameter.name
                ));
            }
        }
        Ok(())
    }

    /// Whether entries can be added, changed and deleted.
    fn fillable(&self) -> Result<()> {
        if self.table.kind == TableKind::Keyless {
            return self.fail("it has no key: only its default action can be set");
        }
        if self.table.kind == TableKind::Const || !self.table.const_entries.is_empty() {
            return self.fail("its entries are const: they are part of the program");
        }
        Ok(())
    }

    /// Do both match the same packets (that is: are they the same entry, whatever they run)?
    pub fn same_entry(&self, one: &Entry, other: &Entry) -> bool {
        self.table.keys.iter().enumerate().all(|(index, key)| {
            match (one.matches.get(index), other.matches.get(index)) {
                (Some(one), Some(other)) => {
                    let mask = one.mask(key.width);
                    mask == other.mask(key.width) && one.value() & mask == other.value() & mask
                }
                _ => false,
            }
        })
    }

    /// Writes an entry. Its counter starts at zero, or keeps its count when the entry was there.
    pub fn write(&self, entry: &Entry, how: Write) -> Result<()> {
        self.fillable()?;
        self.put(entry, how)
    }

    fn put(&self, entry: &Entry, how: Write) -> Result<()> {
        self.put_entry(entry, how)?;
        self.tell_own(entry, how)
    }

    fn put_entry(&self, entry: &Entry, how: Write) -> Result<()> {
        let update = match how {
            Write::Add => Update::Create,
            Write::Modify => Update::Replace,
            Write::Set => Update::Any,
        };
        if self.table.exchange {
            let (key, value) = self.key_and_value(entry)?;
            let write = |map: &MapHandle| {
                write_value(map, &key, value, update, None).or_else(|error| self.refused(error))
            };
            return self.change(write);
        }
        if let Some(ternary) = self.ternary()? {
            let matches = self.normalise(&entry.matches)?;
            let value = self.value(&entry.action)?;
            let (key, mask) = self.ternary_key(&matches);
            let rank = self.table.rank(entry.priority);
            return ternary.write(&key, &mask, rank, value, update, self.table.direct_counter);
        }
        let (key, value) = self.key_and_value(entry)?;
        let counter = self.table.direct_counter.map(|offset| offset as usize);
        write_value(self.map_of_entries()?, &key, value, update, counter)
            .or_else(|error| self.refused(error))
    }

    fn value(&self, call: &ActionCall) -> Result<Vec<u8>> {
        self.check_call(call, false)?;
        let parameters = self.parameters(call.action);
        Ok(layout::value(self.table, call.action, parameters, &call.arguments))
    }

    /// An entry as it lies in an exact or LPM table's map.
    pub(crate) fn key_and_value(&self, entry: &Entry) -> Result<(Vec<u8>, Vec<u8>)> {
        let key = self.key(&self.normalise(&entry.matches)?)?;
        Ok((key, self.value(&entry.action)?))
    }

    /// Deletes the entry with exactly these matches.
    pub fn delete(&self, matches: &[Match]) -> Result<()> {
        self.delete_entry(matches)?;
        self.tell_all_own()
    }

    fn delete_entry(&self, matches: &[Match]) -> Result<()> {
        self.fillable()?;
        let matches = self.normalise(matches)?;
        if let Some(ternary) = self.ternary()? {
            let (key, mask) = self.ternary_key(&matches);
            return ternary.delete(&key, &mask);
        }
        let key = self.key(&matches)?;
        if self.table.exchange {
            return self.change(|map| self.delete_key(map, &key));
        }
        self.delete_key(self.map_of_entries()?, &key)
    }

    fn delete_key(&self, map: &MapHandle, key: &[u8]) -> Result<()> {
        match map.delete(key) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => {
                self.fail("there is no such entry")
            }
            Err(error) => Err(Error::libbpf(format!("table {}", self.table.name), error)),
        }
    }

    pub(crate) fn refused(&self, error: io::Error) -> Result<()> {
        match error.raw_os_error() {
            Some(libc::EEXIST) => self.fail("there is such an entry already"),
            Some(libc::ENOENT) => self.fail("there is no such entry"),
            Some(libc::E2BIG | libc::ENOSPC) => {
                self.fail(format!("it is full: its size is {}", self.table.size))
            }
            _ => Err(Error::kernel(format!("table {}", self.table.name), error)),
        }
    }

    fn ternary_key(&self, matches: &[Match]) -> (Vec<u8>, Vec<u8>) {
        let TableKind::Ternary { key_bytes, .. } = self.table.kind else { return (vec![], vec![]) };
        let keys = &self.table.keys;
        let mask =
            layout::key_struct(keys, key_bytes, |index| matches[index].mask(keys[index].width));
        let key = layout::key_struct(keys, key_bytes, |index| {
            matches[index].value() & matches[index].mask(keys[index].width)
        });
        (key, mask)
    }

    /// The key of an exact or LPM table.
    fn key(&self, matches: &[Match]) -> Result<Vec<u8>> {
        match &self.table.kind {
            TableKind::Exact { key_bytes, .. } => {
                let of = |index: usize| matches[index].value();
                Ok(layout::key_struct(&self.table.keys, *key_bytes, of))
            }
            TableKind::Lpm { .. } => Ok(layout::lpm_key(self.table, matches)),
            _ => self.fail("it has no map for entries"),
        }
    }

    /// The map of an exact or LPM table whose entries are not exchanged as one.
    fn map_of_entries(&self) -> Result<&'a MapHandle> {
        match &self.table.kind {
            TableKind::Exact { map, .. } | TableKind::Lpm { map, .. } => self.map(map),
            _ => self.fail("it has no map for entries"),
        }
    }

    /// All entries: const ones as written, ternary ones in the order in which they win.
    pub fn list(&self) -> Result<Vec<Listed>> {
        if !self.table.const_entries.is_empty() {
            let listed = |entry| {
                let entry = self.read_manifest_entry(entry)?;
                Ok(Listed { entry, counter: None, constant: true })
            };
            return self.table.const_entries.iter().map(listed).collect();
        }
        let mut found: Vec<Listed> = match &self.table.kind {
            TableKind::Keyless | TableKind::Const => vec![],
            TableKind::Ternary { .. } => self.list_ternary()?,
            TableKind::Exact { .. } | TableKind::Lpm { .. } if self.table.exchange => {
                self.list_map(&*self.current_map()?)?
            }
            TableKind::Exact { .. } | TableKind::Lpm { .. } => {
                self.list_map(self.map_of_entries()?)?
            }
        };
        found.sort_by_key(|listed| {
            let values: Vec<u128> = listed.entry.matches.iter().map(Match::value).collect();
            (std::cmp::Reverse(self.table.rank(listed.entry.priority)), values)
        });
        Ok(found)
    }

    fn list_map(&self, map: &MapHandle) -> Result<Vec<Listed>> {
        let matches = |key: &[u8]| match self.table.kind {
            TableKind::Lpm { .. } => layout::read_lpm_key(self.table, key),
            _ => layout::read_key_struct(&self.table.keys, key)
                .into_iter()
                .map(Match::Exact)
                .collect(),
        };
        let mut listed = Vec::new();
        for key in map.keys() {
            // An entry that was deleted meanwhile is not there any more: skip it.
            if let Some(value) = lookup(map, &key, &self.table.name)? {
                listed.push(self.listed(matches(&key), 0, &value));
            }
        }
        Ok(listed)
    }

    fn list_ternary(&self) -> Result<Vec<Listed>> {
        let Some(ternary) = self.ternary()? else { return Ok(vec![]) };
        let keys = &self.table.keys;
        let entries = ternary.list()?;
        let listed = entries.into_iter().map(|(key, mask, rank, value)| {
            let values = layout::read_key_struct(keys, &key);
            let masks = layout::read_key_struct(keys, &mask);
            let matches = keys
                .iter()
                .enumerate()
                .map(|(index, key)| Match::from_mask(values[index], masks[index], key.width));
            self.listed(matches.collect(), self.table.rank(rank), &value)
        });
        Ok(listed.collect())
    }

    fn listed(&self, matches: Vec<Match>, priority: u32, value: &[u8]) -> Listed {
        let action = self.read_call(value);
        Listed {
            entry: Entry { matches, priority, action },
            counter: self.read_counter(value),
            constant: false,
        }
    }

    fn read_call(&self, value: &[u8]) -> ActionCall {
        let action = layout::u32_at(value, 0) as usize;
        let arguments = self
            .parameters(action)
            .iter()
            .map(|parameter| {
                layout::get(value, parameter.offset, parameter.bytes) & all_ones(parameter.width)
            })
            .collect();
        ActionCall { action, arguments }
    }

    fn read_counter(&self, value: &[u8]) -> Option<(u64, u64)> {
        let offset = self.table.direct_counter? as usize;
        let counter = CounterValue::from_bytes(value.get(offset..)?);
        Some((counter.packets, counter.bytes))
    }

    /// The default action and, if the table has a direct counter, the misses it counted.
    pub fn default_action(&self) -> Result<(ActionCall, Option<(u64, u64)>)> {
        let Some(map) = &self.table.default_map else {
            return Ok((self.read_manifest_call(&self.table.default_action)?, None));
        };
        let value =
            lookup(self.map(map)?, &0u32.to_ne_bytes(), &self.table.name)?.unwrap_or_default();
        Ok((self.read_call(&value), self.read_counter(&value)))
    }

    /// Sets the default action.
    pub fn set_default(&self, call: &ActionCall) -> Result<()> {
        self.check_default(call)?;
        self.write_default(call)
    }

    /// The default as compiled, again.
    pub fn reset_default(&self) -> Result<()> {
        self.set_default(&self.initial_default()?)
    }

    fn write_default(&self, call: &ActionCall) -> Result<()> {
        let Some(name) = &self.table.default_map else { return Ok(()) };
        let value =
            layout::value(self.table, call.action, self.parameters(call.action), &call.arguments);
        let map = self.map(name)?;
        let counter = self.table.direct_counter.map(|offset| offset as usize);
        write_value(map, &0u32.to_ne_bytes(), value, Update::Any, counter)
            .or_else(|error| self.refused(error))
    }
}

/// Reads a map element.
pub(crate) fn lookup(map: &MapHandle, key: &[u8], table: &str) -> Result<Option<Vec<u8>>> {
    map.lookup(key, MapFlags::ANY).map_err(|error| Error::libbpf(format!("table {table}"), error))
}

/// Writes a map value; the direct counter in it goes on from where it was.
pub(crate) fn write_value(
    map: &MapHandle,
    key: &[u8],
    mut value: Vec<u8>,
    update: Update,
    counter: Option<usize>,
) -> io::Result<()> {
    // A map's value may be padded beyond what the manifest counts.
    value.resize((map.value_size() as usize).max(value.len()), 0);
    if let (Some(offset), true) = (counter, update != Update::Create)
        && let Ok(Some(old)) = map.lookup(key, MapFlags::ANY)
        && let (Some(to), Some(from)) =
            (value.get_mut(offset..offset + 16), old.get(offset..offset + 16))
    {
        to.copy_from_slice(from);
    }
    sys::map_update(map, key, &value, update)
}

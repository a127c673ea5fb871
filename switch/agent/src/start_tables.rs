//! What tables hold after a start: the configuration's entries and default actions, and those that
//! were added at run time to an earlier program (docs/deploy.md, "Entries added at run time").

use crate::config::Config;
use crate::error::Result;
use crate::origin::{Origin, Origins};
use crate::run_dir::State;
use dataplane::{Dataplane, Entry, EntrySpec, TableRef, Write};

/// Copies entries and default actions that neither the program nor the configuration brought, but
/// someone at run time.
pub(crate) fn migrate(from: &Dataplane, state: &State, to: &Dataplane) -> Result<()> {
    for table in &from.manifest().tables {
        let old = from.table(&table.name)?;
        let Ok(new) = to.table(&table.name) else {
            continue;
        };
        let origins = Origins::of(from, &table.name, state)?;
        let at_run_time = old
            .list()?
            .into_iter()
            .filter(|listed| !listed.constant && origins.entry(&listed.entry) == Origin::RunTime);
        let moved: Vec<_> =
            at_run_time.map(|listed| new.resolve(&old.describe(&listed).to_spec())).collect();
        // Entries for one incarnation were for the state in the old program's maps.
        if !old.description().per_incarnation && !new.description().per_incarnation {
            move_entries(&new, moved)?;
        }
        if let Some(action) = origins.default_of_run_time()? {
            let moved = new.resolve_action(&action).and_then(|call| new.set_default(&call));
            if let Err(error) = moved {
                let table = &table.name;
                tracing::warn!("{table}: the default action does not fit the new program: {error}");
            }
        }
    }
    Ok(())
}

/// Writes what an earlier program's table had, as far as it fits.
fn move_entries(
    table: &TableRef<'_>,
    entries: Vec<dataplane::Result<Entry>>,
) -> dataplane::Result<()> {
    let warn = |error| {
        tracing::warn!("an entry of the old program does not fit the new one: {error}");
    };
    let fits = |entry: dataplane::Result<Entry>| {
        entry.and_then(|entry| table.check(&entry).map(|()| entry)).map_err(warn).ok()
    };
    let entries: Vec<Entry> = entries.into_iter().filter_map(fits).collect();
    if table.is_exchanged() {
        return write_entries(table, &[], &entries).or_else(|error| {
            warn(error);
            Ok(())
        });
    }
    for entry in entries {
        let _ = table.write(&entry, Write::Set).map_err(warn);
    }
    Ok(())
}

/// Full table names, so that they can be compared.
fn full_name(dataplane: &Dataplane, name: &str) -> Result<String> {
    Ok(dataplane.table(name)?.description().name.clone())
}

pub(crate) fn config_entries(config: &Config) -> Vec<(String, EntrySpec)> {
    let entries = config
        .table
        .iter()
        .flat_map(|table| table.entry.iter().map(|entry| (table.name.clone(), entry.spec())));
    entries.collect()
}

pub(crate) fn config_defaults(config: &Config) -> Vec<(String, dataplane::ActionSpec)> {
    config
        .table
        .iter()
        .filter_map(|table| Some((table.name.clone(), table.default.as_ref()?.spec())))
        .collect()
}

/// Takes entries out of a table, and sets others; as one if the table's are.
fn write_entries(table: &TableRef<'_>, gone: &[Entry], wanted: &[Entry]) -> dataplane::Result<()> {
    if table.is_exchanged() {
        let before: Vec<Entry> = table.list()?.into_iter().map(|listed| listed.entry).collect();
        let mut entries = before.clone();
        entries.retain(|entry| !gone.iter().any(|it| table.same_entry(it, entry)));
        for entry in wanted {
            entries.retain(|known| !table.same_entry(known, entry));
            entries.push(entry.clone());
        }
        let is_there = |entry: &Entry| before.contains(entry);
        if entries.len() != before.len() || !entries.iter().all(is_there) {
            table.replace(&entries)?;
        }
        return Ok(());
    }
    for entry in gone {
        // Someone may have deleted it at run time.
        let _ = table.delete(&entry.matches);
    }
    for entry in wanted {
        table.write(entry, Write::Set)?;
    }
    Ok(())
}

/// Makes the tables hold what the configuration says. Entries of an earlier configuration go;
/// entries that were added at run time stay.
pub(crate) fn apply_tables(
    dataplane: &Dataplane,
    config: &Config,
    previous: Option<&State>,
) -> Result<()> {
    let mut wanted = vec![];
    for (name, spec) in config_entries(config) {
        wanted.push((full_name(dataplane, &name)?, dataplane.table(&name)?.resolve(&spec)?));
    }
    let mut earlier = vec![];
    for (name, spec) in previous.iter().flat_map(|state| &state.entries) {
        earlier.push((full_name(dataplane, name)?, dataplane.table(name)?.resolve(spec)?));
    }
    for description in &dataplane.manifest().tables {
        let of_it = |list: &[(String, Entry)]| -> Vec<Entry> {
            let entries = list.iter().filter(|(name, _)| *name == description.name);
            entries.map(|(_, entry)| entry.clone()).collect()
        };
        let table = dataplane.table(&description.name)?;
        let wanted = of_it(&wanted);
        let is_wanted = |old: &Entry| wanted.iter().any(|entry| table.same_entry(entry, old));
        let gone: Vec<Entry> = of_it(&earlier).into_iter().filter(|it| !is_wanted(it)).collect();
        write_entries(&table, &gone, &wanted)?;
    }
    let defaults = config_defaults(config);
    for (name, _) in previous.iter().flat_map(|state| &state.defaults) {
        if !defaults.iter().any(|(other, _)| other == name) {
            dataplane.table(name)?.reset_default()?;
        }
    }
    for (name, spec) in &defaults {
        let table = dataplane.table(name)?;
        table.set_default(&table.resolve_action(spec)?)?;
    }
    Ok(())
}

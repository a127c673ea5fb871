//! `stateplane state`: what is in the systems' objects, by key and by owner, and snapshots, also
//! summed up over many keys. Each system says where its objects are found
//! (`command_line::state::Source`).

mod names;

use command_line::outln;
use command_line::state::{Asked, Question, Record, Source};
use names::{KeyPart, Names};
use secrets::SecretsFile;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "Examples:
  stateplane state list --store 10.2.1.10:5407 --secrets fabric.secrets --manifest nat.json
  stateplane state list --store 10.2.1.10:5407 --secrets fabric.secrets --owner 1   switch 1's flows
  stateplane state get source=10.1.0.10,protocol=17 \\
    --store 10.2.1.10:5407 --secrets fabric.secrets --manifest nat.json
  stateplane state snapshot vlan=10 --top 10 \\
    --store 10.2.1.10:5407 --secrets fabric.secrets --manifest heavy_hitter.json
  stateplane state snapshot --merge sum \\
    --store 10.2.1.10:5407 --secrets fabric.secrets --manifest heavy_hitter.json

Any store answers, head or not. If one store does not have all shards, repeat --store. If several
stores have a record, the newest one is shown. A key is written as FIELD=VALUE,… (a field that is
left out matches any value), or completely in hexadecimal digits.

Exit code 0: found; 1: not found, or a server did not answer.";

/// Command line of `stateplane state`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, subcommand_required = true)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// List records: of all objects or one, of all owners or one.
    #[command(after_help = EXAMPLES)]
    List {
        #[command(flatten)]
        from: From,
        /// Only records that this switch owns (its `switch_id`).
        #[arg(long, value_name = "SWITCH_ID")]
        owner: Option<u32>,
        /// Show at most this many.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show the records with a key, or with these fields in it.
    #[command(after_help = EXAMPLES)]
    Get {
        /// The key: FIELD=VALUE,…, or hexadecimal digits.
        key: String,
        #[command(flatten)]
        from: From,
    },
    /// Show the newest whole snapshot of keys: its slots that are not zero.
    #[command(after_help = EXAMPLES)]
    Snapshot {
        /// The key: FIELD=VALUE,…, or hexadecimal digits; by default all keys.
        key: Option<String>,
        #[command(flatten)]
        from: From,
        /// One result for all keys: the sum, or the largest, of each slot.
        #[arg(long, value_name = "HOW")]
        merge: Option<Merge>,
        /// Only this many slots: the largest.
        #[arg(long, value_name = "COUNT")]
        top: Option<usize>,
    },
}

#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Merge {
    /// Counts: sketches of several switches are one of all their traffic.
    Sum,
    /// Highest marks.
    Max,
}

/// Whom to ask, and how to show it.
#[derive(clap::Args, Debug)]
struct From {
    /// A store (may be repeated).
    #[arg(long, value_name = "IP:PORT", required = true)]
    store: Vec<SocketAddrV4>,
    /// The fabric's shared secrets (`stateplane keys`); stores answer only with them.
    #[arg(long, value_name = "FILE")]
    secrets: PathBuf,
    /// The program's manifest: names objects and the fields of keys and values.
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Only this object: its name (or the last part of it), or its number.
    #[arg(long, value_name = "NAME")]
    object: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// How long to wait for a store's answer.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    timeout_ms: u64,
}

/// A record for people.
#[derive(Serialize)]
struct Shown {
    object: String,
    key: BTreeMap<String, String>,
    value: BTreeMap<String, String>,
    /// Names of the key's and the value's fields whose value is an enum's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    key_names: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    value_names: BTreeMap<String, String>,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

/// The key of a snapshot.
#[derive(Serialize, Debug, Default, PartialEq, Eq)]
struct Key {
    /// Its fields.
    #[serde(flatten)]
    fields: BTreeMap<String, String>,
    /// The members of enums that name their values, as for records.
    #[serde(rename = "key_names", skip_serializing_if = "BTreeMap::is_empty")]
    names: BTreeMap<String, String>,
}

impl Key {
    fn words(&self) -> String {
        words_with(&self.fields, &self.names)
    }
}

/// A snapshot's slots.
#[derive(Serialize, Debug, Default, PartialEq, Eq)]
struct Slots {
    object: String,
    /// Whose; more than one if they are merged.
    keys: Vec<Key>,
    /// Which, in the order of the keys.
    snapshots: Vec<Value>,
    /// In words.
    #[serde(skip)]
    names: Vec<String>,
    /// The window that the slots are of, where the program's begin anew with each.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u64>,
    /// Of merged ones: keys that had no packet yet in the newest window of any, and so nothing to
    /// add to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    of_older_windows: Vec<Key>,
    /// Those that count.
    slots: Vec<u64>,
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    let result = match &args.action {
        Action::List { from, owner, limit } => list(from, *owner, *limit),
        Action::Get { key, from } => get(from, key),
        Action::Snapshot { key, from, merge, top } => snapshot(from, key.as_deref(), *merge, *top),
    };
    match result {
        Ok(code) => code,
        Err(reason) => {
            eprintln!("stateplane state: {reason}");
            1
        }
    }
}

/// Where to look, and whom to ask there.
struct Stores {
    sources: Vec<&'static dyn Source>,
    asked: Asked,
}

/// A record, and which of the sources it is from.
type Placed = (usize, Record);

impl Stores {
    fn open(from: &From, names: &Names) -> Result<Stores, String> {
        let secrets = SecretsFile::load(&from.secrets).map_err(|error| error.to_string())?;
        let timeout = Duration::from_millis(from.timeout_ms);
        let asked = Asked { stores: from.store.clone(), secrets, timeout };
        Ok(Stores { sources: names.sources().collect(), asked })
    }

    /// All records that the question is about, up to `most`; and whether there are more.
    fn records(&self, question: &Question, most: usize) -> Result<(Vec<Placed>, bool), String> {
        let (mut all, mut more) = (vec![], false);
        for (at, source) in self.sources.iter().enumerate() {
            let found = source.records(&self.asked, question, most.saturating_sub(all.len()))?;
            if let Some(warning) = found.warning {
                eprintln!("stateplane state: {warning}");
            }
            more |= found.more;
            all.extend(found.records.into_iter().map(|record| (at, record)));
        }
        Ok((all, more))
    }
}

fn list(from: &From, owner: Option<u32>, limit: usize) -> Result<u8, String> {
    let names = Names::read(from.manifest.as_deref())?;
    let object = from.object.as_deref().map(|text| names.number(text)).transpose()?;
    let question = Question { object, owner, key: None };
    let stores = Stores::open(from, &names)?;
    let (records, more) = stores.records(&question, limit)?;
    print_records(from, &names, &stores, &records);
    if more && !from.json {
        outln!("… and more (--limit)");
    }
    Ok(0)
}

fn get(from: &From, key: &str) -> Result<u8, String> {
    let names = Names::read(from.manifest.as_deref())?;
    let stores = Stores::open(from, &names)?;
    let records = matching(from, &names, &stores, Some(key))?;
    let found = !records.is_empty();
    print_records(from, &names, &stores, &records);
    if !found {
        eprintln!("stateplane state: {key}: there is no record with this key");
    }
    Ok(u8::from(!found))
}

/// The records with such a key.
fn matching(
    from: &From,
    names: &Names,
    stores: &Stores,
    key: Option<&str>,
) -> Result<Vec<Placed>, String> {
    let object = from.object.as_deref().map(|text| names.number(text)).transpose()?;
    let wanted = key.map(KeyPart::parse).transpose()?;
    if let Some(wanted) = &wanted {
        names.check(wanted, object)?;
    }
    if let Some(keys) = wanted.as_ref().and_then(|wanted| names.whole_keys(wanted, object)) {
        let mut found = vec![];
        for (object, key) in keys? {
            let question = Question { object: Some(object), owner: None, key: Some(key) };
            found.extend(stores.records(&question, usize::MAX)?.0);
        }
        return Ok(found);
    }
    let (records, _) = stores.records(&Question { object, ..Question::default() }, usize::MAX)?;
    let mut found = vec![];
    for (source, record) in records {
        if wanted.as_ref().map_or(Ok(true), |wanted| names.matches(&record, wanted))? {
            found.push((source, record));
        }
    }
    Ok(found)
}

/// Fields, with the members of enums where there are some.
fn words_with(fields: &BTreeMap<String, String>, members: &BTreeMap<String, String>) -> String {
    let field = |(name, value): (&String, &String)| {
        format!("{name}={}", members.get(name).unwrap_or(value))
    };
    fields.iter().map(field).collect::<Vec<_>>().join(" ")
}

fn print_records(from: &From, names: &Names, stores: &Stores, records: &[Placed]) {
    if from.json {
        let shown: Vec<Shown> = records.iter().map(|(_, record)| names.show(record)).collect();
        return outln!("{}", command_line::json(&shown));
    }
    // A table for each system's records; without any, the first one's head.
    let mut first = true;
    for (at, source) in stores.sources.iter().enumerate() {
        let of_it = records.iter().filter(|(of, _)| *of == at);
        let row = |(_, record): &Placed| {
            let it = names.show(record);
            let value = match &record.value {
                Ok(_) => words_with(&it.value, &it.value_names),
                Err(instead) => instead.clone(),
            };
            let mut row = vec![it.object, words_with(&it.key, &it.key_names), value];
            row.extend_from_slice(&record.cells);
            row
        };
        let rows: Vec<_> = of_it.map(row).collect();
        if first || !rows.is_empty() {
            let head = [&["object", "key", "value"], source.columns()].concat();
            command_line::print_table(&head, rows);
            first = false;
        }
    }
}

fn snapshot(
    from: &From,
    key: Option<&str>,
    merge: Option<Merge>,
    top: Option<usize>,
) -> Result<u8, String> {
    let names = Names::read(from.manifest.as_deref())?;
    let stores = Stores::open(from, &names)?;
    let mut all: Vec<Slots> = vec![];
    for (at, record) in matching(from, &names, &stores, key)? {
        let found = stores.sources[at].snapshot(&stores.asked, names.manifest.as_ref(), &record)?;
        let Some(snapshot) = found else { continue };
        let Shown { object, key: fields, key_names: names, .. } = names.show(&record);
        let one = Slots {
            object,
            keys: vec![Key { fields, names }],
            snapshots: vec![snapshot.info],
            names: vec![snapshot.name],
            window: snapshot.window,
            of_older_windows: vec![],
            slots: snapshot.slots,
        };
        match (merge, all.iter_mut().find(|sum| sum.object == one.object)) {
            (Some(how), Some(sum)) => merge_windows(sum, one, how),
            _ => all.push(one),
        }
    }
    if from.json {
        outln!("{}", command_line::json(&all));
    } else {
        all.iter().for_each(|it| print_slots(it, top));
    }
    if all.is_empty() {
        eprintln!("stateplane state: there is no complete snapshot of this key");
    }
    Ok(u8::from(all.is_empty()))
}

/// Only counts of one window can be merged, and it is the newest that any key has: one whose newest
/// snapshot is of an older window has counted nothing in it.
fn merge_windows(sum: &mut Slots, mut one: Slots, how: Merge) {
    if one.window > sum.window {
        std::mem::swap(sum, &mut one);
    }
    if one.window == sum.window {
        merge_into(&mut sum.slots, &one.slots, how);
        sum.keys.append(&mut one.keys);
        sum.snapshots.append(&mut one.snapshots);
        sum.names.append(&mut one.names);
    }
    sum.of_older_windows.append(&mut one.keys);
    sum.of_older_windows.append(&mut one.of_older_windows);
}

fn merge_into(sum: &mut Vec<u64>, slots: &[u64], how: Merge) {
    sum.resize(sum.len().max(slots.len()), 0);
    for (sum, slot) in sum.iter_mut().zip(slots) {
        *sum = match how {
            Merge::Sum => sum.saturating_add(*slot),
            Merge::Max => *slot.max(sum),
        };
    }
}

fn print_slots(it: &Slots, top: Option<usize>) {
    let keys: Vec<String> = it.keys.iter().map(Key::words).collect();
    let window = it.window.map_or(String::new(), |window| format!(", window {window}"));
    outln!("{}  {}: snapshot {}{window}", it.object, keys.join(" + "), it.names.join(" + "));
    if !it.of_older_windows.is_empty() {
        let keys: Vec<String> = it.of_older_windows.iter().map(Key::words).collect();
        outln!("without counts in this window: {}", keys.join(", "));
    }
    let mut slots: Vec<(usize, u64)> =
        it.slots.iter().copied().enumerate().filter(|(_, value)| *value > 0).collect();
    if let Some(top) = top {
        slots.sort_by_key(|(slot, value)| (std::cmp::Reverse(*value), *slot));
        slots.truncate(top);
    }
    let rows =
        slots.into_iter().map(|(slot, value)| vec![slot.to_string(), value.to_string()]).collect();
    command_line::print_table(&["slot", "value"], rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_merged_one_by_one() {
        let mut sum = vec![1, 2];
        merge_into(&mut sum, &[10, 1, 5], Merge::Sum);
        assert_eq!(sum, [11, 3, 5]);
        merge_into(&mut sum, &[0, u64::MAX], Merge::Max);
        assert_eq!(sum, [11, u64::MAX, 5]);
    }

    #[test]
    fn the_name_of_an_enums_value_stands_beside_it() {
        let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let mut key = Key { fields: one("network", "2"), names: one("network", "SGI") };
        let json = serde_json::to_value(&key).unwrap();
        let expected = serde_json::json!({ "network": "2", "key_names": { "network": "SGI" } });
        assert_eq!(json, expected);
        key.names.clear();
        assert_eq!(serde_json::to_value(&key).unwrap(), serde_json::json!({ "network": "2" }));
    }

    #[test]
    fn only_the_newest_window_is_merged() {
        let of = |key: &str, window, slots: &[u64]| Slots {
            keys: vec![Key {
                fields: BTreeMap::from([("vlan".to_owned(), key.to_owned())]),
                names: BTreeMap::new(),
            }],
            window: Some(window),
            slots: slots.to_vec(),
            ..Slots::default()
        };
        let mut sum = of("a", 7, &[1, 1]);
        for one in [of("b", 8, &[2, 0]), of("c", 7, &[5, 5]), of("d", 8, &[0, 3])] {
            merge_windows(&mut sum, one, Merge::Sum);
        }
        let keys = |keys: &[Key]| keys.iter().map(Key::words).collect::<Vec<_>>().join(" ");
        assert_eq!((sum.window, sum.slots.as_slice()), (Some(8), [2, 3].as_slice()));
        assert_eq!(
            (keys(&sum.keys), keys(&sum.of_older_windows)),
            ("vlan=b vlan=d".into(), "vlan=a vlan=c".into())
        );
    }
}

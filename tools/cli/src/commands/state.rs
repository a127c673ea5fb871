//! `stateplane state`: what the state store has. Flows by key and by owner, and snapshots, also
//! summed up over many keys.

use dataplane::value::{format_value, parse_value};
use manifest::{Manifest, StateObject, WireField};
use secrets::SecretsFile;
use serde::Serialize;
use state_protocol::objects::{SnapshotState, objects};
use state_store::core::{RecordState, SnapshotInfo, StateAnswer, StateQuery, from_hex, to_hex};
use state_store::shell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "Examples:
  stateplane state list --store 10.2.1.10:5407 --secrets fabric.secrets --manifest nat.json
  stateplane state list --store 10.2.1.10:5407 --secrets fabric.secrets --owner 1           the flows of switch 1
  stateplane state get source=10.1.0.10,protocol=17 --store 10.2.1.10:5407 --secrets fabric.secrets --manifest nat.json
  stateplane state snapshot vlan=10 --store 10.2.1.10:5407 --secrets fabric.secrets --manifest heavy_hitter.json --top 10
  stateplane state snapshot --merge sum --store 10.2.1.10:5407 --secrets fabric.secrets --manifest heavy_hitter.json

Any store answers, head or not. If one store does not have all shards, repeat --store. If several have a
record, the newest is shown. A key is written as FIELD=VALUE,… (a field that is left out matches any
value), or completely in hexadecimal digits.

Exit code 0: found; 1: not found, or a server did not answer.";

/// So often at most a snapshot is read anew because a newer one took its place meanwhile.
const MOST_TRIES: usize = 20;

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
    shard: u16,
    /// The switch; none: nobody.
    owner: Option<u32>,
    epoch: u32,
    seq: u64,
    phase: String,
    snapshot: Option<SnapshotInfo>,
}

/// A snapshot's slots.
#[derive(Serialize, Debug, Default, PartialEq, Eq)]
struct Slots {
    object: String,
    /// Whose; more than one if they are merged.
    keys: Vec<BTreeMap<String, String>>,
    /// Which, in the order of the keys.
    snapshots: Vec<SnapshotInfo>,
    /// The window that the slots are of, where the program's begin anew with each.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u64>,
    /// Of merged ones: keys that had no packet yet in the newest window of any, and so nothing to
    /// add to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    of_older_windows: Vec<BTreeMap<String, String>>,
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

/// The object's names and fields, as far as a manifest tells.
struct Object<'a> {
    name: &'a str,
    id: u16,
    key: &'a [WireField],
    value: &'a [WireField],
    /// Of a SnapshotState: its last slot is the window's number.
    windows: bool,
}

#[derive(Default)]
struct Names {
    /// Each with whether its last slot is the window's number.
    objects: Vec<(StateObject, bool)>,
}

impl Names {
    fn read(path: Option<&Path>) -> Result<Names, String> {
        let Some(path) = path else { return Ok(Names::default()) };
        let manifest = Manifest::read(path).map_err(|error| error.to_string())?;
        let mut names = Names::default();
        for object in objects(&manifest) {
            let snapshot = SnapshotState::of(object)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            names.objects.push((object.clone(), snapshot.is_some_and(|it| it.settings.windows)));
        }
        Ok(names)
    }

    fn objects(&self) -> impl Iterator<Item = Object<'_>> {
        self.objects.iter().map(|(object, windows)| Object {
            name: &object.name,
            id: object.id,
            key: &object.key,
            value: object.value.fields(),
            windows: *windows,
        })
    }

    fn of(&self, id: u16) -> Option<Object<'_>> {
        self.objects().find(|object| object.id == id)
    }

    /// The number of the object that is meant.
    fn number(&self, text: &str) -> Result<u16, String> {
        let meant = |object: &Object<'_>| {
            object.name == text || object.name.rsplit('.').next() == Some(text)
        };
        let named = self.objects().find(meant).map(|object| object.id);
        named.or_else(|| text.parse().ok()).ok_or_else(|| {
            let known: Vec<_> = self.objects().map(|object| object.name.to_owned()).collect();
            match known.is_empty() {
                true => format!("--object {text}: without --manifest, write the object's number"),
                false => format!(
                    "--object {text}: no object has this name; the objects are: {}",
                    known.join(", ")
                ),
            }
        })
    }

    fn fields(fields: &[WireField], bytes: &[u8]) -> BTreeMap<String, String> {
        let show = |field: &WireField| {
            let (from, length) = (field.offset as usize, field.bytes as usize);
            let part = bytes.get(from..from.saturating_add(length)).unwrap_or_default();
            let number = part.iter().fold(0u128, |sum, byte| sum << 8 | u128::from(*byte));
            let text = if part.len() > 16 {
                to_hex(part)
            } else {
                format_value(number, field.width, &field.name)
            };
            (field.name.clone(), text)
        };
        fields.iter().map(show).collect()
    }

    fn show(&self, record: RecordState) -> Shown {
        let bytes = |text: &str| from_hex(text).unwrap_or_default();
        let object = self.of(record.object);
        let whole = |text: &str| BTreeMap::from([("hex".to_owned(), text.to_owned())]);
        let part = |fields: Option<&[WireField]>, text: &str| match fields {
            Some(fields) if !fields.is_empty() => Self::fields(fields, &bytes(text)),
            _ => whole(text),
        };
        Shown {
            object: object
                .as_ref()
                .map_or_else(|| record.object.to_string(), |object| object.name.to_owned()),
            key: part(object.as_ref().map(|object| object.key), &record.key),
            value: if record.snapshot.is_some() {
                BTreeMap::new()
            } else {
                part(object.as_ref().map(|object| object.value), &record.value)
            },
            shard: record.shard,
            owner: record.owner,
            epoch: record.epoch,
            seq: record.seq,
            phase: record.phase,
            snapshot: record.snapshot,
        }
    }

    /// Whether the key has these fields: compared as numbers, as values can be written in many
    /// ways.
    fn matches(&self, record: &RecordState, wanted: &KeyPart) -> Result<bool, String> {
        let fields = match wanted {
            KeyPart::Hex(digits) => return Ok(record.key == *digits),
            KeyPart::Fields(fields) => fields,
        };
        let Some(object) = self.of(record.object) else {
            return Err(
                "names of fields need --manifest; or write the whole key in hexadecimal digits"
                    .into(),
            );
        };
        let bytes = from_hex(&record.key).unwrap_or_default();
        for (name, text) in fields {
            let Some(field) = object.key.iter().find(|field| field.name == *name) else {
                return Ok(false);
            };
            let value = parse_value(name, text, field.width).map_err(|error| error.to_string())?;
            let part = bytes
                .get(field.offset as usize..(field.offset + field.bytes) as usize)
                .unwrap_or_default();
            if value != part.iter().fold(0u128, |sum, byte| sum << 8 | u128::from(*byte)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The objects and keys that are meant, if no field is left open: then nothing needs to be
    /// searched.
    fn whole_keys(
        &self,
        wanted: &KeyPart,
        object: Option<u16>,
    ) -> Option<Result<Vec<(u16, String)>, String>> {
        let fields = match (wanted, object) {
            (KeyPart::Hex(digits), Some(object)) => {
                return Some(Ok(vec![(object, digits.clone())]));
            }
            (KeyPart::Hex(_), None) => return None,
            (KeyPart::Fields(fields), _) => fields,
        };
        let given =
            |name: &str| fields.iter().find(|(given, _)| given == name).map(|(_, text)| text);
        let meant: Vec<_> =
            self.objects().filter(|it| object.is_none_or(|id| id == it.id)).collect();
        let has_all = |it: &Object<'_>| {
            fields.iter().all(|(name, _)| it.key.iter().any(|field| field.name == *name))
        };
        let meant: Vec<_> = meant.into_iter().filter(has_all).collect();
        if meant.is_empty()
            || !meant.iter().all(|it| it.key.iter().all(|field| given(&field.name).is_some()))
        {
            return None;
        }
        let key = |it: &Object<'_>| {
            let mut digits = String::new();
            for field in it.key {
                let text = given(&field.name).map_or("", String::as_str);
                let value = parse_value(&field.name, text, field.width)
                    .map_err(|error| error.to_string())?;
                digits.push_str(&format!("{value:0digits$x}", digits = 2 * field.bytes as usize));
            }
            Ok((it.id, digits))
        };
        Some(meant.iter().map(key).collect())
    }

    /// A field that no object's key has is a mistake, and not a key that is not there.
    fn check(&self, wanted: &KeyPart, object: Option<u16>) -> Result<(), String> {
        let KeyPart::Fields(fields) = wanted else { return Ok(()) };
        let known: BTreeSet<&str> = self
            .objects()
            .filter(|it| object.is_none_or(|id| id == it.id))
            .flat_map(|object| object.key.iter().map(|field| field.name.as_str()))
            .collect();
        match fields.iter().find(|(name, _)| !known.contains(name.as_str())) {
            Some((name, _)) if known.is_empty() => Err(format!(
                "{name}: names of fields need --manifest; or write the key in hexadecimal digits"
            )),
            Some((name, _)) => {
                let known: Vec<_> = known.into_iter().collect();
                Err(format!("{name}: no key has this field; the fields are: {}", known.join(", ")))
            }
            None => Ok(()),
        }
    }
}

/// A key, or some of its fields.
enum KeyPart {
    Hex(String),
    Fields(Vec<(String, String)>),
}

impl KeyPart {
    fn parse(text: &str) -> Result<KeyPart, String> {
        if from_hex(text).is_some_and(|bytes| !bytes.is_empty()) {
            return Ok(KeyPart::Hex(text.to_ascii_lowercase()));
        }
        let field = |part: &str| {
            let (name, value) = part.split_once('=')?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        };
        let fields: Option<Vec<_>> = text.split(',').map(field).collect();
        fields.map(KeyPart::Fields).ok_or_else(|| {
            format!("{text:?} is not a key: write FIELD=VALUE,… or hexadecimal digits")
        })
    }
}

/// The servers, and who may ask them.
struct Stores<'a> {
    from: &'a From,
    secrets: SecretsFile,
}

impl<'a> Stores<'a> {
    fn open(from: &'a From) -> Result<Stores<'a>, String> {
        let secrets = SecretsFile::load(&from.secrets).map_err(|error| error.to_string())?;
        Ok(Stores { from, secrets })
    }

    fn ask(&self, store: SocketAddrV4, query: &StateQuery) -> Result<StateAnswer, String> {
        let timeout = Duration::from_millis(self.from.timeout_ms);
        shell::query_state(query, store, self.secrets.ring(), timeout)
            .map_err(|error| error.to_string())
    }

    /// All records that the question is about, up to `most`, each once; and whether there are more.
    fn records(&self, query: &StateQuery, most: usize) -> Result<(Vec<RecordState>, bool), String> {
        let mut found: BTreeMap<(u16, String), RecordState> = BTreeMap::new();
        let (mut seen, mut all, mut more) = (BTreeSet::new(), 0, false);
        for store in &self.from.store {
            let mut query = query.clone();
            loop {
                let answer = self.ask(*store, &query)?;
                seen.extend(answer.shards);
                all = answer.all_shards;
                for record in answer.records {
                    let name = (record.object, record.key.clone());
                    let newer =
                        |known: &RecordState| (record.epoch, record.seq) > (known.epoch, known.seq);
                    if found.get(&name).is_none_or(newer) {
                        found.insert(name, record);
                    }
                }
                more |= found.len() > most;
                match answer.next {
                    Some(next) if !more => query.from = next,
                    _ => break,
                }
            }
        }
        if seen.len() < usize::from(all) {
            let missing: Vec<String> =
                (0..all).filter(|it| !seen.contains(it)).map(|it| it.to_string()).collect();
            eprintln!(
                "stateplane state: none of the given stores has all of shard {}: add others with --store",
                missing.join(", ")
            );
        }
        Ok((found.into_values().take(most).collect(), more))
    }

    /// The newest whole snapshot of a record, from the first server that has it.
    fn slots(&self, record: &RecordState) -> Result<Option<(SnapshotInfo, Vec<u64>)>, String> {
        let query = StateQuery {
            object: Some(record.object),
            key: Some(record.key.clone()),
            ..StateQuery::default()
        };
        for store in &self.from.store {
            for _ in 0..MOST_TRIES {
                if let Some(found) = self.slots_in_one_piece(*store, &query)? {
                    return Ok(Some(found));
                }
                if self.ask(*store, &query)?.records.iter().all(|record| record.snapshot.is_none())
                {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// None: there is no snapshot, or a newer one came in between.
    fn slots_in_one_piece(
        &self,
        store: SocketAddrV4,
        query: &StateQuery,
    ) -> Result<Option<(SnapshotInfo, Vec<u64>)>, String> {
        let (mut bytes, mut first) = (vec![], None);
        loop {
            let query = StateQuery { slots_from: Some(bytes.len()), ..query.clone() };
            let Some(part) = self.ask(store, &query)?.slots else { return Ok(None) };
            if *first.get_or_insert(part.snapshot) != part.snapshot {
                return Ok(None);
            }
            let more = from_hex(&part.bytes).unwrap_or_default();
            bytes.extend(&more);
            if bytes.len() >= part.snapshot.bytes || more.is_empty() {
                let slots = bytes.chunks(part.snapshot.slot_bytes.max(1));
                let number =
                    |slot: &[u8]| slot.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
                return Ok(Some((part.snapshot, slots.map(number).collect())));
            }
        }
    }
}

fn list(from: &From, owner: Option<u32>, limit: usize) -> Result<u8, String> {
    let names = Names::read(from.manifest.as_deref())?;
    let object = from.object.as_deref().map(|text| names.number(text)).transpose()?;
    let query = StateQuery { object, owner, ..StateQuery::default() };
    let (records, more) = Stores::open(from)?.records(&query, limit)?;
    print_records(from, &names, records);
    if more && !from.json {
        outln!("… and more (--limit)");
    }
    Ok(0)
}

fn get(from: &From, key: &str) -> Result<u8, String> {
    let names = Names::read(from.manifest.as_deref())?;
    let records = matching(from, &names, &Stores::open(from)?, Some(key))?;
    let found = !records.is_empty();
    print_records(from, &names, records);
    if !found {
        eprintln!("stateplane state: {key}: there is no record with this key");
    }
    Ok(u8::from(!found))
}

/// The records with such a key.
fn matching(
    from: &From,
    names: &Names,
    stores: &Stores<'_>,
    key: Option<&str>,
) -> Result<Vec<RecordState>, String> {
    let object = from.object.as_deref().map(|text| names.number(text)).transpose()?;
    let wanted = key.map(KeyPart::parse).transpose()?;
    if let Some(wanted) = &wanted {
        names.check(wanted, object)?;
    }
    if let Some(keys) = wanted.as_ref().and_then(|wanted| names.whole_keys(wanted, object)) {
        let mut found = vec![];
        for (object, key) in keys? {
            let query =
                StateQuery { object: Some(object), key: Some(key), ..StateQuery::default() };
            found.extend(stores.records(&query, usize::MAX)?.0);
        }
        return Ok(found);
    }
    let (records, _) =
        stores.records(&StateQuery { object, ..StateQuery::default() }, usize::MAX)?;
    let mut found = vec![];
    for record in records {
        if wanted.as_ref().map_or(Ok(true), |wanted| names.matches(&record, wanted))? {
            found.push(record);
        }
    }
    Ok(found)
}

fn words(fields: &BTreeMap<String, String>) -> String {
    fields.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

fn print_records(from: &From, names: &Names, records: Vec<RecordState>) {
    let shown: Vec<Shown> = records.into_iter().map(|record| names.show(record)).collect();
    if from.json {
        return outln!("{}", super::table::json(&shown));
    }
    let row = |it: &Shown| {
        let owner = it.owner.map_or("nobody".to_owned(), |switch| format!("switch {switch}"));
        let value = match it.snapshot {
            Some(snapshot) => format!("snapshot {} of epoch {}", snapshot.seq, snapshot.epoch),
            None => words(&it.value),
        };
        let (epoch, seq) = (it.epoch.to_string(), it.seq.to_string());
        vec![it.object.clone(), words(&it.key), value, owner, epoch, seq, it.phase.clone()]
    };
    let rows = shown.iter().map(row).collect();
    super::table::print(&["object", "key", "value", "owner", "epoch", "seq", "phase"], rows);
}

fn snapshot(
    from: &From,
    key: Option<&str>,
    merge: Option<Merge>,
    top: Option<usize>,
) -> Result<u8, String> {
    let names = Names::read(from.manifest.as_deref())?;
    let stores = Stores::open(from)?;
    let mut all: Vec<Slots> = vec![];
    for record in matching(from, &names, &stores, key)? {
        if record.snapshot.is_none() {
            continue;
        }
        let Some((info, mut slots)) = stores.slots(&record)? else { continue };
        let window =
            if names.of(record.object).is_some_and(|it| it.windows) { slots.pop() } else { None };
        let Shown { object, key, .. } = names.show(record);
        let one = Slots {
            object,
            keys: vec![key],
            snapshots: vec![info],
            window,
            of_older_windows: vec![],
            slots,
        };
        match (merge, all.iter_mut().find(|sum| sum.object == one.object)) {
            (Some(how), Some(sum)) => merge_windows(sum, one, how),
            _ => all.push(one),
        }
    }
    if from.json {
        outln!("{}", super::table::json(&all));
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
    let keys: Vec<String> = it.keys.iter().map(words).collect();
    let which: Vec<String> =
        it.snapshots.iter().map(|it| format!("{} of epoch {}", it.seq, it.epoch)).collect();
    let window = it.window.map_or(String::new(), |window| format!(", window {window}"));
    outln!("{}  {}: snapshot {}{window}", it.object, keys.join(" + "), which.join(" + "));
    if !it.of_older_windows.is_empty() {
        let keys: Vec<String> = it.of_older_windows.iter().map(words).collect();
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
    super::table::print(&["slot", "value"], rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_fields_or_digits() {
        assert!(matches!(KeyPart::parse("0A00"), Ok(KeyPart::Hex(digits)) if digits == "0a00"));
        let Ok(KeyPart::Fields(fields)) = KeyPart::parse("a=1, b=::1") else { panic!() };
        assert_eq!(fields, [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "::1".to_owned())]);
        assert!(KeyPart::parse("").is_err() && KeyPart::parse("abc").is_err());
    }

    #[test]
    fn slots_are_merged_one_by_one() {
        let mut sum = vec![1, 2];
        merge_into(&mut sum, &[10, 1, 5], Merge::Sum);
        assert_eq!(sum, [11, 3, 5]);
        merge_into(&mut sum, &[0, u64::MAX], Merge::Max);
        assert_eq!(sum, [11, u64::MAX, 5]);
    }

    #[test]
    fn only_the_newest_window_is_merged() {
        let of = |key: &str, window, slots: &[u64]| Slots {
            keys: vec![BTreeMap::from([("vlan".to_owned(), key.to_owned())])],
            window: Some(window),
            slots: slots.to_vec(),
            ..Slots::default()
        };
        let mut sum = of("a", 7, &[1, 1]);
        for one in [of("b", 8, &[2, 0]), of("c", 7, &[5, 5]), of("d", 8, &[0, 3])] {
            merge_windows(&mut sum, one, Merge::Sum);
        }
        let keys = |keys: &[BTreeMap<String, String>]| {
            keys.iter().map(words).collect::<Vec<_>>().join(" ")
        };
        assert_eq!((sum.window, sum.slots.as_slice()), (Some(8), [2, 3].as_slice()));
        assert_eq!(
            (keys(&sum.keys), keys(&sum.of_older_windows)),
            ("vlan=b vlan=d".into(), "vlan=a vlan=c".into())
        );
    }
}

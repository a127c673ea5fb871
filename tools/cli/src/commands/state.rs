//! `stateplane state`: what is in the systems' objects, by key and by owner, and snapshots, also
//! summed up over many keys. Each system says where its objects are found
//! (`command_line::state::Source`).

use command_line::outln;
use command_line::state::{Asked, Question, Record, Source};
use dataplane::value::{format_value, parse_member};
use manifest::{Manifest, StateObject, WireField};
use secrets::SecretsFile;
use serde::Serialize;
use serde_json::{Map, Value};
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

/// A snapshot's slots.
#[derive(Serialize, Debug, Default, PartialEq, Eq)]
struct Slots {
    object: String,
    /// Whose; more than one if they are merged.
    keys: Vec<BTreeMap<String, String>>,
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

/// The objects' names and fields, as far as a manifest tells.
#[derive(Default)]
struct Names {
    manifest: Option<Manifest>,
    /// Those that are found somewhere.
    objects: Vec<StateObject>,
}

/// Where the systems' objects are found.
fn sources() -> impl Iterator<Item = &'static dyn Source> {
    systems::command_line().iter().filter_map(|system| system.state())
}

impl Names {
    fn read(path: Option<&Path>) -> Result<Names, String> {
        let Some(path) = path else { return Ok(Names::default()) };
        let manifest = Manifest::read(path).map_err(|error| error.to_string())?;
        let mut objects = vec![];
        for object in &manifest.state_objects {
            for source in sources() {
                let has =
                    source.has(object).map_err(|error| format!("{}: {error}", path.display()))?;
                objects.extend(has.then(|| object.clone()));
            }
        }
        Ok(Names { manifest: Some(manifest), objects })
    }

    fn objects(&self) -> impl Iterator<Item = &StateObject> {
        self.objects.iter()
    }

    fn of(&self, id: u16) -> Option<&StateObject> {
        self.objects().find(|object| object.id == id)
    }

    /// Where to look: with a manifest, only where its objects are.
    fn sources(&self) -> impl Iterator<Item = &'static dyn Source> {
        sources().filter(|source| {
            let has = |object: &StateObject| source.has(object).unwrap_or(false);
            self.manifest.is_none() || self.objects().any(has)
        })
    }

    /// The number of the object that is meant.
    fn number(&self, text: &str) -> Result<u16, String> {
        let meant = |object: &&StateObject| {
            object.name == text || object.name.rsplit('.').next() == Some(text)
        };
        let named = self.objects().find(meant).map(|object| object.id);
        named.or_else(|| text.parse().ok()).ok_or_else(|| {
            let known: Vec<_> = self.objects().map(|object| object.name.clone()).collect();
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
                trace::hex(part)
            } else {
                format_value(number, field.width, &field.name)
            };
            (field.name.clone(), text)
        };
        fields.iter().map(show).collect()
    }

    /// The members of enums that name values of fields.
    fn members(fields: &[WireField], bytes: &[u8]) -> BTreeMap<String, String> {
        let named = |field: &WireField| {
            let (from, length) = (field.offset as usize, field.bytes as usize);
            let part = bytes.get(from..from.checked_add(length)?)?;
            let number = part.iter().fold(0u128, |sum, byte| sum << 8 | u128::from(*byte));
            Some((field.name.clone(), field.enumeration.as_ref()?.member(number)?.to_owned()))
        };
        fields.iter().filter_map(named).collect()
    }

    fn show(&self, record: &Record) -> Shown {
        let object = self.of(record.object);
        let part = |fields: Option<&[WireField]>, bytes: &[u8]| match fields {
            Some(fields) if !fields.is_empty() => Self::fields(fields, bytes),
            _ => BTreeMap::from([("hex".to_owned(), trace::hex(bytes))]),
        };
        let value = record.value.as_ref();
        let members = |fields: Option<&[WireField]>, bytes: &[u8]| {
            Self::members(fields.unwrap_or_default(), bytes)
        };
        Shown {
            key_names: members(object.map(|object| &object.key[..]), &record.key),
            value_names: value
                .map(|value| members(object.map(|object| object.value.fields()), value))
                .unwrap_or_default(),
            object: object.map_or_else(|| record.object.to_string(), |object| object.name.clone()),
            key: part(object.map(|object| &object.key[..]), &record.key),
            value: value
                .map(|value| part(object.map(|object| object.value.fields()), value))
                .unwrap_or_default(),
            fields: record
                .fields
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
        }
    }

    /// Whether the key has these fields: compared as numbers, as values can be written in many
    /// ways.
    fn matches(&self, record: &Record, wanted: &KeyPart) -> Result<bool, String> {
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
        let bytes = &record.key;
        for (name, text) in fields {
            let Some(field) = object.key.iter().find(|field| field.name == *name) else {
                return Ok(false);
            };
            let value = parse_member(name, text, field.width, field.enumeration.as_ref())
                .map_err(|error| error.to_string())?;
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
    fn whole_keys(&self, wanted: &KeyPart, object: Option<u16>) -> Option<Result<Keys, String>> {
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
        let has_all = |it: &&StateObject| {
            fields.iter().all(|(name, _)| it.key.iter().any(|field| field.name == *name))
        };
        let meant: Vec<_> = meant.into_iter().filter(has_all).collect();
        if meant.is_empty()
            || !meant.iter().all(|it| it.key.iter().all(|field| given(&field.name).is_some()))
        {
            return None;
        }
        let key = |it: &&StateObject| {
            let mut digits = String::new();
            for field in &it.key {
                let text = given(&field.name).map_or("", String::as_str);
                let names = field.enumeration.as_ref();
                let value = parse_member(&field.name, text, field.width, names)
                    .map_err(|error| error.to_string())?;
                digits.push_str(&format!("{value:0digits$x}", digits = 2 * field.bytes as usize));
            }
            Ok((it.id, from_hex(&digits).unwrap_or_default()))
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

/// Digits, two a byte.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| (*byte as char).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?)).collect()
}

/// A key, or some of its fields.
enum KeyPart {
    Hex(Vec<u8>),
    Fields(Vec<(String, String)>),
}

impl KeyPart {
    fn parse(text: &str) -> Result<KeyPart, String> {
        if let Some(bytes) = from_hex(text).filter(|bytes| !bytes.is_empty()) {
            return Ok(KeyPart::Hex(bytes));
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

/// Where to look, and whom to ask there.
struct Stores {
    sources: Vec<&'static dyn Source>,
    asked: Asked,
}

/// Objects' numbers, and keys.
type Keys = Vec<(u16, Vec<u8>)>;

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

fn words(fields: &BTreeMap<String, String>) -> String {
    words_with(fields, &BTreeMap::new())
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
        let Shown { object, key, .. } = names.show(&record);
        let one = Slots {
            object,
            keys: vec![key],
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
    let keys: Vec<String> = it.keys.iter().map(words).collect();
    let window = it.window.map_or(String::new(), |window| format!(", window {window}"));
    outln!("{}  {}: snapshot {}{window}", it.object, keys.join(" + "), it.names.join(" + "));
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
    command_line::print_table(&["slot", "value"], rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_fields_or_digits() {
        assert!(matches!(KeyPart::parse("0A00"), Ok(KeyPart::Hex(key)) if key == [10, 0]));
        let Ok(KeyPart::Fields(fields)) = KeyPart::parse("a=1, b=::1") else { panic!() };
        assert_eq!(fields, [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "::1".to_owned())]);
        assert!(KeyPart::parse("").is_err() && KeyPart::parse("abc").is_err());
    }

    /// A system says what its records have beside key and value; names come from the manifest.
    #[test]
    fn a_toy_systems_record_is_shown() {
        let vlan = WireField {
            name: "vlan".to_owned(),
            width: 12,
            offset: 0,
            bytes: 2,
            enumeration: Some(manifest::Enumeration {
                name: "Network".to_owned(),
                members: vec![manifest::EnumMember {
                    name: "GUESTS".to_owned(),
                    value: "42".to_owned(),
                }],
            }),
        };
        let object = StateObject {
            id: 3,
            name: "ingress.toy".to_owned(),
            system: "toy".to_owned(),
            kind: "GossipCounter".to_owned(),
            map: "i_toy".to_owned(),
            slots_map: None,
            capacity: 8,
            home: manifest::Home::Peers,
            key: vec![vlan],
            key_bytes: 2,
            value: manifest::Layout::Slots {
                count: 1,
                width: 64,
                slot_bytes: 8,
                map_slot_bytes: 8,
                offset: 0,
            },
            settings: Default::default(),
        };
        let names = Names { manifest: None, objects: vec![object] };
        let record = Record {
            object: 3,
            key: vec![0, 42],
            value: Ok(vec![0, 7]),
            cells: vec!["2 peers".to_owned()],
            fields: vec![("peers", 2.into())],
        };
        let shown = serde_json::to_value(names.show(&record)).expect("plain data");
        let expected = serde_json::json!({
            "object": "ingress.toy", "key": { "vlan": "42" }, "value": { "hex": "0007" }, "peers": 2,
            "key_names": { "vlan": "GUESTS" },
        });
        assert_eq!(shown, expected);
        let named = names.show(&record);
        assert_eq!(words_with(&named.key, &named.key_names), "vlan=GUESTS");
        let wanted = KeyPart::parse("vlan=GUESTS").expect("a key");
        assert_eq!(names.matches(&record, &wanted), Ok(true));
        let wanted = KeyPart::parse("vlan=0x2a").expect("a key");
        assert_eq!(names.matches(&record, &wanted), Ok(true));
        assert_eq!(names.whole_keys(&wanted, None), Some(Ok(vec![(3, vec![0, 42])])));
        assert_eq!(names.number("toy"), Ok(3));
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

//! What operators read and write of registers, tables and sets with EWO, and read of counters and
//! sketches, over the control socket: fields by name, values as people write them.

use crate::cells::{Cells, Values};
use crate::records::{Object, Record, Written};
use dataplane::Dataplane;
use dataplane::value::{format_value, parse_member};
use manifest::WireField;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use swish_protocol::lww::flag;
use swish_protocol::objects::SYSTEM;
use switch_agent::{Error, Result};

/// The name of the request.
pub const OP: &str = "shared_order";
/// The key of a register, counter or sketch.
const INDEX: &str = "index";

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// One key, or all.
    Get,
    /// Write a value, or put a key into a set.
    Set,
    /// Remove a key. Of a register: write zero.
    Delete,
    /// The same of all keys.
    Clear,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// [`OP`].
    pub op: String,
    /// What to do.
    pub order: Order,
    /// The object; the last part of its name will do.
    pub object: String,
    /// Fields of the key and of the value, with their values.
    pub fields: Vec<(String, String)>,
}

/// A key that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its fields.
    pub key: Vec<(String, String)>,
    /// Those of its value; of a set none.
    pub value: Vec<(String, String)>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The object.
    pub object: String,
    /// The extern.
    pub kind: String,
    /// Keys at the most; cells of a counter or sketch.
    pub size: u32,
    /// Of a counter or sketch with SDW: the window that packets read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Keys that are removed, and still take a place.
    pub removed: u64,
    /// What was read, or is there after the write; of `clear` what was there before. Of a counter
    /// or sketch without an index: the cells that are not zero.
    pub entries: Vec<Entry>,
}

/// Answers a request. `None`: it is another one.
pub(crate) fn request(
    dataplane: &Dataplane,
    objects: &[Object],
    op: &str,
    request: &Value,
) -> Option<Result<Value>> {
    let other = |error: serde_json::Error| Error::Other(format!("not a request: {error}"));
    let answer = |ask: Ask| {
        let cells = Cells::all(dataplane)?;
        let answer = match cells.iter().find(|it| is_named(it.name(), &ask.object)) {
            Some(cells) => answer_cells(dataplane, cells, &ask)?,
            None => answer(dataplane, objects, &cells, &ask)?,
        };
        serde_json::to_value(answer).map_err(other)
    };
    (op == OP).then(|| Ask::deserialize(request).map_err(other).and_then(answer))
}

/// Is it the object's name, or the last part of it?
fn is_named(name: &str, asked: &str) -> bool {
    name == asked || name.strip_suffix(asked).is_some_and(|front| front.ends_with('.'))
}

/// Of a counter or sketch: one cell, or all that are not zero.
fn answer_cells(dataplane: &Dataplane, cells: &Cells<'_>, ask: &Ask) -> Result<Answer> {
    if ask.order != Order::Get {
        return cells.refuse(
            "packets change it, and operators read it; with Shared.SDW it begins anew after its \
             period, if the program gives it one",
        );
    }
    let index = match &ask.fields[..] {
        [] => None,
        [(name, text)] if name == INDEX || name == "key.index" => {
            Some(parse_member(INDEX, text, 32, None)? as u32)
        }
        _ => return cells.refuse("give index=…, or nothing: all cells that are not zero"),
    };
    if index.is_some_and(|it| it >= cells.size()) {
        return cells.refuse(&format!("index: it has cells 0 to {}", cells.size() - 1));
    }
    let Values { window, cells: values } = cells.read(dataplane)?;
    let wanted = (0..).zip(values).filter(|(at, value)| match index {
        Some(index) => *at == index,
        None => *value != 0,
    });
    let entry = |(at, value): (u32, u32)| Entry {
        key: vec![(INDEX.to_owned(), at.to_string())],
        value: vec![("value".to_owned(), value.to_string())],
    };
    Ok(Answer {
        object: cells.name().to_owned(),
        kind: cells.kind().to_owned(),
        size: cells.size(),
        window,
        removed: 0,
        entries: wanted.map(entry).collect(),
    })
}

fn answer(
    dataplane: &Dataplane,
    objects: &[Object],
    cells: &[Cells<'_>],
    ask: &Ask,
) -> Result<Answer> {
    let object = find(dataplane, objects, cells, &ask.object)?;
    let (key, value) = read(object, &ask.fields)?;
    let is_whole = matches!((&key, ask.order), (None, Order::Get | Order::Clear));
    if ask.order != Order::Set && value.is_some() {
        return refuse(object, "give the fields of the key only");
    }
    let mut entries = vec![];
    match (ask.order, &key) {
        (Order::Get | Order::Clear, None) => {
            let all = object.records(dataplane)?;
            let all: Vec<Record> = all.into_iter().filter(|it| !it.removed).collect();
            entries = all.iter().map(|it| entry(object, it)).collect();
            if ask.order == Order::Clear {
                all.iter().try_for_each(|it| remove(dataplane, object, &it.key))?;
            }
        }
        (Order::Clear, Some(_)) => {
            return refuse(object, "`clear` takes no key; `delete` removes one");
        }
        (Order::Set | Order::Delete, None) => {
            return refuse(object, &format!("give the fields of the key: {}", names(object)));
        }
        (Order::Get, Some(_)) => {}
        (Order::Delete, Some(key)) => remove(dataplane, object, key)?,
        (Order::Set, Some(key)) => {
            let value = match value {
                Some(value) => value,
                None if object.value.is_empty() => vec![],
                None => return refuse(object, &format!("give the fields: {}", names(object))),
            };
            write(dataplane, object, key, &value, 0)?;
        }
    }
    if let (Some(key), false) = (&key, is_whole) {
        let found = object.get(dataplane, key)?;
        entries.extend(found.iter().map(|it| entry(object, it)));
        // (A register's value that was never written is zero.)
        if found.is_none() && object.is_register() {
            let (stamp, value) = ((0, 0), vec![0; object.value_bytes as usize]);
            let zero = Record { key: key.clone(), value, stamp, removed: false };
            entries.push(entry(object, &zero));
        }
    }
    Ok(Answer {
        object: object.name.clone(),
        kind: object.kind.clone(),
        size: object.size,
        window: None,
        removed: object.counts(dataplane)?.removed,
        entries,
    })
}

fn find<'a>(
    dataplane: &Dataplane,
    objects: &'a [Object],
    cells: &[Cells<'_>],
    name: &str,
) -> Result<&'a Object> {
    if let Some(found) = objects.iter().find(|it| is_named(&it.name, name)) {
        return Ok(found);
    }
    let all = &dataplane.manifest().state_objects;
    if let Some(other) = all.iter().find(|it| it.system == SYSTEM && is_named(&it.name, name)) {
        return Err(Error::Other(format!(
            "{} {}: with Shared.SRO only packets read and write it",
            other.kind, other.name
        )));
    }
    let names = objects.iter().map(|it| it.name.as_str()).chain(cells.iter().map(Cells::name));
    let names: Vec<&str> = names.collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(Error::Other(format!(
        "{name:?}: no shared variable that operators can read has this name; the program has: \
         {known}"
    )))
}

fn refuse<T>(object: &Object, reason: &str) -> Result<T> {
    Err(Error::Other(format!("{} {}: {reason}", object.kind, object.name)))
}

/// As errors name an object's fields.
fn names(object: &Object) -> String {
    let index = object.is_register().then_some(INDEX);
    let names = object.key.iter().chain(&object.value).map(|it| it.name.as_str());
    index.into_iter().chain(names).map(|it| format!("{it}=…")).collect::<Vec<_>>().join(" ")
}

type Bytes = Option<Vec<u8>>;

/// Key and value in wire form, of the fields that are given; `None`: none is given.
fn read(object: &Object, given: &[(String, String)]) -> Result<(Bytes, Bytes)> {
    for (name, _) in given {
        let plain = name.trim_start_matches("key.").trim_start_matches("value.");
        let is_known = object.key.iter().chain(&object.value).any(|it| it.name == plain)
            || object.is_register() && plain == INDEX;
        if !is_known {
            return refuse(object, &format!("it has no field {name}; it has: {}", names(object)));
        }
        if given.iter().filter(|(other, _)| other == name).count() > 1 {
            return refuse(object, &format!("{name} is given twice"));
        }
    }
    let find = |part: &str, name: &str| {
        let whole = format!("{part}.{name}");
        let text = given.iter().find(|(it, _)| *it == whole || it == name);
        text.map(|(_, text)| text.as_str())
    };
    let key = if object.is_register() {
        let index = find("key", INDEX).map(|text| parse_member(INDEX, text, 32, None));
        let index = index.transpose()?.map(|it| it as u32);
        if index.is_some_and(|it| it >= object.size) {
            return refuse(object, &format!("index: it has values 0 to {}", object.size - 1));
        }
        index.map(|it| it.to_be_bytes().to_vec())
    } else {
        part(object, "key", &object.key, object.key_bytes, &find)?
    };
    Ok((key, part(object, "value", &object.value, object.value_bytes, &find)?))
}

/// A key or value: all of its fields, or none.
fn part<'a>(
    object: &Object,
    part: &str,
    fields: &[WireField],
    bytes: u32,
    find: &impl Fn(&str, &str) -> Option<&'a str>,
) -> Result<Bytes> {
    let texts: Vec<Option<&str>> = fields.iter().map(|it| find(part, &it.name)).collect();
    if texts.iter().all(Option::is_none) {
        return Ok(None);
    }
    let mut found = vec![0; bytes as usize];
    for (field, text) in fields.iter().zip(texts) {
        let Some(text) = text else {
            return refuse(object, &format!("the {part} needs {}=…, too", field.name));
        };
        let value = parse_member(&field.name, text, field.width, field.enumeration.as_ref())?;
        let whole = value.to_be_bytes();
        let from = whole.len().saturating_sub(field.bytes as usize);
        let places = found.iter_mut().skip(field.offset as usize);
        places.zip(whole.get(from..).unwrap_or_default()).for_each(|(to, from)| *to = *from);
    }
    Ok(Some(found))
}

fn write(
    dataplane: &Dataplane,
    object: &Object,
    key: &[u8],
    value: &[u8],
    flags: u32,
) -> Result<()> {
    match object.write(dataplane, key, value, flags)? {
        Written::Done => Ok(()),
        Written::Full => refuse(
            object,
            &format!(
                "it is full: {} keys, removed ones included until all switches have forgotten \
                 them; delete some, or compile the program with a larger one",
                object.size
            ),
        ),
    }
}

fn remove(dataplane: &Dataplane, object: &Object, key: &[u8]) -> Result<()> {
    let flags = if object.is_register() { 0 } else { flag::REMOVED | flag::PRESENT };
    write(dataplane, object, key, &[], flags)
}

fn entry(object: &Object, record: &Record) -> Entry {
    let text = |field: &WireField, bytes: &[u8]| {
        let range = field.offset as usize..(field.offset + field.bytes) as usize;
        let bytes = bytes.get(range).unwrap_or_default();
        let number = bytes.iter().fold(0u128, |sum, byte| sum << 8 | u128::from(*byte));
        let member = field.enumeration.as_ref().and_then(|it| it.member(number));
        member.map_or_else(|| format_value(number, field.width, &field.name), str::to_owned)
    };
    let fields = |fields: &[WireField], bytes: &[u8]| {
        fields.iter().map(|it| (it.name.clone(), text(it, bytes))).collect()
    };
    let key = if object.is_register() {
        let index = record.key.first_chunk().copied().map_or(0, u32::from_be_bytes);
        vec![(INDEX.to_owned(), index.to_string())]
    } else {
        fields(&object.key, &record.key)
    };
    Entry { key, value: fields(&object.value, &record.value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use swish_protocol::objects::{Consistency, LastSettings, REGISTER, TABLE};

    fn field(name: &str, width: u32, offset: u32) -> WireField {
        let bytes = width.div_ceil(8);
        WireField { name: name.into(), width, offset, bytes, enumeration: None }
    }

    fn object(kind: &str) -> Object {
        let settings = LastSettings {
            consistency: Consistency::Ewo,
            group: "main".into(),
            group_number: 0,
            object: 0,
            first_record: 0,
            key_words: 1,
            value_words: 1,
        };
        let key = vec![field("source", 32, 0), field("port", 12, 4)];
        Object {
            name: "I.rules".into(),
            kind: kind.into(),
            size: 9,
            key: if kind == REGISTER { vec![] } else { key },
            key_bytes: if kind == REGISTER { 4 } else { 6 },
            value: vec![field("weight", 8, 0)],
            value_bytes: 1,
            settings,
        }
    }

    fn given(texts: &[(&str, &str)]) -> Vec<(String, String)> {
        texts.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect()
    }

    #[test]
    fn fields_are_read_by_name_in_any_order() {
        let table = object(TABLE);
        let all = given(&[("value.weight", "7"), ("port", "0x801"), ("key.source", "10.0.0.1")]);
        let bytes = (Some(vec![10, 0, 0, 1, 8, 1]), Some(vec![7]));
        assert_eq!(read(&table, &all).unwrap(), bytes);
        assert_eq!(read(&table, &[]).unwrap(), (None, None));
        let register = read(&object(REGISTER), &given(&[("index", "8")])).unwrap();
        assert_eq!(register, (Some(vec![0, 0, 0, 8]), None));
        let record =
            Record { key: bytes.0.unwrap(), value: vec![7], stamp: (1, 64), removed: false };
        let written = entry(&table, &record);
        assert_eq!(written.key, given(&[("source", "10.0.0.1"), ("port", "2049")]));
        assert_eq!(written.value, given(&[("weight", "7")]));
    }

    #[test]
    fn mistakes_are_named_with_their_remedy() {
        let refused = |kind: &str, texts: &[(&str, &str)], says: &str| {
            let error = read(&object(kind), &given(texts)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        refused(TABLE, &[("sauce", "1")], "source=… port=… weight=…");
        refused(TABLE, &[("source", "1")], "the key needs port=…");
        refused(TABLE, &[("source", "1"), ("source", "1")], "twice");
        refused(TABLE, &[("source", "x"), ("port", "1")], "source");
        refused(TABLE, &[("source", "1"), ("port", "4096")], "12 bits");
        refused(REGISTER, &[("index", "9")], "0 to 8");
    }
}

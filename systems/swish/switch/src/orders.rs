//! What operators read and write of registers, tables and sets, and read of counters and sketches,
//! over the control socket: fields by name, values as people write them.

use crate::cells::{Cells, Values};
use crate::keyed::{Held, INDEX, Keyed, are_members, entry, names, read, refuse};
use crate::records::{Object, Record, Written};
use dataplane::Dataplane;
use dataplane::value::parse_member;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use swish_protocol::lww::flag;
use switch_agent::{Error, Result};

/// The name of the request.
pub const OP: &str = "shared_order";

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
    /// Of [`Order::Set`], with SRO: after how many seconds without a packet the key is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_s: Option<u16>,
    /// Of [`Order::Set`], with SRO: a key that is there stays as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_absent: bool,
}

/// A key that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its fields.
    pub key: Vec<(String, String)>,
    /// Those of its value; of a set none.
    pub value: Vec<(String, String)>,
    /// After how many seconds without a packet it is over; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_s: Option<u16>,
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
    /// Of a write that asks that the key is absent: it is there, and stays as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// Of a removal: there was no such key, and nothing is done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
    /// What was read, or is there after the write; of `clear` what was there before. Of a counter
    /// or sketch without an index: the cells that are not zero.
    pub entries: Vec<Entry>,
}

/// How a value is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// See [`Ask::idle_s`].
    pub idle_s: Option<u16>,
    /// See [`Ask::if_absent`].
    pub if_absent: bool,
}

/// What is there after a write.
pub(crate) enum Done {
    /// It is made. Of a key that a packet has removed since, nothing is there.
    Set(Option<Held>),
    /// What was there before: the write asked that nothing is.
    Kept(Held),
}

/// A register, table or set on this switch, as operators read and write it.
pub(crate) trait Keys {
    /// What the program declares.
    fn keyed(&self) -> &Keyed;
    /// All keys that are there.
    fn all(&self) -> Result<Vec<Held>>;
    /// A key, if it is there.
    fn get(&self, key: &[u8]) -> Result<Option<Held>>;
    /// Writes a value.
    fn set(&self, key: &[u8], value: &[u8], how: How) -> Result<Done>;
    /// Removes keys; values of a register become zero.
    fn delete(&self, keys: &[&[u8]]) -> Result<()>;
    /// Keys that are removed, and still take a place.
    fn removed(&self) -> Result<u64>;
}

/// One with EWO.
struct LastWriter<'a> {
    dataplane: &'a Dataplane,
    object: &'a Object,
}

impl LastWriter<'_> {
    fn write(&self, key: &[u8], value: &[u8], flags: u32) -> Result<()> {
        let LastWriter { dataplane, object } = self;
        match object.write(dataplane, key, value, flags)? {
            Written::Done => Ok(()),
            Written::Full => refuse(
                object,
                &format!(
                    "it is full: {} keys, removed ones included until all switches have forgotten \
                     them; delete some, or compile the program with a larger table",
                    object.size
                ),
            ),
        }
    }
}

fn held(record: Record) -> Held {
    Held { key: record.key, value: record.value, idle_s: None }
}

impl Keys for LastWriter<'_> {
    fn keyed(&self) -> &Keyed {
        &self.object.keyed
    }

    fn all(&self) -> Result<Vec<Held>> {
        let all = self.object.records(self.dataplane)?;
        Ok(all.into_iter().filter(|it| !it.removed).map(held).collect())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Held>> {
        Ok(self.object.get(self.dataplane, key)?.map(held))
    }

    fn set(&self, key: &[u8], value: &[u8], how: How) -> Result<Done> {
        if how.idle_s.is_some() {
            let reason = "with Shared.EWO keys do not expire: leave --idle-s out, and delete the \
                          key later";
            return refuse(self.keyed(), reason);
        }
        if how.if_absent {
            let reason = "with Shared.EWO no switch decides for all: two of them may find the key \
                          absent. Leave --if-absent out: the last writer wins";
            return refuse(self.keyed(), reason);
        }
        self.write(key, value, 0)?;
        Ok(Done::Set(self.get(key)?))
    }

    fn delete(&self, keys: &[&[u8]]) -> Result<()> {
        let flags = if self.object.is_register() { 0 } else { flag::REMOVED | flag::PRESENT };
        keys.iter().try_for_each(|key| self.write(key, &[], flags))
    }

    fn removed(&self) -> Result<u64> {
        Ok(self.object.counts(self.dataplane)?.removed)
    }
}

/// Those with EWO of a program.
pub(crate) fn last_writers<'a>(
    dataplane: &'a Dataplane,
    objects: &'a [Object],
) -> Vec<Box<dyn Keys + 'a>> {
    let each =
        |object: &'a Object| -> Box<dyn Keys + 'a> { Box::new(LastWriter { dataplane, object }) };
    objects.iter().map(each).collect()
}

/// Answers a request. `None`: it is another one.
pub(crate) fn request(
    dataplane: &Dataplane,
    keys: &[Box<dyn Keys + '_>],
    op: &str,
    request: &Value,
) -> Option<Result<Value>> {
    let other = |error: serde_json::Error| Error::Other(format!("not a request: {error}"));
    let answer = |ask: Ask| {
        let cells = Cells::all(dataplane)?;
        let answer = match cells.iter().find(|it| is_named(it.name(), &ask.object)) {
            Some(cells) => answer_cells(dataplane, cells, &ask)?,
            None => answer(find(keys, &cells, &ask.object)?, &ask)?,
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
            "only packets change it, operators only read it; with Shared.SDW and a period in the \
             program it begins anew by itself",
        );
    }
    let index = match &ask.fields[..] {
        [] => None,
        [(name, text)] if name == INDEX || name == "key.index" => {
            Some(parse_member(INDEX, text, 32, None)? as u32)
        }
        _ => return cells.refuse("give index=…, or no field for all cells that are not zero"),
    };
    if index.is_some_and(|it| it >= cells.size()) {
        return cells.refuse(&format!("index: its cells are 0 to {}", cells.size() - 1));
    }
    let Values { window, cells: values } = cells.read(dataplane)?;
    let wanted = (0..).zip(values).filter(|(at, value)| match index {
        Some(index) => *at == index,
        None => *value != 0,
    });
    let entry = |(at, value): (u32, u32)| Entry {
        key: vec![(INDEX.to_owned(), at.to_string())],
        value: vec![("value".to_owned(), value.to_string())],
        idle_s: None,
    };
    Ok(Answer {
        object: cells.name().to_owned(),
        kind: cells.kind().to_owned(),
        size: cells.size(),
        window,
        removed: 0,
        kept: false,
        absent: false,
        entries: wanted.map(entry).collect(),
    })
}

fn answer(keys: &dyn Keys, ask: &Ask) -> Result<Answer> {
    let object = keys.keyed();
    let (key, value) = read(object, &ask.fields)?;
    if ask.order != Order::Set && value.is_some() {
        return refuse(object, "give the fields of the key only");
    }
    if ask.order != Order::Set && (ask.idle_s.is_some() || ask.if_absent) {
        return refuse(object, "--idle-s and --if-absent are options of `set` only");
    }
    if ask.if_absent && object.is_register() {
        return refuse(object, "no value of a register is absent: leave --if-absent out");
    }
    let (mut kept, mut absent) = (false, false);
    let found = match (ask.order, &key) {
        (Order::Get, None) => keys.all()?,
        (Order::Clear, None) => {
            let all = keys.all()?;
            keys.delete(&all.iter().map(|it| it.key.as_slice()).collect::<Vec<_>>())?;
            all
        }
        (Order::Clear, Some(_)) => {
            return refuse(object, "`clear` takes no key; `delete` removes one");
        }
        (Order::Set | Order::Delete, None) => {
            return refuse(object, &format!("give the fields of the key: {}", names(object)));
        }
        (Order::Get, Some(key)) => one(object, key, keys.get(key)?),
        (Order::Delete, Some(key)) => {
            absent = !object.is_register() && keys.get(key)?.is_none();
            if !absent {
                keys.delete(&[key])?;
            }
            vec![]
        }
        (Order::Set, Some(key)) => {
            let value = match value {
                Some(value) => value,
                None if object.value.is_empty() => vec![],
                None => return refuse(object, &format!("give the fields: {}", names(object))),
            };
            are_members(object, key, &value)?;
            let how = How { idle_s: ask.idle_s, if_absent: ask.if_absent };
            match keys.set(key, &value, how)? {
                Done::Set(held) => one(object, key, held),
                Done::Kept(held) => {
                    kept = true;
                    vec![held]
                }
            }
        }
    };
    Ok(Answer {
        object: object.name.clone(),
        kind: object.kind.clone(),
        size: object.size,
        window: None,
        removed: keys.removed()?,
        kept,
        absent,
        entries: found.iter().map(|it| entry(object, it)).collect(),
    })
}

/// (A register's value that was never written is zero.)
fn one(object: &Keyed, key: &[u8], found: Option<Held>) -> Vec<Held> {
    let zero = || object.is_register().then(|| object.zero(key));
    found.or_else(zero).into_iter().collect()
}

fn find<'a>(
    keys: &'a [Box<dyn Keys + '_>],
    cells: &[Cells<'_>],
    name: &str,
) -> Result<&'a dyn Keys> {
    if let Some(found) = keys.iter().find(|it| is_named(&it.keyed().name, name)) {
        return Ok(found.as_ref());
    }
    let names = keys.iter().map(|it| it.keyed().name.as_str());
    let names: Vec<&str> = names.chain(cells.iter().map(Cells::name)).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(Error::Other(format!(
        "{name:?}: no shared variable has this name; the program has: {known}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use manifest::{EnumMember, Enumeration, WireField};
    use std::cell::RefCell;
    use swish_protocol::objects::TABLE;

    /// A table from a byte to an enum of two members, and the keys that were removed.
    struct Fake(Keyed, RefCell<Vec<Vec<u8>>>);

    impl Keys for Fake {
        fn keyed(&self) -> &Keyed {
            &self.0
        }

        fn all(&self) -> Result<Vec<Held>> {
            Ok(vec![])
        }

        fn get(&self, key: &[u8]) -> Result<Option<Held>> {
            let held = Held { key: key.to_vec(), value: vec![9], idle_s: None };
            Ok((key == [1]).then_some(held))
        }

        fn set(&self, key: &[u8], value: &[u8], _: How) -> Result<Done> {
            Ok(Done::Set(Some(Held { key: key.to_vec(), value: value.to_vec(), idle_s: None })))
        }

        fn delete(&self, keys: &[&[u8]]) -> Result<()> {
            self.1.borrow_mut().extend(keys.iter().map(|it| it.to_vec()));
            Ok(())
        }

        fn removed(&self) -> Result<u64> {
            Ok(0)
        }
    }

    fn fake() -> Fake {
        let field = |name: &str, enumeration| WireField {
            name: name.into(),
            width: 8,
            offset: 0,
            bytes: 1,
            enumeration,
        };
        let member =
            |name: &str, value: &str| EnumMember { name: name.into(), value: value.into() };
        let members = vec![member("OPEN", "0"), member("CLOSED", "1")];
        let phase = Enumeration { name: "phase_t".into(), members };
        let keyed = Keyed {
            name: "ingress.connections".into(),
            kind: TABLE.into(),
            size: 8,
            key: vec![field("port", None)],
            key_bytes: 1,
            value: vec![field("phase", Some(phase))],
            value_bytes: 1,
        };
        Fake(keyed, RefCell::default())
    }

    fn ask(order: Order, fields: &[(&str, &str)]) -> Ask {
        let fields = fields.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect();
        let object = "connections".into();
        Ask { op: OP.into(), order, object, fields, idle_s: None, if_absent: false }
    }

    #[test]
    fn a_value_that_no_member_has_is_refused() {
        let fake = fake();
        let set = |phase| answer(&fake, &ask(Order::Set, &[("port", "1"), ("phase", phase)]));
        let error = set("9").expect_err("no member").to_string();
        assert!(error.contains("value.phase: no member of phase_t is 9: OPEN, CLOSED"), "{error}");
        assert!(set("1").is_ok() && set("CLOSED").is_ok());
        // A packet may have written it.
        let found = answer(&fake, &ask(Order::Get, &[("port", "1")])).expect("it reads");
        assert_eq!(found.entries[0].value[0].1, "9");
    }

    #[test]
    fn a_removal_says_that_there_was_no_such_key() {
        let fake = fake();
        let delete = |port| answer(&fake, &ask(Order::Delete, &[("port", port)])).expect("done");
        assert!(!delete("1").absent);
        assert!(delete("2").absent);
        assert_eq!(*fake.1.borrow(), [vec![1]], "only what was there is removed");
    }
}

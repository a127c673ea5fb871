//! Registers, tables and sets as programs declare them: keys and values between people's text and
//! wire form. It must not know where they are kept.

use crate::orders::Entry;
use dataplane::value::{format_value, parse_member};
use manifest::{Layout, StateObject, WireField};
use swish_protocol::objects::{REGISTER, SET, SYSTEM, TABLE};
use switch_agent::{Error, Result};

/// The key of a register, counter or sketch.
pub(crate) const INDEX: &str = "index";

/// A register, table or set.
#[derive(Clone, Debug, PartialEq)]
pub struct Keyed {
    /// As the program has it.
    pub name: String,
    /// The extern.
    pub kind: String,
    /// Keys, or values of a register, at the most.
    pub size: u32,
    /// Fields of the key; a register has none.
    pub key: Vec<WireField>,
    /// Bytes of the key.
    pub key_bytes: u32,
    /// Fields of the value; a set has none.
    pub value: Vec<WireField>,
    /// Bytes of the value.
    pub value_bytes: u32,
}

/// A key that is there, and its value, in wire form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Bytes of the key.
    pub key: Vec<u8>,
    /// Bytes of the value.
    pub value: Vec<u8>,
    /// After how many seconds without a packet it is over; none: never.
    pub idle_s: Option<u16>,
}

/// Is it a register, table or set?
pub fn is_keyed(object: &StateObject) -> bool {
    object.system == SYSTEM && [REGISTER, TABLE, SET].contains(&object.kind.as_str())
}

impl Keyed {
    /// What a manifest says of one.
    pub fn of(object: &StateObject) -> Keyed {
        let (value, value_bytes) = match &object.value {
            Layout::Fields { fields, bytes, .. } => (fields.clone(), *bytes),
            Layout::Slots { .. } => (vec![], 0),
        };
        Keyed {
            name: object.name.clone(),
            kind: object.kind.clone(),
            size: object.capacity,
            key: object.key.clone(),
            key_bytes: object.key_bytes,
            value,
            value_bytes,
        }
    }

    /// Whether keys are numbers of values, which are all there.
    pub fn is_register(&self) -> bool {
        self.kind == REGISTER
    }

    /// A register's value that was never written.
    pub(crate) fn zero(&self, key: &[u8]) -> Held {
        Held { key: key.to_vec(), value: vec![0; self.value_bytes as usize], idle_s: None }
    }
}

pub(crate) fn refuse<T>(object: &Keyed, reason: &str) -> Result<T> {
    Err(Error::Other(format!("{} {}: {reason}", object.kind, object.name)))
}

/// As errors name an object's fields.
pub(crate) fn names(object: &Keyed) -> String {
    let index = object.is_register().then_some(INDEX);
    let names = object.key.iter().chain(&object.value).map(|it| it.name.as_str());
    index.into_iter().chain(names).map(|it| format!("{it}=…")).collect::<Vec<_>>().join(" ")
}

pub(crate) type Bytes = Option<Vec<u8>>;

/// Key and value in wire form, of the fields that are given; `None`: none is given.
pub(crate) fn read(object: &Keyed, given: &[(String, String)]) -> Result<(Bytes, Bytes)> {
    for (name, _) in given {
        let is = |fields: &[WireField], name: &str| fields.iter().any(|it| it.name == name);
        let is_key = |name: &str| is(&object.key, name) || object.is_register() && name == INDEX;
        let is_known = match name.split_once('.') {
            Some(("key", name)) => is_key(name),
            Some(("value", name)) => is(&object.value, name),
            _ => is_key(name) || is(&object.value, name),
        };
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
    object: &Keyed,
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

/// Refuses values that no member of their enum has. (Packets may have written such ones: they can
/// be read and removed.)
pub(crate) fn are_members(object: &Keyed, key: &[u8], value: &[u8]) -> Result<()> {
    let parts = [("key", &object.key, key), ("value", &object.value, value)];
    for (part, fields, bytes) in parts {
        for field in fields {
            let Some(known) = &field.enumeration else { continue };
            let number = number(field, bytes);
            if known.member(number).is_none() {
                let names = known.members.iter().map(|it| it.name.as_str());
                let names = names.collect::<Vec<_>>().join(", ");
                let (name, of) = (&field.name, &known.name);
                let reason = format!("{part}.{name}: no member of {of} is {number}: {names}");
                return refuse(object, &reason);
            }
        }
    }
    Ok(())
}

/// A field's bytes as a number.
fn number(field: &WireField, bytes: &[u8]) -> u128 {
    let range = field.offset as usize..(field.offset + field.bytes) as usize;
    let bytes = bytes.get(range).unwrap_or_default();
    bytes.iter().fold(0u128, |sum, byte| sum << 8 | u128::from(*byte))
}

pub(crate) fn entry(object: &Keyed, held: &Held) -> Entry {
    let text = |field: &WireField, bytes: &[u8]| {
        let number = number(field, bytes);
        let member = field.enumeration.as_ref().and_then(|it| it.member(number));
        member.map_or_else(|| format_value(number, field.width, &field.name), str::to_owned)
    };
    let fields = |fields: &[WireField], bytes: &[u8]| {
        fields.iter().map(|it| (it.name.clone(), text(it, bytes))).collect()
    };
    let key = if object.is_register() {
        let index = held.key.first_chunk().copied().map_or(0, u32::from_be_bytes);
        vec![(INDEX.to_owned(), index.to_string())]
    } else {
        fields(&object.key, &held.key)
    };
    Entry { key, value: fields(&object.value, &held.value), idle_s: held.idle_s }
}

#[cfg(test)]
mod tests {
    use super::*;
    use swish_protocol::objects::{REGISTER, TABLE};

    fn field(name: &str, width: u32, offset: u32) -> WireField {
        let bytes = width.div_ceil(8);
        WireField { name: name.into(), width, offset, bytes, enumeration: None }
    }

    fn object(kind: &str) -> Keyed {
        let key = vec![field("source", 32, 0), field("port", 12, 4)];
        Keyed {
            name: "I.rules".into(),
            kind: kind.into(),
            size: 9,
            key: if kind == REGISTER { vec![] } else { key },
            key_bytes: if kind == REGISTER { 4 } else { 6 },
            value: vec![field("weight", 8, 0)],
            value_bytes: 1,
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
        let held = Held { key: bytes.0.unwrap(), value: vec![7], idle_s: Some(30) };
        let written = entry(&table, &held);
        assert_eq!(written.idle_s, Some(30));
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

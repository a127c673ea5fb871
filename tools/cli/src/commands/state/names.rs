//! The objects' names and fields, and the keys that a command line means.

use super::Shown;
use command_line::state::{Record, Source};
use dataplane::value::{format_value, parse_member};
use manifest::{Manifest, StateObject, WireField};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The objects' names and fields, as far as a manifest tells.
#[derive(Default)]
pub(super) struct Names {
    pub(super) manifest: Option<Manifest>,
    /// Those that are found somewhere.
    pub(super) objects: Vec<StateObject>,
}

/// Where the systems' objects are found.
pub(super) fn sources() -> impl Iterator<Item = &'static dyn Source> {
    systems::command_line().iter().filter_map(|system| system.state())
}

impl Names {
    pub(super) fn read(path: Option<&Path>) -> Result<Names, String> {
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

    pub(super) fn objects(&self) -> impl Iterator<Item = &StateObject> {
        self.objects.iter()
    }

    pub(super) fn of(&self, id: u16) -> Option<&StateObject> {
        self.objects().find(|object| object.id == id)
    }

    /// Where to look: with a manifest, only where its objects are.
    pub(super) fn sources(&self) -> impl Iterator<Item = &'static dyn Source> {
        sources().filter(|source| {
            let has = |object: &StateObject| source.has(object).unwrap_or(false);
            self.manifest.is_none() || self.objects().any(has)
        })
    }

    /// The number of the object that is meant.
    pub(super) fn number(&self, text: &str) -> Result<u16, String> {
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

    pub(super) fn fields(fields: &[WireField], bytes: &[u8]) -> BTreeMap<String, String> {
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

    pub(super) fn show(&self, record: &Record) -> Shown {
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
    pub(super) fn matches(&self, record: &Record, wanted: &KeyPart) -> Result<bool, String> {
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
    pub(super) fn whole_keys(
        &self,
        wanted: &KeyPart,
        object: Option<u16>,
    ) -> Option<Result<Keys, String>> {
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
    pub(super) fn check(&self, wanted: &KeyPart, object: Option<u16>) -> Result<(), String> {
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
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| (*byte as char).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?)).collect()
}

/// A key, or some of its fields.
pub(super) enum KeyPart {
    Hex(Vec<u8>),
    Fields(Vec<(String, String)>),
}

impl KeyPart {
    pub(super) fn parse(text: &str) -> Result<KeyPart, String> {
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

/// Objects' numbers, and keys.
pub(super) type Keys = Vec<(u16, Vec<u8>)>;

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
        let guests = manifest::EnumMember { name: "GUESTS".to_owned(), value: "42".to_owned() };
        let network = manifest::Enumeration { name: "Network".to_owned(), members: vec![guests] };
        let vlan = WireField {
            name: "vlan".to_owned(),
            width: 12,
            offset: 0,
            bytes: 2,
            enumeration: Some(network),
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
        assert_eq!(super::super::words_with(&named.key, &named.key_names), "vlan=GUESTS");
        let wanted = KeyPart::parse("vlan=GUESTS").expect("a key");
        assert_eq!(names.matches(&record, &wanted), Ok(true));
        let wanted = KeyPart::parse("vlan=0x2a").expect("a key");
        assert_eq!(names.matches(&record, &wanted), Ok(true));
        assert_eq!(names.whole_keys(&wanted, None), Some(Ok(vec![(3, vec![0, 42])])));
        assert_eq!(names.number("toy"), Ok(3));
    }
}

//! Names for object numbers, keys and values: from the program's manifest.

use crate::event::Field;
use manifest::{Layout, Manifest, StateObject, WireField};
use std::collections::{BTreeMap, BTreeSet};

/// The state objects of a program.
#[derive(Clone, Debug, Default)]
pub struct Objects(BTreeMap<u16, StateObject>);

impl Objects {
    /// Those of a manifest.
    pub fn new(manifest: &Manifest) -> Objects {
        Objects::from_states(manifest.state_objects.iter().cloned())
    }

    /// These.
    pub fn from_states(states: impl IntoIterator<Item = StateObject>) -> Objects {
        Objects(states.into_iter().map(|state| (state.id, state)).collect())
    }

    /// The names of all fields of keys.
    pub fn key_fields(&self) -> BTreeSet<&str> {
        self.0.values().flat_map(|state| &state.key).map(|field| field.name.as_str()).collect()
    }

    /// An object's name.
    pub fn name(&self, id: u16) -> Option<&str> {
        self.0.get(&id).map(|state| state.name.as_str())
    }

    /// How many bytes an object's keys and values have; none if it has no such values.
    pub fn lengths(&self, id: u16) -> Option<(usize, usize)> {
        let state = self.0.get(&id)?;
        let Layout::Fields { bytes, .. } = &state.value else { return None };
        Some((state.key_bytes as usize, *bytes as usize))
    }

    /// A key's fields; none if the object is unknown, or the key is not as long as its keys.
    pub fn key(&self, id: u16, bytes: &[u8]) -> Option<Vec<Field>> {
        let state = self.0.get(&id)?;
        (bytes.len() == state.key_bytes as usize).then(|| fields(&state.key, bytes))
    }

    /// A value's fields, likewise.
    pub fn value(&self, id: u16, bytes: &[u8]) -> Option<Vec<Field>> {
        let Layout::Fields { fields: known, bytes: size, .. } = &self.0.get(&id)?.value else {
            return None;
        };
        (bytes.len() == *size as usize).then(|| fields(known, bytes))
    }
}

fn fields(fields: &[WireField], bytes: &[u8]) -> Vec<Field> {
    let shown = |field: &WireField| {
        let range =
            field.offset as usize..(field.offset as usize).saturating_add(field.bytes as usize);
        let bytes = bytes.get(range).unwrap_or_default();
        let name = field.name.clone();
        if bytes.len() > 16 {
            return Field { name, value: hex(bytes), member: None };
        }
        let number = bytes.iter().fold(0u128, |sum, byte| sum << 8 | u128::from(*byte));
        let value = dataplane::value::format_value(number, field.width, &name);
        let member = field.enumeration.as_ref().and_then(|it| it.member(number));
        Field { name, value, member: member.map(str::to_owned) }
    };
    fields.iter().map(shown).collect()
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use manifest::{EnumMember, Enumeration};

    #[test]
    fn a_field_of_an_enum_has_the_name_of_its_member() {
        let udp = EnumMember { name: "UDP".to_owned(), value: "17".to_owned() };
        let protocol = Enumeration { name: "Protocol".to_owned(), members: vec![udp] };
        let field = |name: &str, offset, enumeration| WireField {
            name: name.to_owned(),
            width: 8,
            offset,
            bytes: 1,
            enumeration,
        };
        let known = [field("protocol", 0, Some(protocol)), field("ttl", 1, None)];
        let shown = |bytes: &[u8]| crate::fields(&fields(&known, bytes));
        assert_eq!(shown(&[17, 17]), "protocol=UDP ttl=17");
        assert_eq!(shown(&[6, 1]), "protocol=6 ttl=1", "no member has this value");
    }
}

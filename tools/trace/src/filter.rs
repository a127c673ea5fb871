//! Which events are shown.

use crate::event::{Body, Event, known_names};
use crate::objects::Objects;
use crate::system::Systems;

/// An event passes if each part that is given has an alternative that it meets.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    types: Vec<String>,
    keys: Vec<String>,
    switch_ids: Vec<u32>,
    shards: Vec<u16>,
}

/// A type or a field that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(String);

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

/// The name of a type as events have it; `Err`: there is no such type.
pub fn type_named(given: &str, systems: Systems) -> Result<String, Fault> {
    let mut names = known_names(systems);
    names.extend(["MALFORMED", "CUT"].map(str::to_owned));
    let name = given.to_ascii_uppercase().replace('-', "_");
    match name.parse::<u8>() {
        Ok(number) => Ok(format!("TYPE_{number}")),
        Err(_) if names.contains(&name) => Ok(name),
        Err(_) => Err(Fault(format!(
            "{given:?} is not a type of message; the types are: {}",
            names.join(", ")
        ))),
    }
}

/// Whether a text is taken for the digits that a key begins with.
fn hexadecimal(wanted: &str) -> Option<String> {
    let digits = wanted.strip_prefix("0x").unwrap_or(wanted).to_ascii_lowercase();
    (digits.len() >= 2 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digits)
}

impl Filter {
    /// `types` are names (`update`, `LEASE_GRANT`, `chain-data`, `malformed`, `cut`) or numbers of
    /// types that have none; `keys` are parts of keys: a field's value (`10.1.0.10`, `UDP`),
    /// `field=value`, or hexadecimal digits that the key begins with.
    pub fn new(
        systems: Systems,
        types: &[String],
        keys: &[String],
        switch_ids: &[u32],
        shards: &[u16],
    ) -> Result<Filter, Fault> {
        let chosen =
            types.iter().map(|given| type_named(given, systems)).collect::<Result<_, _>>()?;
        Ok(Filter {
            types: chosen,
            keys: keys.to_vec(),
            switch_ids: switch_ids.to_vec(),
            shards: shards.to_vec(),
        })
    }

    /// That each wanted key can be one of these objects'; `Err` says of one that cannot why nothing
    /// would ever pass.
    pub fn check(&self, objects: &Objects) -> Result<(), Fault> {
        let known = objects.key_fields();
        let names = known.iter().copied().collect::<Vec<_>>().join(", ");
        for wanted in &self.keys {
            match wanted.split_once('=') {
                Some((field, _)) if known.contains(field) => {}
                Some((field, _)) if !known.is_empty() => {
                    return Err(Fault(format!(
                        "--key {wanted}: no key has a field {field:?}; there are {names}"
                    )));
                }
                None if !known.is_empty() || hexadecimal(wanted).is_some() => {}
                _ => {
                    let remedy = "name the program's manifest (--manifest nat.json), or write the hexadecimal digits that the key begins with";
                    return Err(Fault(format!(
                        "--key {wanted}: without a manifest keys have no fields; {remedy}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Is the event to be shown?
    pub fn passes(&self, event: &Event) -> bool {
        let (key, switch_id, shard) = match &event.body {
            Body::Message(message) => (Some(message), message.switch_id, message.shard),
            Body::Chain(chain) => (None, None, Some(chain.shard)),
            _ => (None, None, None),
        };
        let is_key = |wanted: &String| {
            key.is_some_and(|message| {
                let named = message.key_fields.iter().flatten();
                named.into_iter().any(|field| {
                    let has = |value: &str| {
                        value == field.value || field.member.as_deref() == Some(value)
                    };
                    has(wanted)
                        || wanted
                            .split_once('=')
                            .is_some_and(|(name, value)| name == field.name && has(value))
                }) || hexadecimal(wanted).is_some_and(|digits| message.key.starts_with(&digits))
            })
        };
        (self.types.is_empty() || self.types.iter().any(|name| name == event.type_name()))
            && (self.keys.is_empty() || self.keys.iter().any(is_key))
            && (self.switch_ids.is_empty()
                || switch_id.is_some_and(|id| self.switch_ids.contains(&id)))
            && (self.shards.is_empty() || shard.is_some_and(|shard| self.shards.contains(&shard)))
    }
}

//! Which events are shown.

use crate::event::{Body, Event, known_names};

/// An event passes if each part that is given has an alternative that it meets.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    types: Vec<String>,
    keys: Vec<String>,
    switch_ids: Vec<u32>,
    shards: Vec<u16>,
}

/// A type that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(String);

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

impl Filter {
    /// `types` are names (`update`, `LEASE_GRANT`, `chain-data`, `malformed`, `cut`) or numbers of types that have none; `keys` are parts of keys:
    /// a field's value (`10.1.0.10`), `field=value`, or hexadecimal digits that the key begins with.
    pub fn new(types: &[String], keys: &[String], switch_ids: &[u32], shards: &[u16]) -> Result<Filter, Fault> {
        let mut names = known_names();
        names.extend(["MALFORMED", "CUT"].map(str::to_owned));
        let mut chosen = vec![];
        for given in types {
            let name = given.to_ascii_uppercase().replace('-', "_");
            match name.parse::<u8>() {
                Ok(number) => chosen.push(format!("TYPE_{number}")),
                Err(_) if names.contains(&name) => chosen.push(name),
                Err(_) => {
                    return Err(Fault(format!("{given:?} is no type of message; known: {}", names.join(", "))));
                }
            }
        }
        Ok(Filter { types: chosen, keys: keys.to_vec(), switch_ids: switch_ids.to_vec(), shards: shards.to_vec() })
    }

    /// Is the event to be shown?
    pub fn passes(&self, event: &Event) -> bool {
        let (key, switch_id, shard) = match &event.body {
            Body::Message(message) => (Some(message), Some(message.switch_id), Some(message.shard)),
            Body::Chain(chain) => (None, None, Some(chain.shard)),
            _ => (None, None, None),
        };
        let is_key = |wanted: &String| {
            key.is_some_and(|message| {
                let named = message.key_fields.iter().flatten();
                let digits = wanted.strip_prefix("0x").unwrap_or(wanted).to_ascii_lowercase();
                let hexadecimal = digits.len() >= 2 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                named.into_iter().any(|field| {
                    field.value == *wanted
                        || wanted.split_once('=') == Some((field.name.as_str(), field.value.as_str()))
                }) || hexadecimal && message.key.starts_with(&digits)
            })
        };
        (self.types.is_empty() || self.types.iter().any(|name| name == event.type_name()))
            && (self.keys.is_empty() || self.keys.iter().any(is_key))
            && (self.switch_ids.is_empty() || switch_id.is_some_and(|id| self.switch_ids.contains(&id)))
            && (self.shards.is_empty() || shard.is_some_and(|shard| self.shards.contains(&shard)))
    }
}

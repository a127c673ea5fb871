//! The shared variables of a manifest, as `swish_protocol::memory` adds up what they take.

use dataplane::{Error, Result};
use manifest::{Layout, Manifest, StateObject};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use swish_protocol::memory::{Memory, Settings, Variable};
use swish_protocol::objects::{Consistency, SYSTEM, StrongSettings};

/// The variables of a program, in the order of its manifest.
///
/// # Errors
/// The manifest is of another version.
pub fn variables(manifest: &Manifest) -> std::result::Result<Vec<Variable>, serde_json::Error> {
    let own = manifest.state_objects.iter().filter(|it| it.system == SYSTEM);
    own.map(variable).collect()
}

fn variable(object: &StateObject) -> std::result::Result<Variable, serde_json::Error> {
    let consistency: Consistency =
        serde_json::from_value(object.settings.get("consistency").cloned().unwrap_or_default())?;
    let settings = match consistency {
        Consistency::Sro => Settings::Strong(read::<StrongSettings>(object)?.timed),
        // (Only registers, tables and sets have records.)
        Consistency::Ewo if object.settings.contains_key("first_record") => {
            Settings::Last(read(object)?)
        }
        Consistency::Ewo | Consistency::Sdw => Settings::Cells(read(object)?),
    };
    let value_bytes = match &object.value {
        Layout::Fields { bytes, .. } => *bytes,
        Layout::Slots { .. } => 0,
    };
    Ok(Variable {
        // (All records with EWO are in one map; what each object has of its own is called as it.)
        map: match settings {
            Settings::Last(_) => object.name.replace('.', "_"),
            _ => object.map.clone(),
        },
        size: object.capacity,
        key_bytes: if object.key.is_empty() { 0 } else { object.key_bytes },
        value_bytes,
        settings,
    })
}

fn read<T: DeserializeOwned>(object: &StateObject) -> std::result::Result<T, serde_json::Error> {
    serde_json::from_value(Value::Object(object.settings.clone()))
}

/// Bytes of maps that are there for variables with EWO, by the names of their groups.
///
/// # Errors
/// The manifest is of another version.
pub fn eventual_bytes(manifest: &Manifest) -> Result<BTreeMap<String, u64>> {
    let variables = variables(manifest).map_err(|error| Error::Value {
        what: "the settings of shared variables in the manifest".into(),
        text: manifest.program.clone(),
        reason: format!("{error}: compile the program again, with this version"),
    })?;
    let mut found = BTreeMap::new();
    for (variable, bytes) in variables.iter().zip(Memory::of(&variables).of_variables) {
        let group = match &variable.settings {
            Settings::Cells(it) if it.consistency == Consistency::Ewo => &it.group,
            Settings::Last(it) => &it.group,
            _ => continue,
        };
        *found.entry(group.clone()).or_default() += bytes;
    }
    Ok(found)
}

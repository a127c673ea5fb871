//! RedPlane's state objects, read from a program's manifest.

use crate::MOST_SNAPSHOT_KEY_BYTES;
use manifest::{Layout, Manifest, Settings, StateObject, WireField};
use serde::{Deserialize, Serialize};

/// The system's name in a manifest.
pub const SYSTEM: &str = "redplane";
/// The P4 extern of [`FlowState`].
pub const FLOW_STATE: &str = "FlowState";
/// The P4 extern of [`SnapshotState`].
pub const SNAPSHOT_STATE: &str = "SnapshotState";

/// Words of the records that a batch has room for: a group is in one batch.
pub const MOST_GROUP_WORDS: u32 = (wire::MOST_RECORDS_BYTES / 8) as u32;

/// Words of an update's record.
pub const fn record_words(key_bytes: u32, value_bytes: u32) -> u32 {
    (wire::RECORD_HEADER_BYTES / 8) as u32 + key_bytes.div_ceil(8) + value_bytes.div_ceil(8)
}

/// `Consistency` in stateplane/redplane.p4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// The state is in this switch alone.
    Local,
    /// An output waits until the update that it depends on is durable.
    Linearizable,
    /// Outputs do not wait; a failure may take back the newest updates.
    Asynchronous,
}

impl Consistency {
    /// In the order of the P4 enum: the position is the number in C. A new mode gets its line here
    /// and in the three properties below, of which C has the modes as sets.
    pub const ALL: [Consistency; 3] =
        [Consistency::Local, Consistency::Linearizable, Consistency::Asynchronous];

    /// Its name in programs.
    pub const fn p4_name(self) -> &'static str {
        match self {
            Consistency::Local => "LOCAL",
            Consistency::Linearizable => "LINEARIZABLE",
            Consistency::Asynchronous => "ASYNCHRONOUS",
        }
    }

    /// Is the state in the store?
    pub const fn is_replicated(self) -> bool {
        !matches!(self, Consistency::Local)
    }

    /// Does a packet that sets the state wait until the update is durable?
    pub const fn updates_wait(self) -> bool {
        matches!(self, Consistency::Linearizable)
    }

    /// Does a packet that reads the state wait until the update that it saw is durable?
    pub const fn reads_wait(self) -> bool {
        matches!(self, Consistency::Linearizable)
    }
}

/// `Allocator` in stateplane/redplane.p4: what gives a new flow its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allocator {
    /// Nothing: zero.
    Zero,
    /// A NAT's pool of addresses and ports.
    NatPorts,
    /// A load balancer's backends.
    Backends,
}

/// `Overdue` in stateplane/redplane.p4: what becomes of packets while a snapshot is overdue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overdue {
    /// They are dropped.
    Drop,
    /// The program marks them.
    Mark,
    /// Nothing.
    Continue,
}

/// `Merge` in stateplane/redplane.p4: how the store makes one array of slots of those of several
/// switches that count for one key at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Merge {
    /// Each slot is the sum: counts.
    Sum,
    /// The largest: highest marks.
    Max,
    /// The bits that any has: Bloom filters.
    Or,
}

/// Bytes of a switch's number. The store puts it behind a key for which several switches count.
pub const CONTRIBUTOR_BYTES: usize = 4;
/// Longest key of an object that is merged.
pub const MOST_MERGED_KEY_BYTES: usize = MOST_SNAPSHOT_KEY_BYTES - CONTRIBUTOR_BYTES;
/// Bits of a time window's number, at least, of an object whose contributions are merged: these may
/// be of windows far apart, and RFC 1982's order is one only within half of the range.
pub const LEAST_WINDOW_BITS: u32 = 32;

impl Merge {
    /// In the order of the P4 enum behind `NONE`.
    pub const ALL: [Merge; 3] = [Merge::Sum, Merge::Max, Merge::Or];

    /// Its name in programs.
    pub const fn p4_name(self) -> &'static str {
        match self {
            Merge::Sum => "SUM",
            Merge::Max => "MAX",
            Merge::Or => "OR",
        }
    }
}

/// Settings of a FlowState object in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowSettings {
    /// When outputs leave.
    pub consistency: Consistency,
    /// Where a new flow's value comes from.
    pub allocator: Allocator,
    /// So many bytes of a key, from its first, pick its shard. `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard_bytes: Option<u32>,
    /// What a packet sets in several such objects is one update: its packets wait in the switch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub grouped: bool,
}

/// Settings of a SnapshotState object in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotSettings {
    /// Time between two snapshots of a key; 0: none, the object is local.
    pub period_us: u32,
    /// What a failure may take back at the most.
    pub epsilon_us: u32,
    /// What becomes of packets after that.
    pub overdue: Overdue,
    /// The program calls `begin`: the last slot is the number of the window that the others are of.
    pub windows: bool,
    /// Several switches count for a key at the same time, and the store merges their slots. `None`:
    /// a key is one switch's at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<Merge>,
}

impl SnapshotSettings {
    /// Those of a SnapshotState.
    ///
    /// # Errors
    /// They are not as this version writes them.
    pub fn of(object: &StateObject) -> Result<SnapshotSettings, ObjectError> {
        settings(object)
    }
}

/// A FlowState object: a struct for each flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowState {
    /// As the manifest describes it.
    pub object: StateObject,
    /// Fields of the value.
    pub value: Vec<WireField>,
    /// Sum over `value`.
    pub value_bytes: u32,
    /// Of the value in the map's value; `struct sp_flow_entry_head` and the key stand before it.
    pub value_offset: u32,
    /// What only RedPlane reads.
    pub settings: FlowSettings,
}

/// A SnapshotState object: slots for each key, of which the switch sends snapshots
/// (systems/redplane/docs/snapshots.md).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotState {
    /// As the manifest describes it.
    pub object: StateObject,
    /// Of each key.
    pub slots: u32,
    /// Of a slot's value, in bits.
    pub width: u32,
    /// Of a slot on the wire: 4 or 8.
    pub slot_bytes: u32,
    /// What only RedPlane reads.
    pub settings: SnapshotSettings,
}

/// An object of RedPlane's that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("state object {name}: {reason}; compile the program again with `stateplane compile`")]
pub struct ObjectError {
    /// The object's name.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

impl FlowState {
    /// The object, if it is a FlowState.
    ///
    /// # Errors
    /// It is one, but not as this version writes it.
    pub fn of(object: &StateObject) -> Result<Option<FlowState>, ObjectError> {
        if !is_kind(object, FLOW_STATE) {
            return Ok(None);
        }
        let Layout::Fields { fields, bytes, offset } = &object.value else {
            return Err(fault(object, "its value is not a struct"));
        };
        let (value, value_bytes, value_offset) = (fields.clone(), *bytes, *offset);
        let settings = settings(object)?;
        Ok(Some(FlowState { object: object.clone(), value, value_bytes, value_offset, settings }))
    }
}

impl SnapshotState {
    /// The object, if it is a SnapshotState.
    ///
    /// # Errors
    /// It is one, but not as this version writes it.
    pub fn of(object: &StateObject) -> Result<Option<SnapshotState>, ObjectError> {
        if !is_kind(object, SNAPSHOT_STATE) {
            return Ok(None);
        }
        let Layout::Slots { count, width, slot_bytes, .. } = object.value else {
            return Err(fault(object, "its value has no slots"));
        };
        let settings = SnapshotSettings::of(object)?;
        Ok(Some(SnapshotState {
            object: object.clone(),
            slots: count,
            width,
            slot_bytes,
            settings,
        }))
    }
}

/// The FlowState objects of a program.
///
/// # Errors
/// One is not as this version writes it.
pub fn flow_states(manifest: &Manifest) -> Result<Vec<FlowState>, ObjectError> {
    manifest.state_objects.iter().filter_map(|object| FlowState::of(object).transpose()).collect()
}

/// The SnapshotState objects of a program.
///
/// # Errors
/// One is not as this version writes it.
pub fn snapshot_states(manifest: &Manifest) -> Result<Vec<SnapshotState>, ObjectError> {
    manifest
        .state_objects
        .iter()
        .filter_map(|object| SnapshotState::of(object).transpose())
        .collect()
}

/// RedPlane's objects of a program.
pub fn objects(manifest: &Manifest) -> impl Iterator<Item = &StateObject> {
    manifest.state_objects.iter().filter(|object| object.system == SYSTEM)
}

/// Settings as the manifest has them.
pub fn written(settings: &impl Serialize) -> Settings {
    match serde_json::to_value(settings) {
        Ok(serde_json::Value::Object(values)) => values,
        // Structs of plain data become objects.
        _ => Settings::new(),
    }
}

fn is_kind(object: &StateObject, kind: &str) -> bool {
    object.system == SYSTEM && object.kind == kind
}

fn fault(object: &StateObject, reason: &str) -> ObjectError {
    ObjectError { name: object.name.clone(), reason: reason.to_owned() }
}

fn settings<T: for<'de> Deserialize<'de>>(object: &StateObject) -> Result<T, ObjectError> {
    let values = serde_json::Value::Object(object.settings.clone());
    T::deserialize(values).map_err(|error| fault(object, &format!("its settings: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use manifest::Home;

    fn object(kind: &str, value: Layout, settings: &str) -> StateObject {
        StateObject {
            id: 3,
            name: "ingress.o".into(),
            system: SYSTEM.into(),
            kind: kind.into(),
            map: "m".into(),
            slots_map: None,
            capacity: 8,
            home: Home::Store,
            key: vec![],
            key_bytes: 4,
            value,
            settings: serde_json::from_str::<Settings>(settings).unwrap(),
        }
    }

    const FIELDS: Layout = Layout::Fields { fields: vec![], bytes: 6, offset: 64 };
    const SLOTS: Layout =
        Layout::Slots { count: 9, width: 32, slot_bytes: 4, map_slot_bytes: 12, offset: 64 };
    const FLOW: &str = r#"{"consistency": "asynchronous", "allocator": "nat_ports"}"#;
    const SNAPSHOT: &str =
        r#"{"period_us": 1000, "epsilon_us": 5000, "overdue": "mark", "windows": true}"#;

    #[test]
    fn settings_have_types() {
        let flow = FlowState::of(&object(FLOW_STATE, FIELDS, FLOW)).unwrap().unwrap();
        let expected = FlowSettings {
            consistency: Consistency::Asynchronous,
            allocator: Allocator::NatPorts,
            shard_bytes: None,
            grouped: false,
        };
        assert_eq!(written(&flow.settings), flow.object.settings, "as before");
        assert_eq!((flow.settings, flow.value_bytes, flow.value_offset), (expected, 6, 64));
        let snapshot =
            SnapshotState::of(&object(SNAPSHOT_STATE, SLOTS, SNAPSHOT)).unwrap().unwrap();
        let expected = SnapshotSettings {
            period_us: 1000,
            epsilon_us: 5000,
            overdue: Overdue::Mark,
            windows: true,
            merge: None,
        };
        assert_eq!(
            written(&snapshot.settings),
            snapshot.object.settings,
            "as before there were merges"
        );
        assert_eq!((snapshot.settings, snapshot.slots, snapshot.slot_bytes), (expected, 9, 4));
    }

    #[test]
    fn objects_of_others_are_left_alone() {
        let foreign = StateObject { system: "toy".into(), ..object(FLOW_STATE, FIELDS, FLOW) };
        assert_eq!(FlowState::of(&foreign).unwrap(), None);
        assert_eq!(FlowState::of(&object(SNAPSHOT_STATE, SLOTS, SNAPSHOT)).unwrap(), None);
        let own = object(FLOW_STATE, FIELDS, FLOW);
        let manifest = Manifest { state_objects: vec![foreign, own.clone()], ..Manifest::new("p") };
        assert_eq!(objects(&manifest).collect::<Vec<_>>(), [&own]);
        assert_eq!(flow_states(&manifest).unwrap().len(), 1);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let told = |error: ObjectError| error.to_string();
        let unknown = object(FLOW_STATE, FIELDS, r#"{"consistency": "none", "allocator": "zero"}"#);
        let error = told(FlowState::of(&unknown).unwrap_err());
        assert!(
            error.starts_with("state object ingress.o: its settings: unknown variant `none`"),
            "{error}"
        );
        let error = told(FlowState::of(&object(FLOW_STATE, SLOTS, FLOW)).unwrap_err());
        assert!(error.contains("not a struct; compile the program again"), "{error}");
        let error = told(SnapshotState::of(&object(SNAPSHOT_STATE, FIELDS, SNAPSHOT)).unwrap_err());
        assert!(error.contains("no slots"), "{error}");
    }
}

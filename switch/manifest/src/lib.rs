//! The manifest: what stands beside a compiled object, so that the runtime can drive it.
//!
//! It owns: the JSON's shape and its version. It must not know: how objects are compiled or loaded.
//!
//! Widths are in bits, sizes in bytes, offsets in bytes from the start of the map's key or value.
//! **Scalars in maps**: a P4 `bit<W>` with W ≤ 64 is a little-endian (host order) unsigned integer of 1, 2, 4 or 8 bytes (the smallest that holds it), naturally
//! aligned; 64 < W ≤ 128 is a 16-byte host-order integer, aligned to 8 bytes. An LPM table's key is packed big-endian instead (see [`TableKind::Lpm`]).

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the format; a reader refuses others.
pub const VERSION: u32 = 1;

/// All about one compiled program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`VERSION`].
    pub version: u32,
    /// The P4 program's file name.
    pub program: String,
    /// Tables.
    pub tables: Vec<Table>,
    /// Actions that tables run; [`TableAction::action`] indexes this.
    pub actions: Vec<Action>,
    /// Registers.
    pub registers: Vec<Register>,
    /// Counters (indirect); direct ones are in [`Table::direct_counter`].
    pub counters: Vec<Counter>,
    /// FlowState objects.
    pub flow_states: Vec<FlowState>,
    /// SnapshotState objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshot_states: Vec<SnapshotState>,
    /// Enum member names by enum name, for printing.
    pub errors: Vec<String>,
    /// How many P4 ports the object's port maps hold.
    pub max_ports: u32,
    /// The drop port of `mark_to_drop` (511).
    pub drop_port: u32,
    /// The widest frame growth in bytes that the program may do at the head.
    pub headroom_bytes: u32,
}

impl Manifest {
    /// Of a program that has nothing yet.
    pub fn new(program: &str) -> Manifest {
        Manifest {
            version: VERSION,
            program: program.to_owned(),
            tables: Vec::new(),
            actions: Vec::new(),
            registers: Vec::new(),
            counters: Vec::new(),
            flow_states: Vec::new(),
            snapshot_states: Vec::new(),
            errors: Vec::new(),
            max_ports: 512,
            drop_port: 511,
            headroom_bytes: 0,
        }
    }
}

/// How a table is laid out on maps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TableKind {
    /// No key: only the default action (and its arguments) in `default_map`.
    Keyless,
    /// All entries are in the code (`const entries`); nothing to fill but the default action unless const.
    Const,
    /// A hash map; its key is the struct of all key fields.
    Exact {
        /// BPF map name.
        map: String,
        /// Key size with padding (padding is zero).
        key_bytes: u32,
    },
    /// An LPM trie: `u32` prefix length (host order), then all exact fields, then the LPM field, each packed in ceil(W/8) bytes, big-endian (an LPM field of odd width
    /// is shifted left so that its top bit comes first).
    /// Prefix length counts the exact bytes' bits too.
    Lpm {
        /// BPF map name.
        map: String,
        /// Size of the whole key, prefix length included.
        key_bytes: u32,
    },
    /// Tuple space search (also tables with several LPM keys, or LPM beside ternary): `masks_map` is an array of `max_masks` masks (each a key struct,
    /// then `u32 max_priority`, `u32 in_use`), sorted by falling max_priority; `map` is a hash of { u32 mask_index, u32 zero, masked key struct } to value
    /// { u32 rank (higher wins), u32 zero, the usual value }. The rank is the priority, or 2^32 - 1 less it ([`Table::rank`]).
    Ternary {
        /// BPF map name of the entries.
        map: String,
        /// BPF map name of the masks (array of 1 element pair: see `active`).
        masks_map: String,
        /// At most so many different masks.
        max_masks: u32,
        /// Size of the key struct (without mask_index).
        key_bytes: u32,
    },
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The control plane's name.
    pub name: String,
    /// Keys in order.
    pub keys: Vec<Key>,
    /// Actions; the position here is the action's index in map values.
    pub actions: Vec<TableAction>,
    /// Layout.
    #[serde(flatten)]
    pub kind: TableKind,
    /// Array map of one element: the default action's value (layout of `value_bytes`).
    pub default_map: Option<String>,
    /// Default as compiled; the loader writes it into `default_map`.
    pub default_action: ActionCall,
    /// The default cannot be changed.
    pub const_default: bool,
    /// Of entries that match, the one with the smallest priority wins (`largest_priority_wins = false`).
    #[serde(default)]
    pub smallest_priority_wins: bool,
    /// Entries of the source that are not const: the loader adds them.
    pub initial_entries: Vec<Entry>,
    /// Const entries. If `kind` is const, they are compiled into the code; else the loader adds
    /// them, and nobody can change them.
    pub const_entries: Vec<Entry>,
    /// How many entries fit.
    pub size: u64,
    /// Size of a map value: `u32` action index, `u32` zero, then the action's parameters at [`Parameter::offset`], and if there is a direct counter, its
    /// `u64` packets and `u64` bytes at `direct_counter`.
    pub value_bytes: u32,
    /// Offset in the value of the direct counter, if there is one.
    pub direct_counter: Option<u32>,
    /// `file:line:column`
    pub location: String,
}

/// A key field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The control plane's name.
    pub name: String,
    /// `exact`, `lpm` or `ternary`.
    pub match_kind: String,
    /// In bits.
    pub width: u32,
    /// In the key struct.
    pub offset: u32,
    /// Bytes taken there.
    pub bytes: u32,
}

/// An action in a table's list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableAction {
    /// Index into [`Manifest::actions`].
    pub action: u32,
    /// Only as the default action.
    pub default_only: bool,
    /// Never as the default action.
    pub table_only: bool,
}

/// An action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The control plane's name.
    pub name: String,
    /// From the table entry.
    pub parameters: Vec<Parameter>,
}

/// An action's parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// As declared.
    pub name: String,
    /// In bits.
    pub width: u32,
    /// In the map value (from its start; the first parameter is at 8).
    pub offset: u32,
    /// Bytes taken there.
    pub bytes: u32,
}

/// An action with arguments, as decimal numbers in strings (they may be wider than 64 bits).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionCall {
    /// Index into [`Table::actions`].
    pub action: u32,
    /// One a parameter.
    pub arguments: Vec<String>,
}

/// How an entry matches one key; numbers are decimal strings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "match", rename_all = "snake_case")]
pub enum KeyMatch {
    /// Everything.
    Any,
    /// Equal.
    Exact {
        /// The value.
        value: String,
    },
    /// Longest prefix.
    Prefix {
        /// The value.
        value: String,
        /// Bits that count.
        length: u32,
    },
    /// Where the mask has ones.
    Mask {
        /// The value.
        value: String,
        /// The mask.
        mask: String,
    },
    /// Both included.
    Range {
        /// Lowest.
        low: String,
        /// Highest.
        high: String,
    },
}

/// A table entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// One a key.
    pub matches: Vec<KeyMatch>,
    /// What it runs.
    pub action: ActionCall,
    /// Ternary tables: higher wins, unless [`Table::smallest_priority_wins`].
    pub priority: u32,
}

/// A register array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// The control plane's name.
    pub name: String,
    /// BPF array map; its value is the scalar (see the crate's documentation).
    pub map: String,
    /// Elements.
    pub size: u32,
    /// Of an element, in bits.
    pub width: u32,
    /// int<W>?
    pub signed: bool,
    /// Of an element in the map.
    pub value_bytes: u32,
}

/// An indirect counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// The control plane's name.
    pub name: String,
    /// BPF per-CPU array map; its value is { u64 packets, u64 bytes }.
    pub map: String,
    /// Elements.
    pub size: u32,
    /// `packets`, `bytes` or `packets_and_bytes`: what to show.
    pub unit: String,
}

/// A FlowState object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowState {
    /// The control plane's name.
    pub name: String,
    /// Its number in the state protocol, from 1.
    pub object_id: u16,
    /// BPF hash map of the flows.
    pub map: String,
    /// Flows it holds.
    pub size: u32,
    /// `local` or `linearizable`.
    pub consistency: String,
    /// `zero`, `nat_ports` or `backends`.
    pub allocator: String,
    /// Fields of the key, in wire order (each in ceil(W/8) bytes, big-endian).
    pub key: Vec<WireField>,
    /// Fields of the value.
    pub value: Vec<WireField>,
    /// Sum over `key`.
    pub key_bytes: u32,
    /// Sum over `value`.
    pub value_bytes: u32,
    /// Offset of the wire value in the map's value (the runtime's per-flow bookkeeping stands before it).
    pub value_offset: u32,
}

/// A SnapshotState object: arrays of slots, one a key, of which the switch sends snapshots (systems/redplane/docs/snapshots.md).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotState {
    /// The control plane's name.
    pub name: String,
    /// Its number in the state protocol; FlowState and SnapshotState objects share the numbers.
    pub object_id: u16,
    /// BPF hash map of the instances.
    pub map: String,
    /// Keys that it holds.
    pub instances: u32,
    /// Of each key.
    pub slots: u32,
    /// The last slot is the number of the window that the others are of: the program calls `begin`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub windows: bool,
    /// Of a slot's value, in bits.
    pub width: u32,
    /// Of a slot on the wire: 4 or 8, big-endian.
    pub slot_bytes: u32,
    /// Of a slot in the map: tag and two copies (`struct sp_slot32`, `struct sp_slot64`).
    pub map_slot_bytes: u32,
    /// Offset of the slots in the map's value.
    pub slots_offset: u32,
    /// Time between two snapshots of a key; 0: none, the object is local.
    pub period_us: u32,
    /// What a failure may take back at the most.
    pub epsilon_us: u32,
    /// `drop`, `mark` or `continue`.
    pub overdue: String,
    /// Fields of the key, in wire order.
    pub key: Vec<WireField>,
    /// Sum over `key`.
    pub key_bytes: u32,
}

/// A field of a FlowState key or value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireField {
    /// As declared.
    pub name: String,
    /// In bits.
    pub width: u32,
    /// In the wire form.
    pub offset: u32,
    /// Bytes taken there.
    pub bytes: u32,
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The manifest's path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a manifest.
    #[error("{path}: not a stateplane manifest: {source}; compile the program again with `stateplane compile`")]
    Parse {
        /// The manifest's path.
        path: String,
        /// Why.
        source: serde_json::Error,
    },
    /// Written by another version.
    #[error(
        "{path}: manifest version {found}, this build reads {VERSION}; compile the program again with `stateplane compile`"
    )]
    Version {
        /// The manifest's path.
        path: String,
        /// In the file.
        found: u32,
    },
}

impl Table {
    /// The priority as the map has it, where the highest wins; and back.
    pub fn rank(&self, priority: u32) -> u32 {
        if self.smallest_priority_wins { u32::MAX - priority } else { priority }
    }
}

impl Manifest {
    /// Reads and checks a manifest file.
    pub fn read(path: &Path) -> Result<Manifest, Error> {
        let shown = || path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read { path: shown(), source })?;
        let manifest: Manifest =
            serde_json::from_str(&text).map_err(|source| Error::Parse { path: shown(), source })?;
        if manifest.version != VERSION {
            return Err(Error::Version { path: shown(), found: manifest.version });
        }
        Ok(manifest)
    }

    /// The manifest's path for an object's: `x.o` → `x.json`.
    pub fn path_for(object: &Path) -> std::path::PathBuf {
        object.with_extension("json")
    }

    /// As pretty JSON.
    pub fn to_json(&self) -> String {
        // Serialising plain data with string keys cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// Bytes that a scalar of `width` bits takes in a map (1, 2, 4, 8 or 16).
pub fn scalar_bytes(width: u32) -> u32 {
    match width {
        0..=8 => 1,
        9..=16 => 2,
        17..=32 => 4,
        33..=64 => 8,
        _ => 16,
    }
}

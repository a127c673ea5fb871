//! The manifest: what stands beside a compiled object, so that the runtime can drive it.
//!
//! It owns: the JSON's shape and its version. It must not know: how objects are compiled or loaded.
//!
//! Widths are in bits, sizes in bytes, offsets in bytes from the start of the map's key or value.
//! **Scalars in maps**: a P4 `bit<W>` with W ≤ 64 is a little-endian (host order) unsigned integer
//! of 1, 2, 4 or 8 bytes (the smallest that holds it), naturally aligned; 64 < W ≤ 128 is a 16-byte
//! host-order integer, aligned to 8 bytes. An LPM table's key is packed big-endian instead (see
//! [`TableKind::Lpm`]).

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the format; a reader refuses others.
pub const VERSION: u32 = 3;
/// P4 ports of an object.
pub const MAX_PORTS: u32 = 512;
/// The P4 port of what is dropped (`mark_to_drop`).
pub const DROP_PORT: u32 = 511;
/// The P4 port that generated packets come in on (`GENERATOR_PORT` in stateplane.p4).
pub const GENERATOR_PORT: u32 = 509;

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
    /// State objects of systems, in the order of their numbers.
    pub state_objects: Vec<StateObject>,
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
            state_objects: Vec::new(),
            errors: Vec::new(),
            max_ports: MAX_PORTS,
            drop_port: DROP_PORT,
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
    /// All entries are in the code (`const entries`); nothing to fill but the default action unless
    /// const.
    Const,
    /// A hash map; its key is the struct of all key fields.
    Exact {
        /// BPF map name.
        map: String,
        /// Key size with padding (padding is zero).
        key_bytes: u32,
    },
    /// An LPM trie: `u32` prefix length (host order), then all exact fields, then the LPM field,
    /// each packed in ceil(W/8) bytes, big-endian (an LPM field of odd width is shifted left so
    /// that its top bit comes first).
    /// The prefix length includes the bits of the exact fields.
    Lpm {
        /// BPF map name.
        map: String,
        /// Size of the whole key, prefix length included.
        key_bytes: u32,
    },
    /// Tuple space search (also tables with several LPM keys, or LPM beside ternary): `masks_map`
    /// is an array of `max_masks` masks (each a key struct, then `u32 max_priority`, `u32 in_use`),
    /// sorted by falling max_priority; `map` is a hash of { u32 mask_index, u32 zero, masked key
    /// struct } to value { u32 rank (higher wins), u32 zero, the usual value }. The rank is the
    /// priority, or 2^32 - 1 less it ([`Table::rank`]).
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
    /// Of entries that match, the one with the smallest priority wins (`largest_priority_wins =
    /// false`).
    #[serde(default)]
    pub smallest_priority_wins: bool,
    /// All entries are exchanged as one (`stateplane_exchange`): [`Table::kind`] is exact or LPM,
    /// its map an ARRAY_OF_MAPS with one element, the map that `kind` describes. The loader puts
    /// the first one there.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exchange: bool,
    /// Entries hold for one incarnation of the switch (`stateplane_per_incarnation`), which begins
    /// without any.
    #[serde(default, skip_serializing_if = "is_false")]
    pub per_incarnation: bool,
    /// Entries of the source that are not const: the loader adds them.
    pub initial_entries: Vec<Entry>,
    /// Const entries. If `kind` is const, they are compiled into the code; else the loader adds
    /// them, and nobody can change them.
    pub const_entries: Vec<Entry>,
    /// How many entries fit.
    pub size: u64,
    /// Size of a map value: `u32` action index, `u32` zero, then the action's parameters at
    /// [`Parameter::offset`], and if there is a direct counter, its `u64` packets and `u64` bytes
    /// at `direct_counter`.
    pub value_bytes: u32,
    /// Offset in the value of the direct counter, if there is one.
    pub direct_counter: Option<u32>,
    /// `file:line:column`
    pub location: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
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
    /// The enum that names its values, if it was declared with one.
    #[serde(default, rename = "enum", skip_serializing_if = "Option::is_none")]
    pub enumeration: Option<Enumeration>,
}

/// An enum of the program: names for values. Values are decimal strings, as bits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enumeration {
    /// As declared.
    pub name: String,
    /// In order.
    pub members: Vec<EnumMember>,
}

/// A member of an enum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnumMember {
    /// As declared.
    pub name: String,
    /// Its bits as a number.
    pub value: String,
}

impl Enumeration {
    /// The name of a value; none: no member has it.
    pub fn member(&self, value: u128) -> Option<&str> {
        let has = |member: &&EnumMember| member.value.parse() == Ok(value);
        self.members.iter().find(has).map(|member| member.name.as_str())
    }

    /// The value of a member: `MEMBER`, or `Enum.MEMBER`.
    pub fn value(&self, text: &str) -> Option<u128> {
        let name = match text.split_once('.') {
            Some((name, member)) if name == self.name => member,
            _ => text,
        };
        self.members.iter().find(|member| member.name == name)?.value.parse().ok()
    }
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
    /// `@own_destination`: the first key of an entry that runs it is an IPv4 destination that the
    /// network has and no host, so nothing comes from there.
    #[serde(default)]
    pub own_destination: bool,
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
    /// The enum that names its values, if it was declared with one.
    #[serde(default, rename = "enum", skip_serializing_if = "Option::is_none")]
    pub enumeration: Option<Enumeration>,
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
    /// The enum that names its values, if it was declared with one.
    #[serde(default, rename = "enum", skip_serializing_if = "Option::is_none")]
    pub enumeration: Option<Enumeration>,
    /// The enum that names its elements' indexes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<Enumeration>,
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
    /// The enum that names its elements' indexes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<Enumeration>,
}

/// A state object of a system: what the platform must know of it. What only its system reads is in
/// [`StateObject::settings`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateObject {
    /// Its number in messages: from 1, unique over the objects of all systems in the program.
    pub id: u16,
    /// The control plane's name.
    pub name: String,
    /// The system that it belongs to.
    pub system: String,
    /// The P4 extern's name.
    pub kind: String,
    /// BPF hash map of the entries. An object with a `slots_map` has only the keys here.
    pub map: String,
    /// BPF array map with the values of all entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots_map: Option<String>,
    /// Entries that fit.
    pub capacity: u32,
    /// Where the state that counts is.
    pub home: Home,
    /// Fields of the key, in wire order. None: the object has one entry.
    pub key: Vec<WireField>,
    /// Sum over `key`.
    pub key_bytes: u32,
    /// What an entry holds.
    pub value: Layout,
    /// What only the system reads, by name.
    pub settings: Settings,
}

/// Settings of a system's object; the system's own crates give them types.
pub type Settings = serde_json::Map<String, serde_json::Value>;

/// Where the state that counts is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Home {
    /// In the switch; it goes when the switch goes.
    ThisSwitch,
    /// In a store; the switch has a copy, under a lease.
    Store,
    /// In several switches, each with a copy.
    Peers,
}

/// What an entry of a state object holds, and where it stands in a map's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// A struct in wire form.
    Fields {
        /// In wire order.
        fields: Vec<WireField>,
        /// Sum over `fields`.
        bytes: u32,
        /// Of the first byte; the runtime's bookkeeping stands before it.
        offset: u32,
    },
    /// Numbers of one width.
    Slots {
        /// How many.
        count: u32,
        /// In bits.
        width: u32,
        /// Of a slot on the wire, big-endian.
        slot_bytes: u32,
        /// Of a slot in the map; more than `slot_bytes` if it has copies or a tag there.
        map_slot_bytes: u32,
        /// Of the first slot.
        offset: u32,
    },
}

impl Layout {
    /// Where it stands in the map's value.
    pub fn offset(&self) -> u32 {
        match self {
            Layout::Fields { offset, .. } | Layout::Slots { offset, .. } => *offset,
        }
    }

    /// The struct's fields; none if it is of slots.
    pub fn fields(&self) -> &[WireField] {
        match self {
            Layout::Fields { fields, .. } => fields,
            Layout::Slots { .. } => &[],
        }
    }
}

impl StateObject {
    /// Is its state in this switch alone?
    pub fn is_local(&self) -> bool {
        self.home == Home::ThisSwitch
    }

    /// Is it the one of this name? The last part of the control plane's name will do.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.name.strip_suffix(name).is_some_and(|front| front.ends_with('.'))
    }

    /// About how many bytes an entry takes in its maps.
    pub fn entry_bytes(&self) -> u64 {
        let value = match &self.value {
            Layout::Fields { bytes, offset, .. } => {
                u64::from(*offset) + u64::from(bytes.next_multiple_of(8))
            }
            Layout::Slots { count, map_slot_bytes, offset, .. } => {
                u64::from(*offset) + u64::from(*count) * u64::from(*map_slot_bytes)
            }
        };
        u64::from(self.key_bytes.next_multiple_of(8)) + value
    }
}

/// A field of a state object's key or value.
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
    /// The enum that names its values, if it was declared with one.
    #[serde(default, rename = "enum", skip_serializing_if = "Option::is_none")]
    pub enumeration: Option<Enumeration>,
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
    #[error(
        "{path}: not a stateplane manifest: {source}; compile the program again with `stateplane compile`"
    )]
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
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::Read { path: shown(), source })?;
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

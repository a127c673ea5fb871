//! Tables, their keys, entries and actions.

use crate::{
    ActionId, Annotation, BigInt, Block, Expr, ExternId, Location, SerializableEnumId, VariableId,
};
use serde::{Deserialize, Serialize};

/// An action as a table runs it: direction-less parameters only, others bound by the table's action
/// list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The control plane's name, such as `ingress.forward` (`@name` respected).
    pub name: String,
    /// Unique and C-safe.
    pub c_name: String,
    /// Parameters from the table entry, in order.
    pub parameters: Vec<VariableId>,
    /// Their names as the control plane sees them.
    pub parameter_names: Vec<String>,
    /// The serializable enums that they were declared with, in the same order.
    pub parameter_enumerations: Vec<Option<SerializableEnumId>>,
    /// What it does.
    pub body: Block,
    /// Annotations of the declaration.
    pub annotations: Vec<Annotation>,
    /// Where declared.
    pub location: Location,
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The control plane's name: `@name`, or the expression as written (`hdr.ipv4.dst_addr`;
    /// `isValid()` as `hdr.x.$valid$`).
    pub name: String,
    /// A scalar, evaluated when the table is applied.
    pub expr: Expr,
    /// The serializable enum that its type is.
    pub enumeration: Option<SerializableEnumId>,
    /// `exact`, `lpm`, `ternary`, `range`, `optional`, `selector`.
    pub match_kind: String,
    /// Where it stands.
    pub location: Location,
}

/// An action of a table's list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableAction {
    /// Which.
    pub action: ActionId,
    /// `@defaultonly`
    pub default_only: bool,
    /// `@tableonly`
    pub table_only: bool,
}

/// An action with its arguments, as an entry or a default has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionCall {
    /// Index into [`Table::actions`].
    pub action: u32,
    /// One constant a parameter.
    pub arguments: Vec<BigInt>,
}

/// An entry in the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// One a key.
    pub matches: Vec<Match>,
    /// What it runs.
    pub action: ActionCall,
    /// Larger wins, as of entries that the control plane adds. None, of all entries of a table: the
    /// first that matches.
    pub priority: Option<BigInt>,
    /// Cannot be changed.
    pub is_const: bool,
    /// Where it stands.
    pub location: Location,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The control plane's name, such as `ingress.routes` (`@name` respected).
    pub name: String,
    /// Unique and C-safe.
    pub c_name: String,
    /// Maybe none.
    pub keys: Vec<Key>,
    /// In order; contains NoAction if it is the default.
    pub actions: Vec<TableAction>,
    /// Runs on a miss. NoAction when the source names none.
    pub default_action: ActionCall,
    /// The default cannot be changed.
    pub const_default: bool,
    /// Entries in the source; if `const_entries`, all there ever are.
    pub entries: Vec<Entry>,
    /// The entries cannot be changed, nor others added.
    pub const_entries: bool,
    /// Of entries that match, the one with the smallest priority wins; else the largest.
    pub smallest_priority_wins: bool,
    /// `stateplane_exchange`: the control plane exchanges all entries as one.
    pub exchange: bool,
    /// `stateplane_per_incarnation`: entries hold for one incarnation of the switch, which begins
    /// without any.
    pub per_incarnation: bool,
    /// How many entries it must hold; None: not said (v1model: 1024).
    pub size: Option<u64>,
    /// Attached direct counters, meters and other properties by name: (property, extern instance).
    pub attached: Vec<(String, ExternId)>,
    /// Annotations of the declaration.
    pub annotations: Vec<Annotation>,
    /// Where declared.
    pub location: Location,
}

/// How a select case or const entry matches one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Match {
    /// `_` or `default`
    Any,
    /// Equal.
    Value(BigInt),
    /// `value &&& mask`
    Mask {
        /// Compared where the mask has ones.
        value: BigInt,
        /// Ones where compared.
        mask: BigInt,
    },
    /// `low .. high`, both included.
    Range {
        /// Lowest that matches.
        low: BigInt,
        /// Highest that matches.
        high: BigInt,
    },
    /// Matches what the control plane puts in this value set (index into [`Program::externs`];
    /// later issues).
    ValueSet(ExternId),
}

//! Tables of the checked program.

use super::*;

#[derive(Debug)]
pub struct KeyDef {
    pub name: Option<Rc<str>>,
    pub expr: Expr,
    pub match_kind: Rc<str>,
    pub span: Span,
}

#[derive(Debug)]
pub struct TableActionDef {
    pub action: ActionDefId,
    /// Arguments of the parameters with a direction; the rest comes from the control plane.
    pub bound: Vec<Option<Expr>>,
    /// In which order these are evaluated.
    pub order: Order,
    pub default_only: bool,
    pub table_only: bool,
    pub span: Span,
}

/// An action of the table's list with the control plane's arguments.
#[derive(Debug)]
pub struct ActionCallDef {
    pub index: usize,
    pub args: Vec<Expr>,
}

#[derive(Debug)]
pub struct EntryDef {
    pub matches: Vec<Match>,
    pub action: ActionCallDef,
    pub priority: Option<Expr>,
    pub is_const: bool,
    pub span: Span,
}

#[derive(Debug)]
pub struct TableDef {
    pub name: Rc<str>,
    pub keys: Vec<KeyDef>,
    pub actions: Vec<TableActionDef>,
    pub default_action: Option<ActionCallDef>,
    pub const_default: bool,
    pub entries: Vec<EntryDef>,
    pub const_entries: bool,
    /// Of entries with priorities the one with the largest wins, or else with the smallest.
    pub largest_priority_wins: bool,
    /// The distance of priorities that are not written; None: 1.
    pub priority_delta: Option<BigInt>,
    /// `stateplane_exchange`: the entries are exchanged as one.
    pub exchange: bool,
    /// `stateplane_per_incarnation`: the entries hold for one incarnation of the switch.
    pub per_incarnation: bool,
    pub size: Option<Expr>,
    /// Extern instances named by other properties.
    pub attached: Vec<(Rc<str>, Expr)>,
    pub annotations: Annotations,
    pub span: Span,
}

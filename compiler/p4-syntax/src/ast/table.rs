//! Tables.

use super::{Annotations, Argument, Expr, Ident, Keyset, Path, Span};

/// `table t { properties }`
#[derive(Clone, Debug)]
pub struct TableDecl {
    /// Annotations before it.
    pub annotations: Annotations,
    /// Declared name.
    pub name: Ident,
    /// Properties in the order written; duplicates are for the checker to refuse.
    pub properties: Vec<TableProperty>,
    /// The whole declaration.
    pub span: Span,
}

/// One property of a table.
#[derive(Clone, Debug)]
pub struct TableProperty {
    /// Annotations before it.
    pub annotations: Annotations,
    /// `const` before it.
    pub is_const: bool,
    /// Its name: `key`, `actions`, `entries`, `default_action`, `size`, or the architecture's.
    pub name: Ident,
    /// Its value.
    pub value: TablePropertyValue,
    /// The whole property.
    pub span: Span,
}

/// A property's value.
#[derive(Clone, Debug)]
pub enum TablePropertyValue {
    /// `key = { ... }`
    Key(Vec<KeyElement>),
    /// `actions = { ... }`
    Actions(Vec<ActionRef>),
    /// `entries = { ... }`
    Entries(Vec<TableEntry>),
    /// `default_action = a(...);`, `size = 1024;` and all others.
    Expr(Expr),
}

/// `expr : match_kind;`
#[derive(Clone, Debug)]
pub struct KeyElement {
    /// What is looked up.
    pub expr: Expr,
    /// How.
    pub match_kind: Ident,
    /// Annotations after it, like `@name("...")`.
    pub annotations: Annotations,
    /// The whole element.
    pub span: Span,
}

/// A reference to an action in `actions`, or the call of one in `entries`.
#[derive(Clone, Debug)]
pub struct ActionRef {
    /// Annotations before it, like `@tableonly` and `@defaultonly`. (In an entry they are the
    /// entry's.)
    pub annotations: Annotations,
    /// The action.
    pub path: Path,
    /// Arguments; `None` if there are no parentheses.
    pub args: Option<Vec<Argument>>,
    /// The whole reference.
    pub span: Span,
}

/// `[const] [priority = p :] keyset : action(args) [@annotations];`
#[derive(Clone, Debug)]
pub struct TableEntry {
    /// `const` before it.
    pub is_const: bool,
    /// The value of `priority=`.
    pub priority: Option<Expr>,
    /// What it matches: a [`KeysetKind::Tuple`](super::KeysetKind::Tuple) for several keys.
    pub keyset: Keyset,
    /// What it does.
    pub action: ActionRef,
    /// Annotations after it.
    pub annotations: Annotations,
    /// The whole entry.
    pub span: Span,
}

//! The typed IR: what the P4 front end hands to a back end.
//!
//! It owns: the shape of a checked, elaborated, monomorphic program. It must not know: P4 syntax,
//! C, BPF, files.
//!
//! What the front end guarantees (back ends may rely on it, and assert it):
//! - Everything is resolved: generics instantiated, constants folded, sub-parsers, sub-controls,
//!   functions and directly called actions inlined (copy-in/copy-out made explicit by assignments),
//!   serializable enums and `type`/`typedef` replaced by their bit types. Which serializable enum a
//!   field, key, parameter or type argument was declared with stands beside it, for people.
//! - Expressions are pure: calls with effects (table apply, extern methods, functions) stand alone
//!   as statements, their results in variables, in P4's order of evaluation (left to right, `&&`,
//!   `||` and `?:` short-circuit).
//! - `==`/`!=` compare scalars only (headers, structs and tuples are taken apart); implicit casts
//!   are explicit; both operands of a binary operator have the same type (but for shifts, whose
//!   right side is any unsigned type, and concatenation).
//! - All storage is a [`Variable`] with a unique, C-safe name; the parser and all controls share
//!   `headers`, `metadata` and `standard_metadata`.
//! - Integer constants are already reduced to the range of their type.

#![forbid(unsafe_code)]

mod display;
pub mod effects;
pub mod match_kind;
mod merge;
mod parser;
mod table;

pub use merge::Merge;
pub use num_bigint::BigInt;
pub use parser::{MAX_PARSER_ROUNDS, Parser, State, Target, Transition, on_cycles};
use serde::{Deserialize, Serialize};
pub use table::{Action, ActionCall, Entry, Key, Match, Table, TableAction};

/// Where something stands in the P4 source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    /// Index into [`Program::files`].
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct $name(pub u32);
        impl $name {
            /// As an index into the program's list of these.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}
id!(/// Index into [`Program::header_types`].
    HeaderTypeId);
id!(/// Index into [`Program::struct_types`].
    StructTypeId);
id!(/// Index into [`Program::enum_types`].
    EnumTypeId);
id!(/// Index into [`Program::serializable_enums`].
    SerializableEnumId);
id!(/// Index into [`Program::union_types`].
    UnionTypeId);
id!(/// Index into [`Program::variables`].
    VariableId);
id!(/// Index into [`Program::actions`].
    ActionId);
id!(/// Index into [`Program::tables`].
    TableId);
id!(/// Index into [`Program::externs`].
    ExternId);
id!(/// Names a [`StatementKind::Block`] that [`StatementKind::Leave`] jumps out of. Unique in the program.
    LabelId);

/// A type of a value or variable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Type {
    /// `bit<width>`, or `int<width>` if `signed`. Width 0 does not occur.
    Bits {
        /// In bits.
        width: u32,
        /// Two's complement.
        signed: bool,
    },
    /// `bool`; constants are 0 and 1.
    Bool,
    /// `error`; constants are indices into [`Program::errors`].
    Error,
    /// An enum without an underlying type; constants are indices of members.
    Enum(EnumTypeId),
    /// A header: fields and a validity bit.
    Header(HeaderTypeId),
    /// A struct, or a tuple (with fields `f0`, `f1`, …).
    Struct(StructTypeId),
    /// A header stack with its next index.
    Stack {
        /// Type of the elements.
        header: HeaderTypeId,
        /// How many.
        size: u32,
    },
    /// A header union: at most one member valid.
    Union(UnionTypeId),
    /// `varbit<max_width>`; only as the last field of a header.
    Varbit {
        /// In bits.
        max_width: u32,
    },
    /// A string literal: only as an argument of an extern.
    String,
}

impl Type {
    /// `bit<width>`.
    pub fn bits(width: u32) -> Type {
        Type::Bits { width, signed: false }
    }
}

/// A field of a header or struct.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// As written.
    pub name: String,
    /// Any type; in headers only bits, bool (one bit), varbit, and structs of these flattened by
    /// the front end into `outer_inner` names.
    pub ty: Type,
    /// The serializable enum that it was declared with: its type is the bits.
    pub enumeration: Option<SerializableEnumId>,
    /// Annotations, as written.
    pub annotations: Vec<Annotation>,
}

/// A header, struct or header union type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// As written; unique and C-safe.
    pub name: String,
    /// In order.
    pub fields: Vec<Field>,
    /// Annotations of the declaration.
    pub annotations: Vec<Annotation>,
    /// Where declared.
    pub location: Location,
}

/// An enum without an underlying type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnumType {
    /// As written.
    pub name: String,
    /// Members in order.
    pub members: Vec<String>,
}

/// An enum with an underlying type, which its values have in the IR. Only names for people remain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SerializableEnum {
    /// As written.
    pub name: String,
    /// Members in order, with their values.
    pub members: Vec<(String, BigInt)>,
}

/// `@name(...)` or `@name[...]`: kept as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotation {
    /// Without the `@`.
    pub name: String,
    /// What stood between the parentheses or brackets; string literals without their quotes when
    /// the body is one string.
    pub body: String,
}

/// Which part of the program a variable is visible in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// Headers, user metadata, standard metadata.
    Pipeline,
    /// Locals of the parser.
    Parser,
    /// Locals of verifyChecksum.
    VerifyChecksum,
    /// Locals of ingress.
    Ingress,
    /// Locals of egress.
    Egress,
    /// Locals of computeChecksum.
    ComputeChecksum,
    /// Locals of the deparser.
    Deparser,
    /// Locals of a [`Merge`].
    Merge,
}

/// Storage. Its value is undefined until assigned, but for header validity, which starts false.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// Unique in the program and a C identifier.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Where it lives.
    pub scope: Scope,
    /// Where declared.
    pub location: Location,
}

/// An expression without effects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expr {
    /// What it computes.
    pub kind: ExprKind,
    /// Type of the result.
    pub ty: Type,
    /// Where it stands.
    pub location: Location,
}

/// Unary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UnaryOp {
    /// `-`, modulo 2^width.
    Negate,
    /// `~`
    Complement,
    /// `!`
    Not,
}

/// Binary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    /// Compile-time constants only on the right side for run-time operands (spec: `/` and `%` need
    /// positive known divisors); the front end checks.
    Div,
    Mod,
    /// `|+|`
    SaturatingAdd,
    /// `|-|`
    SaturatingSub,
    /// A shift by width or more gives 0 (or the sign).
    ShiftLeft,
    /// Arithmetic on int<N>.
    ShiftRight,
    BitAnd,
    BitOr,
    BitXor,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// Short-circuit (no difference for pure operands).
    And,
    Or,
    /// `++`: left is the high part.
    Concat,
}

/// The kinds of expression. Those marked (l) are also l-values when their base is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExprKind {
    /// A scalar constant, in the range of the type (signed: may be negative).
    Const(BigInt),
    /// A string literal (extern arguments).
    Str(String),
    /// (l) A variable.
    Var(VariableId),
    /// (l) Field `index` of a header, struct or union.
    Field(Box<Expr>, u32),
    /// (l) Element of a header stack. Out of bounds: reads undefined (0 here), writes dropped.
    Index(Box<Expr>, Box<Expr>),
    /// (l) `stack.next` (parsers only): out of bounds is error.StackOutOfBounds.
    StackNext(Box<Expr>),
    /// (l) `stack.last` (parsers only).
    StackLast(Box<Expr>),
    /// `stack.lastIndex`
    StackLastIndex(Box<Expr>),
    /// `header.isValid()`, also of unions.
    IsValid(Box<Expr>),
    /// (l) `base[high:low]`
    Slice {
        /// A bits-typed expression.
        base: Box<Expr>,
        /// High bit.
        high: u32,
        /// Low bit.
        low: u32,
    },
    /// An operator with one operand.
    Unary(UnaryOp, Box<Expr>),
    /// An operator with two.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// To the expression's type: bits to bits (truncate, or extend by the source's sign; same width
    /// changes sign interpretation), bit<1> to and from bool.
    Cast(Box<Expr>),
    /// `condition ? then : otherwise`
    Ternary(Box<Expr>, Box<Expr>, Box<Expr>),
    /// All fields of a struct (or tuple), in order.
    StructValue(Vec<Expr>),
    /// All fields of a header, in order; the result is valid.
    HeaderValue(Vec<Expr>),
    /// `{#}`: an invalid header, or union with no valid member.
    InvalidHeader,
    /// `packet.lookahead<T>()`, parsers only; T is the expression's type (bits, bool, a header or
    /// struct of these). Too short: error.PacketTooShort.
    Lookahead,
}

/// A list of statements.
pub type Block = Vec<Statement>;

/// A statement with its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// What it does.
    pub kind: StatementKind,
    /// Where it stands.
    pub location: Location,
}

/// An argument of an extern call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Argument {
    /// `in` or directionless: a value.
    In(Expr),
    /// `out`: an l-value.
    Out(Expr),
    /// `inout`: an l-value.
    InOut(Expr),
    /// `_`: an `out` that nobody wants.
    DontCare,
}

/// The kinds of statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StatementKind {
    /// `target = value`: scalars, headers (with validity), structs, stacks, unions.
    Assign(Expr, Expr),
    /// `if`
    If {
        /// A bool.
        condition: Expr,
        /// When true.
        then: Block,
        /// When false.
        otherwise: Block,
    },
    /// `switch` on a scalar; no fall-through. `switch (t.apply().action_run)` is an
    /// [`StatementKind::Apply`] and a switch on its `action_run` variable.
    Switch {
        /// Bits, bool, error or enum.
        on: Expr,
        /// Values and what to do.
        cases: Vec<(Vec<BigInt>, Block)>,
        /// Otherwise.
        default: Block,
    },
    /// A nested block; with a label, [`StatementKind::Leave`] ends it early.
    Block {
        /// Set where an inlined control, function or action may `return`.
        label: Option<LabelId>,
        /// What it does.
        body: Block,
        /// For readable output: what was inlined here, e.g. `control Router`.
        comment: Option<String>,
        /// `@atomic`: to all other packets it happens at once (spec §18.4.1).
        atomic: bool,
    },
    /// Goes on after the labelled block. Always inside it.
    Leave(LabelId),
    /// `exit`: ends the ingress or egress (or other) control that is running.
    Exit,
    /// `return` of the outermost control or action body of a table action.
    Return,
    /// `header.setValid()` / `setInvalid()`.
    SetValid(Expr, bool),
    /// `stack.push_front(n)`
    PushFront(Expr, u32),
    /// `stack.pop_front(n)`
    PopFront(Expr, u32),
    /// `table.apply()`
    Apply {
        /// Which.
        table: TableId,
        /// A bool variable that takes `.hit`, if used.
        hit: Option<VariableId>,
        /// A `bit<32>` variable that takes the index, in [`Table::actions`], of the action that
        /// ran, if used.
        action_run: Option<VariableId>,
    },
    /// A call of an extern function, or method of an extern instance.
    Extern {
        /// None for functions.
        instance: Option<ExternId>,
        /// Function or method name, as declared (`hash`, `read`, `mark_to_drop`, …).
        name: String,
        /// Instantiated type parameters, in order (the method's own).
        type_arguments: Vec<Type>,
        /// In the order of the declared parameters; defaults filled in; left-out optional ones are
        /// [`Argument::DontCare`].
        arguments: Vec<Argument>,
        /// An l-value that takes the result.
        result: Option<Expr>,
    },
    /// Parser: `packet.extract(header)`, or `extract(header, bits)` for a varbit. Too short:
    /// error.PacketTooShort, then reject.
    Extract {
        /// An l-value of header type (maybe [`ExprKind::StackNext`]).
        header: Expr,
        /// Run-time width of the varbit field, in bits.
        varbit_bits: Option<Expr>,
    },
    /// Parser: `packet.extract<T>(_)`: skips a header of this many bits.
    Skip(u32),
    /// Parser: `packet.advance(bits)`
    Advance(Expr),
    /// Parser: `verify(condition, error)`
    Verify(Expr, Expr),
    /// Deparser: `packet.emit(x)` of a header, stack or union (structs are taken apart); nothing
    /// for what is not valid.
    Emit(Expr),
}

/// A control, sub-controls inlined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// As declared.
    pub name: String,
    /// What it does.
    pub body: Block,
}

/// An argument of an extern's constructor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConstArgument {
    /// A scalar with its type (enum members are indices).
    Value(BigInt, Type),
    /// A string.
    Str(String),
}

/// An instance of an extern object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternInstance {
    /// The extern's type: `register`, `counter`, `direct_counter`, …
    pub extern_type: String,
    /// The control plane's name, such as `ingress.seen` (`@name` respected).
    pub name: String,
    /// Unique and C-safe.
    pub c_name: String,
    /// Instantiated type parameters.
    pub type_arguments: Vec<Type>,
    /// Those of them that are serializable enums, in the same order.
    pub type_enumerations: Vec<Option<SerializableEnumId>>,
    /// Constructor arguments, in the order of the declared parameters.
    pub arguments: Vec<ConstArgument>,
    /// Annotations of the declaration.
    pub annotations: Vec<Annotation>,
    /// The function that its `@merge` names.
    pub merge: Option<Merge>,
    /// Where declared.
    pub location: Location,
}

/// A whole v1model program, elaborated from `V1Switch(...) main`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Source files, by [`Location::file`].
    pub files: Vec<String>,
    /// Header types.
    pub header_types: Vec<Record>,
    /// Struct and tuple types.
    pub struct_types: Vec<Record>,
    /// Header union types.
    pub union_types: Vec<Record>,
    /// Enums without an underlying type.
    pub enum_types: Vec<EnumType>,
    /// Enums with one that fields, keys, parameters and externs were declared with.
    pub serializable_enums: Vec<SerializableEnum>,
    /// All errors; `NoError` is 0.
    pub errors: Vec<String>,
    /// All storage.
    pub variables: Vec<Variable>,
    /// The user's headers struct.
    pub headers: VariableId,
    /// The user's metadata struct.
    pub metadata: VariableId,
    /// `standard_metadata_t`.
    pub standard_metadata: VariableId,
    /// Actions that tables run.
    pub actions: Vec<Action>,
    /// All tables.
    pub tables: Vec<Table>,
    /// All extern instances.
    pub externs: Vec<ExternInstance>,
    /// The parser.
    pub parser: Parser,
    /// verifyChecksum.
    pub verify_checksum: Control,
    /// Ingress.
    pub ingress: Control,
    /// Egress.
    pub egress: Control,
    /// computeChecksum.
    pub compute_checksum: Control,
    /// Deparser.
    pub deparser: Control,
}

impl Program {
    /// The names that values of a scalar have: those of an enum of either kind, or of `error`.
    pub fn enumeration(
        &self,
        ty: &Type,
        declared: Option<SerializableEnumId>,
    ) -> Option<SerializableEnum> {
        let indexed = |name: &str, members: &[String]| SerializableEnum {
            name: name.to_owned(),
            members: members.iter().cloned().zip((0u32..).map(BigInt::from)).collect(),
        };
        match ty {
            Type::Enum(id) => {
                self.enum_types.get(id.index()).map(|it| indexed(&it.name, &it.members))
            }
            Type::Error => Some(indexed("error", &self.errors)),
            _ => self.serializable_enums.get(declared?.index()).cloned(),
        }
    }

    /// `file:line:column` of a location.
    pub fn place(&self, location: Location) -> String {
        let file = self.files.get(location.file as usize).map_or("?", String::as_str);
        format!("{file}:{}:{}", location.line, location.column)
    }
}

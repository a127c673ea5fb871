//! State objects in generated programs: what a system draws, and what the program around offers.

use rand::Rng;
use rand::rngs::StdRng;

/// The widest value that the target computes with, in bits.
pub const MAX_WIDTH: u32 = 128;

/// A scalar type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ty {
    /// `bit<W>` and `int<W>`.
    Bits {
        /// W.
        width: u32,
        /// `int<W>`.
        signed: bool,
    },
    /// `bool`.
    Bool,
}

impl Ty {
    /// `bit<width>`.
    pub fn bits(width: u32) -> Ty {
        Ty::Bits { width, signed: false }
    }

    /// As P4 writes it.
    pub fn name(self) -> String {
        match self {
            Ty::Bits { width, signed: false } => format!("bit<{width}>"),
            Ty::Bits { width, signed: true } => format!("int<{width}>"),
            Ty::Bool => "bool".into(),
        }
    }

    /// In bits.
    pub fn width(self) -> u32 {
        match self {
            Ty::Bits { width, .. } => width,
            Ty::Bool => 1,
        }
    }
}

/// Any width, mostly odd ones, sometimes more than a machine word.
pub fn width(random: &mut StdRng) -> u32 {
    match random.random_range(0..20) {
        0 => 1,
        1..4 => [8, 16, 32, 64][random.random_range(0..4)],
        4 => random.random_range(65..=MAX_WIDTH),
        5..8 => random.random_range(33..=64),
        _ => random.random_range(2..=32),
    }
}

/// Any scalar type.
pub fn scalar(random: &mut StdRng) -> Ty {
    match random.random_range(0..10) {
        0 => Ty::Bool,
        1..4 => Ty::Bits { width: width(random).max(2), signed: true },
        _ => Ty::bits(width(random)),
    }
}

/// A struct type of scalars.
#[derive(Clone, Debug)]
pub struct Struct {
    /// Its name.
    pub name: String,
    /// Names and types of its fields.
    pub fields: Vec<(String, Ty)>,
}

/// A kind of state object that generated programs may have.
pub trait StateKind: Sync {
    /// Draws an object. Names of types begin with `prefix`: several programs share a text.
    fn draw(&self, prefix: &str, random: &mut StdRng) -> Box<dyn StateObject>;

    /// The methods that its objects are called by, each in some programs of many.
    fn methods(&self) -> &'static [&'static str];
}

/// A state object of one generated program. It stands in the ingress. The interpreters and the
/// kernel must agree on what it does: it replicates nothing.
pub trait StateObject {
    /// The types that it needs.
    fn structs(&self) -> Vec<Struct>;

    /// Its declaration in a control.
    fn declaration(&self) -> String;

    /// Writes the statements that use it, each on a line: a program is made shorter by lines.
    fn use_in(&self, code: &mut dyn Code);
}

/// The code of a control, up to here.
pub trait Code {
    /// What the program is drawn from.
    fn random(&mut self) -> &mut StdRng;

    /// A line.
    fn line(&mut self, text: &str);

    /// A line that ends with `{`. Until [`Code::close`] statements and expressions use these
    /// variables too (paths and types), more often than others.
    fn open(&mut self, text: &str, variables: &[(String, Ty)]);

    /// The `}` of the last [`Code::open`].
    fn close(&mut self);

    /// An expression of this type, nested so deep.
    fn expression(&mut self, ty: Ty, depth: u32) -> String;

    /// So many random statements, nested so deep.
    fn statements(&mut self, count: usize, depth: u32);
}

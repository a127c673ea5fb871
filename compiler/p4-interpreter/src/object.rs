//! The seam to systems' state objects: what a method does is written once, for both interpreters.
//!
//! An interpreter evaluates the arguments, hands them to the [`Object`] as [`Datum`]s, and stores
//! what the object wrote to `out` and `inout` parameters.

use crate::Stop;
use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{One, Zero};

/// A value that goes to an object or comes from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Datum {
    /// A scalar that was never written.
    Undefined,
    /// A scalar in the range of its type; bool as 0 and 1, enum members by position.
    Number(BigInt),
    /// The fields of a struct or tuple.
    Struct(Vec<Datum>),
}

/// A type of such values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A scalar of so many bits.
    Scalar(u32),
    /// The types of a struct's fields.
    Struct(Vec<Shape>),
}

impl Shape {
    /// A value of this type whose scalars are all this one.
    fn filled(&self, scalar: &Datum) -> Datum {
        match self {
            Shape::Scalar(_) => scalar.clone(),
            Shape::Struct(fields) => {
                Datum::Struct(fields.iter().map(|field| field.filled(scalar)).collect())
            }
        }
    }

    /// All scalars 0.
    pub fn zero(&self) -> Datum {
        self.filled(&Datum::Number(BigInt::zero()))
    }

    /// No scalar was ever written.
    pub fn undefined(&self) -> Datum {
        self.filled(&Datum::Undefined)
    }

    /// The bits of a value's scalars, in order: numbers that are not negative.
    ///
    /// # Errors
    /// One was never written, or the value is not of this type.
    pub fn bits(&self, value: &Datum) -> Result<Vec<BigInt>, Stop> {
        match (self, value) {
            (Shape::Scalar(width), Datum::Number(number)) => {
                Ok(vec![number.mod_floor(&(BigInt::one() << width))])
            }
            (_, Datum::Undefined) => {
                Err(Stop::Undefined("a key with a field that was never written".into()))
            }
            (Shape::Struct(shapes), Datum::Struct(values)) if shapes.len() == values.len() => {
                let parts: Result<Vec<_>, Stop> =
                    shapes.iter().zip(values).map(|(one, it)| one.bits(it)).collect();
                Ok(parts?.concat())
            }
            _ => Err(Stop::Broken("a value that is not of its type".into())),
        }
    }
}

/// How the program declares an object.
#[derive(Clone, Debug)]
pub struct Declaration<'a> {
    /// The extern's name.
    pub kind: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// Its type arguments.
    pub types: Vec<Shape>,
    /// Its constructor's arguments; none for what is no number.
    pub arguments: Vec<Option<BigInt>>,
}

/// A call of a method.
#[derive(Debug)]
pub struct Call<'a> {
    /// Its name.
    pub method: &'a str,
    /// In the order of the declaration. The object writes a whole value to each `out` parameter.
    pub arguments: &'a mut [Datum],
}

/// What comes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It returns this; anything if it returns nothing.
    Value(Datum),
    /// The packet ends here.
    Drop,
    /// The packet ends here, and what objects keep for its end is forgotten.
    Abandon,
    /// The packet ends here, and this one leaves.
    Send {
        /// P4 port.
        port: u32,
        /// With its Ethernet header.
        frame: Vec<u8>,
    },
}

/// Makes one value of two, as a function of the program does it.
pub type Merging<'a> = dyn FnMut(&BigInt, &BigInt) -> Result<BigInt, Stop> + 'a;

/// What an object without `@merge` is given.
pub(crate) fn no_merge(_: &BigInt, _: &BigInt) -> Result<BigInt, Stop> {
    Err(Stop::Broken("a merge of an object without one".into()))
}

/// The state of an object, from packet to packet.
pub trait Object: Send {
    /// A packet comes in, at `now_us` microseconds of the switch's clock.
    fn begin_packet(&mut self, _frame: &[u8], _now_us: u64) {}

    /// The same, with the function that the declaration's `@merge` names: it can be called now,
    /// for what earlier packets left to be merged.
    ///
    /// # Errors
    /// The function's outcome is open.
    fn begin_packet_merging(
        &mut self,
        frame: &[u8],
        now_us: u64,
        _merge: &mut Merging<'_>,
    ) -> Result<(), Stop> {
        self.begin_packet(frame, now_us);
        Ok(())
    }

    /// Calls a method.
    ///
    /// # Errors
    /// The outcome is open, or not interpreted.
    fn call(&mut self, call: Call<'_>) -> Result<Answer, Stop>;

    /// An object has answered [`Answer::Abandon`]: this packet changes nothing for which this
    /// object waits until its end.
    fn abandon_packet(&mut self) {}

    /// The packet leaves by a port, as the deparser made it; the object may change it. False: it is
    /// dropped.
    fn finish_packet(&mut self, _frame: &mut Vec<u8>) -> bool {
        true
    }

    /// Takes in what the object draws from; `what` and the numbers are its system's.
    ///
    /// # Errors
    /// It takes no such thing.
    fn supply(&mut self, what: &str, _numbers: &[u64]) -> Result<(), Stop> {
        Err(Stop::Unsupported(format!("{what} for an object that draws from nothing")))
    }

    /// Another object with the same state.
    fn copied(&self) -> Box<dyn Object>;
}

impl Clone for Box<dyn Object> {
    fn clone(&self) -> Self {
        self.copied()
    }
}

/// Is an object of this name meant by that name or last part of one?
pub(crate) fn is_named(name: &str, wanted: &str) -> bool {
    name == wanted || name.strip_suffix(wanted).is_some_and(|front| front.ends_with('.'))
}

/// A system's kinds of objects.
pub trait ObjectKinds: Sync {
    /// The extern types. No other system may have the same.
    fn extern_types(&self) -> &'static [&'static str];

    /// An object as it begins.
    ///
    /// # Errors
    /// Something of it is not interpreted.
    fn declare(&self, declaration: &Declaration<'_>) -> Result<Box<dyn Object>, Stop>;
}

/// The kinds of objects that programs may have, by system.
#[derive(Clone, Copy)]
pub struct Objects(pub &'static [&'static dyn ObjectKinds]);

impl Objects {
    /// Of no system.
    pub const NONE: Objects = Objects(&[]);

    pub(crate) fn has(self, kind: &str) -> bool {
        self.0.iter().any(|system| system.extern_types().contains(&kind))
    }

    pub(crate) fn declare(self, declaration: &Declaration<'_>) -> Result<Box<dyn Object>, Stop> {
        match self.0.iter().find(|system| system.extern_types().contains(&declaration.kind)) {
            Some(system) => system.declare(declaration),
            None => Err(Stop::Unsupported(format!("extern {}", declaration.kind))),
        }
    }
}

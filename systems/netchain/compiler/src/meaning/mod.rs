//! What NetChain's objects mean on one node, for the interpreters.

mod peers;
mod slots;
mod tags;
mod window;

/// What objects draw from (`Object::supply`), and how their numbers stand for it.
pub mod supply {
    pub use super::peers::supply::*;
    pub use super::tags::supply::*;
}

use num_traits::ToPrimitive;
use p4_interpreter::Stop;
use p4_interpreter::object::{Answer, Datum, Declaration, Object, ObjectKinds};
use peers::Peers;
use slots::Slots;
use tags::Tags;
use window::Windows;

/// NetChain's kinds of objects.
pub struct Meaning;

impl ObjectKinds for Meaning {
    fn extern_types(&self) -> &'static [&'static str] {
        &[crate::SLOT_STATE, crate::REQUEST_WINDOW, crate::MESSAGE_TAG, crate::PEER_LEASES]
    }

    fn declare(&self, declaration: &Declaration<'_>) -> Result<Box<dyn Object>, Stop> {
        Ok(match declaration.kind {
            crate::MESSAGE_TAG => Box::new(Tags::default()),
            crate::PEER_LEASES => Box::new(Peers::default()),
            crate::REQUEST_WINDOW => Box::new(Windows::declare(declaration)?),
            _ => Box::new(Slots::declare(declaration)?),
        })
    }
}

/// How many elements an object has.
fn size_of(declaration: &Declaration<'_>) -> Result<usize, Stop> {
    match declaration.arguments.first() {
        Some(Some(size)) => Ok(usize::try_from(size).unwrap_or(usize::MAX)),
        _ => Err(Stop::Broken(format!("a {} without a size", declaration.kind))),
    }
}

/// An argument that is a number.
fn number(datum: &Datum) -> Result<u128, Stop> {
    match datum {
        Datum::Number(number) => Ok(number.to_u128().unwrap_or_default()),
        _ => Err(Stop::Undefined("an argument that was never written".into())),
    }
}

/// A member of an enum, by position.
fn answer(result: u32) -> Result<Answer, Stop> {
    Ok(Answer::Value(Datum::Number(result.into())))
}

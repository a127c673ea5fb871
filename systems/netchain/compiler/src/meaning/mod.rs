//! What NetChain's objects mean on one node, for the interpreters.

mod slots;
mod window;

use p4_interpreter::Stop;
use p4_interpreter::object::{Answer, Datum, Declaration, Object, ObjectKinds};
use slots::Slots;
use window::Windows;

/// NetChain's kinds of objects.
pub struct Meaning;

impl ObjectKinds for Meaning {
    fn extern_types(&self) -> &'static [&'static str] {
        &[crate::SLOT_STATE, crate::REQUEST_WINDOW]
    }

    fn declare(&self, declaration: &Declaration<'_>) -> Result<Box<dyn Object>, Stop> {
        Ok(match declaration.kind {
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

/// A member of an enum, by position.
fn answer(result: u32) -> Result<Answer, Stop> {
    Ok(Answer::Value(Datum::Number(result.into())))
}

//! Functions of programs that make one value of two (`p4_ir::Merge`), run alone.

use crate::object::Objects;
use crate::value::Value;
use crate::{Interpreter, Interrupt, Stop};
use num_bigint::BigInt;
use p4_ir::{Merge, Program};

/// Makes one value of two, as a program's function does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluator {
    merge: Merge,
    program: Program,
}

impl Evaluator {
    /// For this function.
    pub fn new(merge: &Merge) -> Evaluator {
        Evaluator { merge: merge.clone(), program: merge.alone() }
    }

    /// What becomes of two values.
    ///
    /// # Errors
    /// The outcome is open: it depends on what was never written, or divides by zero.
    pub fn of(&self, a: &BigInt, b: &BigInt) -> Result<BigInt, Stop> {
        let mut interpreter = Interpreter::new(&self.program, Objects::NONE)?;
        interpreter.storage = vec![Value::Undefined; self.program.variables.len()];
        for (id, value) in self.merge.parameters.iter().zip([a, b]) {
            match interpreter.storage.get_mut(id.index()) {
                Some(place) => *place = Value::Scalar(value.clone()),
                None => return Err(Stop::Broken("a parameter without storage".into())),
            }
        }
        match interpreter.block(&self.merge.body) {
            Ok(()) => {}
            Err(Interrupt::Stop(stop)) => return Err(stop),
            Err(other) => return Err(Stop::Broken(format!("{other:?} in a function"))),
        }
        match interpreter.storage.get(self.merge.result.index()) {
            Some(Value::Scalar(number)) => Ok(number.clone()),
            _ => Err(Stop::Undefined(format!("{} returns no value", self.merge.name))),
        }
    }

    /// The same of cells of 32 bits.
    ///
    /// # Errors
    /// As [`Evaluator::of`].
    pub fn of_cells(&self, a: u32, b: u32) -> Result<u32, Stop> {
        let made = self.of(&a.into(), &b.into())?;
        u32::try_from(&made).map_err(|_| Stop::Broken(format!("{made} is no cell")))
    }
}

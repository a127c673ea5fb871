//! The laws of the merges that a program names with `@merge`, as `stateplane check` tries them.
//!
//! The system whose object it is has refused the program if a law is broken that the object rests
//! on. This tells which ones hold, and tries them with other values.

use num_bigint::BigInt;
use p4_interpreter::Evaluator;
use p4_interpreter::laws::{Law, Refusal, SEED, Trial};
use p4_ir::{Merge, Program, Type};
use serde_json::{Value, json};
use xdp_backend::BackendError;

/// A function, and which of its laws hold.
pub struct Tried {
    function: Merge,
    object: String,
    place: String,
    laws: Vec<(Law, Result<(), Refusal>)>,
}

/// All merges of a program, with random values from this seed.
pub fn tried(program: &Program, seed: u64) -> Vec<Tried> {
    let objects = program.externs.iter();
    let named = objects.filter_map(|it| Some((it.name.clone(), it.merge.clone()?)));
    let of = |(object, function): (String, Merge)| Tried {
        laws: laws(&function, seed),
        place: program.place(function.location),
        object,
        function,
    };
    named.map(of).collect()
}

fn laws(function: &Merge, seed: u64) -> Vec<(Law, Result<(), Refusal>)> {
    let own = Evaluator::new(function);
    let merge = |a: &BigInt, b: &BigInt| own.of(a, b);
    let width = match function.ty() {
        Some(Type::Bits { width, .. }) => *width,
        _ => 1,
    };
    let trial = Trial { name: &function.name, width, merge: &merge };
    Law::ALL.into_iter().map(|law| (law, trial.holds(law, seed))).collect()
}

impl Tried {
    fn kept(&self) -> Vec<&'static str> {
        let kept = self.laws.iter().filter(|(_, found)| found.is_ok());
        kept.map(|(law, _)| law.name()).collect()
    }

    /// A line for people.
    pub fn text(&self, seed: u64) -> String {
        let Tried { function, object, place, .. } = self;
        let kept = self.kept().join(", ");
        format!("merge {} of {object} ({place}), tried with seed {seed}: {kept}", function.name)
    }

    /// The same for programs.
    pub fn json(&self, seed: u64) -> Value {
        let Tried { function, object, place, .. } = self;
        json!({
            "function": function.name,
            "object": object,
            "place": place,
            "seed": seed,
            "laws": self.kept(),
        })
    }

    /// These values break a law that the compiler's own values keep: it rests on luck.
    pub fn unlike(&self, seed: u64) -> Option<BackendError> {
        let first = if seed == SEED { vec![] } else { laws(&self.function, SEED) };
        let differs = first.iter().zip(&self.laws).find_map(|((law, first), (_, now))| {
            let refusal = now.as_ref().err()?;
            first.is_ok().then_some((*law, refusal))
        });
        let (law, refusal) = differs?;
        Some(BackendError {
            location: self.function.location,
            message: format!("{refusal} (found with seed {seed})"),
            help: Some(format!("{}: mend the function", law.reason())),
            note: None,
        })
    }
}

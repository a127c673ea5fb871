//! The laws of the merges that a program names with `@merge`, as `stateplane check` tries them.
//!
//! The system whose object it is has tried the laws that the object rests on, and has refused the
//! program if one is broken. This tries the other laws, or all of them with other values.

use num_bigint::BigInt;
use p4_interpreter::Evaluator;
use p4_interpreter::laws::{Law, Refusal, SEED, Trial};
use p4_ir::{Merge, Program, Type};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use xdp_backend::{BackendError, KeptLaws};

/// A function, and which of its laws hold.
pub struct Tried {
    function: Merge,
    object: String,
    place: String,
    laws: Laws,
}

type Laws = Vec<(Law, Result<(), Refusal>)>;

/// All merges of a program, with random values from this seed. `kept`: by [`SEED`].
pub fn tried(program: &Program, kept: &KeptLaws, seed: u64) -> Vec<Tried> {
    let none = KeptLaws::default();
    let known = if seed == SEED { kept } else { &none };
    let mut found: BTreeMap<String, Laws> = BTreeMap::new();
    let named = program.externs.iter().filter_map(|it| Some((it.name.clone(), it.merge.clone()?)));
    let of = |(object, function): (String, Merge)| {
        let laws = found.entry(function.name.clone()).or_insert_with(|| {
            Law::ALL.into_iter().map(|law| (law, holds(&function, law, known, seed))).collect()
        });
        let (laws, place) = (laws.clone(), program.place(function.location));
        Tried { function, object, place, laws }
    };
    named.map(of).collect()
}

/// Tries a law, unless it is known to hold.
fn holds(function: &Merge, law: Law, known: &KeptLaws, seed: u64) -> Result<(), Refusal> {
    if known.has(&function.name, law.name()) {
        return Ok(());
    }
    let own = Evaluator::new(function);
    let merge = |a: &BigInt, b: &BigInt| own.of(a, b);
    let width = match function.ty() {
        Some(Type::Bits { width, .. }) => *width,
        _ => 1,
    };
    Trial { name: &function.name, width, merge: &merge }.holds(law, seed)
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

    /// These values break a law that the compiler's own values keep: the program's acceptance was
    /// luck.
    pub fn unlike(&self, kept: &KeptLaws, seed: u64) -> Option<BackendError> {
        if seed == SEED {
            return None;
        }
        let (law, refusal) = self.laws.iter().find_map(|(law, now)| {
            let refusal = now.as_ref().err()?;
            holds(&self.function, *law, kept, SEED).is_ok().then_some((*law, refusal))
        })?;
        Some(BackendError {
            location: self.function.location,
            message: format!("{refusal} (found with seed {seed})"),
            help: Some(format!("{}: mend the function", law.reason())),
            note: None,
        })
    }
}

//! Merges of the program's own: `@merge("NAME")` of a sketch of `Sketch.OWN`.

use num_bigint::BigInt;
use p4_interpreter::Evaluator;
use p4_interpreter::laws::{Law, Refusal, SEED, Trial};
use p4_ir::{ExternInstance, Location, Merge as Function};
use serde_json::Value;
use swish_protocol::objects::{Merge, OwnMerge};
use xdp_backend::KeptLaws;
use xdp_backend::system::{Generator, Writer};

/// Bits of a cell.
const WIDTH: u32 = 32;
/// What every merge keeps: rotations come in any order, and a period begins from zeros.
pub const LAWS: [Law; 3] = [Law::Commutative, Law::Associative, Law::Identity];
/// Cells of EWO have no slots, and are sent again and again.
pub const EVENTUAL_LAWS: [Law; 4] =
    [Law::Commutative, Law::Associative, Law::Identity, Law::Idempotent];

/// The functions that a program's sketches name.
#[derive(Default)]
pub(crate) struct Functions {
    /// Names in P4, and C functions.
    all: Vec<(String, Writer)>,
}

/// Which of them an object has, and how its manifest tells of it.
#[derive(Clone)]
pub(crate) struct Own {
    pub(crate) number: usize,
    pub(crate) described: OwnMerge,
}

/// The name of the function in C.
fn c_name(name: &str) -> String {
    format!("sp_own_{name}")
}

impl Functions {
    /// The declaration's own merge, checked. `None`: it has none, or it was refused.
    pub(crate) fn declare(
        &mut self,
        generator: &mut Generator<'_>,
        instance: &ExternInstance,
        merge: Merge,
        is_eventual: bool,
    ) -> Option<Own> {
        let described = format!("{} {}", instance.extern_type, instance.name);
        let mut refuse = |message: &str, help: &str| {
            generator.error(instance.location, &format!("{described}: {message}"), Some(help));
        };
        let function = match (&instance.merge, merge) {
            (None, Merge::Own) => {
                refuse(
                    "Sketch.OWN without @merge: which function merges its cells?",
                    "name one before the declaration: @merge(\"NAME\")",
                );
                return None;
            }
            (None, _) => return None,
            (Some(function), Merge::Own) => function,
            (Some(_), _) => {
                refuse(
                    "@merge is of sketches of Sketch.OWN: other cells merge as their kind says",
                    "leave it out, or write Sketch.OWN",
                );
                return None;
            }
        };
        if function.ty() != Some(&p4_ir::Type::bits(WIDTH)) {
            let message = format!("@merge({:?}): cells have {WIDTH} bits", function.name);
            refuse(&message, "let the function take and return bit<32>");
            return None;
        }
        let laws: &[Law] = if is_eventual { &EVENTUAL_LAWS } else { &LAWS };
        if let Err(refusal) = keeps(function, laws, &mut generator.kept_laws) {
            self.refuse(generator, &described, instance.location, function, &refusal);
            return None;
        }
        let number = self.all.iter().position(|(name, _)| *name == function.name);
        let number = number.unwrap_or_else(|| {
            let text = generator.merge_function(function, &c_name(&function.name));
            self.all.push((function.name.clone(), text));
            self.all.len() - 1
        });
        Some(Own { number, described: described_function(function) })
    }

    fn refuse(
        &self,
        generator: &mut Generator<'_>,
        described: &str,
        location: Location,
        function: &Function,
        refusal: &Refusal,
    ) {
        let (message, help) = match refusal {
            Refusal::Broken(found) if found.law == Law::Idempotent => (
                format!("{described}: {found} (Shared.EWO: {})", found.law.reason()),
                "use Shared.SDW, which merges each update once".to_owned(),
            ),
            Refusal::Broken(found) => (
                format!("{described}: {found} ({})", found.law.reason()),
                "merge by a function that keeps the laws: commutative, associative, with 0 as its \
                 identity"
                    .to_owned(),
            ),
            Refusal::Stopped { .. } => (
                format!("{described}: {refusal}"),
                "let the function return a value whatever the two values are".to_owned(),
            ),
        };
        let note = format!("{}, tried with seed {SEED}", function.name);
        generator.error_beside(location, &message, Some(&help), Some((function.location, note)));
    }

    /// The C functions, and the list of them that the runtime dispatches by.
    pub(crate) fn includes(&self, text: &mut Writer) {
        if !self.all.is_empty() {
            text.line("/* Merges of the program's own. */");
        }
        let mut list = String::new();
        for (number, (name, function)) in self.all.iter().enumerate() {
            text.append(function.clone());
            list += &format!(" X({number}, {})", c_name(name));
        }
        text.line(format!("#define SP_SHARED_OWN_COUNT {}", self.all.len()));
        text.line(format!("#define SP_SHARED_OWN_MERGES(X){list}"));
    }
}

impl Own {
    /// How its cells merge, in C.
    pub(crate) fn c_number(&self) -> String {
        match self.number {
            0 => "SP_SHARED_OWN".into(),
            number => format!("(SP_SHARED_OWN + {number})"),
        }
    }
}

/// Tries laws of a function, but for those that are known to hold.
///
/// # Errors
/// The function breaks one of them.
fn keeps(function: &Function, laws: &[Law], known: &mut KeptLaws) -> Result<(), Refusal> {
    let own = Evaluator::new(function);
    let merge = |a: &BigInt, b: &BigInt| own.of(a, b);
    let trial = Trial { name: &function.name, width: WIDTH, merge: &merge };
    for law in laws {
        if !known.has(&function.name, law.name()) {
            trial.holds(*law, SEED)?;
            known.add(&function.name, law.name());
        }
    }
    Ok(())
}

/// As a manifest has it: without places in the source, which change when a line is added above.
fn described_function(function: &Function) -> OwnMerge {
    let mut value = serde_json::to_value(function).unwrap_or_default();
    forget_places(&mut value);
    OwnMerge { name: function.name.clone(), function: value }
}

fn forget_places(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(forget_places),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if name == "location" {
                    *field = serde_json::to_value(Location::default()).unwrap_or_default();
                } else {
                    forget_places(field);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4_ir::{Scope, Variable, VariableId};

    /// The kinds that the system brings are held to the laws that it asks of programs.
    #[test]
    fn built_in_merges_keep_the_laws() {
        for kind in [Merge::Sum, Merge::Or, Merge::Max] {
            let merge = |a: &BigInt, b: &BigInt| {
                let cell = |it: &BigInt| u32::try_from(it).expect("a cell");
                Ok(kind.of(cell(a), cell(b)).expect("a kind of its own").into())
            };
            let trial = Trial { name: "m", width: WIDTH, merge: &merge };
            // (A sum has slots with EWO, so that nothing counts twice.)
            let laws: &[Law] = if kind == Merge::Sum { &LAWS } else { &EVENTUAL_LAWS };
            let found = laws.iter().try_for_each(|law| trial.holds(*law, SEED));
            assert_eq!(found, Ok(()), "{kind:?}");
        }
        let sum = |a: &BigInt, b: &BigInt| Ok((a + b) & BigInt::from(u32::MAX));
        let trial = Trial { name: "m", width: WIDTH, merge: &sum };
        assert!(trial.holds(Law::Idempotent, SEED).is_err());
    }

    /// The later one of two values. It is neither commutative, nor is 0 its identity.
    fn later() -> Function {
        let variable = |name: &str| Variable {
            name: name.into(),
            ty: p4_ir::Type::bits(WIDTH),
            scope: Scope::Ingress,
            location: Location::default(),
        };
        Function {
            name: "later".into(),
            variables: vec![variable("a"), variable("b")],
            parameters: [VariableId(0), VariableId(1)],
            result: VariableId(1),
            body: vec![],
            location: Location::default(),
        }
    }

    /// Two sketches may name one function.
    #[test]
    fn laws_that_are_known_are_not_tried_again() {
        let mut known = KeptLaws::default();
        assert_eq!(keeps(&later(), &[Law::Associative], &mut known), Ok(()));
        assert!(known.has("later", Law::Associative.name()));
        assert!(keeps(&later(), &LAWS, &mut known).is_err());
        LAWS.iter().for_each(|law| known.add("later", law.name()));
        assert_eq!(keeps(&later(), &LAWS, &mut known), Ok(()));
    }
}

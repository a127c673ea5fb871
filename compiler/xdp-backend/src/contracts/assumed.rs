//! What the conditions on a packet's way say, so that a later condition of the same values may be
//! decided: `if (a == 1) … if (a != 1) …`.

use super::values::Value;
use num_bigint::BigInt;
use num_traits::Zero;

/// With more conditions, the newest are not remembered.
const MAX_CONDITIONS: usize = 64;

/// Conditions, with what they are. Values never change (values.rs), so neither do these.
#[derive(Clone, Default)]
pub(super) struct Assumed(Vec<(Value, bool)>);

/// `value == number`
pub(super) fn equals(value: &Value, number: &BigInt) -> Value {
    Value::Operator("Eq".into(), vec![value.clone(), Value::Const(number.clone())])
}

fn parts(value: &Value) -> Option<(&str, &[Value])> {
    match value {
        Value::Operator(name, operands) => Some((name, operands)),
        _ => None,
    }
}

/// A condition without negation in front, and whether there was one.
fn positive(condition: &Value) -> (Value, bool) {
    match parts(condition) {
        Some(("Not", [inner])) => {
            let (inner, negated) = positive(inner);
            (inner, !negated)
        }
        Some(("Ne", [one, other])) => {
            (Value::Operator("Eq".into(), vec![one.clone(), other.clone()]), true)
        }
        _ => (condition.clone(), false),
    }
}

/// Of `x == number`, in either order.
fn comparison(condition: &Value) -> Option<(&Value, &BigInt)> {
    match parts(condition)? {
        ("Eq", [value, Value::Const(number)] | [Value::Const(number), value]) => {
            Some((value, number))
        }
        _ => None,
    }
}

impl Assumed {
    /// The way goes on where the condition is this.
    pub(super) fn add(&mut self, condition: &Value, is: bool) {
        match (parts(condition), is) {
            (Some(("And", both)), true) => {
                return both.iter().for_each(|each| self.add(each, true));
            }
            (Some(("Or", both)), false) => {
                return both.iter().for_each(|each| self.add(each, false));
            }
            _ => {}
        }
        let (condition, negated) = positive(condition);
        let is = is != negated;
        if let Some(("And" | "Or", _)) = parts(&condition).filter(|_| negated) {
            return self.add(&condition, is);
        }
        if !matches!(condition, Value::Const(_)) && self.0.len() < MAX_CONDITIONS {
            self.0.push((condition, is));
        }
    }

    /// What a condition is on this way, if that is known.
    pub(super) fn decide(&self, condition: &Value) -> Option<bool> {
        let decide = |condition: &Value| self.decide(condition);
        match (condition, parts(condition)) {
            (Value::Const(value), _) => return Some(!value.is_zero()),
            (_, Some(("And", [one, other]))) => match (decide(one), decide(other)) {
                (Some(false), _) | (_, Some(false)) => return Some(false),
                (Some(true), Some(true)) => return Some(true),
                _ => {}
            },
            (_, Some(("Or", [one, other]))) => match (decide(one), decide(other)) {
                (Some(true), _) | (_, Some(true)) => return Some(true),
                (Some(false), Some(false)) => return Some(false),
                _ => {}
            },
            _ => {}
        }
        let (wanted, negated) = positive(condition);
        if negated && matches!(parts(&wanted), Some(("And" | "Or", _))) {
            return decide(&wanted).map(|is| !is);
        }
        self.decide_positive(&wanted).map(|is| is != negated)
    }

    fn decide_positive(&self, wanted: &Value) -> Option<bool> {
        if let Value::Const(value) = wanted {
            return Some(!value.is_zero());
        }
        if let Some(("Eq", [one, other])) = parts(wanted) {
            match (one, other) {
                (Value::Const(one), Value::Const(other)) => return Some(one == other),
                _ if one == other => return Some(true),
                _ => {}
            }
        }
        let compared = comparison(wanted);
        self.0.iter().find_map(|(known, is)| {
            if known == wanted {
                return Some(*is);
            }
            // What equals one number equals no other.
            let ((value, number), (other, another)) = (compared?, comparison(known)?);
            (*is && value == other && number != another).then_some(false)
        })
    }

    /// What is known on either of two ways.
    pub(super) fn join(&mut self, other: &Assumed) {
        self.0.retain(|condition| other.0.contains(condition));
    }
}

//! Values of checked types, and the places that l-values name.

use super::{Ended, Run, Tree, broken};
use crate::Stop;
use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{One, Zero};
use p4_check::hir::{LocalId, RecordKind};
use p4_check::ty::Ty;

/// What a name or an expression stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// In the range of its type; `bool` 0 and 1, errors and members of enums by index.
    Number(BigInt),
    /// Never written.
    Undefined,
    Header {
        valid: bool,
        fields: Vec<Value>,
    },
    /// Structs and tuples.
    Struct(Vec<Value>),
    Union(Vec<Value>),
    Stack {
        elements: Vec<Value>,
        next: usize,
    },
    Varbit(Vec<u8>),
    Str(String),
}

impl Value {
    /// A field of a header, struct or union.
    pub(crate) fn field(self, index: u32) -> Run<Value> {
        let (Value::Header { fields, .. } | Value::Struct(fields) | Value::Union(fields)) = self else {
            return broken("a field of what has none");
        };
        fields.into_iter().nth(index as usize).map_or_else(|| broken("no such field"), Ok)
    }
}

/// Where an l-value lies.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub local: LocalId,
    pub steps: Vec<usize>,
    /// The type of what the steps lead to.
    pub ty: Ty,
    /// `[high:low]` of it.
    pub slice: Option<(u32, u32)>,
    /// An index beyond the stack is on the way: reads give 0, writes are lost (docs/p4-support.md).
    pub outside: bool,
}

/// The value's bits, as a number that is not negative.
pub(crate) fn bits(value: &BigInt, width: u32) -> BigInt {
    value.mod_floor(&(BigInt::one() << width))
}

/// Modulo 2^width, two's complement if signed (P4-16 §8.6, §8.7).
pub(crate) fn reduce(value: &BigInt, width: u32, signed: bool) -> BigInt {
    let low = bits(value, width);
    if signed && low.bit(u64::from(width) - 1) { low - (BigInt::one() << width) } else { low }
}

impl Tree<'_> {
    /// Width and sign of a scalar type; errors and enums count as 32 bits, as they cannot be seen in packets.
    pub(crate) fn scalar(&self, ty: &Ty) -> Option<(u32, bool)> {
        let ty = ty.substitute(&self.generics);
        match self.hir.underlying(&ty) {
            Ty::Bool => Some((1, false)),
            Ty::Error | Ty::Enum(_) => Some((32, false)),
            other => other.bits(),
        }
    }

    /// A number as one of this type.
    pub(crate) fn fit(&self, value: &BigInt, ty: &Ty) -> BigInt {
        match self.hir.underlying(&ty.substitute(&self.generics)).bits() {
            Some((width, signed)) => reduce(value, width, signed),
            None => value.clone(),
        }
    }

    /// What storage of this type holds at first: headers are invalid with fields of 0 (docs/p4-support.md), all else
    /// has no value, or 0 (`zero`: metadata).
    pub(crate) fn initial(&self, ty: &Ty, zero: bool) -> Run<Value> {
        let ty = ty.substitute(&self.generics);
        Ok(match self.hir.underlying(&ty) {
            Ty::Varbit(_) => Value::Varbit(Vec::new()),
            Ty::Tuple(parts) => Value::Struct(parts.iter().map(|t| self.initial(t, zero)).collect::<Run<_>>()?),
            Ty::Stack(element, size) => {
                Value::Stack { elements: vec![self.initial(&element, true)?; size as usize], next: 0 }
            }
            Ty::Record(id, args) => {
                let kind = self.hir.records[id.index()].kind;
                let zero = zero || kind != RecordKind::Struct;
                let fields = self.hir.fields_of(id, &args);
                let values = fields.iter().map(|(_, t)| self.initial(t, zero)).collect::<Run<Vec<Value>>>()?;
                match kind {
                    RecordKind::Struct => Value::Struct(values),
                    RecordKind::Header => Value::Header { valid: false, fields: values },
                    RecordKind::Union => Value::Union(values),
                }
            }
            other if other == Ty::Bool || matches!(other, Ty::Error | Ty::Enum(_)) || other.bits().is_some() => {
                if zero { Value::Number(BigInt::zero()) } else { Value::Undefined }
            }
            other => return broken(format!("a variable of type {other:?}")),
        })
    }

    fn at(&self, place: &Place) -> Run<&Value> {
        let Some(mut value) = self.locals.get(place.local.index()).and_then(Option::as_ref) else {
            return broken("a name that stands for nothing");
        };
        for step in &place.steps {
            let inner = match value {
                Value::Header { fields, .. } | Value::Struct(fields) | Value::Union(fields) => fields.get(*step),
                Value::Stack { elements, .. } => elements.get(*step),
                _ => None,
            };
            let Some(inner) = inner else { return broken("a step into nothing") };
            value = inner;
        }
        Ok(value)
    }

    pub(crate) fn at_mut(&mut self, place: &Place) -> Run<&mut Value> {
        let Some(mut value) = self.locals.get_mut(place.local.index()).and_then(Option::as_mut) else {
            return broken("a name that stands for nothing");
        };
        for step in &place.steps {
            let inner = match value {
                Value::Header { fields, .. } | Value::Struct(fields) | Value::Union(fields) => fields.get_mut(*step),
                Value::Stack { elements, .. } => elements.get_mut(*step),
                _ => None,
            };
            let Some(inner) = inner else { return broken("a step into nothing") };
            value = inner;
        }
        Ok(value)
    }

    pub(crate) fn load(&self, place: &Place) -> Run<Value> {
        let value = if place.outside { self.initial(&place.ty, true)? } else { self.at(place)?.clone() };
        match (place.slice, value) {
            (Some((high, low)), Value::Number(number)) => {
                let width = self.scalar(&place.ty).map_or(high + 1, |(width, _)| width);
                Ok(Value::Number(bits(&(bits(&number, width) >> low), high - low + 1)))
            }
            (_, value) => Ok(value),
        }
    }

    pub(crate) fn store(&mut self, place: &Place, value: Value) -> Run<()> {
        if place.outside {
            return Ok(());
        }
        let value = match place.slice {
            None => value,
            Some((high, low)) => {
                let (Value::Number(part), Value::Number(whole)) = (value, self.at(place)?.clone()) else {
                    return Err(Stop::Undefined("a slice of what was never written is assigned".into()).into());
                };
                let width = self.scalar(&place.ty).map_or(high + 1, |(width, _)| width);
                let hole: BigInt = ((BigInt::one() << (high - low + 1)) - 1) << low;
                let whole = bits(&whole, width);
                let kept = &whole - (&whole & &hole);
                Value::Number(self.fit(&(kept + (bits(&part, high - low + 1) << low)), &place.ty))
            }
        };
        let valid = matches!(value, Value::Header { valid: true, .. });
        *self.at_mut(place)? = value;
        if valid { self.only_valid(place) } else { Ok(()) }
    }

    pub(crate) fn set_valid(&mut self, place: &Place, to: bool) -> Run<()> {
        if place.outside {
            return Ok(());
        }
        match self.at_mut(place)? {
            Value::Header { valid, fields } => {
                if to && !*valid {
                    // bmv2's add_header.
                    fields.iter_mut().for_each(clear);
                }
                *valid = to;
            }
            Value::Union(members) => members.iter_mut().for_each(invalidate),
            _ => return broken("validity of what is no header"),
        }
        if to { self.only_valid(place) } else { Ok(()) }
    }

    /// A header that becomes valid in a union makes the others invalid (P4-16 §8.20).
    fn only_valid(&mut self, place: &Place) -> Run<()> {
        let Some((own, steps)) = place.steps.split_last() else { return Ok(()) };
        let parent = Place { steps: steps.to_vec(), ..place.clone() };
        if let Value::Union(members) = self.at_mut(&parent)? {
            members.iter_mut().enumerate().filter(|(index, _)| index != own).for_each(|(_, m)| invalidate(m));
        }
        Ok(())
    }
}

fn clear(field: &mut Value) {
    *field = match field {
        Value::Varbit(_) => Value::Varbit(Vec::new()),
        _ => Value::Number(BigInt::zero()),
    };
}

fn invalidate(member: &mut Value) {
    if let Value::Header { valid, .. } = member {
        *valid = false;
    }
}

impl From<Stop> for Ended {
    fn from(stop: Stop) -> Ended {
        Ended::Stop(stop)
    }
}

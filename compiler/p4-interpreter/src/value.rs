//! Values: integers of any width, headers with their validity, stacks with their next index; and
//! places in them.

use crate::{Interpreter, Run, Stop, broken};
use num_bigint::{BigInt, Sign};
use num_integer::Integer;
use num_traits::{One, Zero};
use p4_ir::{Expr, ExprKind, Program, Type};

/// What a variable holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// In the range of its type; `bool` 0 and 1, `error` and enums indices.
    Scalar(BigInt),
    /// Never written.
    Undefined,
    Header {
        valid: bool,
        fields: Vec<Value>,
    },
    Struct(Vec<Value>),
    Union(Vec<Value>),
    Stack {
        elements: Vec<Value>,
        next: u32,
    },
    Varbit(Vec<u8>),
}

/// A scalar type's width in bits.
pub(crate) fn width(ty: &Type) -> Option<u32> {
    match ty {
        Type::Bits { width, .. } => Some(*width),
        Type::Bool => Some(1),
        Type::Error | Type::Enum(_) => Some(32),
        _ => None,
    }
}

/// The value's bits as a number that is not negative: modulo 2^width.
pub(crate) fn pattern(value: &BigInt, width: u32) -> BigInt {
    if value.sign() != Sign::Minus && value.bits() <= u64::from(width) {
        return value.clone();
    }
    value.mod_floor(&(BigInt::one() << width))
}

/// The value that these bits (of any sign and length) are of this type: P4-16 §8.6, §8.7: modulo
/// 2^W, two's complement.
pub(crate) fn wrap(value: &BigInt, ty: &Type) -> BigInt {
    match ty {
        Type::Bits { width, signed } => {
            let bits = pattern(value, *width);
            if *signed && bits >= BigInt::one() << (width - 1) {
                bits - (BigInt::one() << width)
            } else {
                bits
            }
        }
        _ => value.clone(),
    }
}

/// What a variable of this type holds at first. Fields of headers are 0 (docs/p4-support.md), as
/// are those of metadata (`zero`).
pub(crate) fn initial(program: &Program, ty: &Type, zero: bool) -> Result<Value, Stop> {
    let all = |fields: &[p4_ir::Field], zero: bool| {
        fields
            .iter()
            .map(|field| initial(program, &field.ty, zero))
            .collect::<Result<Vec<Value>, Stop>>()
    };
    Ok(match ty {
        Type::Bits { .. } | Type::Bool | Type::Error | Type::Enum(_) => {
            if zero {
                Value::Scalar(BigInt::zero())
            } else {
                Value::Undefined
            }
        }
        Type::Header(id) => Value::Header {
            valid: false,
            fields: all(&program.header_types[id.index()].fields, true)?,
        },
        Type::Struct(id) => Value::Struct(all(&program.struct_types[id.index()].fields, zero)?),
        Type::Union(id) => Value::Union(all(&program.union_types[id.index()].fields, true)?),
        Type::Stack { header, size } => {
            let element = initial(program, &Type::Header(*header), true)?;
            Value::Stack { elements: vec![element; *size as usize], next: 0 }
        }
        Type::Varbit { .. } => Value::Varbit(Vec::new()),
        Type::String => return Err(Stop::Broken("a variable of type string".into())),
    })
}

/// Where an l-value lies.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    variable: usize,
    /// Fields and elements on the way.
    steps: Vec<usize>,
    /// `[high:low]`
    slice: Option<(u32, u32)>,
    /// The type of what `steps` leads to.
    ty: Type,
    /// An index out of bounds was on the way: reads 0, writes are dropped.
    outside: bool,
}

impl Place {
    pub fn parent(&self) -> Option<Place> {
        let (_, steps) = self.steps.split_last()?;
        Some(Place { steps: steps.to_vec(), slice: None, ..self.clone() })
    }

    pub fn field(&self, index: usize, ty: Type) -> Place {
        let mut steps = self.steps.clone();
        steps.push(index);
        Place { steps, ty, ..self.clone() }
    }
}

impl Interpreter<'_> {
    /// The place of an l-value.
    pub(crate) fn place(&mut self, expr: &Expr) -> Run<Place> {
        Ok(match &expr.kind {
            ExprKind::Var(id) => Place {
                variable: id.index(),
                steps: Vec::new(),
                slice: None,
                ty: expr.ty.clone(),
                outside: false,
            },
            ExprKind::Field(base, index) => {
                self.place(base)?.field(*index as usize, expr.ty.clone())
            }
            ExprKind::Index(base, index) => {
                let index = self.number(index)?;
                let Type::Stack { size, .. } = base.ty else {
                    return broken("an index into a value that is not a stack");
                };
                let base = self.place(base)?;
                match usize::try_from(&index).ok().filter(|index| *index < size as usize) {
                    Some(index) => base.field(index, expr.ty.clone()),
                    None => Place { outside: true, ..base.field(0, expr.ty.clone()) },
                }
            }
            ExprKind::StackNext(base) => {
                let (base, next, size) = self.stack(base)?;
                if next >= size {
                    return self.reject("StackOutOfBounds");
                }
                base.field(next as usize, expr.ty.clone())
            }
            ExprKind::StackLast(base) => {
                let (base, next, _) = self.stack(base)?;
                match next.checked_sub(1) {
                    Some(last) => base.field(last as usize, expr.ty.clone()),
                    None => return self.reject("StackOutOfBounds"),
                }
            }
            ExprKind::Slice { base, high, low } => {
                let mut place = self.place(base)?;
                let under = place.slice.map_or(0, |(_, low)| low);
                place.slice = Some((high + under, low + under));
                place
            }
            other => return broken(format!("no l-value: {other:?}")),
        })
    }

    /// A stack's place, its next index and its size.
    pub(crate) fn stack(&mut self, expr: &Expr) -> Run<(Place, u32, u32)> {
        let place = self.place(expr)?;
        let (next, size) = match self.at(&place)? {
            Value::Stack { elements, next } => (*next, elements.len() as u32),
            _ => return broken("a stack was expected"),
        };
        Ok((place, next, size))
    }

    fn at(&self, place: &Place) -> Run<&Value> {
        let mut value = &self.storage[place.variable];
        for step in &place.steps {
            let inner = match value {
                Value::Header { fields, .. } | Value::Struct(fields) | Value::Union(fields) => {
                    fields.get(*step)
                }
                Value::Stack { elements, .. } => elements.get(*step),
                _ => None,
            };
            value = match inner {
                Some(inner) => inner,
                None => return broken("a step into nothing"),
            };
        }
        Ok(value)
    }

    pub(crate) fn at_mut(&mut self, place: &Place) -> Run<&mut Value> {
        let mut value = &mut self.storage[place.variable];
        for step in &place.steps {
            let inner = match value {
                Value::Header { fields, .. } | Value::Struct(fields) | Value::Union(fields) => {
                    fields.get_mut(*step)
                }
                Value::Stack { elements, .. } => elements.get_mut(*step),
                _ => None,
            };
            value = match inner {
                Some(inner) => inner,
                None => return broken("a step into nothing"),
            };
        }
        Ok(value)
    }

    /// What lies there.
    pub(crate) fn load(&self, place: &Place) -> Run<Value> {
        let value = if place.outside {
            initial(self.program, &place.ty, true)?
        } else {
            self.at(place)?.clone()
        };
        match (place.slice, value) {
            (Some((high, low)), Value::Scalar(number)) => {
                let width = width(&place.ty).unwrap_or(high + 1);
                Ok(Value::Scalar(slice(&number, width, high, low)))
            }
            (_, value) => Ok(value),
        }
    }

    /// Writes there; a header that becomes valid in a union makes the others invalid (P4-16 §8.19).
    pub(crate) fn store(&mut self, place: &Place, value: Value) -> Run<()> {
        if place.outside {
            return Ok(());
        }
        let value = match place.slice {
            None => value,
            Some((high, low)) => {
                let all = width(&place.ty).unwrap_or(high + 1);
                let zero = BigInt::zero();
                match (value, self.at(place)?) {
                    (Value::Scalar(part), Value::Scalar(whole)) => {
                        splice(whole, (high, low), &part, all, &place.ty)
                    }
                    (Value::Scalar(part), _) if low == 0 && high + 1 == all => {
                        splice(&zero, (high, low), &part, all, &place.ty)
                    }
                    _ => Value::Undefined,
                }
            }
        };
        let valid = matches!(value, Value::Header { valid: true, .. });
        *self.at_mut(place)? = value;
        if valid { self.oust_rivals(place) } else { Ok(()) }
    }

    /// Sets a header's validity. One that becomes valid has all fields 0 (bmv2's add_header).
    pub(crate) fn set_valid(&mut self, place: &Place, to: bool) -> Run<()> {
        if place.outside {
            return Ok(());
        }
        match self.at_mut(place)? {
            Value::Header { valid, fields } => {
                if to && !*valid {
                    fields.iter_mut().for_each(clear);
                }
                *valid = to;
            }
            _ => return broken("validity of a value that is not a header"),
        }
        if to { self.oust_rivals(place) } else { Ok(()) }
    }

    fn oust_rivals(&mut self, place: &Place) -> Run<()> {
        let (Some(parent), Some(own)) = (place.parent(), place.steps.last()) else { return Ok(()) };
        if let Value::Union(members) = self.at_mut(&parent)? {
            for (index, member) in members.iter_mut().enumerate() {
                if let (true, Value::Header { valid, .. }) = (index != *own, member) {
                    *valid = false;
                }
            }
        }
        Ok(())
    }

    /// The parser rejects with this error.
    pub(crate) fn reject<T>(&self, error: &str) -> Run<T> {
        Err(crate::Interrupt::ParserError(self.error_index(error)))
    }
}

/// A scalar of `width` bits with bits `high..=low` replaced.
fn splice(whole: &BigInt, (high, low): (u32, u32), part: &BigInt, width: u32, ty: &Type) -> Value {
    let hole = ((BigInt::one() << (high - low + 1)) - 1) << low;
    let bits = pattern(whole, width);
    let kept = &bits - (&bits & &hole);
    Value::Scalar(wrap(&(kept + (pattern(part, high - low + 1) << low)), ty))
}

/// A header's field becomes 0.
fn clear(field: &mut Value) {
    *field = match field {
        Value::Varbit(_) => Value::Varbit(Vec::new()),
        _ => Value::Scalar(BigInt::zero()),
    };
}

/// `value[high:low]` of a value of `width` bits.
pub(crate) fn slice(value: &BigInt, width: u32, high: u32, low: u32) -> BigInt {
    pattern(&(pattern(value, width) >> low), high - low + 1)
}

//! Extern functions and objects of v1model.

use super::value::{Place, Value, bits};
use super::{Ended, Run, Tree, broken, unsupported};
use crate::{DROP_PORT, hash};
use num_bigint::{BigInt, Sign};
use num_traits::{ToPrimitive, Zero};
use p4_check::hir::{Call, Direction, Expr, ExprKind, FunctionDef, FunctionId};
use p4_check::ty::Ty;

/// An argument: its value if it goes in, its place if it comes out.
#[derive(Clone, Default)]
struct Given {
    value: Option<Value>,
    place: Option<Place>,
    ty: Option<Ty>,
}

/// Bits as bytes; the last is filled with zeros.
pub(crate) fn bytes(bits: &[bool]) -> Vec<u8> {
    let byte = |chunk: &[bool]| (0..8).fold(0, |sum, i| sum << 1 | u8::from(*chunk.get(i).unwrap_or(&false)));
    bits.chunks(8).map(byte).collect()
}

/// The position of the field list among the parameters of a hash or checksum.
fn data_parameter(function: &str) -> Option<usize> {
    match function {
        "hash" => Some(3),
        _ if function.contains("_checksum") => Some(1),
        _ => None,
    }
}

impl<'h> Tree<'h> {
    fn arguments(&mut self, f: &FunctionDef, c: &Call) -> Run<Vec<Given>> {
        let mut given = vec![Given::default(); c.args.len()];
        for at in c.order.places(c.args.len()) {
            let (Some(p), Some(a)) = (f.params.get(at), &c.args[at]) else { continue };
            given[at].ty = Some(a.ty.clone());
            if matches!(p.direction, Direction::Out | Direction::InOut) {
                let place = self.place(a)?;
                if p.direction == Direction::InOut {
                    given[at].value = Some(self.load(&place)?);
                }
                given[at].place = Some(place);
            } else {
                let is_list = data_parameter(&f.name) == Some(at);
                let value = if is_list { self.field_list(a)? } else { self.eval(a)? };
                given[at].value = Some(value);
            }
        }
        Ok(given)
    }

    /// The data of a hash or checksum. A field of an invalid header adds no bits (bmv2's
    /// calculations.cpp, BufBuilder); a varbit without bytes stands for it.
    fn field_list(&mut self, e: &Expr) -> Run<Value> {
        match &e.kind {
            ExprKind::Aggregate(parts, order) => {
                let mut values = vec![Value::Undefined; parts.len()];
                for at in order.places(parts.len()) {
                    values[at] = self.field_list(&parts[at])?;
                }
                Ok(self.aggregate(values, &e.ty))
            }
            ExprKind::Field(base, index) => match self.eval(base)? {
                Value::Header { valid: false, .. } => Ok(Value::Varbit(Vec::new())),
                value => value.field(*index),
            },
            _ => self.eval(e),
        }
    }

    fn given_number(given: &[Given], at: usize) -> Run<BigInt> {
        match given.get(at).and_then(|g| g.value.as_ref()) {
            Some(Value::Number(number)) => Ok(number.clone()),
            Some(Value::Undefined) => super::undefined("an argument that was never written"),
            _ => broken("an argument is missing"),
        }
    }

    fn give(&mut self, given: &[Given], at: usize, number: &BigInt) -> Run<()> {
        let Some(place) = given.get(at).and_then(|g| g.place.clone()) else { return Ok(()) };
        let ty = given[at].ty.clone().unwrap_or(Ty::Void);
        let number = match place.slice {
            Some((high, low)) => bits(number, high - low + 1),
            None => self.fit(number, &ty),
        };
        self.store(&place, Value::Number(number))
    }

    pub(crate) fn extern_function(&mut self, f: &'h FunctionDef, c: &Call) -> Run<Option<Value>> {
        let given = self.arguments(f, c)?;
        let yes = |at: usize| Self::given_number(&given, at).map(|n| !n.is_zero());
        let payload = f.name.ends_with("_with_payload");
        match &*f.name {
            "mark_to_drop" => {
                let Some(Value::Struct(mut fields)) = given.first().and_then(|g| g.value.clone()) else {
                    return broken("mark_to_drop without metadata");
                };
                for (name, number) in [("egress_spec", u64::from(DROP_PORT)), ("mcast_grp", 0)] {
                    let index = self.standard_field(name)?;
                    fields[index] = Value::Number(BigInt::from(number));
                }
                if let Some(place) = &given[0].place {
                    self.store(&place.clone(), Value::Struct(fields))?;
                }
            }
            "assert" | "assume" | "log_msg" => {}
            "static_assert" => return Ok(Some(Value::Number(BigInt::from(1)))),
            "to_host" => return Err(Ended::ToHost),
            "gateway_check" => {
                let is_fit = crate::gateway::refused(&self.packet.bytes).is_none();
                return Ok(Some(Value::Number(BigInt::from(u8::from(is_fit)))));
            }
            "truncate" => self.packet.truncate = Self::given_number(&given, 0)?.to_usize(),
            "verify" => {
                if !yes(0)? {
                    let error = Self::given_number(&given, 1)?;
                    return Err(Ended::Reject(error.to_u32()));
                }
            }
            "random" => {
                let (low, high) = (Self::given_number(&given, 1)?, Self::given_number(&given, 2)?);
                if low != high {
                    return unsupported("random numbers");
                }
                self.give(&given, 0, &low)?;
            }
            "hash" => {
                let base = Self::given_number(&given, 2)?;
                let digest = self.digest(&given, 3, 1, false)?;
                let max = Self::given_number(&given, 4)?;
                let value = if max.is_zero() { base } else { base + digest % max };
                self.give(&given, 0, &value)?;
            }
            "verify_checksum" | "verify_checksum_with_payload" => {
                if yes(0)? {
                    let digest = self.digest(&given, 1, 3, payload)?;
                    let width = given[2].ty.as_ref().and_then(|t| self.scalar(t)).map_or(64, |(w, _)| w);
                    if bits(&Self::given_number(&given, 2)?, width) != bits(&digest, width) {
                        // The checksum controls do not see standard metadata: it is in its own place.
                        self.set_standard("checksum_error", 1)?;
                    }
                }
            }
            "update_checksum" | "update_checksum_with_payload" => {
                if yes(0)? {
                    let digest = self.digest(&given, 1, 3, payload)?;
                    self.give(&given, 2, &digest)?;
                }
            }
            other => return unsupported(other),
        }
        Ok(None)
    }

    fn digest(&mut self, given: &[Given], data: usize, algorithm: usize, payload: bool) -> Run<BigInt> {
        let (Some(value), Some(ty)) = (&given[data].value, &given[data].ty) else { return broken("no field list") };
        let mut list = Vec::new();
        self.append(value, ty, &mut list)?;
        let mut bytes = bytes(&list);
        if payload {
            bytes.extend_from_slice(&self.packet.bytes[self.packet.cursor / 8..]);
        }
        let index = Self::given_number(given, algorithm)?.to_usize().unwrap_or(usize::MAX);
        let Some(Ty::Enum(id)) = &given[algorithm].ty else { return broken("an algorithm that is no enum") };
        let name = self.hir.enums[id.index()].members.get(index).map(|(name, _)| name.to_string());
        Ok(match name.as_deref() {
            Some("crc32") => BigInt::from(hash::crc32(&bytes)),
            Some("crc16") => BigInt::from(hash::crc16(&bytes)),
            Some("csum16") => BigInt::from(hash::csum16(&bytes)),
            Some("xor16") => BigInt::from(hash::xor16(&bytes)),
            Some("identity") => BigInt::from_bytes_be(Sign::Plus, &bytes[..bytes.len().min(8)]),
            other => return unsupported(format!("hash algorithm {other:?}")),
        })
    }

    pub(crate) fn method(&mut self, object: usize, id: FunctionId, c: &Call) -> Run<Option<Value>> {
        let hir = self.hir;
        let f = &hir.functions[id.index()];
        let given = self.arguments(f, c)?;
        let kind = self.externs[object].kind.clone();
        match (kind.as_str(), &*f.name) {
            ("register", "read") => {
                let index = Self::given_number(&given, 1)?.to_usize();
                let element = index.and_then(|index| self.externs[object].numbers.get(index).cloned());
                // Beyond the register: 0 (docs/p4-support.md).
                self.give(&given, 0, &element.unwrap_or_default())?;
            }
            ("register", "write") => {
                let index = Self::given_number(&given, 0)?.to_usize();
                let value = Self::given_number(&given, 1)?;
                if let Some(element) = index.and_then(|index| self.externs[object].numbers.get_mut(index)) {
                    *element = value;
                }
            }
            ("counter", "count") => {
                let index = Self::given_number(&given, 0)?.to_usize();
                let length = self.packet.bytes.len() as u64;
                if let Some(count) = index.and_then(|index| self.externs[object].counts.get_mut(index)) {
                    count.packets += 1;
                    count.bytes += length;
                }
            }
            ("direct_counter", "count") => self.count_direct(),
            (kind, name) => return unsupported(format!("{kind}.{name}")),
        }
        Ok(None)
    }
}

//! Extern functions and objects of v1model.

use crate::value::{Value, pattern, width};
use crate::{Interpreter, Interrupt, Run, Stop, broken, hash};
use num_bigint::BigInt;
use num_traits::{ToPrimitive, Zero};
use p4_ir::{Argument, Expr, ExprKind, ExternId, Type};

pub(crate) fn operand(arguments: &[Argument], index: usize) -> Run<&Expr> {
    match arguments.get(index) {
        Some(Argument::In(expr) | Argument::Out(expr) | Argument::InOut(expr)) => Ok(expr),
        _ => broken("an argument is missing"),
    }
}

/// Appends a value's bits, the highest first.
fn append(bits: &mut Vec<bool>, value: &BigInt, width: u32) {
    let value = pattern(value, width);
    bits.extend((0..u64::from(width)).rev().map(|bit| value.bit(bit)));
}

impl Interpreter<'_> {
    pub(crate) fn call(
        &mut self,
        instance: Option<ExternId>,
        name: &str,
        arguments: &[Argument],
        result: Option<&Expr>,
    ) -> Run<()> {
        if let Some(id) = instance {
            return self.method(id, name, arguments, result);
        }
        let payload = name.ends_with("_with_payload");
        match name {
            "mark_to_drop" => {
                // The argument may be a copy of standard_metadata. (In older programs there is
                // none.)
                let Some(Argument::InOut(metadata)) = arguments.first() else {
                    self.set_standard("egress_spec", u64::from(crate::DROP_PORT))?;
                    return self.set_standard("mcast_grp", 0);
                };
                for (name, value) in [("egress_spec", crate::DROP_PORT), ("mcast_grp", 0)] {
                    let index = self.standard_field(name)? as u32;
                    let kind = ExprKind::Field(Box::new(metadata.clone()), index);
                    let field = Expr { kind, ty: Type::bits(32), location: metadata.location };
                    self.store_number(&field, &BigInt::from(value))?;
                }
                Ok(())
            }
            "assert" | "assume" | "log_msg" => Ok(()),
            "to_host" => Err(Interrupt::ToHost),
            "truncate" => {
                let length = self.number(operand(arguments, 0)?)?;
                self.packet.truncate = length.to_u64();
                Ok(())
            }
            "hash" => self.hash(arguments),
            "verify_checksum" | "verify_checksum_with_payload" => {
                if !self.condition(operand(arguments, 0)?)? {
                    return Ok(());
                }
                let value = self.checksum(arguments, payload)?;
                let expected = operand(arguments, 2)?;
                let value = pattern(&value, width(&expected.ty).unwrap_or(64));
                if self.number(expected)? != value {
                    self.set_standard("checksum_error", 1)?;
                }
                Ok(())
            }
            "update_checksum" | "update_checksum_with_payload" => {
                if !self.condition(operand(arguments, 0)?)? {
                    return Ok(());
                }
                let value = self.checksum(arguments, payload)?;
                self.store_number(operand(arguments, 2)?, &value)
            }
            other => self.call_gateway(other, arguments, result),
        }
    }

    fn method(
        &mut self,
        id: ExternId,
        name: &str,
        arguments: &[Argument],
        result: Option<&Expr>,
    ) -> Run<()> {
        let kind = self.program.externs[id.index()].extern_type.as_str();
        match (kind, name) {
            ("register", "read") => {
                let index = self.number(operand(arguments, 1)?)?;
                let element =
                    index.to_usize().and_then(|index| self.registers.get(&id)?.get(index).cloned());
                if matches!(arguments.first(), Some(Argument::DontCare)) {
                    return Ok(());
                }
                // Out of range: 0 (docs/p4-support.md).
                self.store_number(operand(arguments, 0)?, &element.unwrap_or_default())
            }
            ("register", "write") => {
                let index = self.number(operand(arguments, 0)?)?;
                let value = self.number(operand(arguments, 1)?)?;
                let element =
                    index.to_usize().and_then(|index| self.registers.get_mut(&id)?.get_mut(index));
                if let Some(element) = element {
                    *element = value;
                }
                Ok(())
            }
            ("counter", "count") => {
                let index = self.number(operand(arguments, 0)?)?;
                let bytes = self.packet.bytes.len() as u64;
                let element =
                    index.to_usize().and_then(|index| self.counters.get_mut(&id)?.get_mut(index));
                if let Some(element) = element {
                    element.packets += 1;
                    element.bytes += bytes;
                }
                Ok(())
            }
            ("direct_counter", "count") => {
                self.count_direct();
                Ok(())
            }
            (_, name) => self.call_object(id, name, arguments, result),
        }
    }

    /// The bits of a field list, in order.
    fn list(&mut self, data: &Expr, bits: &mut Vec<bool>) -> Run<()> {
        if let ExprKind::StructValue(fields) = &data.kind {
            return fields.iter().try_for_each(|field| self.list(field, bits));
        }
        if data.ty == Type::String {
            return Ok(());
        }
        if let ExprKind::Field(header, _) = &data.kind
            && matches!(header.ty, Type::Header(_))
            && matches!(self.eval(header)?, Value::Header { valid: false, .. })
        {
            // bmv2's calculations.cpp, BufBuilder: no bits.
            return Ok(());
        }
        let value = self.eval(data)?;
        self.list_value(&value, &data.ty, bits)
    }

    fn list_value(&mut self, value: &Value, ty: &Type, bits: &mut Vec<bool>) -> Run<()> {
        let program = self.program;
        match (value, ty) {
            (Value::Scalar(number), ty) => {
                let Some(width) = width(ty) else {
                    return broken("a list with something else than fields");
                };
                append(bits, number, width);
                Ok(())
            }
            (Value::Varbit(bytes), _) => {
                bytes.iter().for_each(|byte| append(bits, &BigInt::from(*byte), 8));
                Ok(())
            }
            (Value::Struct(values), Type::Struct(id)) => {
                let fields = &program.struct_types[id.index()].fields;
                values
                    .iter()
                    .zip(fields)
                    .try_for_each(|(value, field)| self.list_value(value, &field.ty, bits))
            }
            (Value::Header { valid: false, .. }, _) => Ok(()),
            (Value::Header { fields: values, .. }, Type::Header(id)) => {
                let fields = &program.header_types[id.index()].fields;
                values
                    .iter()
                    .zip(fields)
                    .try_for_each(|(value, field)| self.list_value(value, &field.ty, bits))
            }
            (Value::Undefined, _) => {
                crate::undefined("a field list with a field that was never written")
            }
            _ => broken("a list with something else than fields"),
        }
    }

    fn algorithm(&mut self, expr: &Expr) -> Run<String> {
        let index = self.number(expr)?;
        let Type::Enum(id) = expr.ty else { return broken("an algorithm that is not an enum") };
        let members = &self.program.enum_types[id.index()].members;
        match index.to_usize().and_then(|index| members.get(index)) {
            Some(name) => Ok(name.clone()),
            None => broken("no such algorithm"),
        }
    }

    fn digest(&mut self, data: &Expr, algorithm: &str, payload: bool) -> Run<BigInt> {
        let mut bits = Vec::new();
        self.list(data, &mut bits)?;
        let mut bytes: Vec<u8> = bits
            .chunks(8)
            .map(|byte| {
                (0..8).fold(0, |sum, i| sum << 1 | u8::from(*byte.get(i).unwrap_or(&false)))
            })
            .collect();
        if payload {
            bytes.extend_from_slice(&self.packet.bytes[self.packet.cursor / 8..]);
        }
        Ok(match algorithm {
            "random" => self.gateway.draw()?,
            // The custom ones begin with the same parameters (bmv2), and nothing changes them here.
            "crc32" | "crc32_custom" => BigInt::from(hash::crc32(&bytes)),
            "crc16" | "crc16_custom" => BigInt::from(hash::crc16(&bytes)),
            "csum16" => BigInt::from(hash::csum16(&bytes)),
            "xor16" => BigInt::from(hash::xor16(&bytes)),
            "identity" => {
                let first = &bytes[..bytes.len().min(8)];
                BigInt::from_bytes_be(num_bigint::Sign::Plus, first)
            }
            other => return Err(Stop::Unsupported(format!("hash algorithm {other}")).into()),
        })
    }

    fn hash(&mut self, arguments: &[Argument]) -> Run<()> {
        let algorithm = self.algorithm(operand(arguments, 1)?)?;
        let base = self.known(operand(arguments, 2)?)?;
        let value = match self.digest(operand(arguments, 3)?, &algorithm, false) {
            Ok(value) => Some(value),
            Err(Interrupt::Stop(Stop::Undefined(_))) => None,
            Err(other) => return Err(other),
        };
        let max = self.known(operand(arguments, 4)?)?;
        let target = operand(arguments, 0)?;
        match (base, value, max) {
            (Some(base), Some(value), Some(max)) => {
                let value = if max.is_zero() { base } else { base + value % max };
                self.store_number(target, &value)
            }
            _ => {
                let place = self.place(target)?;
                self.store(&place, Value::Undefined)
            }
        }
    }

    fn checksum(&mut self, arguments: &[Argument], payload: bool) -> Run<BigInt> {
        let algorithm = self.algorithm(operand(arguments, 3)?)?;
        self.digest(operand(arguments, 1)?, &algorithm, payload)
    }
}

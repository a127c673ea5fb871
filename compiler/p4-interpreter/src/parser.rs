//! The parser (P4-16 §13) and the deparser (§16).

use crate::value::{Value, pattern, width, wrap};
use crate::{Interpreter, Interrupt, Run, broken};
use num_bigint::{BigInt, Sign};
use num_traits::{One, ToPrimitive, Zero};
use p4_ir::{Expr, ExprKind, Field, MAX_PARSER_ROUNDS, Match, Target, Transition, Type};

/// Bits of what an emitted header is made of.
struct Bits {
    value: BigInt,
    width: usize,
}

impl Interpreter<'_> {
    /// From the start state to accept or reject. How it ended is in standard_metadata then,
    /// whatever the parser wrote there (simple_switch).
    pub(crate) fn parse(&mut self) -> Run<()> {
        let error = match self.states() {
            Err(Interrupt::ParserError(error)) => error,
            Err(Interrupt::Exit | Interrupt::Return) | Ok(()) => self.error_index("NoError"),
            Err(other) => return Err(other),
        };
        self.set_standard("parser_error", u64::from(error))?;
        self.set_standard("checksum_error", 0)
    }

    fn states(&mut self) -> Run<()> {
        let parser = &self.program.parser;
        self.block(&parser.prologue)?;
        let (mut current, mut rounds) = (0, 0);
        loop {
            let Some(state) = parser.states.get(current as usize) else {
                return broken("no such parser state");
            };
            if self.on_cycles[current as usize] && !state.continues {
                rounds += 1;
                if rounds > MAX_PARSER_ROUNDS {
                    return self.reject("ParserTimeout");
                }
            }
            self.block(&state.body)?;
            let target = match &state.transition {
                Transition::To(target) => *target,
                Transition::Select { keys, cases } => self.select(keys, cases)?,
            };
            match target {
                Target::Accept | Target::Reject => return Ok(()),
                Target::State(next) => current = next,
            }
        }
    }

    fn select(
        &mut self,
        keys: &[Expr],
        cases: &[(Vec<Match>, Target, p4_ir::Location)],
    ) -> Run<Target> {
        let values =
            keys.iter().map(|key| self.known(key)).collect::<Run<Vec<Option<BigInt>>>>()?;
        for (matches, target, _) in cases {
            let mut all = true;
            for ((value, key), matched) in values.iter().zip(keys).zip(matches) {
                all = all && matches_value(matched, value.as_ref(), width(&key.ty).unwrap_or(0))?;
            }
            if all {
                return Ok(*target);
            }
        }
        self.reject("NoMatch")
    }

    /// The next bits as one number; PacketTooShort if there are fewer. Does not move on.
    fn peek(&self, at: usize, bits: usize) -> Run<BigInt> {
        if at.saturating_add(bits) > self.packet.bytes.len() * 8 {
            return self.reject("PacketTooShort");
        }
        let (from, to) = (at / 8, (at + bits).div_ceil(8));
        let whole = BigInt::from_bytes_be(Sign::Plus, &self.packet.bytes[from..to]);
        let behind = to * 8 - (at + bits);
        Ok((whole >> behind) & ((BigInt::one() << bits) - 1))
    }

    pub(crate) fn advance(&mut self, bits: &BigInt) -> Run<()> {
        let left = self.packet.bytes.len() * 8 - self.packet.cursor;
        match bits.to_usize().filter(|bits| *bits <= left) {
            // The target moves by whole bytes only.
            Some(bits) if bits % 8 != 0 => self.reject("ParserInvalidArgument"),
            Some(bits) => {
                self.packet.cursor += bits;
                Ok(())
            }
            None if !(bits % 8u32).is_zero() => self.reject("ParserInvalidArgument"),
            None => self.reject("PacketTooShort"),
        }
    }

    /// Reads fields from bit `at`; returns them and the bit behind them.
    fn read_fields(
        &self,
        fields: &[Field],
        mut at: usize,
        varbit: usize,
    ) -> Run<(Vec<Value>, usize)> {
        let mut values = Vec::with_capacity(fields.len());
        for field in fields {
            let value = match &field.ty {
                Type::Varbit { .. } => {
                    let bytes: Run<Vec<u8>> = (0..varbit / 8)
                        .map(|index| Ok(self.peek(at + index * 8, 8)?.to_u8().unwrap_or_default()))
                        .collect();
                    at += varbit;
                    Value::Varbit(bytes?)
                }
                Type::Struct(id) => {
                    let (inner, behind) =
                        self.read_fields(&self.program.struct_types[id.index()].fields, at, 0)?;
                    at = behind;
                    Value::Struct(inner)
                }
                Type::Header(id) => {
                    let (fields, behind) =
                        self.read_fields(&self.program.header_types[id.index()].fields, at, 0)?;
                    at = behind;
                    Value::Header { valid: true, fields }
                }
                ty => {
                    let Some(bits) = width(ty) else {
                        return broken("a field that is not a scalar");
                    };
                    let number = self.peek(at, bits as usize)?;
                    at += bits as usize;
                    Value::Scalar(wrap(&number, ty))
                }
            };
            values.push(value);
        }
        Ok((values, at))
    }

    pub(crate) fn lookahead(&mut self, ty: &Type) -> Run<Value> {
        let field = Field {
            name: String::new(),
            ty: ty.clone(),
            enumeration: None,
            annotations: Vec::new(),
        };
        let (mut values, _) = self.read_fields(&[field], self.packet.cursor, 0)?;
        values.pop().map_or_else(|| broken("lookahead of nothing"), Ok)
    }

    /// P4-16 §13.8.2: `extract`. Nothing is changed if the packet is too short.
    pub(crate) fn extract(&mut self, header: &Expr, varbit_bits: Option<&Expr>) -> Run<()> {
        let place = self.place(header)?;
        let Type::Header(id) = header.ty else {
            return broken("extract into a value that is not a header");
        };
        let fields = &self.program.header_types[id.index()].fields;
        let mut varbit = 0;
        if let Some(bits) = varbit_bits {
            let bits = self.number(bits)?.to_usize().unwrap_or(usize::MAX);
            // In the order of §13.8.2.
            if bits % 8 != 0 {
                return self.reject("ParserInvalidArgument");
            }
            let fixed: u32 = fields.iter().filter_map(|field| width(&field.ty)).sum();
            self.peek(self.packet.cursor, bits.saturating_add(fixed as usize))?;
            let most = fields.iter().find_map(|field| match field.ty {
                Type::Varbit { max_width } => Some(max_width as usize),
                _ => None,
            });
            if bits > most.unwrap_or(0) {
                return self.reject("HeaderTooShort");
            }
            varbit = bits;
        }
        let (values, behind) = self.read_fields(fields, self.packet.cursor, varbit)?;
        self.store(&place, Value::Header { valid: true, fields: values })?;
        self.packet.cursor = behind;
        if let ExprKind::StackNext(stack) = &header.kind {
            let (stack, _, _) = self.stack(stack)?;
            if let Value::Stack { next, .. } = self.at_mut(&stack)? {
                *next += 1;
            }
        }
        Ok(())
    }

    /// `emit`: what is valid, in order.
    pub(crate) fn emit(&mut self, value: &Value, ty: &Type) -> Run<()> {
        match value {
            Value::Header { valid: true, fields } => {
                let mut parts = Vec::new();
                let Type::Header(id) = ty else {
                    return broken("emit of a header of another type");
                };
                for (value, field) in
                    fields.iter().zip(&self.program.header_types[id.index()].fields)
                {
                    parts.push(self.bits(value, &field.ty)?);
                }
                let mut number = BigInt::zero();
                let mut bits = 0;
                for part in parts {
                    number = (number << part.width) + part.value;
                    bits += part.width;
                }
                if bits % 8 != 0 {
                    return broken("emit of a header that is not whole bytes");
                }
                let (_, bytes) = number.to_bytes_be();
                let bytes = if number.is_zero() { Vec::new() } else { bytes };
                self.packet.emitted.extend(std::iter::repeat_n(0, bits / 8 - bytes.len()));
                self.packet.emitted.extend(bytes);
                Ok(())
            }
            Value::Header { .. } => Ok(()),
            Value::Stack { elements, .. } => {
                let Type::Stack { header, .. } = ty else {
                    return broken("emit of a stack of another type");
                };
                elements.iter().try_for_each(|element| self.emit(element, &Type::Header(*header)))
            }
            Value::Union(members) => {
                let Type::Union(id) = ty else { return broken("emit of a union of another type") };
                let fields = &self.program.union_types[id.index()].fields;
                members
                    .iter()
                    .zip(fields)
                    .try_for_each(|(member, field)| self.emit(member, &field.ty))
            }
            other => broken(format!("emit of {other:?}")),
        }
    }

    fn bits(&self, value: &Value, ty: &Type) -> Run<Bits> {
        match (value, width(ty)) {
            (Value::Scalar(number), Some(width)) => {
                Ok(Bits { value: pattern(number, width), width: width as usize })
            }
            (Value::Varbit(bytes), None) => {
                Ok(Bits { value: BigInt::from_bytes_be(Sign::Plus, bytes), width: bytes.len() * 8 })
            }
            (Value::Undefined, _) => crate::undefined("a field without a value is emitted"),
            (other, _) => broken(format!("{other:?} in a header")),
        }
    }
}

/// P4-16 §13.6, §14.2.1.4: does a key have this value? A key without a value is in the set of all
/// values alone (§8.25).
pub(crate) fn matches_value(matched: &Match, value: Option<&BigInt>, width: u32) -> Run<bool> {
    let value = match (matched, value) {
        (Match::Any, _) => return Ok(true),
        (_, Some(value)) => value,
        (_, None) => return crate::undefined("a key that was never written"),
    };
    Ok(match matched {
        Match::Any => true,
        Match::Value(wanted) => value == wanted,
        Match::Mask { value: wanted, mask } => {
            let mask = pattern(mask, width);
            (pattern(value, width) & &mask) == (pattern(wanted, width) & &mask)
        }
        Match::Range { low, high } => low <= value && value <= high,
        Match::ValueSet(_) => return Err(crate::Stop::Unsupported("value sets".into()).into()),
    })
}

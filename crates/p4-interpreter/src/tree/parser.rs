//! Parsers (P4-16 §13) and the packet's methods.

use super::value::{Place, Value, bits, reduce};
use super::{Ended, Run, Tree, broken, unsupported};
use num_bigint::{BigInt, Sign};
use num_traits::{One, ToPrimitive, Zero};
use p4_check::hir::{BlockDef, BlockId, Call, Expr, ExprKind, FunctionId, Match, RecordKind};
use p4_check::hir::{StateTarget, Transition};
use p4_check::ty::Ty;
use p4_ir::{MAX_PARSER_ROUNDS, on_cycles};

/// Whether each state of a parser lies on a cycle.
pub(super) fn states_on_cycles(def: &BlockDef) -> Vec<bool> {
    let state = |target: &StateTarget| match target {
        StateTarget::State(index) => Some(*index as u32),
        StateTarget::Accept | StateTarget::Reject => None,
    };
    let successors = |transition: &Transition| match transition {
        Transition::To(target) => state(target).into_iter().collect(),
        Transition::Select { cases, .. } => cases.iter().filter_map(|(_, target, _)| state(target)).collect(),
    };
    let graph: Vec<Vec<u32>> = def.states.iter().map(|s| successors(&s.transition)).collect();
    on_cycles(&graph)
}

impl<'h> Tree<'h> {
    /// v1model: ingress runs whatever the parser says; its error is left in `parser_error`.
    pub(crate) fn parse_packet(&mut self) -> Run<()> {
        let Some(parser) = self.blocks.first().copied() else { return broken("main without a parser") };
        let block = self.instances[parser].block;
        match self.with_shared(parser, |tree| tree.states(block)) {
            Err(Ended::Reject(Some(error))) => self.set_standard("parser_error", u64::from(error)),
            Err(Ended::Reject(None)) | Ok(()) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// From the start state until the parser accepts.
    pub(crate) fn states(&mut self, block: BlockId) -> Run<()> {
        let hir = self.hir;
        let def = &hir.blocks[block.index()];
        self.block(&def.locals)?;
        let outer = self.packet.in_loop;
        let mut current = 0;
        loop {
            let Some(state) = def.states.get(current) else { return broken("no such parser state") };
            self.packet.in_loop = outer || self.on_cycles[block.index()][current];
            if self.packet.in_loop {
                self.packet.rounds += 1;
                if self.packet.rounds > MAX_PARSER_ROUNDS {
                    return self.reject("ParserTimeout");
                }
            }
            self.block(&state.body)?;
            let target = match &state.transition {
                Transition::To(target) => *target,
                Transition::Select { keys, cases } => self.select(keys, cases)?,
            };
            match target {
                StateTarget::Accept => {
                    self.packet.in_loop = outer;
                    return Ok(());
                }
                StateTarget::Reject => return Err(Ended::Reject(None)),
                StateTarget::State(next) => current = next,
            }
        }
    }

    fn select(&mut self, keys: &[Expr], cases: &[(Vec<Match>, StateTarget, p4_syntax::Span)]) -> Run<StateTarget> {
        let mut values = Vec::new();
        for key in keys {
            let value = self.number(key)?;
            values.push((value, self.scalar(&key.ty).map_or(0, |(width, _)| width)));
        }
        for (matches, target, _) in cases {
            let mut all = true;
            for ((value, width), matched) in values.iter().zip(matches) {
                all &= self.fits(matched, value, *width)?;
            }
            if all {
                return Ok(*target);
            }
        }
        self.reject("NoMatch")
    }

    /// P4-16 §8.15: whether a value is in a set.
    pub(crate) fn fits(&mut self, matched: &Match, value: &BigInt, width: u32) -> Run<bool> {
        Ok(match matched {
            Match::Any => true,
            Match::Value(e) => self.number(e)? == *value,
            Match::Mask(v, m) => {
                let (wanted, mask) = (self.number(v)?, bits(&self.number(m)?, width));
                (bits(value, width) & &mask) == (bits(&wanted, width) & &mask)
            }
            Match::Range(low, high) => self.number(low)? <= *value && *value <= self.number(high)?,
            Match::ValueSet(_) => return unsupported("value sets"),
        })
    }

    /// `bits` bits from bit `at`; PacketTooShort if there are fewer.
    fn peek(&self, at: usize, count: usize) -> Run<BigInt> {
        if at + count > self.packet.bytes.len() * 8 {
            return self.reject("PacketTooShort");
        }
        let (from, to) = (at / 8, (at + count).div_ceil(8));
        let whole = BigInt::from_bytes_be(Sign::Plus, &self.packet.bytes[from..to]);
        Ok((whole >> (to * 8 - at - count)) & ((BigInt::one() << count) - 1))
    }

    /// A value of this type from bit `at`, which moves on.
    fn read(&self, ty: &Ty, at: &mut usize, varbit: usize) -> Run<Value> {
        let ty = ty.substitute(&self.generics);
        match self.hir.underlying(&ty) {
            Ty::Varbit(_) => {
                let mut bytes = Vec::new();
                for index in 0..varbit / 8 {
                    bytes.push(self.peek(*at + index * 8, 8)?.to_u8().unwrap_or_default());
                }
                *at += varbit;
                Ok(Value::Varbit(bytes))
            }
            Ty::Record(id, args) => {
                let fields = self.hir.fields_of(id, &args);
                let values = fields.iter().map(|(_, t)| self.read(t, at, varbit)).collect::<Run<Vec<Value>>>()?;
                Ok(self.aggregate(values, &ty))
            }
            Ty::Tuple(parts) => Ok(Value::Struct(parts.iter().map(|t| self.read(t, at, varbit)).collect::<Run<_>>()?)),
            _ => {
                let Some((width, signed)) = self.scalar(&ty) else { return broken("no bits of this type") };
                let number = self.peek(*at, width as usize)?;
                *at += width as usize;
                Ok(Value::Number(reduce(&number, width, signed)))
            }
        }
    }

    /// Bits of a header's fields without the varbit, and the most that the varbit can have.
    fn widths(&self, ty: &Ty) -> (usize, Option<usize>) {
        match self.hir.underlying(&ty.substitute(&self.generics)) {
            Ty::Varbit(most) => (0, Some(most as usize)),
            Ty::Record(id, args) => {
                let fields = self.hir.fields_of(id, &args);
                fields.iter().fold((0, None), |(sum, most), (_, t)| {
                    let (width, varbit) = self.widths(t);
                    (sum + width, most.or(varbit))
                })
            }
            other => (self.scalar(&other).map_or(0, |(width, _)| width as usize), None),
        }
    }

    pub(crate) fn packet_method(&mut self, id: FunctionId, c: &Call) -> Run<Option<Value>> {
        let hir = self.hir;
        let argument = |at: usize| c.args.get(at).and_then(Option::as_ref);
        match &*hir.functions[id.index()].name {
            "extract" => {
                let (mut place, mut varbit) = (None, None);
                for at in c.order.places(c.args.len()) {
                    match (at, argument(at)) {
                        (0, Some(h)) => place = Some((self.place(h)?, h)),
                        (1, Some(e)) => varbit = Some(self.number(e)?),
                        _ => {}
                    }
                }
                let ty = c.type_args.first().cloned().unwrap_or(Ty::Void);
                self.extract(place, varbit, &ty)?;
                Ok(None)
            }
            "lookahead" => {
                let ty = c.type_args.first().cloned().unwrap_or(Ty::Void);
                let mut at = self.packet.cursor;
                Ok(Some(self.read(&ty, &mut at, 0)?))
            }
            "advance" => {
                let Some(e) = argument(0) else { return broken("advance without an argument") };
                let count = self.number(e)?;
                self.advance(&count)?;
                Ok(None)
            }
            "emit" => {
                let Some(e) = argument(0) else { return broken("emit without an argument") };
                let value = self.eval(e)?;
                self.emit(&value, &e.ty)?;
                Ok(None)
            }
            other => unsupported(format!("packet.{other}")),
        }
    }

    fn advance(&mut self, count: &BigInt) -> Run<()> {
        if !(count % 8u32).is_zero() {
            // The target moves by whole bytes only.
            return self.reject("ParserInvalidArgument");
        }
        let left = self.packet.bytes.len() * 8 - self.packet.cursor;
        match count.to_usize().filter(|count| *count <= left) {
            Some(count) => self.packet.cursor += count,
            None => return self.reject("PacketTooShort"),
        }
        Ok(())
    }

    /// §13.8.2, §13.8.3. Nothing is changed if the packet is too short.
    fn extract(&mut self, target: Option<(Place, &Expr)>, varbit: Option<BigInt>, ty: &Ty) -> Run<()> {
        let (fixed, most) = self.widths(ty);
        let mut length = 0;
        if let Some(wanted) = varbit {
            self.peek(self.packet.cursor, fixed)?;
            length = wanted.to_usize().unwrap_or(usize::MAX);
            if length > most.unwrap_or(0) {
                return self.reject("HeaderTooShort");
            }
            if length % 8 != 0 {
                return self.reject("ParserInvalidArgument");
            }
        }
        let mut at = self.packet.cursor;
        let value = self.read(ty, &mut at, length)?;
        self.packet.cursor = at;
        let Some((place, e)) = target else { return Ok(()) };
        let stack = matches!(e.kind, ExprKind::StackNext(_))
            .then(|| Place { steps: place.steps[..place.steps.len() - 1].to_vec(), ..place.clone() });
        self.store(&place, value)?;
        if let Some(stack) = stack
            && let Value::Stack { next, .. } = self.at_mut(&stack)?
        {
            *next += 1;
        }
        Ok(())
    }

    /// §16.1: what is valid, in order.
    fn emit(&mut self, value: &Value, ty: &Ty) -> Run<()> {
        let ty = self.hir.underlying(&ty.substitute(&self.generics));
        match (value, &ty) {
            (Value::Header { valid: false, .. }, _) => Ok(()),
            (Value::Header { fields, .. }, Ty::Record(..)) => {
                let mut out = Vec::new();
                self.append(&Value::Struct(fields.clone()), &ty, &mut out)?;
                self.packet.emitted.extend(super::externs::bytes(&out));
                Ok(())
            }
            (Value::Stack { elements, .. }, Ty::Stack(element, _)) => {
                elements.iter().try_for_each(|value| self.emit(value, element))
            }
            (Value::Struct(values) | Value::Union(values), Ty::Record(id, args)) => {
                let fields = self.hir.fields_of(*id, args);
                values.iter().zip(&fields).try_for_each(|(value, (_, t))| self.emit(value, t))
            }
            (Value::Struct(values), Ty::Tuple(parts)) => {
                values.iter().zip(parts.iter()).try_for_each(|(value, t)| self.emit(value, t))
            }
            _ => broken("emit of what is no header"),
        }
    }

    /// The bits of a value, the highest first: of a field list, or of a header.
    pub(crate) fn append(&self, value: &Value, ty: &Ty, out: &mut Vec<bool>) -> Run<()> {
        let ty = self.hir.underlying(&ty.substitute(&self.generics));
        match (value, &ty) {
            (Value::Number(number), _) => {
                let Some((width, _)) = self.scalar(&ty) else { return broken("a field that is no scalar") };
                let number = bits(number, width);
                out.extend((0..u64::from(width)).rev().map(|bit| number.bit(bit)));
                Ok(())
            }
            (Value::Varbit(bytes), _) => {
                out.extend(bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1)));
                Ok(())
            }
            (Value::Str(_), _) | (Value::Header { valid: false, .. }, _) => Ok(()),
            (Value::Struct(values) | Value::Header { fields: values, .. }, Ty::Record(id, args)) => {
                debug_assert!(self.hir.records[id.index()].kind != RecordKind::Union);
                let fields = self.hir.fields_of(*id, args);
                values.iter().zip(&fields).try_for_each(|(value, (_, t))| self.append(value, t, out))
            }
            (Value::Struct(values), Ty::Tuple(parts)) => {
                values.iter().zip(parts.iter()).try_for_each(|(value, t)| self.append(value, t, out))
            }
            (Value::Undefined, _) => super::undefined("a field that was never written"),
            _ => broken("bits of what has none"),
        }
    }
}

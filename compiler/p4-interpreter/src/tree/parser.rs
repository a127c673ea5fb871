//! Parsers: states, select, and the packet that they read (spec §13).

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive};
use p4_check::hir::{Call, Expr, FunctionId, Match, RecordKind, StateDef, StateTarget, Transition};
use p4_check::ty::Ty;
use p4_syntax::Span;

use super::bits;
use super::data::{Data, initial, scalar_bits, wrap};
use super::instance::Instance;
use super::statement::Next;
use super::{Run, Tree, broken, undefined, unsupported};

/// How often a packet may enter states on cycles (p4-support.md).
const MAX_ROUNDS: u32 = 128;

type Case = (Vec<Match>, StateTarget, Span);

/// Where the paths from a state of a parser may lead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    /// Back to it.
    itself: bool,
    accept: bool,
}

/// For each state of a parser.
pub(crate) fn paths(states: &[StateDef]) -> Vec<Paths> {
    let targets = |state: &StateDef| -> Vec<StateTarget> {
        match &state.transition {
            Transition::To(target) => vec![*target],
            Transition::Select { cases, .. } => {
                cases.iter().map(|(_, target, _)| *target).collect()
            }
        }
    };
    let from = |start: usize| {
        let mut found = Paths::default();
        let mut reached = vec![false; states.len()];
        let mut open = vec![start];
        while let Some(at) = open.pop() {
            for target in states.get(at).map(targets).unwrap_or_default() {
                match target {
                    StateTarget::Accept => found.accept = true,
                    StateTarget::Reject => {}
                    StateTarget::State(next) => {
                        found.itself |= next == start;
                        if let Some(known @ false) = reached.get_mut(next) {
                            *known = true;
                            open.push(next);
                        }
                    }
                }
            }
        }
        found
    };
    (0..states.len()).map(from).collect()
}

impl<'h> Tree<'h> {
    /// The state machine, from `start` on (spec §13.3).
    pub(crate) fn states(&mut self, instance: &Instance, states: &'h [StateDef]) -> Run<Next> {
        let outer = self.packet.in_loop;
        let mut at = 0;
        loop {
            let (Some(state), Some(paths)) = (states.get(at), instance.paths.get(at)) else {
                return broken("a state that is not there");
            };
            // Spec §13.10: a sub-parser's states stand between the two halves of the state that
            // applies it, so that those from which it accepts are on that state's cycles.
            self.packet.in_loop = paths.itself || outer && paths.accept;
            if self.packet.in_loop {
                self.packet.rounds += 1;
                if self.packet.rounds > MAX_ROUNDS {
                    return Err(self.reject("ParserTimeout"));
                }
            }
            self.step()?;
            self.block(&state.body)?;
            let target = match &state.transition {
                Transition::To(target) => *target,
                Transition::Select { keys, cases } => self.select(keys, cases)?,
            };
            match target {
                StateTarget::Accept => {
                    self.packet.in_loop = outer;
                    return Ok(Next::Go);
                }
                // Spec §13.5: an explicit reject is no error.
                StateTarget::Reject => return Err(self.reject("NoError")),
                StateTarget::State(next) => at = next,
            }
        }
    }

    /// Spec §13.6: the first case that matches; without one, NoMatch.
    fn select(&mut self, keys: &'h [Expr], cases: &'h [Case]) -> Run<StateTarget> {
        let values = keys.iter().map(|key| self.eval(key)).collect::<Run<Vec<Data>>>()?;
        let width = |tree: &Self, key: &Expr| {
            scalar_bits(tree.hir, &tree.ty(&key.ty)).map(|(width, _)| width)
        };
        let widths: Vec<Option<u32>> = keys.iter().map(|key| width(self, key)).collect();
        for (matches, target, _) in cases {
            let mut fits = true;
            for ((matched, value), width) in matches.iter().zip(&values).zip(&widths) {
                fits = fits && self.rule(matched)?.fits(value, *width)?;
            }
            if fits {
                return Ok(*target);
            }
        }
        Err(self.reject("NoMatch"))
    }

    /// Methods of packet_in (spec §13.8).
    pub(crate) fn packet_in(
        &mut self,
        id: FunctionId,
        expr: &'h Expr,
        call: &'h Call,
    ) -> Run<Data> {
        match &*self.hir.functions[id.index()].name {
            "extract" => self.extract(call),
            "lookahead" => {
                let ty = self.ty(&expr.ty);
                let mut at = self.packet.cursor;
                match self.taken(&ty, &mut at, 0)? {
                    Some(data) => Ok(data),
                    None => Err(self.reject("PacketTooShort")),
                }
            }
            "advance" => {
                let Some(Some(size)) = call.args.first() else {
                    return broken("advance without a size");
                };
                let size = self.number(size, "a number of bits")?;
                self.advance(&size)?;
                Ok(Data::Undefined)
            }
            "length" => Ok(Data::Number(BigInt::from(self.packet.bytes.len()))),
            other => unsupported(format!("packet_in.{other}")),
        }
    }

    fn advance(&mut self, size: &BigInt) -> Run<()> {
        // bmv2's parser works in whole bytes (its JSON_format.md: `advance`).
        if size % 8 != BigInt::ZERO {
            return Err(self.reject("ParserInvalidArgument"));
        }
        match size.to_usize().and_then(|size| size.checked_add(self.packet.cursor)) {
            Some(end) if end <= self.packet.bytes.len() * 8 => {
                self.packet.cursor = end;
                Ok(())
            }
            _ => Err(self.reject("PacketTooShort")),
        }
    }

    /// Spec §13.8.1 and §13.8.2: the l-value, then the size of the varbit, then the checks.
    fn extract(&mut self, call: &'h Call) -> Run<Data> {
        let ty = self.subject_type(call)?;
        let target = match call.args.first() {
            Some(Some(target)) => Some(self.place(target)?),
            _ => None,
        };
        let variable = match call.args.get(1) {
            Some(Some(size)) => Some(self.number(size, "the size of a varbit")?),
            _ => None,
        };
        let fixed = self.fixed_bits(&ty)?;
        let size = match variable {
            None => 0,
            Some(size) if size.is_negative() || &size % 8 != BigInt::ZERO => {
                return Err(self.reject("ParserInvalidArgument"));
            }
            Some(size) => {
                let left = self.packet.bytes.len() * 8 - self.packet.cursor;
                match size.to_usize().filter(|size| size.saturating_add(fixed) <= left) {
                    None => return Err(self.reject("PacketTooShort")),
                    Some(size) if size > self.varbit_bits(&ty)? => {
                        return Err(self.reject("HeaderTooShort"));
                    }
                    Some(size) => size,
                }
            }
        };
        let mut at = self.packet.cursor;
        let Some(header) = self.taken(&ty, &mut at, size)? else {
            return Err(self.reject("PacketTooShort"));
        };
        self.packet.cursor = at;
        if let Some(place) = target {
            self.write(&place, header)?;
            self.take_next(&place)?;
        }
        Ok(Data::Undefined)
    }

    /// Bits without those of a varbit.
    fn fixed_bits(&self, ty: &Ty) -> Run<usize> {
        match ty {
            Ty::Varbit(_) => Ok(0),
            Ty::Record(id, args) => {
                self.hir.fields_of(*id, args).iter().map(|(_, ty)| self.fixed_bits(ty)).sum()
            }
            Ty::Tuple(parts) => parts.iter().map(|ty| self.fixed_bits(ty)).sum(),
            other => match scalar_bits(self.hir, other) {
                Some((width, _)) => Ok(width as usize),
                None => unsupported("extraction of something without a size"),
            },
        }
    }

    /// The most bits that its varbit can have.
    fn varbit_bits(&self, ty: &Ty) -> Run<usize> {
        let Ty::Record(id, args) = ty else { return broken("a place that is not a header") };
        let widths = self.hir.fields_of(*id, args).into_iter().map(|(_, ty)| match ty {
            Ty::Varbit(width) => width as usize,
            _ => 0,
        });
        Ok(widths.max().unwrap_or(0))
    }

    /// A value from the packet's bits at `at`; None: the packet is too short.
    fn taken(&self, ty: &Ty, at: &mut usize, varbit: usize) -> Run<Option<Data>> {
        if let Ty::Varbit(_) = ty {
            let bits = bits::read(&self.packet.bytes, *at, varbit);
            *at += varbit;
            return Ok(bits.map(|bits| Data::Varbit(bits, varbit as u32)));
        }
        if let Some((width, signed)) = scalar_bits(self.hir, ty) {
            let bits = bits::read(&self.packet.bytes, *at, width as usize);
            *at += width as usize;
            return Ok(bits.map(|bits| Data::Number(wrap(&bits, width, signed))));
        }
        let mut parts = Vec::new();
        let types: Vec<Ty> = match ty {
            Ty::Record(id, args) => {
                self.hir.fields_of(*id, args).into_iter().map(|(_, ty)| ty).collect()
            }
            Ty::Tuple(types) => types.to_vec(),
            _ => return unsupported("extraction of something without a size"),
        };
        for ty in &types {
            match self.taken(ty, at, varbit)? {
                Some(part) => parts.push(part),
                None => return Ok(None),
            }
        }
        Ok(Some(match ty {
            Ty::Record(id, _) => match self.hir.records[id.index()].kind {
                RecordKind::Header => Data::Header(true, parts),
                RecordKind::Struct => Data::Struct(parts),
                RecordKind::Union => return unsupported("extraction of a union"),
            },
            _ => Data::Struct(parts),
        }))
    }

    /// `verify` (spec §13.7).
    pub(crate) fn verify(&mut self, call: &'h Call) -> Run<Data> {
        let arguments = self.arguments_of(call, 2)?;
        match arguments.as_slice() {
            [Data::Number(check), _] if *check != BigInt::ZERO => Ok(Data::Undefined),
            [Data::Number(_), Data::Number(error)] => {
                Err(super::Halt::Reject(error.to_usize().unwrap_or(0)))
            }
            _ => undefined("verify of what was never written"),
        }
    }

    /// Emits what is valid (spec §16.1).
    pub(crate) fn packet_out(&mut self, call: &'h Call) -> Run<Data> {
        let Some(Some(argument)) = call.args.first() else {
            return broken("emit without an argument");
        };
        let data = self.eval(argument)?;
        let ty = self.ty(&argument.ty);
        let mut out = std::mem::take(&mut self.packet.emitted);
        bits::of_value(self.hir, &data, &ty, &mut out)?;
        self.packet.emitted = out;
        Ok(Data::Undefined)
    }

    /// A value without bits, for what is not written.
    pub(crate) fn nothing(&self, ty: &Ty) -> Data {
        initial(self.hir, ty, false)
    }
}

//! v1model's externs (simple_switch.md), and those of stateplane.p4 that need no network.

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};
use p4_check::hir::{Call, Expr, ExprKind, ExternDefId, FunctionId};
use p4_check::ty::{Substitution, Ty};

use super::bits::{Bits, of_value};
use super::data::{Data, scalar_bits, wrap};
use super::state_object;
use super::{Halt, MAX_ELEMENTS, Run, Tree, broken, undefined, unsupported};
use crate::object::Object;
use crate::{Count, DROP_PORT, hash};

/// An extern object.
#[derive(Clone)]
pub(crate) enum External {
    Register {
        name: String,
        width: u32,
        signed: bool,
        values: Vec<BigInt>,
    },
    Counter {
        name: String,
        counts: Vec<Count>,
    },
    DirectCounter,
    /// Of a system.
    State {
        name: String,
        object: Box<dyn Object>,
        /// What its declaration's `@merge` names.
        merge: Option<FunctionId>,
    },
}

impl External {
    /// The error says what of it is not interpreted.
    pub fn new(
        tree: &Tree<'_>,
        id: ExternDefId,
        types: &[Ty],
        name: &str,
        arguments: &[Data],
    ) -> Run<External> {
        let hir = tree.hir;
        let kind = &*hir.externs[id.index()].name;
        let size = || match arguments.first() {
            Some(Data::Number(size)) => match size.to_usize() {
                Some(size) if size <= MAX_ELEMENTS => Ok(size),
                _ => unsupported(format!("{name} with {size} elements")),
            },
            _ => broken(format!("{name} without a size")),
        };
        Ok(match kind {
            "register" => match types.first().and_then(|ty| scalar_bits(hir, ty)) {
                Some((width, signed)) => {
                    let values = vec![BigInt::zero(); size()?];
                    External::Register { name: name.to_string(), width, signed, values }
                }
                None => {
                    return unsupported(format!(
                        "the register {name}, whose elements are not bits"
                    ));
                }
            },
            "counter" => External::Counter {
                name: name.to_string(),
                counts: vec![Count::default(); size()?],
            },
            "direct_counter" => External::DirectCounter,
            _ => {
                let object = tree.declare_object(kind, name, types, arguments)?;
                External::State { name: name.to_owned(), object, merge: None }
            }
        })
    }
}

impl<'h> Tree<'h> {
    /// Values of the first `count` arguments, evaluated as written.
    pub(crate) fn arguments_of(&mut self, call: &'h Call, count: usize) -> Run<Vec<Data>> {
        let mut values = vec![Data::Undefined; call.args.len()];
        for index in call.order.places(call.args.len()) {
            if let Some(argument) = &call.args[index] {
                values[index] = self.eval(argument)?;
            }
        }
        values.truncate(count);
        Ok(values)
    }

    /// A method of an extern object.
    pub(crate) fn call_method(
        &mut self,
        index: usize,
        id: FunctionId,
        object: &Expr,
        call: &'h Call,
    ) -> Run<Data> {
        let def = &self.hir.functions[id.index()];
        let types = self.type_arguments(&object.ty);
        let arguments = self.arguments(&def.params, &call.args, &call.order, &types)?;
        let mut values = arguments.values.clone();
        let result = match (&*def.name, &mut self.externals[index]) {
            ("read", External::Register { values: elements, .. }) => {
                let at = element(&values[1])?;
                // p4-support.md: out of range, 0.
                let value = at.and_then(|at| elements.get(at)).cloned().unwrap_or_default();
                values[0] = Data::Number(value);
                Data::Undefined
            }
            ("write", External::Register { .. }) => {
                self.write_register(index, &values)?;
                Data::Undefined
            }
            ("count", External::Counter { .. }) => {
                self.count(index, element(&values[0])?);
                Data::Undefined
            }
            ("count", External::DirectCounter) => {
                self.count_direct(index)?;
                Data::Undefined
            }
            (name, External::State { object, .. }) => {
                state_object::call(object.as_mut(), name, &mut values)?
            }
            (name, _) => return unsupported(format!("the method {name}")),
        };
        self.copy_out(&arguments.places, &values)?;
        Ok(result)
    }

    fn type_arguments(&self, ty: &Ty) -> Substitution {
        match self.ty(ty) {
            Ty::Extern(id, types) => self.hir.externs[id.index()]
                .type_params
                .iter()
                .copied()
                .zip(types.iter().cloned())
                .collect(),
            _ => Substitution::new(),
        }
    }

    fn write_register(&mut self, index: usize, arguments: &[Data]) -> Run<()> {
        let at = element(&arguments[0])?;
        let Data::Number(value) = &arguments[1] else {
            return undefined("a register's value that was never written");
        };
        if let External::Register { width, signed, values, .. } = &mut self.externals[index]
            && let Some(element) = at.and_then(|at| values.get_mut(at))
        {
            *element = wrap(value, *width, *signed);
        }
        Ok(())
    }

    fn count(&mut self, index: usize, at: Option<usize>) {
        let bytes = self.packet.bytes.len() as u64;
        if let External::Counter { counts, .. } = &mut self.externals[index]
            && let Some(count) = at.and_then(|at| counts.get_mut(at))
        {
            count.packets += 1;
            count.bytes += bytes;
        }
    }

    /// An extern function.
    pub(crate) fn call_extern(
        &mut self,
        id: FunctionId,
        expr: &'h Expr,
        call: &'h Call,
    ) -> Run<Data> {
        let def = &self.hir.functions[id.index()];
        match &*def.name {
            "verify" => self.verify(call),
            "mark_to_drop" => self.mark_to_drop(call),
            "hash" => self.hash(call),
            "verify_checksum" => self.verify_checksum(call, false),
            "verify_checksum_with_payload" => self.verify_checksum(call, true),
            "update_checksum" => self.update_checksum(call, false),
            "update_checksum_with_payload" => self.update_checksum(call, true),
            "truncate" => match self.arguments_of(call, 1)?.pop() {
                Some(Data::Number(length)) => {
                    self.packet.truncate = Some(length);
                    Ok(Data::Undefined)
                }
                _ => undefined("a length that was never written"),
            },
            "to_host" => Err(Halt::ToHost),
            // p4-support.md: they check and write nothing. Their arguments are evaluated.
            "assert" | "assume" | "log_msg" => {
                self.arguments_of(call, 0)?;
                Ok(self.nothing(&expr.ty))
            }
            "static_assert" => Ok(Data::bool(true)),
            other => self.call_gateway(id, other, call),
        }
    }

    /// A function of gateways and the like.
    fn call_gateway(&mut self, id: FunctionId, name: &str, call: &'h Call) -> Run<Data> {
        let def = &self.hir.functions[id.index()];
        let arguments =
            self.arguments(&def.params, &call.args, &call.order, &Substitution::new())?;
        let mut values = arguments.values;
        let frame = &self.packet.bytes;
        let result =
            state_object::call_with(&mut values, |data| self.gateway.call(name, frame, data))?;
        self.copy_out(&arguments.places, &values)?;
        Ok(result)
    }

    /// simple_switch.md: `egress_spec` becomes 511, `mcast_grp` 0.
    fn mark_to_drop(&mut self, call: &'h Call) -> Run<Data> {
        let Some(Some(argument)) = call.args.first() else {
            return unsupported("mark_to_drop without an argument");
        };
        let place = self.place(argument)?;
        let ty = self.ty(&argument.ty);
        let mut data = self.read(&place, &ty)?;
        self.set_field(&mut data, &ty, "egress_spec", BigInt::from(DROP_PORT))?;
        self.set_field(&mut data, &ty, "mcast_grp", BigInt::zero())?;
        self.write(&place, data)?;
        Ok(Data::Undefined)
    }

    pub(crate) fn set_field(&self, data: &mut Data, ty: &Ty, name: &str, value: BigInt) -> Run<()> {
        let Ty::Record(id, _) = ty else { return broken("standard metadata is not a struct") };
        let field =
            self.hir.records[id.index()].fields.iter().position(|field| &*field.name == name);
        match (data, field) {
            (Data::Struct(fields), Some(index)) => {
                fields[index] = Data::Number(value);
                Ok(())
            }
            _ => broken(format!("no standard_metadata.{name}")),
        }
    }

    /// v1model.p4: base + (hash of data mod max); base if max is 0.
    fn hash(&mut self, call: &'h Call) -> Run<Data> {
        let [result, algorithm, base, data, max] = call.args.as_slice() else {
            return broken("hash's arguments");
        };
        let (Some(algorithm), Some(base), Some(data), Some(max)) = (algorithm, base, data, max)
        else {
            return broken("hash's arguments");
        };
        let mut values = [const { Data::Undefined }; 5];
        let (mut place, mut summed) = (None, None);
        for index in call.order.places(5) {
            match index {
                0 => place = result.as_ref().map(|target| self.place(target)).transpose()?,
                1 => values[1] = self.eval(algorithm)?,
                2 => values[2] = self.eval(base)?,
                3 => summed = self.summed(data)?,
                _ => values[4] = self.eval(max)?,
            }
        }
        let Some((place, target)) = place.zip(result.as_ref()) else { return Ok(Data::Undefined) };
        let value = match (&values, summed) {
            ([_, _, Data::Number(base), _, Data::Number(max)], Some(bits)) => {
                let sum = self.digest(algorithm, &values[1], &bits.into_bytes())?;
                if base.is_negative() || max.is_negative() {
                    return unsupported("hash with negative numbers");
                }
                let value = if max.is_zero() { base.clone() } else { base + sum % max };
                match scalar_bits(self.hir, &self.ty(&target.ty)) {
                    Some((width, signed)) => Data::Number(wrap(&value, width, signed)),
                    None => return broken("a hash into something without bits"),
                }
            }
            _ => Data::Undefined,
        };
        self.write(&place, value)?;
        Ok(Data::Undefined)
    }

    fn digest(&mut self, algorithm: &Expr, value: &Data, bytes: &[u8]) -> Run<BigInt> {
        let (Data::Number(index), Ty::Enum(id)) = (value, self.ty(&algorithm.ty)) else {
            return undefined("an algorithm that was never written");
        };
        let member =
            index.to_usize().and_then(|index| self.hir.enums[id.index()].members.get(index));
        Ok(match member.map(|(name, _)| &**name) {
            Some("random") => self.gateway.draw()?,
            // The custom ones begin with the same parameters (bmv2), and nothing changes them here.
            Some("crc32" | "crc32_custom") => BigInt::from(hash::crc32(bytes)),
            Some("crc16" | "crc16_custom") => BigInt::from(hash::crc16(bytes)),
            Some("csum16") => BigInt::from(hash::csum16(bytes)),
            Some("xor16") => BigInt::from(hash::xor16(bytes)),
            // bmv2: the first eight bytes.
            Some("identity") => {
                bytes.iter().take(8).fold(BigInt::zero(), |sum, byte| (sum << 8) + *byte)
            }
            other => return unsupported(format!("the algorithm {other:?}")),
        })
    }

    /// The bits of data that is hashed or summed; fields of invalid headers are left out, as in
    /// bmv2. None: something in it is not known.
    fn summed(&mut self, expr: &'h Expr) -> Run<Option<Bits>> {
        if let ExprKind::Aggregate(parts, order) = &expr.kind {
            let mut all: Vec<Option<Bits>> = vec![None; parts.len()];
            for place in order.places(parts.len()) {
                all[place] = self.summed(&parts[place])?;
            }
            return Ok(all.into_iter().try_fold(Bits::default(), |mut sum, part| {
                sum.append(&part?);
                Some(sum)
            }));
        }
        let ty = self.ty(&expr.ty);
        let data = match (&expr.kind, Self::is_lvalue(expr)) {
            (
                ExprKind::Field(..)
                | ExprKind::Index(..)
                | ExprKind::StackNext(_)
                | ExprKind::StackLast(_),
                true,
            ) => {
                let place = self.place(expr)?;
                if self.in_invalid_header(&place) {
                    return Ok(Some(Bits::default()));
                }
                self.read(&place, &ty)?
            }
            _ => self.eval(expr)?,
        };
        let mut bits = Bits::default();
        match of_value(self.hir, &data, &ty, &mut bits) {
            Ok(()) => Ok(Some(bits)),
            Err(Halt::Stop(crate::Stop::Undefined(_))) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// The condition, the checksum of the data, and the algorithm's result; None: the condition
    /// does not hold.
    fn checksum(
        &mut self,
        call: &'h Call,
        payload: bool,
    ) -> Run<(Option<BigInt>, Option<super::place::Place>, Data)> {
        let [Some(condition), Some(data), Some(sum), Some(algorithm)] = call.args.as_slice() else {
            return broken("a checksum's arguments");
        };
        let updates = Self::is_lvalue(sum);
        let (mut holds, mut bits, mut place) = (Data::Undefined, None, None);
        let (mut given, mut member) = (Data::Undefined, Data::Undefined);
        for index in call.order.places(4) {
            match index {
                0 => holds = self.eval(condition)?,
                1 => bits = self.summed(data)?,
                2 if updates => {
                    let target = self.place(sum)?;
                    let ty = self.ty(&sum.ty);
                    given = self.read(&target, &ty)?;
                    place = Some(target);
                }
                2 => given = self.eval(sum)?,
                _ => member = self.eval(algorithm)?,
            }
        }
        let Data::Number(holds) = holds else {
            return undefined("a checksum's condition that was never written");
        };
        if holds.is_zero() {
            return Ok((None, place, given));
        }
        let Some(bits) = bits else { return undefined("a checksum of what was never written") };
        // (bmv2: the payload begins with a byte, whatever is before it.)
        let mut bytes = bits.into_bytes();
        if payload {
            bytes.extend_from_slice(
                self.packet.bytes.get(self.packet.cursor / 8..).unwrap_or_default(),
            );
        }
        let value = self.digest(algorithm, &member, &bytes)?;
        match scalar_bits(self.hir, &self.ty(&sum.ty)) {
            Some((width, signed)) => Ok((Some(wrap(&value, width, signed)), place, given)),
            None => broken("a checksum without bits"),
        }
    }

    fn verify_checksum(&mut self, call: &'h Call, payload: bool) -> Run<Data> {
        match self.checksum(call, payload)? {
            (Some(sum), _, Data::Number(given)) => self.packet.checksum_error |= sum != given,
            (Some(_), _, _) => return undefined("a checksum that was never written"),
            (None, ..) => {}
        }
        Ok(Data::Undefined)
    }

    fn update_checksum(&mut self, call: &'h Call, payload: bool) -> Run<Data> {
        match self.checksum(call, payload)? {
            (Some(sum), Some(place), _) => self.write(&place, Data::Number(sum))?,
            (None, Some(place), given) => self.write(&place, given)?,
            (_, None, _) => return broken("a checksum that cannot be written"),
        }
        Ok(Data::Undefined)
    }
}

/// An index into an array; None: out of range of all of them.
fn element(index: &Data) -> Run<Option<usize>> {
    match index {
        Data::Number(index) => Ok(index.to_usize()),
        _ => undefined("an index that was never written"),
    }
}

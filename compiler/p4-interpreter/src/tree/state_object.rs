//! State objects of systems in the tree: values and types there and back (object.rs).

use num_bigint::BigInt;
use p4_check::hir::{Hir, RecordKind};
use p4_check::ty::Ty;

use super::data::{Data, scalar_bits};
use super::{Halt, Run, Tree, broken, unsupported};
use crate::object::{Answer, Call, Datum, Declaration, Object, Shape};
use crate::{Stop, Verdict};

/// Bits of a scalar that has none in a packet: an enum member's or error's number.
const NUMBER_BITS: u32 = 32;

impl Tree<'_> {
    /// The object that an instance declares.
    pub(crate) fn declare_object(
        &self,
        kind: &str,
        name: &str,
        types: &[Ty],
        arguments: &[Data],
    ) -> Run<Box<dyn Object>> {
        if !self.objects.has(kind) {
            return unsupported(format!("extern {kind}"));
        }
        let number = |argument: &Data| match argument {
            Data::Number(value) => Some(value.clone()),
            _ => None,
        };
        let types = types.iter().map(|ty| shape(self.hir, ty)).collect::<Run<Vec<Shape>>>()?;
        let arguments: Vec<Option<BigInt>> = arguments.iter().map(number).collect();
        Ok(self.objects.declare(&Declaration { kind, name, types, arguments })?)
    }
}

/// Calls a method: what it returns, and the parameters as they are then.
pub(crate) fn call(object: &mut dyn Object, method: &str, arguments: &mut [Data]) -> Run<Data> {
    call_with(arguments, |arguments| object.call(Call { method, arguments }))
}

/// The same of a value that is not a object.
pub(crate) fn call_with(
    arguments: &mut [Data],
    call: impl FnOnce(&mut [Datum]) -> Result<Answer, Stop>,
) -> Run<Data> {
    let mut data = arguments.iter().map(datum).collect::<Run<Vec<Datum>>>()?;
    let returned = match call(&mut data)? {
        Answer::Value(value) => value,
        Answer::Drop => return Err(Halt::Ended(Verdict::Drop)),
        Answer::Abandon => return Err(Halt::Abandoned),
        Answer::Send { port, frame } => return Err(Halt::Ended(Verdict::Forward { port, frame })),
    };
    for (argument, datum) in arguments.iter_mut().zip(data) {
        *argument = value(datum);
    }
    Ok(value(returned))
}

fn shape(hir: &Hir, ty: &Ty) -> Run<Shape> {
    let all = |types: &mut dyn Iterator<Item = Ty>| {
        types.map(|ty| shape(hir, &ty)).collect::<Run<Vec<Shape>>>()
    };
    match ty {
        Ty::Record(id, arguments) if hir.records[id.index()].kind == RecordKind::Struct => {
            Ok(Shape::Struct(all(&mut hir
                .fields_of(*id, arguments)
                .into_iter()
                .map(|(_, ty)| ty))?))
        }
        Ty::Tuple(parts) => Ok(Shape::Struct(all(&mut parts.iter().cloned())?)),
        Ty::Record(..) | Ty::Varbit(_) | Ty::Stack(..) => {
            unsupported("a state object of something else than scalars")
        }
        _ => Ok(Shape::Scalar(scalar_bits(hir, ty).map_or(NUMBER_BITS, |(width, _)| width))),
    }
}

fn datum(data: &Data) -> Run<Datum> {
    match data {
        Data::Number(number) => Ok(Datum::Number(number.clone())),
        Data::Undefined => Ok(Datum::Undefined),
        Data::Struct(parts) => Ok(Datum::Struct(parts.iter().map(datum).collect::<Run<_>>()?)),
        _ => broken("an argument of a state object with something else than scalars"),
    }
}

fn value(datum: Datum) -> Data {
    match datum {
        Datum::Number(number) => Data::Number(number),
        Datum::Undefined => Data::Undefined,
        Datum::Struct(parts) => Data::Struct(parts.into_iter().map(value).collect()),
    }
}

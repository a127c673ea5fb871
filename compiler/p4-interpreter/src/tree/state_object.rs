//! State objects of systems in the tree: values and types there and back (object.rs).

use num_bigint::BigInt;
use p4_check::hir::{Annotations, FunctionId, Hir, RecordKind};
use p4_check::lower_merge::function_named;
use p4_check::names;
use p4_check::ty::Ty;

use super::data::{Data, Object as Instance, scalar_bits};
use super::externs::External;
use super::statement::Next;
use super::{Frame, Halt, Run, Tree, broken, unsupported};
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

impl Tree<'_> {
    /// Notes what the declaration of an object names as its merge.
    pub(crate) fn name_merge(&mut self, made: &Data, annotations: &Annotations) {
        let Data::Object(Instance::Extern(index)) = made else { return };
        let Some(annotation) = annotations.iter().find(|it| it.name.as_str() == "merge") else {
            return;
        };
        if let Some(External::State { merge, .. }) = self.externals.get_mut(*index) {
            *merge = function_named(self.hir, &names::text(annotation));
        }
    }

    /// What a function makes of two values.
    pub(crate) fn merged(
        &mut self,
        id: FunctionId,
        a: &BigInt,
        b: &BigInt,
    ) -> Result<BigInt, Stop> {
        let hir = self.hir;
        let def = &hir.functions[id.index()];
        let Some(body) = &def.body else {
            return Err(Stop::Broken(format!("{} has no body", def.name)));
        };
        let values = [a, b].map(|it| Data::Number(it.clone())).to_vec();
        let (_, ended) =
            self.run_body(&def.params, values, Frame::default(), |tree| tree.block(body));
        match ended {
            Ok(Next::Return(Some(Data::Number(number)))) => Ok(number),
            Err(Halt::Stop(stop)) => Err(stop),
            _ => Err(Stop::Undefined(format!("{} returns no value", def.name))),
        }
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

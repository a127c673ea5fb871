//! State objects of systems in the IR: values and types there and back (object.rs).

use crate::object::{Answer, Call, Datum, Declaration, Object, Objects, Shape, no_merge};
use crate::value::{Value, width};
use crate::{Evaluator, Interpreter, Interrupt, Run, Stop, Verdict, broken};
use p4_ir::{Argument, ConstArgument, Expr, ExternId, ExternInstance, Program, Type};
use std::collections::BTreeMap;

/// The object that an instance declares.
pub(crate) fn declare(
    objects: Objects,
    program: &Program,
    instance: &ExternInstance,
) -> Result<Box<dyn Object>, Stop> {
    if !objects.has(&instance.extern_type) {
        return Err(Stop::Unsupported(format!("extern {}", instance.extern_type)));
    }
    let number = |argument: &ConstArgument| match argument {
        ConstArgument::Value(value, _) => Some(value.clone()),
        _ => None,
    };
    let types: Result<_, Stop> =
        instance.type_arguments.iter().map(|ty| shape(program, ty)).collect();
    objects.declare(&Declaration {
        kind: &instance.extern_type,
        name: &instance.name,
        types: types?,
        arguments: instance.arguments.iter().map(number).collect(),
    })
}

/// A packet comes in.
pub(crate) fn begin_packet(
    objects: &mut BTreeMap<ExternId, Box<dyn Object>>,
    program: &Program,
    frame: &[u8],
    now_us: u64,
) -> Result<(), Stop> {
    for (id, object) in objects {
        let merge = program.externs.get(id.index()).and_then(|it| it.merge.as_ref());
        match merge.map(Evaluator::new) {
            Some(own) => {
                object.begin_packet_merging(frame, now_us, &mut |a, b| own.of(a, b))?;
            }
            None => object.begin_packet_merging(frame, now_us, &mut no_merge)?,
        }
    }
    Ok(())
}

fn shape(program: &Program, ty: &Type) -> Result<Shape, Stop> {
    match (ty, width(ty)) {
        (_, Some(width)) => Ok(Shape::Scalar(width)),
        (Type::Struct(id), None) => {
            let fields = &program.struct_types[id.index()].fields;
            Ok(Shape::Struct(
                fields
                    .iter()
                    .map(|field| shape(program, &field.ty))
                    .collect::<Result<_, Stop>>()?,
            ))
        }
        _ => Err(Stop::Unsupported("a state object of something else than scalars".into())),
    }
}

fn datum(value: Value) -> Run<Datum> {
    match value {
        Value::Scalar(number) => Ok(Datum::Number(number)),
        Value::Undefined => Ok(Datum::Undefined),
        Value::Struct(fields) => {
            Ok(Datum::Struct(fields.into_iter().map(datum).collect::<Run<_>>()?))
        }
        _ => broken("an argument of a state object with something else than scalars"),
    }
}

fn value(datum: Datum) -> Value {
    match datum {
        Datum::Number(number) => Value::Scalar(number),
        Datum::Undefined => Value::Undefined,
        Datum::Struct(fields) => Value::Struct(fields.into_iter().map(value).collect()),
    }
}

impl Interpreter<'_> {
    /// A method of a system's object.
    pub(crate) fn call_object(
        &mut self,
        id: ExternId,
        method: &str,
        arguments: &[Argument],
        result: Option<&Expr>,
    ) -> Run<()> {
        self.call_with_data(arguments, result, |switch, arguments| {
            let Some(object) = switch.objects.get_mut(&id) else {
                return Err(Stop::Broken(format!("{method} of no object")));
            };
            object.call(Call { method, arguments })
        })
    }

    /// A function of gateways and the like.
    pub(crate) fn call_gateway(
        &mut self,
        name: &str,
        arguments: &[Argument],
        result: Option<&Expr>,
    ) -> Run<()> {
        self.call_with_data(arguments, result, |switch, arguments| {
            switch.gateway.call(name, &switch.packet.bytes, arguments)
        })
    }

    fn call_with_data(
        &mut self,
        arguments: &[Argument],
        result: Option<&Expr>,
        call: impl FnOnce(&mut Self, &mut [Datum]) -> Result<Answer, Stop>,
    ) -> Run<()> {
        let mut data = Vec::new();
        for argument in arguments {
            data.push(match argument {
                Argument::In(expr) | Argument::InOut(expr) => datum(self.eval(expr)?)?,
                Argument::Out(_) | Argument::DontCare => Datum::Undefined,
            });
        }
        let returned = match call(self, &mut data)? {
            Answer::Value(returned) => returned,
            Answer::Drop => return Err(Interrupt::Ended(Verdict::Drop)),
            Answer::Abandon => {
                self.objects.values_mut().for_each(|object| object.abandon_packet());
                return Err(Interrupt::Ended(Verdict::Drop));
            }
            Answer::Send { port, frame } => {
                return Err(Interrupt::Ended(Verdict::Forward { port, frame }));
            }
        };
        for (argument, datum) in arguments.iter().zip(data) {
            match (argument, datum) {
                (Argument::Out(target) | Argument::InOut(target), Datum::Number(number)) => {
                    self.store_number(target, &number)?;
                }
                (Argument::Out(target) | Argument::InOut(target), datum) => {
                    let place = self.place(target)?;
                    self.store(&place, value(datum))?;
                }
                _ => {}
            }
        }
        match (result, returned) {
            (Some(target), Datum::Number(number)) => self.store_number(target, &number),
            _ => Ok(()),
        }
    }
}

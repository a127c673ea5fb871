//! Calls: the calling convention (spec §6.8), functions, actions, parsers, controls, methods of
//! headers and stacks.

use num_traits::ToPrimitive;
use p4_check::hir::{
    BlockKind, Call, Callee, Direction, Expr, FunctionId, LocalId, Order, ParamDef, Stmt,
};
use p4_check::ty::{Substitution, Ty};
use std::rc::Rc;

use super::data::{Data, Object, initial};
use super::instance::{Instance, address};
use super::place::Place;
use super::statement::Next;
use super::{Frame, Halt, Run, Tree, broken};

/// Arguments as they are saved before a call.
#[derive(Default)]
pub(crate) struct Arguments {
    /// What each parameter begins with.
    pub values: Vec<Data>,
    /// Where the value of a parameter with direction `out` or `inout` goes, in the order in which
    /// they are copied.
    pub places: Vec<(usize, Place)>,
}

impl<'h> Tree<'h> {
    /// Evaluates arguments as written, each saved before the next (spec §6.8, steps 1 to 4).
    pub(crate) fn arguments(
        &mut self,
        params: &[ParamDef],
        args: &'h [Option<Expr>],
        order: &Order,
        types: &Substitution,
    ) -> Run<Arguments> {
        let mut made =
            Arguments { values: vec![Data::Undefined; params.len()], places: Vec::new() };
        for index in order.places(params.len()) {
            let param = &params[index];
            made.values[index] = match (&args[index], param.direction) {
                (Some(expr), Direction::None | Direction::In) => self.eval(expr)?.copied(),
                (Some(expr), direction) => {
                    let place = self.place(expr)?;
                    let ty = self.ty(&expr.ty);
                    let there = self.read(&place, &ty)?;
                    let value = match direction {
                        Direction::InOut => there.copied(),
                        _ => self.declared(param.local, there.emptied()),
                    };
                    made.places.push((index, place));
                    value
                }
                (None, _) => {
                    let data = initial(self.hir, &self.ty(&param.ty.substitute(types)), false);
                    self.declared(param.local, data)
                }
            };
        }
        Ok(made)
    }

    /// A variable or `out` parameter as it begins. The second one of a name may stand where the
    /// first stood: what the fields of its headers hold is open (spec §8.25), as they were valid
    /// there, maybe.
    pub(crate) fn declared(&mut self, local: LocalId, mut data: Data) -> Data {
        if !self.packet.declared.insert(local) {
            data.lose_headers();
        }
        data
    }

    /// Copies parameters back, in the order of the arguments (spec §6.8, step 6).
    pub(crate) fn copy_out(&mut self, places: &[(usize, Place)], values: &[Data]) -> Run<()> {
        places.iter().try_for_each(|(index, place)| self.write(place, values[*index].clone()))
    }

    /// Runs a body in a frame of its own. Gives what its parameters hold at its end, and how it
    /// ended.
    pub(crate) fn run_body(
        &mut self,
        params: &[ParamDef],
        values: Vec<Data>,
        frame: Frame,
        body: impl FnOnce(&mut Self) -> Run<Next>,
    ) -> (Vec<Data>, Run<Next>) {
        let height = self.frames.len();
        let values = params.iter().map(|param| param.local).zip(values).collect();
        self.frames.push(Frame { values, ..frame });
        let result = self.deeper(body);
        let mut frame = self.frames.drain(height..).next().unwrap_or_default();
        let last = |param: &ParamDef| frame.values.remove(&param.local).unwrap_or(Data::Undefined);
        (params.iter().map(last).collect(), result)
    }

    /// Copies back after a body: at `return` and `exit` too (spec §12.4, §12.5).
    fn finish(
        &mut self,
        arguments: &Arguments,
        (values, result): (Vec<Data>, Run<Next>),
    ) -> Run<Data> {
        if !matches!(result, Ok(_) | Err(Halt::Exit)) {
            return result.map(|_| Data::Undefined);
        }
        self.copy_out(&arguments.places, &values)?;
        match result? {
            Next::Return(Some(value)) => Ok(value),
            _ => Ok(Data::Undefined),
        }
    }

    pub(crate) fn call(&mut self, expr: &'h Expr, call: &'h Call) -> Run<Data> {
        let hir = self.hir;
        match &call.callee {
            Callee::Function(id) => match &hir.functions[id.index()].body {
                Some(body) => self.call_function(*id, call, body),
                None => self.call_extern(*id, expr, call),
            },
            Callee::Method(object, id) => match self.eval(object)? {
                Data::Object(Object::PacketIn) => self.packet_in(*id, expr, call),
                Data::Object(Object::PacketOut) => self.packet_out(call),
                Data::Object(Object::Extern(index)) => self.call_method(index, *id, object, call),
                _ => broken("a method of a value that is not a object"),
            },
            Callee::Action(id) => {
                let action = &hir.actions[id.index()];
                let arguments =
                    self.arguments(&action.params, &call.args, &call.order, &Substitution::new())?;
                self.run_action(&action.params, arguments, &action.body)
            }
            Callee::Block(object) => match self.eval(object)? {
                Data::Object(Object::Block(instance)) => self.call_block(&instance, call),
                _ => broken("apply of a value that is not a parser or control"),
            },
            Callee::Direct(made, _) => {
                match self.enclosing().and_then(|one| one.direct.get(&address(made)).cloned()) {
                    Some(instance) => self.call_block(&instance, call),
                    None => broken("apply of a parser or control that was not made"),
                }
            }
            Callee::IsValid(header) => Ok(Data::bool(self.eval(header)?.is_valid())),
            Callee::SetValid(header, valid) => {
                let place = self.place(header)?;
                let fresh = initial(self.hir, &self.ty(&header.ty), true);
                self.write_validity(&place, *valid, &fresh)?;
                Ok(Data::Undefined)
            }
            Callee::PushFront(stack) | Callee::PopFront(stack) => {
                let place = self.place(stack)?;
                let count = match call.args.first() {
                    Some(Some(count)) => self.number(count, "a count")?,
                    _ => return broken("push_front or pop_front without a count"),
                };
                let push = matches!(call.callee, Callee::PushFront(_));
                self.shift_stack(&place, count.to_usize().unwrap_or(usize::MAX), push)?;
                Ok(Data::Undefined)
            }
        }
    }

    /// The instance whose body runs.
    pub(crate) fn enclosing(&self) -> Option<Rc<Instance>> {
        self.enclosing_frame().and_then(|index| self.frames[index].instance.clone())
    }

    /// Its frame: that of the actions that it calls is inside of it.
    pub(crate) fn enclosing_frame(&self) -> Option<usize> {
        let mut at = self.frames.len().checked_sub(1);
        while let Some(index) = at {
            if self.frames[index].instance.is_some() {
                return Some(index);
            }
            at = self.frames[index].outer;
        }
        None
    }

    fn call_function(&mut self, id: FunctionId, call: &'h Call, body: &'h [Stmt]) -> Run<Data> {
        let def = &self.hir.functions[id.index()];
        let given = call.type_args.iter().map(|ty| self.ty(ty));
        let types: Substitution = def.type_params.iter().copied().zip(given).collect();
        let arguments = self.arguments(&def.params, &call.args, &call.order, &types)?;
        let frame = Frame { types, ..Frame::default() };
        let ended =
            self.run_body(&def.params, arguments.values.clone(), frame, |tree| tree.block(body));
        self.finish(&arguments, ended)
    }

    /// An action with all of its parameters bound (spec §14.1).
    pub(crate) fn run_action(
        &mut self,
        params: &[ParamDef],
        arguments: Arguments,
        body: &'h [Stmt],
    ) -> Run<Data> {
        let frame = Frame { outer: self.enclosing_frame(), ..Frame::default() };
        let ended = self.run_body(params, arguments.values.clone(), frame, |tree| tree.block(body));
        self.finish(&arguments, ended)
    }

    fn call_block(&mut self, instance: &Rc<Instance>, call: &'h Call) -> Run<Data> {
        let params = &self.hir.blocks[instance.block.index()].params;
        let arguments = self.arguments(params, &call.args, &call.order, &Substitution::new())?;
        let ended = self.apply_block(instance, arguments.values.clone());
        if let (values, Err(Halt::Reject(error))) = ended {
            self.copy_out_rejected(call, &arguments.places, &values)?;
            return Err(Halt::Reject(error));
        }
        self.finish(&arguments, ended)
    }

    /// One application of a parser or control: its locals are new (spec §13.3, §14).
    pub(crate) fn apply_block(
        &mut self,
        instance: &Rc<Instance>,
        values: Vec<Data>,
    ) -> (Vec<Data>, Run<Next>) {
        let def = &self.hir.blocks[instance.block.index()];
        let frame = Frame { instance: Some(instance.clone()), ..Frame::default() };
        self.run_body(&def.params, values, frame, |tree| {
            tree.block(&def.locals)?;
            match def.kind {
                BlockKind::Control => tree.block(&def.body),
                BlockKind::Parser => tree.states(instance, &def.states),
            }
        })
    }

    /// The type that a call's only type argument is, or its first argument has.
    pub(crate) fn subject_type(&self, call: &Call) -> Run<Ty> {
        let ty = call.type_args.first().or(call
            .args
            .first()
            .and_then(|arg| arg.as_ref())
            .map(|arg| &arg.ty));
        match ty {
            Some(ty) => Ok(self.ty(ty)),
            None => broken("a call without a type"),
        }
    }
}

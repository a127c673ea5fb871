//! Calls: copy in, run, copy out (P4-16 §6.8).

use super::value::{Place, Value};
use super::{Ended, Object, Run, Tree, broken};
use num_traits::ToPrimitive;
use p4_check::hir::{ActionDefId, Block, Call, Callee, Direction, Expr, ExprKind, Order, ParamDef};
use p4_check::ty::Substitution;
use p4_syntax::Span;

/// What is owed to the caller when a call ends: the place, and the parameter.
pub(crate) type Owed = Vec<(Place, p4_check::hir::LocalId)>;

impl<'h> Tree<'h> {
    /// A call; its value, if it has one.
    pub(crate) fn call(&mut self, c: &Call, span: Span) -> Run<Option<Value>> {
        self.spend()?;
        let hir = self.hir;
        match &c.callee {
            Callee::Function(id) => {
                let f = &hir.functions[id.index()];
                let Some(body) = &f.body else { return self.extern_function(f, c) };
                let map: Substitution = f
                    .type_params
                    .iter()
                    .copied()
                    .zip(c.type_args.iter().map(|t| t.substitute(&self.generics)))
                    .collect();
                let owed = self.bind(&f.params, &c.args, &c.order, &map)?;
                let outer = std::mem::replace(&mut self.generics, map);
                let result = self.block(body);
                self.generics = outer;
                self.leave(result, owed)
            }
            Callee::Method(object, id) => match self.object(object)? {
                Object::Packet => self.packet_method(*id, c),
                Object::Extern(index) => self.method(index, *id, c),
                Object::Instance(_) => broken("a method of a block"),
            },
            Callee::Action(id) => {
                let def = &hir.actions[id.index()];
                let owed = self.bind(&def.params, &c.args, &c.order, &Substitution::new())?;
                let result = self.block(&def.body);
                self.leave(result, owed)
            }
            Callee::Block(object) => {
                let Object::Instance(instance) = self.object(object)? else { return broken("no instance") };
                self.apply(instance, c)
            }
            Callee::Direct(..) => match self.instances[self.current].direct.get(&span.start).copied() {
                Some(instance) => self.apply(instance, c),
                None => broken("an instance that was not made"),
            },
            Callee::IsValid(_) => broken("isValid is an expression"),
            Callee::SetValid(h, valid) => {
                let place = self.place(h)?;
                self.set_valid(&place, *valid)?;
                Ok(None)
            }
            Callee::PushFront(s) | Callee::PopFront(s) => {
                let Some(Some(count)) = c.args.first() else { return broken("a shift without a count") };
                let place = self.place(s)?;
                let count = self.number(count)?.to_usize().unwrap_or(0);
                self.shift(&place, count, matches!(c.callee, Callee::PushFront(_)))?;
                Ok(None)
            }
        }
    }

    pub(crate) fn object(&self, e: &Expr) -> Run<Object> {
        match &e.kind {
            ExprKind::Local(id) => self.objects[id.index()].map_or_else(|| broken("an object without meaning"), Ok),
            _ => broken("an object without a name"),
        }
    }

    /// Evaluates arguments as written, each saved before the next; then the parameters begin.
    pub(crate) fn bind(
        &mut self,
        params: &[ParamDef],
        args: &[Option<Expr>],
        order: &Order,
        map: &Substitution,
    ) -> Run<Owed> {
        let mut values: Vec<Option<Value>> = vec![None; params.len()];
        let mut places: Vec<Option<Place>> = vec![None; params.len()];
        let mut objects = Vec::new();
        for at in order.places(args.len()) {
            let (Some(p), Some(a)) = (params.get(at), &args[at]) else { continue };
            if p.ty.is_object() {
                objects.push((p.local, self.object(a)?));
                continue;
            }
            match p.direction {
                Direction::Out => places[at] = Some(self.place(a)?),
                Direction::InOut => {
                    let place = self.place(a)?;
                    values[at] = Some(self.load(&place)?);
                    places[at] = Some(place);
                }
                _ => values[at] = Some(self.eval(a)?),
            }
        }
        for (at, p) in params.iter().enumerate() {
            if p.ty.is_object() {
                continue;
            }
            let value = match values[at].take() {
                Some(value) => value,
                None => self.initial(&p.ty.substitute(map), false)?,
            };
            self.locals[p.local.index()] = Some(value);
        }
        // Copied out from left to right, as the arguments are written.
        let mut owed = Vec::new();
        for at in order.places(args.len()) {
            let Some(p) = params.get(at) else { continue };
            owed.extend(places[at].take().map(|place| (place, p.local)));
        }
        for (local, object) in objects {
            self.objects[local.index()] = Some(object);
        }
        Ok(owed)
    }

    /// Copies out, however the body ended (§12.5: also before an exit goes on).
    pub(crate) fn leave(&mut self, result: Run<()>, owed: Owed) -> Run<Option<Value>> {
        let value = match result {
            Ok(()) => Ok(None),
            Err(Ended::Return(value)) => Ok(value),
            Err(ended @ (Ended::Stop(_) | Ended::ToHost)) => return Err(ended),
            Err(ended) => Err(ended),
        };
        for (place, local) in owed {
            let Some(copy) = self.locals[local.index()].clone() else { return broken("a parameter without a value") };
            self.store(&place, copy)?;
        }
        value
    }

    /// `instance.apply(...)`
    fn apply(&mut self, instance: usize, c: &Call) -> Run<Option<Value>> {
        let hir = self.hir;
        let def = &hir.blocks[self.instances[instance].block.index()];
        let owed = self.bind(&def.params, &c.args, &c.order, &Substitution::new())?;
        let outer = self.current;
        self.enter(instance);
        let result = if def.states.is_empty() {
            self.control(&def.locals, &def.body)
        } else {
            let result = self.states(self.instances[instance].block);
            // The specification does not say whether arguments are copied out when a sub-parser rejects; it matters
            // where they share storage.
            if matches!(result, Err(Ended::Reject(_))) && shares(&owed, c) {
                return super::undefined("a sub-parser rejects whose arguments share storage");
            }
            result
        };
        self.enter(outer);
        self.leave(result, owed)
    }

    fn control(&mut self, locals: &Block, body: &Block) -> Run<()> {
        self.block(locals)?;
        self.block(body)
    }

    /// An action as a table runs it: bound arguments are evaluated now, the rest is the control plane's.
    pub(crate) fn run_action(
        &mut self,
        id: ActionDefId,
        bound: (&[Option<Expr>], &Order),
        data: &[num_bigint::BigInt],
    ) -> Run<()> {
        let def = &self.hir.actions[id.index()];
        let (directed, plain): (Vec<ParamDef>, Vec<ParamDef>) =
            def.params.iter().cloned().partition(|p| p.direction != Direction::None);
        for (p, number) in plain.iter().zip(data) {
            let number = self.fit(number, &p.ty);
            self.locals[p.local.index()] = Some(Value::Number(number));
        }
        let owed = self.bind(&directed, bound.0, bound.1, &Substitution::new())?;
        let result = self.block(&def.body);
        self.leave(result, owed).map(|_| ())
    }

    /// P4-16 §8.18: elements move, those that come in are invalid; the next index follows within the stack.
    fn shift(&mut self, place: &Place, count: usize, push: bool) -> Run<()> {
        let Value::Stack { mut elements, next } = self.load(place)? else { return broken("a shift of no stack") };
        let size = elements.len();
        let count = count.min(size);
        if push {
            elements.rotate_right(count);
        } else {
            elements.rotate_left(count);
        }
        let vacated = if push { 0..count } else { size - count..size };
        for element in &mut elements[vacated] {
            if let Value::Header { valid, fields } = element {
                *valid = false;
                fields.iter_mut().filter(|f| matches!(f, Value::Number(_))).for_each(|f| *f = Value::Undefined);
            }
        }
        let next = if push { (next + count).min(size) } else { next.saturating_sub(count) };
        self.store(place, Value::Stack { elements, next })
    }
}

/// Whether a place that is copied out is named by another argument, too, or by an index that is computed.
fn shares(owed: &Owed, c: &Call) -> bool {
    owed.iter().any(|(place, _)| {
        let mut named = 0;
        for a in c.args.iter().flatten() {
            let mut here = false;
            p4_check::walk::expr(a, &mut |e| match &e.kind {
                ExprKind::Local(local) => here |= *local == place.local,
                ExprKind::Index(..) | ExprKind::StackNext(_) | ExprKind::StackLast(_) => named += 1,
                _ => {}
            });
            named += usize::from(here);
        }
        named > 1
    })
}

//! L-values: where they are, what is there, and writing it (spec §6.7).

use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_check::hir::{Expr, ExprKind, LocalId};
use p4_check::ty::Ty;

use super::data::{Data, Step, initial, scalar_bits};
use super::number::{slice, with_slice};
use super::{Halt, Run, Tree, broken};

/// An l-value with its indices evaluated.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    frame: usize,
    local: LocalId,
    pub path: Vec<Step>,
    /// Of the scalar there: these bits only, and the scalar's width and sign.
    bits: Option<((u32, u32), (u32, bool))>,
    /// An index is beyond the end of its stack.
    lost: bool,
    /// How many steps lead to the stack whose `next` this is, or is in.
    next_of: Option<usize>,
}

impl<'h> Tree<'h> {
    /// Whether an expression is a variable or a part of one.
    pub(crate) fn is_lvalue(expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Local(_) => true,
            ExprKind::Field(base, _)
            | ExprKind::Index(base, _)
            | ExprKind::StackNext(base)
            | ExprKind::StackLast(base)
            | ExprKind::Slice(base, ..) => Self::is_lvalue(base),
            _ => false,
        }
    }

    /// The frame that has the variable.
    fn frame_of(&self, local: LocalId) -> Option<usize> {
        let mut at = self.frames.len().checked_sub(1);
        while let Some(index) = at {
            if self.frames[index].values.contains_key(&local) {
                return Some(index);
            }
            at = self.frames[index].outer;
        }
        None
    }

    /// What a name stands for, in the scopes around what runs.
    pub(crate) fn named(&self, local: LocalId) -> Run<Data> {
        let mut at = self.frames.len().checked_sub(1);
        while let Some(index) = at {
            let frame = &self.frames[index];
            let known = frame.values.get(&local);
            if let Some(data) =
                known.or_else(|| frame.instance.as_ref().and_then(|one| one.values.get(&local)))
            {
                return Ok(data.clone());
            }
            at = frame.outer;
        }
        match self.globals.get(&local) {
            Some(data) => Ok(data.clone()),
            None => broken(format!("`{}` has no value here", self.hir.locals[local.index()].name)),
        }
    }

    /// Evaluates an l-value: its indices, left to right.
    pub(crate) fn place(&mut self, expr: &'h Expr) -> Run<Place> {
        self.deeper(|tree| tree.place_now(expr))
    }

    fn place_now(&mut self, expr: &'h Expr) -> Run<Place> {
        match &expr.kind {
            ExprKind::Local(local) => match self.frame_of(*local) {
                Some(frame) => Ok(Place {
                    frame,
                    local: *local,
                    path: Vec::new(),
                    bits: None,
                    lost: false,
                    next_of: None,
                }),
                None => broken(format!("`{}` is not there", self.hir.locals[local.index()].name)),
            },
            ExprKind::Field(base, field) => {
                let mut place = self.place(base)?;
                place.path.push(Step::Field(*field as usize));
                Ok(place)
            }
            ExprKind::Index(base, index) => {
                let mut place = self.place(base)?;
                let index = self.number(index, "an index")?;
                let size = self.stack_size(base)?;
                match index.to_usize().filter(|index| *index < size) {
                    Some(index) => place.path.push(Step::Element(index)),
                    None => place.lost = true,
                }
                Ok(place)
            }
            ExprKind::StackNext(base) => {
                let mut place = self.place(base)?;
                let (next, size) = self.stack_next(&place)?;
                // Spec §8.18.
                if next >= size {
                    return Err(self.reject("StackOutOfBounds"));
                }
                place.next_of = Some(place.path.len());
                place.path.push(Step::Element(next));
                Ok(place)
            }
            ExprKind::StackLast(base) => {
                let mut place = self.place(base)?;
                let (next, _) = self.stack_next(&place)?;
                match next.checked_sub(1) {
                    Some(last) => place.path.push(Step::Element(last)),
                    None => return Err(self.reject("StackOutOfBounds")),
                }
                Ok(place)
            }
            ExprKind::Slice(base, high, low) => {
                let mut place = self.place(base)?;
                place.bits = match (place.bits, scalar_bits(self.hir, &self.ty(&base.ty))) {
                    (Some(((_, outer), shape)), _) => Some(((outer + high, outer + low), shape)),
                    (None, Some(shape)) => Some(((*high, *low), shape)),
                    (None, None) => return broken("a slice of something without bits"),
                };
                Ok(place)
            }
            _ => broken("an expression that is not an l-value"),
        }
    }

    fn stack_size(&self, base: &Expr) -> Run<usize> {
        match self.ty(&base.ty) {
            Ty::Stack(_, size) => Ok(size as usize),
            _ => broken("an index into a value that is not a stack"),
        }
    }

    /// A stack's `nextIndex`, and its size.
    fn stack_next(&self, place: &Place) -> Run<(usize, usize)> {
        match self.look(place) {
            Some(Data::Stack(next, elements)) => Ok((*next as usize, elements.len())),
            _ => broken("a place that is not a stack"),
        }
    }

    pub(crate) fn reject(&self, error: &str) -> Halt {
        Halt::Reject(self.hir.errors.iter().position(|known| &**known == error).unwrap_or(0))
    }

    fn look(&self, place: &Place) -> Option<&Data> {
        self.frames.get(place.frame)?.values.get(&place.local)?.at(&place.path)
    }

    pub(crate) fn root_mut(&mut self, place: &Place) -> Option<&mut Data> {
        self.frames.get_mut(place.frame)?.values.get_mut(&place.local)
    }

    /// What is there; `ty` is the l-value's type. Beyond a stack's end, a header that was never
    /// valid (p4-support.md).
    pub(crate) fn read(&self, place: &Place, ty: &Ty) -> Run<Data> {
        if place.lost {
            return Ok(initial(self.hir, ty, true));
        }
        match (self.look(place), place.bits) {
            (Some(Data::Number(value)), Some(((high, low), _))) => {
                Ok(Data::Number(slice(value, high, low)))
            }
            (Some(data), _) => Ok(data.clone()),
            (None, _) => broken("an l-value that is not there"),
        }
    }

    /// Whether the l-value is in a header that is invalid.
    pub(crate) fn in_invalid_header(&self, place: &Place) -> bool {
        let root = self.frames.get(place.frame).and_then(|frame| frame.values.get(&place.local));
        let outer = (0..place.path.len())
            .filter_map(|length| root.and_then(|root| root.at(&place.path[..length])));
        place.lost || outer.into_iter().any(|data| matches!(data, Data::Header(false, _)))
    }

    /// Writes an l-value. Beyond a stack's end, that changes nothing (spec §8.25).
    pub(crate) fn write(&mut self, place: &Place, value: Data) -> Run<()> {
        if place.lost {
            return Ok(());
        }
        let value = match place.bits {
            None => value,
            Some((at, shape)) => self.spliced(place, at, shape, &value),
        };
        match self.root_mut(place).and_then(|root| root.write(&place.path, value)) {
            Some(()) => Ok(()),
            None => broken("an l-value that is not there"),
        }
    }

    fn spliced(
        &self,
        place: &Place,
        (high, low): (u32, u32),
        shape: (u32, bool),
        value: &Data,
    ) -> Data {
        let part = match value {
            Data::Number(part) => part,
            _ => return Data::Undefined,
        };
        let whole = match self.look(place) {
            Some(Data::Number(whole)) => whole.clone(),
            // All of its bits are written.
            _ if high + 1 == shape.0 && low == 0 => BigInt::ZERO,
            _ => return Data::Undefined,
        };
        Data::Number(with_slice(&whole, (high, low), part, shape))
    }

    /// `setValid` and `setInvalid` (spec §8.17; of a union's member §8.19).
    pub(crate) fn write_validity(&mut self, place: &Place, valid: bool, fresh: &Data) -> Run<()> {
        if place.lost {
            return Ok(());
        }
        match self.root_mut(place).and_then(|root| root.write_validity(&place.path, valid, fresh)) {
            Some(()) => Ok(()),
            None => broken("a header that is not there"),
        }
    }

    /// After an extraction into `next`, or a part of it: one more element is taken (spec §8.18,
    /// §13.8).
    pub(crate) fn take_next(&mut self, place: &Place) -> Run<()> {
        let Some(steps) = place.next_of else { return Ok(()) };
        match self.root_mut(place).and_then(|root| root.at_mut(&place.path[..steps])) {
            Some(Data::Stack(next, _)) => {
                *next += 1;
                Ok(())
            }
            _ => broken("a stack that is not there"),
        }
    }

    /// `push_front` and `pop_front` (spec §8.18).
    pub(crate) fn shift_stack(&mut self, place: &Place, count: usize, push: bool) -> Run<()> {
        if place.lost {
            return Ok(());
        }
        let Some(Data::Stack(next, elements)) =
            self.root_mut(place).and_then(|root| root.at_mut(&place.path))
        else {
            return broken("a stack that is not there");
        };
        let size = elements.len();
        let count = count.min(size);
        let before = elements.clone();
        // Element by element in the specification's order, so that each is assigned as a header is.
        for step in 0..size {
            let (to, from) = match push {
                true => (size - 1 - step, (size - 1 - step).checked_sub(count)),
                false => (step, Some(step + count).filter(|from| *from < size)),
            };
            match from {
                Some(from) if from != to => {
                    let value = elements[from].clone();
                    elements[to].assign(value);
                }
                Some(_) => {}
                None => invalidate(&mut elements[to], &before),
            }
        }
        *next = match push {
            true => (*next + count as u32).min(size as u32),
            false => next.saturating_sub(count as u32),
        };
        Ok(())
    }
}

/// An element that a shift leaves behind: invalid. What its fields hold nobody says (§8.25), unless
/// they are the same in all elements: 0, if the stack was never used.
fn invalidate(element: &mut Data, elements: &[Data]) {
    match element {
        Data::Union(members) => {
            for (index, member) in members.iter_mut().enumerate() {
                let others: Vec<Data> = elements
                    .iter()
                    .filter_map(|one| one.at(&[Step::Field(index)]))
                    .cloned()
                    .collect();
                invalidate(member, &others);
            }
        }
        Data::Header(valid, fields) => {
            *valid = false;
            for other in elements {
                if let Data::Header(_, others) = other {
                    fields
                        .iter_mut()
                        .zip(others)
                        .for_each(|(field, other)| field.forget_unlike(other));
                }
            }
        }
        _ => {}
    }
}

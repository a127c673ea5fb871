//! Statements in C.

use crate::expr::{literal, shift_left, shift_right, truncate};
use crate::generator::{Generator, Section};
use crate::layout::{HeaderPlace, Place, Scalar, c_type, scalar_width};
use crate::mutations::{Mutation, planted};
use num_bigint::BigInt;
use num_traits::{One, Zero};
use p4_ir::{Block, Expr, ExprKind, LabelId, Location, Statement, StatementKind, Type};

impl Generator<'_> {
    /// A list of statements.
    pub(crate) fn block(&mut self, body: &[Statement]) {
        for statement in body {
            self.statement(statement, false);
            if self.forgets {
                self.read_anew();
            }
        }
    }

    /// What is inside a statement. `atomic`: it is a part of what must happen at once.
    fn inner_block(&mut self, body: &Block, atomic: bool) {
        if atomic {
            self.atomic_part(body);
        } else {
            self.block(body);
        }
    }

    /// One statement. `atomic`: the accesses to registers in it must happen at once.
    pub(crate) fn statement(&mut self, statement: &Statement, atomic: bool) {
        self.out.at(statement.location);
        match &statement.kind {
            StatementKind::Assign(target, value) => self.assign(target, value, statement.location),
            StatementKind::If { condition, then, otherwise } => {
                let condition = self.expr(condition);
                self.open(&format!("if ({condition})"));
                self.inner_block(then, atomic);
                if !otherwise.is_empty() {
                    self.out.line("} else {");
                    self.inner_block(otherwise, atomic);
                }
                self.out.line("}");
            }
            StatementKind::Switch { on, cases, default } => self.switch(on, cases, default),
            StatementKind::Block { label, body, comment, atomic: begins } => {
                if let Some(comment) = comment {
                    self.out.comment(comment);
                }
                if *begins && !atomic && self.held.is_none() && !planted(Mutation::UnlockedBlocks) {
                    self.atomic_block(body);
                } else {
                    self.inner_block(body, atomic);
                }
                if let Some(label) = label {
                    let name = self.leave_label(*label);
                    self.out.line(format!("{name}: ;"));
                }
            }
            StatementKind::Leave(label) => {
                let name = self.leave_label(*label);
                self.jump(&name, Some(*label));
            }
            StatementKind::Exit => {
                let label = self.exit_label.clone();
                self.jump(&label, None);
            }
            StatementKind::Return => {
                let label = self.return_label.clone();
                self.jump(&label, None);
            }
            StatementKind::SetValid(header, valid) => {
                if let Some(Place::Header(place)) = self.place(header) {
                    self.guarded(place.guard.clone(), |g| {
                        if *valid && !planted(Mutation::SetValidKeeps) {
                            g.clear_if_invalid(&place);
                        }
                        g.set_valid(&place, *valid);
                    });
                } else {
                    self.internal(statement.location, "setValid of a value that is not a header");
                }
            }
            StatementKind::PushFront(stack, count) => self.push_pop(stack, *count, true),
            StatementKind::PopFront(stack, count) => self.push_pop(stack, *count, false),
            StatementKind::Apply { table, hit, action_run } => {
                self.apply(*table, *hit, *action_run)
            }
            // The read before it has written, too.
            StatementKind::Extern { .. } if self.updates.is_done(statement) => {}
            StatementKind::Extern { instance: Some(id), arguments, .. }
                if self.updates.at_read(statement).is_some() =>
            {
                let update = self.updates.at_read(statement).cloned();
                update.iter().for_each(|update| {
                    self.register_update(*id, arguments, update, statement.location)
                });
            }
            StatementKind::Extern { instance, name, type_arguments, arguments, result } => {
                self.extern_call(
                    *instance,
                    name,
                    type_arguments,
                    arguments,
                    result.as_ref(),
                    statement.location,
                );
            }
            StatementKind::Extract { header, varbit_bits } => {
                self.extract(header, varbit_bits.as_ref(), statement.location);
            }
            StatementKind::Skip(bits) => {
                if bits % 8 != 0 {
                    self.error(
                        statement.location,
                        "the packet can be skipped in whole bytes only",
                        None,
                    );
                }
                self.skip(&(bits / 8).to_string());
            }
            StatementKind::Advance(bits) => self.advance(bits),
            StatementKind::Verify(condition, error) => {
                let (condition, error) = (self.expr(condition), self.expr(error));
                self.open(&format!("if (!({condition}))"));
                self.parser_error(&error);
                self.out.line("}");
            }
            StatementKind::Emit(header) => self.emit(header, statement.location),
        }
    }

    /// Goes to a C label: that of a block, or the end of the control.
    fn jump(&mut self, name: &str, label: Option<LabelId>) {
        if let Some(release) = self.held.as_ref().and_then(|held| held.before_jump(label)) {
            self.out.line(release);
        }
        self.out.line(format!("goto {name};"));
    }

    /// Opens a brace.
    pub fn open(&mut self, head: &str) {
        self.out.line(format!("{head} {{").trim_start());
    }

    /// Runs `body` under a condition, if there is one.
    pub(crate) fn guarded(&mut self, guard: Option<String>, body: impl FnOnce(&mut Self)) {
        let guarded = guard.is_some();
        if let Some(guard) = guard {
            self.open(&format!("if ({guard})"));
        }
        body(self);
        if guarded {
            self.out.line("}");
        }
    }

    fn switch(&mut self, on: &Expr, cases: &[(Vec<BigInt>, Block)], default: &Block) {
        let width = self.width(on);
        if width > 128 {
            let help =
                Some("switch on parts of it, such as slices, or compare it as a whole with `if`");
            self.error(on.location, "`switch` on a value wider than 128 bits", help);
            return;
        }
        let value = self.expr(on);
        if width > 64 {
            let on = self.temporary(&c_type(width), &value);
            let mut word = "if";
            for (values, body) in cases {
                let tests: Vec<String> = values
                    .iter()
                    .map(|value| format!("{on} == {}", literal(value, width)))
                    .collect();
                self.open(&format!("{word} ({})", tests.join(" || ")));
                self.block(body);
                word = "} else if";
            }
            if cases.is_empty() {
                self.block(default);
                return;
            }
            self.out.line("} else {");
            self.block(default);
            self.out.line("}");
            return;
        }
        self.open(&format!("switch ({value})"));
        for (values, body) in cases {
            let Some((last, others)) = values.split_last() else { continue };
            for value in others {
                self.out.line(format!("case {}:", literal(value, width)));
            }
            self.open(&format!("case {}:", literal(last, width)));
            self.block(body);
            self.out.line("break;");
            self.out.line("}");
        }
        self.open("default:");
        self.block(default);
        self.out.line("break;");
        self.out.line("}");
        self.out.line("}");
    }

    /// Stores a C value (below 2^width) in an l-value.
    pub fn store(&mut self, target: &Expr, value: &str) {
        if let ExprKind::Slice { base, high, low } = &target.kind {
            let (mut base, mut low, slice_width) = (base, *low, high - low + 1);
            // Slices of slices add up.
            while let ExprKind::Slice { base: inner, low: more, .. } = &base.kind {
                low += more;
                base = inner;
            }
            let width = self.width(base);
            let Some(Place::Scalar(scalar)) = self.place(base) else {
                self.internal(target.location, "slice of a value that is not a scalar");
                return;
            };
            if width > 128 {
                self.store_wide_slice(&scalar, low, slice_width, value, target.location);
                return;
            }
            let hole =
                ((BigInt::one() << width) - 1) - (((BigInt::one() << slice_width) - 1) << low);
            let hole = if planted(Mutation::SliceClears) { BigInt::zero() } else { hole };
            let kept = format!("{} & {}", scalar.c, literal(&hole, width));
            let wide = match width {
                0..=32 => "__u32".to_string(),
                33..=64 => c_type(width),
                // (x << 127 | x is a product to clang: stateplane_xdp.h.)
                _ => "sp_opaque128".to_string(),
            };
            let wide = if width > 64 { wide } else { format!("({wide})") };
            let filled =
                format!("({kept}) | {}", shift_left(&format!("{wide}({value})"), low, width));
            let text = format!("{} = {};", scalar.c, truncate(&filled, width));
            self.guarded(scalar.guard, |g| g.out.line(text));
            return;
        }
        match self.place(target) {
            Some(Place::Scalar(scalar) | Place::Varbit(scalar)) => {
                let text = format!("{} = {value};", scalar.c);
                self.guarded(scalar.guard, |g| g.out.line(text));
            }
            Some(_) => {
                self.internal(target.location, "a scalar l-value was expected");
            }
            None => {}
        }
    }

    /// Sets bits of a value that is kept as bytes, the highest first.
    fn store_wide_slice(
        &mut self,
        whole: &Scalar,
        low: u32,
        width: u32,
        value: &str,
        location: Location,
    ) {
        if width > 128 {
            self.error(
                location,
                "assignment to more than 128 bits of a wider value",
                Some("assign it in parts"),
            );
            return;
        }
        self.guarded(whole.guard.clone(), |g| {
            g.open("");
            let value = g.temporary(&c_type(width), value);
            let bytes = whole.width.div_ceil(8);
            for at in low / 8..=(low + width - 1) / 8 {
                let (from, to) = (low.max(at * 8), (low + width).min(at * 8 + 8));
                let mask = ((1u32 << (to - from)) - 1) << (from - at * 8);
                let part = match (at * 8).checked_sub(low) {
                    Some(right) => shift_right(&value, right, width),
                    None => format!("((__u32){value} << {})", low - at * 8),
                };
                let byte = format!("{}.byte[{}]", whole.c, bytes - 1 - at);
                g.out.line(format!("{byte} = ({byte} & {}) | ({part} & {mask});", 0xff & !mask));
            }
            g.out.line("}");
        });
    }

    fn assign(&mut self, target: &Expr, value: &Expr, location: Location) {
        self.check_intrinsic(target, Some(value));
        if scalar_width(&target.ty).is_some() {
            if scalar_width(&target.ty).is_some_and(|width| width > 128)
                && matches!(value.kind, ExprKind::Ternary(..))
            {
                self.error(location, "a choice between values wider than 128 bits; use if", None);
                return;
            }
            let computed = matches!(value.kind, ExprKind::Binary(..));
            let mut value = self.expr(value);
            // What a parser's loop counts has other bounds in each round and on each way through
            // it: one state for each, to the verifier.
            let width = self.width(target);
            if computed
                && width <= 16
                && self.section == Section::Parser
                && !self.facts.loop_heads.is_empty()
            {
                let zero = self.hidden_zero();
                value = truncate(&format!("sp_forget({value}, {zero})"), width);
            }
            self.store(target, &value);
            return;
        }
        if let ExprKind::Ternary(condition, then, otherwise) = &value.kind {
            let condition = self.expr(condition);
            self.open(&format!("if ({condition})"));
            self.assign(target, then, location);
            self.out.line("} else {");
            self.assign(target, otherwise, location);
            self.out.line("}");
            return;
        }
        let Some(place) = self.place(target) else { return };
        self.assign_place(&place, value, location);
    }

    /// Copies a composite value.
    fn assign_place(&mut self, place: &Place, value: &Expr, location: Location) {
        match (place, &value.kind) {
            (Place::Header(header), ExprKind::InvalidHeader) => {
                self.guarded(header.guard.clone(), |g| g.set_valid(header, false));
            }
            (Place::Union(members), ExprKind::InvalidHeader) => {
                for member in members {
                    if let Place::Header(header) = member {
                        self.set_valid(header, false);
                    }
                }
            }
            (Place::Header(header), ExprKind::Lookahead) => self.lookahead_header(header, location),
            (Place::Header(header), ExprKind::HeaderValue(fields)) => {
                // All values first: they may read the header that is assigned.
                let places: Vec<Option<Place>> = (0..fields.len())
                    .map(|index| self.header_field(header, index as u32))
                    .collect();
                self.assign_fields(Some(header), &places, fields, location);
            }
            (Place::Struct(_, places), ExprKind::StructValue(fields)) => {
                let places: Vec<Option<Place>> = places.iter().cloned().map(Some).collect();
                self.assign_fields(None, &places, fields, location);
            }
            (Place::Struct(id, places), ExprKind::Lookahead) => {
                let id = *id;
                self.lookahead_struct(id, places, location);
            }
            _ => {
                if let Some(source) = self.place(value) {
                    self.copy(place, &source, location);
                }
            }
        }
    }

    /// Values for the fields of a header, or of a struct. All are computed, which may end the
    /// parser, also where the header is an element beyond its stack.
    fn assign_fields(
        &mut self,
        header: Option<&HeaderPlace>,
        places: &[Option<Place>],
        values: &[Expr],
        location: Location,
    ) {
        let mut stores = Vec::new();
        for (place, value) in places.iter().zip(values) {
            match place {
                Some(Place::Scalar(scalar)) => {
                    let c = self.expr(value);
                    let text = if matches!(value.kind, ExprKind::Const(_)) {
                        c
                    } else {
                        self.temporary(&c_type(scalar.width), &c)
                    };
                    stores.push((scalar.clone(), text));
                }
                Some(other) => {
                    let other = other.clone();
                    self.assign_place(&other, value, location);
                }
                None => {}
            }
        }
        self.guarded(header.and_then(|header| header.guard.clone()), |g| {
            for (scalar, text) in stores {
                g.out.line(format!("{} = {text};", scalar.c));
            }
            if let Some(header) = header {
                g.set_valid(header, true);
            }
        });
    }

    fn copy(&mut self, to: &Place, from: &Place, location: Location) {
        match (to, from) {
            (Place::Scalar(a), Place::Scalar(b)) => {
                let text = format!("{} = {};", a.c, b.read());
                self.guarded(a.guard.clone(), |g| g.out.line(text));
            }
            (Place::Varbit(a), Place::Varbit(b)) => {
                let text = format!("{} = {};", a.c, b.read_varbit());
                self.guarded(a.guard.clone(), |g| g.out.line(text));
            }
            (Place::Header(a), Place::Header(b)) => self.copy_header(a, b),
            (Place::Struct(_, a), Place::Struct(_, b)) | (Place::Union(a), Place::Union(b)) => {
                for (a, b) in a.iter().zip(b) {
                    self.copy(a, b, location);
                }
            }
            (Place::Stack(a), Place::Stack(b)) => {
                for index in 0..a.size {
                    let at = index.to_string();
                    self.copy_header(&a.element(&at, None), &b.element(&at, None));
                }
                self.out.line(format!("{} = {};", a.next, b.next));
            }
            _ => {
                self.internal(location, "assignment between different kinds of storage");
            }
        }
    }

    fn copy_header(&mut self, to: &HeaderPlace, from: &HeaderPlace) {
        let (a, b) = (to.clone(), from.clone());
        self.guarded(to.guard.clone(), |g| {
            let rivals = a.rivals.clone();
            if let Some(guard) = &b.guard {
                g.open(&format!("if ({guard})"));
                g.out.line(format!("{} = {};", a.c, b.c));
                g.out.line("} else {");
                g.out.line(format!("{}.sp_valid = 0;", a.c));
                g.out.line("}");
            } else {
                g.out.line(format!("{} = {};", a.c, b.c));
            }
            for rival in rivals {
                // A copied union copies each member; only a valid one ousts the others.
                g.out.line(format!("if ({}.sp_valid) {rival}.sp_valid = 0;", a.c));
            }
        });
    }

    /// What setValid does to a header that is not valid (bmv2's add_header): all fields become 0.
    fn clear_if_invalid(&mut self, header: &HeaderPlace) {
        self.open(&format!("if (!{}.sp_valid)", header.c));
        self.out.line(format!("__builtin_memset(&{0}, 0, sizeof({0}));", header.c));
        if !header.offset.is_empty() {
            // Its bytes in the packet are not its fields any more.
            self.out.line(format!("{} = SP_NO_OFFSET;", header.offset));
        }
        self.out.line("}");
    }

    /// setValid or setInvalid; in a union only one member is valid.
    pub(crate) fn set_valid(&mut self, header: &HeaderPlace, valid: bool) {
        self.out.line(format!("{}.sp_valid = {};", header.c, u8::from(valid)));
        if valid && !planted(Mutation::UnionMembersKept) {
            for rival in &header.rivals {
                self.out.line(format!("{rival}.sp_valid = 0;"));
            }
        }
    }

    fn push_pop(&mut self, stack: &Expr, count: u32, push: bool) {
        let Some(Place::Stack(stack)) = self.place(stack) else {
            self.internal(stack.location, "push_front or pop_front of a value that is not a stack");
            return;
        };
        let size = stack.size;
        let count = count.min(size);
        let order: Vec<(u32, Option<u32>)> = if push {
            (0..size).rev().map(|to| (to, to.checked_sub(count))).collect()
        } else {
            (0..size).map(|to| (to, Some(to + count).filter(|from| *from < size))).collect()
        };
        for (to, from) in order {
            match from {
                Some(from) => self.out.line(format!("{}[{to}] = {}[{from}];", stack.c, stack.c)),
                None => self.out.line(format!("{}[{to}].sp_valid = 0;", stack.c)),
            }
            if !planted(Mutation::ElementPlacesKept) {
                let place =
                    from.map_or("SP_NO_OFFSET".into(), |from| format!("{}[{from}]", stack.offsets));
                self.out.line(format!("{}[{to}] = {place};", stack.offsets));
            }
            if self.forgets {
                self.read_anew();
            }
        }
        // Only parsers can see it.
        if self.section != Section::Parser || planted(Mutation::NextIndexKept) {
            return;
        }
        let next = &stack.next;
        let text = if push {
            format!("{next} = {next} + {count} < {size} ? {next} + {count} : {size};")
        } else {
            format!("{next} = {next} > {count} ? {next} - {count} : 0;")
        };
        self.out.line(text);
    }

    /// Writes to intrinsic metadata that this target does not act on are errors, not silence.
    /// `value`: None if it is not known here. Copies of standard_metadata count too: they come back
    /// into it as a whole.
    pub(crate) fn check_intrinsic(&mut self, target: &Expr, value: Option<&Expr>) {
        let standard = &self.program.variables[self.program.standard_metadata.index()].ty;
        if let (true, Some(ExprKind::StructValue(fields))) =
            (target.ty == *standard, value.map(|value| &value.kind))
        {
            let index = self.multicast_field();
            if let Some(field) = index.and_then(|index| fields.get(index)) {
                self.check_multicast(field.location, Some(field));
            }
            return;
        }
        let target = crate::walk::unsliced(target);
        if let ExprKind::Field(base, index) = &target.kind
            && base.ty == *standard
            && self.multicast_field() == Some(*index as usize)
        {
            self.check_multicast(target.location, value);
        }
    }

    fn multicast_field(&self) -> Option<usize> {
        let Type::Struct(id) = self.program.variables[self.program.standard_metadata.index()].ty
        else {
            return None;
        };
        self.program.struct_types[id.index()]
            .fields
            .iter()
            .position(|field| field.name == "mcast_grp")
    }

    fn check_multicast(&mut self, location: Location, value: Option<&Expr>) {
        let zero = matches!(value.map(|value| &value.kind), Some(ExprKind::Const(number)) if number.is_zero());
        if !zero && self.section != Section::Egress {
            self.error(
                location,
                "multicast (standard_metadata.mcast_grp) is not supported by the XDP target yet",
                Some("send to one port with standard_metadata.egress_spec"),
            );
        }
    }

    /// A new C variable with this value.
    pub(crate) fn temporary(&mut self, ty: &str, value: &str) -> String {
        self.temporaries += 1;
        let name = format!("sp_t{}", self.temporaries);
        self.out.line(format!("{ty} {name} = {value};"));
        name
    }

    /// Stores a C integer of any size in an l-value, cut to its width.
    pub fn store_truncated(&mut self, target: &Expr, value: &str) {
        let width = self.width(target);
        let text = truncate(value, width);
        self.store(target, &text);
    }
}

//! Statements: one on a line, so that a failing program is made shorter by leaving out lines.

use super::control::{Instance, Parameter};
use super::standard::Written;
use super::types::{HeaderType, Named, Record, Ty, literal, record_leaves, record_paths, scalar};
use rand::Rng;
use rand::rngs::StdRng;

/// So many bits of data a hash takes.
pub(super) const MAX_LISTED: u32 = 1024;

/// A function that can be called.
#[derive(Clone)]
pub(super) struct Function {
    pub name: String,
    pub result: Ty,
    /// (`in`, `inout` or `out`, type)
    pub parameters: Vec<(&'static str, Ty)>,
}

/// An action that can be called.
#[derive(Clone)]
pub(super) struct Action {
    pub name: String,
    /// Types of the parameters, without direction.
    pub parameters: Vec<Ty>,
}

/// A table that is not applied yet.
#[derive(Clone)]
pub(super) struct Table {
    pub name: String,
    pub actions: Vec<String>,
}

/// A register or counter array.
#[derive(Clone)]
pub(super) struct Array {
    pub name: String,
    /// None: a counter.
    pub ty: Option<Ty>,
    pub size: u32,
}

/// A body under construction, and what it can see.
pub(super) struct Body<'a> {
    pub random: &'a mut StdRng,
    pub header_types: &'a [HeaderType],
    pub record_types: &'a [Record],
    pub readable: Vec<Named>,
    pub writable: Vec<Named>,
    /// (path, index of the type); without varbit fields.
    pub headers: Vec<(String, usize)>,
    /// Those with a varbit field, all of one type: (path, index of the type)
    pub varbits: Vec<(String, usize)>,
    pub stacks: Vec<(String, usize)>,
    /// (path, index of the type)
    pub records: Vec<(String, usize)>,
    /// Values wider than what the target computes with: (path, bits)
    pub wides: Vec<(String, u32)>,
    pub functions: Vec<Function>,
    pub actions: Vec<Action>,
    pub tables: Vec<Table>,
    pub arrays: Vec<Array>,
    /// Controls that can be applied.
    pub instances: Vec<Instance>,
    /// May it look at standard_metadata.parser_error?
    pub in_control: bool,
    /// The fields of standard_metadata that it may write.
    pub standard: Vec<Written>,
    /// The packet's headers are only read, but for their fields.
    pub keeps_layout: bool,
    /// May it end the control?
    pub may_exit: bool,
    pub lines: Vec<String>,
    pub indent: usize,
    /// For names of locals.
    pub locals: usize,
}

impl Body<'_> {
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.lines.push(format!("{}{}", "    ".repeat(self.indent), text.as_ref()));
    }

    fn open(&mut self, text: impl AsRef<str>) {
        self.line(text);
        self.indent += 1;
    }

    fn close(&mut self, text: &str) {
        self.indent -= 1;
        self.line(text);
    }

    /// So many statements, nested so deep.
    pub fn statements(&mut self, count: usize, depth: u32) {
        // What is declared in a block is gone behind it.
        let (readable, writable, records) =
            (self.readable.len(), self.writable.len(), self.records.len());
        let varbits = self.varbits.len();
        for _ in 0..count {
            self.statement(depth);
        }
        self.readable.truncate(readable);
        self.writable.truncate(writable);
        self.records.truncate(records);
        self.varbits.truncate(varbits);
    }

    /// Headers that it can read and write, and their fields.
    pub fn see_headers(&mut self, headers: Vec<(String, usize)>) {
        for (path, kind) in &headers {
            let header = &self.header_types[*kind];
            let fields = header
                .fields
                .iter()
                .map(|(name, ty)| Named { path: format!("{path}.{name}"), ty: *ty });
            self.readable.extend(fields.clone());
            self.writable.extend(fields);
            self.wides.extend(header.wide.map(|width| (format!("{path}.w"), width)));
        }
        self.headers.extend(headers);
    }

    fn level(&mut self) -> u32 {
        self.random.random_range(1..4)
    }

    fn statement(&mut self, depth: u32) {
        match self.random.random_range(0..50) {
            0..12 => self.assignment(),
            12..15 => self.slice_assignment(),
            15..20 if depth > 0 => self.if_statement(depth),
            20 | 21 if depth > 0 => self.switch(depth),
            22 | 23 => self.validity(),
            24 | 25 => self.header_assignment(),
            26 | 27 => self.call(),
            28 => self.action_call(),
            29..32 => self.array(),
            32 => self.hash(),
            33 | 39 => self.stack_operation(),
            34 if self.may_exit && self.random.random_bool(0.2) => {
                let word = if self.random.random() { "exit;" } else { "return;" };
                let condition = self.expression(Ty::Bool, 2);
                self.open(format!("if ({condition}) {{"));
                self.line(word);
                self.close("}");
            }
            35..38 if !self.tables.is_empty() => self.apply(depth),
            38 => self.local(),
            40 | 41 => self.record(),
            42 => self.wide(),
            43..46 if !self.instances.is_empty() => self.apply_control(),
            46 | 47 => self.variable_length(),
            48 | 49 => self.standard_metadata(false),
            _ => self.assignment(),
        }
    }

    fn target(&mut self) -> Option<Named> {
        if self.writable.is_empty() {
            return None;
        }
        Some(self.writable[self.random.random_range(0..self.writable.len())].clone())
    }

    pub fn assignment(&mut self) {
        if self.random.random_bool(0.08)
            && let Some((stack, header)) = self.stacks.first().cloned()
            && let Some(index) = self.index()
        {
            let fields = &self.header_types[header].fields;
            let (name, ty) = fields[self.random.random_range(0..fields.len())].clone();
            let value = self.expression(ty, 2);
            return self.line(format!("{stack}[{index}].{name} = {value};"));
        }
        let Some(target) = self.target() else { return };
        let level = self.level();
        let value = self.expression(target.ty, level);
        self.line(format!("{} = {value};", target.path));
    }

    fn slice_assignment(&mut self) {
        let Some(target) = self.target() else { return };
        let Ty::Bits { width, .. } = target.ty else { return self.assignment() };
        let low = self.random.random_range(0..width);
        let high = self.random.random_range(low..width);
        let value = self.expression(Ty::bits(high - low + 1), 2);
        self.line(format!("{}[{high}:{low}] = {value};", target.path));
    }

    fn if_statement(&mut self, depth: u32) {
        let level = self.level();
        let condition = self.expression(Ty::Bool, level);
        self.open(format!("if ({condition}) {{"));
        let count = self.random.random_range(1..4);
        self.statements(count, depth - 1);
        if self.random.random_bool(0.4) {
            self.close("} else {");
            self.indent += 1;
            let count = self.random.random_range(1..3);
            self.statements(count, depth - 1);
        }
        self.close("}");
    }

    fn switch(&mut self, depth: u32) {
        let width = self.random.random_range(1..5);
        let on = self.expression(Ty::bits(width), 2);
        self.open(format!("switch ({on}) {{"));
        let mut left: Vec<u32> = (0..1 << width).collect();
        for _ in 0..self.random.random_range(1..4) {
            if left.is_empty() {
                break;
            }
            let value = left.swap_remove(self.random.random_range(0..left.len()));
            // A label without a block falls through to the next one's.
            if !left.is_empty() && self.random.random_bool(0.2) {
                let also = left.swap_remove(self.random.random_range(0..left.len()));
                self.line(format!("{width}w{also}:"));
            }
            self.open(format!("{width}w{value}: {{"));
            let count = self.random.random_range(1..3);
            self.statements(count, depth - 1);
            self.close("}");
        }
        if self.random.random_bool(0.6) {
            self.open("default: {");
            self.statements(1, depth - 1);
            self.close("}");
        }
        self.close("}");
    }

    fn validity(&mut self) {
        if self.headers.is_empty() || self.keeps_layout {
            return self.assignment();
        }
        let (header, kind) = self.headers[self.random.random_range(0..self.headers.len())].clone();
        if self.random.random_bool(0.4) {
            return self.line(format!("{header}.setInvalid();"));
        }
        self.line(format!("{header}.setValid();"));
        for (field, ty) in self.header_types[kind].fields.clone() {
            if self.random.random_bool(0.5) {
                let value = self.expression(ty, 1);
                self.line(format!("{header}.{field} = {value};"));
            }
        }
    }

    fn header_assignment(&mut self) {
        if self.headers.is_empty() || self.keeps_layout {
            return self.assignment();
        }
        let (header, kind) = self.headers[self.random.random_range(0..self.headers.len())].clone();
        let same: Vec<String> = self
            .headers
            .iter()
            .filter(|other| other.1 == kind && other.0 != header)
            .map(|other| other.0.clone())
            .collect();
        match self.random.random_range(0..4) {
            0 if self.random.random_bool(0.3) => self.line(format!("{header} = {{#}};")),
            0 | 1 => {
                let fields = self.header_types[kind].fields.clone();
                let mut values: Vec<String> =
                    fields.iter().map(|(_, ty)| self.expression(*ty, 1)).collect();
                values.extend(self.header_types[kind].wide.map(|width| self.wide_value(width)));
                self.line(format!("{header} = {{ {} }};", values.join(", ")));
            }
            _ if !same.is_empty() => {
                let other = same[self.random.random_range(0..same.len())].clone();
                self.line(format!("{header} = {other};"));
            }
            _ => self.assignment(),
        }
    }

    fn call(&mut self) {
        if self.functions.is_empty() {
            return self.assignment();
        }
        let function = self.functions[self.random.random_range(0..self.functions.len())].clone();
        let mut arguments = Vec::new();
        for (direction, ty) in &function.parameters {
            if *direction == "in" {
                arguments.push(self.expression(*ty, 2));
                continue;
            }
            let fitting: Vec<String> = self
                .writable
                .iter()
                .filter(|named| named.ty == *ty)
                .map(|named| named.path.clone())
                .collect();
            match fitting.is_empty() {
                false => {
                    arguments.push(fitting[self.random.random_range(0..fitting.len())].clone())
                }
                true => {
                    let name = self.declare(*ty);
                    arguments.push(name);
                }
            }
        }
        let call = format!("{}({})", function.name, arguments.join(", "));
        let Some(target) = self.target() else { return self.line(format!("{call};")) };
        let value = super::types::convert(&call, function.result, target.ty);
        if self.random.random_bool(0.3) {
            // Its order among other operands shows.
            let Ty::Bits { .. } = target.ty else {
                return self.line(format!("{} = {value};", target.path));
            };
            let other = self.expression(target.ty, 1);
            return self.line(format!("{} = ({other} ^ {value});", target.path));
        }
        self.line(format!("{} = {value};", target.path));
    }

    fn action_call(&mut self) {
        if self.actions.is_empty() {
            return self.assignment();
        }
        let action = self.actions[self.random.random_range(0..self.actions.len())].clone();
        let arguments: Vec<String> =
            action.parameters.iter().map(|ty| self.expression(*ty, 2)).collect();
        self.line(format!("{}({});", action.name, arguments.join(", ")));
    }

    fn array(&mut self) {
        if self.arrays.is_empty() {
            return self.assignment();
        }
        let array = self.arrays[self.random.random_range(0..self.arrays.len())].clone();
        let index = if self.random.random_bool(0.8) {
            format!("32w{}", self.random.random_range(0..array.size))
        } else {
            // Out of range now and then.
            let bits = self.random.random_range(1..5);
            format!("((bit<32>){})", self.expression(Ty::bits(bits), 2))
        };
        let Some(ty) = array.ty else {
            return self.line(format!("{}.count({index});", array.name));
        };
        if self.random.random() {
            let value = self.expression(ty, 2);
            return self.line(format!("{}.write({index}, {value});", array.name));
        }
        let name = self.declare(ty);
        self.line(format!("{}.read({name}, {index});", array.name));
    }

    fn hash(&mut self) {
        let algorithms = ["crc32", "crc16", "csum16", "xor16", "identity"];
        let algorithm = algorithms[self.random.random_range(0..algorithms.len())];
        let mut data = Vec::new();
        let mut bits = 0;
        for _ in 0..self.random.random_range(1..4) {
            let width = self.random.random_range(1..=40);
            bits += width;
            data.push(self.expression(Ty::bits(width), 1));
        }
        // Whole 16-bit words: how less is filled up is every target's own.
        let rest = (16 - bits % 16) % 16;
        if rest > 0 {
            data.push(self.expression(Ty::bits(rest), 1));
        }
        if self.random.random_bool(0.4)
            && let Some(header) = self.listed_header(MAX_LISTED - bits - rest)
        {
            data.insert(self.random.random_range(0..=data.len()), header);
        }
        let width = self.random.random_range(8..=32);
        let name = self.declare(Ty::bits(width));
        let max = self.random.random_range(1..1u32 << width.min(31));
        let list = format!("{{ {} }}", data.join(", "));
        self.line(format!(
            "hash({name}, HashAlgorithm.{algorithm}, {width}w{}, {list}, {width}w{max});",
            max / 3
        ));
    }

    fn stack_operation(&mut self) {
        if self.keeps_layout {
            return self.assignment();
        }
        let Some((stack, kind)) = self.stacks.first().cloned() else { return self.assignment() };
        let operation = if self.random.random_bool(0.6) { "push_front" } else { "pop_front" };
        // Mostly so few that something is left.
        let count = if self.random.random_bool(0.6) { 1 } else { self.random.random_range(1..4) };
        self.line(format!("{stack}.{operation}({count});"));
        if self.random.random() {
            self.refill(&stack, kind, count, operation == "push_front");
        }
    }

    /// Makes the elements valid that a push or a pop vacated. A full stack has then as many bytes
    /// as before, and each element stands where another stood in the packet.
    fn refill(&mut self, stack: &str, kind: usize, count: usize, front: bool) {
        let element = |(path, _): &&(String, usize)| {
            path.strip_prefix(stack).is_some_and(|rest| rest.starts_with('['))
        };
        let elements: Vec<String> =
            self.headers.iter().filter(element).map(|(path, _)| path.clone()).collect();
        let vacated = if front {
            0..count.min(elements.len())
        } else {
            elements.len().saturating_sub(count)..elements.len()
        };
        for path in &elements[vacated] {
            self.line(format!("{path}.setValid();"));
            let fields = self.header_types[kind].fields.clone();
            if self.random.random() {
                let (field, ty) = fields[self.random.random_range(0..fields.len())].clone();
                let value = self.expression(ty, 1);
                self.line(format!("{path}.{field} = {value};"));
            }
        }
    }

    fn apply(&mut self, depth: u32) {
        let table = self.tables.swap_remove(self.random.random_range(0..self.tables.len()));
        match self.random.random_range(0..4) {
            0 if depth > 0 => {
                let part = if self.random.random() { "hit" } else { "miss" };
                self.open(format!("if ({}.apply().{part}) {{", table.name));
                self.statements(1, depth - 1);
                self.close("} else {");
                self.indent += 1;
                self.statements(1, depth - 1);
                self.close("}");
            }
            1 if depth > 0 => {
                self.open(format!("switch ({}.apply().action_run) {{", table.name));
                for action in &table.actions {
                    if self.random.random_bool(0.6) {
                        self.open(format!("{action}: {{"));
                        self.statements(1, depth - 1);
                        self.close("}");
                    }
                }
                self.open("default: {");
                self.statements(1, depth - 1);
                self.close("}");
                self.close("}");
            }
            _ => self.line(format!("{}.apply();", table.name)),
        }
    }

    /// A new local with a value; its name.
    pub fn declare(&mut self, ty: Ty) -> String {
        let value = literal(ty, self.random);
        self.declare_with(ty, &value)
    }

    fn declare_with(&mut self, ty: Ty, value: &str) -> String {
        self.locals += 1;
        let name = format!("v{}", self.locals);
        self.line(format!("{} {name} = {value};", ty.name()));
        let named = Named { path: name.clone(), ty };
        self.readable.push(named.clone());
        self.writable.push(named);
        name
    }

    fn local(&mut self) {
        let ty = scalar(self.random);
        let value = self.expression(ty, 2);
        self.declare_with(ty, &value);
    }

    pub fn pick_record(&mut self) -> Option<(String, usize)> {
        let at = self.random.random_range(0..self.records.len().max(1));
        self.records.get(at).cloned()
    }

    /// A struct as a whole: copied, made of a list, or a new local.
    fn record(&mut self) {
        let Some((target, kind)) = self.pick_record() else { return self.assignment() };
        let same: Vec<String> = self
            .records
            .iter()
            .filter(|other| other.1 == kind)
            .map(|other| other.0.clone())
            .collect();
        let value = if self.random.random_bool(0.6) {
            same[self.random.random_range(0..same.len())].clone()
        } else {
            self.record_value(kind)
        };
        if self.random.random_bool(0.7) {
            return self.line(format!("{target} = {value};"));
        }
        self.locals += 1;
        let name = format!("v{}", self.locals);
        self.line(format!("{} {name} = {value};", self.record_types[kind].name));
        let leaves = record_leaves(self.record_types, &name, kind);
        self.readable.extend(leaves.clone());
        self.writable.extend(leaves);
        self.records.extend(record_paths(self.record_types, &name, kind));
    }

    fn record_value(&mut self, kind: usize) -> String {
        let record = self.record_types[kind].clone();
        let mut values: Vec<String> =
            record.fields.iter().map(|(_, ty)| self.expression(*ty, 1)).collect();
        values.extend(record.inner.iter().map(|(_, inner)| self.record_value(*inner)));
        format!("{{ {} }}", values.join(", "))
    }

    /// A value of more bits than the target computes with: another one, or a constant.
    fn wide_value(&mut self, width: u32) -> String {
        let same: Vec<String> = self
            .wides
            .iter()
            .filter(|other| other.1 == width)
            .map(|other| other.0.clone())
            .collect();
        if same.is_empty() || self.random.random_bool(0.2) {
            return format!("{width}w{}", super::types::number(128, self.random));
        }
        same[self.random.random_range(0..same.len())].clone()
    }

    fn wide(&mut self) {
        if self.wides.is_empty() {
            return self.assignment();
        }
        let (target, width) = self.wides[self.random.random_range(0..self.wides.len())].clone();
        if self.random.random() {
            let value = self.wide_value(width);
            return self.line(format!("{target} = {value};"));
        }
        let bits = self.random.random_range(1..=128);
        let low = self.random.random_range(0..=width - bits);
        let value = self.expression(Ty::bits(bits), 2);
        self.line(format!("{target}[{}:{low}] = {value};", low + bits - 1));
    }

    fn apply_control(&mut self) {
        let at = self.random.random_range(0..self.instances.len());
        // Now and then more than once: its registers and tables are the same then.
        let again = self.random.random_bool(0.2);
        let instance =
            if again { self.instances[at].clone() } else { self.instances.swap_remove(at) };
        let mut arguments = Vec::new();
        for parameter in &instance.parameters {
            arguments.push(match parameter {
                Parameter::Whole => "hdr, meta, sm".to_owned(),
                Parameter::Scalar("in", ty) => self.expression(*ty, 2),
                Parameter::Scalar(_, ty) => {
                    let fitting: Vec<String> = self
                        .writable
                        .iter()
                        .filter(|named| named.ty == *ty)
                        .map(|named| named.path.clone())
                        .collect();
                    if fitting.is_empty() {
                        self.declare(*ty)
                    } else {
                        fitting[self.random.random_range(0..fitting.len())].clone()
                    }
                }
                Parameter::Header(kind) | Parameter::Record(kind) => {
                    let all = if matches!(parameter, Parameter::Header(..)) {
                        &self.headers
                    } else {
                        &self.records
                    };
                    let fitting: Vec<&String> =
                        all.iter().filter(|other| other.1 == *kind).map(|other| &other.0).collect();
                    // Nothing to give it: it is not applied here.
                    if fitting.is_empty() {
                        return self.assignment();
                    }
                    fitting[self.random.random_range(0..fitting.len())].clone()
                }
            });
        }
        self.line(format!("{}.apply({});", instance.name, arguments.join(", ")));
    }
}

//! Registers: arrays that all CPUs share.
//!
//! A plain update (updates.rs) is one atomic instruction on the element's word. It reckons modulo
//! 2^32 or 2^64, so in a narrower element the bits above the width mean nothing, and every read
//! masks them. Elements wider than a word are kept whole by a lock.

use crate::expr::truncate;
use crate::externs::operand;
use crate::generator::Generator;
use crate::layout::{c_type, scalar_width};
use crate::mutations::{Mutation, planted};
use crate::updates::Update;
use manifest::scalar_bytes;
use p4_ir::{Argument, BinaryOp, Expr, ExternId, ExternInstance, Location, Type};

/// How an element lies in its map.
struct Element {
    /// The register's.
    width: u32,
    /// The scalar's in the map; above 64 it is two words.
    stored: u32,
    /// Which element of `sp_locks` guards the register.
    lock: Option<u32>,
}

impl Element {
    fn is_wide(&self) -> bool {
        self.stored > 64
    }

    fn c_type(&self) -> String {
        if self.is_wide() { "struct sp_register128".into() } else { c_type(self.stored) }
    }

    /// C of its value.
    fn read(&self) -> String {
        match self.stored {
            65.. => "SP_U128(element->word[1], element->word[0])".into(),
            stored if stored == self.width || planted(Mutation::WideElements) => "*element".into(),
            _ => truncate("*element", self.width),
        }
    }

    /// C that makes it a value that is named, not computed.
    fn write(&self, value: &str) -> String {
        if self.is_wide() {
            format!("element->word[0] = (__u64){value}; element->word[1] = sp_high64({value});")
        } else {
            format!("*element = {value};")
        }
    }
}

impl Generator<'_> {
    fn element(&self, id: ExternId) -> Option<Element> {
        let ty = self.program.externs[id.index()].type_arguments.first();
        let width = ty.and_then(scalar_width).filter(|width| *width <= 128)?;
        // There are atomic instructions for 32 and 64 bits.
        let least = if self.updates.has(id) { 32 } else { 8 };
        let stored = scalar_bytes(width) * 8;
        Some(Element { width, stored: stored.max(least), lock: self.locks.of(id) })
    }

    pub(crate) fn declare_locks(&mut self) {
        let locks = self.locks.count;
        if locks > 0 {
            self.types.line("struct sp_lock {");
            self.types.line("struct bpf_spin_lock lock;");
            self.types.line("};");
            self.declare_map(
                "sp_locks",
                "BPF_MAP_TYPE_ARRAY",
                "__u32",
                "struct sp_lock",
                &locks.to_string(),
                "",
            );
        }
    }

    pub(crate) fn declare_register(&mut self, id: ExternId, instance: &ExternInstance, size: u32) {
        let Some(element) = self.element(id) else {
            self.error(
                instance.location,
                &format!(
                    "register {}: elements must be scalars of at most 128 bits",
                    instance.name
                ),
                Some("use one register for each field"),
            );
            return;
        };
        let map = instance.c_name.clone();
        self.declare_map(
            &map,
            "BPF_MAP_TYPE_ARRAY",
            "__u32",
            &element.c_type(),
            &size.to_string(),
            // Controllers read whole registers as memory. An array's elements lie at multiples of
            // eight bytes in any case, so it costs nothing.
            "__uint(map_flags, BPF_F_MMAPABLE);",
        );
        let [enumeration, index] = [0, 1].map(|at| {
            let ty = instance.type_arguments.get(at)?;
            let declared = instance.type_enumerations.get(at).copied().flatten();
            crate::wire::manifest_enumeration(self.program, ty, declared)
        });
        self.manifest.registers.push(manifest::Register {
            name: instance.name.clone(),
            map,
            size,
            width: element.width,
            signed: matches!(
                instance.type_arguments.first(),
                Some(Type::Bits { signed: true, .. })
            ),
            value_bytes: scalar_bytes(element.stored),
            enumeration,
            index,
        });
    }

    pub(crate) fn register_read(
        &mut self,
        id: ExternId,
        arguments: &[Argument],
        location: Location,
    ) {
        let (Some(Argument::Out(target)), Some(index)) = (arguments.first(), operand(arguments, 1))
        else {
            if matches!(arguments.first(), Some(Argument::DontCare)) {
                return;
            }
            self.internal(location, "register.read without arguments");
            return;
        };
        self.access(id, index, Some(target), |_, element| {
            vec![format!("value = {};", element.read())]
        });
    }

    pub(crate) fn register_write(
        &mut self,
        id: ExternId,
        arguments: &[Argument],
        location: Location,
    ) {
        let (Some(index), Some(value)) = (operand(arguments, 0), operand(arguments, 1)) else {
            self.internal(location, "register.write without arguments");
            return;
        };
        self.access(id, index, None, |g, element| {
            let ty = c_type(element.width);
            let value = g.expr(value);
            let value = g.temporary(&ty, &value);
            vec![element.write(&value)]
        });
    }

    /// Reads, and writes what becomes of it, in one step.
    pub(crate) fn register_update(
        &mut self,
        id: ExternId,
        arguments: &[Argument],
        update: &Update,
        location: Location,
    ) {
        let (Some(target), Some(index)) = (operand(arguments, 0), operand(arguments, 1)) else {
            self.internal(location, "register.read without arguments");
            return;
        };
        self.check_intrinsic(target, None);
        self.access(id, index, Some(target), |g, element| {
            let by = g.expr(&update.operand);
            let by = g.temporary(&c_type(element.width), &by);
            if element.lock.is_none() {
                let name = match update.op {
                    BinaryOp::Sub => "sub",
                    BinaryOp::BitAnd => "and",
                    BinaryOp::BitOr => "or",
                    BinaryOp::BitXor => "xor",
                    _ => "add",
                };
                let old =
                    format!("__sync_fetch_and_{name}(element, ({}){by})", c_type(element.stored));
                let whole = element.width == element.stored || planted(Mutation::WideElements);
                let old = if whole { old } else { truncate(&old, element.width) };
                return vec![format!("value = {old};")];
            }
            let symbol = match update.op {
                BinaryOp::Sub => "-",
                BinaryOp::BitAnd => "&",
                BinaryOp::BitOr => "|",
                BinaryOp::BitXor => "^",
                _ => "+",
            };
            let by = if element.width > 64 { format!("sp_opaque128({by})") } else { by };
            let new = truncate(&format!("value {symbol} {by}"), element.width);
            vec![
                format!("value = {};", element.read()),
                format!("{} changed = {new};", c_type(element.width)),
                element.write("changed"),
            ]
        });
    }

    /// C of a pointer to an element; null if the index is out of range.
    pub(crate) fn look_up(&mut self, id: ExternId, index: &Expr) -> String {
        let Some(element) = self.element(id) else { return "0".into() };
        let index = self.map_index(index);
        let map = &self.program.externs[id.index()].c_name;
        let found = format!("bpf_map_lookup_elem(&{map}, &{index})");
        self.temporary(&format!("{} *", element.c_type()), &found)
    }

    /// Looks `element` up and runs the lines that `body` gives on it, under the register's lock if
    /// it has one. `target` gets `value`: 0 if the index is out of range, as in bmv2.
    fn access(
        &mut self,
        id: ExternId,
        index: &Expr,
        target: Option<&Expr>,
        body: impl FnOnce(&mut Self, &Element) -> Vec<String>,
    ) {
        // Its declaration has been reported.
        let Some(element) = self.element(id) else { return };
        let held = self.held.as_ref().and_then(|held| held.element(index)).cloned();
        let looked_up = match held {
            Some(element) => element,
            None => self.look_up(id, index),
        };
        self.open("");
        // All calls come before the lock: the verifier allows none under it.
        let lines = body(self, &element);
        self.out.line(format!("{} *element = {looked_up};", element.c_type()));
        if target.is_some() {
            self.out.line(format!("{} value = 0;", c_type(element.width)));
        }
        let lock = element.lock.filter(|_| self.held.is_none());
        if let Some(lock) = lock {
            self.out.line(format!("__u32 sp_lock_key = {lock};"));
            self.out.line("struct sp_lock *lock = bpf_map_lookup_elem(&sp_locks, &sp_lock_key);");
        }
        self.open(if lock.is_some() { "if (element && lock)" } else { "if (element)" });
        if lock.is_some() {
            self.out.line("bpf_spin_lock(&lock->lock);");
        }
        lines.iter().for_each(|line| self.out.line(line));
        if lock.is_some() {
            self.out.line("bpf_spin_unlock(&lock->lock);");
        }
        self.out.line("}");
        if let Some(target) = target {
            self.store(target, "value");
        }
        self.out.line("}");
    }
}

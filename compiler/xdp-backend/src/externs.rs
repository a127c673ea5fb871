//! Extern functions and objects (registers: registers.rs): counters, hashes, checksums, random
//! numbers, routes.

use crate::field_list::Odd;
use crate::generator::Generator;
use crate::system::ObjectCall;
use num_traits::{ToPrimitive, Zero};
use p4_ir::{Argument, ConstArgument, Expr, ExprKind, ExternId, ExternInstance, Location, Type};

/// The argument's expression: a value for `in`, an l-value for `out` and `inout`.
pub(crate) fn operand(arguments: &[Argument], index: usize) -> Option<&Expr> {
    match arguments.get(index)? {
        Argument::In(expr) | Argument::Out(expr) | Argument::InOut(expr) => Some(expr),
        Argument::DontCare => None,
    }
}

impl Generator<'_> {
    /// Declares an extern object's maps and its part of the manifest.
    pub(crate) fn declare_extern(&mut self, id: ExternId, instance: &ExternInstance) {
        match instance.extern_type.as_str() {
            "register" => {
                let size = self.size_of(instance);
                self.declare_register(id, instance, size);
            }
            "counter" => {
                let size = self.size_of(instance);
                let unit = match instance.arguments.get(1) {
                    Some(ConstArgument::Value(value, Type::Enum(id))) => {
                        let member = value.to_usize().unwrap_or(0);
                        self.program.enum_types[id.index()]
                            .members
                            .get(member)
                            .cloned()
                            .unwrap_or_default()
                    }
                    _ => "packets_and_bytes".into(),
                };
                let value = "struct sp_counter_value";
                let map = instance.c_name.clone();
                self.declare_map(
                    &map,
                    "BPF_MAP_TYPE_PERCPU_ARRAY",
                    "__u32",
                    value,
                    &size.to_string(),
                    "",
                );
                let index = instance.type_arguments.first().and_then(|ty| {
                    let declared = instance.type_enumerations.first().copied().flatten();
                    crate::wire::manifest_enumeration(self.program, ty, declared)
                });
                self.manifest.counters.push(manifest::Counter {
                    name: instance.name.clone(),
                    map,
                    size,
                    unit,
                    index,
                });
            }
            "direct_counter" => {}
            other => match self.registry.owner(other) {
                Some(owner) => {
                    // Far fewer fit: an object has 64 maps.
                    self.state_objects = self.state_objects.saturating_add(1);
                    let id = self.state_objects;
                    self.with_systems(|generator, systems| {
                        systems[owner].declare(generator, instance, id)
                    });
                }
                None => {
                    let message = format!("extern {other} is not supported by the XDP target yet");
                    self.error(instance.location, &message, None);
                }
            },
        }
    }

    /// The first argument of an object: how many elements it has, at least one.
    pub fn size_of(&mut self, instance: &ExternInstance) -> u32 {
        let size = match instance.arguments.first() {
            Some(ConstArgument::Value(value, _)) => value.to_u32().unwrap_or(0),
            _ => 0,
        };
        if size == 0 {
            let message = format!(
                "{} {} needs a size of 1 to 2^32-1 elements",
                instance.extern_type, instance.name
            );
            self.error(instance.location, &message, None);
        }
        size
    }

    /// A call of an extern function or method.
    pub(crate) fn extern_call(
        &mut self,
        instance: Option<ExternId>,
        name: &str,
        _type_arguments: &[Type],
        arguments: &[Argument],
        result: Option<&Expr>,
        location: Location,
    ) {
        let outputs = arguments.iter().filter_map(|argument| match argument {
            Argument::Out(target) | Argument::InOut(target) => Some(target),
            _ => None,
        });
        for target in outputs.chain(result) {
            self.check_intrinsic(target, None);
        }
        if let Some(id) = instance {
            let program = self.program;
            self.method_call(id, &program.externs[id.index()], name, arguments, result, location);
            return;
        }
        match name {
            "mark_to_drop" => {
                // The argument may be a copy of standard_metadata, which nobody looks at in the
                // end.
                let given = operand(arguments, 0).and_then(|argument| self.place(argument));
                for (field, value) in [("egress_spec", "SP_DROP_PORT"), ("mcast_grp", "0")] {
                    let scalar = match &given {
                        Some(copy) => self.standard_in(copy, field),
                        None => self.standard(field),
                    };
                    if let Some(scalar) = scalar {
                        self.out.line(format!("{} = {value};", scalar.c));
                    }
                }
            }
            // bmv2 without --enable-… ignores them too; log_msg has nowhere to go in XDP.
            "assert" | "assume" | "log_msg" => {}
            "random" => self.random(arguments, location),
            "hash" => self.hash(arguments, location),
            "verify_checksum" | "verify_checksum_with_payload" => {
                self.verify_checksum(arguments, name.ends_with("payload"), location);
            }
            "update_checksum" | "update_checksum_with_payload" => {
                self.update_checksum(arguments, name.ends_with("payload"), location);
            }
            "truncate" => {
                let Some(length) = operand(arguments, 0) else { return };
                let length = self.expr(length);
                let variable = self.truncate_variable();
                self.out.line(format!("{variable} = {length};"));
            }
            "to_host" => self.out.line("goto verdict_to_host;"),
            "wall_clock_ns" => {
                if let Some(target) = result {
                    self.store(target, "sp_wall_clock_ns()");
                }
            }
            "switch_id" => {
                // The number is a system's: a program without state has no use for one.
                let value =
                    self.systems.iter().find_map(|system| system.switch_id()).unwrap_or("0");
                if let Some(target) = result {
                    self.store(target, value);
                }
            }
            "fib_lookup_ipv4" | "fib_lookup_ipv6" => {
                self.fib_lookup(name, arguments, result, location)
            }
            _ if self.gateway_call(name, arguments, result, location) => {}
            other => {
                let message = format!("{other} is not supported by the XDP target yet");
                self.error(location, &message, None);
            }
        }
    }

    fn method_call(
        &mut self,
        id: ExternId,
        instance: &ExternInstance,
        name: &str,
        arguments: &[Argument],
        result: Option<&Expr>,
        location: Location,
    ) {
        match (instance.extern_type.as_str(), name) {
            ("register", "read") => self.register_read(id, arguments, location),
            ("register", "write") => self.register_write(id, arguments, location),
            ("counter", "count") => {
                let Some(index) = operand(arguments, 0) else { return };
                let index = self.map_index(index);
                self.open("");
                self.out.line(format!(
                    "struct sp_counter_value *counter = bpf_map_lookup_elem(&{}, &{index});",
                    instance.c_name
                ));
                self.open("if (counter)");
                self.out.line("counter->packets += 1;");
                self.out.line("counter->bytes += sp_bytes;");
                self.out.line("}");
                self.out.line("}");
            }
            ("direct_counter", "count") => {
                // Const entries and const defaults live in the code: they have no counter.
                if self.applied == Some(true) {
                    self.count_direct();
                } else if self.applied.is_none() {
                    self.error(
                        location,
                        "direct_counter.count() outside of an action of its table",
                        None,
                    );
                }
            }
            (other, method) => {
                // What no system has was reported at its declaration.
                let Some(owner) = self.registry.owner(other) else { return };
                let call = ObjectCall { instance, method, arguments, result, location };
                self.with_systems(|generator, systems| systems[owner].call(generator, &call));
            }
        }
    }

    /// A `__u32` variable with an array map's index; out of range for values that do not fit.
    pub fn map_index(&mut self, index: &Expr) -> String {
        let width = self.width(index);
        let value = self.expr(index);
        if width <= 32 {
            return self.temporary("__u32", &value);
        }
        self.temporary(
            "__u32",
            &format!("({value} > 0xffffffffU ? 0xffffffffU : (__u32)({value}))"),
        )
    }

    fn random(&mut self, arguments: &[Argument], location: Location) {
        let (Some(target), Some(low), Some(high)) =
            (operand(arguments, 0), operand(arguments, 1), operand(arguments, 2))
        else {
            return;
        };
        if self.width(target) > 64 {
            self.error(location, "random() makes at most 64 bits", None);
            return;
        }
        let (low, high) = (self.expr(low), self.expr(high));
        self.store_truncated(target, &format!("sp_random({low}, {high})"));
    }

    /// The member of HashAlgorithm that an argument names.
    fn algorithm(&mut self, expr: &Expr) -> String {
        if let (ExprKind::Const(value), Type::Enum(id)) = (&expr.kind, &expr.ty)
            && let Some(name) = self.program.enum_types[id.index()]
                .members
                .get(value.to_usize().unwrap_or(usize::MAX))
        {
            return name.clone();
        }
        self.error(expr.location, "the hash algorithm must be known at compile time", None);
        String::new()
    }

    fn hash(&mut self, arguments: &[Argument], location: Location) {
        let (Some(target), Some(algorithm), Some(base), Some(data), Some(max)) = (
            operand(arguments, 0),
            operand(arguments, 1),
            operand(arguments, 2),
            operand(arguments, 3),
            operand(arguments, 4),
        ) else {
            return;
        };
        let algorithm = self.algorithm(algorithm);
        self.open("");
        let (value, _) = self.hash_value(data, &algorithm, location);
        let base_text = self.expr(base);
        let text = match &max.kind {
            // v1model: max = 0 gives base.
            ExprKind::Const(max) if max.is_zero() => base_text,
            ExprKind::Const(max) => match max.to_u64() {
                Some(max) => format!("({base_text} + {value} % {max}ULL)"),
                // More than any hash's range.
                None => format!("({base_text} + {value})"),
            },
            _ => {
                let max = self.expr(max);
                let max = self.temporary("__u64", &format!("(__u64){max}"));
                format!("({base_text} + ({max} ? {value} % {max} : 0))")
            }
        };
        self.store_truncated(target, &text);
        self.out.line("}");
    }

    /// The sum that a checksum call is about.
    fn checksum(
        &mut self,
        arguments: &[Argument],
        payload: bool,
        location: Location,
    ) -> Option<String> {
        let (data, algorithm) = (operand(arguments, 1)?, operand(arguments, 3)?);
        let algorithm = self.algorithm(algorithm);
        if algorithm != "csum16" {
            if payload {
                self.error(
                    location,
                    &format!("{algorithm} over the payload is not supported by the XDP target"),
                    None,
                );
                return None;
            }
            let (value, _) = self.hash_value(data, &algorithm, location);
            return Some(value);
        }
        let list = self.fields_of(data);
        let (sum, odd) = self.checksum_sum(&list);
        if !payload {
            return Some(format!("sp_csum_fold({sum})"));
        }
        let rest = self.temporary("long", "sp_payload_sum(xdp, sp_padding + cursor)");
        self.payload_sums = true;
        self.out.line(format!("if ({rest} < 0) goto verdict_drop;"));
        // Behind an odd number of bytes each byte is the other half of its word.
        let rest = match odd {
            Odd::Known(false) => rest,
            Odd::Known(true) => format!("({rest} << 8)"),
            Odd::Text(odd) => format!("({rest} << ({odd} * 8))"),
        };
        let sum = self.temporary("__u64", &format!("{sum} + {rest}"));
        Some(format!("sp_csum_fold({sum})"))
    }

    fn verify_checksum(&mut self, arguments: &[Argument], payload: bool, location: Location) {
        let (Some(condition), Some(expected)) = (operand(arguments, 0), operand(arguments, 2))
        else {
            return;
        };
        let condition = self.expr(condition);
        self.open(&format!("if ({condition})"));
        if let Some(value) = self.checksum(arguments, payload, location) {
            let width = self.width(expected);
            let expected = self.expr(expected);
            let value = crate::expr::truncate(&value, width);
            if let Some(error) = self.standard("checksum_error") {
                self.out.line(format!("if ({value} != {expected}) {} = 1;", error.c));
            }
        }
        self.out.line("}");
    }

    fn update_checksum(&mut self, arguments: &[Argument], payload: bool, location: Location) {
        let (Some(condition), Some(target)) = (operand(arguments, 0), operand(arguments, 2)) else {
            return;
        };
        let condition = self.expr(condition);
        self.open(&format!("if ({condition})"));
        if let Some(value) = self.checksum(arguments, payload, location) {
            self.store_truncated(target, &value);
        }
        self.out.line("}");
    }

    fn fib_lookup(
        &mut self,
        name: &str,
        arguments: &[Argument],
        result: Option<&Expr>,
        location: Location,
    ) {
        let mut inputs = Vec::new();
        for argument in arguments.iter().take(7) {
            if let Argument::In(value) = argument {
                inputs.push(self.expr(value));
            }
        }
        if inputs.len() != 7 || arguments.len() != 10 {
            self.internal(location, "fib_lookup with other arguments than declared");
            return;
        }
        self.open("");
        self.out.line("__u32 sp_port;");
        self.out.line("__u64 sp_source_mac, sp_destination_mac;");
        let mtu = self.route_mtu();
        self.out.line(format!(
            "__u32 sp_found = sp_{name}(xdp, sp_ingress_ifindex(xdp, ingress_port, sp_again), {}, &sp_port, &sp_source_mac, &sp_destination_mac, &{mtu});",
            inputs.join(", ")
        ));
        for (argument, value) in
            arguments[7..].iter().zip(["sp_port", "sp_source_mac", "sp_destination_mac"])
        {
            if let Argument::Out(target) | Argument::InOut(target) = argument {
                self.store_truncated(target, value);
            }
        }
        if let Some(target) = result {
            self.store(target, "sp_found");
        }
        self.out.line("}");
    }
}

//! Extern functions and objects (registers: registers.rs): counters, hashes, checksums, random numbers, routes.

use crate::generator::Generator;
use crate::layout::Place;
use crate::packet::{Bits, runs, store_run};
use num_traits::{ToPrimitive, Zero};
use p4_ir::{Argument, ConstArgument, Expr, ExprKind, ExternId, ExternInstance, Location, Type};

/// A scalar of a field list.
pub(crate) struct ListField {
    pub bits: Bits,
    /// C: the header that it belongs to is valid. bmv2 leaves fields of invalid headers out.
    pub valid: Option<String>,
    pub varbit: bool,
}

/// The expression of an `in` argument, or the l-value of another.
pub(crate) fn operand(arguments: &[Argument], index: usize) -> Option<&Expr> {
    match arguments.get(index)? {
        Argument::In(expr) | Argument::Out(expr) | Argument::InOut(expr) => Some(expr),
        Argument::DontCare => None,
    }
}

impl Generator<'_> {
    /// Declares an extern object's maps and its part of the manifest.
    pub fn declare_extern(&mut self, id: ExternId, instance: &ExternInstance) {
        let size = match instance.arguments.first() {
            Some(ConstArgument::Value(value, _)) => value.to_u32().unwrap_or(0),
            _ => 0,
        };
        let sized = matches!(instance.extern_type.as_str(), "register" | "counter" | "FlowState");
        if sized && size == 0 {
            let message = format!("{} {} needs a size of 1 to 2^32-1 elements", instance.extern_type, instance.name);
            self.error(instance.location, &message, None);
        }
        match instance.extern_type.as_str() {
            "register" => self.declare_register(id, instance, size),
            "counter" => {
                let unit = match instance.arguments.get(1) {
                    Some(ConstArgument::Value(value, Type::Enum(id))) => {
                        let member = value.to_usize().unwrap_or(0);
                        self.program.enum_types[id.index()].members.get(member).cloned().unwrap_or_default()
                    }
                    _ => "packets_and_bytes".into(),
                };
                let value = "struct sp_counter_value";
                let map = instance.c_name.clone();
                self.declare_map(&map, "BPF_MAP_TYPE_PERCPU_ARRAY", "__u32", value, &size.to_string(), "");
                self.manifest.counters.push(manifest::Counter { name: instance.name.clone(), map, size, unit });
            }
            "direct_counter" => {}
            "FlowState" => self.declare_flow_state(instance, size),
            "SnapshotState" => self.declare_snapshot_state(instance),
            other => {
                let message = format!("extern {other} is not supported by the XDP target yet");
                self.error(instance.location, &message, None);
            }
        }
    }

    /// A call of an extern function or method.
    pub fn extern_call(
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
                for (field, value) in [("egress_spec", "SP_DROP_PORT"), ("mcast_grp", "0")] {
                    if let Some(scalar) = self.standard(field) {
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
                // The number is the state protocol's: a program without state has no use for one.
                let value = if self.has_state() { "sp_flow_switch_id()" } else { "0" };
                if let Some(target) = result {
                    self.store(target, value);
                }
            }
            "fib_lookup_ipv4" | "fib_lookup_ipv6" => self.fib_lookup(name, arguments, result, location),
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
                    self.error(location, "direct_counter.count() outside of an action of its table", None);
                }
            }
            ("FlowState", _) => self.flow_call(instance, name, arguments, result, location),
            ("SnapshotState", _) => self.snapshot_call(instance, name, arguments, result, location),
            // Its declaration has been reported.
            _ => {}
        }
    }

    /// A `__u32` variable with an array map's index; out of range for values that do not fit.
    pub fn map_index(&mut self, index: &Expr) -> String {
        let width = self.width(index);
        let value = self.expr(index);
        if width <= 32 {
            return self.temporary("__u32", &value);
        }
        self.temporary("__u32", &format!("({value} > 0xffffffffU ? 0xffffffffU : (__u32)({value}))"))
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

    /// The scalars of a field list, in order.
    pub fn field_list(&mut self, data: &Expr, list: &mut Vec<ListField>) {
        match (&data.kind, &data.ty) {
            (ExprKind::StructValue(fields), _) => fields.iter().for_each(|field| self.field_list(field, list)),
            (_, Type::Struct(_) | Type::Header(_) | Type::Stack { .. } | Type::Union(_) | Type::Varbit { .. }) => {
                if let Some(place) = self.place(data) {
                    let valid = self.owner_valid(data);
                    self.place_list(&place, valid, list, data.location);
                }
            }
            (_, Type::String) => {}
            _ => {
                let width = self.width(data);
                let value = self.expr(data);
                let valid = self.owner_valid(data);
                list.push(ListField { bits: Bits { value, width }, valid, varbit: false });
            }
        }
    }

    fn owner_valid(&mut self, data: &Expr) -> Option<String> {
        let ExprKind::Field(base, _) = &data.kind else { return None };
        if !matches!(base.ty, Type::Header(_)) || matches!(base.kind, ExprKind::Lookahead | ExprKind::HeaderValue(_)) {
            return None;
        }
        match self.place(base) {
            Some(Place::Header(header)) => Some(header.valid()),
            _ => None,
        }
    }

    fn place_list(&mut self, place: &Place, valid: Option<String>, list: &mut Vec<ListField>, location: Location) {
        match place {
            Place::Scalar(scalar) => {
                list.push(ListField { bits: Bits { value: scalar.read(), width: scalar.width }, valid, varbit: false });
            }
            Place::Varbit(scalar) => {
                list.push(ListField {
                    bits: Bits { value: scalar.c.clone(), width: scalar.width },
                    valid,
                    varbit: true,
                });
            }
            Place::Struct(_, fields) => fields.iter().for_each(|field| self.place_list(field, None, list, location)),
            Place::Header(header) => {
                for index in 0..self.program.header_types[header.ty.index()].fields.len() {
                    if let Some(field) = self.header_field(header, index as u32) {
                        self.place_list(&field, Some(header.valid()), list, location);
                    }
                }
            }
            Place::Stack(_) | Place::Union(_) => {
                self.error(location, "a header stack or union in a field list", Some("list its fields"));
            }
        }
    }

    /// The member of HashAlgorithm that an argument names.
    fn algorithm(&mut self, expr: &Expr) -> String {
        if let (ExprKind::Const(value), Type::Enum(id)) = (&expr.kind, &expr.ty)
            && let Some(name) = self.program.enum_types[id.index()].members.get(value.to_usize().unwrap_or(usize::MAX))
        {
            return name.clone();
        }
        self.error(expr.location, "the hash algorithm must be known at compile time", None);
        String::new()
    }

    /// C of a hash over a field list, and the hash's width.
    fn hash_value(&mut self, data: &Expr, algorithm: &str, location: Location) -> (String, u32) {
        let mut list = Vec::new();
        self.field_list(data, &mut list);
        if algorithm == "csum16" {
            let sum = self.checksum_sum(&list, location);
            return (format!("sp_csum_fold({sum})"), 16);
        }
        let (function, width, even) = match algorithm {
            "crc32" | "crc32_custom" => ("sp_crc32", 32, false),
            "crc16" | "crc16_custom" => ("sp_crc16", 16, false),
            "xor16" => ("sp_xor16", 16, true),
            "identity" => ("", 64, false),
            "random" => return (self.temporary("__u64", "sp_random64()"), 64),
            other => {
                self.error(location, &format!("hash algorithm {other} is not supported by the XDP target"), None);
                return ("0".into(), 32);
            }
        };
        if list.iter().any(|field| field.varbit) {
            self.error(location, "a varbit field in the data of this hash", None);
            return ("0".into(), width);
        }
        let values: Vec<Bits> = list.into_iter().map(|field| field.bits).collect();
        let total: u32 = values.iter().map(|value| value.width).sum();
        let bytes = total.div_ceil(8);
        if bytes > 128 {
            self.error(location, &format!("hash data of {bytes} bytes: the XDP target hashes at most 128"), None);
            return ("0".into(), width);
        }
        let Ok(found) = runs(&values) else {
            self.error(location, "hash data with more than 128 bits between byte boundaries", None);
            return ("0".into(), width);
        };
        let size = if even { bytes.div_ceil(2) * 2 } else { bytes.max(1) };
        self.temporaries += 1;
        let buffer = format!("sp_bytes{}", self.temporaries);
        self.out.line(format!("__u8 {buffer}[{}] __attribute__((aligned(8))) = {{}};", size.div_ceil(8) * 8));
        for run in &found {
            for line in store_run(&buffer, run, true) {
                self.out.line(line);
            }
        }
        if function.is_empty() {
            // identity: the first eight bytes as one integer, right-aligned if there are fewer.
            let shift = 64 - 8 * bytes.min(8);
            return (self.temporary("__u64", &format!("sp_get64({buffer}) >> {shift}")), 64);
        }
        (self.temporary("__u64", &format!("{function}({buffer}, {size})")), width)
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

    /// C of the sum of a field list's 16-bit words. 2^16 is 1 modulo 2^16 - 1, so whole fields can be added, shifted to their place in a word.
    pub fn checksum_sum(&mut self, list: &[ListField], location: Location) -> String {
        let mut bit = 0;
        let mut terms = Vec::new();
        for field in list {
            let width = field.bits.width;
            let value = &field.bits.value;
            if field.varbit {
                terms.push(self.varbit_sum(value, width));
                continue;
            }
            if width > 128 {
                self.error(location, "a field of more than 128 bits in a checksum", None);
                continue;
            }
            bit += width;
            let shift = (16 - bit % 16) % 16;
            let part = match width {
                0..=32 => format!("(__u64){value}"),
                33..=64 => format!("sp_csum_part64({value})"),
                _ => format!("sp_csum_part128({value})"),
            };
            let placed = if shift == 0 { part } else { format!("({part} << {shift})") };
            terms.push(match &field.valid {
                Some(valid) => format!("({valid} ? {placed} : 0)"),
                None => placed,
            });
        }
        if terms.is_empty() {
            return "0ULL".into();
        }
        // A running variable, so that long lists stay readable.
        let sum = self.temporary("__u64", "0");
        for term in terms {
            self.out.line(format!("{sum} += {term};"));
        }
        sum
    }

    fn varbit_sum(&mut self, value: &str, width: u32) -> String {
        let sum = self.temporary("__u64", "0");
        self.open(&format!("for (__u32 sp_i = 0; sp_i < {}; sp_i++)", width.div_ceil(8)));
        self.out.line(format!("if (sp_i >= ({value}.bits >> 3)) break;"));
        self.out.line(format!("{sum} += (__u64){value}.byte[sp_i] << (sp_i & 1 ? 0 : 8);"));
        self.out.line("}");
        sum
    }

    /// The sum that a checksum call is about.
    fn checksum(&mut self, arguments: &[Argument], payload: bool, location: Location) -> Option<String> {
        let (data, algorithm) = (operand(arguments, 1)?, operand(arguments, 3)?);
        let algorithm = self.algorithm(algorithm);
        if algorithm != "csum16" {
            if payload {
                self.error(location, &format!("{algorithm} over the payload is not supported by the XDP target"), None);
                return None;
            }
            let (value, _) = self.hash_value(data, &algorithm, location);
            return Some(value);
        }
        let mut list = Vec::new();
        self.field_list(data, &mut list);
        let mut sum = self.checksum_sum(&list, location);
        if payload {
            let bits: u32 = list.iter().filter(|field| !field.varbit).map(|field| field.bits.width).sum();
            if !bits.is_multiple_of(16) {
                self.error(location, "before a payload the fields must fill whole 16-bit words", None);
            }
            let total = self.temporary("__u64", &sum);
            let rest = self.temporary("long", "sp_payload_sum(xdp, sp_padding + cursor)");
            self.payload_sums = true;
            self.out.line(format!("if ({rest} < 0) goto verdict_drop;"));
            self.out.line(format!("{total} += {rest};"));
            sum = total;
        }
        Some(format!("sp_csum_fold({sum})"))
    }

    fn verify_checksum(&mut self, arguments: &[Argument], payload: bool, location: Location) {
        let (Some(condition), Some(expected)) = (operand(arguments, 0), operand(arguments, 2)) else { return };
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
        let (Some(condition), Some(target)) = (operand(arguments, 0), operand(arguments, 2)) else { return };
        let condition = self.expr(condition);
        self.open(&format!("if ({condition})"));
        if let Some(value) = self.checksum(arguments, payload, location) {
            self.store_truncated(target, &value);
        }
        self.out.line("}");
    }

    fn fib_lookup(&mut self, name: &str, arguments: &[Argument], result: Option<&Expr>, location: Location) {
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
        self.out.line(format!(
            "__u32 sp_found = sp_{name}(xdp, {}, &sp_port, &sp_source_mac, &sp_destination_mac);",
            inputs.join(", ")
        ));
        for (argument, value) in arguments[7..].iter().zip(["sp_port", "sp_source_mac", "sp_destination_mac"]) {
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

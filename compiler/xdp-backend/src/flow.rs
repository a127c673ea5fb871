//! FlowState: the calls into the runtime of stateplane_flow.h, and keys and values in their wire form (systems/redplane/docs/state-protocol.md).

use crate::generator::Generator;
use crate::layout::{Place, scalar_width};
use crate::packet::{Bits, load_bits, runs, store_run};
use crate::table::round_up;
use num_traits::ToPrimitive;
use p4_ir::{Argument, ConstArgument, Expr, ExternInstance, Location, Type};

/// A FlowState object as the generator needs it.
#[derive(Clone)]
pub(crate) struct FlowObject {
    pub key_bytes: u32,
    pub value_bytes: u32,
    pub consistency: u32,
    pub allocator: u32,
    pub object_id: u16,
    pub size: u32,
    pub c_name: String,
}

/// `Consistency` in stateplane.p4, by position.
pub(crate) const LOCAL: u32 = 0;
pub(crate) const LINEARIZABLE: u32 = 1;

const MAX_BYTES: u32 = 64;
/// Bytes of the runtime's bookkeeping before the key in the map's value (SP_FLOW_DECLARE in stateplane_flow.h); the value follows the key.
pub(crate) const KEY_OFFSET: u32 = 56;

impl Generator<'_> {
    /// Is there an object whose state lives in the store?
    pub fn linearizable(&self) -> bool {
        self.flows.iter().any(|flow| flow.consistency != LOCAL)
    }

    /// Reads a FlowState's declaration.
    pub fn declare_flow_state(&mut self, instance: &ExternInstance, size: u32) {
        let key = self.wire_fields(instance.type_arguments.first(), instance);
        let value = self.wire_fields(instance.type_arguments.get(1), instance);
        let bytes = |fields: &[manifest::WireField]| fields.iter().map(|field| field.bytes).sum::<u32>();
        let (key_bytes, value_bytes) = (bytes(&key), bytes(&value));
        for (what, bytes) in [("key", key_bytes), ("value", value_bytes)] {
            if bytes == 0 || bytes > MAX_BYTES {
                let message = format!("FlowState {}: the {what} has {bytes} bytes, not 1 to 64", instance.name);
                let help = format!("drop or narrow fields of the {what}'s struct; each takes whole bytes");
                self.error(instance.location, &message, Some(&help));
            }
        }
        let member = |index: usize| match instance.arguments.get(index) {
            Some(ConstArgument::Value(value, _)) => value.to_u32().unwrap_or(0),
            _ => 0,
        };
        let (consistency, allocator) = (member(1), member(2));
        let object_id = self.flows.len() as u16 + 1;
        self.manifest.flow_states.push(manifest::FlowState {
            name: instance.name.clone(),
            object_id,
            map: instance.c_name.clone(),
            size,
            consistency: match consistency {
                LOCAL => "local",
                LINEARIZABLE => "linearizable",
                _ => "asynchronous",
            }
            .into(),
            allocator: match allocator {
                1 => "nat_ports",
                2 => "backends",
                _ => "zero",
            }
            .into(),
            key,
            value,
            key_bytes,
            value_bytes,
            value_offset: KEY_OFFSET + round_up(key_bytes, 8),
        });
        self.flows.push(FlowObject {
            key_bytes,
            value_bytes,
            consistency,
            allocator,
            object_id,
            size,
            c_name: instance.c_name.clone(),
        });
    }

    pub(crate) fn wire_fields(&mut self, ty: Option<&Type>, instance: &ExternInstance) -> Vec<manifest::WireField> {
        let Some(Type::Struct(id)) = ty else {
            let needs =
                if instance.extern_type == "FlowState" { "structs as key and value" } else { "a struct as key" };
            let message = format!("{} needs {needs}", instance.extern_type);
            self.error(instance.location, &message, Some("declare a struct, also around a single field"));
            return Vec::new();
        };
        let mut offset = 0;
        let mut fields = Vec::new();
        for field in &self.program.struct_types[id.index()].fields {
            let Some(width) = scalar_width(&field.ty).filter(|width| *width <= 128) else {
                let message = format!("{} {}: field {} is no scalar", instance.extern_type, instance.name, field.name);
                self.error(instance.location, &message, Some("use bit<W>, int<W> and bool, at most 128 bits each"));
                continue;
            };
            let bytes = width.div_ceil(8);
            fields.push(manifest::WireField { name: field.name.clone(), width, offset, bytes });
            offset += bytes;
        }
        fields
    }

    /// A buffer on the stack, zero-padded to a multiple of 8, with a struct in wire form.
    pub(crate) fn wire_buffer(&mut self, name: &str, bytes: u32, value: Option<&Expr>) {
        let size = round_up(bytes.max(1), 8);
        self.out.line(format!("__u8 {name}[{size}] __attribute__((aligned(8))) = {{}};"));
        let Some(value) = value else { return };
        let values: Vec<Bits> = self
            .fields_of(value)
            .into_iter()
            .map(|field| Bits { value: field.bits.value, width: round_up(field.bits.width, 8) })
            .collect();
        for run in &runs(&values) {
            for line in store_run(name, run, true) {
                self.out.line(line);
            }
        }
    }

    /// `get`, `get_or_allocate`, `set`, `phase`
    pub fn flow_call(
        &mut self,
        instance: &ExternInstance,
        name: &str,
        arguments: &[Argument],
        result: Option<&Expr>,
        location: Location,
    ) {
        let Some(flow) = self.flows.iter().find(|flow| flow.c_name == instance.c_name).cloned() else { return };
        let Some(Argument::In(key)) = arguments.first() else {
            self.internal(location, "FlowState method without a key");
            return;
        };
        self.open("");
        self.wire_buffer("sp_key", flow.key_bytes, Some(key));
        if name == "set" {
            if let Some(Argument::In(value)) = arguments.get(1) {
                self.wire_buffer("sp_value", flow.value_bytes, Some(value));
            }
            self.out.line(format!("{}_set(&flow, sp_key, sp_value);", flow.c_name));
            // Another CPU changed the flow since `get`: the program runs again on the same packet.
            self.out.line("if (flow.kind == 1) return sp_flow_park(xdp, &flow);");
            self.flow_sets = true;
            self.out.line("}");
            return;
        }
        if name == "phase" {
            if let Some(Argument::In(phase)) = arguments.get(1) {
                let phase = self.expr(phase);
                self.out.line(format!("{}_phase(&flow, sp_key, {phase});", flow.c_name));
            }
            self.flow_phases = true;
            self.out.line("}");
            return;
        }
        self.wire_buffer("sp_value", flow.value_bytes, None);
        let allocate = u8::from(name == "get_or_allocate");
        self.out.line(format!("__u32 sp_result = {}_get(&flow, sp_key, sp_value, {allocate});", flow.c_name));
        if flow.consistency != LOCAL {
            // PENDING: the packet, as it came in, waits in the network for the lease.
            self.out.line("if (flow.kind == 1) return sp_flow_park(xdp, &flow);");
        }
        if let Some(Argument::Out(target) | Argument::InOut(target)) = arguments.get(1) {
            self.read_wire(target, flow.value_bytes, location);
        }
        if let Some(target) = result {
            self.store(target, "sp_result");
        }
        self.out.line("}");
    }

    fn read_wire(&mut self, target: &Expr, value_bytes: u32, location: Location) {
        let Some(Place::Struct(_, fields)) = self.place(target) else {
            self.internal(location, "FlowState value that is no struct");
            return;
        };
        let mut offset = 0;
        for field in fields {
            let Place::Scalar(scalar) = field else { continue };
            let bytes = scalar.width.div_ceil(8);
            let bit = (offset + bytes) * 8 - scalar.width;
            // Byte by byte where the stack's alignment forbids more; the buffer is padded to 8.
            let value = aligned_load("sp_value", bit, scalar.width, round_up(value_bytes, 8));
            self.out.line(format!("{} = {value};", scalar.c));
            offset += bytes;
        }
    }
}

/// Loads a right-aligned field from the stack with aligned accesses.
fn aligned_load(pointer: &str, bit: u32, width: u32, limit: u32) -> String {
    let first = bit / 8;
    let bytes = width.div_ceil(8);
    let size = bytes.next_power_of_two();
    if size == bytes && size <= 8 && first.is_multiple_of(size) {
        return load_bits(pointer, bit, width, limit);
    }
    let wide = if width > 64 {
        "sp_u128"
    } else if width > 32 {
        "__u64"
    } else {
        "__u32"
    };
    let mut parts = Vec::new();
    let mut done = 0;
    while done < bytes {
        let mut size = (bytes - done).min(8);
        size = if size.is_power_of_two() { size } else { size.next_power_of_two() / 2 };
        while !(first + done).is_multiple_of(size) {
            size /= 2;
        }
        let left = (bytes - done - size) * 8;
        let part = format!("({wide})sp_get{}({pointer} + {})", size * 8, first + done);
        parts.push(crate::expr::shift_left(&part, left, bytes * 8));
        done += size;
    }
    crate::expr::truncate(&parts.join(" | "), width)
}

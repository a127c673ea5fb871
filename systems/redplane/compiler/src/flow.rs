//! FlowState: the calls into the runtime of stateplane_flow.h, and keys and values in their wire
//! form (systems/redplane/docs/state-protocol.md).

use super::State;
use manifest::{Home, Layout, StateObject, WireField};
use num_traits::ToPrimitive;
use p4_ir::{Argument, ConstArgument, Expr, ExternInstance};
use state_protocol::layouts::value_offset;
use state_protocol::objects::{Allocator, Consistency, FLOW_STATE, FlowSettings, SYSTEM, written};
use state_protocol::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use xdp_backend::system::{Generator, ObjectCall};

/// A FlowState object as the generator needs it.
#[derive(Clone)]
pub struct FlowObject {
    pub key_bytes: u32,
    pub value_bytes: u32,
    pub consistency: Consistency,
    pub allocator: u32,
    pub object_id: u16,
    pub size: u32,
    /// So many bytes of a key, from its first, pick its shard. `None`: all.
    pub shard_bytes: Option<u32>,
    pub c_name: String,
}

const MOST_KEY_BYTES: u32 = MAX_KEY_BYTES as u32;
const MOST_VALUE_BYTES: u32 = MAX_VALUE_BYTES as u32;

/// `Allocator` in stateplane/redplane.p4, by position.
const ALLOCATORS: [Allocator; 3] = [Allocator::Zero, Allocator::NatPorts, Allocator::Backends];

/// Longer keys and values stand in the runtime's scratch map: BPF's stack has 512 bytes for all.
const MOST_ON_STACK: u32 = 64;

impl State {
    /// Is there an object whose state lives in the store?
    pub fn replicated(&self) -> bool {
        self.flows.iter().any(|flow| flow.consistency.is_replicated())
    }

    /// C definitions of how much room the program's keys and values need, if it is more than usual.
    pub fn rooms(&self) -> Vec<String> {
        let room = |name: &str, bytes: fn(&FlowObject) -> u32| {
            let most = self.flows.iter().map(bytes).max().filter(|most| *most > MOST_ON_STACK)?;
            Some(format!("#define SP_FLOW_{name}_ROOM {}", most.next_multiple_of(8)))
        };
        let rooms = [room("KEY", |it| it.key_bytes), room("VALUE", |it| it.value_bytes)];
        rooms.into_iter().flatten().collect()
    }

    /// Reads a FlowState's declaration.
    pub fn declare_flow_state(
        &mut self,
        generator: &mut Generator<'_>,
        instance: &ExternInstance,
        object_id: u16,
    ) {
        let size = generator.size_of(instance);
        let [(key, key_bytes), (value, value_bytes)] =
            generator.wire_key_and_value(instance, [MOST_KEY_BYTES, MOST_VALUE_BYTES]);
        let member = |index: usize| match instance.arguments.get(index) {
            Some(ConstArgument::Value(value, _)) => value.to_u32().unwrap_or(0),
            _ => 0,
        };
        let allocator = member(2);
        let (Some(&consistency), Some(&written_allocator)) =
            (Consistency::ALL.get(member(1) as usize), ALLOCATORS.get(allocator as usize))
        else {
            generator.internal(instance.location, "a consistency or allocator without a name");
            return;
        };
        let shard_bytes = self.shard_bytes(generator, instance, &key, allocator);
        let settings =
            FlowSettings { consistency, allocator: written_allocator, shard_bytes, grouped: false };
        generator.manifest.state_objects.push(StateObject {
            id: object_id,
            name: instance.name.clone(),
            system: SYSTEM.into(),
            kind: FLOW_STATE.into(),
            map: instance.c_name.clone(),
            slots_map: None,
            capacity: size,
            home: if consistency.is_replicated() { Home::Store } else { Home::ThisSwitch },
            key,
            key_bytes,
            value: Layout::Fields {
                fields: value,
                bytes: value_bytes,
                offset: value_offset(key_bytes),
            },
            settings: written(&settings),
        });
        self.flows.push(FlowObject {
            key_bytes,
            value_bytes,
            consistency,
            allocator,
            object_id,
            size,
            shard_bytes,
            c_name: instance.c_name.clone(),
        });
    }

    /// Notes in the manifest which objects' sets are one update.
    pub fn note_groups(&self, generator: &mut Generator<'_>) {
        let grouped = self.grouped();
        let ids = self.flows.iter().map(|flow| flow.object_id);
        for id in ids.filter(|id| grouped >> (id & 63) & 1 == 1) {
            let objects = &mut generator.manifest.state_objects;
            if let Some(object) = objects.iter_mut().find(|object| object.id == id) {
                object.settings.insert("grouped".into(), true.into());
            }
        }
    }

    /// Bytes of a key that pick its shard, where the declaration says so.
    fn shard_bytes(
        &self,
        generator: &mut Generator<'_>,
        instance: &ExternInstance,
        key: &[WireField],
        allocator: u32,
    ) -> Option<u32> {
        let Some(ConstArgument::Value(fields, _)) = instance.arguments.get(3) else { return None };
        let name = &instance.name;
        if allocator != 0 {
            let message = format!("FlowState {name}: shard_fields beside this allocator");
            let help =
                "leave shard_fields out: only Allocator.ZERO leaves the shard to the program";
            generator.error(instance.location, &message, Some(help));
            return None;
        }
        let fields = fields.to_usize().unwrap_or(usize::MAX);
        if !(1..=key.len()).contains(&fields) {
            let message = format!(
                "FlowState {name}: shard_fields is {fields}, and its key has {} fields",
                key.len()
            );
            let help = "write how many of the key's first fields pick the shard, 1 or more";
            generator.error(instance.location, &message, Some(help));
            return None;
        }
        Some(key[..fields].iter().map(|field| field.bytes).sum())
    }

    /// `get`, `get_or_allocate`, `set`, `phase`
    pub fn flow_call(&mut self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        let ObjectCall { instance, method, arguments, result, location } = *call;
        let Some(flow) = self.flows.iter().find(|flow| flow.c_name == instance.c_name).cloned()
        else {
            return;
        };
        let Some(Argument::In(key)) = arguments.first() else {
            generator.internal(location, "FlowState method without a key");
            return;
        };
        generator.open("");
        if flow.key_bytes.max(flow.value_bytes) > MOST_ON_STACK {
            generator.out.line("struct sp_flow_scratch *sp_scratch = sp_flow_get_scratch();");
            generator.out.line("if (!sp_scratch) return XDP_ABORTED;");
        }
        wire_buffer(generator, "key", flow.key_bytes, Some(key));
        if method == "set" {
            if let Some(Argument::In(value)) = arguments.get(1) {
                wire_buffer(generator, "value", flow.value_bytes, Some(value));
            }
            generator.out.line(format!("{}_set(&flow, sp_key, sp_value);", flow.c_name));
            // Another CPU changed the flow since `get`: the program runs again on the same packet.
            generator.out.line("if (flow.kind == 1) return sp_flow_park(xdp, &flow);");
            self.flow_sets = true;
            self.set_objects |= 1 << (flow.object_id & 63);
            generator.out.line("}");
            return;
        }
        if method == "phase" {
            if let Some(Argument::In(phase)) = arguments.get(1) {
                let phase = generator.expr(phase);
                generator.out.line(format!("{}_phase(&flow, sp_key, {phase});", flow.c_name));
            }
            self.flow_phases = true;
            generator.out.line("}");
            return;
        }
        wire_buffer(generator, "value", flow.value_bytes, None);
        let allocate = u8::from(method == "get_or_allocate");
        generator.out.line(format!(
            "__u32 sp_result = {}_get(&flow, sp_key, sp_value, {allocate});",
            flow.c_name
        ));
        if flow.consistency.is_replicated() {
            // PENDING: the packet, as it came in, waits in the network for the lease.
            generator.out.line("if (flow.kind == 1) return sp_flow_park(xdp, &flow);");
        }
        if let Some(Argument::Out(target) | Argument::InOut(target)) = arguments.get(1) {
            generator.read_wire(target, flow.value_bytes, location);
        }
        if let Some(target) = result {
            generator.store(target, "sp_result");
        }
        generator.out.line("}");
    }
}

/// `sp_key` or `sp_value`, zero-padded to a multiple of 8 bytes, with a struct in wire form.
fn wire_buffer(generator: &mut Generator<'_>, name: &str, bytes: u32, content: Option<&Expr>) {
    let pointer = format!("sp_{name}");
    if bytes <= MOST_ON_STACK {
        generator.wire_buffer(&pointer, bytes, content);
        return;
    }
    generator.out.line(format!("__u8 *{pointer} = (__u8 *)sp_scratch->wire_{name};"));
    let Some(content) = content else {
        let size = bytes.next_multiple_of(8);
        generator.out.line(format!("__builtin_memset({pointer}, 0, {size});"));
        return;
    };
    if !bytes.is_multiple_of(8) {
        generator.out.line(format!("sp_scratch->wire_{name}[{}] = 0;", bytes / 8));
    }
    generator.wire_store(&pointer, content);
}

//! NetChain's back end: SlotState and MessageTag of `stateplane/netchain.p4`, and the calls of their
//! runtime (`bpf/netchain/`) in the fixed places of the packet path.

#![forbid(unsafe_code)]

mod meaning;
mod tags;

use manifest::{Home, Layout, Settings, StateObject};
pub use meaning::{Meaning, supply};
use p4_ir::{Argument, ExternInstance};
use tags::Tags;
use xdp_backend::system::{
    Context, Generator, Header, Leaving, ObjectCall, Pipeline, Rule, StateSystem, System, Writer,
    round_up,
};

/// As a manifest's state objects name the system.
pub const SYSTEM: &str = "netchain";
/// Externs' names.
pub const SLOT_STATE: &str = "SlotState";
/// Externs' names.
pub const MESSAGE_TAG: &str = "MessageTag";

const MAX_KEY_BYTES: u32 = 64;
/// The runtime's scratch holds as much.
const MAX_VALUE_BYTES: u32 = 512;
/// Lock and generation, before the key in a slot (SP_SLOTS_DECLARE).
const KEY_OFFSET: u32 = 8;

const HEADERS: &[Header] = &[
    ("stateplane_slots.h", include_str!("../../../../bpf/netchain/stateplane_slots.h")),
    ("stateplane_tags.h", include_str!("../../../../bpf/netchain/stateplane_tags.h")),
];

const CONTEXT: Context = Context {
    ty: "struct sp_slots_context",
    name: "slots",
    initial: "{ .ingress_port = ingress_port }",
};

/// See the crate.
pub struct NetChain;

impl System for NetChain {
    fn extern_types(&self) -> &'static [&'static str] {
        &[SLOT_STATE, MESSAGE_TAG]
    }

    fn rules(&self) -> &'static [Rule] {
        &[]
    }

    fn headers(&self) -> &'static [Header] {
        HEADERS
    }

    fn program_names(&self) -> &'static [&'static str] {
        &["sp_slots_again"]
    }

    fn own_functions(&self) -> &'static [&'static str] {
        &[]
    }

    fn begin(&self) -> Box<dyn StateSystem> {
        Box::new(State::default())
    }
}

/// An object as the generator needs it.
#[derive(Clone)]
struct SlotObject {
    c_name: String,
    id: u16,
    size: u32,
    key_bytes: u32,
    value_bytes: u32,
}

/// The objects of one program.
#[derive(Default)]
struct State {
    objects: Vec<SlotObject>,
    tags: Tags,
}

impl StateSystem for State {
    fn declare(&mut self, generator: &mut Generator<'_>, instance: &ExternInstance, id: u16) {
        if instance.extern_type == MESSAGE_TAG {
            return self.tags.declare(generator, instance, id);
        }
        let size = generator.size_of(instance);
        let [(key, key_bytes), (value, value_bytes)] =
            generator.wire_key_and_value(instance, [MAX_KEY_BYTES, MAX_VALUE_BYTES]);
        generator.manifest.state_objects.push(StateObject {
            id,
            name: instance.name.clone(),
            system: SYSTEM.into(),
            kind: SLOT_STATE.into(),
            map: instance.c_name.clone(),
            slots_map: Some(format!("{}_slots", instance.c_name)),
            capacity: size,
            home: Home::Peers,
            key,
            key_bytes,
            value: Layout::Fields {
                fields: value,
                bytes: value_bytes,
                offset: KEY_OFFSET + round_up(key_bytes, 8),
            },
            settings: Settings::new(),
        });
        let c_name = instance.c_name.clone();
        self.objects.push(SlotObject { c_name, id, size, key_bytes, value_bytes });
    }

    fn call(&mut self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        let ObjectCall { instance, method, arguments, result, location } = *call;
        if self.tags.is(&instance.c_name) {
            return self.tags.call(generator, call);
        }
        let Some(object) = self.objects.iter().find(|it| it.c_name == instance.c_name) else {
            return;
        };
        let Some(Argument::In(key)) = arguments.first() else {
            generator.internal(location, "a method of a SlotState without a key");
            return;
        };
        generator.open("");
        generator.wire_buffer("sp_key", object.key_bytes, Some(key));
        let name = &object.c_name;
        generator.out.line("struct sp_slots_scratch *sp_scratch = sp_slots_get_scratch();");
        generator.out.line("if (!sp_scratch) return XDP_ABORTED;");
        generator.out.line("__u8 *sp_value = sp_scratch->value;");
        if let (true, Some(Argument::In(value))) = (method == "write", arguments.get(1)) {
            generator.wire_store("sp_value", value);
        }
        let access = match method {
            "write" => format!("{name}_write(&slots, sp_key, sp_value)"),
            _ => format!("{name}_read(&slots, sp_key)"),
        };
        generator.out.line(format!("__u32 sp_result = {access};"));
        // Another packet changed the slot: the program runs again on this one.
        generator.out.line("if (slots.again) return sp_slots_run_again(xdp, &slots);");
        if let Some(Argument::Out(target) | Argument::InOut(target)) = arguments.get(1) {
            generator.read_wire(target, object.value_bytes, location);
        }
        if let Some(target) = result {
            generator.store(target, "sp_result");
        }
        generator.out.line("}");
    }

    fn check(&self, _: &mut Generator<'_>) {}

    fn map_count(&self, instance: &ExternInstance) -> usize {
        match instance.extern_type.as_str() {
            MESSAGE_TAG => 6, // stateplane_tags.h, stateplane_secrets.h
            _ => 4,           // SP_SLOTS_DECLARE
        }
    }

    fn switch_id(&self) -> Option<&'static str> {
        None
    }

    fn includes(&self, text: &mut Writer) {
        self.tags.includes(text);
        if self.objects.is_empty() {
            return;
        }
        text.line("/* name, object id, size, key bytes, value bytes */");
        let objects: Vec<String> = self
            .objects
            .iter()
            .map(|it| {
                let SlotObject { c_name, id, size, key_bytes, value_bytes } = it;
                format!("X({c_name}, {id}, {size}, {key_bytes}, {value_bytes})")
            })
            .collect();
        text.line(format!("#define SP_SLOTS_OBJECTS(X) {}", objects.join(" ")));
        text.line("#include \"stateplane_slots.h\"");
        text.line("");
    }

    fn receive(&self, _: &mut Writer) {}

    fn context(&self) -> Option<Context> {
        (!self.objects.is_empty()).then_some(CONTEXT)
    }

    fn before_verdict(&self, leaving: Leaving<'_>) -> Option<String> {
        self.tags.before_verdict(leaving)
    }

    fn to_host(&self) -> Option<&'static str> {
        None
    }

    fn programs(&self, text: &mut Writer, pipeline: &Pipeline) {
        if self.objects.is_empty() {
            return;
        }
        text.line("");
        text.line("/* The same for a packet whose slot another packet changed meanwhile. */");
        text.line("SEC(\"xdp.frags\")");
        text.line("int sp_slots_again(struct xdp_md *xdp)");
        text.line("{");
        text.line("struct sp_slots_context slots = {};");
        text.line("if (sp_slots_resumed(&slots)) return XDP_ABORTED;");
        pipeline.enter_again(text, CONTEXT.name, "slots.ingress_port");
        text.line("}");
    }
}

//! NetChain's back end: SlotState of `stateplane/netchain.p4`, and the calls of its runtime
//! (`bpf/netchain/`) in the fixed places of the packet path.

#![forbid(unsafe_code)]

mod meaning;

use manifest::{Home, Layout, Settings, StateObject};
pub use meaning::Meaning;
use netchain_protocol::layouts::{SCRATCH_VALUE_BYTES, value_offset};
use p4_ir::{Argument, ExternInstance};
use xdp_backend::system::{
    Context, Generator, Header, Leaving, ObjectCall, Pipeline, Rule, StateSystem, System, Writer,
};

/// As a manifest's state objects name the system.
pub const SYSTEM: &str = "netchain";
/// The extern's name.
pub const SLOT_STATE: &str = "SlotState";

const MAX_KEY_BYTES: u32 = 64;

const HEADERS: &[Header] = &[
    ("stateplane_slots.h", include_str!("../../../../bpf/netchain/stateplane_slots.h")),
    (
        "stateplane_slots_layouts.h",
        include_str!("../../../../bpf/netchain/stateplane_slots_layouts.h"),
    ),
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
        &[SLOT_STATE]
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
}

impl StateSystem for State {
    fn declare(&mut self, generator: &mut Generator<'_>, instance: &ExternInstance, id: u16) {
        let size = generator.size_of(instance);
        let [(key, key_bytes), (value, value_bytes)] =
            generator.wire_key_and_value(instance, [MAX_KEY_BYTES, SCRATCH_VALUE_BYTES]);
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
                offset: value_offset(key_bytes),
            },
            settings: Settings::new(),
        });
        let c_name = instance.c_name.clone();
        self.objects.push(SlotObject { c_name, id, size, key_bytes, value_bytes });
    }

    fn call(&mut self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        let ObjectCall { instance, method, arguments, result, location } = *call;
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

    fn map_count(&self, _: &ExternInstance) -> usize {
        4 // SP_SLOTS_DECLARE
    }

    fn switch_id(&self) -> Option<&'static str> {
        None
    }

    fn includes(&self, text: &mut Writer) {
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

    fn before_verdict(&self, _: Leaving<'_>) -> Option<String> {
        None
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

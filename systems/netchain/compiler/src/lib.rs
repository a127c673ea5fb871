//! NetChain's back end: SlotState, RequestWindow, MessageTag and PeerLeases of
//! `stateplane/netchain.p4`, and the calls of their runtime (`bpf/netchain/`) in the fixed places
//! of the packet path.

#![forbid(unsafe_code)]

mod meaning;
mod peers;
mod single;
mod slots;
mod tags;
mod window;

pub use meaning::{Meaning, supply};
use p4_ir::ExternInstance;
use peers::Peers;
use slots::SlotObject;
use tags::Tags;
use window::WindowObject;
use xdp_backend::system::{
    Context, Generator, Header, Leaving, ObjectCall, Pipeline, Rule, StateSystem, System, Writer,
};

/// As a manifest's state objects name the system.
pub const SYSTEM: &str = "netchain";
/// Externs.
pub const SLOT_STATE: &str = "SlotState";
/// Externs.
pub const REQUEST_WINDOW: &str = "RequestWindow";
/// Externs.
pub const MESSAGE_TAG: &str = "MessageTag";
/// Externs.
pub const PEER_LEASES: &str = "PeerLeases";

const HEADERS: &[Header] = &[
    ("stateplane_peers.h", include_str!("../../../../bpf/netchain/stateplane_peers.h")),
    ("stateplane_slots.h", include_str!("../../../../bpf/netchain/stateplane_slots.h")),
    (
        "stateplane_slots_layouts.h",
        include_str!("../../../../bpf/netchain/stateplane_slots_layouts.h"),
    ),
    ("stateplane_tags.h", include_str!("../../../../bpf/netchain/stateplane_tags.h")),
    ("stateplane_window.h", include_str!("../../../../bpf/netchain/stateplane_window.h")),
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
        &[SLOT_STATE, REQUEST_WINDOW, MESSAGE_TAG, PEER_LEASES]
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

/// The objects of one program.
#[derive(Default)]
struct State {
    slots: Vec<SlotObject>,
    windows: Vec<WindowObject>,
    tags: Tags,
    peers: Peers,
}

impl State {
    fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.windows.is_empty() && self.peers.object.is_empty()
    }
}

impl StateSystem for State {
    fn declare(&mut self, generator: &mut Generator<'_>, instance: &ExternInstance, id: u16) {
        match instance.extern_type.as_str() {
            MESSAGE_TAG => self.tags.object.declare(&tags::KIND, generator, instance, id),
            PEER_LEASES => self.peers.object.declare(&peers::KIND, generator, instance, id),
            REQUEST_WINDOW => self.windows.push(WindowObject::declare(generator, instance, id)),
            _ => self.slots.push(SlotObject::declare(generator, instance, id)),
        }
    }

    fn call(&mut self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        let name = &call.instance.c_name;
        if let Some(object) = self.slots.iter().find(|it| it.c_name == *name) {
            object.call(generator, call);
        } else if let Some(object) = self.windows.iter().find(|it| it.c_name == *name) {
            object.call(generator, call);
        } else if self.tags.object.is(name) {
            self.tags.call(generator, call);
        } else if self.peers.object.is(name) {
            self.peers.call(generator, call);
        }
    }

    fn check(&self, _: &mut Generator<'_>) {}

    fn map_count(&self, instance: &ExternInstance) -> usize {
        match instance.extern_type.as_str() {
            MESSAGE_TAG => 8, // stateplane_tags.h, stateplane_messages.h
            PEER_LEASES => 5, // stateplane_peers.h
            SLOT_STATE => 5,  // SP_SLOTS_DECLARE
            _ => 4,           // SP_WINDOWS_DECLARE
        }
    }

    fn switch_id(&self) -> Option<&'static str> {
        None
    }

    fn includes(&self, text: &mut Writer) {
        self.tags.includes(text);
        if self.is_empty() {
            return;
        }
        slots::includes(&self.slots, text);
        window::includes(&self.windows, text);
        self.peers.includes(text);
        text.line("");
    }

    fn receive(&self, _: &mut Writer) {}

    fn context(&self) -> Option<Context> {
        (!self.is_empty()).then_some(CONTEXT)
    }

    fn before_verdict(&self, leaving: Leaving<'_>) -> Option<String> {
        self.tags.before_verdict(leaving)
    }

    fn to_host(&self) -> Option<&'static str> {
        None
    }

    fn generated(&self) -> Option<&'static str> {
        (!self.peers.object.is_empty()).then_some("sp_peers_generated")
    }

    fn programs(&self, text: &mut Writer, pipeline: &Pipeline) {
        if self.is_empty() {
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

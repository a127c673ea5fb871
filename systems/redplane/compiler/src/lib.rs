//! RedPlane's back end: FlowState and SnapshotState (systems/redplane/docs/), and the calls of
//! their runtime (`bpf/redplane/`) in the fixed places of the packet path.

#![forbid(unsafe_code)]

mod contracts;
mod flow;
mod limits;
mod meaning;
mod snapshot;

use flow::FlowObject;
pub use meaning::{Meaning, backends, nat_pool};
use p4_ir::ExternInstance;
use snapshot::SnapshotObject;
use state_protocol::objects::{FLOW_STATE, SNAPSHOT_STATE};
use xdp_backend::system::{
    Context, Generator, Header, Leaving, ObjectCall, Pipeline, Rule, StateSystem, System, Systems,
    Writer,
};

const EXTERN_TYPES: &[&str] = &[FLOW_STATE, SNAPSHOT_STATE];
/// What goes with a packet: its flow, and what has become of it.
const CONTEXT: Context = Context {
    ty: "struct sp_flow_context",
    name: "flow",
    initial: "{ .ingress_port = ingress_port }",
};

const HEADERS: &[Header] = &[
    ("stateplane_flow.h", include_str!("../../../../bpf/redplane/stateplane_flow.h")),
    (
        "stateplane_flow_numbers.h",
        include_str!("../../../../bpf/redplane/stateplane_flow_numbers.h"),
    ),
    (
        "stateplane_flow_layouts.h",
        include_str!("../../../../bpf/redplane/stateplane_flow_layouts.h"),
    ),
    ("stateplane_flow_maps.h", include_str!("../../../../bpf/redplane/stateplane_flow_maps.h")),
    ("stateplane_flow_access.h", include_str!("../../../../bpf/redplane/stateplane_flow_access.h")),
    ("stateplane_flow_staged.h", include_str!("../../../../bpf/redplane/stateplane_flow_staged.h")),
    ("stateplane_flow_group.h", include_str!("../../../../bpf/redplane/stateplane_flow_group.h")),
    (
        "stateplane_flow_session.h",
        include_str!("../../../../bpf/redplane/stateplane_flow_session.h"),
    ),
    ("stateplane_flow_unheld.h", include_str!("../../../../bpf/redplane/stateplane_flow_unheld.h")),
    ("stateplane_flow_tag.h", include_str!("../../../../bpf/redplane/stateplane_flow_tag.h")),
    ("stateplane_flow_record.h", include_str!("../../../../bpf/redplane/stateplane_flow_record.h")),
    ("stateplane_flow_commit.h", include_str!("../../../../bpf/redplane/stateplane_flow_commit.h")),
    ("stateplane_flow_send.h", include_str!("../../../../bpf/redplane/stateplane_flow_send.h")),
    ("stateplane_flow_apply.h", include_str!("../../../../bpf/redplane/stateplane_flow_apply.h")),
    (
        "stateplane_flow_receive.h",
        include_str!("../../../../bpf/redplane/stateplane_flow_receive.h"),
    ),
    (
        "stateplane_flow_generator.h",
        include_str!("../../../../bpf/redplane/stateplane_flow_generator.h"),
    ),
    ("stateplane_snapshot.h", include_str!("../../../../bpf/redplane/stateplane_snapshot.h")),
    (
        "stateplane_snapshot_message.h",
        include_str!("../../../../bpf/redplane/stateplane_snapshot_message.h"),
    ),
    ("stateplane_flow_sweep.h", include_str!("../../../../bpf/redplane/stateplane_flow_sweep.h")),
];

/// See the crate.
pub struct RedPlane;

/// RedPlane and no other system: for what is about RedPlane alone.
pub const ALONE: Systems = Systems(&[&RedPlane]);

impl System for RedPlane {
    fn extern_types(&self) -> &'static [&'static str] {
        EXTERN_TYPES
    }

    fn rules(&self) -> &'static [Rule] {
        contracts::RULES
    }

    fn headers(&self) -> &'static [Header] {
        HEADERS
    }

    fn program_names(&self) -> &'static [&'static str] {
        &[
            "sp_again",
            "sp_receive",
            "sp_send",
            "sp_sweep",
            "sp_commit",
            "sp_batch",
            "sp_batch_ack",
            "sp_loop",
        ]
    }

    fn own_functions(&self) -> &'static [&'static str] {
        // Of stateplane_flow_tag.h and stateplane_flow_send.h: only `sp_send` and `sp_receive` call
        // them.
        &["sp_tag", "sp_tag_chunk", "sp_flow_move_chunk"]
    }

    fn begin(&self) -> Box<dyn StateSystem> {
        Box::new(State::default())
    }
}

/// The objects of one program, and what it does with them.
#[derive(Default)]
struct State {
    flows: Vec<FlowObject>,
    snapshots: Vec<SnapshotObject>,
    /// Does the program call `set`? Then a conflict between CPUs can make it run again on the same
    /// packet.
    flow_sets: bool,
    /// The `set`s of a packet take effect at its end; none before the first object is declared.
    sets_at_the_end: Option<bool>,
    /// A bit for each object that is `set`, by its number.
    set_objects: u64,
    /// A packet sets flows of several LINEARIZABLE objects, which are one update.
    groups: bool,
    /// The program calls `phase`.
    flow_phases: bool,
}

impl State {
    fn has_objects(&self) -> bool {
        !self.flows.is_empty() || !self.snapshots.is_empty()
    }

    /// The C statement by which a packet's `set`s take effect, where they wait for its end.
    fn take_effect(&self) -> Option<&'static str> {
        (self.sets_at_the_end == Some(true) && self.flow_sets)
            .then_some("if (sp_flow_set_staged(&flow)) return sp_flow_park(xdp, &flow);")
    }

    /// A bit for each object whose sets are one update with those of others, by its number.
    fn grouped(&self) -> u64 {
        let waits = |flow: &&FlowObject| self.groups && flow.consistency.updates_wait();
        let bits = self.flows.iter().filter(waits).map(|flow| 1 << (flow.object_id & 63));
        self.set_objects & bits.fold(0, |all, bit: u64| all | bit)
    }

    /// Do messages come in for the program's objects?
    fn has_messages(&self) -> bool {
        self.replicated() || self.takes_snapshots()
    }
}

impl StateSystem for State {
    fn declare(&mut self, generator: &mut Generator<'_>, instance: &ExternInstance, id: u16) {
        if self.sets_at_the_end.is_none() {
            self.sets_at_the_end = Some(contracts::sets_at_the_end(generator.program));
            self.groups = contracts::sets_together(generator.program);
        }
        match instance.extern_type.as_str() {
            FLOW_STATE => self.declare_flow_state(generator, instance, id),
            _ => self.declare_snapshot_state(generator, instance, id),
        }
    }

    fn call(&mut self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        match call.instance.extern_type.as_str() {
            FLOW_STATE => self.flow_call(generator, call),
            _ => self.snapshot_call(generator, call),
        }
    }

    fn check(&self, generator: &mut Generator<'_>) {
        self.note_groups(generator);
        self.check_flow_calls(generator);
        self.check_snapshot_calls(generator);
        for broken in contracts::check(generator.program) {
            let message = broken.message(generator.program);
            generator.error_beside(
                broken.location,
                &message,
                Some(broken.rule.remedy),
                broken.note(),
            );
        }
    }

    fn map_count(&self, instance: &ExternInstance) -> usize {
        // Objects in the store need more maps for the runtime; what that comes to is the verifier's
        // word.
        let in_map =
            |flow: &FlowObject| flow.c_name != instance.c_name || !flow.consistency.is_replicated();
        usize::from(self.flows.iter().all(in_map))
    }

    fn switch_id(&self) -> Option<&'static str> {
        self.has_objects().then_some("sp_flow_switch_id()")
    }

    fn includes(&self, text: &mut Writer) {
        if !self.has_objects() {
            return;
        }
        text.line("/* name, object id, size, key bytes, value bytes, consistency, allocator */");
        let objects: Vec<String> = self
            .flows
            .iter()
            .map(|f| {
                format!(
                    "X({}, {}, {}, {}, {}, {}, {})",
                    f.c_name,
                    f.object_id,
                    f.size,
                    f.key_bytes,
                    f.value_bytes,
                    f.consistency as u32,
                    f.allocator
                )
            })
            .collect();
        text.line(format!("#define SP_FLOW_OBJECTS(X) {}", objects.join(" ")));
        for line in self.rooms() {
            text.line(line);
        }
        let shards: Vec<String> = self
            .flows
            .iter()
            .filter_map(|flow| {
                Some(format!("(id) == {} ? {} : ", flow.object_id, flow.shard_bytes?))
            })
            .collect();
        if !shards.is_empty() {
            text.line("/* shard_fields: bytes of a key that pick its shard */");
            text.line(format!("#define SP_FLOW_SHARD_BYTES(id, kb) ({}(kb))", shards.concat()));
        }
        if !self.snapshots.is_empty() {
            text.line("/* name, object id, instances, key bytes, slots, width, slot bytes, period in us, epsilon in us, overdue */");
            text.line(format!("#define SP_SNAPSHOT_OBJECTS(X) {}", self.snapshot_list()));
        }
        if self.flow_sets {
            text.line("#define SP_FLOW_HAS_SET");
        }
        if self.take_effect().is_some() {
            text.line(format!("#define SP_FLOW_STAGED {:#x}ull", self.set_objects));
        }
        let grouped = self.grouped();
        if grouped != 0 {
            text.line("/* LINEARIZABLE objects: what a packet sets in several is one update */");
            text.line(format!("#define SP_FLOW_GROUPED {grouped:#x}ull"));
        }
        if self.flow_phases {
            text.line("#define SP_FLOW_HAS_PHASE");
        }
        if self.flow_sets && self.replicated() {
            text.line("#define SP_FLOW_HAS_COMMIT");
        }
        text.line("#include \"stateplane_flow.h\"");
        text.line("");
    }

    fn receive(&self, text: &mut Writer) {
        if self.has_messages() {
            text.line("int sp_received = sp_flow_receive(xdp);");
            text.line("if (sp_received != -1) return sp_received;");
        }
    }

    fn context(&self) -> Option<Context> {
        self.has_objects().then_some(CONTEXT)
    }

    fn before_deparser(&self) -> Option<String> {
        self.take_effect().map(str::to_owned)
    }

    fn before_verdict(&self, leaving: Leaving<'_>) -> Option<String> {
        let take_effect = match leaving {
            // It has: before the deparser.
            Leaving::Forward(_) => None,
            // This packet enters the program again, from its beginning.
            Leaving::Held => None,
            Leaving::Drop | Leaving::ToHost | Leaving::Replaced => self.take_effect(),
        };
        let port = match leaving {
            Leaving::Forward(port) => port,
            // The update must still be sent; the packet itself cannot wait for it.
            Leaving::Drop | Leaving::ToHost | Leaving::Replaced | Leaving::Held => "SP_DROP_PORT",
        };
        let finish = || format!("if (flow.kind == 2) return sp_flow_finish(xdp, &flow, {port});");
        let finish = self.replicated().then(finish);
        let lines: Vec<String> = take_effect.map(str::to_owned).into_iter().chain(finish).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn to_host(&self) -> Option<&'static str> {
        self.has_messages().then_some("sp_flow_to_host(xdp, &flow, ingress_port)")
    }

    fn generated(&self) -> Option<&'static str> {
        self.has_objects().then_some("sp_flow_generated")
    }

    fn programs(&self, text: &mut Writer, pipeline: &Pipeline) {
        if !self.has_objects() {
            return;
        }
        text.line("");
        text.line("/* The same for a packet that was here before: it comes back from the store, or another CPU changed its flow meanwhile. */");
        text.line("SEC(\"xdp.frags\")");
        text.line("int sp_again(struct xdp_md *xdp)");
        text.line("{");
        text.line("struct sp_flow_context flow = {};");
        text.line("if (sp_flow_resumed(&flow)) return XDP_ABORTED;");
        pipeline.enter_again(text, CONTEXT.name, "flow.ingress_port");
        text.line("}");
    }
}

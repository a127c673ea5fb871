//! A toy system, a counter that gossips: it plugs in by the public names alone.
#![allow(dead_code, reason = "each test uses its part")]

use manifest::{Home, Layout, Settings, StateObject};
use p4_ir::{Argument, ExternInstance, Program};
use xdp_backend::system::{
    Context, Generator, Header, Leaving, ObjectCall, Pipeline, Rule, StateSystem, System, Systems,
    Writer,
};
use xdp_backend::{Generated, Options, Placement, compile};

struct Gossip;

#[derive(Default)]
struct Counters {
    names: Vec<String>,
    adds: bool,
}

/// What the toy's runtime is: a map of counts, and a message that raises one.
const RUNTIME: &str = "\
struct toy_context { __u32 port; __u32 raised; };
#define TOY_DECLARE(name) struct { \\
	__uint(type, BPF_MAP_TYPE_ARRAY); __type(key, __u32); __type(value, __u64); \\
	__uint(max_entries, 16); } name SEC(\".maps\");
TOY_OBJECTS(TOY_DECLARE)
SP_INLINE int toy_receive(struct xdp_md *xdp) { return xdp->rx_queue_index == 0xffff ? XDP_DROP : -1; }
SP_INLINE int toy_send(struct toy_context *toy) { return toy->raised > 1000 ? XDP_ABORTED : -1; }
";

const CONTEXT: Context =
    Context { ty: "struct toy_context", name: "toy", initial: "{ .port = ingress_port }" };

impl System for Gossip {
    fn extern_types(&self) -> &'static [&'static str] {
        &["ToyCounter"]
    }

    fn rules(&self) -> &'static [Rule] {
        const RULES: &[Rule] = &[Rule {
            id: "toy-add",
            broken: "never added to",
            remedy: "add to it",
            note: None,
            on_any_path: false,
        }];
        RULES
    }

    fn headers(&self) -> &'static [Header] {
        &[("toy.h", RUNTIME)]
    }

    fn program_names(&self) -> &'static [&'static str] {
        &["toy_again"]
    }

    fn own_functions(&self) -> &'static [&'static str] {
        &[]
    }

    fn begin(&self) -> Box<dyn StateSystem> {
        Box::new(Counters::default())
    }
}

impl StateSystem for Counters {
    fn declare(&mut self, generator: &mut Generator<'_>, instance: &ExternInstance, id: u16) {
        let capacity = generator.size_of(instance);
        // As the smallest object that is too large by one.
        let bytes = if instance.name.ends_with("huge") { (1 << 26) + 1 } else { 8 };
        generator.manifest.state_objects.push(StateObject {
            id,
            name: instance.name.clone(),
            system: "toy".into(),
            kind: instance.extern_type.clone(),
            map: instance.c_name.clone(),
            slots_map: None,
            capacity,
            home: Home::Peers,
            key: vec![],
            key_bytes: 0,
            value: Layout::Fields { fields: vec![], bytes, offset: 0 },
            settings: Settings::new(),
        });
        self.names.push(instance.c_name.clone());
    }

    fn call(&mut self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        let Some(Argument::In(index)) = call.arguments.first() else { return };
        let index = generator.map_index(index);
        generator.open("");
        generator.out.line(format!(
            "__u64 *toy_count = bpf_map_lookup_elem(&{}, &{index});",
            call.instance.c_name
        ));
        generator.out.line("if (toy_count) *toy_count += 1;");
        generator.out.line("toy.raised += 1;");
        generator.out.line("}");
        self.adds = true;
    }

    fn check(&self, generator: &mut Generator<'_>) {
        if !self.names.is_empty() && !self.adds {
            let program = generator.program;
            let object =
                program.externs.iter().find(|it| it.extern_type == "ToyCounter").expect("declared");
            generator.error(object.location, "ToyCounter: never added to", None);
        }
    }

    fn map_count(&self, _: &ExternInstance) -> usize {
        1
    }

    fn switch_id(&self) -> Option<&'static str> {
        (!self.names.is_empty()).then_some("77")
    }

    fn includes(&self, text: &mut Writer) {
        if !self.names.is_empty() {
            let objects: Vec<String> = self.names.iter().map(|name| format!("X({name})")).collect();
            text.line(format!("#define TOY_OBJECTS(X) {}", objects.join(" ")));
            text.line("#include \"toy.h\"");
        }
    }

    fn receive(&self, text: &mut Writer) {
        if !self.names.is_empty() {
            text.line("int toy_received = toy_receive(xdp);");
            text.line("if (toy_received != -1) return toy_received;");
        }
    }

    fn context(&self) -> Option<Context> {
        (!self.names.is_empty()).then_some(CONTEXT)
    }

    fn before_verdict(&self, leaving: Leaving<'_>) -> Option<String> {
        let waits = !self.names.is_empty() && matches!(leaving, Leaving::Forward(_));
        waits.then(|| "if (toy_send(&toy) != -1) return XDP_ABORTED;".into())
    }

    fn to_host(&self) -> Option<&'static str> {
        None
    }

    fn generated(&self) -> Option<&'static str> {
        None
    }

    fn programs(&self, text: &mut Writer, pipeline: &Pipeline) {
        if self.names.is_empty() {
            return;
        }
        text.line("SEC(\"xdp.frags\")");
        text.line("int toy_again(struct xdp_md *xdp)");
        text.line("{");
        text.line("struct toy_context toy = {};");
        pipeline.enter_again(text, CONTEXT.name, "toy.port");
        text.line("}");
    }
}

/// The toy and no other system.
pub static ALONE: &[&dyn System] = &[&Gossip];

/// A program with `objects` in its ingress, which does `apply`.
pub fn program(objects: &str, apply: &str) -> Program {
    let text = format!(
        "#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
extern ToyCounter {{ ToyCounter(bit<32> size); void add(in bit<32> index); }}
header h_t {{ bit<32> a; }}
struct hs {{ h_t h; }}
struct m_t {{ }}
struct k_t {{ bit<32> k; }}
struct v_t {{ bit<32> v; }}
parser P(packet_in p, out hs hdr, inout m_t m, inout standard_metadata_t s) {{
    state start {{ p.extract(hdr.h); transition accept; }}
}}
control VC(inout hs hdr, inout m_t m) {{ apply {{ }} }}
control I(inout hs hdr, inout m_t m, inout standard_metadata_t s) {{
    {objects}
    apply {{ v_t v = {{ 0 }}; {apply} s.egress_spec = 1; }}
}}
control E(inout hs hdr, inout m_t m, inout standard_metadata_t s) {{ apply {{ }} }}
control D(packet_out p, in hs hdr) {{ apply {{ p.emit(hdr.h); }} }}
V1Switch(P(), VC(), I(), E(), VC(), D()) main;
"
    );
    let outcome = p4_check::check_source("toy.p4", &text, &p4_syntax::Options::default());
    outcome.program.clone().unwrap_or_else(|| panic!("{}", outcome.render(false)))
}

pub fn options(systems: Systems) -> Options {
    Options { program_name: "toy.p4".into(), ..Options::new(systems) }
}

/// Compiles with clang, too.
pub fn compiled(systems: Systems, objects: &str, apply: &str) -> Generated {
    let folder = tempfile::tempdir().expect("folder");
    let object = folder.path().join("toy.o");
    let made = compile(&program(objects, apply), &options(systems), &object)
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(made.placement, Placement::Registers);
    made.generated
}

pub const TOY: &str = "ToyCounter(16) toy;";
pub const ADD: &str = "toy.add(hdr.h.a);";

//! A toy second system, a counter that gossips, proves that the seam holds: beside the systems of
//! the registry, and alone.

use manifest::Manifest;
use p4_ir::{Argument, ExternInstance, Program};
use xdp_backend::system::{
    Context, Generator, Header, Leaving, ObjectCall, Pipeline, Rule, StateSystem, System, Systems, Writer,
};
use xdp_backend::{Generated, Options, Placement, compile, generate, write_headers};

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

const CONTEXT: Context = Context { ty: "struct toy_context", name: "toy", initial: "{ .port = ingress_port }" };

impl System for Gossip {
    fn extern_types(&self) -> &'static [&'static str] {
        &["ToyCounter"]
    }

    fn rules(&self) -> &'static [Rule] {
        const RULES: &[Rule] =
            &[Rule { id: "toy-add", broken: "never added to", remedy: "add to it", note: None, on_any_path: false }];
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
    fn declare(&mut self, generator: &mut Generator<'_>, instance: &ExternInstance) {
        generator.size_of(instance);
        self.names.push(instance.c_name.clone());
    }

    fn call(&mut self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        let Some(Argument::In(index)) = call.arguments.first() else { return };
        let index = generator.map_index(index);
        generator.open("");
        generator.out.line(format!("__u64 *toy_count = bpf_map_lookup_elem(&{}, &{index});", call.instance.c_name));
        generator.out.line("if (toy_count) *toy_count += 1;");
        generator.out.line("toy.raised += 1;");
        generator.out.line("}");
        self.adds = true;
    }

    fn check(&self, generator: &mut Generator<'_>) {
        if !self.names.is_empty() && !self.adds {
            let program = generator.program;
            let object = program.externs.iter().find(|it| it.extern_type == "ToyCounter").expect("declared");
            generator.error(object.location, "ToyCounter: never added to", None);
        }
    }

    fn map_size(&self, _: &Manifest, instance: &ExternInstance) -> Option<(u32, u64)> {
        // As the smallest object that is too large by one.
        let entry = if instance.name.ends_with("huge") { (1 << 26) + 1 } else { 8 };
        self.names.contains(&instance.c_name).then_some((16, entry))
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

static ALONE: &[&dyn System] = &[&Gossip];

/// The registry's systems and the toy.
fn with_others() -> Systems {
    let all: Vec<&'static dyn System> = Systems::ALL.0.iter().copied().chain(ALONE.iter().copied()).collect();
    Systems(Vec::leak(all))
}

/// A program with `objects` in its ingress, which does `apply`.
fn program(objects: &str, apply: &str) -> Program {
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

fn options(systems: Systems) -> Options {
    Options { program_name: "toy.p4".into(), systems, ..Options::default() }
}

/// Compiles with clang, too.
fn compiled(systems: Systems, objects: &str, apply: &str) -> Generated {
    let folder = tempfile::tempdir().expect("folder");
    let object = folder.path().join("toy.o");
    let made = compile(&program(objects, apply), &options(systems), &object).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(made.placement, Placement::Registers);
    made.generated
}

const TOY: &str = "ToyCounter(16) toy;";
const ADD: &str = "toy.add(hdr.h.a);";

#[test]
fn each_place_has_what_a_system_emits() {
    let c = compiled(Systems(ALONE), TOY, &format!("{ADD} hdr.h.a = switch_id();")).c_source;
    let once = |part: &str| assert_eq!(c.matches(part).count(), 1, "{part} in:\n{c}");
    once("#include \"toy.h\"");
    once("__u32 sp_bytes, struct toy_context toy)");
    once("toy.raised += 1;");
    once("= 77;");
    once("if (toy_send(&toy) != -1) return XDP_ABORTED;");
    once("return sp_pipeline(xdp, toy.port, sp_length(xdp), toy);");
    let at = |part: &str| c.find(part).unwrap_or_else(|| panic!("no {part} in:\n{c}"));
    assert!(at("toy_send(&toy)") < at("return sp_forward("), "{c}");
    assert!(at("int toy_received") < at("struct toy_context toy = { .port = ingress_port };"), "{c}");
    assert!(at("return sp_pipeline(xdp, ingress_port, sp_bytes, toy);") < at("int toy_again("), "{c}");
}

#[test]
fn a_system_that_a_program_does_not_use_leaves_no_trace() {
    let plain = |systems| compiled(systems, "counter(16, CounterType.packets) c;", "c.count(hdr.h.a);").c_source;
    let c = plain(Systems::NONE);
    assert_eq!(plain(Systems(ALONE)), c);
    assert_eq!(plain(with_others()), c);
}

#[test]
fn two_systems_in_one_program() {
    let flow = "FlowState<k_t, v_t>(16, Consistency.LINEARIZABLE, Allocator.ZERO) f;";
    let get = "if (f.get({ hdr.h.a }, v) == StateResult.HIT) { f.set({ hdr.h.a }, v); }";
    let c = compiled(with_others(), &format!("{flow} {TOY}"), &format!("{get} {ADD}")).c_source;
    assert!(c.contains("flow, struct toy_context toy)"), "{c}");
    // Each gives the other's context anew to a packet that enters again.
    assert_eq!(c.matches("__u32 ingress_port = toy.port;").count(), 1, "{c}");
    assert_eq!(c.matches("struct toy_context toy = { .port = ingress_port };").count(), 2, "{c}");
}

#[test]
fn a_system_refuses() {
    let refused = |systems, objects: &str, apply: &str| -> Vec<String> {
        let errors = generate(&program(objects, apply), &options(systems)).err().unwrap_or_default();
        errors.into_iter().map(|error| error.message).collect()
    };
    assert_eq!(refused(Systems(ALONE), TOY, ""), ["ToyCounter: never added to"]);
    assert_eq!(refused(Systems(ALONE), "ToyCounter(0) toy;", ADD).len(), 1);
    let huge = refused(Systems(ALONE), "ToyCounter(16) huge;", "huge.add(hdr.h.a);");
    assert!(huge.len() == 1 && huge[0].contains("a map may have 1024"), "{huge:?}");
    let unknown = "extern ToyCounter is not supported by the XDP target yet";
    assert_eq!(refused(Systems::NONE, TOY, ADD), [unknown]);
    assert_eq!(refused(Systems::ALL, TOY, ADD), [unknown]);
    assert!(with_others().rules().any(|rule| rule.id == "toy-add"));
}

#[test]
fn headers_come_from_systems() {
    let folder = tempfile::tempdir().expect("folder");
    write_headers(folder.path(), Systems(ALONE)).expect("headers");
    let names: Vec<_> = std::fs::read_dir(folder.path()).expect("folder").flatten().map(|it| it.file_name()).collect();
    assert!(names.iter().any(|name| name == "toy.h") && names.iter().any(|name| name == "stateplane_xdp.h"));
    let of_others = |name: &str| Systems::ALL.0.iter().flat_map(|system| system.headers()).any(|it| it.0 == name);
    assert!(!names.iter().any(|name| of_others(&name.to_string_lossy())));
}

/// No file of the crate but those of a system names the system, or what is the system's: its extern
/// types, its headers, the programs and functions of its runtime. The registry has its name.
#[test]
fn no_system_leaks() {
    let mut words: Vec<String> = Vec::new();
    for system in Systems::ALL.0 {
        words.extend(system.extern_types().iter().map(|name| name.to_string()));
        words.extend(system.headers().iter().map(|(name, _)| name.to_string()));
        // Quoted: some are the beginnings of other names.
        words.extend(system.program_names().iter().chain(system.own_functions()).map(|name| format!("\"{name}\"")));
    }
    words.extend(["sp_flow_", "sp_snapshot_", "SP_FLOW_", "SP_SNAPSHOT_", "flow.kind"].map(str::to_owned));
    let systems = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/systems")).expect("systems").flatten();
    let names: Vec<String> = systems
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().to_lowercase()))
        .collect();
    assert!(!names.is_empty());
    let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).expect("folder").flatten().map(|entry| entry.path()) {
            if path.ends_with("src/systems") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("source");
            let text = if path.ends_with("src/systems.rs") { String::new() } else { text };
            let lower = text.to_lowercase();
            let named = names.iter().find(|name| lower.contains(name.as_str()));
            assert_eq!(named, None, "{} names a system", path.display());
            let found: Vec<_> = words.iter().filter(|word| text.contains(word.as_str())).collect();
            assert!(found.is_empty(), "{} names {found:?}, which belong to a system", path.display());
            read += 1;
        }
    }
    assert!(read > 30, "{read} files");
}

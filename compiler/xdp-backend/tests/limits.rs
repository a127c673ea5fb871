//! What is too large for the kernel or the protocol is an error with its place.

use p4_ir::Program;
use std::path::Path;
use xdp_backend::{BackendError, CompileError, Compiled, Options};

/// A program with `objects` in its ingress, which does `apply`.
fn program(objects: &str, apply: &str) -> Program {
    checked(&source(objects, apply))
}

fn source(objects: &str, apply: &str) -> String {
    format!(
        "#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
header h_t {{ bit<8> a; }}
struct hs {{ h_t h; }}
struct m_t {{ }}
struct k_t {{ bit<8> k; }}
struct v_t {{ bit<32> v; }}
struct wide_t {{ bit<128> a; bit<128> b; bit<128> c; bit<56> d; }}
struct wider_t {{ bit<128> a; bit<128> b; bit<128> c; bit<64> d; }}
parser P(packet_in p, out hs hdr, inout m_t m, inout standard_metadata_t s) {{ state start {{ p.extract(hdr.h); transition accept; }} }}
control VC(inout hs hdr, inout m_t m) {{ apply {{ }} }}
control I(inout hs hdr, inout m_t m, inout standard_metadata_t s) {{
{objects}
apply {{ v_t x = {{ 0 }}; v_t y = {{ 0 }}; wide_t w = {{ 0, 0, 0, 0 }}; wider_t ww = {{ 0, 0, 0, 0 }}; {apply} s.egress_spec = 1; }} }}
control E(inout hs hdr, inout m_t m, inout standard_metadata_t s) {{ apply {{ }} }}
control D(packet_out p, in hs hdr) {{ apply {{ p.emit(hdr.h); }} }}
V1Switch(P(), VC(), I(), E(), VC(), D()) main;
"
    )
}

fn checked(text: &str) -> Program {
    let outcome = p4_check::check_source("limits.p4", text, &p4_syntax::Options::default());
    outcome.program.clone().unwrap_or_else(|| panic!("{}", outcome.render(false)))
}

/// Errors of such a program.
fn errors(objects: &str, apply: &str) -> Vec<BackendError> {
    xdp_backend::generate(&program(objects, apply), &Options::default()).err().unwrap_or_default()
}

/// Compiles such a program to an object in a folder.
fn compile(folder: &Path, objects: &str, apply: &str) -> Result<Compiled, CompileError> {
    xdp_backend::compile(&program(objects, apply), &Options::default(), &folder.join("x.o"))
}

const OBJECTS_LINE: u32 = 14;

fn one_error(objects: &str, apply: &str, line: u32, part: &str) {
    let errors = errors(objects, apply);
    assert!(
        errors.len() == 1 && errors[0].location.line == line && errors[0].message.contains(part),
        "{objects} {apply}: {errors:?}"
    );
}

#[test]
fn maps_of_more_than_a_gibibyte() {
    let read = "bit<8> r; big.read(r, 0);";
    one_error("register<bit<8>>(2000000000) big;", "", OBJECTS_LINE, "I.big: 2000000000 elements");
    assert_eq!(errors("register<bit<8>>(134217728) big;", read), []);
    one_error("counter(134217728, CounterType.packets) c;", "", OBJECTS_LINE, "I.c");
    let table =
        |size: u64| format!("table t {{ key = {{ hdr.h.a: exact; }} actions = {{ NoAction; }} size = {size}; }}");
    one_error(&table(2_000_000_000), "t.apply();", OBJECTS_LINE, "I.t: 2000000000");
    one_error(&table(20_000_000_000), "t.apply();", OBJECTS_LINE, "I.t: 20000000000");
    assert_eq!(errors(&table(1_000_000), "t.apply();"), []);
    let flows = "FlowState<k_t, v_t>(100000000, Consistency.LOCAL, Allocator.ZERO) f;";
    one_error(flows, "f.get_or_allocate({ 1 }, x);", OBJECTS_LINE, "I.f: 100000000");
}

#[test]
fn flow_states_that_no_message_can_carry() {
    let object = |name: &str, value: &str, consistency: &str| {
        format!("FlowState<k_t, {value}>(16, Consistency.{consistency}, Allocator.ZERO) {name};")
    };
    let (a, b) = (object("a", "v_t", "LINEARIZABLE"), object("b", "v_t", "LINEARIZABLE"));
    let both = format!("{a} {b}");
    let get = "a.get_or_allocate({ 1 }, x); b.get_or_allocate({ 2 }, y);";
    let apply = OBJECTS_LINE + 1;
    one_error(&a, "a.set({ 1 }, x);", apply, "never gets");
    one_error(&object("a", "v_t", "LOCAL"), "a.set({ 1 }, x);", apply, "never gets");
    assert_eq!(errors(&a, "a.get({ 1 }, x); a.set({ 1 }, x);"), []);
    assert_eq!(errors(&both, &format!("{get} b.set({{ 2 }}, y);")), []);
    let sets = "if (hdr.h.a == 1) { a.set({ 1 }, x); } else { b.set({ 2 }, y); }";
    one_error(&both, &format!("{get} {sets}"), apply, "I.b beside I.a");
    let mixed = format!("{a} {}", object("b", "v_t", "LOCAL"));
    assert_eq!(errors(&mixed, &format!("{get} {sets}")), []);
    // 56 bytes of key and 55 of value are one more than fit.
    let wide = |key: &str, consistency: &str| {
        format!("FlowState<{key}, wide_t>(16, Consistency.{consistency}, Allocator.ZERO) f;")
    };
    assert_eq!(errors(&wide("wide_t", "LINEARIZABLE"), "f.get(w, w);"), []);
    one_error(&wide("wider_t", "LINEARIZABLE"), "f.get(ww, w);", OBJECTS_LINE, "110 bytes together, not 111");
    assert_eq!(errors(&wide("wider_t", "LOCAL"), "f.get(ww, w);"), []);
}

/// In keys and in values.
#[test]
fn fields_and_switches_of_more_than_128_bits() {
    let types = "struct huge_t { bit<129> x; bit<8> y; } enum e_t { A, B } struct named_t { e_t e; }";
    let flows = |key: &str, value: &str, apply: &str| {
        let object = format!("FlowState<{key}, {value}>(16, Consistency.LOCAL, Allocator.ZERO) f;");
        let text = source(&object, apply).replacen("struct m_t", &format!("{types} struct m_t"), 1);
        xdp_backend::generate(&checked(&text), &Options::default()).err().unwrap_or_default()
    };
    let said =
        |errors: &[BackendError]| errors.iter().filter(|error| error.message.contains("field x has 129 bits")).count();
    let value = flows("k_t", "huge_t", "huge_t h; if (f.get({ 1 }, h) == StateResult.HIT) { f.set({ 1 }, h); }");
    assert_eq!((value.len(), said(&value)), (1, 1), "{value:?}");
    let key = flows("huge_t", "v_t", "f.get({ 1, 2 }, x);");
    assert_eq!((key.len(), said(&key)), (1, 1), "{key:?}");

    let named = flows("k_t", "named_t", "named_t h; f.get({ 1 }, h); if (h.e == e_t.B) { f.set({ 1 }, h); }");
    assert_eq!(named, []);

    let apply = OBJECTS_LINE + 1;
    let wide = "bit<129> n; n[7:0] = hdr.h.a;";
    one_error("", &format!("{wide} switch (n) {{ 5: {{ x.v = 1; }} }}"), apply, "wider than 128 bits");
    let narrow = format!("{} switch (n) {{ 5: {{ x.v = 1; }} }}", wide.replace("129", "128"));
    assert_eq!(errors("", &narrow), []);
    let text = source("", "bit<256> n; n[7:0] = hdr.h.a; e_t e = (e_t)n; switch (e) { e_t.A: { x.v = 1; } }");
    let text = text.replacen("struct m_t", "enum bit<256> e_t { A = 0, B = 1 } struct m_t", 1);
    let errors = xdp_backend::generate(&checked(&text), &Options::default()).err().unwrap_or_default();
    assert!(errors.len() == 1 && errors[0].message.contains("wider than 128 bits"), "{errors:?}");
}

#[test]
fn windows_of_more_slots_than_one_packet_sets_to_zero() {
    let object =
        |slots: u32| format!("SnapshotState<k_t, bit<32>>(16, {slots}, 1000, 100000, Overdue.CONTINUE) sketch;");
    let (begin, apply) = ("sketch.begin({ 1 }, 7);", OBJECTS_LINE + 1);
    assert_eq!(errors(&object(4096), begin), []);
    assert_eq!(errors(&object(4097), "bit<32> v; sketch.read({ 1 }, 0, v);"), []);
    one_error(&object(4097), begin, apply, "2 to 4096 slots, not 4097");
    one_error(&object(1), begin, apply, "2 to 4096 slots, not 1");
}

/// A direct counter belongs to one table, and counts in its actions only.
#[test]
fn direct_counters_of_other_tables() {
    let program = |one: &str, two: &str| {
        format!(
            "direct_counter(CounterType.packets) c; action counts() {{ c.count(); }} action nothing() {{ }}
             table t {{ key = {{ hdr.h.a: exact; }} actions = {{ counts; nothing; }} {one} }}
             table u {{ key = {{ hdr.h.a: exact; }} actions = {{ nothing; {two} }}"
        )
    };
    let apply = "t.apply(); u.apply();";
    let counters = "counters = c;";
    assert_eq!(errors(&program(counters, "}"), apply), []);
    one_error(&program(counters, "} counters = c;"), apply, OBJECTS_LINE + 2, "belongs to another table already");
    one_error(&program(counters, "counts; }"), apply, OBJECTS_LINE, "counts in an action of I.u, another table");
}

#[test]
fn entries_of_more_constants_than_a_kernel_takes() {
    let table = |count: u32| {
        let entry = |at| format!("({at}, 0, 0, 0) : NoAction();\n");
        let (keys, entries) =
            ("k: range; w.a: range; w.b: range; w.c: range;", (0..count).map(entry).collect::<String>());
        format!(
            "bit<32> k = 0; wide_t w; table t {{ key = {{ {keys} }} actions = {{ NoAction; }} const entries = {{ {entries} }} }}"
        )
    };
    assert_eq!(errors(&table(2_000), "t.apply();"), []);
    one_error(&table(30_000), "t.apply();", OBJECTS_LINE, "I.t: 30000 const entries take more than 4032 KiB");
}

#[test]
fn entries_that_the_program_brings_and_its_table_cannot_hold() {
    let table = |keys: &str, entries: &str, more: &str| {
        format!("table t {{ key = {{ {keys} }} actions = {{ NoAction; }} {more}\nentries = {{\n{entries} }} }}")
    };
    let exact = |entries| table("hdr.h.a: exact;", entries, "size = 2;");
    one_error(
        &exact("1: NoAction();\n2: NoAction();\n3: NoAction();"),
        "t.apply();",
        OBJECTS_LINE + 4,
        "its size is 2",
    );
    assert_eq!(errors(&exact("1: NoAction();\n2: NoAction();"), "t.apply();"), []);
    // 64 masks, then entries of masks that are there, then one more mask.
    let wide = "hdr.h.a: ternary; hdr.h.a ++ hdr.h.a: ternary;";
    let masks = |count: u32| (1..=count).map(|mask| format!("(0 &&& {mask}, 5): NoAction();\n")).collect::<String>();
    let known = format!("{}(_, 6): NoAction();\n(0 &&& 1, 7): NoAction();\n", masks(63));
    assert_eq!(errors(&table(wide, &known, ""), "t.apply();"), []);
    let one_more = format!("{known}(0 &&& 70, 7): NoAction();");
    one_error(&table(wide, &one_more, ""), "t.apply();", OBJECTS_LINE + 67, "more than 64 different masks");
}

#[test]
fn more_maps_than_a_program_gets() {
    let registers = |count: u32| (0..count).map(|at| format!("register<bit<8>>(1) r{at};\n")).collect::<String>();
    let reads =
        |count: u32| format!("bit<8> v; {}", (0..count).map(|at| format!("r{at}.read(v, 0);")).collect::<String>());
    assert_eq!(errors(&registers(56), &reads(56)), []);
    assert_eq!(errors(&registers(90), &reads(56)), [], "what is not used needs no map");
    one_error(&registers(57), &reads(57), OBJECTS_LINE + 56, "register I.r56 is one too many");
    // A ternary table with a default action that can be changed: three maps.
    let table = "table t { key = { hdr.h.a: ternary; } actions = { NoAction; } }";
    assert_eq!(errors(&format!("{}{table}", registers(53)), &format!("{} t.apply();", reads(53))), []);
    one_error(
        &format!("{}{table}", registers(54)),
        &format!("{} t.apply();", reads(54)),
        OBJECTS_LINE + 54,
        "table I.t is one too many: the tables and objects of the program need 57 maps",
    );
}

#[test]
fn more_stack_than_bpf_has() {
    let folder = tempfile::tempdir().expect("folder");
    let keys: String = (0..40).map(|at| format!("w.a + {at}: exact; ")).collect();
    let table =
        format!("table t {{ key = {{ {keys} }} actions = {{ NoAction; }} }}").replace("w.a", "(bit<128>)hdr.h.a");
    match compile(folder.path(), &table, "t.apply();") {
        Err(CompileError::Unsupported(errors)) => assert!(
            errors.len() == 1 && errors[0].message.contains("512 bytes of stack") && errors[0].location.line > 1,
            "{errors:?}"
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_folder_that_is_not_there_is_no_fault_of_the_compiler() {
    match compile(Path::new("/nowhere"), "", "") {
        Err(CompileError::File { path, source }) => {
            assert_eq!((path.as_path(), source.kind()), (Path::new("/nowhere/x.o"), std::io::ErrorKind::NotFound));
        }
        other => panic!("{other:?}"),
    }
}

//! What is too large for the kernel is an error with its place.

mod limits_rig;

use limits_rig::{OBJECTS_LINE, checked, compile, source};
use std::path::Path;
use xdp_backend::{BackendError, CompileError, Options, Systems};

fn errors(objects: &str, apply: &str) -> Vec<BackendError> {
    limits_rig::errors(Systems::NONE, objects, apply)
}

#[track_caller]
fn one_error(objects: &str, apply: &str, line: u32, part: &str) {
    limits_rig::one_error(Systems::NONE, objects, apply, line, part);
}

#[test]
fn maps_of_more_than_a_gibibyte() {
    let read = "bit<8> r; big.read(r, 0);";
    one_error("register<bit<8>>(2000000000) big;", "", OBJECTS_LINE, "I.big: 2000000000 elements");
    assert_eq!(errors("register<bit<8>>(134217728) big;", read), []);
    one_error("counter(134217728, CounterType.packets) c;", "", OBJECTS_LINE, "I.c");
    let table = |size: u64| {
        format!(
            "table t {{ key = {{ hdr.h.a: exact; }} actions = {{ NoAction; }} size = {size}; }}"
        )
    };
    one_error(&table(2_000_000_000), "t.apply();", OBJECTS_LINE, "I.t: 2000000000");
    one_error(&table(20_000_000_000), "t.apply();", OBJECTS_LINE, "I.t: 20000000000");
    assert_eq!(errors(&table(1_000_000), "t.apply();"), []);
}

#[test]
fn switches_of_more_than_128_bits() {
    let apply = OBJECTS_LINE + 1;
    let wide = "bit<129> n; n[7:0] = hdr.h.a;";
    one_error(
        "",
        &format!("{wide} switch (n) {{ 5: {{ x.v = 1; }} }}"),
        apply,
        "wider than 128 bits",
    );
    let narrow = format!("{} switch (n) {{ 5: {{ x.v = 1; }} }}", wide.replace("129", "128"));
    assert_eq!(errors("", &narrow), []);
    let text = source(
        "",
        "bit<256> n; n[7:0] = hdr.h.a; e_t e = (e_t)n; switch (e) { e_t.A: { x.v = 1; } }",
    );
    let text = text.replacen("struct m_t", "enum bit<256> e_t { A = 0, B = 1 } struct m_t", 1);
    let errors = xdp_backend::generate(&checked(&text), &Options::new(Systems::NONE))
        .err()
        .unwrap_or_default();
    assert!(errors.len() == 1 && errors[0].message.contains("wider than 128 bits"), "{errors:?}");
}

/// Entries that are exchanged as one lie in one map, and nothing else of the table changes.
#[test]
fn exchanged_tables() {
    let table = |kind: &str, rest: &str| {
        format!(
            "direct_counter(CounterType.packets) c;
             table t {{ key = {{ hdr.h.a: {kind}; }} actions = {{ NoAction; }} {rest} }}"
        )
    };
    let good = "const default_action = NoAction(); stateplane_exchange = true;";
    let held = "stateplane_per_incarnation = true;";
    let both = format!("{good} {held}");
    let apply = "t.apply();";
    for kind in ["exact", "lpm"] {
        assert_eq!(errors(&table(kind, &both), apply), []);
    }
    let refused = |kind: &str, rest: &str, part: &str| {
        one_error(&table(kind, rest), apply, OBJECTS_LINE + 1, part);
    };
    refused("ternary", good, "in two maps");
    refused("exact", "stateplane_exchange = true;", "a default action that can be changed");
    refused("exact", &format!("{good} counters = c;"), "a direct counter would lose");
    refused("exact", &format!("{good} const entries = {{ 1: NoAction(); }}"), "never exchanged");
    refused("exact", held, "only entries that are exchanged as one can hold");
    let entries = "entries = { 1: NoAction(); }";
    refused("exact", &format!("{both} {entries}"), "would hold in every incarnation");
    assert_eq!(errors(&table("exact", &format!("{good} {entries}")), apply), []);
    // Only `true` asks for it.
    assert_eq!(errors(&table("ternary", "stateplane_exchange = false;"), apply), []);
    let keyless = format!("table t {{ actions = {{ NoAction; }} {good} }}");
    one_error(&keyless, apply, OBJECTS_LINE, "has no entries");
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
    one_error(
        &program(counters, "} counters = c;"),
        apply,
        OBJECTS_LINE + 2,
        "belongs to another table already",
    );
    one_error(
        &program(counters, "counts; }"),
        apply,
        OBJECTS_LINE,
        "counts in an action of I.u, another table",
    );
}

#[test]
fn entries_of_more_constants_than_a_kernel_takes() {
    let table = |count: u32| {
        let entry = |at| format!("({at}, 0, 0, 0) : NoAction();\n");
        let (keys, entries) = (
            "k: range; w.a: range; w.b: range; w.c: range;",
            (0..count).map(entry).collect::<String>(),
        );
        format!(
            "bit<32> k = 0; wide_t w; table t {{ key = {{ {keys} }} actions = {{ NoAction; }} const entries = {{ {entries} }} }}"
        )
    };
    assert_eq!(errors(&table(2_000), "t.apply();"), []);
    one_error(
        &table(30_000),
        "t.apply();",
        OBJECTS_LINE,
        "I.t: 30000 const entries take more than 4032 KiB",
    );
}

#[test]
fn entries_that_the_program_brings_and_its_table_cannot_hold() {
    let table = |keys: &str, entries: &str, more: &str| {
        format!(
            "table t {{ key = {{ {keys} }} actions = {{ NoAction; }} {more}\nentries = {{\n{entries} }} }}"
        )
    };
    let exact = |entries| table("hdr.h.a: exact;", entries, "size = 2;");
    one_error(
        &exact("1: NoAction();\n2: NoAction();\n3: NoAction();"),
        "t.apply();",
        OBJECTS_LINE + 4,
        "the table has size 2",
    );
    assert_eq!(errors(&exact("1: NoAction();\n2: NoAction();"), "t.apply();"), []);
    // 64 masks, then entries of masks that are there, then one more mask.
    let wide = "hdr.h.a: ternary; hdr.h.a ++ hdr.h.a: ternary;";
    let masks = |count: u32| {
        (1..=count).map(|mask| format!("(0 &&& {mask}, 5): NoAction();\n")).collect::<String>()
    };
    let known = format!("{}(_, 6): NoAction();\n(0 &&& 1, 7): NoAction();\n", masks(63));
    assert_eq!(errors(&table(wide, &known, ""), "t.apply();"), []);
    let one_more = format!("{known}(0 &&& 70, 7): NoAction();");
    one_error(
        &table(wide, &one_more, ""),
        "t.apply();",
        OBJECTS_LINE + 67,
        "more than 64 different masks",
    );
}

#[test]
fn more_maps_than_a_program_gets() {
    let registers = |count: u32| {
        (0..count).map(|at| format!("register<bit<8>>(1) r{at};\n")).collect::<String>()
    };
    let reads = |count: u32| {
        format!(
            "bit<8> v; {}",
            (0..count).map(|at| format!("r{at}.read(v, 0);")).collect::<String>()
        )
    };
    assert_eq!(errors(&registers(56), &reads(56)), []);
    assert_eq!(errors(&registers(90), &reads(56)), [], "what is not used needs no map");
    one_error(&registers(57), &reads(57), OBJECTS_LINE + 56, "register I.r56 is one too many");
    // A ternary table with a default action that can be changed: three maps.
    let table = "table t { key = { hdr.h.a: ternary; } actions = { NoAction; } }";
    assert_eq!(
        errors(&format!("{}{table}", registers(53)), &format!("{} t.apply();", reads(53))),
        []
    );
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
    let table = format!("table t {{ key = {{ {keys} }} actions = {{ NoAction; }} }}")
        .replace("w.a", "(bit<128>)hdr.h.a");
    match compile(folder.path(), Systems::NONE, &table, "t.apply();") {
        Err(CompileError::Unsupported(errors)) => assert!(
            errors.len() == 1
                && errors[0].message.contains("512 bytes of stack")
                && errors[0].location.line > 1,
            "{errors:?}"
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_folder_that_is_not_there_is_no_fault_of_the_compiler() {
    match compile(Path::new("/nowhere"), Systems::NONE, "", "") {
        Err(CompileError::File { path, source }) => {
            assert_eq!(
                (path.as_path(), source.kind()),
                (Path::new("/nowhere/x.o"), std::io::ErrorKind::NotFound)
            );
        }
        other => panic!("{other:?}"),
    }
}

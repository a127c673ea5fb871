//! What stateplane/redplane.p4 demands of the order of calls, on each way of a packet: every rule
//! with a program that breaks it, and its neighbour that does not.

use redplane_compiler::ALONE;
use xdp_backend::{BackendError, Options};

/// Lines of the ingress' objects, its statements, and those of the egress.
const OBJECTS: u32 = 27;
const APPLY: u32 = 28;
const EGRESS: u32 = 31;

fn errors_of(objects: &str, apply: &str, egress: &str) -> Vec<BackendError> {
    errors_of_text(&text_of(objects, apply, egress))
}

/// With the program changed by hand.
fn errors_in(change: impl Fn(String) -> String, apply: &str) -> Vec<BackendError> {
    errors_of_text(&change(text_of("", apply, "")))
}

fn text_of(objects: &str, apply: &str, egress: &str) -> String {
    format!(
        "#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
header h_t {{ bit<8> a; bit<8> b; bit<8> c; bit<8> d; }}
struct hs {{ h_t h; }}
struct m_t {{ bit<8> x; bit<8> y; bit<8> z; }}
struct k_t {{ bit<8> k; }}
struct v_t {{ bit<32> v; }} struct two_t {{ bit<8> k; bit<8> l; }} struct far_t {{ bit<16> k; }}
struct tuple_t {{ bit<32> s; bit<32> d; bit<16> sp; bit<16> dp; bit<8> p; }}
struct short_t {{ bit<32> s; bit<32> d; bit<16> sp; bit<16> dp; }}
struct bound_t {{ bit<32> a; bit<16> p; }}
struct swapped_t {{ bit<16> p; bit<32> a; }}
parser P(packet_in p, out hs hdr, inout m_t m, inout standard_metadata_t s) {{
  state start {{ p.extract(hdr.h); m.x = hdr.h.a; m.y = 3; transition accept; }} }}
control VC(inout hs hdr, inout m_t m) {{ apply {{ }} }}
FlowState<k_t, v_t>(16, Consistency.LINEARIZABLE, Allocator.ZERO) f;
FlowState<k_t, v_t>(16, Consistency.ASYNCHRONOUS, Allocator.ZERO) g;
FlowState<k_t, v_t>(16, Consistency.LOCAL, Allocator.ZERO) l; FlowState<two_t, v_t>(16, Consistency.LINEARIZABLE, Allocator.ZERO, 1) of_one; FlowState<k_t, v_t>(16, Consistency.LINEARIZABLE, Allocator.ZERO, 1) of_all; FlowState<two_t, v_t>(16, Consistency.LINEARIZABLE, Allocator.ZERO, 2) of_both; FlowState<far_t, v_t>(16, Consistency.LINEARIZABLE, Allocator.ZERO, 1) of_wide;
SnapshotState<k_t, bit<32>>(16, 64, 1000, 100000, Overdue.CONTINUE) n;
control I(inout hs hdr, inout m_t m, inout standard_metadata_t s) {{
  v_t v = {{ 0 }};
  bit<32> sum;
  k_t a = {{ hdr.h.a }};
  k_t b = {{ hdr.h.b }};
  k_t x = {{ m.x }};
  k_t copy;
{objects}
  apply {{ s.egress_spec = 1; {apply}
  }} }}
control E(inout hs hdr, inout m_t m, inout standard_metadata_t s) {{ v_t v; apply {{
{egress}
  }} }}
control D(packet_out p, in hs hdr) {{ apply {{ p.emit(hdr.h); }} }}
V1Switch(P(), VC(), I(), E(), VC(), D()) main;
"
    )
}

fn errors_of_text(text: &str) -> Vec<BackendError> {
    let outcome = p4_check::check_source("contracts.p4", text, &p4_syntax::Options::default());
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    xdp_backend::generate(program, &Options::new(ALONE)).err().unwrap_or_default()
}

/// One error, of this rule, with its remedy.
#[track_caller]
fn broken(id: &str, line: u32, objects: &str, apply: &str, egress: &str) -> BackendError {
    let rule = ALONE.rules().find(|rule| rule.id == id).expect("a rule");
    let errors = errors_of(objects, apply, egress);
    let is_it = |error: &BackendError| {
        error.message.ends_with(rule.broken)
            && error.help.as_deref() == Some(rule.remedy)
            && error.location.line == line
            && error.location.column > 0
    };
    assert!(errors.len() == 1 && is_it(&errors[0]), "{objects} {apply} {egress}: {errors:#?}");
    errors[0].clone()
}

#[track_caller]
fn refused(id: &str, apply: &str) -> BackendError {
    broken(id, APPLY, "", apply, "")
}

#[track_caller]
fn accepted(apply: &str) {
    assert_eq!(errors_of("", apply, ""), [], "{apply}");
}

/// Both look-ups, and the second `set`: of another object than the first one, `f.set(a, v)`.
const LOOKED_UP: &str = "f.get(a, v); l.get(b, v);";
const OTHER: &str = "l.set(b, v);";

#[test]
fn a_second_set() {
    let error = refused("second-set", &format!("{LOOKED_UP} f.set(a, v); {OTHER}"));
    let (place, note) = error.note.expect("a note");
    assert!(
        place.line == APPLY
            && place.column < error.location.column
            && note == "the first `set` is here"
    );
    // Of another key.
    refused("second-set", "f.get(a, v); f.set(a, v); f.get(b, v); f.set(b, v);");
    // On one branch only.
    refused("second-set", &format!("{LOOKED_UP} if (hdr.h.c == 1) {{ f.set(a, v); }} {OTHER}"));
    refused("second-set", &format!("{LOOKED_UP} f.set(a, v); if (hdr.h.c == 1) {{ {OTHER} }}"));
    // A condition in between that has nothing to do with it.
    let sometimes = format!("{LOOKED_UP} if (hdr.h.c == 1) {{ f.set(a, v); }}");
    refused("second-set", &format!("{sometimes} if (hdr.h.d == 1) {{ m.z = 1; }} {OTHER}"));
    for left in ["return;", "exit;", "to_host();"] {
        let first = format!("{LOOKED_UP} if (hdr.h.c == 1) {{ f.set(a, v); {left} }}");
        accepted(&format!("{first} else {{ {OTHER} }}"));
    }
    accepted(&format!("{LOOKED_UP} if (hdr.h.c == 1) {{ f.set(a, v); return; }} {OTHER}"));
    accepted(&format!("{LOOKED_UP} if (hdr.h.c == 1) {{ f.set(a, v); exit; }} {OTHER}"));
    // Conditions of which one packet meets both.
    refused("second-set", &format!("{sometimes} if (hdr.h.d == 1) {{ {OTHER} }}"));
    refused("second-set", &format!("{sometimes} if (hdr.h.c < 9) {{ {OTHER} }}"));
    refused(
        "second-set",
        &format!("{sometimes} hdr.h.c = hdr.h.d; if (hdr.h.c != 1) {{ {OTHER} }}"),
    );
}

/// LINEARIZABLE objects may be set together, where their records are in one shard.
#[test]
fn sets_of_two_objects() {
    let get = "of_one.get({ hdr.h.a, hdr.h.b }, v); of_all.get(a, v); of_both.get({ hdr.h.a, hdr.h.b }, v); f.get(a, v);";
    let first = "of_one.set({ hdr.h.a, hdr.h.b }, v);";
    accepted(&format!("{get} {first} of_all.set(a, v);"));
    accepted(&format!(
        "{get} of_all.set(a, v); {first} of_one.get({{ hdr.h.a, hdr.h.b }}, v); {first}"
    ));
    // Keys that the compiler cannot tell apart: the runtime does.
    accepted(&format!(
        "{get} of_all.get({{ hdr.h.b ^ hdr.h.c }}, v); {first} of_all.set({{ hdr.h.b ^ hdr.h.c }}, v);"
    ));
    // Only one of them is ever set by a packet.
    accepted(&format!("{get} if (hdr.h.c == 1) {{ f.set(a, v); }} else {{ of_all.set(a, v); }}"));
    let error = refused("group-without-shard", &format!("{get} {first} f.set(a, v);"));
    assert_eq!(error.note.expect("a note").1, "the other object is set here");
    refused(
        "group-without-shard",
        &format!("{get} of_all.set(a, v); of_both.set({{ hdr.h.a, hdr.h.b }}, v);"),
    );
    refused(
        "group-without-shard",
        &format!(
            "{get} of_wide.get({{ 8w0 ++ hdr.h.a }}, v); {first} of_wide.set({{ 8w0 ++ hdr.h.a }}, v);"
        ),
    );
    refused("group-of-two-shards", &format!("{get} of_all.get(b, v); {first} of_all.set(b, v);"));
    let written = "of_all.get(a, v); of_all.set(a, v); hdr.h.a = hdr.h.a + 1; of_one.get({ hdr.h.a, 1 }, v); of_one.set({ hdr.h.a, 1 }, v);";
    refused("group-of-two-shards", written);
    // Others leave at once, and are not set beside them.
    refused("second-set", &format!("{get} g.get(a, v); {first} g.set(a, v);"));
}

/// One flow may be set as often as the program likes, and looked up in between.
#[test]
fn a_second_set_of_one_flow() {
    accepted("f.get(a, v); f.set(a, v); f.set(a, v);");
    accepted("f.get(a, v); if (hdr.h.c == 1) { f.set(a, v); } f.set(a, v);");
    accepted("f.get(a, v); f.set(a, v); if (hdr.h.c == 1) { f.set(a, v); }");
    accepted("f.get(a, v); f.set(a, v); f.get(a, v); f.set(a, v);");
    accepted("f.get(a, v); f.set(a, v); f.set({ hdr.h.a }, v);");
    // Keys that the compiler cannot tell apart: the runtime does.
    accepted("f.get(a, v); f.set(a, v); f.set({ hdr.h.b ^ hdr.h.c }, v);");
    // Written in between.
    let written = "f.get(a, v); f.set(a, v); a.k = a.k + 1; f.get(a, v); f.set(a, v);";
    refused("second-set", written);
}

/// Ways that exclude each other by what their conditions say.
#[test]
fn second_sets_that_no_packet_gets_to() {
    let sometimes = format!("{LOOKED_UP} if (hdr.h.c == 1) {{ f.set(a, v); }}");
    for condition in [
        "hdr.h.c != 1",
        "!(hdr.h.c == 1)",
        "hdr.h.c == 2",
        "hdr.h.d == 1 && hdr.h.c != 1",
        "2 == hdr.h.c",
    ] {
        accepted(&format!("{sometimes} if ({condition}) {{ {OTHER} }}"));
    }
    accepted(&format!(
        "{sometimes} if (hdr.h.c == 1 || hdr.h.d == 1) {{ m.z = 1; }} else {{ {OTHER} }}"
    ));
    accepted(&format!("{sometimes} switch (hdr.h.c) {{ 1: {{ }} default: {{ {OTHER} }} }}"));
    let set = "f.set(a, v);";
    accepted(&format!(
        "{LOOKED_UP} switch (hdr.h.c) {{ 1: {{ {set} }} }} if (hdr.h.c != 1) {{ {OTHER} }}"
    ));
    accepted(&format!(
        "{LOOKED_UP} if (hdr.h.isValid()) {{ {set} }} if (!hdr.h.isValid()) {{ {OTHER} }}"
    ));
    // A flag says whether it is done.
    let flag = format!("{LOOKED_UP} bool done = false; if (hdr.h.c == 1) {{ {set} done = true; }}");
    accepted(&format!("{flag} if (!done) {{ {OTHER} }}"));
    refused("second-set", &format!("{flag} if (done) {{ {OTHER} }}"));
    accepted(&format!(
        "l.get(b, v); StateResult r = f.get(a, v); if (r == StateResult.HIT) {{ {set} }} if (r == StateResult.MISS) {{ {OTHER} }}"
    ));
}

#[test]
fn a_set_in_an_action_that_a_table_runs() {
    let table = |properties: &str| {
        format!(
            "action act() {{ f.set(a, v); }} table t {{ key = {{ hdr.h.c: exact; }} actions = {{ act; NoAction; }} {properties} }}"
        )
    };
    let get = LOOKED_UP;
    let free = table("default_action = NoAction();");
    broken("second-set", OBJECTS, &free, &format!("{get} {OTHER} t.apply();"), "");
    broken("second-set", APPLY, &free, &format!("{get} t.apply(); {OTHER}"), "");
    broken("set-without-lookup", OBJECTS, &free, "f.get(b, v); t.apply();", "");
    assert_eq!(errors_of(&free, "f.get(a, v); t.apply();", ""), []);
    // The control plane may make `act` the default action, unless that is const.
    let miss = format!("{get} if (!t.apply().hit) {{ {OTHER} }}");
    broken("second-set", APPLY, &free, &miss, "");
    let fixed = table("const default_action = NoAction();");
    assert_eq!(errors_of(&fixed, &miss, ""), []);
    broken("second-set", APPLY, &fixed, &miss.replace('!', ""), "");
    let second = "action act2() { l.set(b, v); } table t2 { key = { hdr.h.d: exact; } actions = { act2; NoAction; } default_action = NoAction(); }";
    broken(
        "second-set",
        OBJECTS,
        &format!("{free} {second}"),
        &format!("{get} t.apply(); t2.apply();"),
        "",
    );
    // What ran is known behind a switch on it.
    let after =
        |ran: &str| format!("{get} switch (t.apply().action_run) {{ {ran}: {{ {OTHER} }} }}");
    broken("second-set", APPLY, &free, &after("act"), "");
    assert_eq!(errors_of(&free, &after("NoAction"), ""), []);
    let others = format!(
        "{get} switch (t.apply().action_run) {{ act: {{ m.z = 1; }} default: {{ {OTHER} }} }}"
    );
    assert_eq!(errors_of(&free, &others, ""), []);
    // Nothing can run the action.
    let never = table("default_action = NoAction(); const entries = { 1: NoAction(); }");
    let never = never.replace("default_action", "const default_action");
    assert_eq!(errors_of(&never, &format!("{get} {OTHER} t.apply();"), ""), []);
}

#[test]
fn a_look_up_after_a_set() {
    accepted("f.get(a, v); f.set(a, v); g.get(b, v);");
    accepted("f.get(a, v); f.set(a, v); f.get_or_allocate(b, v);");
    accepted("f.get(a, v); f.set(a, v); l.get(b, v);");
    assert_eq!(errors_of("", "f.get(a, v); f.set(a, v);", "g.get({ hdr.h.b }, v);"), []);
}

/// Do the program's sets wait for the packet's end?
fn waits(apply: &str, egress: &str) -> bool {
    let text = text_of("", apply, egress);
    let outcome = p4_check::check_source("contracts.p4", &text, &Default::default());
    let program = outcome.program.as_ref().expect("a program");
    let c = xdp_backend::generate(program, &Options::new(ALONE)).expect("C").c_source;
    assert_eq!(c.contains("SP_FLOW_STAGED"), c.contains("sp_flow_set_staged"));
    c.contains("SP_FLOW_STAGED")
}

/// C of programs that set once on each path, behind all look-ups, has no trace of sets that wait
/// for the packet's end.
#[test]
fn sets_wait_for_the_end_only_where_they_must() {
    let set = "f.get(a, v); f.set(a, v);";
    for once in [
        set.to_owned(),
        "f.get(a, v); g.get(b, v); f.set(a, v);".to_owned(),
        "f.get(a, v); if (hdr.h.c == 1) { f.set(a, v); } else { f.set(a, v); }".to_owned(),
        "f.get(a, v); if (hdr.h.c == 1) { f.set(a, v); } else { g.get(b, v); }".to_owned(),
        // Waits for nothing.
        format!("{set} l.get(b, v);"),
        format!("{set} f.phase(a, FlowPhase.CLOSED);"),
        format!("{set} if (n.is_overdue(a)) {{ hdr.h.d = 1; }}"),
    ] {
        assert!(!waits(&once, ""), "{once}");
    }
    for twice in [
        format!("{set} f.set(a, v);"),
        format!("{set} g.get(b, v);"),
        format!("{set} n.add(a, 0, 1, sum);"),
        "l.get(a, v); l.set(a, v); f.get(b, v);".to_owned(),
        "f.get(a, v); if (hdr.h.c == 1) { f.set(a, v); } if (hdr.h.d == 1) { g.get(b, v); }"
            .to_owned(),
    ] {
        assert!(waits(&twice, ""), "{twice}");
    }
    assert!(waits(set, "g.get({ hdr.h.b }, v);"));
    // What is dropped does not get to egress.
    assert!(!waits(&format!("{set} mark_to_drop(s);"), "g.get({ hdr.h.b }, v);"));
}

/// With too many ways to look at each, they wait: a call behind the last way may need it.
#[test]
fn sets_wait_where_there_are_too_many_ways() {
    let way = |at: u32| {
        format!("if (hdr.h.d == {at}) {{ f.get({{ {at} }}, v); f.set({{ {at} }}, v); }} else ")
    };
    let ways = |count: u32| (0..count).map(way).collect::<String>() + "{ } hdr.h.c = 1;";
    assert!(!waits(&ways(3), ""));
    assert!(waits(&ways(100), ""));
}

#[test]
fn egress_comes_after_ingress() {
    let set = format!("{LOOKED_UP} f.set(a, v);");
    let other = "l.get({ hdr.h.b }, v); l.set({ hdr.h.b }, v);";
    broken("second-set", EGRESS, "", &set, other);
    let sometimes = format!("{LOOKED_UP} if (hdr.h.c == 1) {{ f.set(a, v);");
    broken("second-set", EGRESS, "", &format!("{sometimes} }}"), other);
    // What is dropped does not get there.
    assert_eq!(errors_of("", &format!("{sometimes} mark_to_drop(s); }}"), other), []);
    assert_eq!(errors_of("", &format!("{set} mark_to_drop(s);"), other), []);
    assert_eq!(errors_of("", &format!("{set} s.egress_spec = 511;"), other), []);
    assert_eq!(errors_of("", "f.get(a, v);", "f.set({ hdr.h.a }, v);"), []);
}

#[test]
fn a_set_without_its_look_up() {
    let error = refused("set-without-lookup", "f.get(a, v); f.set(b, v);");
    assert_eq!(error.note.expect("a note").1, "the last look-up in this object is here");
    let early =
        refused("set-without-lookup", "if (hdr.h.c == 1) { f.set(a, v); } else { f.get(a, v); }");
    assert_eq!(early.note, None);
    refused("set-without-lookup", "if (hdr.h.c == 1) { f.get(a, v); } f.set(a, v);");
    refused("set-without-lookup", "f.get({ 1 }, v); f.set({ 2 }, v);");
    refused("set-without-lookup", "f.get(a, v); f.get(b, v); f.set(a, v);");
    refused("set-without-lookup", "f.get(a, v); a.k = hdr.h.b; f.set(a, v);");
    // Another object's look-up is none.
    refused(
        "set-without-lookup",
        "l.get(a, v); if (hdr.h.c == 1) { f.set(a, v); } else { f.get(a, v); }",
    );
}

/// What is written between the look-up and the `set` must be known to be the same.
#[test]
fn a_set_of_a_key_that_was_written() {
    for written in [
        "a.k = a.k + 1;",
        "random(a.k, 0, 255);",
        "if (hdr.h.c == 1) { a.k = a.k + 1; }",
        "if (hdr.h.c == 1) { a.k = 9; } else { a.k = 10; }",
        "a.k[3:0] = 1;",
    ] {
        refused("set-without-lookup", &format!("f.get(a, v); {written} f.set(a, v);"));
        refused(
            "set-without-lookup",
            &format!("if (f.get(a, v) == StateResult.HIT) {{ {written} f.set(a, v); }}"),
        );
        accepted(&format!("f.get(a, v); copy = a; {written} f.set(copy, v);"));
        accepted(&format!("copy = a; f.get(a, v); {written} a = copy; f.set(a, v);"));
    }
    let header = "f.get({ hdr.h.a }, v); hdr.h.a = hdr.h.a - 1;";
    refused("set-without-lookup", &format!("{header} f.set({{ hdr.h.a }}, v);"));
    accepted(
        &format!("{header} f.set({{ hdr.h.a + 1 }}, v);")
            .replace("hdr.h.a - 1", "hdr.h.a")
            .replace("a + 1", "a"),
    );
    refused("phase-without-lookup", &format!("{header} f.phase({{ hdr.h.a }}, FlowPhase.CLOSED);"));
    refused("second-snapshot-key", "n.add(a, 0, 1, sum); a.k = a.k + 1; n.add(a, 0, 1, sum);");
    // By an action that a table may run.
    let table = "action nat() { hdr.h.a = 9; } table t { key = { hdr.h.c: exact; } actions = { nat; NoAction; } \
                 default_action = NoAction(); }";
    let apply = "f.get({ hdr.h.a }, v); t.apply(); f.set({ hdr.h.a }, v);";
    broken("set-without-lookup", APPLY, table, apply, "");
    assert_eq!(errors_of(table, "f.get(a, v); t.apply(); f.set(a, v);", ""), []);
    // Another element of the stack, or another part of the struct, is another matter.
    accepted("f.get(a, v); b.k = b.k + 1; hdr.h.a = 1; f.set(a, v);");
}

#[test]
fn a_set_of_a_key_that_may_be_the_same() {
    accepted("f.get(a, v); f.set(a, v);");
    // Copies.
    accepted("f.get(a, v); copy = a; f.set(copy, v);");
    accepted("f.get(a, v); f.set({ hdr.h.a }, v);");
    accepted("bit<8> t = hdr.h.a; f.get({ t }, v); f.set({ hdr.h.a }, v);");
    // The parser made one from the other.
    accepted("f.get(x, v); f.set({ hdr.h.a }, v);");
    accepted("f.get({ 3 }, v); f.set({ m.y }, v);");
    // Not from the packet: nobody knows what it is at first.
    accepted("f.get({ m.z }, v); f.set({ 0 }, v);");
    // Computed, or compared.
    accepted("f.get(a, v); f.set({ hdr.h.b ^ hdr.h.c }, v);");
    accepted("f.get(a, v); if (hdr.h.a == hdr.h.b) { f.set(b, v); }");
    accepted("f.get(a, v); if (hdr.h.a == 7) { f.set({ 7 }, v); }");
    // Found or not says which way the packet came.
    accepted(
        "StateResult r = StateResult.MISS; if (hdr.h.c == 1) { r = f.get(a, v); } if (r == StateResult.HIT) { f.set(a, v); }",
    );
    accepted(
        "if (hdr.h.c == 1) { f.get(a, v); copy = a; } else { f.get(b, v); copy = b; } f.set(copy, v);",
    );
}

#[test]
fn a_phase_without_its_look_up() {
    let get = "f.get(a, v);";
    refused("phase-without-lookup", &format!("f.phase(a, FlowPhase.CLOSED); {get}"));
    refused("phase-without-lookup", &format!("{get} f.phase(b, FlowPhase.CLOSED);"));
    accepted(&format!("{get} f.phase(a, FlowPhase.CLOSED);"));
    // Not the last one: the flow is this switch's all the same.
    accepted(&format!("{get} f.get(b, v); f.phase(a, FlowPhase.CLOSED);"));
    accepted(&format!("{get} f.set(a, v); f.phase(a, FlowPhase.CLOSED);"));
}

#[test]
fn allocators_of_other_types() {
    for (id, allocator) in [("nat-ports-types", "NAT_PORTS"), ("backends-types", "BACKENDS")] {
        let object = |key: &str, value: &str| {
            format!(
                "FlowState<{key}, {value}>(16, Consistency.LINEARIZABLE, Allocator.{allocator}) o;"
            )
        };
        broken(id, OBJECTS, &object("short_t", "bound_t"), "", "");
        broken(id, OBJECTS, &object("tuple_t", "swapped_t"), "", "");
        broken(id, OBJECTS, &object("tuple_t", "v_t"), "", "");
        assert_eq!(errors_of(&object("tuple_t", "bound_t"), "", ""), []);
    }
}

#[test]
fn a_second_key_of_snapshots() {
    let error = refused("second-snapshot-key", "n.add(a, 0, 1, sum); n.add(b, 0, 1, sum);");
    assert_eq!(error.note.expect("a note").1, "the first key is used here");
    refused(
        "second-snapshot-key",
        "if (hdr.h.c == 1) { n.write({ 1 }, 0, 1); } n.write({ 2 }, 0, 1);",
    );
    accepted("n.add(a, 0, 1, sum); n.add(a, 1, 1, sum);");
    accepted("if (hdr.h.c == 1) { n.write({ 1 }, 0, 1); } else { n.write({ 2 }, 0, 1); }");
    // Asking about another key waits for nothing.
    accepted("n.add(a, 0, 1, sum); if (n.is_overdue(b)) { hdr.h.d = 1; }");
}

#[test]
fn a_flow_after_snapshots() {
    let error = refused("flow-after-snapshot", "n.add(a, 0, 1, sum); f.get(a, v);");
    assert_eq!(error.note.expect("a note").1, "the SnapshotState is accessed here");
    refused("flow-after-snapshot", "l.get(a, v); n.add(a, 0, 1, sum); l.set(a, v);");
    refused("flow-after-snapshot", "if (hdr.h.c == 1) { n.add(a, 0, 1, sum); } f.get(a, v);");
    accepted("f.get(a, v); f.set(a, v); n.add(a, 0, 1, sum);");
    accepted("n.add(a, 0, 1, sum); l.get(a, v);");
    accepted("f.get(a, v); n.add(a, 0, 1, sum); f.phase(a, FlowPhase.CLOSED);");
}

#[test]
fn calls_outside_of_ingress_and_egress() {
    let rule = ALONE.rules().find(|rule| rule.id == "outside-ingress-and-egress").expect("a rule");
    let early = "FlowState<k_t, v_t>(16, Consistency.LOCAL, Allocator.ZERO) early;";
    let at = |text: &str, with: &str| {
        let change = |program: String| {
            let program = program.replacen("parser P(", &format!("{early} parser P("), 1);
            program.replacen(text, &format!("{text} {with}"), 1)
        };
        let errors = errors_in(change, "f.get(a, v);");
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert!(errors[0].message.ends_with(rule.broken), "{text}: {errors:?}");
    };
    at("p.extract(hdr.h);", "v_t w; early.get({ hdr.h.a }, w);");
    at("p.emit(hdr.h);", "v_t w; f.get({ hdr.h.a }, w);");
    at("p.emit(hdr.h);", "bit<32> sum; n.read({ hdr.h.a }, 0, sum);");
}

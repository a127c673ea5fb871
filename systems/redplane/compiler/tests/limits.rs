//! What is too large for the kernel or the protocol is an error with its place.

#[path = "../../../../compiler/xdp-backend/tests/limits_rig/mod.rs"]
mod limits_rig;

use limits_rig::{OBJECTS_LINE, checked, source};
use redplane_compiler::ALONE;
use xdp_backend::{BackendError, Options};

fn errors(objects: &str, apply: &str) -> Vec<BackendError> {
    limits_rig::errors(ALONE, objects, apply)
}

#[track_caller]
fn one_error(objects: &str, apply: &str, line: u32, part: &str) {
    limits_rig::one_error(ALONE, objects, apply, line, part);
}

#[test]
fn a_map_of_more_than_a_gibibyte() {
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
    assert_eq!(errors(&both, &format!("{get} {sets}")), [], "a packet sets one");
    let mixed = format!("{a} {}", object("b", "v_t", "LOCAL"));
    assert_eq!(errors(&mixed, &format!("{get} {sets}")), []);
}

/// In every mode: 256 bytes of key, and 256 of value.
#[test]
fn the_longest_keys_and_values() {
    let sixteen: String = (0..16).map(|at| format!("bit<128> l{at}; ")).collect();
    let types =
        format!("struct longest_t {{ {sixteen} }} struct longer_t {{ {sixteen} bit<1> more; }}");
    let said = |key: &str, value: &str, mode: &str| {
        let object =
            format!("FlowState<{key}, {value}>(16, Consistency.{mode}, Allocator.ZERO) f;");
        let text =
            source(&object, &format!("{key} k; {value} v; f.get_or_allocate(k, v); f.set(k, v);"));
        let text = text.replacen("struct m_t", &format!("{types} struct m_t"), 1);
        let errors = xdp_backend::generate(&checked(&text), &Options::new(ALONE)).err();
        errors.unwrap_or_default().into_iter().map(|it| it.message).collect::<Vec<_>>()
    };
    for mode in ["LOCAL", "LINEARIZABLE", "ASYNCHRONOUS"] {
        assert!(said("longest_t", "longest_t", mode).is_empty());
        for (key, value, what) in [("longer_t", "v_t", "key"), ("k_t", "longer_t", "value")] {
            let expected = format!("FlowState I.f: the {what} has 257 bytes, not 1 to 256");
            assert_eq!(said(key, value, mode), [expected]);
        }
    }
}

#[test]
fn more_objects_than_a_packet_may_set_together() {
    let names = ["a", "b", "c", "d", "e"];
    let object = |name: &&str| {
        format!("FlowState<k_t, v_t>(16, Consistency.LINEARIZABLE, Allocator.ZERO, 1) {name};")
    };
    let call = |name: &&str| format!("{name}.get({{ 1 }}, x); {name}.set({{ 1 }}, x);");
    let [four, five] = [4, 5].map(|count| {
        let of = &names[..count];
        let objects = of.iter().map(object).collect::<Vec<_>>().join(" ");
        (objects, of.iter().map(call).collect::<Vec<_>>().join(" "))
    });
    assert_eq!(errors(&four.0, &four.1), []);
    one_error(&five.0, &five.1, OBJECTS_LINE + 1, "I.e is set: it is one LINEARIZABLE object more");
}

/// Two records of the longest keys and values fit into a batch, three do not.
#[test]
fn records_of_a_group_that_no_batch_has_room_for() {
    let sixteen: String = (0..16).map(|at| format!("bit<128> l{at}; ")).collect();
    let said = |names: &[&str]| {
        let object = |name: &&str| {
            format!(
                "FlowState<long_t, long_t>(16, Consistency.LINEARIZABLE, Allocator.ZERO, 1) {name};"
            )
        };
        let call = |name: &&str| {
            format!("long_t v_{name}; {name}.get(k, v_{name}); {name}.set(k, v_{name});")
        };
        let objects = names.iter().map(object).collect::<Vec<_>>().join(" ");
        let calls = names.iter().map(call).collect::<Vec<_>>().join(" ");
        let text = source(&objects, &format!("long_t k; {calls}"));
        let types = format!("struct long_t {{ {sixteen} }} struct m_t");
        let text = text.replacen("struct m_t", &types, 1);
        let errors = xdp_backend::generate(&checked(&text), &Options::new(ALONE)).err();
        errors.unwrap_or_default().into_iter().map(|it| it.message).collect::<Vec<_>>()
    };
    assert_eq!(said(&["a", "b"]), Vec::<String>::new());
    let told = said(&["a", "b", "c"]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("I.c is set") && told[0].contains("have 1608 bytes"), "{told:?}");
}

#[test]
fn shard_fields_that_the_key_does_not_have() {
    let flows = |fields: &str, allocator: &str| {
        format!(
            "FlowState<k_t, v_t>(16, Consistency.LINEARIZABLE, Allocator.{allocator}, {fields}) f;"
        )
    };
    let get = "f.get_or_allocate({ 1 }, x);";
    assert_eq!(errors(&flows("1", "ZERO"), get), []);
    for fields in ["0", "2"] {
        let said = format!("I.f: shard_fields is {fields}, and its key has 1 fields");
        one_error(&flows(fields, "ZERO"), get, OBJECTS_LINE, &said);
    }
    let told = errors(&flows("1", "NAT_PORTS"), get);
    assert!(told.iter().any(|error| error.message.contains("beside this allocator")), "{told:?}");
}

/// In keys and in values.
#[test]
fn fields_of_more_than_128_bits() {
    let types =
        "struct huge_t { bit<129> x; bit<8> y; } enum e_t { A, B } struct named_t { e_t e; }";
    let flows = |key: &str, value: &str, apply: &str| {
        let object = format!("FlowState<{key}, {value}>(16, Consistency.LOCAL, Allocator.ZERO) f;");
        let text = source(&object, apply).replacen("struct m_t", &format!("{types} struct m_t"), 1);
        xdp_backend::generate(&checked(&text), &Options::new(ALONE)).err().unwrap_or_default()
    };
    let said = |errors: &[BackendError]| {
        errors.iter().filter(|error| error.message.contains("field x has 129 bits")).count()
    };
    let value = flows(
        "k_t",
        "huge_t",
        "huge_t h; if (f.get({ 1 }, h) == StateResult.HIT) { f.set({ 1 }, h); }",
    );
    assert_eq!((value.len(), said(&value)), (1, 1), "{value:?}");
    let key = flows("huge_t", "v_t", "f.get({ 1, 2 }, x);");
    assert_eq!((key.len(), said(&key)), (1, 1), "{key:?}");
    let named = flows(
        "k_t",
        "named_t",
        "named_t h; f.get({ 1 }, h); if (h.e == e_t.B) { f.set({ 1 }, h); }",
    );
    assert_eq!(named, []);
}

#[test]
fn windows_of_more_slots_than_one_packet_sets_to_zero() {
    let object = |slots: u32| {
        format!("SnapshotState<k_t, bit<32>>(16, {slots}, 1000, 100000, Overdue.CONTINUE) sketch;")
    };
    let (begin, apply) = ("sketch.begin({ 1 }, 7);", OBJECTS_LINE + 1);
    assert_eq!(errors(&object(4096), begin), []);
    assert_eq!(errors(&object(4097), "bit<32> v; sketch.read({ 1 }, 0, v);"), []);
    one_error(&object(4097), begin, apply, "2 to 4096 slots, not 4097");
    one_error(&object(1), begin, apply, "2 to 4096 slots, not 1");
}

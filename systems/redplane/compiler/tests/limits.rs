//! What is too large for the kernel or the protocol is an error with its place.

#[path = "../../../../compiler/xdp-backend/tests/limits_rig/mod.rs"]
mod limits_rig;

use limits_rig::OBJECTS_LINE;
use redplane_compiler::ALONE;
use xdp_backend::BackendError;

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

//! A toy system proves that the seam holds. (Beside others:
//! systems/registry/tests/beside_a_toy.rs.)

mod toy;

use toy::{ADD, ALONE, TOY, compiled, options, program};
use xdp_backend::system::Systems;
use xdp_backend::{generate, write_headers};

#[test]
fn each_place_has_what_a_system_emits() {
    let c = compiled(Systems(ALONE), TOY, &format!("{ADD} hdr.h.a = switch_id();")).c_source;
    let once = |part: &str| assert_eq!(c.matches(part).count(), 1, "{part} in:\n{c}");
    once("#include \"toy.h\"");
    once("__u32 sp_bytes, const __u32 sp_again, struct toy_context toy)");
    once("toy.raised += 1;");
    once("= 77;");
    once("if (toy_send(&toy) != -1) return XDP_ABORTED;");
    once("return sp_pipeline(xdp, toy.port, sp_length(xdp), 1, toy);");
    let at = |part: &str| c.find(part).unwrap_or_else(|| panic!("no {part} in:\n{c}"));
    assert!(at("toy_send(&toy)") < at("return sp_forward("), "{c}");
    assert!(
        at("int toy_received") < at("struct toy_context toy = { .port = ingress_port };"),
        "{c}"
    );
    assert!(
        at("return sp_pipeline(xdp, ingress_port, sp_bytes, 0, toy);") < at("int toy_again("),
        "{c}"
    );
}

#[test]
fn a_system_that_a_program_does_not_use_leaves_no_trace() {
    let plain = |systems| {
        compiled(systems, "counter(16, CounterType.packets) c;", "c.count(hdr.h.a);").c_source
    };
    let c = plain(Systems::NONE);
    assert_eq!(plain(Systems(ALONE)), c);
}

#[test]
fn a_system_refuses() {
    let refused = |systems, objects: &str, apply: &str| -> Vec<String> {
        let errors =
            generate(&program(objects, apply), &options(systems)).err().unwrap_or_default();
        errors.into_iter().map(|error| error.message).collect()
    };
    assert_eq!(refused(Systems(ALONE), TOY, ""), ["ToyCounter: never added to"]);
    assert_eq!(refused(Systems(ALONE), "ToyCounter(0) toy;", ADD).len(), 1);
    let huge = refused(Systems(ALONE), "ToyCounter(16) huge;", "huge.add(hdr.h.a);");
    assert!(huge.len() == 1 && huge[0].contains("a map may have 1024"), "{huge:?}");
    let unknown = "extern ToyCounter is not supported by the XDP target yet";
    assert_eq!(refused(Systems::NONE, TOY, ADD), [unknown]);
    assert!(Systems(ALONE).rules().any(|rule| rule.id == "toy-add"));
}

#[test]
fn headers_come_from_systems() {
    let folder = tempfile::tempdir().expect("folder");
    write_headers(folder.path(), Systems(ALONE)).expect("headers");
    let names: Vec<_> = std::fs::read_dir(folder.path())
        .expect("folder")
        .flatten()
        .map(|it| it.file_name())
        .collect();
    assert!(
        names.iter().any(|name| name == "toy.h")
            && names.iter().any(|name| name == "stateplane_xdp.h")
    );
}

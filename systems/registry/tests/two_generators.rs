//! A program with state of two systems that both need generated packets. Needs root.

use c_layout::CStruct;
use dataplane::{Dataplane, Object, Settings};
use libbpf_rs::{MapCore, MapFlags};
use netchain_protocol::Operation;
use netchain_protocol::layouts::{PEERS_COUNTED, PeersDueValue};
use std::net::Ipv4Addr;
use xdp_backend::Options;

fn loaded(folder: &std::path::Path) -> (Dataplane, String) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/two_generators.p4");
    let outcome = p4_check::check_file(source.as_ref(), &p4_syntax::Options::default());
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    let options = Options {
        program_name: "two_generators.p4".to_owned(),
        ..Options::new(systems::compiler())
    };
    let path = folder.join("two.o");
    let generated = xdp_backend::compile(program, &options, &path).expect("compiles").generated;
    let mut object = Object::open(&path, generated.manifest.clone()).expect("opens");
    let settings = Settings { test_mode: true, virtual_clock: true, ..Settings::default() };
    object.set(settings).expect("set");
    (object.load().expect("the verifier accepts it"), generated.c_source)
}

#[test]
fn a_generated_frame_becomes_what_is_due_in_the_first_system_that_has_something() {
    let folder = tempfile::tempdir().expect("folder");
    let (dataplane, c) = loaded(folder.path());
    assert_eq!(c.matches("int sp_generator(").count(), 1, "{c}");

    // A heartbeat of a shard with which there is no session: its frame is dropped. And a probe.
    let queue = |map: &str, value: &[u8]| {
        let map = dataplane.map(map).expect("a queue");
        map.update(&[], value, MapFlags::ANY).expect("room");
    };
    queue("sp_heartbeats_due", &0_u32.to_ne_bytes());
    let probe = PeersDueValue {
        operation: Operation::Probe as u32,
        number: 0,
        to: Ipv4Addr::new(10, 9, 0, 2),
        part: 0,
        object: 0,
    };
    queue("sp_peers_due", &probe.to_bytes());
    let probes = PEERS_COUNTED.iter().position(|name| *name == "probes").expect("counted");
    let sent = [1_000, 2_000, 3_000].map(|clock_ns| {
        dataplane.run_generator(clock_ns).expect("runs");
        dataplane.read_count("sp_peers_stats", probes as u32).expect("read")
    });
    assert_eq!(sent, [0, 1, 1], "the heartbeat, the probe, nothing");
}

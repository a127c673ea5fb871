//! A program loaded as on a switch, and the ring `sp_slow` with what it hands to the agent.
#![allow(dead_code, reason = "each test uses its part")]

use dataplane::{Dataplane, Object, Settings};
use libbpf_rs::RingBufferBuilder;
use std::cell::RefCell;
use std::time::Duration;
use xdp_backend::{Options, Systems};

pub const XDP_DROP: u32 = 1;
/// struct sp_slow_record.
pub const RECORD_BYTES: usize = 56;
pub const SEND: u32 = 1;
pub const HOLD: u32 = 2;
/// Interface `lo`, which frames come in on.
pub const LOOPBACK: u32 = 1;
pub const PORT: u32 = 7;

/// Runs `body` in a network whose only route leads out of an interface that is no port of the
/// program: every packet is then the kernel's affair.
pub fn beside_the_kernel(body: impl FnOnce() + Send) {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    netns::inside_new(|| {
        netns::forward().expect("forwarding");
        netns::ip_batch(&["link set lo up", "route add default dev lo"]).expect("the network");
        body();
    })
    .expect("a network namespace");
}

pub fn ip(arguments: &str) {
    netns::ip_batch(&[arguments]).unwrap_or_else(|error| panic!("{error}"));
}

/// A program, loaded as on a switch, with `lo` as its port.
pub fn load(source: &str, systems: Systems) -> Dataplane {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program.p4");
    std::fs::write(&path, source).unwrap();
    let outcome = p4_check::check_file(&path, &p4_syntax::Options::default());
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    let object = folder.path().join("program.o");
    let options = Options { program_name: "program.p4".to_owned(), ..Options::new(systems) };
    let manifest = xdp_backend::compile(program, &options, &object).unwrap().generated.manifest;
    let mut opened = Object::open(&object, manifest).unwrap();
    opened.set(Settings { virtual_clock: true, ..Settings::default() }).unwrap();
    let dataplane = opened.load().unwrap();
    dataplane.set_port(PORT, LOOPBACK).unwrap();
    dataplane
}

/// What is in the ring, which is empty after that.
pub fn records(dataplane: &Dataplane) -> Vec<Vec<u8>> {
    let found = RefCell::new(Vec::new());
    let mut builder = RingBufferBuilder::new();
    let take = |record: &[u8]| {
        found.borrow_mut().push(record.to_vec());
        0
    };
    builder.add(dataplane.map("sp_slow").unwrap(), take).unwrap();
    builder.build().unwrap().poll(Duration::ZERO).unwrap();
    found.into_inner()
}

pub fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// A record's kind, port and frame.
pub fn parts(record: &[u8]) -> (u32, u32, &[u8]) {
    assert_eq!((word(record, 8) as usize, word(record, 12)), (record.len() - RECORD_BYTES, 0));
    (word(record, 0), word(record, 4), &record[RECORD_BYTES..])
}

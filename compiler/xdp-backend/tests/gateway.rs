//! What a gateway's program hands to the switch agent, as it leaves the kernel in the ring `sp_slow`.
//! (Packet tests see verdicts only: p4/tests/gateway_*.stf.) Needs root.

mod flow_rig;

use dataplane::{Dataplane, GatewaySettings, Object, Settings};
use flow_rig::{LEASE_US, Rig, START, acknowledged};
use libbpf_rs::RingBufferBuilder;
use nix::sched::{CloneFlags, unshare};
use state_protocol::Message;
use std::cell::RefCell;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const XDP_DROP: u32 = 1;
/// struct sp_slow_record.
const RECORD_BYTES: usize = 56;
const SEND: u32 = 1;
const HOLD: u32 = 2;
/// Interface `lo`, which frames come in on.
const LOOPBACK: u32 = 1;
const PORT: u32 = 7;

/// Runs `body` in a network whose only route leads out of an interface that is no port of the program:
/// every packet is then the kernel's affair.
fn beside_the_kernel(body: impl FnOnce() + Send) {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("ip_forward");
            ip("link set lo up");
            ip("route add default dev lo");
            body();
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip");
    assert!(status.success(), "ip {arguments}");
}

/// A program, loaded as on a switch, with `lo` as its port.
fn load(source: &str) -> Dataplane {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program.p4");
    std::fs::write(&path, source).unwrap();
    let outcome = p4_check::check_file(&path, &p4_syntax::Options::default());
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    let object = folder.path().join("program.o");
    let options = xdp_backend::Options { program_name: "program.p4".to_owned(), ..Default::default() };
    let manifest = xdp_backend::compile(program, &options, &object).unwrap().generated.manifest;
    let mut opened = Object::open(&object, manifest).unwrap();
    opened.set(Settings { virtual_clock: true, ..Settings::default() }).unwrap();
    let dataplane = opened.load().unwrap();
    dataplane.set_port(PORT, LOOPBACK).unwrap();
    dataplane
}

fn source(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

fn router() -> Dataplane {
    load(&source("p4/tests/gateway_router.p4"))
}

/// What is in the ring, which is empty after that.
fn records(dataplane: &Dataplane) -> Vec<Vec<u8>> {
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

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// A record's kind, port and frame.
fn parts(record: &[u8]) -> (u32, u32, &[u8]) {
    assert_eq!((word(record, 8) as usize, word(record, 12)), (record.len() - RECORD_BYTES, 0));
    (word(record, 0), word(record, 4), &record[RECORD_BYTES..])
}

/// UDP from 10.0.0.5 to 198.51.100.80 with so many bytes in all.
fn frame(identification: u16, flags_offset: u16, bytes: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0xa0, 2, 0, 0, 0, 0, 5, 8, 0, 0x45, 0];
    frame.extend((bytes - 14).to_be_bytes());
    frame.extend(identification.to_be_bytes());
    frame.extend(flags_offset.to_be_bytes());
    frame.extend([64, 17, 0, 0, 10, 0, 0, 5, 198, 51, 100, 80]);
    let mut sum: u32 = frame[14..].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame.extend([0x03, 0xe8, 0, 53]);
    frame.extend((bytes - 34).to_be_bytes());
    frame.resize(bytes.into(), 0);
    frame
}

#[test]
fn the_kernel_gets_the_packet_as_the_program_made_it() {
    beside_the_kernel(|| {
        let dataplane = router();
        let came = frame(1, 0, 100);
        assert_eq!(dataplane.run_request("sp_main", &came).unwrap(), XDP_DROP);
        let found = records(&dataplane);
        let [record] = &found[..] else { panic!("{} records", found.len()) };
        let (kind, port, sent) = parts(record);
        assert_eq!((kind, port), (SEND, PORT));
        // One hop less; the Ethernet header's addresses are the agent's affair.
        let mut routed = came.clone();
        (routed[22], routed[24]) = (63, came[24] + 1);
        assert_eq!(sent[12..], routed[12..]);
        assert_eq!(dataplane.gateway_count("sent_by_kernel").unwrap(), Some(1));
        assert_eq!(dataplane.port_stats(PORT).unwrap().dropped, 0);
    });
}

#[test]
fn a_full_slow_path_drops_and_counts() {
    beside_the_kernel(|| {
        let dataplane = router();
        let came = frame(1, 0, 1500);
        // More than 4 MiB.
        let packets = 3000;
        for _ in 0..packets {
            assert_eq!(dataplane.run_request("sp_main", &came).unwrap(), XDP_DROP);
        }
        let taken = records(&dataplane).len() as u64;
        let count = |name: &str| dataplane.gateway_count(name).unwrap().unwrap();
        assert!(taken > 1000 && taken < packets, "{taken} taken");
        assert_eq!((count("sent_by_kernel"), count("slow_path_full")), (taken, packets - taken));
        assert_eq!(dataplane.port_stats(PORT).unwrap().dropped, packets - taken);
        // It has room again.
        dataplane.run_request("sp_main", &came).unwrap();
        assert_eq!(records(&dataplane).len(), 1);
    });
}

#[test]
fn the_agent_holds_fragments_only_if_it_says_so() {
    beside_the_kernel(|| {
        let dataplane = router();
        let (first, later) = (frame(9, 0x2000, 82), frame(9, 6, 82));
        let count = |name: &str| dataplane.gateway_count(name).unwrap().unwrap();
        let refused = |name| dataplane.read_counter(dataplane.counter(name).unwrap(), 0).unwrap().packets;
        assert_eq!(dataplane.run_request("sp_main", &later).unwrap(), XDP_DROP);
        assert_eq!((count("fragments_refused"), refused("full"), records(&dataplane).len()), (1, 1, 0));
        let settings = GatewaySettings { hold_fragments: true, ..GatewaySettings::default() };
        dataplane.set_gateway_settings(&settings).unwrap();
        assert_eq!(dataplane.run_request("sp_main", &later).unwrap(), XDP_DROP);
        assert_eq!((count("fragments_held"), refused("full")), (1, 1));
        let found = records(&dataplane);
        let [record] = &found[..] else { panic!("{} records", found.len()) };
        assert_eq!(parts(record), (HOLD, PORT, &later[..]));
        // Its key is that of the first, which the agent waits for.
        let known = || {
            let key = &record[16..RECORD_BYTES];
            let map = dataplane.map("sp_fragments").unwrap();
            libbpf_rs::MapCore::lookup(map, key, libbpf_rs::MapFlags::ANY).unwrap().is_some()
        };
        assert!(!known());
        dataplane.run_request("sp_main", &first).unwrap();
        assert!(known());
        assert_eq!(records(&dataplane).len(), 1);
        dataplane.run_request("sp_main", &later).unwrap();
        let found = records(&dataplane);
        assert_eq!((found.len(), word(&found[0], 0), count("fragments_held")), (1, SEND, 1));
    });
}

/// A packet that waited in the network for its update leaves by the port that the program chose: the kernel's too.
#[test]
fn an_acknowledged_packet_leaves_by_the_kernel() {
    beside_the_kernel(|| {
        // What the acknowledgement is about: as a switch in test mode sends it.
        let rig = flow_rig::rig(&[]);
        let request = rig.asks(1, 40, START);
        let (_, sent) = rig.grant(&request, 5, 1, 0, START);
        let update = rig.datagram(&sent);
        let update = Message::decode(&update).unwrap();
        let reply = Message { port: dataplane::KERNEL_PORT as u16, lease_us: LEASE_US, ..acknowledged(&update) };
        let arriving = rig.arriving(&reply);

        let counter = source("systems/redplane/sim/tests/counter.p4");
        let changed = counter.replace("egress_spec = 3", "egress_spec = KERNEL_PORT");
        assert_ne!(counter, changed);
        let dataplane = load(&changed);
        let switch = Rig::around(dataplane, rig.settings);
        switch.dataplane.write_array("sp_fabric_port", PORT, &[1]).unwrap();
        switch.set_clock(START + 1);
        assert_eq!(switch.dataplane.run_request("sp_main", &arriving).unwrap(), XDP_DROP);
        let found = records(&switch.dataplane);
        let [record] = &found[..] else { panic!("{} records", found.len()) };
        assert_eq!(parts(record), (SEND, PORT, update.packet));
    });
}

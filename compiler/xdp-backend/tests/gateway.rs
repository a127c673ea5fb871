//! What a gateway's program hands to the switch agent, as it leaves the kernel in the ring
//! `sp_slow`. (Packet tests see verdicts only: p4/tests/gateway_*.stf.) Needs root.

mod slow_path;

use dataplane::{
    ActionCall, Dataplane, Entry, GatewayPort, GatewaySettings, Match, ReversePath, Write,
};
use slow_path::*;
use xdp_backend::Systems;

fn router() -> Dataplane {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../p4/tests/gateway_router.p4");
    load(&std::fs::read_to_string(path).unwrap(), Systems::NONE)
}

/// UDP from 10.0.0.5 to 198.51.100.80 with so many bytes in all.
fn frame(identification: u16, flags_offset: u16, bytes: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0xa0, 2, 0, 0, 0, 0, 5, 8, 0, 0x45, 0];
    frame.extend((bytes - 14).to_be_bytes());
    frame.extend(identification.to_be_bytes());
    frame.extend(flags_offset.to_be_bytes());
    frame.extend([64, 17, 0, 0, 10, 0, 0, 5, 198, 51, 100, 80]);
    let mut sum: u32 =
        frame[14..].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
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
        let refused =
            |name| dataplane.read_counter(dataplane.counter(name).unwrap(), 0).unwrap().packets;
        assert_eq!(dataplane.run_request("sp_main", &later).unwrap(), XDP_DROP);
        assert_eq!(
            (count("fragments_refused"), refused("full"), records(&dataplane).len()),
            (1, 1, 0)
        );
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

#[test]
fn rules_by_ingress_interface_say_nothing_of_sources() {
    beside_the_kernel(|| {
        let dataplane = router();
        ip("link add inside type veth peer name beyond");
        ip("link set beyond up");
        ip("link set inside up");
        ip("route add 10.0.0.0/8 dev inside");
        ip("rule add iif inside lookup 100");
        ip("route add default dev lo table 100");
        let ifindex = nix::net::if_::if_nametoindex("inside").unwrap();
        let refused = |route_generation| {
            let strict = ReversePath::Strict;
            let port = GatewayPort {
                ifindex,
                reverse_path: strict,
                route_generation,
                ..GatewayPort::default()
            };
            dataplane.set_gateway_port(PORT, &port).unwrap();
            dataplane.run_request("sp_main", &frame(1, 0, 100)).unwrap();
            dataplane.gateway_count("reverse_path").unwrap().unwrap()
        };
        assert_eq!(refused(1), 0, "its own way goes by table 100, the way back to it does not");
        ip("route del 10.0.0.0/8 dev inside");
        ip("route add 10.0.0.0/8 dev inside table 100");
        assert_eq!(refused(2), 1);
        // Nothing but the rule has a route, as for a VRF.
        ip("route del default dev lo");
        assert_eq!(refused(3), 1);
    });
}

/// gateway_check.p4 with a table of the network's own destinations.
fn with_own_destinations() -> Dataplane {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../p4/tests/gateway_check.p4");
    let table = "@own_destination action own() { }
        table owns {
            key = { hdr.ethernet.source[31:0]: lpm @name(\"address\"); }
            actions = { own; NoAction; }
            default_action = NoAction();
        }
        apply {
            owns.apply();
            if (gateway_check())";
    let source = std::fs::read_to_string(path).unwrap();
    let changed = source.replace("apply {\n        if (gateway_check())", table);
    assert_ne!(changed, source);
    load(&changed, Systems::NONE)
}

#[test]
fn nothing_comes_from_the_networks_own_destinations() {
    beside_the_kernel(|| {
        let dataplane = with_own_destinations();
        dataplane
            .set_gateway_port(PORT, &GatewayPort { ifindex: LOOPBACK, ..GatewayPort::default() })
            .unwrap();
        let refused = || {
            dataplane.run_request("sp_main", &frame(1, 0, 100)).unwrap();
            dataplane.gateway_count("martian_source").unwrap().unwrap()
        };
        let table = dataplane.table("owns").unwrap();
        let prefix = |length| {
            vec![Match::Prefix {
                value: 0x0a00_0005 & u128::from(u32::MAX << (32 - length)),
                length,
            }]
        };
        let write = |length, action, how| {
            let action = ActionCall { action, arguments: vec![] };
            table.write(&Entry { matches: prefix(length), priority: 0, action }, how).unwrap();
        };
        assert_eq!(refused(), 0);
        write(8, 0, Write::Add);
        assert_eq!((refused(), refused()), (1, 2), "what was known of the source is void");
        write(32, 1, Write::Add);
        assert_eq!(refused(), 2, "taken out");
        write(32, 0, Write::Modify);
        assert_eq!(refused(), 3);
        table.delete(&prefix(8)).unwrap();
        assert_eq!(refused(), 4, "the other entry is still there");
        table.delete(&prefix(32)).unwrap();
        assert_eq!(refused(), 4);
    });
}

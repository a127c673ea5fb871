//! A packet that waited for its update, and whose port is the kernel's. Needs root.

mod flow_rig;
#[path = "../../../../compiler/xdp-backend/tests/slow_path/mod.rs"]
mod slow_path;

use flow_rig::{LEASE_US, Rig, START, acknowledged};
use slow_path::{PORT, SEND, XDP_DROP, beside_the_kernel, load, parts, records};
use state_protocol::Message;

/// A packet that waited in the network for its update leaves by the port that the program chose:
/// the kernel's too.
#[test]
fn an_acknowledged_packet_leaves_by_the_kernel() {
    beside_the_kernel(|| {
        // What the acknowledgement is about: as a switch in test mode sends it.
        let rig = flow_rig::rig(&[]);
        let request = rig.asks(1, 40, START);
        let (_, sent) = rig.grant(&request, 5, 1, 0, START);
        let update = rig.datagram(&sent);
        let update = Message::decode(&update).unwrap();
        let reply = Message {
            port: dataplane::KERNEL_PORT as u16,
            lease_us: LEASE_US,
            ..acknowledged(&update)
        };
        let arriving = rig.arriving(&reply);

        let counter = include_str!("../../sim/tests/counter.p4");
        let changed = counter.replace("egress_spec = 3", "egress_spec = KERNEL_PORT");
        assert_ne!(counter, changed);
        let dataplane = load(&changed, redplane_compiler::ALONE);
        let switch = Rig::around(dataplane, rig.settings);
        switch.dataplane.set_fabric_port(PORT, true).unwrap();
        switch.set_clock(START + 1);
        assert_eq!(switch.dataplane.run_request("sp_main", &arriving).unwrap(), XDP_DROP);
        let found = records(&switch.dataplane);
        let [record] = &found[..] else { panic!("{} records", found.len()) };
        assert_eq!(parts(record), (SEND, PORT, update.packet));
    });
}

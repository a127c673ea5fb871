//! What of this host does not fit a switch's configuration: looked for by `--check` and at each
//! start. An agent starts all the same, because interfaces, addresses and MTUs may come later.

use crate::admission::is_own;
use crate::config::{Config, Port};
use crate::load::NarrowPort;
use crate::start::ifindex;
use std::collections::BTreeMap;

/// What is wrong: file, field, reason and remedy of each. `beside`: what messages have beside the
/// packet in them, in bytes.
pub(crate) fn problems(config: &Config, beside: u32) -> Vec<String> {
    let mut found = vec![];
    for (position, port) in config.port.iter().enumerate() {
        let reasons = interface_problems(&port.interface);
        let field = format!("port[{position}].interface");
        found.extend(reasons.into_iter().map(|reason| (field.clone(), reason)));
    }
    if let Some(address) = config.protocol_address.filter(|address| !is_own(*address)) {
        let reason = format!(
            "{address} is not an address of this host, so nothing can be sent to stores and \
             controllers: `ip address add {address}/32 dev lo`"
        );
        found.push(("protocol_address".to_owned(), reason));
    }
    let mtu = |port: &Port| Some((port.port, read(&port.interface, "mtu")?.parse().ok()?));
    let mtus = config.port.iter().filter_map(mtu).collect();
    for narrow in narrow_ports(config, &mtus, beside) {
        let position = config.port.iter().position(|port| port.port == narrow.port).unwrap_or(0);
        found.push((format!("port[{position}].interface"), narrow.to_string()));
    }
    let told =
        |(field, reason): (String, String)| format!("{}: {field}: {reason}", config.place(&field));
    found.into_iter().map(told).collect()
}

/// What is wrong with an interface.
fn interface_problems(interface: &str) -> Vec<String> {
    let Some(index) = ifindex(interface) else {
        return vec![format!(
            "there is no interface {interface:?} in this network namespace; \
             a first start needs it: `ip link` shows which there are"
        )];
    };
    let mut found = vec![];
    let flags = read(interface, "flags")
        .and_then(|text| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok());
    if flags.is_some_and(|flags| flags & libc::IFF_UP as u32 == 0) {
        found.push(format!(
            "{interface:?} is down: no packet comes in: `ip link set {interface} up`"
        ));
    }
    // Not all kernels and drivers say what they can.
    let features = dataplane::xdp_features(index);
    if features.is_some_and(|features| !features.redirect_target) {
        found.push(format!(
            "the driver of {interface:?} takes no frames from other ports (ndo_xdp_xmit), \
             so packets to this port are lost; for a veth put an XDP program that passes on its \
             peer, for a card see its driver's XDP settings"
        ));
    }
    found
}

/// The MTU of an interface of this network namespace; `None`: it is not there.
pub(crate) fn mtu_of(interface: &str) -> Option<u32> {
    read(interface, "mtu")?.parse().ok()
}

/// A file of the interface in sysfs.
fn read(interface: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/{name}")).ok()?;
    Some(text.trim().to_owned())
}

impl std::fmt::Display for NarrowPort {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let NarrowPort { port, interface, mtu, leaves, hosts_mtu } = self;
        let wanted = hosts_mtu.saturating_add(mtu.saturating_sub(*leaves));
        write!(
            out,
            "port {port} ({interface}): an MTU of {mtu} leaves {leaves} bytes for a packet that \
             waits in a message, and hosts send up to {hosts_mtu}: longer ones are dropped \
             (too_big); ip link set {interface} mtu {wanted}, at both ends, or an MTU of {leaves} \
             at the hosts"
        )
    }
}

/// Ethernet's.
const USUAL_MTU: u32 = 1_500;

/// Fabric ports without room for what hosts send in messages with `beside` bytes of their own;
/// `mtus`: by port, where the interface
/// is there. 0 bytes: no packet waits in a message.
pub(crate) fn narrow_ports(
    config: &Config,
    mtus: &BTreeMap<u32, u32>,
    beside: u32,
) -> Vec<NarrowPort> {
    if beside == 0 {
        return vec![];
    }
    let mtu = |port: &Port| mtus.get(&port.port).copied().filter(|mtu| *mtu != 0);
    let (fabric, hosts): (Vec<_>, Vec<_>) = config.port.iter().partition(|port| port.fabric);
    let largest = || hosts.into_iter().filter_map(mtu).max();
    let hosts_mtu = config.hosts_mtu.or_else(largest).unwrap_or(USUAL_MTU);
    let narrow = fabric.into_iter().filter_map(|port| {
        let (mtu, interface) = (mtu(port)?, port.interface.clone());
        let leaves = mtu.saturating_sub(beside);
        let port = port.port;
        (leaves < hosts_mtu).then_some(NarrowPort { port, interface, mtu, leaves, hosts_mtu })
    });
    narrow.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_host_lacks_is_told_with_file_field_and_remedy() {
        let text = "name = \"s1\"\nobject = \"nat.o\"\nswitch_id = 1\n\
             protocol_address = \"192.0.2.9\"\n\
             [[port]]\ninterface = \"lo\"\nport = 1\nfabric = true\n\
             [[port]]\ninterface = \"nowhere0\"\nport = 2\n";
        let parse = |text: &str| Config::parse(std::path::Path::new("s1.toml"), text, &[]).unwrap();
        let found = problems(&parse(text), 220);
        let told = |start: &str, remedy: &str| {
            let found = found.iter().filter(|it| it.starts_with(start));
            assert_eq!(found.filter(|it| it.contains(remedy)).count(), 1, "{start} {remedy}");
        };
        told(
            "s1.toml: line 10: port[1].interface: there is no interface \"nowhere0\"",
            "`ip link`",
        );
        told(
            "s1.toml: line 4: protocol_address: 192.0.2.9 is not an address of this host",
            "`ip address add 192.0.2.9/32 dev lo`",
        );
        // The loopback interface has an MTU of 65536.
        let wide = text.replace("switch_id", "hosts_mtu = 65535\nswitch_id");
        let found = problems(&parse(&wide), 220);
        let narrow = found.iter().find(|it| it.contains("too_big"));
        let start = "s1.toml: line 7: port[0].interface: port 1 (lo)";
        assert!(narrow.is_some_and(|it| it.starts_with(start)), "{found:?}");
    }

    #[test]
    fn a_fabric_port_needs_room_for_the_hosts_packets_in_messages() {
        let config = |hosts_mtu: &str| {
            let text = format!(
                "name = \"s1\"\nobject = \"nat.o\"\n{hosts_mtu}\n\
                 [[port]]\ninterface = \"core\"\nport = 1\nfabric = true\n\
                 [[port]]\ninterface = \"tor\"\nport = 2\n"
            );
            Config::parse(std::path::Path::new("s1.toml"), &text, &[]).unwrap()
        };
        let narrow = |hosts_mtu: &str, core, tor| {
            let ports =
                narrow_ports(&config(hosts_mtu), &BTreeMap::from([(1, core), (2, tor)]), 220);
            ports.first().map(|port| (port.leaves, port.hosts_mtu))
        };
        assert_eq!((narrow("", 1720, 1500), narrow("", 1719, 1500)), (None, Some((1499, 1500))));
        assert_eq!((narrow("", 1500, 1280), narrow("", 0, 1500)), (None, None), "0: not there");
        assert_eq!(narrow("", 1500, 0), Some((1280, 1500)), "Ethernet's, if nobody knows");
        assert_eq!(narrow("hosts_mtu = 9000", 1720, 1500), Some((1500, 9000)));
    }
}

//! The line: generator → inside port [translator] outside port → sink, each in a network namespace,
//! with fixed addresses, routes and neighbours.

use crate::flows::Macs;
use crate::frame::Mac;
use crate::namespace::Namespace;
use anyhow::{Context, Result};
use nix::net::if_::if_nametoindex;

const MACS: Macs = Macs {
    inside_port: [2, 0, 0, 0, 1, 0],
    outside_port: [2, 0, 0, 0, 1, 1],
    inside_hop: [2, 0, 0, 0, 2, 0],
    outside_hop: [2, 0, 0, 0, 2, 1],
};

/// Three namespaces and two veth pairs.
pub struct Network {
    /// Sends; its link is `line`.
    pub generator: Namespace,
    /// Translates; its links are `inside` and `outside`.
    pub translator: Namespace,
    /// Counts what arrives; its link is `line`.
    pub sink: Namespace,
    /// Who is who on the links.
    pub macs: Macs,
    /// Interface index of the generator's link.
    pub generator_line: u32,
    /// Interface index of the sink's link.
    pub sink_line: u32,
    /// Interface index of the translator's inside port.
    pub inside: u32,
    /// Interface index of the translator's outside port.
    pub outside: u32,
}

fn text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn index(namespace: &Namespace, link: &'static str) -> Result<u32> {
    namespace.enter(move || if_nametoindex(link).with_context(|| format!("interface {link}")))
}

fn link(
    from: &Namespace,
    name: &str,
    mac: Mac,
    to: &Namespace,
    peer: &str,
    peer_mac: Mac,
) -> Result<()> {
    from.run(&[
        "ip",
        "link",
        "add",
        name,
        "address",
        &text(mac),
        "type",
        "veth",
        "peer",
        "name",
        peer,
        "address",
        &text(peer_mac),
        "netns",
        to.name(),
    ])?;
    for (namespace, link) in [(from, name), (to, peer)] {
        namespace.run(&["sysctl", "-qw", &format!("net.ipv6.conf.{link}.disable_ipv6=1")])?;
        namespace.run(&["ip", "link", "set", link, "up"])?;
    }
    Ok(())
}

impl Network {
    /// Sets everything up.
    pub fn create() -> Result<Network> {
        let generator = Namespace::create("generator")?;
        let translator = Namespace::create("translator")?;
        let sink = Namespace::create("sink")?;
        for setting in [
            "net.ipv4.ip_forward=1",
            "net.ipv4.conf.all.rp_filter=0",
            "net.ipv4.conf.default.rp_filter=0",
        ] {
            translator.run(&["sysctl", "-qw", setting])?;
        }
        link(&translator, "inside", MACS.inside_port, &generator, "line", MACS.inside_hop)?;
        link(&translator, "outside", MACS.outside_port, &sink, "line", MACS.outside_hop)?;
        let inside_hop = text(MACS.inside_hop);
        let outside_hop = text(MACS.outside_hop);
        let commands: [&[&str]; 6] = [
            &["ip", "address", "add", "10.0.0.1/24", "dev", "inside"],
            &["ip", "address", "add", "192.0.2.2/24", "dev", "outside"],
            &[
                "ip",
                "neighbour",
                "replace",
                "10.0.0.2",
                "lladdr",
                &inside_hop,
                "dev",
                "inside",
                "nud",
                "permanent",
            ],
            &[
                "ip",
                "neighbour",
                "replace",
                "192.0.2.1",
                "lladdr",
                &outside_hop,
                "dev",
                "outside",
                "nud",
                "permanent",
            ],
            &["ip", "route", "add", "10.0.0.0/8", "via", "10.0.0.2"],
            &["ip", "route", "add", "198.51.100.0/24", "via", "192.0.2.1"],
        ];
        for command in commands {
            translator.run(command)?;
        }
        Ok(Network {
            macs: MACS,
            generator_line: index(&generator, "line")?,
            sink_line: index(&sink, "line")?,
            inside: index(&translator, "inside")?,
            outside: index(&translator, "outside")?,
            generator,
            translator,
            sink,
        })
    }
}

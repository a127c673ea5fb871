//! The line: generator → inside port [translator] outside port → sink, each in a network namespace,
//! with fixed addresses, routes and neighbours.

use crate::flows::Macs;
use crate::frame::Mac;
use anyhow::{Context, Result};
use lab::netns::Owned;
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
    pub generator: Owned,
    /// Translates; its links are `inside` and `outside`.
    pub translator: Owned,
    /// Counts what arrives; its link is `line`.
    pub sink: Owned,
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

/// A namespace; the name tells which process it belongs to.
fn namespace(role: &str) -> Result<Owned> {
    let space = Owned::create(&format!("sp-bench-{}-{role}", std::process::id()))?;
    space.ip_batch(&["link set lo up"])?;
    Ok(space)
}

fn index(namespace: &Owned, link: &'static str) -> Result<u32> {
    namespace.run(|| Ok(if_nametoindex(link)?)).with_context(|| format!("interface {link}"))
}

/// The end of a link: its namespace, name and address.
type End<'a> = (&'a Owned, &'a str, Mac);

fn link((from, name, mac): End, (to, peer, peer_mac): End, queues: usize) -> Result<()> {
    let queues = format!("numtxqueues {queues} numrxqueues {queues}");
    from.ip_batch(&[format!(
        "link add {name} address {} {queues} type veth peer name {peer} address {} {queues} netns {}",
        text(mac),
        text(peer_mac),
        to.name()
    )])?;
    for (namespace, link) in [(from, name), (to, peer)] {
        namespace.set_sysctl([(format!("ipv6.conf.{link}.disable_ipv6").as_str(), "1")])?;
        namespace.ip_batch(&[format!("link set {link} up")])?;
    }
    Ok(())
}

impl Network {
    /// Sets everything up, with one queue a link: one CPU forwards.
    ///
    /// # Errors
    /// A namespace or link cannot be made.
    pub fn create() -> Result<Network> {
        Self::with_queues(1)
    }

    /// The same with more queues a link: so many CPUs may forward, each on its own queue.
    ///
    /// # Errors
    /// A namespace or link cannot be made.
    pub fn with_queues(queues: usize) -> Result<Network> {
        let generator = namespace("generator")?;
        let translator = namespace("translator")?;
        let sink = namespace("sink")?;
        translator.set_sysctl([
            ("ipv4.ip_forward", "1"),
            ("ipv4.conf.all.rp_filter", "0"),
            ("ipv4.conf.default.rp_filter", "0"),
        ])?;
        for (port, mac, other, hop) in [
            ("inside", MACS.inside_port, &generator, MACS.inside_hop),
            ("outside", MACS.outside_port, &sink, MACS.outside_hop),
        ] {
            link((&translator, port, mac), (other, "line", hop), queues)?;
        }
        let (inside_hop, outside_hop) = (text(MACS.inside_hop), text(MACS.outside_hop));
        translator.ip_batch(&[
            "address add 10.0.0.1/24 dev inside",
            "address add 192.0.2.2/24 dev outside",
            &format!("neighbour replace 10.0.0.2 lladdr {inside_hop} dev inside nud permanent"),
            &format!("neighbour replace 192.0.2.1 lladdr {outside_hop} dev outside nud permanent"),
            "route add 10.0.0.0/8 via 10.0.0.2",
            "route add 198.51.100.0/24 via 192.0.2.1",
        ])?;
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

//! What a case needs around it: comment lines of its own, so that the file stays an STF file for
//! every other tool. docs/packet-tests.md describes the lines.
//!
//! Only these words with a colon right behind them count; every other comment is a comment.

use crate::stf::{Command, Wrong, wrong};
use crate::system::{Line, Systems, Words};
use dataplane::{GatewaySettings, ReversePath};
use std::fmt;
use std::net::IpAddr;

/// What a file's setup lines say; each with its line number, from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// `NAME` or `NAME=VALUE`, in the file's order.
    pub defines: Vec<(u32, String)>,
    /// Links.
    pub ports: Vec<(u32, PortLink)>,
    /// The switch's settings.
    pub gateway: Option<(u32, GatewaySettings)>,
    /// Neighbours.
    pub neighbors: Vec<(u32, Neighbor)>,
    /// Routes.
    pub routes: Vec<(u32, Route)>,
    /// Lines of systems, which [`crate::System`]s read.
    pub systems: Vec<Line>,
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// An address with a prefix length in bits; host bits may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The address.
    pub address: IpAddr,
    /// At most 32 or 128.
    pub length: u8,
}

impl fmt::Display for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.length)
    }
}

/// A P4 port as a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortLink {
    /// P4 port.
    pub port: u32,
    /// The link's own address.
    pub mac: Mac,
    /// The host's addresses there.
    pub addresses: Vec<Prefix>,
    /// The longest IP packet in bytes.
    pub mtu: u32,
    /// Frames for other MACs are not for it.
    pub own_mac: bool,
    /// What is asked of sources.
    pub reverse_path: ReversePath,
    /// Ports that share a multipath route with it.
    pub siblings: Vec<u32>,
}

/// The MTU of links whose line gives none.
pub const DEFAULT_MTU: u32 = 1500;
/// ICMP errors a second where no line gives them.
pub const DEFAULT_ICMP_RATE_PER_S: u32 = 1000;

/// A permanent neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The P4 port where it is.
    pub port: u32,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub prefix: Prefix,
    /// Which way.
    pub way: Way,
}

/// Which way a route goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// To a next hop.
    Via {
        /// Its address.
        gateway: IpAddr,
        /// The P4 port where it is.
        port: u32,
    },
    /// Nowhere: `unreachable`, `blackhole` or `prohibit`.
    Nowhere(&'static str),
}

/// The words that, behind `#` and before `:`, make a comment a setup line, or a step
/// (`takes_over`). Systems have more ([`crate::System::keywords`]).
pub const KEYWORDS: [&str; 6] = ["define", "port", "gateway", "neighbor", "route", "takes_over"];

/// If the line is a setup line or a step: its keyword, and where what follows the colon begins (in
/// bytes).
pub(crate) fn keyword(line: &str, systems: Systems) -> Option<(&'static str, usize)> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start();
    KEYWORDS.into_iter().chain(systems.keywords()).find_map(|keyword| {
        let rest = rest.strip_prefix(keyword)?.strip_prefix(':')?;
        Some((keyword, line.len() - rest.len()))
    })
}

impl Setup {
    /// Takes in a setup line; a step gives a command.
    pub(crate) fn read(&mut self, line: Line, systems: Systems) -> Result<Option<Command>, Wrong> {
        match line.keyword {
            "takes_over" => return line.read(takes_over).map(Some),
            keyword if KEYWORDS.contains(&keyword) => {
                line.read(|words| self.own(line.number, keyword, words))?;
            }
            _ => {
                systems.check(&line, &self.systems)?;
                self.systems.push(line);
            }
        }
        Ok(None)
    }

    /// A line that is no system's.
    fn own(&mut self, number: u32, keyword: &str, parts: &mut Words<'_, '_>) -> Result<(), Wrong> {
        match keyword {
            "define" => self.defines.push((number, define(parts)?)),
            "port" => {
                let (at, link) = port_link(parts)?;
                if self.ports.iter().any(|(_, known)| known.port == link.port) {
                    return wrong(at, format!("port {} is declared already", link.port));
                }
                self.ports.push((number, link));
            }
            "gateway" => {
                let at = parts.peek().map_or(parts.end, |(at, _)| at);
                let settings = gateway(parts)?;
                if let Some((first, _)) = self.gateway.replace((number, settings)) {
                    return wrong(
                        at,
                        format!(
                            "a switch has its settings once, and line {first} already gives them"
                        ),
                    );
                }
            }
            "neighbor" => {
                let neighbor = self.neighbor(parts)?;
                self.neighbors.push((number, neighbor));
            }
            _ => {
                let route = self.route(parts)?;
                self.routes.push((number, route));
            }
        }
        Ok(())
    }

    /// `port N`, of a port that a line before this one declares.
    fn known_port(&self, parts: &mut Words<'_, '_>) -> Result<u32, Wrong> {
        parts.literal("port")?;
        let (at, text) = parts.next("a port number")?;
        match text.parse() {
            Ok(port) if self.ports.iter().any(|(_, known)| known.port == port) => Ok(port),
            Ok(port) => wrong(
                at,
                format!(
                    "port {port} is not declared: write a line `# port: {port} …` before this one"
                ),
            ),
            Err(_) => wrong(at, format!("{text:?} is not a port number")),
        }
    }

    fn neighbor(&self, parts: &mut Words<'_, '_>) -> Result<Neighbor, Wrong> {
        let (_, address) = parts.parsed::<IpAddr>("an address")?;
        Ok(Neighbor { address, mac: mac(parts)?, port: self.known_port(parts)? })
    }

    fn route(&self, parts: &mut Words<'_, '_>) -> Result<Route, Wrong> {
        let prefix = prefix(parts)?;
        let (at, word) = parts.next("`via ADDRESS port N`, unreachable, blackhole or prohibit")?;
        let way = match word {
            "via" => {
                let (at, gateway) = parts.parsed::<IpAddr>("an address")?;
                if gateway.is_ipv4() != prefix.address.is_ipv4() {
                    return wrong(at, format!("{gateway} is not of the same family as {prefix}"));
                }
                Way::Via { gateway, port: self.known_port(parts)? }
            }
            "unreachable" => Way::Nowhere("unreachable"),
            "blackhole" => Way::Nowhere("blackhole"),
            "prohibit" => Way::Nowhere("prohibit"),
            _ => {
                return wrong(
                    at,
                    format!("{word:?}: via, unreachable, blackhole or prohibit belongs here"),
                );
            }
        };
        Ok(Route { prefix, way })
    }
}

/// `another switch` or `the same switch`
fn takes_over(parts: &mut Words<'_, '_>) -> Result<Command, Wrong> {
    let same = match parts.next("`another switch` or `the same switch`")? {
        (_, "another") => false,
        (_, "the") => parts.literal("same").map(|()| true)?,
        (at, word) => {
            return wrong(
                at,
                format!("`another switch` or `the same switch` belongs here, not {word:?}"),
            );
        }
    };
    parts.literal("switch")?;
    Ok(Command::TakesOver { same })
}

fn define(parts: &mut Words<'_, '_>) -> Result<String, Wrong> {
    let (at, text) = parts.next("NAME or NAME=VALUE")?;
    let name = text.split('=').next().unwrap_or_default();
    let letters = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if name.is_empty() || !letters || name.starts_with(|first: char| first.is_ascii_digit()) {
        return wrong(at, format!("{name:?} is not a macro's name"));
    }
    Ok(text.to_owned())
}

fn port_link(parts: &mut Words<'_, '_>) -> Result<(usize, PortLink), Wrong> {
    let (at, port) = parts.parsed::<u32>("a port number")?;
    let mut link = PortLink {
        port,
        mac: mac(parts)?,
        addresses: vec![],
        mtu: DEFAULT_MTU,
        own_mac: false,
        reverse_path: ReversePath::Off,
        siblings: vec![],
    };
    while !parts.words.is_empty() {
        let (at, word) = parts.next("`address`")?;
        match word {
            "address" => link.addresses.push(prefix(parts)?),
            "mtu" => (_, link.mtu) = parts.parsed("a number of bytes")?,
            "own_mac" => link.own_mac = true,
            "reverse_path" => {
                let (at, word) = parts.next("strict or loose")?;
                link.reverse_path = match word {
                    "strict" => ReversePath::Strict,
                    "loose" => ReversePath::Loose,
                    _ => return wrong(at, format!("{word:?}: strict or loose belongs here")),
                };
            }
            "sibling" => match parts.parsed("a port number")? {
                (_, sibling @ 0..=63) => link.siblings.push(sibling),
                (at, sibling) => return wrong(at, format!("port {sibling} is not below 64")),
            },
            _ => {
                let words = "`address`, `mtu`, `own_mac`, `reverse_path` or `sibling`";
                return wrong(at, format!("{words} belongs here, not {word:?}"));
            }
        }
    }
    Ok((at, link))
}

fn gateway(parts: &mut Words<'_, '_>) -> Result<GatewaySettings, Wrong> {
    let mut settings =
        GatewaySettings { icmp_rate_per_s: DEFAULT_ICMP_RATE_PER_S, ..GatewaySettings::default() };
    while !parts.words.is_empty() {
        match parts.next("a setting")? {
            (_, "icmp_rate_per_s") => (_, settings.icmp_rate_per_s) = parts.parsed("a number")?,
            (_, "clamp_mss") => settings.clamp_mss = true,
            (_, "hold_fragments") => settings.hold_fragments = true,
            (at, word) => {
                let words = "`icmp_rate_per_s`, `clamp_mss` or `hold_fragments`";
                return wrong(at, format!("{words} belongs here, not {word:?}"));
            }
        }
    }
    Ok(settings)
}

/// `mac MAC`
fn mac(parts: &mut Words<'_, '_>) -> Result<Mac, Wrong> {
    parts.literal("mac")?;
    let (at, text) = parts.next("an Ethernet address")?;
    let mut mac = Mac([0; 6]);
    let mut groups = text.split(':');
    for byte in &mut mac.0 {
        match groups.next().filter(|group| {
            group.len() == 2 && group.bytes().all(|digit| digit.is_ascii_hexdigit())
        }) {
            Some(group) => *byte = u8::from_str_radix(group, 16).unwrap_or_default(),
            None => {
                return wrong(
                    at,
                    format!("{text:?} is not an Ethernet address such as 02:00:00:00:00:01"),
                );
            }
        }
    }
    match groups.next() {
        None => Ok(mac),
        Some(_) => wrong(at, format!("{text:?} has more than six groups")),
    }
}

/// `ADDRESS/LENGTH`
fn prefix(parts: &mut Words<'_, '_>) -> Result<Prefix, Wrong> {
    let (at, text) = parts.next("ADDRESS/LENGTH")?;
    let split = text
        .split_once('/')
        .and_then(|(address, length)| Some((address.parse().ok()?, length.parse().ok()?)));
    match split {
        Some((address @ IpAddr::V4(_), length @ 0..=32))
        | Some((address @ IpAddr::V6(_), length @ 0..=128)) => Ok(Prefix { address, length }),
        _ => wrong(at, format!("{text:?} is not ADDRESS/LENGTH such as 10.0.0.1/24")),
    }
}

#[cfg(test)]
mod tests {
    use crate::Case;
    use crate::setup::{Mac, Neighbor, PortLink, Prefix, Route, Setup, Way};
    use crate::{Command, Systems};
    use dataplane::{GatewaySettings, ReversePath};

    fn setup(text: &str) -> Setup {
        Case::parse("x.stf", text, Systems::NONE)
            .unwrap_or_else(|errors| panic!("{errors:?}"))
            .setup
    }

    fn prefix(address: &str, length: u8) -> Prefix {
        Prefix { address: address.parse().unwrap(), length }
    }

    #[test]
    fn reads_every_line() {
        let read = setup(
            "# define: A\n#define: B=2\n # port: 3 mac 02:00:00:00:00:a0 address 10.0.0.1/24 address 2001:db8::1/64\n\
             # neighbor: 10.0.0.5 mac 02:00:00:00:00:05 port 3\n# route: 0.0.0.0/0 via 10.0.0.5 port 3\n\
             # route: 198.18.0.0/15 prohibit\n",
        );
        assert_eq!(read.defines, [(1, "A".to_owned()), (2, "B=2".to_owned())]);
        let addresses = vec![prefix("10.0.0.1", 24), prefix("2001:db8::1", 64)];
        let link = PortLink {
            port: 3,
            mac: Mac([2, 0, 0, 0, 0, 0xa0]),
            addresses,
            mtu: 1500,
            own_mac: false,
            reverse_path: ReversePath::Off,
            siblings: vec![],
        };
        assert_eq!(read.ports, [(3, link)]);
        let address = "10.0.0.5".parse().unwrap();
        assert_eq!(
            read.neighbors,
            [(4, Neighbor { address, mac: Mac([2, 0, 0, 0, 0, 5]), port: 3 })]
        );
        let way = Way::Via { gateway: address, port: 3 };
        assert_eq!(read.routes[0], (5, Route { prefix: prefix("0.0.0.0", 0), way }));
        assert_eq!(
            read.routes[1],
            (6, Route { prefix: prefix("198.18.0.0", 15), way: Way::Nowhere("prohibit") })
        );
    }

    #[test]
    fn reads_what_a_gateway_asks() {
        let read = setup(
            "# port: 0 mac 02:00:00:00:00:a0 mtu 1400 own_mac reverse_path loose\n\
             # port: 1 mac 02:00:00:00:00:a1 reverse_path strict sibling 0\n\
             # gateway: icmp_rate_per_s 2 clamp_mss hold_fragments\n",
        );
        let [(_, first), (_, second)] = &read.ports[..] else { panic!("{:?}", read.ports) };
        assert_eq!(
            (first.mtu, first.own_mac, first.reverse_path),
            (1400, true, ReversePath::Loose)
        );
        assert_eq!(
            (second.mtu, second.own_mac, second.reverse_path),
            (1500, false, ReversePath::Strict)
        );
        assert_eq!(second.siblings, [0]);
        let settings =
            GatewaySettings { icmp_rate_per_s: 2, clamp_mss: true, hold_fragments: true };
        assert_eq!(read.gateway, Some((3, settings)));
    }

    #[test]
    fn comments_stay_comments() {
        let text = "# port 1 is outside\n# ports: two\n# the route: none\n#\n# define :X\nwait # define: lower\n# Route: x\n";
        assert_eq!(setup(text), Setup::default());
    }

    #[test]
    fn says_where_a_line_is_wrong() {
        const PORT: &str = "# port: 0 mac 02:00:00:00:00:a0\n";
        for (line, column, part) in [
            ("# define:", 10, "NAME"),
            ("# define: 1A", 11, "not a macro's name"),
            ("# define: A B", 13, "nothing may follow"),
            ("# port: x mac 02:00:00:00:00:01", 9, "not a port number"),
            ("# port: 0 mac 02:00:00:00:00:01", 9, "already"),
            ("# port: 1", 10, "`mac` belongs here"),
            ("# port: 1 mac 02:00:00:00:00", 15, "not an Ethernet address"),
            ("# port: 1 mac 02:00:00:00:00:0g", 15, "not an Ethernet address"),
            ("# port: 1 mac 02:00:00:00:00:01:02", 15, "more than six"),
            ("# port: 1 mac 02:00:00:00:00:01 10.0.0.1/8", 33, "`address`, `mtu`"),
            ("# port: 1 mac 02:00:00:00:00:01 reverse_path no", 46, "strict or loose"),
            ("# port: 1 mac 02:00:00:00:00:01 sibling 64", 41, "not below 64"),
            ("# gateway: any", 12, "belongs here"),
            ("# port: 1 mac 02:00:00:00:00:01 address 10.0.0.1", 41, "not ADDRESS/LENGTH"),
            ("# port: 1 mac 02:00:00:00:00:01 address 10.0.0.1/33", 41, "not ADDRESS/LENGTH"),
            ("# neighbor: 10.0.0 mac 02:00:00:00:00:01 port 0", 13, "not an address"),
            ("# neighbor: 10.0.0.1 mac 02:00:00:00:00:01 port 1", 49, "`# port: 1 …`"),
            ("# route: 10.0.0.0/8", 20, "belongs here"),
            ("# route: 10.0.0.0/8 to", 21, "unreachable"),
            ("# route: 10.0.0.0/8 via ::1 port 0", 25, "same family"),
            ("# route: 10.0.0.0/8 via 10.0.0.1", 33, "`port` belongs here"),
            ("# route: 10.0.0.0/8 unreachable port 0", 33, "nothing may follow"),
            ("# takes_over: it", 15, "`another switch` or"),
            ("# takes_over: another", 22, "`switch` belongs here"),
            ("# takes_over: the other switch", 19, "`same` belongs here"),
        ] {
            let errors =
                Case::parse("x.stf", &format!("{PORT}{line}\n"), Systems::NONE).expect_err(line);
            assert_eq!(
                (errors.len(), errors[0].line, errors[0].column),
                (1, 2, column),
                "{line}: {}",
                errors[0]
            );
            assert!(errors[0].reason.contains(part), "{line}: {}", errors[0]);
        }
        let case = Case::parse("x.stf", "wait\n# takes_over: the same switch\n", Systems::NONE);
        let steps = case.unwrap_or_else(|errors| panic!("{errors:?}")).commands;
        assert_eq!(steps, [(1, Command::Wait), (2, Command::TakesOver { same: true })]);
    }
}

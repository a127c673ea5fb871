//! What the NAT must do with a frame: written from the comments of systems/redplane/p4/nat/nat.p4,
//! systems/redplane/docs/state-protocol.md and the RFCs, on whole frames, without a look at the
//! emitted code.

use crate::checksum;
use crate::network::{Way, way};

/// External addresses: 203.0.113.0/29.
pub const EXTERNAL: ([u8; 4], u32) = ([203, 0, 113, 0], 29);
/// Inside addresses: translated as sources, never as destinations.
pub const INSIDE: ([u8; 4], u32) = ([10, 0, 0, 0], 8);

const ETHERNET: usize = 14;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Of TCP's flags, those that say whether a segment opens a connection: ACK, RST, SYN and FIN (RFC
/// 5382).
const TCP_OPENING: u8 = 0x17;
const TCP_SYN: u8 = 2;

/// Who talks to whom; for ICMP echo the identifier stands in for the port of the side that asked,
/// and the other side's port is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// IPv4.
    pub source: u32,
    /// IPv4.
    pub destination: u32,
    /// Or identifier, or 0.
    pub source_port: u16,
    /// Or identifier, or 0.
    pub destination_port: u16,
    /// IPv4's.
    pub protocol: u8,
}

impl Key {
    /// As on the wire of the state protocol.
    pub fn to_bytes(self) -> [u8; 13] {
        let mut bytes = [0; 13];
        bytes[..4].copy_from_slice(&self.source.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.destination.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.source_port.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.destination_port.to_be_bytes());
        bytes[12] = self.protocol;
        bytes
    }

    /// Back from [`Key::to_bytes`].
    pub fn from_bytes(bytes: &[u8; 13]) -> Key {
        Key {
            source: word32(bytes, 0),
            destination: word32(bytes, 4),
            source_port: word16(bytes, 8),
            destination_port: word16(bytes, 10),
            protocol: bytes[12],
        }
    }

    /// The key of returning packets when this one is bound.
    pub fn reverse(self, binding: Binding) -> Key {
        Key {
            source: self.destination,
            destination: binding.address,
            source_port: self.destination_port,
            destination_port: binding.port,
            protocol: self.protocol,
        }
    }
}

/// What the source (outbound) or the destination (inbound) becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// IPv4.
    pub address: u32,
    /// Or ICMP echo identifier.
    pub port: u16,
}

impl Binding {
    /// As on the wire of the state protocol.
    pub fn to_bytes(self) -> [u8; 6] {
        let mut bytes = [0; 6];
        bytes[..4].copy_from_slice(&self.address.to_be_bytes());
        bytes[4..].copy_from_slice(&self.port.to_be_bytes());
        bytes
    }

    /// Back from the first six bytes.
    pub fn from_bytes(bytes: &[u8]) -> Binding {
        Binding { address: word32(bytes, 0), port: word16(bytes, 4) }
    }
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From an inside host to the outside.
    Outbound,
    /// To an external address.
    Inbound,
    /// From an inside host to an external address: outbound, then inbound (RFC 4787, REQ-9).
    Hairpin,
}

/// The first fragments that came: their packets' addresses, identification and protocol, ports, and
/// when, in ns.
pub type Fragments = std::collections::HashMap<(u32, u32, u16, u8), (u16, u16, u64)>;

/// What the NAT remembers of packets, beside its bindings.
#[derive(Default)]
pub struct Memory {
    /// First fragments.
    pub fragments: Fragments,
    /// Ports that packets of inside hosts to the outside have come in on.
    pub inside_ports: std::collections::HashSet<u16>,
}

/// So long a fragment's ports are remembered, in ns (stateplane.p4).
const FRAGMENT_LIFE_NS: u64 = 30_000_000_000;

/// P4 port of what this host's kernel sends on as it is.
pub const KERNEL_PORT: u32 = 510;

/// What becomes of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing.
    Drop,
    /// Up to the kernel: the frame as it came in.
    ToHost(Vec<u8>),
    /// Out of a port. (By the kernel's own routes, [`KERNEL_PORT`]: the link addresses are zero.)
    Forward(u32, Vec<u8>),
}

/// What a frame needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: its fate is certain.
    Certain(Fate),
    /// The binding of this key: [`translated`] with it, dropped without.
    Bound {
        /// Of the outer packet.
        direction: Direction,
        /// What to look up.
        key: Key,
        /// A binding is made if there is none.
        allocate: bool,
    },
}

pub(crate) fn word16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Is an address in a prefix?
pub(crate) fn within((prefix, length): ([u8; 4], u32), address: u32) -> bool {
    (u32::from_be_bytes(prefix) ^ address) >> (32 - length) == 0
}

/// An IPv4 packet inside `frame`, whose header begins at `at`.
#[derive(Clone, Copy)]
struct Ip<'a> {
    frame: &'a [u8],
    at: usize,
    /// Where its header ends.
    payload: usize,
    /// Where the outermost packet ends by its own length; behind it, Ethernet pads. (The frame may
    /// be cut short before.)
    end: usize,
}

impl<'a> Ip<'a> {
    /// `None`: cut short, or no IPv4 header (RFC 1812, 5.2.2).
    fn parse(frame: &'a [u8], at: usize) -> Option<Ip<'a>> {
        let first = *frame.get(at)?;
        let words = usize::from(first & 15);
        let payload = at + 4 * words;
        let is_whole =
            first >> 4 == 4 && words >= 5 && frame.len() >= at + 20 && frame.len() >= payload;
        let end = is_whole.then(|| ETHERNET + usize::from(word16(frame, ETHERNET + 2)))?;
        (payload <= end).then_some(Ip { frame, at, payload, end })
    }

    fn total_length(&self) -> u16 {
        word16(self.frame, self.at + 2)
    }

    fn later_fragment(&self) -> bool {
        word16(self.frame, self.at + 6) & 0x1fff != 0
    }

    fn has_more_fragments(&self) -> bool {
        word16(self.frame, self.at + 6) & 0x2000 != 0
    }

    fn must_stay_whole(&self) -> bool {
        word16(self.frame, self.at + 6) & 0x4000 != 0
    }

    fn protocol(&self) -> u8 {
        self.frame[self.at + 9]
    }

    fn source(&self) -> u32 {
        word32(self.frame, self.at + 12)
    }

    fn destination(&self) -> u32 {
        word32(self.frame, self.at + 16)
    }

    /// The transport header, if so many bytes of it are there.
    fn transport(&self, bytes: usize) -> Option<&'a [u8]> {
        self.frame
            .get(self.payload..self.payload + bytes)
            .filter(|_| self.payload + bytes <= self.end)
    }

    fn key(&self, source_port: u16, destination_port: u16) -> Key {
        Key {
            source: self.source(),
            destination: self.destination(),
            source_port,
            destination_port,
            protocol: self.protocol(),
        }
    }
}

/// What a packet can be translated as.
enum Kind {
    /// Its key; and whether it may make a binding.
    Conversation(Key, bool),
    /// An error about a packet with this key: its own direction's, so turned round.
    Error(Key),
    Unsupported,
}

fn kind(ip: Ip<'_>) -> Kind {
    let ports =
        |bytes: &[u8], asks| Kind::Conversation(ip.key(word16(bytes, 0), word16(bytes, 2)), asks);
    let known = match ip.protocol() {
        TCP => ip.transport(20).map(|bytes| ports(bytes, bytes[13] & TCP_OPENING == TCP_SYN)),
        UDP => ip.transport(8).map(|bytes| ports(bytes, true)),
        ICMP => ip.transport(8).and_then(|bytes| match bytes[0] {
            8 => Some(Kind::Conversation(ip.key(word16(bytes, 4), 0), true)),
            0 => Some(Kind::Conversation(ip.key(0, word16(bytes, 4)), false)),
            3 | 11 | 12 => embedded(ip).map(Kind::Error),
            _ => None,
        }),
        _ => None,
    };
    known.unwrap_or(Kind::Unsupported)
}

/// The key of an answer to the packet that an ICMP error is about; `None` if the error carries too
/// little, or an error's error.
fn embedded(ip: Ip<'_>) -> Option<Key> {
    let about = Ip::parse(ip.frame, ip.payload + 8)?;
    if about.later_fragment() {
        return None;
    }
    let turned = |source_port, destination_port| Key {
        source: about.destination(),
        destination: about.source(),
        source_port,
        destination_port,
        protocol: about.protocol(),
    };
    match about.protocol() {
        // Eight (RFC 792); of a frame cut short the ports will do.
        TCP => about
            .transport(4)
            .filter(|_| about.payload + 8 <= about.end)
            .map(|bytes| turned(word16(bytes, 2), word16(bytes, 0))),
        UDP => about.transport(8).map(|bytes| turned(word16(bytes, 2), word16(bytes, 0))),
        ICMP => about.transport(8).and_then(|bytes| match bytes[0] {
            8 => Some(turned(0, word16(bytes, 4))),
            0 => Some(turned(word16(bytes, 4), 0)),
            _ => None,
        }),
        _ => None,
    }
}

/// Is a UDP or TCP header, at `at` in a packet with so many bytes from there on, or what it says of
/// lengths, not all there?
fn is_short(frame: &[u8], at: usize, protocol: u8, payload: usize, has_more: bool) -> bool {
    match protocol {
        UDP => {
            let length = if payload < 8 { 0 } else { usize::from(word16(frame, at + 4)) };
            length < 8 || (length > payload && !has_more)
        }
        TCP => {
            let header = if payload < 20 { 0 } else { usize::from(frame[at + 12] >> 4) * 4 };
            header < 20 || header > payload
        }
        _ => false,
    }
}

/// What a gateway may not forward (RFC 1812, 5.2.2, 5.3.7). Ports have neither addresses nor routes
/// to look at here.
fn is_refused_ipv4(frame: &[u8]) -> bool {
    let Some(ip) = Ip::parse(frame, ETHERNET) else { return true };
    let (source, destination) = (ip.source() >> 24, ip.destination() >> 24);
    ip.end > frame.len()
        || !checksum::sum(&frame[ETHERNET..ip.payload]).is_multiple_of(0xffff)
        || matches!(source, 0 | 127 | 224..)
        || matches!(destination, 0 | 127)
        || ip.destination() == u32::MAX
        // `@own_destination`: nobody has an address of the pool, so a packet from one is forged.
        || within(EXTERNAL, ip.source())
        || !are_options_right(&frame[ETHERNET + 20..ip.payload])
        || is_wrong_fragment(
            word16(frame, ETHERNET + 6),
            ip.end - ip.payload,
            ip.payload - ETHERNET,
        )
        || (!ip.later_fragment()
            && is_short(
                frame,
                ip.payload,
                ip.protocol(),
                ip.end - ip.payload,
                ip.has_more_fragments(),
            ))
}

/// Does each option have a length that fits (RFC 791, 3.1)?
fn are_options_right(mut options: &[u8]) -> bool {
    while let Some(kind) = options.first() {
        let length = match (kind, options.get(1)) {
            (0, _) => return true,
            (1, _) => 1,
            (_, Some(length)) if *length >= 2 => usize::from(*length),
            _ => return false,
        };
        let Some(rest) = options.get(length..) else { return false };
        options = rest;
    }
    true
}

/// Is it a fragment of which no whole packet can be made?
fn is_wrong_fragment(field: u16, payload: usize, header: usize) -> bool {
    let (offset, has_more) = (usize::from(field & 0x1fff) * 8, field & 0x2000 != 0);
    (has_more && (payload == 0 || !payload.is_multiple_of(8)))
        || (offset != 0 && header + offset + payload > usize::from(u16::MAX))
}

/// The same of IPv6 (RFC 4291, 2.5).
fn is_refused_ipv6(frame: &[u8]) -> bool {
    const HEADER: usize = ETHERNET + 40;
    if frame.len() < HEADER || frame[ETHERNET] >> 4 != 6 {
        return true;
    }
    let payload = usize::from(word16(frame, ETHERNET + 4));
    let is_martian = |at: usize| {
        let words = [
            word32(frame, at),
            word32(frame, at + 4),
            word32(frame, at + 8),
            word32(frame, at + 12),
        ];
        matches!(words, [0, 0, 0, 0 | 1] | [0, 0, 0xffff, _])
    };
    payload + HEADER > frame.len()
        || frame[ETHERNET + 8] == 0xff
        || is_martian(ETHERNET + 8)
        || is_martian(ETHERNET + 24)
        || is_refused_ipv6_payload(frame, HEADER, frame[ETHERNET + 6], payload)
}

fn is_refused_ipv6_payload(frame: &[u8], at: usize, next: u8, bytes: usize) -> bool {
    if next != 44 {
        return is_short(frame, at, next, bytes, false);
    }
    let Some(bytes) = bytes.checked_sub(8) else { return true };
    let field = word16(frame, at + 2);
    let (offset, has_more) = (usize::from(field & 0xfff8), field & 1 != 0);
    let is_wrong = (has_more && (bytes == 0 || !bytes.is_multiple_of(8)))
        || offset + bytes > usize::from(u16::MAX);
    is_wrong || (offset == 0 && is_short(frame, at + 8, frame[at], bytes, has_more))
}

/// Was an inbound packet that was found to lead there hairpin, on a port that no inside host was
/// known to be at?
pub fn was_hairpin(frame: &[u8], inner: Option<Binding>) -> bool {
    let Some(ip) = Ip::parse(frame, ETHERNET) else { return false };
    let leads_nowhere = inner.is_none_or(|to| {
        matches!(way(to.address, ip.total_length()), Way::Local | Way::Unreachable)
    });
    within(INSIDE, ip.source()) && leads_nowhere
}

/// A tag of VLAN 0, and no ARP behind it (802.1Q, 6.9).
fn has_priority_tag(frame: &[u8]) -> bool {
    let whole = frame.len() >= ETHERNET + 4;
    whole && word16(frame, ETHERNET) & 0xfff == 0 && word16(frame, ETHERNET + 2) != 0x0806
}

/// What the NAT must do with a frame that came in on a port, at a time in ns.
pub fn judge(frame: &[u8], port: u16, memory: &mut Memory, now_ns: u64) -> Verdict {
    let certain = Verdict::Certain;
    if frame.len() < ETHERNET {
        return certain(Fate::ToHost(frame.to_vec()));
    }
    match word16(frame, 12) {
        0x0800 if is_refused_ipv4(frame) => return certain(Fate::Drop),
        0x86dd if is_refused_ipv6(frame) => return certain(Fate::Drop),
        0x0800 => {}
        0x8100 | 0x88a8 if has_priority_tag(frame) => return certain(Fate::Drop),
        _ => return certain(Fate::ToHost(frame.to_vec())),
    }
    let Some(ip) = Ip::parse(frame, ETHERNET) else { return certain(Fate::Drop) };
    // TTL 0 and 1: time exceeded (RFC 1812, 5.3.1). (No port has an address that it could be from.)
    if frame[ETHERNET + 8] <= 1 {
        return certain(Fate::Drop);
    }
    let from_inside = within(INSIDE, ip.source());
    let direction = match within(EXTERNAL, ip.destination()) {
        true if from_inside && memory.inside_ports.contains(&port) => Direction::Hairpin,
        true => Direction::Inbound,
        false if from_inside && !within(INSIDE, ip.destination()) => Direction::Outbound,
        false => return certain(routed(frame)),
    };
    let (key, asks) = match kind_of_fragment(ip, &mut memory.fragments, now_ns) {
        Kind::Conversation(key, asks) => (key, asks),
        // It must be addressed to the source of the packet that it is about.
        Kind::Error(key) if key.destination == ip.destination() => (key, false),
        Kind::Error(_) | Kind::Unsupported => return certain(Fate::Drop),
    };
    if direction == Direction::Hairpin && key.protocol == ICMP {
        return certain(Fate::Drop);
    }
    // What has no way out makes no binding.
    if direction == Direction::Outbound {
        match way(ip.destination(), ip.total_length()) {
            Way::Local | Way::Unreachable => return certain(Fate::ToHost(frame.to_vec())),
            // (The port has no address that an ICMP error could be from.)
            Way::TooBig if ip.must_stay_whole() => return certain(Fate::Drop),
            _ => {}
        }
    }
    let allocate = asks && direction != Direction::Inbound;
    if allocate {
        memory.inside_ports.insert(port);
    }
    Verdict::Bound { direction, key, allocate }
}

/// The same as [`kind`], of fragments too: they have the ports of their first one.
fn kind_of_fragment(ip: Ip<'_>, fragments: &mut Fragments, now_ns: u64) -> Kind {
    let of = (ip.source(), ip.destination(), word16(ip.frame, ip.at + 4), ip.protocol());
    // One that would overwrite a TCP segment's flags (RFC 1858).
    if word16(ip.frame, ip.at + 6) & 0x1fff == 1 && ip.protocol() == TCP {
        return Kind::Unsupported;
    }
    if ip.later_fragment() {
        return match fragments.get(&of) {
            Some((source_port, destination_port, seen_ns))
                if matches!(ip.protocol(), TCP | UDP | ICMP)
                    && now_ns.wrapping_sub(*seen_ns) < FRAGMENT_LIFE_NS =>
            {
                Kind::Conversation(ip.key(*source_port, *destination_port), false)
            }
            _ => Kind::Unsupported,
        };
    }
    let kind = kind(ip);
    if let (Kind::Conversation(key, _), true) = (&kind, ip.has_more_fragments()) {
        fragments.insert(of, (key.source_port, key.destination_port, now_ns));
    }
    kind
}

fn routed(frame: &[u8]) -> Fate {
    match way(word32(frame, ETHERNET + 16), word16(frame, ETHERNET + 2)) {
        Way::Forward { port, destination_mac, source_mac } => {
            let mut out = frame.to_vec();
            leave(frame, &mut out, destination_mac, source_mac);
            Fate::Forward(port, out)
        }
        _ => Fate::ToHost(frame.to_vec()),
    }
}

/// What every forwarded packet gets: link addresses, one less of TTL, and the header checksum of
/// what it is by now.
fn leave(before: &[u8], out: &mut [u8], destination_mac: [u8; 6], source_mac: [u8; 6]) {
    out[..6].copy_from_slice(&destination_mac);
    out[6..12].copy_from_slice(&source_mac);
    out[ETHERNET + 8] -= 1;
    keep_ip_checksum(before, out, ETHERNET);
}

fn keep_ip_checksum(before: &[u8], out: &mut [u8], at: usize) {
    let header =
        |frame: &[u8]| checksum::sum(&frame[at..at + 20]) - u64::from(word16(frame, at + 10));
    let checksum = checksum::kept(word16(before, at + 10), header(before), header(out));
    out[at + 10..at + 12].copy_from_slice(&checksum.to_be_bytes());
}

/// Sum of what a transport checksum at `field` covers, itself excepted: from `start` on, and the
/// addresses of the IPv4 header at `ip`.
fn covered(frame: &[u8], start: usize, field: usize, ip: Option<usize>) -> u64 {
    let addresses = ip.map_or(0, |at| checksum::sum(&frame[at + 12..at + 20]));
    addresses + checksum::sum(&frame[start..field]) + checksum::sum(&frame[field + 2..])
}

fn keep_checksum(before: &[u8], out: &mut [u8], start: usize, field: usize, ip: Option<usize>) {
    let sums = (covered(before, start, field, ip), covered(out, start, field, ip));
    let checksum = checksum::kept(word16(before, field), sums.0, sums.1);
    out[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
}

fn put_address(out: &mut [u8], at: usize, address: u32) {
    out[at..at + 4].copy_from_slice(&address.to_be_bytes());
}

fn put_port(out: &mut [u8], at: usize, port: u16) {
    out[at..at + 2].copy_from_slice(&port.to_be_bytes());
}

/// Gives the source or the destination of the packet at `ip` another address and port (ICMP echo:
/// identifier), its own checksums with it. Only what is in the frame: an ICMP error may carry no
/// more than eight bytes of transport header.
fn replace(before: &[u8], out: &mut [u8], ip: Ip<'_>, source: bool, binding: Binding, end: usize) {
    let (transport, udp_no_checksum) =
        (ip.payload, ip.protocol() == UDP && word16(before, ip.payload + 6) == 0);
    put_address(out, ip.at + if source { 12 } else { 16 }, binding.address);
    match ip.protocol() {
        ICMP => {
            put_port(out, transport + 4, binding.port);
            keep_checksum(before, out, transport, transport + 2, None);
        }
        protocol => {
            put_port(out, transport + if source { 0 } else { 2 }, binding.port);
            let field = transport + if protocol == TCP { 16 } else { 6 };
            if protocol == UDP && udp_no_checksum || field + 2 > end {
                return;
            }
            keep_checksum(before, out, transport, field, Some(ip.at));
            if protocol == UDP && word16(out, field) == 0 {
                put_port(out, field, 0xffff); // RFC 768: 0 would say that there is none
            }
        }
    }
}

/// What a frame that [`judge`] found to be [`Verdict::Bound`] becomes with its bindings: of its
/// source, if it comes from an inside host, and of its destination, if it goes to one.
pub fn translated(frame: &[u8], outer: Option<Binding>, inner: Option<Binding>) -> Fate {
    let mut out = frame.to_vec();
    for (binding, source) in [(outer, true), (inner, false)] {
        let Some(binding) = binding else { continue };
        let before = out.clone();
        rewrite(&before, &mut out, source, binding);
    }
    let Some(ip) = Ip::parse(frame, ETHERNET) else { return Fate::Drop };
    match way(word32(&out, ETHERNET + 16), ip.total_length()) {
        Way::Forward { port, destination_mac, source_mac } => {
            leave(frame, &mut out, destination_mac, source_mac);
            Fate::Forward(port, out)
        }
        Way::Local | Way::Unreachable => Fate::Drop,
        Way::TooBig if ip.must_stay_whole() => Fate::Drop,
        Way::Kernel | Way::TooBig => {
            leave(frame, &mut out, [0; 6], [0; 6]);
            Fate::Forward(KERNEL_PORT, out)
        }
    }
}

/// Gives a packet's source, or its destination, its binding; of an ICMP error, the packet that it
/// is about as well.
fn rewrite(frame: &[u8], out: &mut [u8], source: bool, binding: Binding) {
    let Some(ip) = Ip::parse(frame, ETHERNET) else { return };
    let is_error =
        !ip.later_fragment() && ip.protocol() == ICMP && matches!(frame[ip.payload], 3 | 11 | 12);
    if let (true, Some(about)) = (is_error, Ip::parse(frame, ip.payload + 8)) {
        // RFC 5508, section 4: the embedded packet becomes the one that the receiver knows. It went
        // the other way.
        let end = frame.len().min(ip.end);
        replace(frame, out, about, !source, binding, end);
        keep_ip_checksum(frame, out, about.at);
        keep_checksum(frame, out, ip.payload, ip.payload + 2, None);
    } else if !ip.later_fragment() {
        replace(frame, out, ip, source, binding, frame.len());
    }
    put_address(out, ETHERNET + if source { 12 } else { 16 }, binding.address);
}

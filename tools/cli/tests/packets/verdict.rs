//! What became of a packet, in words: forwarded how, answered by which ICMP error, or dropped.

use super::packet::{TCP, UDP, out_of_tunnel};
use super::system::GATEWAY;
use super::view::View;
use super::wire::{Mac, Place, Seen};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Someone by address and, if that matters, port.
#[derive(Clone, Debug)]
pub struct Name {
    pub address: IpAddr,
    pub port: Option<u16>,
    pub name: &'static str,
}

/// A packet that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub id: u16,
    pub from: Place,
    /// The packet, whole, as its sender means it (without the tunnel that it may be in).
    pub ip: Vec<u8>,
    /// Which of the inside hosts has it is chance: a balancer's choice.
    pub anywhere: bool,
    /// With an 802.1Q tag.
    pub tagged: bool,
    pub names: Vec<Name>,
}

/// What a place is like.
pub struct Ground {
    pub place: Place,
    pub mtu: usize,
    pub mac: Mac,
    /// The switch's port there.
    pub far: Mac,
}

/// The packet in a frame; out of its tunnel, if it is in one.
fn packet(frame: &[u8]) -> Option<&[u8]> {
    match frame.get(12..14)? {
        [0x08, 0x00] | [0x86, 0xdd] => {
            let packet = &frame[14..];
            Some(out_of_tunnel(packet).unwrap_or(packet))
        }
        _ => None,
    }
}

/// A packet that came to a place.
struct Came<'a> {
    view: View,
    seen: &'a Seen,
    /// What is to be said of the tunnel that it was in.
    tunnel: Option<&'static str>,
}

/// What came to a place. Fragments of a tunnel's packet are put together: what is in it is in no
/// single one.
fn arrivals(seen: &[Seen], place: Place) -> Vec<Came<'_>> {
    let mut came = vec![];
    let mut pieces: BTreeMap<u16, Vec<(View, &Seen)>> = BTreeMap::new();
    let mut wholes: BTreeMap<u16, Vec<(View, &Seen)>> = BTreeMap::new();
    for seen in seen.iter().filter(|seen| seen.place == place) {
        let Some(view) = packet(&seen.frame).and_then(View::of) else { continue };
        if !view.is_fragment() || view.source != IpAddr::V4(GATEWAY) {
            came.push(Came { view, seen, tunnel: None });
            continue;
        }
        let id = view.id;
        let pieces = pieces.entry(id).or_default();
        pieces.push((view, seen));
        let views: Vec<View> = pieces.iter().map(|(view, _)| view.clone()).collect();
        let Some(whole) = View::whole(&views) else { continue };
        pieces.clear();
        let mut bytes = [whole.header, whole.payload].concat();
        bytes[6..8].copy_from_slice(&[0, 0]);
        if let Some(view) = out_of_tunnel(&bytes).and_then(View::of) {
            wholes.entry(id).or_default().push((view, seen));
        }
    }
    for of_one in wholes.into_values() {
        let said = if of_one.len() == 1 {
            "its tunnel in fragments"
        } else {
            "fragments of several tunnels with one id"
        };
        came.extend(of_one.into_iter().map(|(view, seen)| Came { view, seen, tunnel: Some(said) }));
    }
    came
}

/// Whether a frame is about `sent`: the packet itself, or an error that quotes it.
fn is_about(sent: &Sent, view: &View) -> Option<About> {
    if let Some((kind, code, _, quoted)) = view.error() {
        let own =
            View::of(&sent.ip).and_then(|own| own.error().map(|(kind, code, _, _)| (kind, code)));
        if view.id == sent.id && own == Some((kind, code)) {
            return Some(About::Itself);
        }
        let inner = View::of(out_of_tunnel(quoted).unwrap_or(quoted))?;
        return (inner.id == sent.id).then_some(About::Error);
    }
    (view.id == sent.id).then_some(About::Itself)
}

#[derive(Clone, Copy, PartialEq)]
enum About {
    Itself,
    Error,
}

/// Whether a frame belongs to any of the packets that were sent, by its number.
pub fn number(frame: &[u8]) -> Option<u16> {
    Some(View::of(packet(frame)?)?.id)
}

fn name(sent: &Sent, address: IpAddr, port: Option<u16>) -> String {
    let fits = |name: &&Name| {
        name.address == address && (name.port.is_none() || port.is_none() || name.port == port)
    };
    match sent.names.iter().find(fits) {
        Some(name) => name.name.to_string(),
        None => match port {
            Some(port) => format!("{address}:{port}"),
            None => address.to_string(),
        },
    }
}

/// `client→server`.
fn way(sent: &Sent, view: &View) -> String {
    let (source, destination) = view.ports();
    format!("{}→{}", name(sent, view.source, source), name(sent, view.destination, destination))
}

fn place_name(sent: &Sent, place: Place) -> &'static str {
    match place {
        Place::In1 | Place::In2 if sent.anywhere => "inside",
        place => place.node(),
    }
}

/// What became of a packet.
pub fn verdict(sent: &Sent, seen: &[Seen], grounds: &[Ground]) -> String {
    let mut said = vec![];
    for ground in grounds {
        let mut own = vec![];
        for came in arrivals(seen, ground.place) {
            match is_about(sent, &came.view) {
                Some(About::Itself) => own.push(came),
                Some(About::Error) => said.push(error(sent, &came.view, ground)),
                None => {}
            }
        }
        if !own.is_empty() {
            said.push(forwarded(sent, &own, ground));
        }
    }
    let at_kernel =
        |seen: &&Seen| seen.place == Place::Kernel && number(&seen.frame) == Some(sent.id);
    if sent.tagged && seen.iter().any(|seen| at_kernel(&seen)) {
        said.push("the kernel has it".to_string());
    }
    if said.is_empty() { "dropped".to_string() } else { said.join(" + ") }
}

/// An ICMP error about it: whoever made it.
fn error(sent: &Sent, view: &View, ground: &Ground) -> String {
    let Some((kind, code, rest, quoted)) = view.error() else { return "?".to_string() };
    let mut text = format!(
        "{}: {} {} about ",
        place_name(sent, ground.place),
        kind_of(view, kind, code, rest),
        way(sent, view)
    );
    let Some(inner) = View::of(quoted) else { return text + "nothing" };
    text += &way(sent, &inner);
    let mut odd = vec![];
    // The packet as it came in, but for the TTL and so the header's checksum.
    let mut as_sent = sent.ip.clone();
    for at in if as_sent[0] >> 4 == 4 { vec![8, 10, 11] } else { vec![7] } {
        if let (Some(byte), Some(quoted)) = (as_sent.get_mut(at), quoted.get(at)) {
            *byte = *quoted;
        }
    }
    if way(sent, &inner) == sent_way(sent)
        && !as_sent.starts_with(&quoted[..quoted.len().min(as_sent.len())])
    {
        odd.push("quotes other bytes");
    }
    if !inner.header_sum_is_good() && View::of(&sent.ip).is_some_and(|own| own.header_sum_is_good())
    {
        odd.push("quotes a wrong header checksum");
    }
    odd.extend(wrong_sums(view));
    with(text, &odd)
}

/// `icmp 3/4 mtu 1400`.
fn kind_of(view: &View, kind: u8, code: u8, rest: u32) -> String {
    let more = match (view.source, kind, code) {
        (IpAddr::V4(_), 3, 4) => format!(" mtu {}", rest & 0xffff),
        (IpAddr::V6(_), 2, _) => format!(" mtu {rest}"),
        (IpAddr::V4(_), 12, _) => format!(" pointer {}", rest >> 24),
        _ if rest != 0 => format!(" rest {rest:#x}"),
        _ => String::new(),
    };
    format!("icmp {kind}/{code}{more}")
}

fn sent_way(sent: &Sent) -> String {
    View::of(&sent.ip).map_or_else(|| "?".to_string(), |view| way(sent, &view))
}

fn wrong_sums(view: &View) -> Vec<&'static str> {
    let mut odd = vec![];
    if !view.header_sum_is_good() {
        odd.push("wrong header checksum");
    }
    if view.transport_sum_is_good() == Some(false) {
        odd.push("wrong checksum");
    }
    odd
}

fn with(text: String, odd: &[impl AsRef<str>]) -> String {
    let odd: Vec<&str> = odd.iter().map(AsRef::as_ref).collect();
    if odd.is_empty() { text } else { format!("{text} ({})", odd.join(", ")) }
}

/// The packet itself, in one piece or several.
fn forwarded(sent: &Sent, frames: &[Came], ground: &Ground) -> String {
    let mut odd: Vec<String> = vec![];
    let views: Vec<View> = frames.iter().map(|came| came.view.clone()).collect();
    let good_macs =
        |came: &Came| came.seen.frame[..6] == ground.mac && came.seen.frame[6..12] == ground.far;
    if !frames.iter().all(good_macs) {
        odd.push("wrong MAC address".to_string());
    }
    if frames.iter().any(|came| came.seen.frame.len() > ground.mtu + 14) {
        odd.push("over the link's MTU".to_string());
    }
    odd.extend(frames.iter().find_map(|came| came.tunnel).map(str::to_string));
    let pieces = if views[0].is_fragment() { " in fragments" } else { "" };
    let head = |view: &View| {
        let kind = view.error().map(|(kind, code, rest, _)| kind_of(view, kind, code, rest) + " ");
        format!(
            "{}: {}{}{pieces}",
            place_name(sent, ground.place),
            kind.unwrap_or_default(),
            way(sent, view)
        )
    };
    let whole = if pieces.is_empty() { Some(views[0].clone()) } else { View::whole(&views) };
    let Some(whole) = whole else {
        let mut parts: Vec<(usize, usize)> =
            views.iter().map(|v| (v.offset, v.offset + v.payload.len())).collect();
        parts.sort_unstable();
        let parts: Vec<String> = parts.iter().map(|(from, to)| format!("{from}-{to}")).collect();
        let first = views.iter().find(|view| view.offset == 0).unwrap_or(&views[0]);
        odd.push(format!("only {}", parts.join(" ")));
        return with(head(first), &odd);
    };
    if pieces.is_empty() && views.len() > 1 {
        odd.push(format!("{} times", views.len()));
    }
    if let Some(own) = View::of(&sent.ip) {
        odd.extend(changes(&own, &whole));
    }
    let mut text = head(&whole);
    if let Some((_, _, _, quoted)) = whole.error() {
        text += &about(sent, quoted, &mut odd);
    }
    with(text, &odd)
}

/// What a forwarded error quotes.
fn about(sent: &Sent, quoted: &[u8], odd: &mut Vec<String>) -> String {
    let Some(inner) = View::of(quoted) else { return " about nothing".to_string() };
    if !inner.header_sum_is_good() {
        odd.push("quotes a wrong header checksum".to_string());
    }
    if !inner.cut && inner.transport_sum_is_good() == Some(false) {
        odd.push("quotes a wrong checksum".to_string());
    }
    format!(" about {}", way(sent, &inner))
}

/// What is different, beside addresses and ports, and what a gateway must not change.
fn changes(sent: &View, came: &View) -> Vec<String> {
    let mut odd = vec![];
    let hops = sent.ttl.wrapping_sub(came.ttl);
    if hops != 1 {
        odd.push(format!("ttl -{hops}"));
    }
    if sent.tos != came.tos {
        odd.push(format!("tos {:#x}", came.tos));
    }
    if sent.dont_fragment != came.dont_fragment && sent.source.is_ipv4() {
        odd.push(format!("DF {}", u8::from(came.dont_fragment)));
    }
    if sent.header.get(20..) != came.header.get(20..) && sent.header[0] >> 4 == 4 {
        odd.push("other IP options".to_string());
    }
    if came.cut && !sent.cut {
        odd.push("cut short".to_string());
    }
    if !came.header_sum_is_good() {
        odd.push("wrong header checksum".to_string());
    }
    match (sent.transport_sum_is_good(), came.transport_sum_is_good()) {
        (Some(true), Some(true)) | (None, None) => {}
        (Some(false), Some(false)) => odd.push("still a wrong checksum".to_string()),
        (before, after) => odd.push(format!("checksum {before:?} became {after:?}")),
    }
    if sent.protocol != came.protocol || sent.payload.len() != came.payload.len() {
        odd.push(format!("{} bytes became {}", sent.payload.len(), came.payload.len()));
        return odd;
    }
    if sent.error().is_some() {
        return odd;
    }
    let header = match sent.protocol {
        TCP => 20,
        UDP => 8,
        _ => 8,
    };
    let bytes = sent.payload.len().min(header);
    if sent.protocol == TCP && sent.payload.len() >= 20 {
        odd.extend(tcp_changes(&sent.payload, &came.payload));
    } else if sent.payload[bytes..] != came.payload[bytes..] {
        odd.push("other payload".to_string());
    }
    odd
}

fn tcp_changes(sent: &[u8], came: &[u8]) -> Vec<String> {
    let mut odd = vec![];
    if sent[4..16] != came[4..16] {
        odd.push("other TCP header".to_string());
    }
    let offset = (usize::from(sent[12] >> 4) * 4).clamp(20, sent.len());
    match (mss(&sent[20..offset]), mss(&came[20..offset])) {
        (before, Some(after)) if before != Some(after) => odd.push(format!("mss {after}")),
        _ if sent[20..offset] != came[20..offset] => odd.push("other TCP options".to_string()),
        _ => {}
    }
    if sent[offset..] != came[offset..] {
        odd.push("other payload".to_string());
    }
    odd
}

/// The first option, if it is a maximum segment size.
fn mss(options: &[u8]) -> Option<u16> {
    match options {
        [2, 4, high, low, ..] => Some(u16::from_be_bytes([*high, *low])),
        _ => None,
    }
}

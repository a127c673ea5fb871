//! What stateplane.p4 has for gateways, on a switch whose agent says nothing: its ports have no addresses and ask nothing of sources, ICMP errors
//! are not sent, fragments not held.

use crate::externs::operand;
use crate::value::Value;
use crate::{Interpreter, Interrupt, Run, Stop};
use num_bigint::BigInt;
use num_traits::Zero;
use p4_ir::{Argument, Expr};
use std::collections::BTreeMap;

/// How long the ports of a first fragment are known.
const FRAGMENT_LIFE_US: u64 = 30_000_000;
/// Ordinals of `FragmentResult`.
const PORTS: u32 = 0;
const FULL: u32 = 2;

/// Source, destination, identification and protocol of a packet in fragments.
type FragmentKey = [BigInt; 4];

/// A first fragment's ports.
#[derive(Clone)]
struct First {
    ports: [BigInt; 2],
    seen_us: u64,
}

/// What the switch remembers.
#[derive(Clone, Default)]
pub(crate) struct Gateway {
    counts: BTreeMap<&'static str, u64>,
    fragments: BTreeMap<FragmentKey, First>,
    now_us: u64,
}

impl Gateway {
    /// The time of the packet that comes in.
    pub fn set_clock(&mut self, now_us: u64) {
        self.now_us = now_us;
    }

    fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }
}

/// A big-endian number in the packet, which must be there.
fn number(bytes: &[u8], at: usize, count: usize) -> Option<usize> {
    Some(bytes.get(at..at + count)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

/// Why a frame is not fit to be forwarded; None: it is.
pub(crate) fn refused(frame: &[u8]) -> Option<&'static str> {
    let packet = frame.get(14..)?;
    match number(frame, 12, 2)? {
        0x0800 => refused_ipv4(packet),
        0x86dd => refused_ipv6(packet),
        // VLAN 0: the kernel would take it for a frame without a tag. ARP is the kernel's anyway.
        0x8100 | 0x88a8 if number(packet, 0, 2)? & 0xfff == 0 && number(packet, 2, 2)? != 0x0806 => {
            Some("priority_tag")
        }
        _ => None,
    }
}

fn refused_ipv4(packet: &[u8]) -> Option<&'static str> {
    const SHORT: Option<&str> = Some("short_header");
    if packet.len() < 20 {
        return SHORT;
    }
    let header_bytes = usize::from(packet[0] & 15) * 4;
    let total = number(packet, 2, 2)?;
    if packet[0] >> 4 != 4 || header_bytes < 20 || total < header_bytes {
        return SHORT;
    }
    if total > packet.len() {
        return Some("length");
    }
    let mut sum: usize = (0..header_bytes).step_by(2).filter_map(|at| number(packet, at, 2)).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    if sum != 0xffff {
        return Some("header_checksum");
    }
    if !are_options_right(&packet[20..header_bytes]) {
        return Some("options");
    }
    let (source, destination) = (packet[12], packet[16]);
    if matches!(source, 0 | 127 | 224..) {
        return Some("martian_source");
    }
    if matches!(destination, 0 | 127) || packet[16..20] == [255; 4] {
        return Some("martian_destination");
    }
    let fragment = number(packet, 6, 2)?;
    let (offset, has_more) = ((fragment & 0x1fff) * 8, fragment & 0x2000 != 0);
    if !is_fragment_right(offset, has_more, total - header_bytes, header_bytes) {
        return Some("fragment");
    }
    if offset != 0 {
        return None;
    }
    refused_transport(&packet[header_bytes..total], packet[9], has_more)
}

/// Does each option of an IPv4 header have a length that fits (RFC 791, 3.1)?
fn are_options_right(options: &[u8]) -> bool {
    match options {
        [] | [0, ..] => true,
        [1, rest @ ..] => are_options_right(rest),
        [_, length, ..] if (2..=options.len()).contains(&usize::from(*length)) => {
            are_options_right(&options[usize::from(*length)..])
        }
        _ => false,
    }
}

/// Can a whole packet be made of it and others? A packet that is no fragment is right.
fn is_fragment_right(offset: usize, has_more: bool, payload: usize, before: usize) -> bool {
    let is_whole = offset == 0 && !has_more;
    let fills = !has_more || (payload != 0 && payload.is_multiple_of(8));
    is_whole || (fills && before + offset + payload <= 0xffff)
}

/// IPv6 addresses that no packet on a wire has (RFC 4291, 2.5.2 and 2.5.3), and IPv4's (2.5.5.2).
fn is_martian_ipv6(address: &[u8]) -> bool {
    let zeros = address.iter().take_while(|byte| **byte == 0).count();
    zeros == 16 || (zeros == 15 && address[15] == 1) || (zeros == 10 && address[10..12] == [0xff, 0xff])
}

fn refused_ipv6(packet: &[u8]) -> Option<&'static str> {
    if packet.len() < 40 || packet[0] >> 4 != 6 {
        return Some("short_header");
    }
    let payload = number(packet, 4, 2)?;
    if payload + 40 > packet.len() {
        return Some("length");
    }
    if packet[8] == 0xff || is_martian_ipv6(&packet[8..24]) {
        return Some("martian_source");
    }
    if is_martian_ipv6(&packet[24..40]) {
        return Some("martian_destination");
    }
    let payload = &packet[40..40 + payload];
    if packet[6] != 44 {
        return refused_transport(payload, packet[6], false);
    }
    if payload.len() < 8 {
        return Some("length");
    }
    let fragment = number(payload, 2, 2)?;
    let (offset, has_more) = (fragment & 0xfff8, fragment & 1 != 0);
    if !is_fragment_right(offset, has_more, payload.len() - 8, 0) {
        return Some("fragment");
    }
    if offset != 0 {
        return None;
    }
    refused_transport(&payload[8..], payload[0], has_more)
}

fn refused_transport(payload: &[u8], protocol: u8, has_more: bool) -> Option<&'static str> {
    let is_right = match protocol {
        6 if payload.len() >= 20 => (20..=payload.len()).contains(&(usize::from(payload[12] >> 4) * 4)),
        17 if payload.len() >= 8 => {
            let length = number(payload, 4, 2)?;
            length >= 8 && (has_more || length <= payload.len())
        }
        6 | 17 => false,
        _ => true,
    };
    (!is_right).then_some("length")
}

impl Interpreter<'_> {
    /// One of the gateway's counts (`dataplane::GATEWAY_DROPS`, `GATEWAY_EVENTS`).
    pub fn gateway_count(&self, name: &str) -> u64 {
        self.gateway.counts.get(name).copied().unwrap_or(0)
    }

    /// A call of one of the gateway's functions.
    pub(crate) fn gateway_call(&mut self, name: &str, arguments: &[Argument], result: Option<&Expr>) -> Run<()> {
        let value = match name {
            "gateway_check" => {
                let reason = refused(&self.packet.bytes);
                reason.into_iter().for_each(|reason| self.gateway.count(reason));
                BigInt::from(u8::from(reason.is_none()))
            }
            // No fib_lookup is interpreted.
            "fib_mtu" => BigInt::zero(),
            // The switch is not configured to.
            "clamp_tcp_mss" => return Ok(()),
            // A port without an entry has no address.
            "reply_icmp_error" => return Err(Interrupt::Dropped),
            "fragment_ports" => self.fragment_ports(arguments)?,
            other => return Err(Stop::Unsupported(other.to_owned()).into()),
        };
        match result {
            Some(target) => self.store_number(target, &value),
            None => Ok(()),
        }
    }

    fn fragment_ports(&mut self, arguments: &[Argument]) -> Run<BigInt> {
        let mut key = FragmentKey::default();
        for (at, part) in key.iter_mut().enumerate() {
            *part = self.number(operand(arguments, at)?)?;
        }
        let is_first = self.condition(operand(arguments, 4)?)?;
        let mut ports = [BigInt::zero(), BigInt::zero()];
        for (port, at) in ports.iter_mut().zip(5..) {
            let argument = operand(arguments, at)?;
            *port = match self.eval(argument)? {
                Value::Undefined if !is_first => BigInt::zero(),
                _ => self.number(argument)?,
            };
        }
        let now_us = self.gateway.now_us;
        if is_first {
            self.gateway.count("fragments_remembered");
            self.gateway.fragments.insert(key, First { ports, seen_us: now_us });
            return Ok(BigInt::from(PORTS));
        }
        match self.gateway.fragments.get(&key).cloned() {
            Some(first) if now_us.saturating_sub(first.seen_us) < FRAGMENT_LIFE_US => {
                for (port, at) in first.ports.iter().zip(5..) {
                    self.store_number(operand(arguments, at)?, port)?;
                }
                Ok(BigInt::from(PORTS))
            }
            _ => {
                self.gateway.count("fragments_refused");
                Ok(BigInt::from(FULL))
            }
        }
    }
}

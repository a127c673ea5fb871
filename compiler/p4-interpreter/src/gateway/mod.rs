//! What stateplane.p4 has for gateways, random numbers, and what a switch knows of itself: once for
//! both interpreters.
//!
//! Without a [`Network`] its ports have no addresses and ask nothing of sources, ICMP errors are
//! not sent, fragments not held, and there are no routes to look up.

mod check;
mod icmp;
pub mod network;

use crate::object::{Answer, Datum};
use crate::{DROP_PORT, Stop};
use network::{Network, Route};
use num_bigint::BigInt;
use num_traits::Zero;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// How long the ports of a first fragment are known.
const FRAGMENT_LIFE_US: u64 = 30_000_000;
/// Ordinals of `FragmentResult`.
const PORTS: u32 = 0;
const FULL: u32 = 2;
/// Ordinals of `FibResult`.
const FORWARD: u32 = 0;
const LOCAL: u32 = 1;
const KERNEL: u32 = 2;
const UNREACHABLE: u32 = 3;
const TOO_BIG: u32 = 4;
/// What the bucket of ICMP errors holds: those of a second.
const BURST_NS: u64 = 1_000_000_000;

/// Source, destination, identification and protocol of a packet in fragments.
type FragmentKey = [BigInt; 4];

/// A first fragment's ports.
#[derive(Clone)]
struct First {
    ports: [BigInt; 2],
    seen_us: u64,
}

/// What the switch knows and remembers.
#[derive(Clone, Default)]
pub(crate) struct Gateway {
    pub network: Option<Network>,
    /// The state of the generator of random numbers. None: there are no random numbers.
    pub random: Option<u64>,
    counts: BTreeMap<&'static str, u64>,
    fragments: BTreeMap<FragmentKey, First>,
    /// When the bucket of ICMP errors would be full again.
    bucket_full_ns: u64,
    now_us: u64,
    ingress_port: u32,
    /// Of the route that this packet's last look-up found.
    mtu: u32,
    /// What the packet's maximum segment size shall fit; 0: nothing.
    clamp_mtu: u32,
    /// And its route's MTU, which no look-up told.
    clamp_to_route: bool,
}

fn number(arguments: &[Datum], at: usize) -> Result<BigInt, Stop> {
    match arguments.get(at) {
        Some(Datum::Number(number)) => Ok(number.clone()),
        Some(Datum::Undefined) => Err(Stop::Undefined("an argument that was never written".into())),
        _ => Err(Stop::Broken("an argument that is not a number".into())),
    }
}

fn small<T: TryFrom<BigInt>>(arguments: &[Datum], at: usize) -> Result<T, Stop> {
    T::try_from(number(arguments, at)?)
        .map_err(|_| Stop::Broken("an argument that is too large".into()))
}

fn put<T: Into<BigInt>>(arguments: &mut [Datum], at: usize, value: T) {
    if let Some(argument) = arguments.get_mut(at) {
        *argument = Datum::Number(value.into());
    }
}

fn value<T: Into<BigInt>>(value: T) -> Result<Answer, Stop> {
    Ok(Answer::Value(Datum::Number(value.into())))
}

impl Gateway {
    /// A packet comes in.
    pub fn begin_packet(&mut self, ingress_port: u32, now_us: u64) {
        (self.ingress_port, self.now_us) = (ingress_port, now_us);
        (self.mtu, self.clamp_mtu, self.clamp_to_route) = (0, 0, false);
    }

    /// A packet leaves.
    pub fn finish_packet(&self, frame: &mut [u8]) {
        let asked = self.network.as_ref().filter(|_| self.clamp_to_route).map_or(0, |network| {
            let route = icmp::addresses(frame)
                .map(|(source, destination)| network.route(source, destination));
            if let Some(Route::Out { port, .. }) = route { network.port(port).mtu } else { 0 }
        });
        let mtu = [self.clamp_mtu, asked].into_iter().filter(|mtu| *mtu > 0).min();
        icmp::clamp(frame, mtu.unwrap_or(0));
    }

    pub fn counted(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    /// A call of a function. `frame`: the packet as it came in. What is `out` is written to the
    /// arguments.
    pub fn call(
        &mut self,
        name: &str,
        frame: &[u8],
        arguments: &mut [Datum],
    ) -> Result<Answer, Stop> {
        match name {
            "gateway_check" => {
                let reason = check::refused(
                    frame,
                    self.network.as_ref().map(|network| (network, self.ingress_port)),
                );
                reason.into_iter().for_each(|reason| self.count(reason));
                value(u8::from(reason.is_none()))
            }
            "fib_lookup_ipv4" => {
                let [source, destination] =
                    [small::<u32>(arguments, 0)?, small::<u32>(arguments, 1)?];
                let length = u32::from(small::<u16>(arguments, 5)?);
                self.fib_lookup(
                    source.to_be_bytes().into(),
                    destination.to_be_bytes().into(),
                    length,
                    arguments,
                )
            }
            "fib_lookup_ipv6" => {
                let [source, destination] =
                    [small::<u128>(arguments, 0)?, small::<u128>(arguments, 1)?];
                let length = u32::from(small::<u16>(arguments, 5)?.wrapping_add(40));
                self.fib_lookup(
                    source.to_be_bytes().into(),
                    destination.to_be_bytes().into(),
                    length,
                    arguments,
                )
            }
            "fib_mtu" => value(self.mtu & 0xffff),
            "clamp_tcp_mss" => {
                self.clamp_mtu = self.smaller_mtu();
                self.clamp_to_route =
                    self.mtu == 0 && self.network.as_ref().is_some_and(|it| it.clamp_mss);
                Ok(Answer::Value(Datum::Undefined))
            }
            "reply_icmp_error" => {
                let (kind, code) = (small(arguments, 0)?, small(arguments, 1)?);
                Ok(self.reply(frame, icmp::Error { kind, code, rest: small(arguments, 2)? }))
            }
            "fragment_ports" => self.fragment_ports(arguments),
            "random" => self.random(arguments),
            // The clock of tests; both are the same there.
            "wall_clock_ns" => value(self.now_us.saturating_mul(1000)),
            // A switch that is not configured.
            "switch_id" => value(0),
            other => Err(Stop::Unsupported(other.to_owned())),
        }
    }

    fn fib_lookup(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        length: u32,
        arguments: &mut [Datum],
    ) -> Result<Answer, Stop> {
        let Some(network) = &self.network else { return Err(Stop::Unsupported("routes".into())) };
        (7..10).for_each(|at| put(arguments, at, u32::from(at == 7) * DROP_PORT));
        self.mtu = 0;
        let (port, next_hop) = match network.route(source, destination) {
            Route::Local => return value(LOCAL),
            Route::Nowhere => return value(UNREACHABLE),
            Route::Out { port, next_hop } => (port, next_hop),
        };
        let link = network.port(port);
        if length > link.mtu {
            self.mtu = link.mtu;
            return value(TOO_BIG);
        }
        let Some(mac) = network.neighbors.get(&(port, next_hop)) else { return value(KERNEL) };
        self.mtu = link.mtu;
        put(arguments, 7, port);
        put(arguments, 8, link.mac);
        put(arguments, 9, *mac);
        value(FORWARD)
    }

    /// That of the ingress port or of the route; 0: neither is known, or the switch clamps nothing.
    fn smaller_mtu(&self) -> u32 {
        let Some(network) = self.network.as_ref().filter(|network| network.clamp_mss) else {
            return 0;
        };
        let both = [network.port(self.ingress_port).mtu, self.mtu];
        both.into_iter().filter(|mtu| *mtu > 0).min().unwrap_or(0)
    }

    fn reply(&mut self, frame: &[u8], error: icmp::Error) -> Answer {
        let port = self
            .network
            .as_ref()
            .map(|network| network.port(self.ingress_port))
            .unwrap_or_default();
        if !icmp::is_due(frame, error) {
            self.count("icmp_suppressed");
            return Answer::Drop;
        }
        let Some(frame) = icmp::answer(frame, &port, error) else {
            self.count("icmp_no_address");
            return Answer::Drop;
        };
        if !self.takes_token() {
            self.count("icmp_rate_limited");
            return Answer::Drop;
        }
        self.count("icmp_sent");
        Answer::Send { port: self.ingress_port, frame }
    }

    fn takes_token(&mut self) -> bool {
        let rate = self.network.as_ref().map_or(0, |network| u64::from(network.icmp_rate_per_s));
        let Some(token) = BURST_NS.checked_div(rate) else { return false };
        let now = self.now_us.saturating_mul(1000);
        let full = self.bucket_full_ns.max(now).saturating_add(token);
        let may = full <= now.saturating_add(BURST_NS);
        if may {
            self.bucket_full_ns = full;
        }
        may
    }

    fn fragment_ports(&mut self, arguments: &mut [Datum]) -> Result<Answer, Stop> {
        let mut key = FragmentKey::default();
        for (at, part) in key.iter_mut().enumerate() {
            *part = number(arguments, at)?;
        }
        let is_first = !number(arguments, 4)?.is_zero();
        if is_first {
            let ports = [number(arguments, 5)?, number(arguments, 6)?];
            self.count("fragments_remembered");
            self.fragments.insert(key, First { ports, seen_us: self.now_us });
            return value(PORTS);
        }
        match self.fragments.get(&key).cloned() {
            Some(first) if self.now_us.saturating_sub(first.seen_us) < FRAGMENT_LIFE_US => {
                for (port, at) in first.ports.into_iter().zip(5..) {
                    put(arguments, at, port);
                }
                value(PORTS)
            }
            _ if self.network.as_ref().is_some_and(|network| network.hold_fragments) => {
                self.count("fragments_held");
                Ok(Answer::Drop)
            }
            _ => {
                self.count("fragments_refused");
                value(FULL)
            }
        }
    }

    /// A number of 64 bits (SplitMix64).
    ///
    /// # Errors
    /// No seed was given.
    pub fn draw(&mut self) -> Result<BigInt, Stop> {
        let Some(state) = &mut self.random else {
            return Err(Stop::Unsupported("random numbers".into()));
        };
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Ok(BigInt::from(mixed ^ mixed >> 31))
    }

    /// Both ends included; the lower one if there is no choice.
    fn random(&mut self, arguments: &mut [Datum]) -> Result<Answer, Stop> {
        let (low, high) = (number(arguments, 1)?, number(arguments, 2)?);
        let mut chosen = low.clone();
        if low != high {
            let drawn = self.draw()?;
            if low < high {
                chosen += drawn % (high - low + 1u8);
            }
        }
        put(arguments, 0, chosen);
        Ok(Answer::Value(Datum::Undefined))
    }
}

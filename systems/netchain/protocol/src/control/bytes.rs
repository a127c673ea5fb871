//! The bytes of reports and decisions. All numbers are in network byte order, behind the header
//! that all messages with the fabric's tags have (`wire::frame`, `wire::KeyRing`).
//!
//! A decision may be longer than a datagram that no router cuts into fragments: it goes in parts,
//! each with its number and how many there are. A part that is lost comes again with all others.

use super::{Config, Part, Report, Role};
use crate::CHAIN_MAX;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use wire::{HEADER_BYTES, Kind, MAGIC, Reader, VERSION, kind};

/// Type of a report, in a message's header.
pub const REPORT: u8 = 160;
/// Type of a part of a decision.
pub const CONFIG: u8 = 161;
/// Bytes of a message at the most: no link's MTU is smaller with IP and UDP headers.
pub const MOST_BYTES: usize = 1_232;
/// Bytes of a decision in a message.
const PART_BYTES: usize = MOST_BYTES - HEADER_BYTES;
/// Parts of a decision at the most: 4096 groups and 1024 switches fit.
const MOST_PARTS: u16 = 256;
/// In the place of a switch's number: none.
const NOBODY: u16 = u16::MAX;
/// Bytes of a silent switch, and of a copied group, in a report.
const SILENT_BYTES: usize = 8;
const COPIED_BYTES: usize = 6;

/// It is no report, or no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a message between a switch and its controller")]
pub struct Malformed;

impl From<wire::Malformed> for Malformed {
    fn from(_: wire::Malformed) -> Malformed {
        Malformed
    }
}

/// A report, as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported {
    /// The sender's clock in ns (CLOCK_BOOTTIME). An earlier report of the same incarnation is one
    /// that was overtaken, or that somebody recorded.
    pub sent_ns: u64,
    /// Fingerprint of the founding that the switch has.
    pub ring: u32,
    /// What it reports.
    pub report: Report,
}

/// A decision, as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Fingerprint of the cluster's founding.
    pub ring: u32,
    /// As long as this the controller waits for a lease to end, in ms: no switch's may be longer.
    pub lease_ms: u32,
    /// What one switch has to do.
    pub config: Config,
}

fn header(message_type: u8, first: u64, incarnation: u32) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..2].copy_from_slice(&MAGIC.to_be_bytes());
    (bytes[2], bytes[3]) = (VERSION, message_type);
    bytes[8..16].copy_from_slice(&first.to_be_bytes());
    bytes[20..24].copy_from_slice(&incarnation.to_be_bytes());
    bytes
}

/// What stands behind the type of a message of this type, and the body.
fn open(datagram: &[u8], message_type: u8) -> Result<(Reader<'_>, Reader<'_>), Malformed> {
    if kind(datagram)? != Kind::System(message_type) || datagram.len() < HEADER_BYTES {
        return Err(Malformed);
    }
    let (header, body) = datagram.split_at(HEADER_BYTES);
    Ok((Reader::new(&header[8..]), Reader::new(body)))
}

fn address(reader: &mut Reader<'_>) -> Result<Ipv4Addr, Malformed> {
    reader.u32().map(Ipv4Addr::from).ok_or(Malformed)
}

impl Reported {
    /// The message, with no tag yet. Of more silent switches and copied groups than it has room for
    /// it tells the first ones.
    pub fn encode(&self) -> Vec<u8> {
        let Report { switch, incarnation, applied, asks, silent_ms, copied, used_percent } =
            &self.report;
        let mut bytes = header(REPORT, self.sent_ns, *incarnation);
        let copied = &copied[..copied.len().min(PART_BYTES / 2 / COPIED_BYTES)];
        let silent_ms = &silent_ms[..silent_ms.len().min(PART_BYTES / 2 / SILENT_BYTES)];
        bytes[24..28].copy_from_slice(&switch.octets());
        bytes[28..32].copy_from_slice(&self.ring.to_be_bytes());
        bytes[32..40].copy_from_slice(&applied.to_be_bytes());
        (bytes[40], bytes[41]) = (*used_percent, u8::from(*asks));
        bytes[42..44].copy_from_slice(&(silent_ms.len() as u16).to_be_bytes());
        bytes[44..46].copy_from_slice(&(copied.len() as u16).to_be_bytes());
        for (switch, ms) in silent_ms {
            bytes.extend(switch.octets());
            bytes.extend(u32::try_from(*ms).unwrap_or(u32::MAX).to_be_bytes());
        }
        for (group, view) in copied {
            bytes.extend(group.to_be_bytes());
            bytes.extend(view.to_be_bytes());
        }
        bytes
    }

    /// Reads a message.
    ///
    /// # Errors
    /// It is no report.
    pub fn decode(datagram: &[u8]) -> Result<Reported, Malformed> {
        let (mut head, mut body) = open(datagram, REPORT)?;
        let sent_ns = head.u64().ok_or(Malformed)?;
        let incarnation = head.u64().and_then(|it| u32::try_from(it).ok()).ok_or(Malformed)?;
        let switch = address(&mut head)?;
        let ring = head.u32().ok_or(Malformed)?;
        let applied = head.u64().ok_or(Malformed)?;
        let used_percent = head.u8().filter(|it| *it <= 100).ok_or(Malformed)?;
        let asks = match head.u8().ok_or(Malformed)? {
            0 => false,
            1 => true,
            _ => return Err(Malformed),
        };
        let (silent, copied) = (head.u16().ok_or(Malformed)?, head.u16().ok_or(Malformed)?);
        let silent_ms = (0..silent)
            .map(|_| Ok((address(&mut body)?, body.u32().ok_or(Malformed)?.into())))
            .collect::<Result<_, Malformed>>()?;
        let copied = (0..copied)
            .map(|_| Ok((body.u16().ok_or(Malformed)?, body.u32().ok_or(Malformed)?)))
            .collect::<Result<_, Malformed>>()?;
        if body.remaining() != 0 || incarnation == 0 {
            return Err(Malformed);
        }
        let report = Report { switch, incarnation, applied, asks, silent_ms, copied, used_percent };
        Ok(Reported { sent_ns, ring, report })
    }
}

/// A part's kind in one byte: none, paused, lost, or a member with its position.
mod part {
    pub const NONE: u8 = 0;
    pub const PAUSED: u8 = 1;
    pub const LOST: u8 = 2;
    pub const MEMBER: u8 = 32;
}

fn part_byte(part: Part) -> u8 {
    match part {
        Part::None => part::NONE,
        Part::Paused => part::PAUSED,
        Part::Lost => part::LOST,
        Part::Member { .. } => part::MEMBER | part.position(),
    }
}

fn part_of(byte: u8) -> Result<Part, Malformed> {
    Ok(match byte {
        part::NONE => Part::None,
        part::PAUSED => Part::Paused,
        part::LOST => Part::Lost,
        part::MEMBER..=63 => Part::Member {
            head: byte & 1 != 0,
            tail: byte & 2 != 0,
            reader: byte & 4 != 0,
            joining: byte & 8 != 0,
            collecting: byte & 16 != 0,
        },
        _ => return Err(Malformed),
    })
}

impl Decided {
    /// The messages, with no tags yet. `None`: a switch is not among `switches`, or there is too
    /// much.
    pub fn encode(&self) -> Option<Vec<Vec<u8>>> {
        let Config { version, incarnation, switches, roles, dead } = &self.config;
        let place = |it: &Ipv4Addr| {
            let at = switches.iter().position(|known| known == it)?;
            u16::try_from(at).ok().filter(|at| *at != NOBODY)
        };
        let or_nobody = |it: &Option<Ipv4Addr>| it.as_ref().map_or(Some(NOBODY), place);
        let mut body = vec![];
        for count in [switches.len(), dead.len(), roles.len()] {
            body.extend(u16::try_from(count).ok()?.to_be_bytes());
        }
        body.extend(switches.iter().flat_map(|it| it.octets()));
        for switch in dead {
            body.extend(place(switch)?.to_be_bytes());
        }
        for role in roles {
            body.extend(role.view.to_be_bytes());
            body.extend(role.head_since.to_be_bytes());
            body.extend(role.session.to_be_bytes());
            body.extend(role.floor.to_be_bytes());
            body.push(part_byte(role.part));
            body.push(u8::try_from(role.chain.len()).ok()?);
            body.extend(or_nobody(&role.next)?.to_be_bytes());
            body.extend(or_nobody(&role.copies_to)?.to_be_bytes());
            for member in &role.chain {
                body.extend(place(member)?.to_be_bytes());
            }
        }
        let parts = body.len().div_ceil(PART_BYTES);
        let count = u16::try_from(parts).ok().filter(|it| *it <= MOST_PARTS)?;
        let part = |(number, part): (u16, &[u8])| {
            let mut bytes = header(CONFIG, *version, *incarnation);
            bytes[24..28].copy_from_slice(&self.ring.to_be_bytes());
            bytes[28..32].copy_from_slice(&self.lease_ms.to_be_bytes());
            bytes[32..34].copy_from_slice(&number.to_be_bytes());
            bytes[34..36].copy_from_slice(&count.to_be_bytes());
            bytes.extend(part);
            bytes
        };
        Some((0..).zip(body.chunks(PART_BYTES)).map(part).collect())
    }

    fn decode(of: &Of, body: &[u8]) -> Result<Decided, Malformed> {
        let mut body = Reader::new(body);
        let mut count = || body.u16().map(usize::from).ok_or(Malformed);
        let (all, dead, groups) = (count()?, count()?, count()?);
        let switches: Vec<Ipv4Addr> =
            (0..all).map(|_| address(&mut body)).collect::<Result<_, _>>()?;
        let known = |at: u16| switches.get(usize::from(at)).copied().ok_or(Malformed);
        let perhaps = |at: u16| if at == NOBODY { Ok(None) } else { known(at).map(Some) };
        let place = |body: &mut Reader<'_>| body.u16().ok_or(Malformed);
        let dead = (0..dead).map(|_| known(place(&mut body)?)).collect::<Result<_, Malformed>>()?;
        let mut roles = Vec::with_capacity(groups);
        for _ in 0..groups {
            let view = body.u32().ok_or(Malformed)?;
            let head_since = body.u32().ok_or(Malformed)?;
            let session = body.u16().ok_or(Malformed)?;
            let floor = body.u16().ok_or(Malformed)?;
            let part = part_of(body.u8().ok_or(Malformed)?)?;
            let members = body.u8().map(usize::from).ok_or(Malformed)?;
            let next = perhaps(place(&mut body)?)?;
            let copies_to = perhaps(place(&mut body)?)?;
            if members > CHAIN_MAX {
                return Err(Malformed);
            }
            let chain = (0..members).map(|_| known(place(&mut body)?));
            let chain = chain.collect::<Result<_, Malformed>>()?;
            roles.push(Role { view, head_since, session, floor, part, next, copies_to, chain });
        }
        if body.remaining() != 0 {
            return Err(Malformed);
        }
        let Of { version, incarnation, ring, lease_ms, .. } = *of;
        let config = Config { version, incarnation, switches, roles, dead };
        Ok(Decided { ring, lease_ms, config })
    }
}

/// Which decision a part is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Of {
    version: u64,
    incarnation: u32,
    ring: u32,
    lease_ms: u32,
    count: u16,
}

/// Parts of a decision, until all are there.
#[derive(Debug, Default)]
pub struct Parts {
    of: Option<Of>,
    parts: BTreeMap<u16, Vec<u8>>,
}

impl Parts {
    /// Takes a message. What is of a decision with a version below that of the parts that are here,
    /// or not above `newest`, changes nothing. `Some`: the decision that is whole by now.
    ///
    /// # Errors
    /// It is no part of a decision, or the parts together are none.
    pub fn take(&mut self, datagram: &[u8], newest: u64) -> Result<Option<Decided>, Malformed> {
        let (mut head, _) = open(datagram, CONFIG)?;
        let version = head.u64().ok_or(Malformed)?;
        let incarnation = head.u64().and_then(|it| u32::try_from(it).ok()).ok_or(Malformed)?;
        let (ring, lease_ms) = (head.u32().ok_or(Malformed)?, head.u32().ok_or(Malformed)?);
        let (number, count) = (head.u16().ok_or(Malformed)?, head.u16().ok_or(Malformed)?);
        let body = datagram.get(HEADER_BYTES..).ok_or(Malformed)?;
        if count > MOST_PARTS || number >= count || body.is_empty() || body.len() > PART_BYTES {
            return Err(Malformed);
        }
        let of = Of { version, incarnation, ring, lease_ms, count };
        let older = self.of.is_some_and(|known| known.version > version);
        if older || version <= newest {
            return Ok(None);
        }
        if self.of != Some(of) {
            (self.of, self.parts) = (Some(of), BTreeMap::new());
        }
        self.parts.insert(number, body.to_vec());
        if self.parts.len() < usize::from(count) {
            return Ok(None);
        }
        self.of = None;
        let body: Vec<u8> = std::mem::take(&mut self.parts).into_values().flatten().collect();
        Decided::decode(&of, &body).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, 0, number)
    }

    fn member(one: bool, other: bool) -> Part {
        Part::Member { head: one, reader: other, tail: one, joining: other, collecting: one }
    }

    fn decided(groups: u16) -> Decided {
        let parts =
            [Part::None, Part::Paused, Part::Lost, member(true, false), member(false, true)];
        let role = |group: u16| Role {
            view: u32::from(group) + 7,
            head_since: u32::from(group),
            session: group,
            floor: group / 2,
            part: parts[usize::from(group) % parts.len()],
            next: group.is_multiple_of(2).then(|| switch(2)),
            copies_to: group.is_multiple_of(3).then(|| switch(3)),
            chain: (1..=group as u8 % 5).map(switch).collect(),
        };
        let config = Config {
            version: 1 << 40,
            incarnation: 5,
            switches: (1..=6).map(switch).collect(),
            roles: (0..groups).map(role).collect(),
            dead: vec![switch(6), switch(1)],
        };
        Decided { ring: 9, lease_ms: 60, config }
    }

    #[test]
    fn a_decision_comes_whole_in_any_order() {
        for groups in [0, 1, 400, 4096] {
            let decided = decided(groups);
            let messages = decided.encode().unwrap();
            assert!(messages.iter().all(|it| it.len() <= MOST_BYTES));
            assert_eq!(messages.len() > 1, groups > 1, "{groups}");
            let mut parts = Parts::default();
            let newest = decided.config.version - 1;
            for part in messages.iter().skip(1).rev().chain(&messages[1..]) {
                assert_eq!(parts.take(part, newest), Ok(None));
            }
            assert_eq!(parts.take(&messages[0], decided.config.version), Ok(None), "it is known");
            assert_eq!(parts.take(&messages[0], newest), Ok(Some(decided)));
        }
    }

    #[test]
    fn a_decision_has_so_many_parts_and_no_more() {
        let mut most = decided(4096);
        most.config.switches = (0..255).map(switch).collect();
        for role in &mut most.config.roles {
            role.chain = (1..=4).map(switch).collect();
        }
        let messages = most.encode().expect("all that a founding may have");
        assert!(messages.len() <= usize::from(MOST_PARTS));
        assert_eq!(decided(u16::MAX).encode(), None);
        let mut part = messages[0].clone();
        part[34..36].copy_from_slice(&(MOST_PARTS + 1).to_be_bytes());
        assert_eq!(Parts::default().take(&part, 0), Err(Malformed));
    }

    #[test]
    fn parts_of_two_decisions_are_not_mixed() {
        let (one, mut two) = (decided(400), decided(400));
        two.config.version += 1;
        two.config.dead.clear();
        let (first, second) = (one.encode().unwrap(), two.encode().unwrap());
        let mut parts = Parts::default();
        for part in &first[1..] {
            assert_eq!(parts.take(part, 0), Ok(None));
        }
        assert_eq!(parts.take(&second[0], 0), Ok(None));
        assert_eq!(parts.take(&first[0], 0), Ok(None), "it is older");
        let last = second[1..].iter().map(|part| parts.take(part, 0).unwrap()).last();
        assert_eq!(last, Some(Some(two)));
    }

    #[test]
    fn reports_are_what_they_were() {
        let report = Report {
            switch: switch(3),
            incarnation: 77,
            applied: 1 << 33,
            asks: true,
            silent_ms: vec![(switch(1), 250), (switch(2), 0)],
            copied: vec![(3, 9), (400, 2)],
            used_percent: 81,
        };
        let reported = Reported { sent_ns: 5, ring: 0x81c7_24e5, report };
        let bytes = reported.encode();
        assert_eq!(Reported::decode(&bytes), Ok(reported.clone()));
        for end in 0..bytes.len() {
            assert_eq!(Reported::decode(&bytes[..end]), Err(Malformed), "{end}");
        }
        let many = vec![(switch(1), 1); 1000];
        let report = Report { silent_ms: many, ..reported.report.clone() };
        assert!(Reported { report, ..reported }.encode().len() <= MOST_BYTES);
    }
}

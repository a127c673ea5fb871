//! `stateplane test`: setup lines with the keys of a MessageTag, and the peers of a PeerLeases. A
//! switch of a packet test stands alone: roles are entries, and other switches are packets.

use crate::NetChain;
use dataplane::{Dataplane, SecretSet};
use manifest::Manifest;
use netchain_compiler::supply::{self, ClientKey};
use netchain_keys::{Grant, Rights};
use netchain_protocol::KEYS_MAX;
use netchain_switch::{Keys, peers};
use packet_test::stf::{Wrong, wrong};
use packet_test::{Arrival, Backing, Fault, Identity, Line, Outcome, Supply, System, Words};
use secrets::from_hex;
use std::net::Ipv4Addr;
use std::str::FromStr;
use wire::{KeyRing, SECRET_BYTES, Secret};

/// `# client_key: …`
const CLIENT_KEY: &str = "client_key";
/// `# secret: …`
const SECRET: &str = "secret";
/// `# peers: …`
const PEERS: &str = "peers";

/// A client's key; number 0: what clients without one may do.
struct KeyLine {
    object: String,
    id: u16,
    secret: Option<Secret>,
    grant: Grant,
}

/// A word as a secret.
struct Hex(Secret);

impl FromStr for Hex {
    type Err = ();

    fn from_str(text: &str) -> Result<Hex, ()> {
        from_hex(text).map(Hex).ok_or(())
    }
}

/// `OBJECT HEX`
fn secret_line(words: &mut Words<'_, '_>) -> Result<(String, Secret), Wrong> {
    let (_, object) = words.next("a MessageTag's name")?;
    let object = object.to_owned();
    let (_, Hex(secret)) = words.parsed("32 hexadecimal digits")?;
    Ok((object, secret))
}

/// `OBJECT NUMBER HEX|none RIGHTS [prefix P] [rate_per_s N] [burst N]`
fn key_line(words: &mut Words<'_, '_>) -> Result<KeyLine, Wrong> {
    let (_, object) = words.next("a MessageTag's name")?;
    let object = object.to_owned();
    let (at, id) = words.parsed("a number")?;
    if id > KEYS_MAX {
        return wrong(at, format!("{id} is out of range; write 0 to {KEYS_MAX}"));
    }
    let secret = match words.peek() {
        Some((_, "none")) => words.next("none").map(|_| None)?,
        _ => Some(words.parsed::<Hex>("32 hexadecimal digits, or none,")?.1.0),
    };
    if secret.is_none() != (id == 0) {
        return wrong(at, "number 0, and no other one, is for clients without a key: none");
    }
    let (at, rights) = words.next("read, write or read-write")?;
    let known = [Rights::Read, Rights::Write, Rights::ReadWrite];
    let Some(rights) = known.into_iter().find(|it| it.name() == rights) else {
        return wrong(at, format!("{rights:?} is not read, write or read-write"));
    };
    let mut grant = Grant { rights, ..Grant::ALL };
    while words.peek().is_some() {
        match words.next("prefix, rate_per_s or burst")? {
            (_, "prefix") => grant.prefix = words.next("a prefix")?.1.to_owned(),
            (_, "rate_per_s") => grant.rate_per_s = words.parsed("a number")?.1,
            (_, "burst") => grant.burst = words.parsed("a number")?.1,
            (at, other) => {
                return wrong(at, format!("{other:?} is not prefix, rate_per_s or burst"));
            }
        }
    }
    match grant.fault() {
        Some((field, problem)) => wrong(at, format!("{field}: {problem}")),
        None => Ok(KeyLine { object, id, secret, grant }),
    }
}

/// The peers; their numbers are their places.
struct PeersLine {
    object: String,
    lease_ms: u64,
    life: u64,
    peers: Vec<Ipv4Addr>,
}

/// `OBJECT lease_ms N life N ADDRESS…`
fn peers_line(words: &mut Words<'_, '_>) -> Result<PeersLine, Wrong> {
    let (_, object) = words.next("a PeerLeases's name")?;
    let object = object.to_owned();
    let mut number = |name: &str| match words.next(name)? {
        (_, word) if word == name => Ok(words.parsed::<u64>("a number")?.1),
        (at, word) => wrong(at, format!("{word:?} is not {name}")),
    };
    let (lease_ms, life) = (number("lease_ms")?, number("life")?);
    let mut peers = vec![];
    while words.peek().is_some() {
        peers.push(words.parsed("an IPv4 address")?.1);
    }
    Ok(PeersLine { object, lease_ms, life, peers })
}

/// A key for the interpreters.
fn numbers(line: &KeyLine) -> Vec<u64> {
    let (prefix, mask) = line.grant.prefix_and_mask();
    let (interval_ns, ahead_ns) = line.grant.pace_ns();
    let key = ClientKey {
        id: line.id,
        secret: line.secret.unwrap_or(Secret([0; SECRET_BYTES])),
        prefix: (prefix, mask.count_ones()),
        rights: line.grant.rights.bits(),
        interval_ns,
        ahead_ns,
    };
    key.numbers()
}

/// A case's lines of NetChain.
#[derive(Default)]
struct Lines {
    keys: Vec<KeyLine>,
    secrets: Vec<(String, Secret)>,
    peers: Vec<PeersLine>,
}

impl Lines {
    fn of(lines: &[Line]) -> Outcome<Lines> {
        let mut found = Lines::default();
        for line in lines {
            let wrong = |(_, reason): Wrong| line.fault(reason);
            match line.keyword {
                CLIENT_KEY => found.keys.push(line.read(key_line).map_err(wrong)?),
                SECRET => found.secrets.push(line.read(secret_line).map_err(wrong)?),
                PEERS => found.peers.push(line.read(peers_line).map_err(wrong)?),
                _ => {}
            }
        }
        Ok(found)
    }
}

impl System for NetChain {
    fn keywords(&self) -> &'static [&'static str] {
        &[CLIENT_KEY, SECRET, PEERS]
    }

    fn check(&self, line: &Line, before: &[Line]) -> Result<(), Wrong> {
        match line.keyword {
            CLIENT_KEY => line.read(key_line).map(drop),
            PEERS => {
                line.read(peers_line)?;
                line.once(before, "a switch has one list of peers")
            }
            _ => {
                line.read(secret_line)?;
                line.once(before, "members of a case have one secret")
            }
        }
    }

    fn begin(&self, lines: &[Line], _: &Manifest) -> Outcome<Option<Box<dyn Backing>>> {
        let lines = Lines::of(lines)?;
        let any = !lines.keys.is_empty() || !lines.secrets.is_empty() || !lines.peers.is_empty();
        Ok(any.then(|| Box::new(Alone(lines)) as Box<dyn Backing>))
    }

    fn supplies(&self, lines: &[Line]) -> Vec<Supply> {
        let Ok(lines) = Lines::of(lines) else { return vec![] };
        let keys = lines.keys.iter().map(|key| Supply {
            object: key.object.clone(),
            what: supply::CLIENT_KEY,
            numbers: numbers(key),
        });
        let secrets = lines.secrets.iter().map(|(object, secret)| Supply {
            object: object.clone(),
            what: supply::SECRET,
            numbers: secret.words().to_vec(),
        });
        let peers = lines.peers.iter().flat_map(|line| {
            let supply = |what, numbers| Supply { object: line.object.clone(), what, numbers };
            let leases = supply(supply::LEASES, vec![line.lease_ms * 1_000_000, line.life]);
            let peers = (0..).zip(&line.peers).map(move |(number, address)| {
                supply(supply::PEER, vec![number, u32::from(*address).into(), 0])
            });
            std::iter::once(leases).chain(peers).collect::<Vec<_>>()
        });
        keys.chain(secrets).chain(peers).collect()
    }
}

/// A switch that knows its keys.
struct Alone(Lines);

impl Backing for Alone {
    fn begin_switch(&mut self, switch: &Dataplane, _: Identity, _: u64) -> Outcome<()> {
        let Alone(lines) = self;
        for line in &lines.peers {
            let lease_ns = line.lease_ms * 1_000_000;
            peers::write_settings(switch, Ipv4Addr::UNSPECIFIED, 0, lease_ns, line.life)
                .map_err(Fault::of_case)?;
            for (number, address) in (0..).zip(&line.peers) {
                peers::write_peer(switch, number, *address, 0).map_err(Fault::of_case)?;
            }
        }
        if lines.keys.is_empty() && lines.secrets.is_empty() {
            return Ok(());
        }
        if !Keys::needed(switch.manifest()) {
            return Err(Fault::of_case("keys for a program that checks no tags: remove the lines"));
        }
        let places: Vec<_> =
            lines.keys.iter().map(|key| (key.id, key.secret.as_ref(), &key.grant)).collect();
        Keys::exchange(switch, &places).map_err(Fault::of_case)?;
        let Some((_, secret)) = lines.secrets.first() else { return Ok(()) };
        let Some(ring) = KeyRing::new(0, *secret) else { return Ok(()) };
        switch.set_secrets(&SecretSet::from(&ring)).map_err(Fault::of_case)
    }

    fn departs(&mut self, _: u32, _: &[u8], _: u64) -> Option<Vec<Arrival>> {
        None
    }

    fn next_ns(&self, _: &Dataplane, _: u64) -> Option<u64> {
        None
    }

    fn tick(&mut self, _: &Dataplane, _: u64) -> Outcome<Vec<Arrival>> {
        Ok(vec![])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet_test::{Case, Systems};

    fn parse(text: &str) -> Result<Case, Vec<packet_test::StfError>> {
        Case::parse("x.stf", text, Systems(&[&NetChain]))
    }

    #[test]
    fn reads_keys_and_secret() {
        let text = "# secret: tags 000102030405060708090a0b0c0d0e0f\n# client_key: tags 3 \
                    000102030405060708090a0b0c0d0e0f read prefix a/ rate_per_s 10 burst 1\n\
                    # client_key: tags 0 none read-write\n";
        let case = parse(text).unwrap_or_else(|errors| panic!("{errors:?}"));
        let lines = Lines::of(&case.setup.systems).expect("lines");
        let [first, second] = &lines.keys[..] else { panic!("{} keys", lines.keys.len()) };
        assert_eq!((first.id, first.grant.prefix.as_str()), (3, "a/"));
        assert_eq!(first.grant.pace_ns(), (100_000_000, 0));
        assert_eq!((second.id, second.secret), (0, None));
        assert_eq!(numbers(first)[3..], [0x612f << 48, 0, 16, 1, 100_000_000, 0]);
    }

    #[test]
    fn says_where_a_line_is_wrong() {
        let hex = "000102030405060708090a0b0c0d0e0f";
        for (line, part) in [
            ("# secret: tags 00", "32 hexadecimal digits"),
            (&format!("# secret: tags {hex}\n# secret: tags {hex}"), "one secret"),
            (&format!("# client_key: tags 1025 {hex} read"), "0 to 1024"),
            (&format!("# client_key: tags 0 {hex} read"), "without a key"),
            ("# client_key: tags 1 none read", "without a key"),
            (&format!("# client_key: tags 1 {hex} all"), "read-write"),
            (&format!("# client_key: tags 1 {hex} read burst 1"), "write both"),
            (&format!("# client_key: tags 1 {hex} read fast"), "not prefix"),
        ] {
            let errors = parse(line).expect_err(line);
            assert!(errors.iter().any(|it| it.to_string().contains(part)), "{line}: {errors:?}");
        }
    }
}

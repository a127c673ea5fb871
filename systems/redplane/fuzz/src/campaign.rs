//! Long runs of frames and of state messages, from one seed each.

use crate::entries::SHARDS;
use crate::frames::{self, Conversation, carrier};
use crate::nat::{Binding, Key};
use crate::network::{self, FABRIC_PORT, PROTOCOL_ADDRESS};
use crate::rig::{self, Counts, Mode, Pool, Rig, SERVER, Step};
use crate::shrink;
use anyhow::{Result, ensure};
use fuzz_door::mutate;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use state_protocol::{Flags, Message, MessageType, Owner};
use std::net::Ipv4Addr;
use wire::KeyRing;

/// After so many steps the state is emptied: bindings enough, and a failure's history stays short.
const EPOCH: u64 = 20_000;
/// Whether a run tried what it is for is asked of no shorter one.
const JUDGED_FROM: u64 = 1_000;
/// Steps between two looks of the packet generator.
const GENERATE_EVERY: u64 = 256;
/// The switch's clock when a history begins.
const START_NS: u64 = 1_000_000_000_000;
/// A hostile history begins anew when the map, which is compared after every step, holds more.
const HOSTILE_ENTRIES: usize = 64;

/// One thing done to a rig.
#[derive(Clone, Debug)]
pub enum Action {
    /// A frame comes in.
    Frame(Step),
    /// The packet generator runs.
    Generate(u64),
}

impl Action {
    /// Does it; in a hostile history all state is compared afterwards.
    pub(crate) fn run(&self, rig: &mut Rig) -> Result<()> {
        match self {
            Action::Frame(step) => rig.step(step)?,
            Action::Generate(now_ns) => rig.generate(*now_ns)?,
        }
        if rig.hostile { rig.compare_entries() } else { Ok(()) }
    }
}

/// Runs `count` random and mutated frames through one of the NATs.
pub fn frames(seed: u64, count: u64, mode: Mode) -> Result<Counts> {
    println!("frames, {mode:?}: seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    with_rig(mode, |rig| {
        let mut done = 0;
        while done < count {
            let pool = pool(&mut random);
            rig.reset(pool)?;
            let mut history = Vec::new();
            let mut now_ns = START_NS;
            for number in 0..EPOCH.min(count - done) {
                now_ns += random.random_range(0..1_000_000);
                // Hardly ever as long as a lease.
                now_ns += if random.random_bool(0.001) { 200_000_000 } else { 0 };
                let action = if mode == Mode::Linearizable
                    && number % GENERATE_EVERY == GENERATE_EVERY - 1
                {
                    Action::Generate(now_ns)
                } else {
                    let frame = frames::frame(&rig.conversations, &mut random);
                    Action::Frame(Step { frame, port: random.random_range(0..3), now_ns })
                };
                history.push(action.clone());
                if let Err(error) = action.run(rig) {
                    return Err(shrink::report(rig, pool, history, error, seed, done + number));
                }
            }
            if mode == Mode::Linearizable {
                rig.compare_entries()?;
            }
            done += EPOCH;
            if done % (10 * EPOCH) == 0 {
                println!("frames, {mode:?}: {done} of {count}");
            }
        }
        // Else the frames are not what they should be, and nothing was tried.
        ensure!(
            count < JUDGED_FROM || rig.counts.translated * 10 > count,
            "only {} of {count} frames were translated",
            rig.counts.translated
        );
        Ok(rig.counts)
    })
}

fn with_rig<T: Send>(mode: Mode, body: impl FnOnce(&mut Rig) -> Result<T> + Send) -> Result<T> {
    let folder = tempfile::tempdir()?;
    let object = rig::compile(folder.path(), mode)?;
    network::inside(|interfaces| body(&mut Rig::load(&object, mode, interfaces)?))
}

/// Mostly roomy; sometimes so small that it runs out.
fn pool(random: &mut StdRng) -> Pool {
    let addresses = random.random_range(1..=8);
    match random.random_range(0..4) {
        0 => {
            let low = random.random_range(39_990..40_010);
            Pool { addresses: addresses.min(2), low, high: low + random.random_range(0..40) }
        }
        1 => Pool { addresses, low: 1, high: u16::MAX },
        _ => Pool { addresses, low: 1024, high: u16::MAX },
    }
}

/// Runs `count` random, truncated and mutated state messages, and packets of their flows between
/// them, through the linearizable NAT.
pub fn messages(seed: u64, count: u64) -> Result<Counts> {
    println!("messages: seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    with_rig(Mode::Linearizable, |rig| {
        rig.hostile = true;
        let pool = Pool { addresses: 8, low: 1024, high: u16::MAX };
        let (mut history, mut flows, mut now_ns) = (Vec::new(), Vec::new(), START_NS);
        rig.reset(pool)?;
        for number in 0..count {
            if flows.is_empty()
                || history.len() as u64 >= EPOCH
                || rig.entries.flows.len() > HOSTILE_ENTRIES
            {
                rig.reset(pool)?;
                history.clear();
                flows = (0..24).map(|_| flow(&mut random)).collect();
                now_ns = START_NS;
            }
            now_ns += random.random_range(0..2_000_000);
            let action = match random.random_range(0..16) {
                0 => Action::Generate(now_ns),
                1..4 => Action::Frame(Step {
                    frame: frames::frame(&flows, &mut random),
                    port: random.random_range(0..3),
                    now_ns,
                }),
                4 => Action::Frame(honest_grant(rig, &flows, now_ns, &mut random)),
                _ => Action::Frame(message(&rig.ring, &flows, now_ns, &mut random)),
            };
            history.push(action.clone());
            if let Err(error) = action.run(rig) {
                return Err(shrink::report(rig, pool, history, error, seed, number));
            }
            if (number + 1) % 100_000 == 0 {
                println!("messages: {} of {count}", number + 1);
            }
        }
        let Counts { taken, refused, translated, .. } = rig.counts;
        ensure!(
            count < JUDGED_FROM
                || taken * 20 > count && refused * 20 > count && translated * 50 > count,
            "a lopsided run: {:?}",
            rig.counts
        );
        Ok(rig.counts)
    })
}

fn flow(random: &mut StdRng) -> Conversation {
    let protocol = *[1, 6, 17].choose(random).unwrap_or(&6);
    let key = Key {
        source: 0x0a00_0005,
        destination: 0xc633_6401,
        source_port: random.random_range(1024..1100),
        destination_port: if protocol == 1 { 0 } else { 80 },
        protocol,
    };
    (key, Binding { address: 0xcb00_7101, port: random.random_range(1024..=65535) })
}

/// What a store would grant: a flow, under a new epoch, to this switch. Chance alone makes hardly a
/// flow this switch's, and what can go wrong is with those.
fn honest_grant(rig: &Rig, flows: &[Conversation], now_ns: u64, random: &mut StdRng) -> Step {
    let (key, binding) = flows[random.random_range(0..flows.len())];
    let shard = random.random_range(0..SHARDS);
    let message = Message {
        message_type: MessageType::LeaseGrant,
        session: rig.entries.sessions[usize::from(shard)].number.max(1),
        shard,
        object_id: crate::entries::OBJECT,
        flags: Flags(0),
        sender: crate::entries::SELF,
        request_ns: now_ns - random.random_range(0..1_000_000),
        epoch: rig.entries.flows.get(&key).map_or(0, |entry| entry.epoch).saturating_add(1),
        seq: 1,
        lease_us: 250_000,
        port: 1 << 9 | 1,
        key: &key.to_bytes(),
        value: &binding.to_bytes(),
        packet: &[],
    };
    let mut payload = Vec::new();
    // (It only fails for what is longer than a message can be.)
    let _ = message.append_to(&mut payload);
    rig.ring.sign(&mut payload, SERVER, Ipv4Addr::from(PROTOCOL_ADDRESS));
    Step { frame: carrier(&payload, PROTOCOL_ADDRESS), port: FABRIC_PORT, now_ns }
}

/// A message for or about one of the flows; mostly spoilt.
fn message(ring: &KeyRing, flows: &[Conversation], now_ns: u64, random: &mut StdRng) -> Step {
    let mut payload = Vec::new();
    let (key, binding) = flows[random.random_range(0..flows.len())];
    let inside = Binding { address: key.source, port: key.source_port };
    let (key, value) =
        if random.random() { (key, binding) } else { (key.reverse(binding), inside) };
    let (key, value) = (key.to_bytes(), value.to_bytes());
    let packet = if random.random_bool(0.5) { frames::frame(flows, random) } else { Vec::new() };
    let message = well_formed(&key, &value, &packet, now_ns, random);
    // (It only fails for what is longer than a message can be.)
    let _ = message.append_to(&mut payload);
    let spoilt = random.random_bool(0.6);
    if spoilt && random.random() {
        // In the header and the key, where it matters; or anywhere.
        if random.random() {
            let at = random.random_range(0..payload.len().min(70));
            payload[at] = if random.random() {
                random.random()
            } else {
                payload[at] ^ 1 << random.random_range(0..8)
            };
        } else {
            payload = mutate::bytes(&payload, 0, random);
        }
    }
    // Probes have packet tests (systems/redplane/compiler/tests/flow_messages.rs) and the
    // simulator: what the switch remembers of them is not in the model.
    if payload.get(3) == Some(&(MessageType::Recall as u8))
        && let Some(flags) = payload.get_mut(7)
    {
        *flags &= !(Flags::PROBE.0 as u8);
    }
    // What is spoilt and signed again gets further.
    if !spoilt || random.random_bool(0.7) {
        ring.sign(&mut payload, SERVER, Ipv4Addr::from(PROTOCOL_ADDRESS));
        if spoilt && random.random_bool(0.1) && payload.len() > 63 {
            let bit = random.random_range(0..payload.len() * 8);
            payload[bit / 8] ^= 1 << (bit % 8);
        }
    }
    let destination = if random.random_bool(0.9) { PROTOCOL_ADDRESS } else { [198, 51, 100, 1] };
    let mut frame = carrier(&payload, destination);
    match random.random_range(0..10) {
        0 if spoilt => frame.truncate(random.random_range(14..frame.len())),
        1 if spoilt => frame = mutate::bytes(&frame, 14, random),
        2 if spoilt => {
            let at = random.random_range(14..42);
            frame[at] = if random.random() {
                random.random()
            } else {
                frame[at] ^ 1 << random.random_range(0..8)
            };
        }
        // As Ethernet pads.
        3 => frame.extend((0..random.random_range(1..30)).map(|_| 0)),
        4 if spoilt => {
            let length = random.random_range(0..200);
            let noise: Vec<u8> = (0..length).map(|_| random.random()).collect();
            frame = carrier(&noise, destination);
        }
        _ => {}
    }
    let port = if random.random_bool(0.9) { FABRIC_PORT } else { random.random_range(0..3) };
    Step { frame, port, now_ns }
}

fn well_formed<'a>(
    key: &'a [u8],
    value: &'a [u8],
    packet: &'a [u8],
    now_ns: u64,
    random: &mut StdRng,
) -> Message<'a> {
    use crate::entries::SELF;
    let types = [
        MessageType::LeaseGrant,
        MessageType::LeaseGrant,
        MessageType::LeaseGrant,
        MessageType::Absent,
        MessageType::UpdateAck,
        MessageType::Refused,
        MessageType::HeartbeatAck,
        MessageType::Recall,
        MessageType::ReleaseAck,
    ];
    let message_type = *types.choose(random).unwrap_or(&MessageType::LeaseGrant);
    let sender = match random.random_range(0..12) {
        0 => Owner { incarnation: SELF.incarnation ^ 1, ..SELF },
        1 => Owner { switch_id: SELF.switch_id + 1, ..SELF },
        _ => SELF,
    };
    let ago_ns = if random.random_bool(0.9) { 400_000_000 } else { 1_500_000_000 };
    let beat = message_type == MessageType::HeartbeatAck;
    let carries = [MessageType::LeaseGrant, MessageType::Absent, MessageType::UpdateAck]
        .contains(&message_type);
    Message {
        message_type,
        session: random.random_range(0..5),
        shard: if random.random_bool(0.95) {
            random.random_range(0..SHARDS)
        } else {
            random.random()
        },
        object_id: if beat {
            0
        } else if random.random_bool(0.95) {
            crate::entries::OBJECT
        } else {
            random.random()
        },
        flags: Flags(if random.random_bool(0.8) { 0 } else { random.random() }),
        sender,
        request_ns: now_ns - random.random_range(0..ago_ns),
        epoch: random.random_range(0..6),
        seq: random.random_range(0..4),
        lease_us: *[0, 1, 10_000, 10_001, 60_000, 250_000, u32::MAX].choose(random).unwrap_or(&0),
        port: if random.random_bool(0.7) { 1 << 9 | 1 } else { random.random() },
        key: if beat { &[] } else { key },
        value: if message_type == MessageType::LeaseGrant { value } else { &[] },
        packet: if carries { packet } else { &[] },
    }
}

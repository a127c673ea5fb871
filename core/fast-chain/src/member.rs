//! What the program does, in Rust: the reference that the program is compared with, and its part
//! in simulations.

use crate::count::Count;
use crate::layouts::{FastObject, LOCK_PROGRAM, STANDING_HEAD, STANDING_ON, STANDING_TAIL};
use crate::memory::Memory;
use crate::mutation::{self, Mutation};
use std::net::SocketAddrV4;
use wire::{Batch, BatchAck, BatchHead, BatchRecord, KeyRing, PORT, RecordFlags, Secret};

/// What becomes of a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// User space's: it is no batch.
    Other,
    /// User space's, for this reason.
    Pass(Count),
    /// It was taken, and goes on as this datagram, signed.
    Send {
        /// The next member, or the switch.
        to: SocketAddrV4,
        /// All of it.
        datagram: Vec<u8>,
    },
}

/// What becomes of a record.
struct Part {
    place: u32,
    /// Of the record's grant.
    write: bool,
    /// And newer than what is here.
    newer: bool,
}

/// Takes a datagram that came to this member's address from `from`.
pub fn take(memory: &Memory, from: SocketAddrV4, datagram: &[u8]) -> Verdict {
    if !matches!(wire::kind(datagram), Ok(wire::Kind::Batch(wire::BatchType::Batch))) {
        return Verdict::Other;
    }
    let config = memory.config();
    let Ok(batch) = Batch::decode(datagram) else { return Verdict::Pass(Count::Malformed) };
    let shard = batch.head.shard;
    if u32::from(shard) >= config.shards {
        return Verdict::Pass(Count::Off);
    }
    let keys = keys(memory);
    let genuine =
        keys.as_ref().is_some_and(|keys| keys.verify(datagram, *from.ip(), config.address).is_ok());
    let (Some(keys), true) = (keys, genuine) else { return Verdict::Pass(Count::Forged) };
    if !memory.try_lock(shard, LOCK_PROGRAM) {
        return Verdict::Pass(Count::Busy);
    }
    let taken = under_lock(memory, from, &batch);
    memory.unlock(shard);
    let (next, view) = match taken {
        Ok(taken) => taken,
        Err(reason) => return Verdict::Pass(reason),
    };
    let mut sent = Vec::new();
    let to = match next {
        Some(next) => {
            sent.extend_from_slice(datagram);
            sent[VIEW_AT..VIEW_AT + 8].copy_from_slice(&view.to_be_bytes());
            next
        }
        None => {
            let head = BatchHead { view: 0, ..batch.head };
            // At most 64.
            let count = batch.records().count_left() as u16;
            BatchAck { head, count, refused: 0 }.append_to(&mut sent);
            SocketAddrV4::new(batch.head.client, PORT)
        }
    };
    keys.sign(&mut sent, config.address, *to.ip());
    Verdict::Send { to, datagram: sent }
}

/// Where a batch has its view.
const VIEW_AT: usize = 32;

fn keys(memory: &Memory) -> Option<KeyRing> {
    let config = memory.config();
    let known = |id: u8| config.known_secrets >> id & 1 != 0;
    let secret = |id: u8| Secret::from_words(config.secrets[usize::from(id)]);
    let mut keys = KeyRing::new(config.send, secret(config.send)).filter(|_| known(config.send))?;
    for id in (0..wire::MOST_SECRETS as u8).filter(|id| known(*id)) {
        // All numbers are below the most.
        let _ = keys.accept(id, secret(id));
    }
    Some(keys)
}

/// Where the batch goes (`None`: it is answered), and under which view.
fn under_lock(
    memory: &Memory,
    from: SocketAddrV4,
    batch: &Batch<'_>,
) -> Result<(Option<SocketAddrV4>, u64), Count> {
    let head = &batch.head;
    let shard = memory.shard(head.shard);
    let is_head = shard.standing & STANDING_HEAD != 0;
    let comes_right = match is_head {
        // The answer goes to the protocol's port.
        true => head.view == 0 && *from.ip() == head.client && from.port() == PORT,
        false => head.view == shard.view && *from.ip() == shard.previous,
    };
    if shard.standing & STANDING_ON == 0 || !comes_right {
        return Err(Count::Off);
    }
    let objects = memory.config().objects;
    // All are looked at before one is written: user space gets a batch that nothing was taken of.
    let parts: Vec<Part> = batch
        .records()
        .map(|record| look_at(memory, &objects, is_head, head, &record))
        .collect::<Result<_, _>>()?;
    // It was taken before, and its answer or the batch itself was lost behind. Whatever loses it
    // there may lose it again: an entry of user space does not get lost.
    if is_head && !parts.iter().any(|part| part.newer) {
        return Err(Count::Known);
    }
    for (part, update) in parts.iter().zip(batch.records()).filter(|(part, _)| part.write) {
        write(memory, head.shard, part.place, &update);
    }
    let next = (shard.standing & STANDING_TAIL == 0)
        .then(|| SocketAddrV4::new(shard.next, shard.next_port.0));
    Ok((next, shard.view))
}

fn look_at(
    memory: &Memory,
    objects: &[FastObject],
    is_head: bool,
    head: &BatchHead,
    update: &BatchRecord<'_>,
) -> Result<Part, Count> {
    // What only the head has is told to the others record by record, as a part of later effects:
    // half of a group. User space's effects carry groups whole.
    if update.flags.contains(RecordFlags::GROUP) {
        return Err(Count::Group);
    }
    let object = objects.get(usize::from(update.object_id)).filter(|it| it.key_words > 0);
    let object = object.ok_or(Count::Absent)?;
    let (key_words, value_words) = (usize::from(object.key_words), usize::from(object.value_words));
    let content = words(update.content);
    if content.len() != key_words + value_words {
        return Err(Count::Malformed);
    }
    let last = u64::from_le(content[content.len() - 1]);
    let bits = u32::from(object.value_rest_bits);
    if bits > 0 && last >> (u64::BITS - bits) != 0 {
        return Err(Count::Malformed);
    }
    let place = memory.find(head.shard, update.object_id, &content[..key_words]);
    let place = place.ok_or(Count::Absent)?;
    let known = memory.record(head.shard, place);
    if is_head {
        let owner = (known.switch_id, known.incarnation);
        let held = owner == (head.switch_id, head.incarnation)
            && known.epoch == update.epoch
            && known.session == head.session
            && known.session != 0;
        if !held && !mutation::planted(Mutation::BatchOfAnybody) {
            return Err(Count::NotHeld);
        }
    } else if update.epoch > known.epoch {
        return Err(Count::Early);
    }
    let write = update.epoch == known.epoch;
    Ok(Part { place, write, newer: write && update.seq > known.seq })
}

fn write(memory: &Memory, shard: u16, place: u32, update: &BatchRecord<'_>) {
    let mut record = memory.record(shard, place);
    // A record that is in the batch twice: the newer one stays.
    if update.seq <= record.seq {
        return;
    }
    let key_words = usize::from(record.key_words);
    let content = words(update.content);
    record.content[key_words..content.len()].copy_from_slice(&content[key_words..]);
    (record.seq, record.flags) = (update.seq, update.flags.0);
    if record.changed == 0 {
        let mut of_shard = memory.shard(shard);
        (record.changed, record.next_changed) = (1, of_shard.changed);
        of_shard.changed = place + 1;
        memory.set_shard(shard, &of_shard);
    }
    memory.set_record(shard, place, &record);
}

/// Words as they lie in memory.
fn words(content: &[u8]) -> Vec<u64> {
    content.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

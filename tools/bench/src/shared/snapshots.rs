//! A reader of what RedPlane's store has merged of the switches' sketches
//! (`setups/detector_snapshots.p4`): which cells are full in their union. Merged slots are at the
//! store alone, so it decides, as a controller does.

use crate::shared::network::Network;
use crate::shared::sketch::is_full;
use anyhow::{Context, Result, ensure};
use secrets::SecretsFile;
use state_store::core::{RecordState, SlotBytes, StateAnswer, StateQuery, from_hex};
use state_store::shell::query_state;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Of the lab's store, in its topology.
const STORE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 10), wire::PORT);
/// The store answers within this, or is gone.
const PATIENCE: Duration = Duration::from_secs(2);
/// Blocks of the sketch, each a key (`BLOCKS`).
const BLOCKS: usize = 1024;
/// Cells of a block (`SLOTS`).
const SLOTS: usize = 96;

/// What is known of a block.
#[derive(Clone, Default)]
struct Block {
    /// Of which snapshots: the newest epoch, and the sum of their numbers.
    of: (u32, u64),
    /// Cells that were full.
    told: Vec<bool>,
}

/// Blocks by their keys, as the store writes them.
#[derive(Default)]
pub(super) struct Blocks(HashMap<String, Block>);

/// The number in a key.
fn number(key: &str) -> Result<usize> {
    let bytes = from_hex(key).with_context(|| format!("key {key:?} has no hexadecimal digits"))?;
    let number = <[u8; 2]>::try_from(&bytes[..]).ok().map(|it| u16::from_be_bytes(it).into());
    let number = number.with_context(|| format!("key {key} has {} bytes, not 2", bytes.len()))?;
    ensure!(number < BLOCKS, "key {key}: the sketch has {BLOCKS} blocks");
    Ok(number)
}

impl Blocks {
    /// Whether a record has merged slots that are not known yet.
    fn is_new(&self, record: &RecordState) -> bool {
        let known = self.0.get(&record.key).map(|block| block.of);
        record.snapshot.is_some_and(|it| known != Some((it.epoch, it.seq)))
    }

    /// Takes a block's merged slots; its cells that have become full, by their numbers in the
    /// sketch.
    fn take(&mut self, key: &str, merged: &SlotBytes) -> Result<Vec<u32>> {
        let number = number(key)?;
        let bytes = from_hex(&merged.bytes).with_context(|| format!("slots of key {key}"))?;
        ensure!(bytes.len() == SLOTS * 4, "key {key} has {} bytes, not {SLOTS} × 4", bytes.len());
        let block = self.0.entry(key.to_owned()).or_default();
        block.of = (merged.snapshot.epoch, merged.snapshot.seq);
        block.told.resize(SLOTS, false);
        let mut full = vec![];
        for (at, (bits, told)) in bytes.as_chunks().0.iter().zip(&mut block.told).enumerate() {
            if !*told && is_full(u32::from_be_bytes(*bits)) {
                *told = true;
                full.push((number * SLOTS + at) as u32);
            }
        }
        Ok(full)
    }
}

/// Asks the store, from a thread in the controller's namespace.
pub(super) struct Reader {
    secrets: SecretsFile,
    object: u16,
    blocks: Blocks,
    /// Of the store, so far.
    pub(super) answers: u64,
    /// Of slots, in them.
    pub(super) bytes: u64,
}

impl Reader {
    /// Of the lab's store.
    pub(super) fn new(network: &Network) -> Result<Reader> {
        let secrets = SecretsFile::load(&network.folder().join("fabric.secrets"))?;
        let dataplane = network.dataplane(0)?;
        let object = dataplane.manifest().state_objects.first().context("no SnapshotState")?.id;
        Ok(Reader { secrets, object, blocks: Blocks::default(), answers: 0, bytes: 0 })
    }

    fn ask(&mut self, query: &StateQuery) -> Result<StateAnswer> {
        let answer = query_state(query, STORE, self.secrets.ring(), PATIENCE)?;
        self.answers += 1;
        self.bytes += answer.slots.as_ref().map_or(0, |slots| slots.bytes.len() as u64 / 2);
        Ok(answer)
    }

    /// Reads all blocks that have changed since the last time; the cells that became full.
    pub(super) fn round(&mut self) -> Result<Vec<u32>> {
        let (mut changed, mut full) = (vec![], vec![]);
        let mut query = StateQuery { object: Some(self.object), ..StateQuery::default() };
        loop {
            let answer = self.ask(&query)?;
            let new = answer.records.into_iter().filter(|record| self.blocks.is_new(record));
            changed.extend(new.map(|record| record.key));
            match answer.next {
                Some(next) => query.from = next,
                None => break,
            }
        }
        for key in changed {
            let answer = self.ask(&StateQuery {
                object: Some(self.object),
                key: Some(key.clone()),
                slots_from: Some(0),
                ..StateQuery::default()
            })?;
            if let Some(merged) = answer.slots {
                full.extend(self.blocks.take(&key, &merged)?);
            }
        }
        Ok(full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_store::core::{SnapshotInfo, to_hex};

    fn merged(seq: u64, slots: &[(usize, u32)]) -> SlotBytes {
        let mut bytes = [0u8; SLOTS * 4];
        for (at, bits) in slots {
            bytes[at * 4..at * 4 + 4].copy_from_slice(&bits.to_be_bytes());
        }
        let snapshot = SnapshotInfo { epoch: 7, seq, slot_bytes: 4, bytes: bytes.len() };
        SlotBytes { snapshot, bytes: to_hex(&bytes) }
    }

    #[test]
    fn a_cell_is_told_once_when_it_is_full() {
        let mut blocks = Blocks::default();
        // 27 bits and 28.
        let slots = [(0, 0x07ff_ffff), (95, 0x0fff_ffff)];
        assert_eq!(blocks.take("0002", &merged(1, &slots)).expect("slots"), [2 * 96 + 95]);
        assert!(blocks.take("0002", &merged(2, &slots)).expect("slots").is_empty());
        let slots = [(0, 0xf7ff_ffff), (95, u32::MAX)];
        assert_eq!(blocks.take("0002", &merged(3, &slots)).expect("slots"), [2 * 96]);
        // Another block's cells are others.
        assert_eq!(blocks.take("03ff", &merged(1, &slots)).expect("slots"), [98_208, 98_303]);
    }

    #[test]
    fn only_blocks_that_changed_are_read() {
        let mut blocks = Blocks::default();
        let mut record = RecordState {
            shard: 0,
            object: 1,
            key: "0002".into(),
            value: String::new(),
            epoch: 7,
            seq: 1,
            owner: None,
            incarnation: None,
            session: 0,
            phase: "open".into(),
            snapshot: Some(merged(1, &[]).snapshot),
            contributions: vec![],
        };
        assert!(blocks.is_new(&record));
        blocks.take("0002", &merged(1, &[])).expect("slots");
        assert!(!blocks.is_new(&record));
        record.snapshot = Some(merged(2, &[]).snapshot);
        assert!(blocks.is_new(&record));
        record.snapshot = None;
        assert!(!blocks.is_new(&record));
    }

    #[test]
    fn what_is_no_block_is_refused() {
        let mut blocks = Blocks::default();
        for key in ["", "02", "0400", "000200", "zz"] {
            assert!(blocks.take(key, &merged(1, &[])).is_err(), "{key}");
        }
        let short = SlotBytes { bytes: "00".into(), ..merged(1, &[]) };
        assert!(blocks.take("0002", &short).is_err());
    }
}

//! `stateplane state`: records and snapshots, from the stores.

use command_line::state::{Asked, Found, Question, Record, Snapshot, Source};
use manifest::{Manifest, StateObject};
use serde_json::{Value, json};
use state_protocol::objects::{SYSTEM, SnapshotState};
use state_store::core::{
    Contribution, RecordState, SnapshotInfo, StateAnswer, StateQuery, from_hex, to_hex,
};
use state_store::shell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;

/// So often at most a snapshot is read anew because a newer one took its place meanwhile.
const MOST_TRIES: usize = 20;

/// The stores.
pub(super) struct Stores;

fn ask(asked: &Asked, store: SocketAddrV4, query: &StateQuery) -> Result<StateAnswer, String> {
    shell::query_state(query, store, asked.secrets.ring(), asked.timeout)
        .map_err(|error| error.to_string())
}

impl Source for Stores {
    fn has(&self, object: &StateObject) -> Result<bool, String> {
        SnapshotState::of(object).map_err(|error| error.to_string())?;
        Ok(object.system == SYSTEM)
    }

    fn columns(&self) -> &'static [&'static str] {
        &["owner", "epoch", "seq", "phase"]
    }

    fn records(&self, asked: &Asked, question: &Question, most: usize) -> Result<Found, String> {
        let query = StateQuery {
            object: question.object,
            owner: question.owner,
            key: question.key.as_deref().map(to_hex),
            ..StateQuery::default()
        };
        let mut found: BTreeMap<(u16, String), RecordState> = BTreeMap::new();
        let (mut seen, mut all, mut more) = (BTreeSet::new(), 0, false);
        for store in &asked.stores {
            let mut query = query.clone();
            loop {
                let answer = ask(asked, *store, &query)?;
                seen.extend(answer.shards);
                all = answer.all_shards;
                for record in answer.records {
                    let name = (record.object, record.key.clone());
                    let newer =
                        |known: &RecordState| (record.epoch, record.seq) > (known.epoch, known.seq);
                    if found.get(&name).is_none_or(newer) {
                        found.insert(name, record);
                    }
                }
                more |= found.len() > most;
                match answer.next {
                    Some(next) if !more => query.from = next,
                    _ => break,
                }
            }
        }
        let missing: Vec<String> =
            (0..all).filter(|it| !seen.contains(it)).map(|it| it.to_string()).collect();
        let warning = (!missing.is_empty()).then(|| {
            format!(
                "no given store has all of shard {}: add others with --store",
                missing.join(", ")
            )
        });
        Ok(Found { records: found.into_values().take(most).map(record).collect(), more, warning })
    }

    /// From the first server that has it.
    fn snapshot(
        &self,
        asked: &Asked,
        manifest: Option<&Manifest>,
        record: &Record,
    ) -> Result<Option<Snapshot>, String> {
        if record.value.is_ok() {
            return Ok(None);
        }
        let query = StateQuery {
            object: Some(record.object),
            key: Some(to_hex(&record.key)),
            ..StateQuery::default()
        };
        for store in &asked.stores {
            for _ in 0..MOST_TRIES {
                if let Some(Read { info, mut slots, contributions }) =
                    slots_in_one_piece(asked, *store, &query)?
                {
                    let windows = has_windows(manifest, record.object);
                    let window = if windows { slots.pop() } else { None };
                    let (name, mut json) = (name(&info, &contributions), json!(info));
                    if !contributions.is_empty() {
                        json["contributions"] =
                            with_slots(asked, *store, &query, windows, &contributions)?;
                    }
                    return Ok(Some(Snapshot { info: json, name, window, slots }));
                }
                let answer = ask(asked, *store, &query)?;
                if answer.records.iter().all(|record| record.snapshot.is_none()) {
                    break;
                }
            }
        }
        Ok(None)
    }
}

/// Whether an object's last slot is the window's number.
fn has_windows(manifest: Option<&Manifest>, id: u16) -> bool {
    let objects = manifest.into_iter().flat_map(|manifest| &manifest.state_objects);
    let object = objects.filter(|object| object.system == SYSTEM).find(|object| object.id == id);
    let snapshot = object.and_then(|object| SnapshotState::of(object).ok().flatten());
    snapshot.is_some_and(|snapshot| snapshot.settings.windows)
}

/// Which snapshot; of what is merged, which ones.
fn name(info: &SnapshotInfo, contributions: &[Contribution]) -> String {
    let one =
        |it: &Contribution| format!("switch {} ({} of epoch {})", it.switch, it.seq, it.epoch);
    let (merged, others): (Vec<_>, Vec<_>) = contributions.iter().partition(|it| it.merged);
    let all = merged.into_iter().map(one).collect::<Vec<_>>().join(" and ");
    let others: Vec<_> = others.iter().map(|it| it.switch.to_string()).collect();
    match (contributions, others.as_slice()) {
        ([], _) => format!("{} of epoch {}", info.seq, info.epoch),
        (_, []) => format!("of {all}"),
        _ => format!("of {all}, not of switch {}", others.join(", ")),
    }
}

/// Contributions with each one's own slots, as the server has them a moment later than what is
/// merged.
fn with_slots(
    asked: &Asked,
    store: SocketAddrV4,
    query: &StateQuery,
    windows: bool,
    contributions: &[Contribution],
) -> Result<Value, String> {
    let one = |it: &Contribution| {
        let query = StateQuery { contributor: Some(it.switch), ..query.clone() };
        let mut json = json!(it);
        for _ in 0..MOST_TRIES {
            if let Some(mut read) = slots_in_one_piece(asked, store, &query)? {
                if windows {
                    read.slots.pop();
                }
                json["slots"] = json!(read.slots);
                break;
            }
        }
        Ok(json)
    };
    contributions.iter().map(one).collect()
}

/// A record as every system shows its own.
fn record(of: RecordState) -> Record {
    let owner = match of.contributions.as_slice() {
        [] => of.owner.map_or("nobody".to_owned(), |switch| format!("switch {switch}")),
        all => all.iter().map(|it| format!("switch {}", it.switch)).collect::<Vec<_>>().join(" + "),
    };
    let contributions =
        (!of.contributions.is_empty()).then(|| ("contributions", json!(of.contributions)));
    Record {
        object: of.object,
        key: from_hex(&of.key).unwrap_or_default(),
        value: match &of.snapshot {
            Some(info) => Err(format!("snapshot {}", name(info, &of.contributions))),
            None => Ok(from_hex(&of.value).unwrap_or_default()),
        },
        cells: vec![owner, of.epoch.to_string(), of.seq.to_string(), of.phase.clone()],
        fields: vec![
            ("shard", json!(of.shard)),
            ("owner", json!(of.owner)),
            ("epoch", json!(of.epoch)),
            ("seq", json!(of.seq)),
            ("phase", json!(of.phase)),
            ("snapshot", json!(of.snapshot)),
        ]
        .into_iter()
        .chain(contributions)
        .collect(),
    }
}

/// What was read.
struct Read {
    info: SnapshotInfo,
    slots: Vec<u64>,
    /// Of which it is merged.
    contributions: Vec<Contribution>,
}

/// None: there is no snapshot, or a newer one came in between.
fn slots_in_one_piece(
    asked: &Asked,
    store: SocketAddrV4,
    query: &StateQuery,
) -> Result<Option<Read>, String> {
    let (mut bytes, mut first) = (vec![], None);
    loop {
        let query = StateQuery { slots_from: Some(bytes.len()), ..query.clone() };
        let answer = ask(asked, store, &query)?;
        let Some(part) = answer.slots else { return Ok(None) };
        if *first.get_or_insert(part.snapshot) != part.snapshot {
            return Ok(None);
        }
        let more = from_hex(&part.bytes).unwrap_or_default();
        bytes.extend(&more);
        if bytes.len() >= part.snapshot.bytes || more.is_empty() {
            let slots = bytes.chunks(part.snapshot.slot_bytes.max(1));
            let number =
                |slot: &[u8]| slot.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
            let contributions = answer.records.into_iter().flat_map(|it| it.contributions);
            return Ok(Some(Read {
                info: part.snapshot,
                slots: slots.map(number).collect(),
                contributions: contributions.collect(),
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merged_snapshot_is_named_by_whose_it_is() {
        let info = SnapshotInfo { epoch: 7, seq: 21, slot_bytes: 4, bytes: 8 };
        assert_eq!(name(&info, &[]), "21 of epoch 7");
        let of = |switch: u32, merged| Contribution {
            switch,
            incarnation: Some(1),
            counting: true,
            epoch: 4 + switch,
            seq: 9,
            window: Some(u64::from(merged)),
            merged,
        };
        let two = "of switch 1 (9 of epoch 5) and switch 3 (9 of epoch 7)";
        assert_eq!(name(&info, &[of(1, true), of(3, true)]), two);
        let all = [of(1, true), of(2, false), of(3, true), of(4, false)];
        assert_eq!(name(&info, &all), format!("{two}, not of switch 2, 4"));
    }
}

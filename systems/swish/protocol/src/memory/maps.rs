//! The maps that `bpf/swish` declares, one by one.

use super::{Form, Map, Settings, Variable, listed};
use crate::eventual;
use crate::layouts::{
    self, BUCKETS, BlockValue, CELLS, COUNTED, CPUS, CpuValue, DUE, GROUPS, MEMBERS, SECRETS,
    SecretValue,
};
use crate::lww::{self, RECORD_HEAD_BYTES};
use crate::objects::{Consistency, SharedSettings, blocks, groups};
use crate::strong::{self, LOG, OBJECTS, TOMBS};
use c_layout::CStruct;

const WORD: u32 = 8;
const NUMBER: u32 = 4;

/// Bytes of a struct in a map.
const fn size<T: CStruct>() -> u32 {
    T::LAYOUT.bytes() as u32
}

fn map(name: &str, form: Form, value_bytes: u32, entries: u32) -> Map {
    let key_bytes = if form == Form::Queue { 0 } else { NUMBER };
    Map { name: name.into(), form, key_bytes, value_bytes, entries, shares: vec![] }
}

fn array(name: &str, value_bytes: u32, entries: u32) -> Map {
    map(name, Form::Array, value_bytes, entries)
}

fn per_cpu(name: &str, value_bytes: u32, entries: u32) -> Map {
    map(name, Form::PerCpu, value_bytes, entries)
}

/// An array whose entries are the variables'.
fn shared_out(name: &str, value_bytes: u32, shares: Vec<(usize, u32)>) -> Map {
    let entries = shares.iter().map(|(_, entries)| entries).sum();
    Map { shares, ..array(name, value_bytes, entries) }
}

/// All maps of a program with these variables.
pub(super) fn of(variables: &[Variable]) -> Vec<Map> {
    let numbered = || variables.iter().enumerate();
    let cells = |wanted: Consistency| -> Vec<(usize, &Variable, &SharedSettings)> {
        let found = numbered().filter_map(|(at, it)| match &it.settings {
            Settings::Cells(settings) if settings.consistency == wanted => Some((at, it, settings)),
            _ => None,
        });
        found.collect()
    };
    let (windows, eventual) = (cells(Consistency::Sdw), cells(Consistency::Ewo));
    let last = numbered().filter(|(_, it)| matches!(it.settings, Settings::Last(_)));
    let last: Vec<(usize, &Variable)> = last.collect();
    let strong = numbered().filter(|(_, it)| matches!(it.settings, Settings::Strong(_)));
    let strong: Vec<(usize, &Variable)> = strong.collect();
    let mut found = vec![];
    let is_eventual = !eventual.is_empty() || !last.is_empty();
    if !windows.is_empty() || is_eventual {
        found.push(per_cpu("sp_shared_stats", WORD, COUNTED.len() as u32));
        found.push(array("sp_shared_secrets", size::<SecretValue>(), 2 * GROUPS * SECRETS));
    }
    if !windows.is_empty() {
        found.extend(of_windows(&windows));
    }
    if is_eventual {
        found.extend(of_eventual(&eventual));
    }
    if !last.is_empty() {
        found.extend(of_last(&last));
    }
    if !strong.is_empty() {
        found.extend(of_strong(&strong));
        if !windows.is_empty() || is_eventual {
            found.push(array("sp_swish_programs", NUMBER, 1));
        }
    }
    found
}

/// `stateplane_shared.h` and its parts.
fn of_windows(variables: &[(usize, &Variable, &SharedSettings)]) -> Vec<Map> {
    let shares = |copies: u32| -> Vec<(usize, u32)> {
        variables.iter().map(|(at, it, _)| (*at, copies * blocks(it.size))).collect()
    };
    let described = groups(variables.iter().map(|(_, it, settings)| (it.size, *settings)));
    let messages = described.iter().map(|it| it.blocks).max().unwrap_or(1);
    let held = described.iter().map(|it| it.number + 1).max().unwrap_or(1);
    let room = described.iter().map(|it| it.members).max().unwrap_or(MEMBERS);
    let members = held * room;
    vec![
        shared_out("sp_shared_blocks", size::<BlockValue>(), shares(1)),
        shared_out("sp_shared_dirty_blocks", NUMBER, shares(2)),
        shared_out("sp_shared_locks", NUMBER, shares(1)),
        array("sp_shared_nodes", size::<layouts::NodeValue>(), GROUPS),
        array("sp_shared_cpus", size::<CpuValue>(), GROUPS * CPUS),
        array("sp_shared_members", size::<layouts::MemberValue>(), members),
        array("sp_shared_got", WORD, members * messages.div_ceil(64)),
        array("sp_shared_window_ns", WORD, GROUPS * BUCKETS),
        map("sp_shared_due", Form::Queue, size::<layouts::DueValue>(), DUE.max(2 * room)),
        per_cpu("sp_shared_scratch", CELLS * NUMBER + 2 * NUMBER, 1),
        array("sp_shared_programs", NUMBER, 1),
    ]
}

/// `stateplane_eventual.h` and its frames.
fn of_eventual(variables: &[(usize, &Variable, &SharedSettings)]) -> Vec<Map> {
    let settings = |it: &SharedSettings| it.eventual.map_or((1, 0), |it| (it.lanes, it.slots));
    let own = |it: &Variable, of: &SharedSettings| it.size.saturating_mul(settings(of).0);
    let slots = variables.iter().map(|(.., it)| settings(it).1).max().unwrap_or(0);
    let (columns, groups) = (eventual::columns(slots).max(1), GROUPS);
    let cells = variables.iter().map(|(at, it, of)| (*at, own(it, of)));
    let slotted = variables.iter().filter(|(.., of)| settings(of).1 > 0);
    let slotted = slotted.map(|(at, it, of)| (*at, own(it, of).saturating_mul(columns)));
    let mut cells = shared_out("sp_eventual_cells", size::<eventual::CellValue>(), cells.collect());
    let mut slots = shared_out("sp_eventual_slots", WORD, slotted.collect());
    // (An array has one element at the least.)
    cells.entries = cells.entries.max(1);
    slots.entries += 1;
    let listed = groups * listed(cells.entries);
    vec![
        cells,
        slots,
        array("sp_eventual_columns", WORD, groups * columns),
        array("sp_eventual_nodes", size::<eventual::NodeValue>(), groups),
        array("sp_eventual_ends", size::<eventual::EndsValue>(), groups),
        array("sp_eventual_list", WORD, listed),
        array("sp_eventual_members", size::<eventual::MemberValue>(), groups * MEMBERS),
        map("sp_eventual_due", Form::Queue, size::<eventual::DueValue>(), eventual::DUE),
        per_cpu("sp_eventual_scratch", CELLS * NUMBER, 1),
        array("sp_eventual_programs", NUMBER, 1),
    ]
}

/// `stateplane_lww.h` and its messages.
fn of_last(variables: &[(usize, &Variable)]) -> Vec<Map> {
    let words = variables.iter().find_map(|(_, it)| match &it.settings {
        Settings::Last(settings) => Some((settings.key_words, settings.value_words)),
        _ => None,
    });
    let (key, value) = words.unwrap_or((1, 1));
    let (key, value) = (key * WORD, value * WORD);
    let entry = lww::ENTRY_HEAD_BYTES + key + value;
    let shares: Vec<(usize, u32)> = variables.iter().map(|(at, it)| (*at, it.size)).collect();
    let records = shared_out("sp_lww_records", RECORD_HEAD_BYTES + key + value, shares.clone());
    let all = records.entries;
    let in_message = CELLS / 2 * WORD / entry;
    let index = Map {
        key_bytes: WORD + key,
        shares,
        ..map("sp_lww_index", Form::Hash, NUMBER, all + lww::SPARE)
    };
    let mut found = vec![
        records,
        index,
        array("sp_lww_counts", size::<lww::CountsValue>(), variables.len() as u32),
        array("sp_lww_nodes", size::<lww::NodeValue>(), GROUPS),
        array("sp_lww_terms", size::<lww::TermsValue>(), GROUPS),
        array("sp_lww_list", WORD, GROUPS * listed(all)),
        array("sp_lww_members", size::<lww::MemberValue>(), GROUPS * MEMBERS),
        // (How many writes a packet can note is not in the manifest: this is the most.)
        per_cpu("sp_lww_scratches", (1 + lww::WRITES) * entry + value, 1),
        per_cpu("sp_lww_cells", CELLS * NUMBER, 1),
        per_cpu("sp_lww_numbers", NUMBER, in_message),
    ];
    found.extend(variables.iter().map(|(at, it)| {
        // (A register's indexes are its places.)
        let entries = if it.key_bytes == 0 { 1 } else { it.size };
        let name = format!("{}_free", it.map);
        Map { shares: vec![(*at, entries)], ..map(&name, Form::Queue, NUMBER, entries) }
    }));
    found
}

/// `stateplane_strong.h` and its parts.
fn of_strong(variables: &[(usize, &Variable)]) -> Vec<Map> {
    let message = (strong::HEADER_WORDS + strong::WORDS) * WORD;
    let streams = MEMBERS * strong::CPUS;
    let mut found = vec![
        array("sp_strong_node", size::<strong::NodeValue>(), 1),
        array("sp_strong_views", size::<strong::ViewValue>(), 2),
        array("sp_strong_words", WORD, strong::NODE_WORDS),
        array("sp_strong_lives", size::<strong::LifeValue>(), MEMBERS),
        array("sp_strong_tables", size::<strong::TableValue>(), OBJECTS),
        array("sp_strong_log", message, LOG),
        array("sp_strong_streams", size::<strong::StreamValue>(), streams),
        array("sp_strong_tomb_list", 2 * NUMBER + WORD, TOMBS),
        array("sp_strong_ordered", 3 * WORD, 1),
        array("sp_strong_programs", NUMBER, strong::PROGRAMS),
        per_cpu("sp_strong_stats", WORD, strong::COUNTED.len() as u32),
        per_cpu("sp_strong_scratches", strong::SCRATCH_BYTES, 1),
        per_cpu("sp_strong_routes", 3 * WORD + 4 * NUMBER, MEMBERS),
    ];
    for (at, it) in variables {
        let entries = it.size.saturating_add(TOMBS);
        let (key, value) = strong_bytes(it);
        let own = |map: Map| Map { shares: vec![(*at, map.entries)], ..map };
        let index = Map { key_bytes: key, ..map(&it.map, Form::Hash, NUMBER, entries) };
        let head = 2 * NUMBER + WORD;
        found.push(own(index));
        found.push(own(array(&format!("{}_records", it.map), head + key + value, entries)));
        found.push(own(map(&format!("{}_free", it.map), Form::Queue, NUMBER, entries)));
    }
    found
}

/// Bytes of a key and of a value in a record with SRO: a register's key is its index; behind a
/// value may be its time.
pub(super) fn strong_bytes(variable: &Variable) -> (u32, u32) {
    let key = if variable.key_bytes == 0 { NUMBER } else { variable.key_bytes };
    let timed = matches!(variable.settings, Settings::Strong(true));
    let time = if timed { WORD } else { 0 };
    (key.next_multiple_of(WORD), variable.value_bytes.next_multiple_of(WORD) + time)
}

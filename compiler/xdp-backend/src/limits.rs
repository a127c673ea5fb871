//! What the kernel is too small for: found at compile time, with the P4 place.

use crate::const_entries::masks;
use crate::generator::Generator;
use crate::table::MAX_MASKS;
use crate::walk::{self, Visitor};
use manifest::TableKind;
use num_bigint::BigInt;
use p4_ir::{ExternId, ExternInstance, Location, Match, Statement, StatementKind, Table};
use std::collections::{BTreeMap, HashSet};

/// Bytes that one map may take: the kernel allocates most of them when the program is loaded.
const MAX_MAP_BYTES: u64 = 1 << 30;
/// Bookkeeping of the kernel's hash maps for each entry, about.
const HASH_ENTRY_BYTES: u64 = 48;

impl Generator<'_> {
    /// Maps that are too large, and objects that are used as they cannot be. After everything is
    /// declared.
    pub(crate) fn check_limits(&mut self) {
        self.check_map_sizes();
        self.check_map_count();
        self.check_initial_entries();
        self.check_direct_counters();
        self.with_systems(|generator, systems| {
            systems.iter().for_each(|system| system.check(generator))
        });
    }

    /// A direct counter belongs to one table, and counts in that table's actions only (v1model.p4).
    fn check_direct_counters(&mut self) {
        struct Counts<'a>(&'a [ExternInstance], Vec<(ExternId, Location)>);
        impl Visitor for Counts<'_> {
            fn statement(&mut self, statement: &Statement) {
                if let StatementKind::Extern { instance: Some(id), .. } = &statement.kind
                    && self.0[id.index()].extern_type == "direct_counter"
                {
                    self.1.push((*id, statement.location));
                }
            }
        }
        let program = self.program;
        let mut owners: BTreeMap<u32, &Table> = BTreeMap::new();
        for table in &program.tables {
            for (_, id) in &table.attached {
                let counter = &program.externs[id.index()];
                if let Some(first) =
                    owners.insert(id.0, table).filter(|_| counter.extern_type == "direct_counter")
                {
                    let message =
                        format!("direct_counter {} belongs to another table already", counter.name);
                    let note = (first.location, format!("it belongs to {}", first.name));
                    let help = Some("declare a direct counter for each table");
                    self.error_beside(table.location, &message, help, Some(note));
                }
            }
            let mut counts = Counts(&program.externs, Vec::new());
            for action in &table.actions {
                walk::block(&program.actions[action.action.index()].body, &mut counts);
            }
            for (id, location) in counts.1 {
                if !table.attached.iter().any(|(_, attached)| *attached == id) {
                    let (counter, table) = (&program.externs[id.index()].name, &table.name);
                    let message = format!(
                        "direct_counter {counter} counts in an action of {table}, another table"
                    );
                    self.error(
                        location,
                        &message,
                        Some("write `counters = …` in that table, or use a counter"),
                    );
                }
            }
        }
    }

    fn check_map_sizes(&mut self) {
        let program = self.program;
        let mut found: Vec<(Location, String, u64, u64)> = Vec::new();
        for (table, described) in program.tables.iter().zip(&self.manifest.tables) {
            let key_bytes = match &described.kind {
                TableKind::Exact { key_bytes, .. } | TableKind::Lpm { key_bytes, .. } => *key_bytes,
                TableKind::Ternary { key_bytes, .. } => key_bytes + 16,
                TableKind::Keyless | TableKind::Const => continue,
            };
            let entry = u64::from(key_bytes) + u64::from(described.value_bytes) + HASH_ENTRY_BYTES;
            found.push((
                table.location,
                format!("table {}", table.name),
                table.size.unwrap_or(described.size),
                entry,
            ));
        }
        for instance in &program.externs {
            let of_map = |map: &String| *map == instance.c_name;
            let manifest = &self.manifest;
            let size = if let Some(register) = manifest.registers.iter().find(|it| of_map(&it.map))
            {
                (register.size, u64::from(register.value_bytes).max(8))
            } else if let Some(counter) = manifest.counters.iter().find(|it| of_map(&it.map)) {
                (counter.size, 16)
            } else if let Some(object) = manifest.state_objects.iter().find(|it| of_map(&it.map)) {
                (object.capacity, object.entry_bytes() + HASH_ENTRY_BYTES)
            } else {
                continue;
            };
            found.push((
                instance.location,
                format!("{} {}", instance.extern_type, instance.name),
                u64::from(size.0),
                size.1,
            ));
        }
        for (location, name, size, entry) in found {
            let bytes = u128::from(size) * u128::from(entry);
            if bytes > u128::from(MAX_MAP_BYTES) {
                let message = format!(
                    "{name}: {size} elements of about {entry} bytes are {} MiB; a map may have 1024",
                    bytes >> 20
                );
                let help = format!("at most {} elements fit", MAX_MAP_BYTES / entry);
                self.error(location, &message, Some(&help));
            }
        }
    }

    /// Entries that the program brings, and the control plane may change, must fit into the table.
    fn check_initial_entries(&mut self) {
        let program = self.program;
        for (index, table) in
            program.tables.iter().enumerate().filter(|(_, table)| !table.const_entries)
        {
            let Some(described) = self.manifest.tables.get(index) else { continue };
            let (size, ternary) =
                (described.size, matches!(described.kind, TableKind::Ternary { .. }));
            let mut entries: HashSet<Vec<(BigInt, BigInt)>> = HashSet::new();
            let mut different: HashSet<Vec<BigInt>> = HashSet::new();
            for entry in &table.entries {
                let masks = masks(table, entry);
                let value = |(matched, mask): (&Match, &BigInt)| match matched {
                    Match::Value(value) | Match::Mask { value, .. } => (value & mask, mask.clone()),
                    _ => (BigInt::from(0), mask.clone()),
                };
                entries.insert(entry.matches.iter().zip(&masks).map(value).collect());
                different.insert(masks);
                if entries.len() as u64 > size {
                    let message = format!(
                        "table {}: this entry is one too many: the table has size {size}",
                        table.name
                    );
                    self.error(
                        entry.location,
                        &message,
                        Some("write a larger `size` in the table"),
                    );
                    break;
                }
                if ternary && different.len() > MAX_MASKS as usize {
                    let message = format!(
                        "table {}: its entries have more than {MAX_MASKS} different masks, the most that it can have",
                        table.name
                    );
                    self.error(
                        entry.location,
                        &message,
                        Some("use fewer masks, or `const entries`"),
                    );
                    break;
                }
            }
        }
    }
}

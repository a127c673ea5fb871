//! The kernel gives a program 64 maps: found at compile time, with the object that is one too many.

use crate::generator::Generator;
use crate::walk::{self, Visitor};
use manifest::TableKind;
use p4_ir::{ExternId, Location, Statement, StatementKind, TableId};
use std::collections::BTreeSet;

/// Maps that the kernel lets one program use.
const MAX_MAPS: usize = 64;
/// Of these, what the runtime takes: ports (3), addresses (2), the test's, constants, variables.
const RUNTIME_MAPS: usize = 8;

/// Tables and objects that the program uses.
#[derive(Default)]
struct Used {
    tables: BTreeSet<u32>,
    externs: BTreeSet<u32>,
}

impl Visitor for Used {
    fn statement(&mut self, statement: &Statement) {
        match &statement.kind {
            StatementKind::Apply { table: TableId(id), .. } => self.tables.extend([*id]),
            StatementKind::Extern { instance: Some(ExternId(id)), .. } => {
                self.externs.extend([*id])
            }
            _ => {}
        }
    }
}

impl Generator<'_> {
    /// Too many maps. Programs with objects in the store need more for the runtime; what that comes
    /// to is the verifier's word.
    pub(crate) fn check_map_count(&mut self) {
        let mut used = Used::default();
        walk::program(self.program, &mut used);
        let mut maps: Vec<(Location, String, usize)> = Vec::new();
        for id in used.tables {
            let (table, described) =
                (&self.program.tables[id as usize], &self.manifest.tables[id as usize]);
            let of_entries = match described.kind {
                TableKind::Keyless | TableKind::Const => 0,
                TableKind::Exact { .. } | TableKind::Lpm { .. } => 1,
                TableKind::Ternary { .. } => 2,
            };
            let count = of_entries + usize::from(described.default_map.is_some());
            maps.push((table.location, format!("table {}", table.name), count));
        }
        for id in used.externs {
            let instance = &self.program.externs[id as usize];
            let count = match self.registry.owner(&instance.extern_type) {
                Some(system) => self.systems[system].map_count(instance),
                None => usize::from(instance.extern_type != "direct_counter"),
            };
            maps.push((
                instance.location,
                format!("{} {}", instance.extern_type, instance.name),
                count,
            ));
        }
        maps.sort_by_key(|(location, ..)| (location.file, location.line, location.column));
        let total: usize = maps.iter().map(|(_, _, count)| count).sum();
        let most = MAX_MAPS - RUNTIME_MAPS;
        if total <= most {
            return;
        }
        let mut sum = 0;
        let over = maps.iter().find(|(_, _, count)| {
            sum += count;
            sum > most
        });
        let Some((location, name, _)) = over.cloned() else { return };
        let message = format!(
            "{name} is one too many: the tables and objects of the program need {total} maps, and the kernel gives a \
             program {MAX_MAPS}, of which {RUNTIME_MAPS} are the runtime's"
        );
        let help = "join some, or give small tables const entries and const default actions, which need no map (a \
                    ternary table, and a default action that can be changed, take one map more each)";
        self.error(location, &message, Some(help));
    }
}

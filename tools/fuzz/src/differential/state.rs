//! What stays in registers and counters, on all sides.

use super::lowering;
use super::run::{Finding, Pair, internal, wrong};
use p4_ir::{ExternId, TableId};

impl Pair<'_> {
    /// Registers and counters; how many elements.
    pub(super) fn state(&self) -> Result<u64, Finding> {
        if let Some(tree) = &self.written {
            let same = lowering::state(self.loaded.program, &self.reference, tree);
            same.or_else(|story| wrong("front end", format!("{story}\n{}", self.told())))?;
        }
        let mut elements = 0;
        for (index, instance) in (0..).zip(&self.loaded.program.externs) {
            let id = ExternId(index);
            elements += self.register(id, &instance.name)? + self.counter(id, &instance.name)?;
        }
        for (index, table) in (0..).zip(&self.loaded.program.tables) {
            elements += self.direct_counter(TableId(index), table)?;
        }
        Ok(elements)
    }

    fn register(&self, id: ExternId, name: &str) -> Result<u64, Finding> {
        let Some(values) = self.reference.register(id) else { return Ok(0) };
        let register = self.loaded.dataplane.register(name).map_err(|error| internal(&error))?;
        for (index, expected) in (0..).zip(&values) {
            let found = self
                .loaded
                .dataplane
                .read_register(register, index)
                .map_err(|error| internal(&error))?;
            if found != *expected {
                let what =
                    format!("register {name}[{index}]: expected {expected:#x}, found {found:#x}");
                return wrong("register", format!("{what}\n{}", self.told()));
            }
        }
        Ok(values.len() as u64)
    }

    fn counter(&self, id: ExternId, name: &str) -> Result<u64, Finding> {
        let Some(counts) = self.reference.counter(id) else { return Ok(0) };
        let counter = self.loaded.dataplane.counter(name).map_err(|error| internal(&error))?;
        for (index, expected) in (0..).zip(counts) {
            let found = self
                .loaded
                .dataplane
                .read_counter(counter, index)
                .map_err(|error| internal(&error))?;
            if (found.packets, found.bytes) != (expected.packets, expected.bytes) {
                let what =
                    format!("counter {name}[{index}]: expected {expected:?}, found {found:?}");
                return wrong("counter", format!("{what}\n{}", self.told()));
            }
        }
        Ok(counts.len() as u64)
    }

    /// Counts of a table's entries, as a heap: which entry of the kernel is which of the
    /// interpreter's is not known.
    fn direct_counter(&self, id: TableId, table: &p4_ir::Table) -> Result<u64, Finding> {
        let is_counter = |one: &(String, ExternId)| {
            self.loaded.program.externs[one.1.index()].extern_type == "direct_counter"
        };
        if !table.attached.iter().any(is_counter) {
            return Ok(0);
        }
        let handle = self.loaded.dataplane.table(&table.name).map_err(|error| internal(&error))?;
        let listed = handle.list().map_err(|error| internal(&error))?;
        let (_, default) = handle.default_action().map_err(|error| internal(&error))?;
        let (entries, missed) = self.reference.direct_counters(id);
        let pair = |count: &p4_interpreter::Count| (count.packets, count.bytes);
        let sorted = |counts: &mut dyn Iterator<Item = (u64, u64)>| {
            let mut counts: Vec<(u64, u64)> = counts.filter(|count| count.0 > 0).collect();
            counts.sort_unstable();
            counts
        };
        let expected = (sorted(&mut entries.iter().map(pair)), pair(&missed));
        let found =
            (sorted(&mut listed.iter().filter_map(|one| one.counter)), default.unwrap_or_default());
        if found != expected {
            let what =
                format!("direct counter of {}: expected {expected:?}, found {found:?}", table.name);
            return wrong("counter", format!("{what}\n{}", self.told()));
        }
        Ok(entries.len() as u64 + 1)
    }
}

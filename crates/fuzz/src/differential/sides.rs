//! Those that run a program: the tree as it was checked, the form that it was lowered to, the kernel.

use super::traffic::NOW_US;
use dataplane::{Dataplane, Write};
use num_bigint::BigInt;
use p4_interpreter::{Count, Interpreter, KeyMatch, RuntimeEntry, Stop, Tree, Verdict};
use p4_ir::{ExternId, Program, TableId};

/// An entry that a table gets while it runs.
#[derive(Clone, Debug)]
pub(super) struct NewEntry {
    /// Index into the program's tables.
    pub table: usize,
    pub name: String,
    /// One a key: value, mask, width in bits.
    pub matches: Vec<(u128, u128, u32)>,
    /// Larger wins.
    pub priority: u32,
    /// Index into the table's actions.
    pub action: usize,
    pub arguments: Vec<u128>,
}

impl NewEntry {
    fn reference(&self) -> RuntimeEntry {
        let matches = self
            .matches
            .iter()
            .map(|(value, mask, _)| KeyMatch { value: BigInt::from(*value), mask: BigInt::from(*mask) })
            .collect();
        let arguments = self.arguments.iter().copied().map(BigInt::from).collect();
        RuntimeEntry::new(matches, self.priority, p4_ir::ActionCall { action: self.action as u32, arguments })
    }
}

/// Packets and bytes of counts: those of a table's entries, as a heap, and those of its default action.
type Counts = (Vec<(u64, u64)>, (u64, u64));

/// One that runs a program.
pub(super) trait Side {
    fn run(&mut self, port: u32, frame: &[u8]) -> Result<Verdict, Stop>;
    /// Whether the entry is there now.
    fn add(&mut self, entry: &NewEntry) -> bool;
    /// The elements of a register.
    fn register(&self, name: &str) -> Result<Option<Vec<u128>>, String>;
    /// The elements of a counter: packets, bytes.
    fn counter(&self, name: &str) -> Result<Option<Vec<(u64, u64)>>, String>;
    /// Whether it may drop what should leave.
    fn may_drop(&self, _expected: &Verdict) -> bool {
        false
    }
    /// Of a table with a direct counter. Which entry of one side is which of another's is not known.
    fn direct(&self, table: &str) -> Result<Counts, String>;
}

fn pair(count: &Count) -> (u64, u64) {
    (count.packets, count.bytes)
}

fn heap(counts: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut counts: Vec<(u64, u64)> = counts.filter(|count| count.0 > 0).collect();
    counts.sort_unstable();
    counts
}

impl Side for Tree<'_> {
    fn run(&mut self, port: u32, frame: &[u8]) -> Result<Verdict, Stop> {
        Tree::run(self, frame, port, NOW_US)
    }

    fn add(&mut self, entry: &NewEntry) -> bool {
        self.add_entry(&entry.name, entry.reference()).is_ok()
    }

    fn register(&self, name: &str) -> Result<Option<Vec<u128>>, String> {
        Ok(Tree::register(self, name))
    }

    fn counter(&self, name: &str) -> Result<Option<Vec<(u64, u64)>>, String> {
        Ok(Tree::counter(self, name).map(|counts| counts.iter().map(pair).collect()))
    }

    fn direct(&self, table: &str) -> Result<Counts, String> {
        let (entries, missed) = self.direct_counters(table);
        Ok((heap(entries.iter().map(pair)), pair(&missed)))
    }
}

/// The lowered program, interpreted.
pub(super) struct Lowered<'p> {
    pub program: &'p Program,
    pub interpreter: Interpreter<'p>,
}

impl Lowered<'_> {
    fn instance(&self, name: &str) -> ExternId {
        let found = self.program.externs.iter().position(|instance| instance.name == name);
        ExternId(found.unwrap_or(usize::MAX >> 33) as u32)
    }
}

impl Side for Lowered<'_> {
    fn run(&mut self, port: u32, frame: &[u8]) -> Result<Verdict, Stop> {
        self.interpreter.run(frame, port, NOW_US)
    }

    fn add(&mut self, entry: &NewEntry) -> bool {
        self.interpreter.add_entry(TableId(entry.table as u32), entry.reference());
        true
    }

    fn register(&self, name: &str) -> Result<Option<Vec<u128>>, String> {
        Ok(self.interpreter.register(self.instance(name)))
    }

    fn counter(&self, name: &str) -> Result<Option<Vec<(u64, u64)>>, String> {
        let counts = self.interpreter.counter(self.instance(name));
        Ok(counts.map(|counts| counts.iter().map(pair).collect()))
    }

    fn direct(&self, table: &str) -> Result<Counts, String> {
        let found = self.program.tables.iter().position(|known| known.name == table);
        let Some(index) = found else { return Err(format!("no table {table}")) };
        let (entries, missed) = self.interpreter.direct_counters(TableId(index as u32));
        Ok((heap(entries.iter().map(pair)), pair(&missed)))
    }
}

/// The compiled program.
pub(super) struct Kernel {
    pub dataplane: Dataplane,
}

fn told<T>(result: dataplane::Result<T>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

impl Side for Kernel {
    fn run(&mut self, port: u32, frame: &[u8]) -> Result<Verdict, Stop> {
        match self.dataplane.run(frame, port, NOW_US * 1000) {
            Ok(outcome) => Ok(match outcome.verdict {
                dataplane::Verdict::Drop => Verdict::Drop,
                dataplane::Verdict::ToHost => Verdict::ToHost,
                dataplane::Verdict::Forward { port } => Verdict::Forward { port, frame: outcome.frame },
            }),
            Err(error) => Err(Stop::Broken(error.to_string())),
        }
    }

    fn add(&mut self, entry: &NewEntry) -> bool {
        let matches = entry
            .matches
            .iter()
            .map(|(value, mask, width)| dataplane::Match::from_mask(*value, *mask, *width))
            .collect();
        let action = dataplane::ActionCall { action: entry.action, arguments: entry.arguments.clone() };
        let entry_here = dataplane::Entry { matches, priority: entry.priority, action };
        self.dataplane.table(&entry.name).is_ok_and(|table| table.write(&entry_here, Write::Add).is_ok())
    }

    fn may_drop(&self, expected: &Verdict) -> bool {
        // The kernel takes no frame shorter than an Ethernet header (docs/p4-support.md).
        matches!(expected, Verdict::Forward { frame, .. } if frame.len() < 14)
    }

    fn register(&self, name: &str) -> Result<Option<Vec<u128>>, String> {
        let register = told(self.dataplane.register(name))?;
        let read = |index| told(self.dataplane.read_register(register, index));
        (0..register.size).map(read).collect::<Result<_, _>>().map(Some)
    }

    fn counter(&self, name: &str) -> Result<Option<Vec<(u64, u64)>>, String> {
        let counter = told(self.dataplane.counter(name))?;
        let read = |index| told(self.dataplane.read_counter(counter, index)).map(|count| (count.packets, count.bytes));
        (0..counter.size).map(read).collect::<Result<_, _>>().map(Some)
    }

    fn direct(&self, table: &str) -> Result<Counts, String> {
        let handle = told(self.dataplane.table(table))?;
        let listed = told(handle.list())?;
        let (_, default) = told(handle.default_action())?;
        Ok((heap(listed.iter().filter_map(|one| one.counter)), default.unwrap_or_default()))
    }
}

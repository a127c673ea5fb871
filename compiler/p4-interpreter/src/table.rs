//! Tables (P4-16 §14.2).

use crate::parser::matches_value;
use crate::value::{pattern, width};
use crate::{Interpreter, Interrupt, Run, Stop, broken};
use num_bigint::BigInt;
use num_traits::{ToPrimitive, Zero};
use p4_ir::match_kind::is_ranked;
use p4_ir::{ActionCall, Match, Table, TableId, VariableId};

/// How an entry of the control plane matches one key: bits, not negative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyMatch {
    /// Compared where the mask has ones.
    pub value: BigInt,
    /// Ones where compared.
    pub mask: BigInt,
}

/// An entry of a table.
#[derive(Clone, Debug)]
pub struct RuntimeEntry {
    /// From the source, one a key; used if not empty.
    source: Vec<Match>,
    /// From the control plane, one a key.
    matches: Vec<KeyMatch>,
    priority: i128,
    action: ActionCall,
}

impl RuntimeEntry {
    /// An entry of the control plane. Priorities are those of tables with ternary keys.
    pub fn new(matches: Vec<KeyMatch>, priority: u32, action: ActionCall) -> RuntimeEntry {
        RuntimeEntry { source: Vec::new(), matches, priority: i128::from(priority), action }
    }

    /// Does it stand in the program?
    pub(crate) fn is_of_the_source(&self) -> bool {
        !self.source.is_empty()
    }

    /// What it matches, its priority, and what it runs.
    pub(crate) fn parts(&self) -> (&[KeyMatch], i128, &ActionCall) {
        (&self.matches, self.priority, &self.action)
    }

    fn fits(&self, keys: &[Option<BigInt>], widths: &[u32]) -> Run<bool> {
        for ((key, width), matched) in keys.iter().zip(widths).zip(&self.source) {
            if !matches_value(matched, key.as_ref(), *width)? {
                return Ok(false);
            }
        }
        for ((key, width), matched) in keys.iter().zip(widths).zip(&self.matches) {
            let Some(key) = key else {
                // Spec §8.25: it matches where no bit is compared.
                if matched.mask.is_zero() {
                    continue;
                }
                return crate::undefined("a key that was never written");
            };
            if (pattern(key, *width) & &matched.mask) != (&matched.value & &matched.mask) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Ones in the mask of the key at `index`, of `width` bits.
    fn prefix(&self, index: usize, width: u32) -> u32 {
        let ones =
            |mask: &BigInt| pattern(mask, width).iter_u64_digits().map(u64::count_ones).sum();
        match (self.source.get(index), self.matches.get(index)) {
            (Some(Match::Any), _) => 0,
            (Some(Match::Mask { mask, .. }), _) => ones(mask),
            (Some(_), _) => width,
            (None, Some(matched)) => ones(&matched.mask),
            (None, None) => 0,
        }
    }
}

/// The entries in the program. A larger priority wins; those without are in the order of the
/// source.
pub(crate) fn source_entries(table: &Table) -> Result<Vec<RuntimeEntry>, Stop> {
    let count = table.entries.len() as i128;
    Ok((0..count)
        .zip(&table.entries)
        .map(|(index, entry)| {
            let priority =
                entry.priority.as_ref().and_then(BigInt::to_i128).unwrap_or(count - index);
            RuntimeEntry {
                source: entry.matches.clone(),
                matches: Vec::new(),
                priority,
                action: entry.action.clone(),
            }
        })
        .collect())
}

impl Interpreter<'_> {
    pub(crate) fn apply(
        &mut self,
        id: TableId,
        hit: Option<VariableId>,
        action_run: Option<VariableId>,
    ) -> Run<()> {
        let program = self.program;
        let table = &program.tables[id.index()];
        let keys = table.keys.iter().map(|key| self.known(&key.expr));
        let keys = keys.collect::<Run<Vec<Option<BigInt>>>>()?;
        let widths: Vec<u32> =
            table.keys.iter().map(|key| width(&key.expr.ty).unwrap_or(0)).collect();
        let bits =
            keys.iter().zip(&widths).map(|(key, width)| Some(pattern(key.as_ref()?, *width)));
        if let Some(bits) = bits.collect::<Option<Vec<BigInt>>>() {
            self.see(id, &bits);
        }
        let found = self.lookup(id, &keys, &widths)?;
        if let Some(hit) = hit {
            self.set_variable(hit, BigInt::from(u8::from(found.is_some())));
        }
        let call = found
            .and_then(|index| self.entries[id.index()].get(index))
            .map(|entry| entry.action.clone());
        let call = call.unwrap_or_else(|| self.defaults[id.index()].clone());
        if let Some(run) = action_run {
            self.set_variable(run, BigInt::from(call.action));
        }
        let Some(listed) = table.actions.get(call.action as usize) else {
            return broken("no such action");
        };
        let action = &program.actions[listed.action.index()];
        for (variable, argument) in action.parameters.iter().zip(&call.arguments) {
            let ty = &program.variables[variable.index()].ty;
            self.set_variable(*variable, crate::value::wrap(argument, ty));
        }
        let outer = self.packet.matched.replace((id, found));
        if found.is_some() && self.counts_by_itself(table) {
            self.count_direct();
        }
        let result = self.block(&action.body);
        self.packet.matched = outer;
        match result {
            Err(Interrupt::Return) => Ok(()),
            other => other,
        }
    }

    /// The best entry: the longest prefix if a table has an lpm key and none with priorities, else
    /// the highest priority.
    fn lookup(&self, id: TableId, keys: &[Option<BigInt>], widths: &[u32]) -> Run<Option<usize>> {
        if keys.is_empty() {
            return Ok(None);
        }
        let table = &self.program.tables[id.index()];
        let priorities = table.keys.iter().any(|key| is_ranked(&key.match_kind));
        let lpm = table.keys.iter().position(|key| key.match_kind == "lpm");
        let lpm = lpm.filter(|_| !priorities);
        let mut best: Option<(i128, usize)> = None;
        for (index, entry) in self.entries[id.index()].iter().enumerate() {
            if !entry.fits(keys, widths)? {
                continue;
            }
            let rank = match lpm {
                Some(key) => i128::from(entry.prefix(key, widths[key])),
                None if table.smallest_priority_wins => -entry.priority,
                None => entry.priority,
            };
            if best.is_none_or(|(known, _)| rank > known) {
                best = Some((rank, index));
            }
        }
        Ok(best.map(|(_, index)| index))
    }

    /// v1model: a table with a direct counter whose actions do not call `count` counts every match.
    fn counts_by_itself(&self, table: &Table) -> bool {
        fn calls(block: &[p4_ir::Statement], counter: p4_ir::ExternId) -> bool {
            use p4_ir::StatementKind::{Block, Extern, If, Switch};
            block.iter().any(|statement| match &statement.kind {
                Extern { instance, .. } => *instance == Some(counter),
                If { then, otherwise, .. } => calls(then, counter) || calls(otherwise, counter),
                Switch { cases, default, .. } => {
                    calls(default, counter) || cases.iter().any(|(_, body)| calls(body, counter))
                }
                Block { body, .. } => calls(body, counter),
                _ => false,
            })
        }
        let is_counter =
            |id: &p4_ir::ExternId| self.program.externs[id.index()].extern_type == "direct_counter";
        let Some((_, counter)) = table.attached.iter().find(|(_, id)| is_counter(id)) else {
            return false;
        };
        !table
            .actions
            .iter()
            .any(|action| calls(&self.program.actions[action.action.index()].body, *counter))
    }

    pub(crate) fn count_direct(&mut self) {
        if let Some(matched) = self.packet.matched {
            let count = self.direct.entry(matched).or_default();
            count.packets += 1;
            count.bytes += self.packet.bytes.len() as u64;
        }
    }
}

/// A mask that compares nothing or everything, for who makes entries.
impl KeyMatch {
    /// All bits equal.
    pub fn exact(value: BigInt, width: u32) -> KeyMatch {
        KeyMatch { value, mask: (BigInt::from(1) << width) - 1 }
    }

    /// Everything.
    pub fn any() -> KeyMatch {
        KeyMatch { value: BigInt::zero(), mask: BigInt::zero() }
    }
}

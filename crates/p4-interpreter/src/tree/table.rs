//! Tables (P4-16 §14.2).

use super::{Object, Run, Tree, broken};
use crate::{Count, KeyMatch, RuntimeEntry, Stop};
use num_bigint::BigInt;
use num_traits::{One, ToPrimitive};
use p4_check::hir::{ApplyPart, Block, Callee, Expr, ExprKind, Match, StmtKind, TableDef, TableDefId};
use p4_check::{names, walk};
use std::collections::BTreeSet;

use super::value::{Value, bits};

/// Keys remembered for a table.
const MAX_SEEN: usize = 64;

/// A table's entries as the control plane has made them.
pub(crate) struct TableState {
    name: String,
    entries: Vec<Entry>,
    default: (usize, Vec<BigInt>),
    /// Index of the action that a table without `default_action` runs on a miss, if the list does not have NoAction.
    no_action: usize,
    counts: Vec<Count>,
    default_count: Count,
    seen: Vec<Vec<BigInt>>,
    /// It has a direct counter, and no action counts by itself.
    counts_by_itself: bool,
}

struct Entry {
    sets: Vec<Set>,
    /// Larger wins.
    priority: i128,
    action: (usize, Vec<BigInt>),
}

enum Set {
    Any,
    Mask { value: BigInt, mask: BigInt },
    Range { low: BigInt, high: BigInt },
}

/// The tables that a control applies.
pub(crate) fn applied(block: &Block) -> BTreeSet<TableDefId> {
    fn switches(block: &Block, found: &mut BTreeSet<TableDefId>) {
        for s in block {
            match &s.kind {
                StmtKind::If(_, a, b) => {
                    switches(a, found);
                    switches(b, found);
                }
                StmtKind::Block(b, _) => switches(b, found),
                StmtKind::Switch { cases, default, .. } => {
                    cases.iter().for_each(|(_, b)| switches(b, found));
                    switches(default, found);
                }
                StmtKind::ActionSwitch { table, cases, default } => {
                    found.insert(*table);
                    cases.iter().for_each(|(_, b)| switches(b, found));
                    switches(default, found);
                }
                _ => {}
            }
        }
    }
    let mut found = BTreeSet::new();
    walk::block(block, &mut |e| {
        if let ExprKind::Apply(table, _) = &e.kind {
            found.insert(*table);
        }
    });
    switches(block, &mut found);
    found
}

impl<'h> Tree<'h> {
    fn table_def(&self, id: TableDefId) -> Run<&'h TableDef> {
        let hir = self.hir;
        hir.tables.get(id.index()).and_then(Option::as_ref).map_or_else(|| broken("no such table"), Ok)
    }

    pub(crate) fn make_table(&mut self, instance: usize, id: TableDefId) -> Run<()> {
        let def = self.table_def(id)?;
        let name = names::control_plane(&self.instances[instance].prefix, &def.name, &def.annotations);
        let no_action = def.actions.len();
        let default = match &def.default_action {
            Some(call) => (call.index, self.numbers(&call.args)?),
            None => {
                let listed = def.actions.iter().position(|a| Some(a.action) == self.hir.no_action);
                (listed.unwrap_or(no_action), Vec::new())
            }
        };
        let mut entries = Vec::new();
        let mut before: Option<BigInt> = None;
        let delta = def.priority_delta.clone().unwrap_or_else(BigInt::one);
        for (index, e) in def.entries.iter().enumerate() {
            let mut sets = Vec::new();
            for (m, key) in e.matches.iter().zip(&def.keys) {
                sets.push(self.set(m, &key.expr)?);
            }
            // §14.2.1.4: what is not written follows from the entry before.
            let number = match (&e.priority, &before) {
                (Some(p), _) => self.number(p)?,
                (None, Some(before)) if def.largest_priority_wins => before - &delta,
                (None, Some(before)) => before + &delta,
                (None, None) if def.largest_priority_wins => 1 + &delta * BigInt::from(def.entries.len() - 1),
                (None, None) => BigInt::one(),
            };
            before = Some(number.clone());
            let number = number.to_i128().unwrap_or(0);
            let priority = match (def.const_entries, def.largest_priority_wins) {
                (true, _) => -(index as i128),
                (false, true) => number,
                (false, false) => i128::from(u32::MAX) - number,
            };
            entries.push(Entry { sets, priority, action: (e.action.index, self.numbers(&e.action.args)?) });
        }
        let counts = vec![Count::default(); entries.len()];
        let counts_by_itself = self.counts_by_itself(def);
        self.tables.push(TableState {
            name,
            entries,
            default,
            no_action,
            counts,
            default_count: Count::default(),
            seen: Vec::new(),
            counts_by_itself,
        });
        self.table_ids.insert((instance, id), self.tables.len() - 1);
        Ok(())
    }

    fn numbers(&mut self, list: &[Expr]) -> Run<Vec<BigInt>> {
        list.iter().map(|e| self.number(e)).collect()
    }

    fn set(&mut self, m: &Match, key: &Expr) -> Run<Set> {
        let (width, _) = self.scalar(&key.ty).unwrap_or((0, false));
        let all = (BigInt::one() << width) - 1;
        Ok(match m {
            Match::Any => Set::Any,
            Match::Value(e) => Set::Mask { value: bits(&self.number(e)?, width), mask: all },
            Match::Mask(v, m) => {
                let mask = bits(&self.number(m)?, width);
                Set::Mask { value: bits(&self.number(v)?, width) & &mask, mask }
            }
            Match::Range(low, high) => Set::Range { low: self.number(low)?, high: self.number(high)? },
            Match::ValueSet(_) => return super::unsupported("value sets"),
        })
    }

    /// v1model: a direct counter counts every match, unless the table's actions call `count`.
    fn counts_by_itself(&self, def: &TableDef) -> bool {
        let Some(counter) = def.attached.iter().find_map(|(_, e)| match (&e.kind, self.object(e)) {
            (ExprKind::Local(id), Ok(Object::Extern(x))) if self.externs[x].kind == "direct_counter" => Some(*id),
            _ => None,
        }) else {
            return false;
        };
        let mut called = false;
        for a in &def.actions {
            walk::block(&self.hir.actions[a.action.index()].body, &mut |e| {
                if let ExprKind::Call(c) = &e.kind
                    && let Callee::Method(object, _) = &c.callee
                {
                    called |= matches!(object.kind, ExprKind::Local(id) if id == counter);
                }
            });
        }
        !called
    }

    pub(crate) fn apply_part(&mut self, id: TableDefId, part: ApplyPart) -> Run<Value> {
        let (hit, ran) = self.apply_table(id)?;
        let number = |yes: bool| Value::Number(BigInt::from(u8::from(yes)));
        Ok(match part {
            ApplyPart::Hit => number(hit),
            ApplyPart::Miss => number(!hit),
            ApplyPart::ActionRun => Value::Number(BigInt::from(ran)),
            ApplyPart::All => Value::Undefined,
        })
    }

    /// Looks up and runs; whether an entry matched, and the action that ran, by its place in the list.
    pub(crate) fn apply_table(&mut self, id: TableDefId) -> Run<(bool, usize)> {
        let def = self.table_def(id)?;
        let Some(at) = self.table_ids.get(&(self.current, id)).copied() else { return broken("a table not made") };
        let mut keys = Vec::new();
        for key in &def.keys {
            keys.push(self.number(&key.expr)?);
        }
        let widths: Vec<u32> = def.keys.iter().map(|k| self.scalar(&k.expr.ty).map_or(0, |(w, _)| w)).collect();
        let patterns: Vec<BigInt> = keys.iter().zip(&widths).map(|(key, width)| bits(key, *width)).collect();
        let state = &mut self.tables[at];
        if state.seen.len() < MAX_SEEN && !state.seen.contains(&patterns) {
            state.seen.push(patterns.clone());
        }
        let ranked = def.keys.iter().any(|k| matches!(&*k.match_kind, "ternary" | "range" | "optional"));
        let lpm = def.keys.iter().position(|k| &*k.match_kind == "lpm").filter(|_| !ranked);
        let mut best: Option<(i128, usize)> = None;
        for (index, entry) in state.entries.iter().enumerate() {
            let fits = entry.sets.iter().zip(&keys).zip(&patterns).all(|((set, key), pattern)| match set {
                Set::Any => true,
                Set::Mask { value, mask } => (pattern & mask) == *value,
                Set::Range { low, high } => low <= key && key <= high,
            });
            if !fits || keys.is_empty() {
                continue;
            }
            let rank = match lpm.and_then(|key| entry.sets.get(key)) {
                Some(Set::Mask { mask, .. }) => {
                    mask.iter_u64_digits().map(|digit| i128::from(digit.count_ones())).sum()
                }
                Some(_) => 0,
                None => entry.priority,
            };
            if best.is_none_or(|(known, _)| rank > known) {
                best = Some((rank, index));
            }
        }
        let found = best.map(|(_, index)| index);
        let (action, data) = match found.and_then(|index| state.entries.get(index)) {
            Some(entry) => entry.action.clone(),
            None => state.default.clone(),
        };
        let by_itself = state.counts_by_itself && found.is_some();
        if action == state.no_action {
            return Ok((found.is_some(), action));
        }
        let outer = self.packet.matched.replace((at, found));
        if by_itself {
            self.count_direct();
        }
        let Some(listed) = def.actions.get(action) else { return broken("no such action") };
        let result = self.run_action(listed.action, (&listed.bound, &listed.order), &data);
        self.packet.matched = outer;
        result?;
        Ok((found.is_some(), action))
    }

    pub(crate) fn count_direct(&mut self) {
        let bytes = self.packet.bytes.len() as u64;
        let Some((table, entry)) = self.packet.matched else { return };
        let state = &mut self.tables[table];
        let count = match entry {
            Some(index) => &mut state.counts[index],
            None => &mut state.default_count,
        };
        count.packets += 1;
        count.bytes += bytes;
    }

    fn named(&mut self, table: &str) -> Result<&mut TableState, Stop> {
        let found = self.tables.iter_mut().find(|known| known.name == table);
        found.ok_or_else(|| Stop::Broken(format!("no table {table}")))
    }

    /// Adds an entry to a table that can be changed; it names the action by its place in the list.
    pub fn add_entry(&mut self, table: &str, entry: &RuntimeEntry) -> Result<(), Stop> {
        let set = |m: &KeyMatch| Set::Mask { value: &m.value & &m.mask, mask: m.mask.clone() };
        let (matches, priority, call) = entry.parts();
        let entry = Entry {
            sets: matches.iter().map(set).collect(),
            priority,
            action: (call.action as usize, call.arguments.clone()),
        };
        let state = self.named(table)?;
        state.entries.push(entry);
        state.counts.push(Count::default());
        Ok(())
    }

    /// Changes a table's default action.
    pub fn set_default(&mut self, table: &str, call: &p4_ir::ActionCall) -> Result<(), Stop> {
        self.named(table)?.default = (call.action as usize, call.arguments.clone());
        Ok(())
    }

    /// What a table's direct counter has counted: for the entries, in order, and for the default action.
    pub fn direct_counters(&self, table: &str) -> (Vec<Count>, Count) {
        let found = self.tables.iter().find(|known| known.name == table);
        found.map_or_else(Default::default, |state| (state.counts.clone(), state.default_count))
    }

    /// The keys, as bits, that a table was looked up with: the first few different ones.
    pub fn keys_seen(&self, table: &str) -> &[Vec<BigInt>] {
        self.tables.iter().find(|known| known.name == table).map_or(&[], |state| &state.seen)
    }
}

//! Tables (spec §14.2): keys, the entry that wins, its action, direct counters.

use num_bigint::BigInt;
use num_traits::Zero;
use p4_check::hir::{
    ActionCallDef, Callee, Direction, ExprKind, LocalId, Match, ParamDef, Stmt, TableDef,
    TableDefId,
};
use p4_check::names::control_plane;
use p4_check::ty::{Substitution, Ty};
use p4_check::walk;
use p4_ir::ActionCall;
use p4_ir::match_kind::is_ranked;
use std::rc::Rc;

use super::data::{Data, Object, scalar_bits, wrap};
use super::number::pattern;
use super::{Run, Tree, broken, undefined, unsupported};
use crate::{Count, KeyMatch, RuntimeEntry, Stop};

/// Keys remembered for a table.
const MAX_SEEN: usize = 64;

/// How an entry, or a case of a select, matches one key.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    Any,
    Value(BigInt),
    /// Value and mask.
    Mask(BigInt, BigInt),
    /// Both included.
    Range(BigInt, BigInt),
    /// Of the control plane, in bits.
    Bits(KeyMatch),
}

impl Rule {
    /// Spec §8.15 (sets), §14.2.1.4; `width` of a number's type.
    pub fn fits(&self, key: &Data, width: Option<u32>) -> Run<bool> {
        let bits = |value: &BigInt| width.map_or(value.clone(), |width| pattern(value, width));
        let key = match (self, key) {
            // Spec §8.25: what has no value matches where no bit is compared.
            (Rule::Any, _) => return Ok(true),
            (Rule::Bits(matched), _) if matched.mask.is_zero() => return Ok(true),
            (_, Data::Number(key)) => key,
            (_, Data::Undefined) => return undefined("a key that was never written"),
            _ => return broken("a key that is not a number"),
        };
        Ok(match self {
            Rule::Any => true,
            Rule::Value(value) => key == value,
            Rule::Mask(value, mask) => (bits(key) & bits(mask)) == (bits(value) & bits(mask)),
            Rule::Range(low, high) => low <= key && key <= high,
            Rule::Bits(matched) => (bits(key) & &matched.mask) == (&matched.value & &matched.mask),
        })
    }

    /// The bits of a key of this width that it compares, and what they must be; None: a range.
    fn compared(&self, width: u32) -> Option<(BigInt, BigInt)> {
        let (value, mask) = match self {
            Rule::Any => (BigInt::ZERO, BigInt::ZERO),
            Rule::Value(value) => (value.clone(), BigInt::from(-1)),
            Rule::Mask(value, mask) => (value.clone(), mask.clone()),
            Rule::Bits(matched) => (matched.value.clone(), matched.mask.clone()),
            Rule::Range(..) => return None,
        };
        let mask = pattern(&mask, width);
        Some((value & &mask, mask))
    }

    /// How many leading bits it compares, as an `lpm` key.
    fn prefix(&self, width: u32) -> u64 {
        let ones = |mask: &BigInt| {
            pattern(mask, width).iter_u64_digits().map(|digit| u64::from(digit.count_ones())).sum()
        };
        match self {
            Rule::Any => 0,
            Rule::Mask(_, mask) => ones(mask),
            Rule::Bits(matched) => ones(&matched.mask),
            Rule::Value(_) | Rule::Range(..) => u64::from(width),
        }
    }
}

/// An action of the table's list, with the control plane's arguments. None: NoAction, which the
/// list does not have.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub index: Option<usize>,
    pub data: Vec<Data>,
}

impl Chosen {
    fn same(&self, other: &Chosen) -> bool {
        let mut data = self.data.iter().zip(&other.data);
        self.index == other.index && data.all(|(one, other)| one.equal(other) == Some(true))
    }
}

/// An entry of a table.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    rules: Vec<Rule>,
    /// Larger wins, of equal ones the first.
    rank: BigInt,
    action: Chosen,
    pub count: Count,
}

/// A table of an instance.
#[derive(Clone)]
pub(crate) struct TableState<'h> {
    pub name: String,
    pub def: &'h TableDef,
    pub entries: Vec<Entry>,
    pub default: Option<Chosen>,
    pub default_count: Count,
    /// Its direct counter, among the extern objects.
    counter: Option<usize>,
    /// Every hit counts, as no action counts by itself.
    counts_hits: bool,
    /// The keys that it was looked up with.
    pub seen: Vec<Vec<BigInt>>,
}

/// What `apply` found (spec §14.2.2).
pub(crate) struct Applied {
    pub hit: bool,
    /// Index into the table's list.
    pub action: Option<usize>,
}

impl<'h> Tree<'h> {
    /// The table of an instance that is being made.
    pub(crate) fn make_table(&mut self, instance: usize, id: TableDefId, prefix: &str) -> Run<()> {
        let Some(def) = &self.hir.tables[id.index()] else {
            return broken("a table that was not checked");
        };
        let mut counter = None;
        for (property, expr) in &def.attached {
            match self.eval(expr)? {
                Data::Object(Object::Extern(index)) if &**property == "counters" => {
                    counter = Some((index, expr))
                }
                _ => return unsupported(format!("the table property {property}")),
            }
        }
        let counts_hits = match counter.map(|(_, expr)| &expr.kind) {
            Some(ExprKind::Local(local)) => {
                !def.actions.iter().any(|one| self.counts(one.action.index(), *local, 64))
            }
            _ => false,
        };
        let default = match &def.default_action {
            Some(call) => Some(self.chosen(call)?),
            None => None,
        };
        let state = TableState {
            name: control_plane(prefix, &def.name, &def.annotations),
            def,
            entries: self.source_entries(def)?,
            default,
            default_count: Count::default(),
            counter: counter.map(|(index, _)| index),
            counts_hits,
            seen: Vec::new(),
        };
        self.table_index.insert((instance, id), self.tables.len());
        self.tables.push(state);
        Ok(())
    }

    fn chosen(&mut self, call: &'h ActionCallDef) -> Run<Chosen> {
        let data =
            call.args.iter().map(|argument| self.eval(argument)).collect::<Run<Vec<Data>>>()?;
        Ok(Chosen { index: Some(call.index), data })
    }

    fn source_entries(&mut self, def: &'h TableDef) -> Run<Vec<Entry>> {
        let ranks = self.priorities(def)?;
        let mut entries = Vec::new();
        for (entry, rank) in def.entries.iter().zip(ranks) {
            let rules = entry
                .matches
                .iter()
                .map(|matched| self.rule(matched))
                .collect::<Run<Vec<Rule>>>()?;
            entries.push(Entry {
                rules,
                rank,
                action: self.chosen(&entry.action)?,
                count: Count::default(),
            });
        }
        Ok(entries)
    }

    /// Spec §14.2.1.4, entry priorities: those that are not written follow from those before.
    fn priorities(&mut self, def: &'h TableDef) -> Run<Vec<BigInt>> {
        let largest_wins = def.largest_priority_wins;
        let delta = def.priority_delta.clone().unwrap_or_else(|| BigInt::from(1));
        let count = BigInt::from(def.entries.len());
        let mut priorities: Vec<BigInt> = Vec::new();
        for entry in &def.entries {
            let follows = match priorities.last() {
                Some(last) if largest_wins => last - &delta,
                Some(last) => last + &delta,
                None if largest_wins => (&count - 1) * &delta + 1,
                None => BigInt::from(1),
            };
            priorities.push(match &entry.priority {
                Some(priority) => self.number(priority, "a priority")?,
                None => follows,
            });
        }
        Ok(priorities.into_iter().map(|priority| rank(def, priority)).collect())
    }

    /// A match with its constants evaluated.
    pub(crate) fn rule(&mut self, matched: &'h Match) -> Run<Rule> {
        Ok(match matched {
            Match::Any => Rule::Any,
            Match::Value(value) => Rule::Value(self.number(value, "what is matched")?),
            Match::Mask(value, mask) => {
                Rule::Mask(self.number(value, "a value")?, self.number(mask, "a mask")?)
            }
            Match::Range(low, high) => {
                Rule::Range(self.number(low, "a bound")?, self.number(high, "a bound")?)
            }
            Match::ValueSet(_) => return unsupported("a value set"),
        })
    }

    /// Whether an action, or one that it calls, has `count()` of the counter.
    fn counts(&self, action: usize, counter: LocalId, depth: u32) -> bool {
        let mut found = false;
        walk::block(&self.hir.actions[action].body, &mut |expr| {
            let ExprKind::Call(call) = &expr.kind else { return };
            found |= match &call.callee {
                Callee::Method(object, _) => {
                    matches!(object.kind, ExprKind::Local(local) if local == counter)
                }
                Callee::Action(called) => {
                    depth > 0 && self.counts(called.index(), counter, depth - 1)
                }
                _ => false,
            };
        });
        found
    }

    /// A control plane's call of an action, as the table takes it.
    pub(crate) fn runtime_call(&self, table: usize, call: &ActionCall) -> Result<Chosen, Stop> {
        let def = self.tables[table].def;
        let Some(listed) = def.actions.get(call.action as usize) else {
            return Err(Stop::Broken(format!("table {} has no action {}", def.name, call.action)));
        };
        let params = data_params(&self.hir.actions[listed.action.index()].params);
        if params.len() != call.arguments.len() {
            return Err(Stop::Broken(format!(
                "{} arguments for {}",
                call.arguments.len(),
                params.len()
            )));
        }
        let value = |(param, value): (&&ParamDef, &BigInt)| match scalar_bits(self.hir, &param.ty) {
            Some((width, signed)) => Data::Number(wrap(value, width, signed)),
            None => Data::Number(value.clone()),
        };
        let data = params.iter().zip(&call.arguments).map(value).collect();
        Ok(Chosen { index: Some(call.action as usize), data })
    }

    /// Adds an entry of the control plane. Of entries that match the same keys one is enough
    /// (spec §14.2.1.4): a second one is refused, unless its priority tells the two apart.
    pub(crate) fn insert(&mut self, table: usize, entry: &RuntimeEntry) -> Result<(), Stop> {
        let (matches, priority, call) = entry.parts();
        let action = self.runtime_call(table, call)?;
        let rules: Vec<Rule> = matches.iter().cloned().map(Rule::Bits).collect();
        let state = &self.tables[table];
        let rank = rank(state.def, BigInt::from(priority));
        let ranked = has_priorities(state.def);
        let widths: Vec<u32> =
            state.def.keys.iter().map(|key| self.key_width(&key.expr.ty).unwrap_or(0)).collect();
        let same = |known: &Entry| {
            let mut keys = known.rules.iter().zip(&rules).zip(&widths);
            keys.all(|((known, new), width)| known.compared(*width) == new.compared(*width))
        };
        if state.entries.iter().any(|known| (!ranked || known.rank == rank) && same(known)) {
            return Err(Stop::Unsupported(format!("an entry that {} has already", state.name)));
        }
        self.tables[table].entries.push(Entry { rules, rank, action, count: Count::default() });
        Ok(())
    }

    /// `apply()`: the keys, left to right, the lookup, and the action.
    pub(crate) fn apply_table(&mut self, id: TableDefId) -> Run<Applied> {
        let instance = self.enclosing().map_or(usize::MAX, |instance| instance.number);
        let Some(index) = self.table_index.get(&(instance, id)).copied() else {
            return broken("a table that is not here");
        };
        let def = self.tables[index].def;
        let keys = def.keys.iter().map(|key| self.eval(&key.expr)).collect::<Run<Vec<Data>>>()?;
        let widths: Vec<Option<u32>> =
            def.keys.iter().map(|key| self.key_width(&key.expr.ty)).collect();
        self.see(index, &keys, &widths);
        let found = self.lookup(index, &keys, &widths)?;
        let table = &self.tables[index];
        let chosen = match found {
            Some(entry) => Some(table.entries[entry].action.clone()),
            None => table.default.clone().or_else(|| self.no_action(def)),
        };
        if found.is_some() && table.counts_hits {
            self.count_match((index, found));
        }
        let ran = chosen.as_ref().and_then(|chosen| chosen.index);
        if let Some(Chosen { index: Some(listed), data }) = chosen {
            let outer = self.packet.matched.replace((index, found));
            let result = self.run_listed(def, listed, data);
            self.packet.matched = outer;
            result?;
        }
        Ok(Applied { hit: found.is_some(), action: ran })
    }

    /// Spec §14.2.1.3: without a default action, NoAction.
    fn no_action(&self, def: &TableDef) -> Option<Chosen> {
        let listed = def.actions.iter().position(|one| Some(one.action) == self.hir.no_action)?;
        Some(Chosen { index: Some(listed), data: Vec::new() })
    }

    fn key_width(&self, ty: &Ty) -> Option<u32> {
        scalar_bits(self.hir, &self.ty(ty)).map(|(width, _)| width)
    }

    fn see(&mut self, table: usize, keys: &[Data], widths: &[Option<u32>]) {
        let bits = |(key, width): (&Data, &Option<u32>)| match key {
            Data::Number(value) => Some(width.map_or(value.clone(), |width| pattern(value, width))),
            _ => None,
        };
        let Some(key) = keys.iter().zip(widths).map(bits).collect::<Option<Vec<BigInt>>>() else {
            return;
        };
        let seen = &mut self.tables[table].seen;
        if seen.len() < MAX_SEEN && !seen.contains(&key) {
            seen.push(key);
        }
    }

    /// The entry that wins: with an `lpm` key and none that needs priorities, that with the longest
    /// prefix; else that with the largest priority (spec §14.2.1.4). A table without keys has no
    /// entries.
    fn lookup(&self, index: usize, keys: &[Data], widths: &[Option<u32>]) -> Run<Option<usize>> {
        let table = &self.tables[index];
        let lpm = table.def.keys.iter().position(|key| &*key.match_kind == "lpm");
        let longest = lpm.filter(|_| !has_priorities(table.def));
        let mut best: Option<(BigInt, usize)> = None;
        let mut tied = false;
        for (number, entry) in table.entries.iter().enumerate() {
            let mut fits = true;
            for ((rule, key), width) in entry.rules.iter().zip(keys).zip(widths) {
                fits = fits && rule.fits(key, *width)?;
            }
            if !fits {
                continue;
            }
            let rank = match longest {
                Some(key) => BigInt::from(entry.rules[key].prefix(widths[key].unwrap_or(0))),
                None => entry.rank.clone(),
            };
            match &best {
                Some((known, _)) if *known > rank => {}
                Some((known, other)) if *known == rank => {
                    tied |= !entry.action.same(&table.entries[*other].action)
                }
                _ => (best, tied) = (Some((rank, number)), false),
            }
        }
        // Spec §14.2.1.4 leaves open which of them wins.
        if tied {
            return undefined("two entries of equal priority that match");
        }
        Ok(best.map(|(_, number)| number))
    }

    /// Runs an action of the list: the arguments bound there are evaluated now (spec §14.2.1.2).
    fn run_listed(&mut self, def: &'h TableDef, listed: usize, data: Vec<Data>) -> Run<()> {
        let hir = self.hir;
        let Some(listed) = def.actions.get(listed) else {
            return broken("an action that the table does not list");
        };
        let action = &hir.actions[listed.action.index()];
        let directed: Vec<ParamDef> =
            action.params.iter().filter(|one| one.direction != Direction::None).cloned().collect();
        let mut arguments =
            self.arguments(&directed, &listed.bound, &listed.order, &Substitution::new())?;
        // (Parameters with a direction come first: spec §14.1.)
        arguments.values.extend(data);
        let params: Rc<[ParamDef]> = action.params.clone();
        let body: &'h [Stmt] = &action.body;
        self.run_action(&params, arguments, body).map(drop)
    }

    fn count_match(&mut self, (table, entry): (usize, Option<usize>)) {
        let bytes = self.packet.bytes.len() as u64;
        let table = &mut self.tables[table];
        let count = match entry {
            Some(entry) => &mut table.entries[entry].count,
            None => &mut table.default_count,
        };
        count.packets += 1;
        count.bytes += bytes;
    }

    /// `count()` of a direct counter: on what matched in the table that it is attached to.
    pub(crate) fn count_direct(&mut self, counter: usize) -> Run<()> {
        match self.packet.matched {
            Some(matched) if self.tables[matched.0].counter == Some(counter) => {
                self.count_match(matched);
                Ok(())
            }
            _ => undefined("a direct counter outside of its table's actions"),
        }
    }
}

/// Whether its entries have priorities (spec §14.2.1.4).
fn has_priorities(def: &TableDef) -> bool {
    def.keys.iter().any(|key| is_ranked(&key.match_kind))
}

/// A priority as what is larger wins.
fn rank(def: &TableDef, priority: BigInt) -> BigInt {
    if def.largest_priority_wins { priority } else { -priority }
}

fn data_params(params: &[ParamDef]) -> Vec<&ParamDef> {
    params.iter().filter(|param| param.direction == Direction::None).collect()
}

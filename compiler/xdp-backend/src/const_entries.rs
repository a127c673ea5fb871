//! Const entries: a few are tests in the code; more are entries of a map, or constants that a
//! decision tree finds (tree_table.rs).

use crate::expr::is_signed;
use crate::generator::Generator;
use crate::layout::scalar_width;
use crate::mutations::{Mutation, planted};
use crate::table::{MAX_MASKS, prefix_length};
use num_bigint::BigInt;
use num_traits::Zero;
use p4_ir::match_kind::is_ranked;
use p4_ir::{Entry, Key, Match, Table, VariableId};
use std::collections::HashSet;

/// With more const entries than this, a table has a map. The verifier follows the rest of the
/// program behind each test in the code.
pub(crate) const MAX_CODED_ENTRIES: usize = 64;

/// Which bits of each key an entry looks at; no key is a range.
pub(crate) fn masks(table: &Table, entry: &Entry) -> Vec<BigInt> {
    let mask = |(key, matched): (&Key, &Match)| {
        let all = (BigInt::from(1) << scalar_width(&key.expr.ty).unwrap_or(0)) - 1;
        match matched {
            Match::Mask { mask, .. } => mask & all,
            Match::Any => BigInt::zero(),
            _ => all,
        }
    };
    table.keys.iter().zip(&entry.matches).map(mask).collect()
}

/// Whether const entries are in a map: there are many, and some kind of map can hold them.
pub(crate) fn const_entries_in_map(table: &Table) -> bool {
    let ranges = table.keys.iter().any(|key| key.match_kind == "range");
    if ranges || table.entries.len() <= MAX_CODED_ENTRIES {
        return false;
    }
    let different: HashSet<Vec<BigInt>> =
        table.entries.iter().map(|entry| masks(table, entry)).collect();
    let one_trie = !table.keys.iter().any(|key| is_ranked(&key.match_kind))
        && table.keys.iter().filter(|key| key.match_kind == "lpm").count() <= 1;
    one_trie || different.len() <= MAX_MASKS as usize
}

/// Longest prefix first for a table with an lpm key and no priorities; else by priority, else as
/// written.
pub(crate) fn sort_entries(table: &Table, entries: &mut [&Entry], widths: &[u32]) {
    let lpm = table.keys.iter().position(|key| key.match_kind == "lpm");
    let others = table.keys.iter().any(|key| is_ranked(&key.match_kind));
    if let (Some(lpm), false) = (lpm, others) {
        let width = widths.get(lpm).copied().unwrap_or(0);
        entries.sort_by_key(|entry| {
            std::cmp::Reverse(entry.matches.get(lpm).map_or(0, |m| prefix_length(m, width)))
        });
        return;
    }
    if planted(Mutation::LastEntryWins) {
        entries.reverse();
    }
    // A stable sort keeps the order of the source among equals.
    entries.sort_by_key(|entry| {
        std::cmp::Reverse(entry.priority.clone().unwrap_or_else(BigInt::zero))
    });
}

impl Generator<'_> {
    /// Keyless tables and const entries.
    pub(crate) fn apply_code(
        &mut self,
        table: &Table,
        keys: &[(String, u32)],
        hit: Option<VariableId>,
        action_run: Option<VariableId>,
    ) {
        let mut entries: Vec<&Entry> = table.entries.iter().collect();
        let widths: Vec<u32> = keys.iter().map(|(_, width)| *width).collect();
        sort_entries(table, &mut entries, &widths);
        let mut word = "if";
        for entry in entries {
            self.out.at(entry.location);
            let mut tests = Vec::new();
            for (((value, width), key), matched) in keys.iter().zip(&table.keys).zip(&entry.matches)
            {
                let minus = is_signed(&key.expr.ty);
                tests.extend(self.match_test(value, *width, minus, matched, entry.location));
            }
            let test = if tests.is_empty() { "1".to_string() } else { tests.join(" && ") };
            self.open(&format!("{word} ({test})"));
            self.set_hit(hit, "1");
            self.applied = Some(false);
            self.constant_action(table, &entry.action, action_run);
            word = "} else if";
        }
        let chained = word != "if";
        if chained {
            self.out.line("} else {");
        }
        self.set_hit(hit, "0");
        self.out.at(table.location);
        if table.const_default {
            self.applied = Some(false);
            self.constant_action(table, &table.default_action, action_run);
        } else {
            self.out.line("__u32 sp_zero = 0;");
            self.out.line(format!(
                "struct {name}_value *value = bpf_map_lookup_elem(&{name}_default, &sp_zero);",
                name = table.c_name
            ));
            self.open("if (value)");
            self.applied = Some(true);
            self.action_switch(table, action_run);
            self.out.line("}");
        }
        if chained {
            self.out.line("}");
        }
    }
}

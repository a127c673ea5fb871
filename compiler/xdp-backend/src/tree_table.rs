//! Many const entries that no kind of map holds (ranges, more masks than a ternary table has), in
//! C: constants of the program and a decision tree over them, searched step by step by bpf_loop(),
//! so that the verifier follows one step and not each entry.

use crate::const_entries::{MAX_CODED_ENTRIES, const_entries_in_map, sort_entries};
use crate::decision_tree::{Candidate, Next, Part, Tree};
use crate::emit::Writer;
use crate::expr::{is_signed, literal};
use crate::generator::Generator;
use crate::layout::scalar_width;
use num_bigint::BigInt;
use num_traits::{One, ToPrimitive, Zero};
use p4_ir::{Entry, Key, Match, Table};

/// Bytes that a program's constants may take: the kernel has a map of one element for them, and
/// kernels before 6.8 take no larger element.
const MAX_CONSTANT_BYTES: usize = 4 << 20;
/// Of these, for the constants of the runtime.
const RUNTIME_CONSTANT_BYTES: usize = 64 << 10;
/// A node of the tree, as it is written below.
const NODE_BYTES: usize = 32;

/// Whether a table's const entries are searched by a decision tree.
pub(crate) fn const_entries_in_tree(table: &Table) -> bool {
    table.const_entries && table.entries.len() > MAX_CODED_ENTRIES && !const_entries_in_map(table)
}

/// How an entry matches a key: `(key & mask) - low <= span`, in as many bits as C computes in.
struct Rule {
    mask: BigInt,
    low: BigInt,
    span: BigInt,
}

/// The highest bit of a signed key that is matched by ranges: turned over, it orders keys as
/// unsigned numbers.
fn turned_bit(key: &Key, width: u32) -> BigInt {
    if key.match_kind == "range" && is_signed(&key.expr.ty) {
        BigInt::one() << width.saturating_sub(1)
    } else {
        BigInt::zero()
    }
}

/// None: nothing matches.
fn rule(key: &Key, width: u32, matched: &Match) -> Option<Rule> {
    let modulus = BigInt::one() << width;
    let all = &modulus - 1;
    let turned = turned_bit(key, width);
    let bits = |value: &BigInt| ((value % &modulus + &modulus) % &modulus) ^ &turned;
    match matched {
        Match::Any | Match::ValueSet(_) => {
            Some(Rule { mask: BigInt::zero(), low: BigInt::zero(), span: BigInt::zero() })
        }
        Match::Value(value) => Some(Rule { mask: all, low: bits(value), span: BigInt::zero() }),
        Match::Mask { value, mask } => {
            Some(Rule { mask: mask.clone(), low: bits(value) & mask, span: BigInt::zero() })
        }
        Match::Range { low, high } => {
            let (low, high) = (bits(low), bits(high));
            (low <= high).then(|| Rule { mask: all, span: &high - &low, low })
        }
    }
}

fn low_word(value: &BigInt) -> u64 {
    (value & BigInt::from(u64::MAX)).to_u64().unwrap_or(0)
}

fn high_word(value: &BigInt) -> u64 {
    low_word(&(value >> 64u32))
}

/// What a rule says of the words of its key, the lowest first: at the most, and for certain.
fn parts(rule: &Rule, width: u32) -> (Vec<Part>, Option<Vec<Part>>) {
    let is_range = !rule.span.is_zero();
    let high = &rule.low + &rule.span;
    if width <= 64 {
        let part = match is_range {
            true => Part::Interval(low_word(&rule.low), low_word(&high)),
            false => Part::Masked { value: low_word(&rule.low), mask: low_word(&rule.mask) },
        };
        return (vec![part], Some(vec![part]));
    }
    let masked =
        |word: fn(&BigInt) -> u64| Part::Masked { value: word(&rule.low), mask: word(&rule.mask) };
    if !is_range {
        let parts = vec![masked(low_word), masked(high_word)];
        return (parts.clone(), Some(parts));
    }
    let (first, last) = (high_word(&rule.low), high_word(&high));
    if first == last {
        let parts =
            vec![Part::Interval(low_word(&rule.low), low_word(&high)), Part::Interval(first, last)];
        return (parts.clone(), Some(parts));
    }
    let outer = vec![Part::ALL, Part::Interval(first, last)];
    // At the range's ends, the low word counts, too.
    let from = if low_word(&rule.low) == 0 { Some(first) } else { first.checked_add(1) };
    let to = if low_word(&high) == u64::MAX { Some(last) } else { last.checked_sub(1) };
    let inner = from.zip(to).filter(|(from, to)| from <= to);
    (outer, inner.map(|(from, to)| vec![Part::ALL, Part::Interval(from, to)]))
}

/// A constant of C: a word, or two in an array, the lowest first.
fn words_text(value: &BigInt, width: u32) -> String {
    match width {
        0..=64 => format!("0x{:x}ULL", low_word(value)),
        _ => format!("{{ 0x{:x}ULL, 0x{:x}ULL }}", low_word(value), high_word(value)),
    }
}

/// A tree, for who searches it.
#[derive(Clone)]
pub(crate) struct Search {
    /// Of the longest search.
    steps: usize,
    /// Where it begins.
    first: usize,
    /// How many entries there are: the number that says that none matched.
    entries: usize,
}

impl Generator<'_> {
    /// Declares entries, values and tree of a table.
    pub(crate) fn declare_tree(&mut self, table: &Table) {
        let name = &table.c_name;
        let widths: Vec<u32> =
            table.keys.iter().map(|key| scalar_width(&key.expr.ty).unwrap_or(0)).collect();
        let mut entries: Vec<&Entry> = table.entries.iter().collect();
        sort_entries(table, &mut entries, &widths);
        let mut listed: Vec<(&Entry, Vec<Rule>)> = Vec::new();
        for entry in entries {
            let rules = table.keys.iter().zip(&widths).zip(&entry.matches);
            let rules: Option<Vec<Rule>> =
                rules.map(|((key, width), matched)| rule(key, *width, matched)).collect();
            listed.extend(rules.map(|rules| (entry, rules)));
        }
        let rule_bytes: usize = widths.iter().map(|width| if *width > 64 { 48 } else { 24 }).sum();
        let entries_bytes =
            listed.len() * (rule_bytes + self.value_layout(table, false).0 as usize);
        if !self.take_constants(table, entries_bytes) {
            return;
        }
        let candidates: Vec<Candidate> =
            listed.iter().map(|(_, rules)| candidate(rules, &widths)).collect();
        let tree = Tree::new(&candidates);
        if !self.take_constants(table, tree.leaves.len() * 4 + tree.nodes.len() * NODE_BYTES) {
            return;
        }
        self.declare_rules(name, &widths, &listed);
        let values: Vec<String> =
            listed.iter().map(|(entry, _)| self.constant_value(table, entry)).collect();
        let text = &mut self.types;
        text.line(format!(
            "SP_CONSTANT struct {name}_value {name}_values[{}] = {{",
            values.len().max(1)
        ));
        values.iter().for_each(|value| text.line(value));
        text.line("};");
        declare_nodes(text, name, &tree);
        declare_step(text, name, &widths, listed.len(), &tree);
        let first = step_number(&tree, tree.root);
        self.trees.insert(name.clone(), Search { steps: tree.steps, first, entries: listed.len() });
    }

    /// Counts constants of a table; false if there are too many.
    fn take_constants(&mut self, table: &Table, bytes: usize) -> bool {
        self.constant_bytes += bytes;
        let most = MAX_CONSTANT_BYTES - RUNTIME_CONSTANT_BYTES;
        if self.constant_bytes > most {
            let message = format!(
                "table {}: {} const entries take more than {} KiB, with those of the tables before; \
                 a program's constants may take no more",
                table.name,
                table.entries.len(),
                most >> 10
            );
            let help = "write fewer entries, or use exact, lpm and ternary keys with at most 64 different masks: \
                        such entries are in maps";
            self.error(table.location, &message, Some(help));
        }
        self.constant_bytes <= most
    }

    fn declare_rules(&mut self, name: &str, widths: &[u32], listed: &[(&Entry, Vec<Rule>)]) {
        let text = &mut self.types;
        text.line(format!("struct {name}_rule {{"));
        for (index, width) in widths.iter().enumerate() {
            let array = if *width > 64 { "[2]" } else { "" };
            text.line(format!("__u64 mask{index}{array}, low{index}{array}, span{index}{array};"));
        }
        text.line("};");
        text.line(format!(
            "SP_CONSTANT struct {name}_rule {name}_rules[{}] = {{",
            listed.len().max(1)
        ));
        for (_, rules) in listed {
            let numbers = rules.iter().zip(widths).flat_map(|(rule, width)| {
                [&rule.mask, &rule.low, &rule.span].map(|value| words_text(value, *width))
            });
            text.line(format!("{{ {} }},", numbers.collect::<Vec<_>>().join(", ")));
        }
        text.line("};");
    }

    /// What an entry runs, as an element of an array of C.
    fn constant_value(&self, table: &Table, entry: &Entry) -> String {
        let index = entry.action.action as usize;
        let action =
            table.actions.get(index).map(|listed| &self.program.actions[listed.action.index()]);
        let parameters = action.map_or(&[][..], |action| &action.parameters);
        let mut text = format!("{{ .action = {index}U");
        for (position, (variable, argument)) in
            parameters.iter().zip(&entry.action.arguments).enumerate()
        {
            let width = scalar_width(&self.program.variables[variable.index()].ty).unwrap_or(32);
            let value = match width {
                0..=64 => literal(argument, width),
                _ => words_text(argument, width),
            };
            text.push_str(&format!(", .u.a{index}.p{position} = {value}"));
        }
        text + " },"
    }

    /// Leaves the entry's value, or a null pointer, in `value`.
    pub(crate) fn tree_lookup(&mut self, table: &Table) {
        let name = &table.c_name;
        let Some(Search { steps, first, entries }) = self.trees.get(name).cloned() else { return };
        let mut assignments = Vec::new();
        let mut word = 0;
        for key in &table.keys {
            let width = self.width(&key.expr);
            let value = self.expr(&key.expr);
            let turned = turned_bit(key, width);
            let value = if turned.is_zero() {
                value
            } else {
                format!("({value} ^ {})", literal(&turned, width))
            };
            if width > 64 {
                let value = self.temporary("sp_u128", &value);
                assignments.push(format!("sp_search.words[{word}] = (__u64)({value});"));
                assignments.push(format!("sp_search.words[{}] = sp_high64({value});", word + 1));
                word += 2;
            } else {
                assignments.push(format!("sp_search.words[{word}] = {value};"));
                word += 1;
            }
        }
        self.out.line(format!("struct {name}_search sp_search;"));
        assignments.iter().for_each(|line| self.out.line(line));
        // The verifier would follow each way through the constants if it knew where it begins.
        let zero = self.hidden_zero();
        self.out.line(format!("sp_search.at = sp_forget({first}U, {zero});"));
        self.out.line(format!("sp_search.found = {entries}U;"));
        self.out.line(format!("bpf_loop({steps}, {name}_round, &sp_search, 0);"));
        self.out.line(format!("const struct {name}_value *value = 0;"));
        self.out.line("__u32 sp_found = sp_search.found;");
        self.out.line(format!(
            "if (sp_found < {entries}U) value = &{name}_values[sp_below(sp_found, {entries})];"
        ));
    }
}

fn candidate(rules: &[Rule], widths: &[u32]) -> Candidate {
    let mut outer = Vec::new();
    let mut inner = Some(Vec::new());
    for (rule, width) in rules.iter().zip(widths) {
        let (most, certain) = parts(rule, *width);
        outer.extend(most);
        inner = inner.zip(certain).map(|(mut all, certain)| {
            all.extend(certain);
            all
        });
    }
    Candidate { outer, inner }
}

/// Where a search goes on: below the number of nodes it is a node, above a place in the leaves.
fn step_number(tree: &Tree, next: Next) -> usize {
    match next {
        Next::Node(node) => node,
        Next::Leaf(leaf) => tree.nodes.len() + leaf,
    }
}

fn declare_nodes(text: &mut Writer, name: &str, tree: &Tree) {
    text.line(format!("struct {name}_node {{"));
    text.line("__u64 mask;");
    text.line("__u64 bound;");
    text.line("__u32 word;");
    text.line("__u32 next[2];");
    text.line("__u32 zero;");
    text.line("};");
    text.line(format!(
        "SP_CONSTANT struct {name}_node {name}_nodes[{}] = {{",
        tree.nodes.len().max(1)
    ));
    for node in &tree.nodes {
        let [below, above] = node.next.map(|next| step_number(tree, next));
        text.line(format!(
            "{{ 0x{:x}ULL, 0x{:x}ULL, {}U, {{ {below}U, {above}U }} }},",
            node.mask, node.bound, node.word
        ));
    }
    text.line("};");
    text.line(format!("SP_CONSTANT __u32 {name}_leaves[{}] = {{", tree.leaves.len()));
    for line in tree.leaves.chunks(16) {
        let numbers: Vec<String> = line.iter().map(|index| format!("{index}U,")).collect();
        text.line(numbers.join(" "));
    }
    text.line("};");
}

fn declare_step(text: &mut Writer, name: &str, widths: &[u32], entries: usize, tree: &Tree) {
    let words: usize = widths.iter().map(|width| if *width > 64 { 2 } else { 1 }).sum();
    let (nodes, leaves) = (tree.nodes.len(), tree.leaves.len());
    text.line(format!("struct {name}_search {{"));
    text.line(format!("__u64 words[{words}];"));
    text.line("__u32 at;");
    text.line("__u32 found;");
    text.line("};");
    text.line(format!("static long {name}_round(__u32 sp_step, void *context)"));
    text.line("{");
    text.line(format!("struct {name}_search *sp_search = context;"));
    text.line("__u32 sp_at = sp_search->at;");
    if nodes > 0 {
        text.line(format!("if (sp_at < {nodes}U) {{"));
        text.line(format!(
            "const struct {name}_node *sp_node = &{name}_nodes[sp_below(sp_at, {nodes})];"
        ));
        text.line(format!("__u64 sp_word = sp_below(sp_node->word, {words});"));
        text.line("__u32 sp_above = (sp_search->words[sp_word] & sp_node->mask) > sp_node->bound;");
        text.line("sp_search->at = sp_above ? sp_node->next[1] : sp_node->next[0];");
        text.line("return 0;");
        text.line("}");
    }
    text.line(format!("sp_at -= {nodes}U;"));
    text.line(format!("__u32 sp_entry = {name}_leaves[sp_below(sp_at, {leaves})];"));
    text.line(format!("if (sp_entry >= {entries}U) return 1;"));
    text.line(format!(
        "const struct {name}_rule *sp_rule = &{name}_rules[sp_below(sp_entry, {entries})];"
    ));
    let mut tests = Vec::new();
    let mut word = 0;
    for (index, width) in widths.iter().enumerate() {
        let member = |name: &str| match *width {
            0..=64 => format!("sp_rule->{name}{index}"),
            _ => format!("SP_U128(sp_rule->{name}{index}[1], sp_rule->{name}{index}[0])"),
        };
        let key = match *width {
            0..=64 => format!("sp_search->words[{word}]"),
            _ => format!("SP_U128(sp_search->words[{}], sp_search->words[{word}])", word + 1),
        };
        word += if *width > 64 { 2 } else { 1 };
        tests.push(format!(
            "({key} & {}) - {} <= {}",
            member("mask"),
            member("low"),
            member("span")
        ));
    }
    text.line(format!("if ({}) {{", tests.join(" && ")));
    text.line("sp_search->found = sp_entry;");
    text.line("return 1;");
    text.line("}");
    text.line("sp_search->at += 1;");
    text.line("return 0;");
    text.line("}");
}

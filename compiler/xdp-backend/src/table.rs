//! Tables: BPF maps or code, the lookup, and the actions in a switch at the place of `apply`.

mod declare;
mod exchange;

use crate::const_entries::const_entries_in_map;
use crate::expr::{literal, shift_left};
use crate::generator::Generator;
use crate::layout::{Place, c_type, scalar_width};
use crate::packet::{Bits, runs, store_run};
use crate::tree_table::const_entries_in_tree;
use crate::walk::Visitor;
use manifest::{KeyMatch, TableKind, scalar_bytes};
use num_bigint::BigInt;
use num_traits::{ToPrimitive, Zero};
use p4_ir::{
    ActionCall, Entry, ExternId, Key, Match, Program, Statement, StatementKind, Table, TableId,
    VariableId,
};

/// A ternary table tries at most so many masks for a packet.
pub(crate) const MAX_MASKS: u32 = 64;
/// v1model's size of a table that names none.
const DEFAULT_SIZE: u64 = 1024;

/// Bytes up to a multiple of `to`.
pub fn round_up(bytes: u32, to: u32) -> u32 {
    bytes.div_ceil(to) * to
}

/// The alignment of a scalar in a map.
fn alignment(bytes: u32) -> u32 {
    bytes.min(8)
}

impl Generator<'_> {
    /// Declares a table's maps and writes its part of the manifest.
    pub(crate) fn declare_table(&mut self, table: &Table) {
        let mut keys = self.manifest_keys(table);
        let kind = self.table_kind(table, &mut keys);
        let direct = self.has_direct_counter(table);
        for (property, instance) in &table.attached {
            let extern_type = &self.program.externs[instance.index()].extern_type;
            if extern_type != "direct_counter" {
                let message = format!(
                    "table property {property}: {extern_type} is not supported by the XDP target yet"
                );
                self.error(table.location, &message, None);
            }
        }
        if direct && (table.const_entries || kind == TableKind::Keyless) {
            let message = "a direct counter of a table without entries in a map: const entries and keyless tables have no place for it";
            self.error(
                table.location,
                message,
                Some("use a counter, with an index of your own for each entry"),
            );
        }
        self.check_exchange(table, &kind, direct);
        let (value_bytes, counter) = self.value_layout(table, direct);
        // Const entries are all that there ever are.
        let written =
            if table.const_entries { Some(table.entries.len() as u64) } else { table.size };
        let size = written.unwrap_or(DEFAULT_SIZE).clamp(1, u64::from(u32::MAX));
        let in_code = matches!(kind, TableKind::Const | TableKind::Keyless);
        let default_map = self.default_in_map(table).then(|| format!("{}_default", table.c_name));
        let in_tree = const_entries_in_tree(table);
        if !in_code || default_map.is_some() || in_tree {
            self.declare_value(table, counter);
        }
        if let Some(map) = &default_map {
            let value = format!("struct {}_value", table.c_name);
            self.declare_map(map, "BPF_MAP_TYPE_ARRAY", "__u32", &value, "1", "");
        }
        match &kind {
            TableKind::Exact { .. } => self.declare_entries(table, "BPF_MAP_TYPE_HASH", size, ""),
            TableKind::Lpm { .. } => {
                let flags = "__uint(map_flags, BPF_F_NO_PREALLOC);";
                self.declare_entries(table, "BPF_MAP_TYPE_LPM_TRIE", size, flags);
            }
            TableKind::Ternary { map, masks_map, .. } => {
                let name = &table.c_name;
                self.types.line(format!("struct {name}_mask {{"));
                self.types.line(format!("struct {name}_key key;"));
                self.types.line("__u32 max_priority;");
                self.types.line("__u32 in_use;");
                self.types.line("};");
                self.types.line(format!("struct {name}_entry_key {{"));
                self.types.line("__u32 mask_index;");
                self.types.line("__u32 zero;");
                self.types.line(format!("struct {name}_key key;"));
                self.types.line("};");
                self.types.line(format!("struct {name}_entry {{"));
                self.types.line("__u32 priority;");
                self.types.line("__u32 zero;");
                self.types.line(format!("struct {name}_value value;"));
                self.types.line("};");
                let masks = MAX_MASKS.to_string();
                self.declare_map(
                    masks_map,
                    "BPF_MAP_TYPE_ARRAY",
                    "__u32",
                    &format!("struct {name}_mask"),
                    &masks,
                    "",
                );
                let (key, value) =
                    (format!("struct {name}_entry_key"), format!("struct {name}_entry"));
                self.declare_map(map, "BPF_MAP_TYPE_HASH", &key, &value, &size.to_string(), "");
            }
            TableKind::Const if in_tree => self.declare_tree(table),
            TableKind::Keyless | TableKind::Const => {}
        }
        let entries: Vec<manifest::Entry> = table
            .entries
            .iter()
            .enumerate()
            .map(|(index, entry)| {
                manifest_entry(self.program, table, entry, index, table.entries.len())
            })
            .collect();
        let (const_entries, initial_entries) =
            if table.const_entries { (entries, Vec::new()) } else { (Vec::new(), entries) };
        let actions = table
            .actions
            .iter()
            .map(|action| manifest::TableAction {
                action: action.action.0,
                default_only: action.default_only,
                table_only: action.table_only,
            })
            .collect();
        self.manifest.tables.push(manifest::Table {
            name: table.name.clone(),
            keys,
            actions,
            kind,
            default_map,
            default_action: manifest_call(self.program, table, &table.default_action),
            const_default: table.const_default,
            smallest_priority_wins: table.smallest_priority_wins,
            exchange: table.exchange,
            per_incarnation: table.per_incarnation,
            initial_entries,
            const_entries,
            size,
            value_bytes,
            direct_counter: counter,
            location: self.program.place(table.location),
        });
    }

    fn has_direct_counter(&self, table: &Table) -> bool {
        let is_counter = |instance: &ExternId| {
            self.program.externs[instance.index()].extern_type == "direct_counter"
        };
        table.attached.iter().any(|(_, instance)| is_counter(instance))
    }

    /// A default action that may change, or that counts, is an entry of a map; else it is code.
    fn default_in_map(&self, table: &Table) -> bool {
        !table.const_default || self.has_direct_counter(table)
    }

    /// `table.apply()`
    pub(crate) fn apply(
        &mut self,
        id: TableId,
        hit: Option<VariableId>,
        action_run: Option<VariableId>,
    ) {
        let program = self.program;
        let table = &program.tables[id.index()];
        let Some(kind) = self.manifest.tables.get(id.index()).map(|table| table.kind.clone())
        else {
            return;
        };
        self.open("");
        self.out.comment(&format!("table {}", table.name));
        let outer = self.applied.take();
        match &kind {
            TableKind::Keyless => self.apply_code(table, &[], hit, action_run),
            TableKind::Const if const_entries_in_tree(table) => {
                self.tree_lookup(table);
                self.apply_value(table, hit, action_run);
            }
            TableKind::Const => {
                let mut keys = Vec::new();
                for key in &table.keys {
                    let width = self.width(&key.expr);
                    let text = self.expr(&key.expr);
                    keys.push((self.temporary(&c_type(width), &text), width));
                }
                self.apply_code(table, &keys, hit, action_run);
            }
            TableKind::Exact { map, .. } => {
                self.fill_key(table, "key");
                self.entry_lookup(table, map);
                self.apply_value(table, hit, action_run);
            }
            TableKind::Lpm { map, .. } => {
                self.fill_lpm_key(table);
                self.entry_lookup(table, map);
                self.apply_value(table, hit, action_run);
            }
            TableKind::Ternary { map, masks_map, key_bytes, .. } => {
                self.fill_key(table, "key");
                self.ternary_lookup(table, map, masks_map, *key_bytes);
                self.apply_value(table, hit, action_run);
            }
        }
        self.applied = outer;
        self.out.line("}");
    }

    /// A local key struct with every byte defined.
    fn fill_key(&mut self, table: &Table, name: &str) {
        let mut values = Vec::new();
        for key in &table.keys {
            let width = self.width(&key.expr);
            values.push((self.expr(&key.expr), width));
        }
        self.out.line(format!("struct {}_key {name} = {{}};", table.c_name));
        for (index, (value, width)) in values.iter().enumerate() {
            if *width > 64 {
                self.out.line(format!("{name}.k{index}[0] = (__u64)({value});"));
                self.out.line(format!("{name}.k{index}[1] = sp_high64({value});"));
            } else {
                self.out.line(format!("{name}.k{index} = {value};"));
            }
        }
    }

    fn fill_lpm_key(&mut self, table: &Table) {
        let (mut values, mut last) = (Vec::new(), None);
        let mut bits = 0;
        for key in &table.keys {
            let width = self.width(&key.expr);
            let bytes = width.div_ceil(8);
            bits += bytes * 8;
            let mut value = self.expr(&key.expr);
            if key.match_kind == "lpm" {
                // The top bit comes first.
                let shift = bytes * 8 - width;
                if shift > 0 {
                    value = shift_left(&format!("({}){value}", c_type(bytes * 8)), shift, width);
                }
                last = Some(Bits { value, width: bytes * 8 });
            } else {
                values.push(Bits { value, width: bytes * 8 });
            }
        }
        values.extend(last);
        self.out
            .line(format!("struct {}_key key __attribute__((aligned(8))) = {{}};", table.c_name));
        self.out.line(format!("key.prefix_length = {bits};"));
        for run in runs(&values) {
            let shifted = crate::packet::Run { offset: run.offset + 4, ..run };
            for line in store_run("(__u8 *)&key", &shifted, true) {
                self.out.line(line);
            }
        }
    }

    pub(crate) fn set_hit(&mut self, hit: Option<VariableId>, text: &str) {
        if let Some(Place::Scalar(scalar)) =
            hit.and_then(|id| self.layout.variables.get(&id).cloned())
        {
            self.out.line(format!("{} = {text};", scalar.c));
        }
    }

    /// Runs the action of `value`, or the default.
    fn apply_value(
        &mut self,
        table: &Table,
        hit: Option<VariableId>,
        action_run: Option<VariableId>,
    ) {
        self.set_hit(hit, "value != 0");
        if self.counts_every_match(table) {
            self.open("if (value)");
            self.count_direct();
            self.out.line("}");
        }
        let default_in_map = self.default_in_map(table);
        if default_in_map {
            self.open("if (!value)");
            self.out.line("__u32 sp_zero = 0;");
            self.out
                .line(format!("value = bpf_map_lookup_elem(&{}_default, &sp_zero);", table.c_name));
            self.out.line("}");
        }
        self.open("if (value)");
        self.applied = Some(true);
        self.action_switch(table, action_run);
        if !default_in_map {
            self.out.line("} else {");
            self.applied = Some(false);
            self.constant_action(table, &table.default_action, action_run);
        }
        self.out.line("}");
    }

    /// v1model: a table with a direct counter whose actions do not call count() counts every match.
    fn counts_every_match(&self, table: &Table) -> bool {
        let Some((_, counter)) = table.attached.iter().find(|(_, instance)| {
            self.program.externs[instance.index()].extern_type == "direct_counter"
        }) else {
            return false;
        };
        let mut finder = CountFinder { counter: *counter, found: false };
        for action in &table.actions {
            crate::walk::block(&self.program.actions[action.action.index()].body, &mut finder);
        }
        !finder.found
    }

    /// Counts the packet on the entry in `value`.
    pub(crate) fn count_direct(&mut self) {
        self.out.line("__sync_fetch_and_add(&value->packets, 1);");
        self.out.line("__sync_fetch_and_add(&value->bytes, sp_bytes);");
    }

    pub(crate) fn action_switch(&mut self, table: &Table, action_run: Option<VariableId>) {
        self.set_hit(action_run, "value->action");
        self.open("switch (value->action)");
        for (index, entry) in table.actions.iter().enumerate() {
            self.open(&format!("case {index}:"));
            let action = &self.program.actions[entry.action.index()];
            for (position, variable) in action.parameters.iter().enumerate() {
                if let Some(Place::Scalar(scalar)) = self.layout.variables.get(variable).cloned() {
                    let member = format!("value->u.a{index}.p{position}");
                    let text = if scalar.width > 64 {
                        format!("SP_U128({member}[1], {member}[0])")
                    } else {
                        member
                    };
                    self.out.line(format!("{} = {text};", scalar.c));
                }
            }
            self.action_body(entry.action);
            self.out.line("break;");
            self.out.line("}");
        }
        self.out.line("}");
    }

    pub(crate) fn constant_action(
        &mut self,
        table: &Table,
        call: &ActionCall,
        action_run: Option<VariableId>,
    ) {
        self.set_hit(action_run, &format!("{}U", call.action));
        let Some(entry) = table.actions.get(call.action as usize) else { return };
        self.set_arguments(entry.action, &call.arguments);
        self.action_body(entry.action);
    }

    fn set_arguments(&mut self, action: p4_ir::ActionId, arguments: &[BigInt]) {
        let program = self.program;
        for (variable, argument) in program.actions[action.index()].parameters.iter().zip(arguments)
        {
            if let Some(Place::Scalar(scalar)) = self.layout.variables.get(variable).cloned() {
                self.out.line(format!("{} = {};", scalar.c, literal(argument, scalar.width)));
            }
        }
    }

    fn action_body(&mut self, action: p4_ir::ActionId) {
        let program = self.program;
        let action = &program.actions[action.index()];
        self.instances += 1;
        let instance = self.instances;
        let outer = std::mem::replace(&mut self.instance, instance);
        let end = format!("end_{}_{instance}", action.c_name);
        let outer_return = std::mem::replace(&mut self.return_label, end.clone());
        self.out.at(action.location);
        self.out.comment(&format!("action {}", action.name));
        self.block(&action.body);
        self.out.line(format!("{end}: ;"));
        self.return_label = outer_return;
        self.instance = outer;
    }
}

/// Looks for calls of a counter's methods.
struct CountFinder {
    counter: ExternId,
    found: bool,
}

impl Visitor for CountFinder {
    fn statement(&mut self, statement: &Statement) {
        if let StatementKind::Extern { instance, .. } = &statement.kind {
            self.found |= *instance == Some(self.counter);
        }
    }
}

/// A member of a map's key or value (see the manifest's documentation of scalars).
fn map_member(name: &str, width: u32) -> String {
    if width > 64 { format!("__u64 {name}[2]") } else { format!("{} {name}", c_type(width)) }
}

pub(crate) fn prefix_length(matched: &Match, width: u32) -> u32 {
    match matched {
        Match::Any => 0,
        Match::Mask { mask, .. } => mask.iter_u64_digits().map(u64::count_ones).sum(),
        _ => width,
    }
}

/// A number's bits, as the manifest has them: not negative.
fn bits_text(value: &BigInt, width: u32) -> String {
    if value < &BigInt::zero() {
        (value + (BigInt::from(1) << width)).to_string()
    } else {
        value.to_string()
    }
}

fn manifest_call(program: &Program, table: &Table, call: &ActionCall) -> manifest::ActionCall {
    let action = table
        .actions
        .get(call.action as usize)
        .and_then(|listed| program.actions.get(listed.action.index()));
    let parameters = action.map_or(&[][..], |action| &action.parameters);
    let width =
        |variable: &VariableId| scalar_width(&program.variables[variable.index()].ty).unwrap_or(0);
    let arguments = parameters
        .iter()
        .zip(&call.arguments)
        .map(|(variable, value)| bits_text(value, width(variable)));
    manifest::ActionCall { action: call.action, arguments: arguments.collect() }
}

fn manifest_entry(
    program: &Program,
    table: &Table,
    entry: &Entry,
    index: usize,
    count: usize,
) -> manifest::Entry {
    let matches = table
        .keys
        .iter()
        .zip(&entry.matches)
        .map(|(key, matched)| {
            let width = scalar_width(&key.expr.ty).unwrap_or(0);
            match matched {
                Match::Value(value) => KeyMatch::Exact { value: bits_text(value, width) },
                Match::Mask { value, mask } if key.match_kind == "lpm" => KeyMatch::Prefix {
                    value: (value & mask).to_string(),
                    length: prefix_length(matched, width),
                },
                Match::Mask { value, mask } => {
                    KeyMatch::Mask { value: value.to_string(), mask: mask.to_string() }
                }
                Match::Range { low, high } => {
                    KeyMatch::Range { low: bits_text(low, width), high: bits_text(high, width) }
                }
                Match::Any | Match::ValueSet(_) => KeyMatch::Any,
            }
        })
        .collect();
    let given = entry.priority.as_ref().and_then(ToPrimitive::to_u32);
    let priority = given.unwrap_or((count - index) as u32);
    manifest::Entry { matches, action: manifest_call(program, table, &entry.action), priority }
}

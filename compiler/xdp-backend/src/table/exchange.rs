//! Tables whose entries are exchanged as one (`stateplane_exchange`): an array of one map, whose
//! element is the map with the entries. A packet that has looked up the element keeps that map, and
//! nobody writes to it any more.

use super::*;

const EXCHANGE: &str = "stateplane_exchange";
const PER_INCARNATION: &str = "stateplane_per_incarnation";

impl Generator<'_> {
    /// Refuses what one map with entries cannot hold, or what would bring entries back.
    pub(super) fn check_exchange(&mut self, table: &Table, kind: &TableKind, direct: bool) {
        let mut refuse = |property: &str, why: &str, help: &str| {
            let message = format!("table {}: {property}: {why}", table.name);
            self.error(table.location, &message, Some(help));
        };
        if table.per_incarnation && !table.exchange {
            let why = "only entries that are exchanged as one can hold for one incarnation";
            refuse(PER_INCARNATION, why, "write `stateplane_exchange = true;` beside it");
        }
        if table.per_incarnation && !table.entries.is_empty() {
            let why = "entries of the program would hold in every incarnation";
            refuse(PER_INCARNATION, why, "leave `entries` out: the control plane gives them");
        }
        if !table.exchange {
            return;
        }
        match kind {
            _ if table.const_entries => {
                refuse(EXCHANGE, "const entries are never exchanged", "leave one of the two out");
            }
            TableKind::Keyless | TableKind::Const => {
                refuse(EXCHANGE, "a table without a key has no entries", "give it a key");
            }
            TableKind::Ternary { .. } => {
                let why = "the entries of a table with ternary keys are in two maps";
                refuse(EXCHANGE, why, "match its keys as exact, or one of them as lpm");
            }
            TableKind::Exact { .. } | TableKind::Lpm { .. } => {}
        }
        if !table.const_default {
            let why = "a default action that can be changed is not exchanged with the entries";
            refuse(EXCHANGE, why, "write `const default_action`");
        }
        if direct {
            let why = "a direct counter would lose what it counts during an exchange";
            refuse(EXCHANGE, why, "use a counter, with an index of your own for each entry");
        }
    }

    /// Declares the map of a table's entries.
    pub(super) fn declare_entries(&mut self, table: &Table, kind: &str, size: u64, more: &str) {
        let name = &table.c_name;
        let (key, value) = (format!("struct {name}_key"), format!("struct {name}_value"));
        if !table.exchange {
            return self.declare_map(name, kind, &key, &value, &size.to_string(), more);
        }
        self.types.line(format!("struct {name}_entries {{"));
        // Sizes, not types: clang only forward-declares types so far behind a pointer.
        for (member, of) in [("key_size", &key), ("value_size", &value)] {
            self.types.line(format!("__uint({member}, sizeof({of}));"));
        }
        self.types.line(format!("__uint(type, {kind});"));
        self.types.line(format!("__uint(max_entries, {size});"));
        if !more.is_empty() {
            self.types.line(more);
        }
        self.types.line("};");
        let values = format!("__array(values, struct {name}_entries);");
        self.types.line("struct {");
        self.types.line("__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);");
        self.types.line("__type(key, __u32);");
        self.types.line("__uint(max_entries, 1);");
        self.types.line(values);
        self.types.line(format!("}} {name} SEC(\".maps\");"));
    }

    /// `value`: what the map of a table's entries has for `key`.
    pub(super) fn entry_lookup(&mut self, table: &Table, map: &str) {
        let value = format!("struct {}_value *value", table.c_name);
        if !table.exchange {
            return self.out.line(format!("{value} = bpf_map_lookup_elem(&{map}, &key);"));
        }
        self.out.line("__u32 sp_first = 0;");
        self.out.line(format!("void *sp_entries = bpf_map_lookup_elem(&{map}, &sp_first);"));
        self.out.line(format!("{value} = sp_entries ? bpf_map_lookup_elem(sp_entries, &key) : 0;"));
    }
}

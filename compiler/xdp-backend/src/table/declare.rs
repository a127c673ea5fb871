//! Declarations of a table: its map, key and value in C and in the manifest.

use super::*;
use crate::wire::manifest_enumeration;
use p4_ir::match_kind::{Compares, match_kind};

fn compares(key: &Key) -> Option<Compares> {
    match_kind(&key.match_kind).map(|kind| kind.compares)
}

impl Generator<'_> {
    pub(super) fn manifest_keys(&mut self, table: &Table) -> Vec<manifest::Key> {
        table
            .keys
            .iter()
            .map(|key| {
                let width = scalar_width(&key.expr.ty).unwrap_or(0);
                if width == 0 || width > 128 {
                    self.error(
                        key.location,
                        &format!("a key of {width} bits: the XDP target has 1 to 128"),
                        None,
                    );
                }
                manifest::Key {
                    name: key.name.clone(),
                    match_kind: key.match_kind.clone(),
                    width,
                    offset: 0,
                    bytes: scalar_bytes(width),
                    enumeration: manifest_enumeration(self.program, &key.expr.ty, key.enumeration),
                }
            })
            .collect()
    }

    /// Chooses the layout; fills in the keys' offsets and declares the key's struct.
    pub(super) fn table_kind(&mut self, table: &Table, keys: &mut [manifest::Key]) -> TableKind {
        if table.keys.is_empty() {
            return TableKind::Keyless;
        }
        let in_code = table.const_entries && !const_entries_in_map(table);
        for key in &table.keys {
            let works = match compares(key) {
                Some(Compares::All | Compares::Prefix | Compares::Mask) => true,
                Some(Compares::AllOrNone) => table.const_entries,
                Some(Compares::Interval) => in_code,
                Some(Compares::Nothing) | None => false,
            };
            if !works {
                self.unsupported_key(key);
            }
        }
        if in_code {
            return TableKind::Const;
        }
        let name = &table.c_name;
        let count = |wanted| table.keys.iter().filter(|key| compares(key) == Some(wanted)).count();
        let masked = count(Compares::Mask) + count(Compares::AllOrNone);
        let prefixes = count(Compares::Prefix);
        if masked == 0 && prefixes == 1 {
            let mut offset = 4;
            for lpm in [false, true] {
                for key in keys.iter_mut().filter(|key| (key.match_kind == "lpm") == lpm) {
                    key.offset = offset;
                    key.bytes = key.width.div_ceil(8);
                    offset += key.bytes;
                }
            }
            let key_bytes = round_up(offset, 4);
            self.types.line(format!("struct {name}_key {{"));
            self.types.line("__u32 prefix_length;");
            self.types.line(format!("__u8 bytes[{}];", key_bytes - 4));
            self.types.line("};");
            if offset > 4 + 256 {
                self.error(table.location, "an LPM table's keys may take 256 bytes", None);
            }
            return TableKind::Lpm { map: name.clone(), key_bytes };
        }
        let key_bytes = self.declare_key(name, keys);
        if masked == 0 && prefixes == 0 {
            return TableKind::Exact { map: name.clone(), key_bytes };
        }
        TableKind::Ternary {
            map: name.clone(),
            masks_map: format!("{name}_masks"),
            max_masks: MAX_MASKS,
            key_bytes,
        }
    }

    pub(super) fn unsupported_key(&mut self, key: &Key) {
        let message = format!(
            "match kind {} of key {} is not supported by the XDP target yet",
            key.match_kind, key.name
        );
        self.error(
            key.location,
            &message,
            Some("exact, lpm and ternary keys work; range and optional in const entries"),
        );
    }

    /// The struct of all keys, naturally aligned, with named padding so that no byte is undefined.
    pub(super) fn declare_key(&mut self, name: &str, keys: &mut [manifest::Key]) -> u32 {
        self.types.line(format!("struct {name}_key {{"));
        let mut offset = 0;
        let mut widest = 4;
        let mut pads = 0;
        for (index, key) in keys.iter_mut().enumerate() {
            let align = alignment(key.bytes);
            widest = widest.max(align);
            let aligned = round_up(offset, align);
            if aligned > offset {
                self.types.line(format!("__u8 pad{pads}[{}];", aligned - offset));
                pads += 1;
            }
            key.offset = aligned;
            self.types.line(format!("{};", map_member(&format!("k{index}"), key.width)));
            offset = aligned + key.bytes;
        }
        let total = round_up(offset, widest);
        if total > offset {
            self.types.line(format!("__u8 pad{pads}[{}];", total - offset));
        }
        self.types.line("};");
        total
    }

    /// The value's size, and where the direct counter is.
    pub(crate) fn value_layout(&self, table: &Table, direct: bool) -> (u32, Option<u32>) {
        let mut bytes = 8;
        for action in &table.actions {
            if let Some(action) = self.manifest.actions.get(action.action.index()) {
                for parameter in &action.parameters {
                    bytes = bytes.max(parameter.offset + parameter.bytes);
                }
            }
        }
        let bytes = round_up(bytes, 8);
        if direct { (bytes + 16, Some(bytes)) } else { (bytes, None) }
    }

    pub(super) fn declare_value(&mut self, table: &Table, counter: Option<u32>) {
        self.types.line(format!("struct {}_value {{", table.c_name));
        self.types.line("__u32 action;");
        self.types.line("__u32 zero;");
        self.types.line("union {");
        let mut any = false;
        for (index, entry) in table.actions.iter().enumerate() {
            let action = &self.program.actions[entry.action.index()];
            if action.parameters.is_empty() {
                continue;
            }
            any = true;
            self.types.line("struct {");
            for (position, variable) in action.parameters.iter().enumerate() {
                let width =
                    scalar_width(&self.program.variables[variable.index()].ty).unwrap_or(32);
                self.types.line(format!("{};", map_member(&format!("p{position}"), width)));
            }
            self.types.line(format!("}} a{index};"));
        }
        self.types.line(format!("}} u{};", if any { " __attribute__((aligned(8)))" } else { "" }));
        if counter.is_some() {
            self.types.line("__u64 packets __attribute__((aligned(8)));");
            self.types.line("__u64 bytes;");
        }
        self.types.line("} __attribute__((aligned(8)));");
    }

    /// Declares a BPF map.
    pub(crate) fn declare_map(
        &mut self,
        name: &str,
        kind: &str,
        key: &str,
        value: &str,
        entries: &str,
        more: &str,
    ) {
        self.types.line("struct {");
        self.types.line(format!("__uint(type, {kind});"));
        self.types.line(format!("__type(key, {key});"));
        self.types.line(format!("__type(value, {value});"));
        self.types.line(format!("__uint(max_entries, {entries});"));
        if !more.is_empty() {
            self.types.line(more);
        }
        self.types.line(format!("}} {name} SEC(\".maps\");"));
    }

    /// The actions' parameters, for the manifest.
    pub(crate) fn declare_actions(&mut self) {
        for action in &self.program.actions {
            let mut offset = 8;
            let mut parameters = Vec::new();
            let named = action.parameter_names.iter().zip(&action.parameter_enumerations);
            for (variable, (name, declared)) in action.parameters.iter().zip(named) {
                let ty = &self.program.variables[variable.index()].ty;
                let width = scalar_width(ty).unwrap_or(0);
                if width == 0 || width > 128 {
                    self.error(
                        action.location,
                        &format!("parameter {name} of {width} bits: the XDP target has 1 to 128"),
                        None,
                    );
                }
                let bytes = scalar_bytes(width);
                offset = round_up(offset, alignment(bytes));
                let enumeration = manifest_enumeration(self.program, ty, *declared);
                let name = name.clone();
                parameters.push(manifest::Parameter { name, width, offset, bytes, enumeration });
                offset += bytes;
            }
            let own_destination = action.annotations.iter().any(|it| it.name == "own_destination");
            let name = action.name.clone();
            self.manifest.actions.push(manifest::Action { name, parameters, own_destination });
        }
    }
}

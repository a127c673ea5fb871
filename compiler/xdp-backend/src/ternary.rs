//! Ternary tables in C: tuple space search, one hash lookup a mask, masks in order of falling
//! priority, until none can win.

use crate::emit::Writer;
use crate::generator::Generator;
use crate::mutations::{Mutation, planted};
use crate::table::MAX_MASKS;
use manifest::TableKind;
use p4_ir::Table;

/// Up to this many (ways through the parser × ternary tables) the search is a plain loop. The
/// verifier follows that one round by round, each time that it comes by; a callback of bpf_loop()
/// only until nothing new happens.
const FEW_SEARCHES: u64 = 8;

impl Generator<'_> {
    /// Leaves the entry's value, or a null pointer, in `value`.
    pub(crate) fn ternary_lookup(&mut self, table: &Table, map: &str, masks: &str, key_bytes: u32) {
        let name = &table.c_name;
        let is_ternary = |table: &&manifest::Table| matches!(table.kind, TableKind::Ternary { .. });
        let searches = self.manifest.tables.iter().filter(is_ternary).count() as u64;
        if searches.saturating_mul(self.facts.parser_paths) <= FEW_SEARCHES {
            self.out.line(format!("struct {name}_value *value = 0;"));
            self.out.line("__u32 sp_best = 0;");
            self.open(&format!("for (__u32 sp_mask = 0; sp_mask < {MAX_MASKS}; sp_mask++)"));
            let names = Names { key: "key", value: "value", best: "sp_best", stop: "break;" };
            round(&mut self.out, name, map, masks, key_bytes, &names);
            self.out.line("}");
            return;
        }
        if self.searched.insert(name.clone()) {
            self.declare_search(name, map, masks, key_bytes);
        }
        self.out.line(format!("struct {name}_search sp_search = {{ .key = &key }};"));
        self.out.line(format!("bpf_loop({MAX_MASKS}, {name}_round, &sp_search, 0);"));
        self.out.line(format!("struct {name}_value *value = sp_search.value;"));
    }

    fn declare_search(&mut self, name: &str, map: &str, masks: &str, key_bytes: u32) {
        let text = &mut self.types;
        text.line(format!("struct {name}_search {{"));
        text.line(format!("const struct {name}_key *key;"));
        text.line(format!("struct {name}_value *value;"));
        text.line("__u64 best;");
        text.line("};");
        text.line(format!("static long {name}_round(__u32 sp_mask, void *context)"));
        text.line("{");
        text.line(format!("struct {name}_search *sp_search = context;"));
        let names = Names {
            key: "(*sp_search->key)",
            value: "sp_search->value",
            best: "sp_search->best",
            stop: "return 1;",
        };
        round(text, name, map, masks, key_bytes, &names);
        text.line("return 0;");
        text.line("}");
    }
}

/// What the search's variables are called.
struct Names<'a> {
    key: &'a str,
    value: &'a str,
    best: &'a str,
    /// Ends the search.
    stop: &'a str,
}

/// Tries the mask with the number `sp_mask`.
fn round(out: &mut Writer, name: &str, map: &str, masks: &str, key_bytes: u32, names: &Names<'_>) {
    let Names { key, value, best, stop } = names;
    out.line("__u32 sp_index = sp_mask;");
    out.line(format!("struct {name}_mask *mask = bpf_map_lookup_elem(&{masks}, &sp_index);"));
    out.line(format!(
        "if (!mask || !mask->in_use || ({value} && mask->max_priority <= {best})) {stop}"
    ));
    out.line(format!("struct {name}_entry_key masked;"));
    out.line("masked.mask_index = sp_mask;");
    out.line("masked.zero = 0;");
    // The key struct is a multiple of 4 bytes and aligned to 4 at least.
    let (word, step) = if key_bytes.is_multiple_of(8) { ("sp_u64a", 8) } else { ("sp_u32a", 4) };
    for offset in (0..key_bytes).step_by(step) {
        out.line(format!(
            "*({word} *)((__u8 *)&masked.key + {offset}) = *({word} *)((__u8 *)&{key} + {offset}) & *({word} *)((__u8 *)&mask->key + {offset});"
        ));
    }
    out.line(format!("struct {name}_entry *entry = bpf_map_lookup_elem(&{map}, &masked);"));
    out.line(if planted(Mutation::AnyTernaryEntry) {
        "if (entry) {".to_owned()
    } else {
        format!("if (entry && (!{value} || entry->priority > {best})) {{")
    });
    out.line(format!("{value} = &entry->value;"));
    out.line(format!("{best} = entry->priority;"));
    out.line("}");
}

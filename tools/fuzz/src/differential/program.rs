//! Whole programs.

use super::control::{Control, Parameter, checksums, control, function, sub_control};
use super::parser::parser;
use super::shape::{Shape, declare_types, keep_layout, shape};
use super::{effects, moves, object, standard};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A P4 text of one or more generated programs.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The P4 text, without the include files.
    pub text: String,
    /// How many programs: the packets of ports 0, 1, … are theirs.
    pub programs: u32,
    /// Whether it is for two CPUs at once ([`super::two_cpus`]).
    pub on_two_cpus: bool,
}

/// One generated program's parts.
struct Part {
    /// Types, parser, controls.
    lines: Vec<String>,
    /// What the deparser emits, below `hdr`.
    emits: Vec<String>,
}

const BLOCKS: [&str; 4] = ["Verify", "Ingress", "Egress", "Compute"];
const HEADERS: &str = "inout H hdr, inout M meta";
/// The last parameter of a control that sees the intrinsic metadata.
pub(super) const STANDARD: &str = ", inout standard_metadata_t sm";

/// The programs of these seeds in one text.
pub fn generate(seeds: &[u64]) -> Generated {
    let parts: Vec<Part> = (0..).zip(seeds).map(|(number, seed)| part(number, *seed)).collect();
    let mut lines: Vec<String> = parts.iter().flat_map(|part| part.lines.clone()).collect();
    let blocks: Vec<String> = if let [part] = &parts[..] {
        lines.push("control OwnDeparser(packet_out pkt, in s0_headers_t hdr) {".into());
        lines.push("    apply {".into());
        lines.extend(part.emits.iter().map(|path| emit("hdr", path)));
        lines.extend(["    }".into(), "}".into()]);
        std::iter::once("Parser").chain(BLOCKS).map(|block| format!("s0_{block}()")).collect()
    } else {
        top(&parts, &mut lines);
        std::iter::once("Parser").chain(BLOCKS).map(|block| format!("Top{block}()")).collect()
    };
    lines.push(format!("V1Switch({}, OwnDeparser()) main;", blocks.join(", ")));
    Generated { text: lines.join("\n") + "\n", programs: parts.len() as u32, on_two_cpus: false }
}

/// Emits what is at a path below the headers; in what begins with `!`, `@` stands for the headers.
fn emit(headers: &str, path: &str) -> String {
    match path.strip_prefix('!') {
        Some(text) => format!("        pkt.emit({});", text.replace('@', headers)),
        None => format!("        pkt.emit({headers}.{path});"),
    }
}

/// The blocks that pass a packet on to its program's.
fn top(parts: &[Part], lines: &mut Vec<String>) {
    for (what, short) in [("headers", "headers_t"), ("meta", "meta_t")] {
        lines.push(format!("struct {short} {{"));
        lines.extend((0..parts.len()).map(|number| format!("    s{number}_{short} s{number};")));
        lines.push("}".into());
        let _ = what;
    }
    lines.push(
        "parser TopParser(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {".into(),
    );
    lines.extend((0..parts.len()).map(|number| format!("    s{number}_Parser() p{number};")));
    lines.extend(
        ["    state start {", "        transition select(sm.ingress_port) {"].map(String::from),
    );
    lines.extend((0..parts.len()).map(|number| format!("            {number}: go{number};")));
    lines.extend(["            default: accept;", "        }", "    }"].map(String::from));
    for number in 0..parts.len() {
        lines.push(format!("    state go{number} {{"));
        lines.push(format!("        p{number}.apply(pkt, hdr.s{number}, meta.s{number}, sm);"));
        lines.extend(["        transition accept;", "    }"].map(String::from));
    }
    lines.push("}".into());
    for block in BLOCKS {
        let standard = ["Ingress", "Egress"].contains(&block);
        let extra = if standard { STANDARD } else { "" };
        let head = HEADERS.replace('H', "headers_t").replace('M', "meta_t");
        lines.push(format!("control Top{block}({head}{extra}) {{"));
        let last = if standard { ", sm" } else { "" };
        if standard {
            lines.extend(
                (0..parts.len()).map(|number| format!("    s{number}_{block}() c{number};")),
            );
            lines.push("    apply {".into());
            for number in 0..parts.len() {
                lines.push(format!("        if (sm.ingress_port == {number}) {{"));
                lines.push(format!(
                    "            c{number}.apply(hdr.s{number}, meta.s{number}{last});"
                ));
                lines.push("        }".into());
            }
        } else {
            lines.extend(
                (0..parts.len()).map(|number| format!("    s{number}_{block}() c{number};")),
            );
            lines.push("    apply {".into());
            lines.extend(
                (0..parts.len()).map(|number| {
                    format!("        c{number}.apply(hdr.s{number}, meta.s{number});")
                }),
            );
        }
        lines.extend(["    }".into(), "}".into()]);
    }
    lines.push("control OwnDeparser(packet_out pkt, in headers_t hdr) {".into());
    lines.push("    apply {".into());
    for (number, part) in parts.iter().enumerate() {
        lines.extend(part.emits.iter().map(|path| emit(&format!("hdr.s{number}"), path)));
    }
    lines.extend(["    }".into(), "}".into()]);
}

/// Whether packets leave the program of this seed with the headers that they came with, in the same
/// places. The compiler can see that only if the program is alone in its object.
pub(super) fn keeps_layout(seed: u64) -> bool {
    StdRng::seed_from_u64(seed ^ 0x001a_7007).random_bool(0.08)
}

fn part(number: u32, seed: u64) -> Part {
    let random = &mut StdRng::seed_from_u64(seed);
    let prefix = format!("s{number}_");
    let mut lines = Vec::new();
    let mut shape = shape(&prefix, random);
    shape.object = random.random_bool(0.1).then(|| object::draw(&prefix, random)).flatten();
    // Its own draw: the other programs of a seed stay what they were.
    shape.loops = StdRng::seed_from_u64(!seed).random_bool(0.1);
    let own = &mut StdRng::seed_from_u64(seed ^ 0x0057_a4da);
    if own.random_bool(0.3) {
        shape.standard = standard::draw(own);
    }
    shape.varbit_twin = own.random_bool(0.5);
    if keeps_layout(seed) {
        keep_layout(&mut shape, own);
    }
    declare_types(&shape, &mut lines);
    for index in 0..random.random_range(0..3) {
        function(&mut shape, index, random, &mut lines);
    }
    let (h, m) = (format!("{prefix}headers_t"), format!("{prefix}meta_t"));
    parser(&shape, random, &mut lines);
    let head = HEADERS.replace('H', &h).replace('M', &m);
    checksums(&shape, random, &head, "Verify", &mut lines);
    // What they get headers by is a copy in and out.
    let subs = if shape.keeps_layout { 0 } else { [0, 0, 1, 2][random.random_range(0..4)] };
    for index in 0..subs {
        sub_control(&mut shape, index, random, &head, &mut lines);
    }
    let mut block = |name: &str, budget: usize, random: &mut StdRng| {
        let parameters = vec![Parameter::Whole];
        let of = Control { block: name, head: format!("{head}{STANDARD}"), parameters, budget };
        control(&shape, random, &of, &mut lines);
    };
    let budget = random.random_range(3..9);
    block("Ingress", budget, random);
    let idle = shape.standard.is_empty() && random.random_bool(0.5);
    let budget = if idle { 0 } else { random.random_range(1..4) };
    block("Egress", budget, random);
    checksums(&shape, random, &head, "Compute", &mut lines);
    // Drawn from a seed of its own: the rest of the program is the same with and without.
    let own = &mut StdRng::seed_from_u64(seed ^ 0x0eff_ec75);
    if own.random_bool(0.5) {
        let mut before = Vec::new();
        effects::declare(&prefix, own, &mut before);
        lines.splice(0..0, before);
        effects::apply(&prefix, &mut lines);
    }
    let mut emits = emits(&shape, random);
    let own = &mut StdRng::seed_from_u64(seed ^ 0x0060_0e55);
    if own.random_bool(0.5) && !shape.keeps_layout {
        let (mut types, mut before) = (Vec::new(), Vec::new());
        moves::types(&prefix, &mut types);
        moves::declare(&prefix, own, &mut before);
        let head = format!("parser {prefix}Parser(");
        let at = lines.iter().position(|line| line.starts_with(&head)).unwrap_or(0);
        lines.splice(at..at, before);
        lines.splice(0..0, types);
        moves::apply(&prefix, own, &mut lines);
        emits.insert(own.random_range(0..=emits.len()), "mx".into());
        if own.random_bool(0.15) {
            emits.push(format!("!{prefix}mcopy(@.mx.h)"));
        }
    }
    Part { emits, lines }
}

/// What is emitted: all headers in the parser's order; now and then in another, or not all.
fn emits(shape: &Shape, random: &mut StdRng) -> Vec<String> {
    let mut emits: Vec<String> = shape.headers.iter().map(|(name, _)| name.clone()).collect();
    emits.extend(shape.stack.iter().map(|(name, _, _)| name.clone()));
    emits.extend(shape.union.iter().map(|_| "un".to_owned()));
    emits
        .extend(shape.varbits().iter().map(|(path, _)| path.trim_start_matches("hdr.").to_owned()));
    if shape.keeps_layout {
        return emits;
    }
    // A struct is emitted with all that is in it.
    if random.random_bool(0.3) && emits.iter().any(|path| path.starts_with("grp.")) {
        let at = emits.iter().position(|path| path.starts_with("grp.")).unwrap_or(0);
        emits.retain(|path| !path.starts_with("grp."));
        emits.insert(at, "grp".to_owned());
    }
    if random.random_bool(0.2) {
        let at = random.random_range(0..emits.len());
        let moved = emits.remove(at);
        emits.insert(random.random_range(0..=emits.len()), moved);
    }
    if random.random_bool(0.1) {
        emits.remove(random.random_range(0..emits.len()));
    }
    emits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the page says that generated programs have is in some of them.
    #[test]
    fn the_grammar_has_everything() {
        let texts: Vec<String> = (0..400).map(|seed| generate(&[seed]).text).collect();
        let methods: Vec<String> = object::methods().map(|method| format!(".{method}(")).collect();
        assert!(!methods.is_empty(), "no system has state objects for generated programs");
        let wanted = [
            "varbit<",
            "header_union",
            ".next);",
            ".push_front(",
            " |+| ",
            " ++ ",
            "hash(",
            "switch (",
            "exit;",
            "verify_checksum",
            // nested structs and controls
            "hdr.grp.inner.z",
            "pkt.emit(hdr.grp);",
            ".deep.f0",
            "control s0_Sub1(",
            "i1.apply(",
            "out bit<",
            // wide values, direct counters
            " w0;",
            ".w == ",
            "    counters = d0;",
            "d0.count();",
            // effects in every position
            "s0_ef1(y = ",
            "s0_ef3(",
            "s0_ep_t){ b = ",
            "setInvalid();",
            "inner.apply(",
            "effects.apply(pkt, ",
            "priority = ",
            "largest_priority_wins = false",
            "priority_delta = ",
            "change(",
        ];
        for construct in wanted.into_iter().chain(methods.iter().map(String::as_str)) {
            assert!(
                texts.iter().any(|text| text.contains(construct)),
                "no generated program has `{construct}`"
            );
        }
    }
}

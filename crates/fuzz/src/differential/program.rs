//! Whole programs.

use super::statement::{Action, Array, Body, Function, Table};
use super::types::{HeaderType, Named, Ty, header_fields, literal, scalar};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A P4 text of one or more generated programs.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The P4 text, without the include files.
    pub text: String,
    /// How many programs: the packets of ports 0, 1, … are theirs.
    pub programs: u32,
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
const STANDARD: &str = ", inout standard_metadata_t sm";

/// The programs of these seeds in one text.
pub fn generate(seeds: &[u64]) -> Generated {
    let parts: Vec<Part> = (0..).zip(seeds).map(|(number, seed)| part(number, *seed)).collect();
    let mut lines: Vec<String> = parts.iter().flat_map(|part| part.lines.clone()).collect();
    let emit = |path: &str| format!("        pkt.emit(hdr.{path});");
    let blocks: Vec<String> = if let [part] = &parts[..] {
        lines.push("control OwnDeparser(packet_out pkt, in s0_headers_t hdr) {".into());
        lines.push("    apply {".into());
        lines.extend(part.emits.iter().map(|path| emit(path)));
        lines.extend(["    }".into(), "}".into()]);
        std::iter::once("Parser").chain(BLOCKS).map(|block| format!("s0_{block}()")).collect()
    } else {
        top(&parts, &mut lines);
        std::iter::once("Parser").chain(BLOCKS).map(|block| format!("Top{block}()")).collect()
    };
    lines.push(format!("V1Switch({}, OwnDeparser()) main;", blocks.join(", ")));
    Generated { text: lines.join("\n") + "\n", programs: parts.len() as u32 }
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
    lines.extend(["    state start {", "        transition select(sm.ingress_port) {"].map(String::from));
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
            lines.extend((0..parts.len()).map(|number| format!("    s{number}_{block}() c{number};")));
            lines.push("    apply {".into());
            for number in 0..parts.len() {
                lines.push(format!("        if (sm.ingress_port == {number}) {{"));
                lines.push(format!("            c{number}.apply(hdr.s{number}, meta.s{number}{last});"));
                lines.push("        }".into());
            }
        } else {
            lines.extend((0..parts.len()).map(|number| format!("    s{number}_{block}() c{number};")));
            lines.push("    apply {".into());
            lines.extend(
                (0..parts.len()).map(|number| format!("        c{number}.apply(hdr.s{number}, meta.s{number});")),
            );
        }
        lines.extend(["    }".into(), "}".into()]);
    }
    lines.push("control OwnDeparser(packet_out pkt, in headers_t hdr) {".into());
    lines.push("    apply {".into());
    for (number, part) in parts.iter().enumerate() {
        lines.extend(part.emits.iter().map(|path| format!("        pkt.emit(hdr.s{number}.{path});")));
    }
    lines.extend(["    }".into(), "}".into()]);
}

/// What a program has, besides text.
struct Shape {
    prefix: String,
    header_types: Vec<HeaderType>,
    /// (name below `hdr`, index of the type)
    headers: Vec<(String, usize)>,
    stack: Option<(String, usize, u32)>,
    union: Option<Vec<(String, usize)>>,
    varbit: Option<usize>,
    meta: Vec<Named>,
    functions: Vec<Function>,
    arrays: Vec<Array>,
}

impl Shape {
    fn named(&self, path: &str, kind: usize) -> Vec<Named> {
        let fields = &self.header_types[kind].fields;
        fields.iter().map(|(name, ty)| Named { path: format!("{path}.{name}"), ty: *ty }).collect()
    }

    /// All headers without varbit, by path.
    fn all_headers(&self) -> Vec<(String, usize)> {
        let mut all: Vec<(String, usize)> =
            self.headers.iter().map(|(name, kind)| (format!("hdr.{name}"), *kind)).collect();
        if let Some((name, kind, size)) = &self.stack {
            all.extend((0..*size).map(|index| (format!("hdr.{name}[{index}]"), *kind)));
        }
        if let Some(members) = &self.union {
            all.extend(members.iter().map(|(name, kind)| (format!("hdr.un.{name}"), *kind)));
        }
        all
    }

    fn body<'a>(&'a self, random: &'a mut StdRng, standard: bool) -> Body<'a> {
        let headers = self.all_headers();
        let mut readable: Vec<Named> = headers.iter().flat_map(|(path, kind)| self.named(path, *kind)).collect();
        if let Some(kind) = self.varbit {
            readable.extend(self.named("hdr.vb", kind));
        }
        readable.extend(self.meta.iter().cloned());
        let writable = readable.clone();
        if standard {
            for (name, width) in [("ingress_port", 9), ("packet_length", 32), ("egress_spec", 9), ("egress_port", 9)] {
                readable.push(Named { path: format!("sm.{name}"), ty: Ty::bits(width) });
            }
        }
        Body {
            random,
            header_types: &self.header_types,
            readable,
            writable,
            headers,
            stacks: self.stack.iter().map(|(name, kind, _)| (format!("hdr.{name}"), *kind)).collect(),
            functions: self.functions.clone(),
            actions: Vec::new(),
            tables: Vec::new(),
            arrays: Vec::new(),
            in_control: standard,
            may_exit: standard,
            lines: Vec::new(),
            indent: 2,
            locals: 0,
        }
    }
}

fn part(number: u32, seed: u64) -> Part {
    let random = &mut StdRng::seed_from_u64(seed);
    let prefix = format!("s{number}_");
    let mut lines = Vec::new();
    let mut shape = shape(&prefix, random);
    declare_types(&shape, &mut lines);
    for index in 0..random.random_range(0..3) {
        function(&mut shape, index, random, &mut lines);
    }
    let (h, m) = (format!("{prefix}headers_t"), format!("{prefix}meta_t"));
    parser(&shape, random, &mut lines);
    let head = HEADERS.replace('H', &h).replace('M', &m);
    checksums(&shape, random, &head, "Verify", &mut lines);
    let budget = random.random_range(3..9);
    control(&mut shape, random, &head, "Ingress", budget, &mut lines);
    let budget = if random.random_bool(0.5) { 0 } else { random.random_range(1..4) };
    control(&mut shape, random, &head, "Egress", budget, &mut lines);
    checksums(&shape, random, &head, "Compute", &mut lines);
    Part { emits: emits(&shape, random), lines }
}

fn shape(prefix: &str, random: &mut StdRng) -> Shape {
    let mut header_types: Vec<HeaderType> = (0..random.random_range(2..4))
        .map(|index| HeaderType { name: format!("{prefix}t{index}"), fields: header_fields(random), varbit: None })
        .collect();
    let plain = header_types.len();
    let headers = (0..random.random_range(1..4)).map(|i| (format!("h{i}"), random.random_range(0..plain))).collect();
    let stack =
        random.random_bool(0.35).then(|| ("st".to_owned(), random.random_range(0..plain), random.random_range(2..4)));
    let union = random.random_bool(0.2).then(|| vec![("a".to_owned(), 0), ("b".to_owned(), 1)]);
    let varbit = random.random_bool(0.12).then(|| {
        let length = [32, 64, 120][random.random_range(0..3)];
        let fields = vec![("f0".to_owned(), Ty::bits(3)), ("f1".to_owned(), Ty::bits(5))];
        header_types.push(HeaderType { name: format!("{prefix}t{plain}"), fields, varbit: Some(length) });
        plain
    });
    let meta = (0..random.random_range(1..5))
        .map(|index| Named { path: format!("meta.m{index}"), ty: scalar(random) })
        .collect();
    Shape {
        prefix: prefix.to_owned(),
        header_types,
        headers,
        stack,
        union,
        varbit,
        meta,
        functions: Vec::new(),
        arrays: Vec::new(),
    }
}

fn declare_types(shape: &Shape, lines: &mut Vec<String>) {
    for header in &shape.header_types {
        lines.push(format!("header {} {{", header.name));
        lines.extend(header.fields.iter().map(|(name, ty)| format!("    {} {name};", ty.name())));
        lines.extend(header.varbit.map(|most| format!("    varbit<{most}> v;")));
        lines.push("}".into());
    }
    let prefix = &shape.prefix;
    if let Some(members) = &shape.union {
        lines.push(format!("header_union {prefix}un_t {{"));
        lines.extend(members.iter().map(|(name, kind)| format!("    {} {name};", shape.header_types[*kind].name)));
        lines.push("}".into());
    }
    lines.push(format!("struct {prefix}headers_t {{"));
    lines.extend(shape.headers.iter().map(|(name, kind)| format!("    {} {name};", shape.header_types[*kind].name)));
    if let Some((name, kind, size)) = &shape.stack {
        lines.push(format!("    {}[{size}] {name};", shape.header_types[*kind].name));
    }
    lines.extend(shape.union.as_ref().map(|_| format!("    {prefix}un_t un;")));
    lines.extend(shape.varbit.map(|kind| format!("    {} vb;", shape.header_types[kind].name)));
    lines.push("}".into());
    lines.push(format!("struct {prefix}meta_t {{"));
    lines.extend(shape.meta.iter().map(|m| format!("    {} {};", m.ty.name(), m.path.trim_start_matches("meta."))));
    lines.push("}".into());
}

fn function(shape: &mut Shape, index: u32, random: &mut StdRng, lines: &mut Vec<String>) {
    let name = format!("{}fun{index}", shape.prefix);
    let result = scalar(random);
    let parameters: Vec<(&'static str, Ty)> = (0..random.random_range(1..4))
        .map(|_| (["in", "in", "inout", "out"][random.random_range(0..4)], scalar(random)))
        .collect();
    let listed: Vec<String> =
        parameters.iter().enumerate().map(|(i, (direction, ty))| format!("{direction} {} p{i}", ty.name())).collect();
    lines.push(format!("{} {name}({}) {{", result.name(), listed.join(", ")));
    let header_types = Vec::new();
    let named: Vec<(usize, Named)> =
        parameters.iter().enumerate().map(|(i, (_, ty))| (i, Named { path: format!("p{i}"), ty: *ty })).collect();
    let mut body = Body {
        random,
        header_types: &header_types,
        readable: Vec::new(),
        writable: named.iter().filter(|(i, _)| parameters[*i].0 != "in").map(|(_, named)| named.clone()).collect(),
        headers: Vec::new(),
        stacks: Vec::new(),
        functions: Vec::new(),
        actions: Vec::new(),
        tables: Vec::new(),
        arrays: Vec::new(),
        in_control: false,
        may_exit: false,
        lines: Vec::new(),
        indent: 1,
        locals: 0,
    };
    // What nobody wrote has no value.
    for (i, (direction, ty)) in parameters.iter().enumerate() {
        if *direction == "out" {
            let value = literal(*ty, body.random);
            body.line(format!("p{i} = {value};"));
        }
    }
    body.readable = named.into_iter().map(|(_, named)| named).collect();
    let count = body.random.random_range(0..3);
    body.statements(count, 1);
    if body.random.random_bool(0.4) {
        let (condition, value) = (body.expression(Ty::Bool, 2), body.expression(result, 2));
        body.line(format!("if ({condition}) {{"));
        body.line(format!("    return {value};"));
        body.line("}");
    }
    let value = body.expression(result, 2);
    body.line(format!("return {value};"));
    lines.append(&mut body.lines);
    lines.push("}".into());
    shape.functions.push(Function { name, result, parameters });
}

/// The parser: a way forward through the headers, with choices between them.
fn parser(shape: &Shape, random: &mut StdRng, lines: &mut Vec<String>) {
    let prefix = &shape.prefix;
    lines.push(format!(
        "parser {prefix}Parser(packet_in pkt, out {prefix}headers_t hdr, inout {prefix}meta_t meta, inout standard_metadata_t sm) {{"
    ));
    // What each state extracts; the first is `start`.
    let mut steps: Vec<(String, String)> =
        shape.headers.iter().map(|(name, _)| (name.clone(), format!("pkt.extract(hdr.{name});"))).collect();
    if let Some((name, _, _)) = &shape.stack {
        steps.push((name.clone(), format!("pkt.extract(hdr.{name}.next);")));
    }
    for (name, _) in shape.union.iter().flatten() {
        steps.push((format!("un{name}"), format!("pkt.extract(hdr.un.{name});")));
    }
    if shape.varbit.is_some() {
        let unit = if random.random_bool(0.8) { "3w0" } else { "2w0" };
        steps.push(("vb".into(), format!("pkt.extract(hdr.vb, (bit<32>)(pkt.lookahead<bit<3>>() ++ {unit}));")));
    }
    let states: Vec<String> =
        (0..steps.len()).map(|i| if i == 0 { "start".into() } else { format!("{prefix}x{i}") }).collect();
    for (index, (name, extract)) in steps.iter().enumerate() {
        lines.push(format!("    state {} {{", states[index]));
        if random.random_bool(0.06) {
            lines.push(format!("        pkt.advance({});", random.random_range(0..4) * 8));
        }
        if random.random_bool(0.1) && !shape.meta.is_empty() {
            let target = &shape.meta[random.random_range(0..shape.meta.len())];
            let bits = random.random_range(1..=40);
            let value = super::types::convert(&format!("pkt.lookahead<bit<{bits}>>()"), Ty::bits(bits), target.ty);
            lines.push(format!("        {} = {value};", target.path));
        }
        lines.push(format!("        {extract}"));
        let mut body = shape.body(random, false);
        // (Reads of what is not extracted yet give 0, in the parser too.)
        body.stacks.clear();
        body.functions.clear();
        for _ in 0..[0, 0, 1, 2][body.random.random_range(0..4)] {
            if let Some(target) = body.writable.get(body.random.random_range(0..body.writable.len())).cloned() {
                let value = body.expression(target.ty, 2);
                body.line(format!("{} = {value};", target.path));
            }
        }
        if body.random.random_bool(0.1) {
            let condition = body.expression(Ty::Bool, 2);
            body.line(format!("verify({condition}, error.NoMatch);"));
        }
        lines.append(&mut body.lines);
        transition(shape, index, name, &states, random, lines);
        lines.push("    }".into());
    }
    lines.push("}".into());
}

/// Where a state goes on: always forward, but for the stack's, which may go round.
fn transition(
    shape: &Shape,
    index: usize,
    name: &str,
    states: &[String],
    random: &mut StdRng,
    lines: &mut Vec<String>,
) {
    let is_stack = shape.stack.as_ref().is_some_and(|(stack, _, _)| stack == name);
    let mut targets: Vec<String> = states[index + 1..].to_vec();
    if is_stack {
        targets.extend([states[index].clone(), states[index].clone()]);
    }
    if targets.is_empty() || random.random_bool(0.15) {
        let target = targets.first().filter(|_| random.random_bool(0.7)).map_or("accept", String::as_str);
        // A loop without a way out ends with an error: fine, but not always.
        return lines.push(format!("        transition {target};"));
    }
    targets.push("accept".into());
    if random.random_bool(0.05) {
        targets.push("reject".into());
    }
    let mut body = shape.body(random, false);
    if is_stack {
        let kind = shape.stack.as_ref().map_or(0, |(_, kind, _)| *kind);
        body.readable = shape.named(&format!("hdr.{name}.last"), kind);
    }
    let width = body.random.random_range(1..=4);
    let signed = width > 1 && body.random.random_bool(0.2);
    let ty = Ty::Bits { width, signed };
    let mut keys = vec![match body.random.random_range(0..6) {
        0 => super::types::convert(&format!("pkt.lookahead<bit<{width}>>()"), Ty::bits(width), ty),
        1 | 2 => body.expression(ty, 2),
        _ => {
            // Some bits of one field: every way is taken now and then.
            let field = body.readable[body.random.random_range(0..body.readable.len())].clone();
            super::types::convert(&field.path, field.ty, ty)
        }
    }];
    let second = body.random.random_bool(0.25);
    if second {
        keys.push(body.expression(Ty::bits(2), 2));
    }
    lines.push(format!("        transition select({}) {{", keys.join(", ")));
    let mut used = Vec::new();
    for _ in 0..random.random_range(1..5) {
        let mut one = case(ty, random);
        if second {
            one = format!("({one}, {})", case(Ty::bits(2), random));
        }
        if used.contains(&one) {
            continue;
        }
        lines.push(format!("            {one}: {};", targets[random.random_range(0..targets.len())]));
        used.push(one);
    }
    if random.random_bool(0.85) {
        lines.push(format!("            default: {};", targets[random.random_range(0..targets.len())]));
    }
    lines.push("        }".into());
}

/// A value, a mask, a range.
fn case(ty: Ty, random: &mut StdRng) -> String {
    let Ty::Bits { width, signed } = ty else { return literal(ty, random) };
    match random.random_range(0..8) {
        0 | 1 => {
            let unsigned = Ty::bits(width);
            let (value, mask) = (literal(unsigned, random), literal(unsigned, random));
            let cast = |text: String| if signed { format!("(int<{width}>)({text})") } else { text };
            format!("{} &&& {}", cast(value), cast(mask))
        }
        2 | 3 => {
            let half = if signed { 1i64 << (width - 1) } else { 0 };
            let (a, b) = (random.random_range(0..1i64 << width) - half, random.random_range(0..1i64 << width) - half);
            let text = |value: i64| match (signed, value < 0) {
                (false, _) => format!("{width}w{value}"),
                (true, false) => format!("{width}s{value}"),
                (true, true) => format!("(-{width}s{})", -value),
            };
            // The lowest number has no positive counterpart to write it with.
            let low = a.min(b).max(-half + i64::from(signed));
            format!("{} .. {}", text(low), text(a.max(b).max(low)))
        }
        4 if random.random_bool(0.2) => "_".into(),
        _ => literal(ty, random),
    }
}

/// A control that verifies or updates checksums.
fn checksums(shape: &Shape, random: &mut StdRng, head: &str, block: &str, lines: &mut Vec<String>) {
    lines.push(format!("control {}{block}({head}) {{", shape.prefix));
    lines.push("    apply {".into());
    for (path, kind) in shape.all_headers() {
        let fields = shape.named(&path, kind);
        let Some(target) = fields.iter().find(|field| field.ty == Ty::bits(16) || field.ty == Ty::bits(32)) else {
            continue;
        };
        if !random.random_bool(0.3) {
            continue;
        }
        let mut list: Vec<String> =
            fields.iter().filter(|field| field.path != target.path).map(|field| field.path.clone()).collect();
        let mut bits: u32 = fields.iter().filter(|field| field.path != target.path).map(|field| field.ty.width()).sum();
        if list.is_empty() {
            continue;
        }
        if !bits.is_multiple_of(16) {
            let rest = 16 - bits % 16;
            list.push(format!("{rest}w{}", random.random_range(0..1u32 << rest)));
            bits += rest;
        }
        let algorithm = if bits > 1000 {
            "csum16"
        } else {
            ["csum16", "csum16", "crc16", "crc32", "xor16"][random.random_range(0..5)]
        };
        let payload = if algorithm == "csum16" && random.random_bool(0.15) { "_with_payload" } else { "" };
        let word = if block == "Verify" { "verify" } else { "update" };
        lines.push(format!(
            "        {word}_checksum{payload}({path}.isValid(), {{ {} }}, {}, HashAlgorithm.{algorithm});",
            list.join(", "),
            target.path
        ));
    }
    lines.extend(["    }".into(), "}".into()]);
}

fn control(shape: &mut Shape, random: &mut StdRng, head: &str, block: &str, budget: usize, lines: &mut Vec<String>) {
    lines.push(format!("control {}{block}({head}{STANDARD}) {{", shape.prefix));
    let arrays: Vec<Array> = (0..random.random_range(0..if budget > 0 { 3 } else { 1 }))
        .map(|index| {
            let size = random.random_range(1..6);
            let ty = random.random_bool(0.7).then(|| Ty::bits(super::types::width(random)));
            let name = if ty.is_some() { format!("r{index}") } else { format!("c{index}") };
            lines.push(match ty {
                Some(ty) => format!("    register<{}>({size}) {name};", ty.name()),
                None => format!("    counter({size}, CounterType.packets_and_bytes) {name};"),
            });
            Array { name, ty, size }
        })
        .collect();
    shape.arrays.clone_from(&arrays);
    let mut actions = Vec::new();
    for index in 0..if budget > 0 { random.random_range(1..5) } else { 0 } {
        actions.push(action(shape, index, random, &arrays, lines));
    }
    let mut tables = Vec::new();
    for index in 0..if budget > 0 { random.random_range(0..3) } else { 0 } {
        tables.push(table(shape, index, random, &actions, lines));
    }
    lines.push("    apply {".into());
    if block == "Ingress" && random.random_bool(0.9) {
        lines.push(format!("        sm.egress_spec = {};", random.random_range(0..511)));
    }
    let mut body = shape.body(random, true);
    body.arrays = arrays;
    body.actions = actions;
    body.tables = tables;
    for _ in 0..if budget > 0 { body.random.random_range(0..3) } else { 0 } {
        let ty = scalar(body.random);
        body.declare(ty);
    }
    body.statements(budget, 2);
    if block == "Ingress" {
        for table in std::mem::take(&mut body.tables) {
            body.line(format!("{}.apply();", table.name));
        }
        if body.random.random_bool(0.2) {
            let value = body.expression(Ty::bits(9), 2);
            body.line(format!("sm.egress_spec = {value};"));
        }
        if body.random.random_bool(0.05) {
            let condition = body.expression(Ty::Bool, 2);
            body.line(format!("if ({condition}) {{"));
            body.line("    mark_to_drop(sm);");
            body.line("}");
        }
        if body.random.random_bool(0.04) {
            let length = body.random.random_range(1..100);
            body.line(format!("truncate({length});"));
        }
    }
    lines.append(&mut body.lines);
    lines.extend(["    }".into(), "}".into()]);
}

fn action(shape: &Shape, index: u32, random: &mut StdRng, arrays: &[Array], lines: &mut Vec<String>) -> Action {
    let parameters: Vec<Ty> = (0..random.random_range(0..3)).map(|_| scalar(random)).collect();
    let listed: Vec<String> = parameters.iter().enumerate().map(|(i, ty)| format!("{} p{i}", ty.name())).collect();
    lines.push(format!("    action a{index}({}) {{", listed.join(", ")));
    let mut body = shape.body(random, true);
    body.may_exit = false;
    body.arrays = arrays.to_vec();
    let own = parameters.iter().enumerate().map(|(i, ty)| Named { path: format!("p{i}"), ty: *ty });
    // Several times, so that they are used.
    body.readable.extend(own.clone().flat_map(|named| [named.clone(), named.clone(), named]));
    let count = body.random.random_range(1..3);
    body.statements(count, 1);
    if body.random.random_bool(0.06) {
        let condition = body.expression(Ty::Bool, 2);
        let word = if body.random.random() { "return;" } else { "exit;" };
        body.line(format!("if ({condition}) {{"));
        body.line(format!("    {word}"));
        body.line("}");
        body.statements(1, 0);
    }
    lines.append(&mut body.lines);
    lines.push("    }".into());
    Action { name: format!("a{index}"), parameters }
}

fn table(shape: &Shape, index: u32, random: &mut StdRng, actions: &[Action], lines: &mut Vec<String>) -> Table {
    let name = format!("t{index}");
    let listed: Vec<&Action> = actions.iter().filter(|_| random.random_bool(0.7)).collect();
    let listed = if listed.is_empty() { vec![&actions[0]] } else { listed };
    let in_code = random.random_bool(0.4);
    let keys: Vec<(Ty, &str)> =
        (0..[0, 1, 1, 1, 2, 2, 3][random.random_range(0..7)]).map(|_| key(in_code, random)).collect();
    let several = keys.iter().filter(|(_, kind)| *kind == "lpm").count() > 1;
    let keys: Vec<(Ty, &str)> =
        keys.into_iter().map(|(ty, kind)| (ty, if several && kind == "lpm" { "exact" } else { kind })).collect();
    lines.push(format!("    table {name} {{"));
    if !keys.is_empty() {
        lines.push("        key = {".into());
        let mut body = shape.body(random, true);
        for (i, (ty, kind)) in keys.iter().enumerate() {
            let level = body.random.random_range(0..3);
            let expression = body.expression(*ty, level);
            lines.push(format!("            {expression} : {kind} @name(\"k{i}\");"));
        }
        lines.push("        }".into());
    }
    let mut names: Vec<String> = listed.iter().map(|action| action.name.clone()).collect();
    let call = |action: &Action, random: &mut StdRng| {
        let arguments: Vec<String> = action.parameters.iter().map(|ty| literal(*ty, random)).collect();
        format!("{}({})", action.name, arguments.join(", "))
    };
    lines.push(format!("        actions = {{ {}; NoAction; }}", names.join("; ")));
    if random.random_bool(0.8) {
        let word = if random.random() { "const " } else { "" };
        let action = listed[random.random_range(0..listed.len())];
        lines.push(format!("        {word}default_action = {};", call(action, random)));
    }
    if !keys.is_empty() && (in_code || random.random_bool(0.3)) {
        entries(&keys, in_code, &listed, call, random, lines);
    }
    lines.push("    }".into());
    names.push("NoAction".into());
    Table { name, actions: names }
}

fn key(in_code: bool, random: &mut StdRng) -> (Ty, &'static str) {
    let width = if random.random_bool(0.6) { random.random_range(1..6) } else { super::types::width(random) };
    let signed = width > 1 && random.random_bool(0.15);
    let kinds: &[&str] =
        if in_code { &["exact", "lpm", "ternary", "range", "optional"] } else { &["exact", "exact", "lpm", "ternary"] };
    let kind = kinds[random.random_range(0..kinds.len())];
    let ty = if kind == "exact" && random.random_bool(0.1) { Ty::Bool } else { Ty::Bits { width, signed } };
    (ty, kind)
}

fn entries(
    keys: &[(Ty, &str)],
    in_code: bool,
    listed: &[&Action],
    call: impl Fn(&Action, &mut StdRng) -> String,
    random: &mut StdRng,
    lines: &mut Vec<String>,
) {
    let (word, mut used) = (if in_code { "const entries" } else { "entries" }, Vec::new());
    lines.push(format!("        {word} = {{"));
    for _ in 0..random.random_range(1..5) {
        let matches: Vec<String> = keys.iter().map(|(ty, kind)| entry_match(*ty, kind, random)).collect();
        let text = if let [one] = &matches[..] { one.clone() } else { format!("({})", matches.join(", ")) };
        // (Two prefixes can be one entry in two writings: the shorter of what is behind them tells.)
        if used.contains(&text) {
            continue;
        }
        let action = listed[random.random_range(0..listed.len())];
        lines.push(format!("            {text} : {};", call(action, random)));
        used.push(text);
    }
    lines.push("        }".into());
}

fn entry_match(ty: Ty, kind: &str, random: &mut StdRng) -> String {
    let Ty::Bits { width, signed } = ty else { return literal(ty, random) };
    let cast = |text: String| if signed { format!("(int<{width}>)({text})") } else { text };
    match kind {
        "lpm" => {
            let length = random.random_range(0..=width);
            let all = u128::MAX >> (128 - width);
            let mask = if length == 0 { 0 } else { (all >> (width - length)) << (width - length) };
            let value = super::types::number(width, random) & mask;
            format!("{} &&& {}", cast(format!("{width}w{value}")), cast(format!("{width}w{mask}")))
        }
        "ternary" if random.random_bool(0.6) => {
            let mask = super::types::number(width, random);
            let value = super::types::number(width, random) & mask;
            format!("{} &&& {}", cast(format!("{width}w{value}")), cast(format!("{width}w{mask}")))
        }
        "range" => case_range(width, signed, random),
        "optional" | "ternary" if random.random_bool(0.2) => "_".into(),
        _ => literal(ty, random),
    }
}

fn case_range(width: u32, signed: bool, random: &mut StdRng) -> String {
    let width_of_number = if signed { width - 1 } else { width };
    let (a, b) = (super::types::number(width_of_number, random), super::types::number(width_of_number, random));
    let prefix = if signed { "s" } else { "w" };
    if signed && random.random() {
        return format!("(-{width}s{a}) .. {width}s{b}");
    }
    format!("{width}{prefix}{} .. {width}{prefix}{}", a.min(b), a.max(b))
}

/// What is emitted: all headers in the parser's order; now and then in another, or not all.
fn emits(shape: &Shape, random: &mut StdRng) -> Vec<String> {
    let mut emits: Vec<String> = shape.headers.iter().map(|(name, _)| name.clone()).collect();
    emits.extend(shape.stack.iter().map(|(name, _, _)| name.clone()));
    emits.extend(shape.union.iter().map(|_| "un".to_owned()));
    emits.extend(shape.varbit.iter().map(|_| "vb".to_owned()));
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

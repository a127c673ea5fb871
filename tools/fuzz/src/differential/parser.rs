//! Parsers.

use super::shape::Shape;
use super::types::{Ty, literal};
use rand::Rng;
use rand::rngs::StdRng;

/// The parser: a way forward through the headers, with choices between them.
pub(super) fn parser(shape: &Shape, random: &mut StdRng, lines: &mut Vec<String>) {
    let prefix = &shape.prefix;
    lines.push(format!(
        "parser {prefix}Parser(packet_in pkt, out {prefix}headers_t hdr, inout {prefix}meta_t meta, inout standard_metadata_t sm) {{"
    ));
    // What each state extracts; the first is `start`.
    let mut steps: Vec<(String, String)> = shape
        .headers
        .iter()
        .map(|(name, _)| (name.clone(), format!("pkt.extract(hdr.{name});")))
        .collect();
    if let Some((name, _, _)) = &shape.stack {
        steps.push((name.clone(), format!("pkt.extract(hdr.{name}.next);")));
    }
    for (name, _) in shape.union.iter().flatten() {
        steps.push((format!("un{name}"), format!("pkt.extract(hdr.un.{name});")));
    }
    for (path, _) in shape.varbits() {
        let unit = if random.random_bool(0.8) { "3w0" } else { "2w0" };
        let extract = format!("pkt.extract({path}, (bit<32>)(pkt.lookahead<bit<3>>() ++ {unit}));");
        steps.push((path.trim_start_matches("hdr.").to_owned(), extract));
    }
    let states: Vec<String> = (0..steps.len())
        .map(|i| if i == 0 { "start".into() } else { format!("{prefix}x{i}") })
        .collect();
    for (index, (name, extract)) in steps.iter().enumerate() {
        lines.push(format!("    state {} {{", states[index]));
        if !shape.keeps_layout && random.random_bool(0.06) {
            lines.push(format!("        pkt.advance({});", random.random_range(0..4) * 8));
        }
        if random.random_bool(0.1) && !shape.meta.is_empty() {
            let target = &shape.meta[random.random_range(0..shape.meta.len())];
            let bits = random.random_range(1..=40);
            let value = super::types::convert(
                &format!("pkt.lookahead<bit<{bits}>>()"),
                Ty::bits(bits),
                target.ty,
            );
            lines.push(format!("        {} = {value};", target.path));
        }
        if let (true, Some((stack, _, _))) = (shape.loops, &shape.stack) {
            match random.random_range(0..5) {
                0 => lines.push(format!("        hdr.{stack}.pop_front(1);")),
                1 => {
                    let extract = format!("pkt.extract(hdr.{stack}.next);");
                    lines
                        .push(format!("        if (pkt.lookahead<bit<2>>() == 1) {{ {extract} }}"));
                }
                _ => {}
            }
        }
        lines.push(format!("        {extract}"));
        let mut body = shape.body(random, false);
        // (Reads of what is not extracted yet give 0, in the parser too.)
        body.stacks.clear();
        body.functions.clear();
        for _ in 0..[0, 0, 1, 2][body.random.random_range(0..4)] {
            if let Some(target) =
                body.writable.get(body.random.random_range(0..body.writable.len())).cloned()
            {
                let value = body.expression(target.ty, 2);
                body.line(format!("{} = {value};", target.path));
            }
        }
        if body.random.random_bool(0.15) {
            body.standard_metadata(true);
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

/// Where a state goes on: forward; the stack's may also come again, and in a parser with loops any
/// state may go back.
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
    if shape.loops {
        targets.extend_from_slice(&states[1..=index]);
    }
    if targets.is_empty() || random.random_bool(0.15) {
        let target =
            targets.first().filter(|_| random.random_bool(0.7)).map_or("accept", String::as_str);
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
        lines.push(format!(
            "            {one}: {};",
            targets[random.random_range(0..targets.len())]
        ));
        used.push(one);
    }
    if random.random_bool(0.85) {
        lines.push(format!(
            "            default: {};",
            targets[random.random_range(0..targets.len())]
        ));
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
            let (a, b) = (
                random.random_range(0..1i64 << width) - half,
                random.random_range(0..1i64 << width) - half,
            );
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

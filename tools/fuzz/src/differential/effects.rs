//! A control in which everything has effects: calls that change their arguments, in every position
//! of an expression, named arguments and fields in any order, computed indices of l-values, locals
//! of what is applied twice.
//!
//! It works on variables of its own and leaves them in a register, so that whatever goes wrong is
//! seen.

use rand::Rng;
use rand::rngs::StdRng;

/// Variables of `bit<8>`.
const VARIABLES: u32 = 4;
/// Elements of the stack.
const ELEMENTS: u32 = 3;

struct Effects<'a> {
    prefix: &'a str,
    random: &'a mut StdRng,
}

/// The lines that declare `PREFIXEffects`, before the program's parser.
pub(super) fn declare(prefix: &str, random: &mut StdRng, lines: &mut Vec<String>) {
    let step = random.random_range(1..200);
    let mut effects = Effects { prefix, random };
    lines.push(format!("header {prefix}eh_t {{ bit<8> v; }}"));
    lines.push(format!("struct {prefix}ep_t {{ bit<8> a; bit<8> b; bit<8> c; }}"));
    lines.push(format!("bit<8> {prefix}ef0(inout bit<8> x) {{ x = x + {step}; return x; }}"));
    lines.push(format!(
        "bit<8> {prefix}ef1(inout bit<8> x, in bit<8> y) {{ x = x ^ y; return x + 3 * y; }}"
    ));
    lines.push(format!("bit<8> {prefix}ef2(in bit<8> a, in bit<8> b) {{ return 3 * a - b; }}"));
    lines.push(format!("bit<8> {prefix}ef3(out bit<8> x, inout bit<8> y, in bit<8> z) {{"));
    lines.push(
        "    x = y + z; y = y ^ 0x55; if (z[0:0] == 1) { return x; } y = z; return y;".into(),
    );
    lines.push("}".into());
    lines.push(format!("control {prefix}EffectsInner(inout bit<8> x, in bit<8> y) {{"));
    lines.push(format!("    {prefix}eh_t left;"));
    lines.push("    apply {".into());
    lines.push("        if (left.isValid()) { x = x + left.v; }".into());
    lines.push("        left.setValid();".into());
    lines.push("        left.v = y;".into());
    lines.push("        x = x + 7 * left.v;".into());
    lines.extend(["    }".into(), "}".into()]);
    effects.parser(lines);
    lines.push(format!("control {prefix}Effects(inout standard_metadata_t sm, in bit<8> seen) {{"));
    lines.push("    register<bit<8>>(8) left;".into());
    lines.push(format!("    {prefix}EffectsInner() inner;"));
    lines.push("    action change(inout bit<8> x, in bit<8> y) { x = x - y; }".into());
    lines.push("    apply {".into());
    for index in 0..VARIABLES {
        let start = effects.random.random_range(0..256);
        lines.push(format!("        bit<8> e{index} = (bit<8>)sm.packet_length + {start};"));
        if index == 1 {
            lines.push("        e1 = e1 + seen;".into());
        }
    }
    lines.push(format!("        {prefix}eh_t[{ELEMENTS}] st;"));
    for index in 0..ELEMENTS {
        lines.push(format!("        st[{index}].setValid();"));
        lines.push(format!("        st[{index}].v = {};", effects.random.random_range(0..256)));
    }
    for _ in 0..effects.random.random_range(3..9) {
        let statement = effects.statement(2);
        lines.push(format!("        {statement}"));
    }
    for index in 0..VARIABLES {
        lines.push(format!("        left.write({index}, e{index});"));
    }
    for index in 0..ELEMENTS {
        let at = VARIABLES + index;
        lines.push(format!(
            "        if (st[{index}].isValid()) {{ left.write({at}, st[{index}].v); }}"
        ));
    }
    lines.extend(["    }".into(), "}".into()]);
}

impl Effects<'_> {
    /// A sub-parser that tells whether its locals are new each time, with effects in the keys of
    /// its selects.
    fn parser(&mut self, lines: &mut Vec<String>) {
        let prefix = self.prefix.to_string();
        let (bound, step) = (self.pick(256), self.pick(200));
        let arguments =
            self.arguments(&[("a", format!("{prefix}ef0(x)")), ("b", format!("{prefix}ef0(n)"))]);
        lines.push(format!(
            "parser {prefix}EffectsParser(packet_in pkt, inout bit<8> x, in bit<8> y) {{"
        ));
        lines.push(format!("    {prefix}eh_t left;"));
        lines.push(format!("    {prefix}eh_t[2] two;"));
        lines.push(format!("    bit<8> n = {step};"));
        lines.push("    state start {".into());
        lines.push("        if (left.isValid()) { x = x + left.v; }".into());
        lines.push("        left.setValid();".into());
        lines.push("        left.v = y + 9;".into());
        lines.push(format!("        two[{prefix}ef0(n) & 1].setValid();"));
        lines.push(format!("        transition select({prefix}ef0(n), {prefix}ef1(n, x), n) {{"));
        lines.push(format!("            (0..{bound}, _, _): more;"));
        lines.push(format!("            (_, {} &&& 0x3, _): other;", self.pick(4)));
        lines.push("            default: accept;".into());
        lines.extend(["        }".into(), "    }".into()]);
        lines.push("    state more {".into());
        lines.push(format!("        x = {prefix}ef2({arguments});"));
        lines.push("        transition other;".into());
        lines.push("    }".into());
        lines.push("    state other {".into());
        lines.push(
            "        x = x + n + (two[0].isValid() ? 8w1 : 8w2) + (two[1].isValid() ? 8w4 : 8w8);"
                .into(),
        );
        lines.extend(["        transition accept;".into(), "    }".into(), "}".into()]);
    }

    fn pick(&mut self, most: u32) -> u32 {
        self.random.random_range(0..most)
    }

    fn variable(&mut self) -> String {
        format!("e{}", self.pick(VARIABLES))
    }

    /// An index of the stack; now and then one beyond it.
    fn index(&mut self, depth: u32) -> String {
        match self.pick(4) {
            0 => self.pick(ELEMENTS).to_string(),
            // (A variable in it: a constant beyond the stack is refused.)
            _ => format!(
                "({} + e0) & {}",
                self.expression(depth),
                [1, 1, 1, 3][self.pick(4) as usize]
            ),
        }
    }

    fn place(&mut self, depth: u32) -> String {
        if self.pick(3) == 0 { format!("st[{}].v", self.index(depth)) } else { self.variable() }
    }

    /// Arguments in the order of the declaration, or by name in any order.
    fn arguments(&mut self, given: &[(&str, String)]) -> String {
        if self.pick(2) == 0 {
            return given.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>().join(", ");
        }
        self.named(given)
    }

    fn named(&mut self, given: &[(&str, String)]) -> String {
        let mut list: Vec<String> =
            given.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let first = self.pick(list.len() as u32) as usize;
        list.rotate_left(first);
        list.join(", ")
    }

    fn expression(&mut self, depth: u32) -> String {
        let prefix = self.prefix.to_string();
        let kind = if depth == 0 { self.pick(3) } else { self.pick(12) };
        let below = depth.saturating_sub(1);
        match kind {
            0 => format!("8w{}", self.pick(256)),
            1 => self.variable(),
            2 => format!("{prefix}ef0({})", self.variable()),
            3 | 4 => {
                let operator = ["+", "-", "^", "&", "|", "*"][self.pick(6) as usize];
                format!("({} {operator} {})", self.expression(below), self.expression(below))
            }
            5 => {
                let given = [("x", self.place(below)), ("y", self.expression(below))];
                format!("{prefix}ef1({})", self.arguments(&given))
            }
            6 | 7 => {
                let given = [("a", self.expression(below)), ("b", self.expression(below))];
                format!("{prefix}ef2({})", self.arguments(&given))
            }
            8 => {
                let given = [
                    ("x", self.place(below)),
                    ("y", self.place(below)),
                    ("z", self.expression(below)),
                ];
                format!("{prefix}ef3({})", self.arguments(&given))
            }
            9 => {
                let fields = [
                    ("a", self.expression(below)),
                    ("b", self.expression(below)),
                    ("c", self.expression(0)),
                ];
                let field = ["a", "b", "c"][self.pick(3) as usize];
                format!("(({prefix}ep_t){{ {} }}).{field}", self.named(&fields))
            }
            10 => {
                let (a, b) = (self.expression(below), self.expression(below));
                format!("({} ? {a} : {b})", self.condition(below))
            }
            _ => format!("{prefix}ef0(st[{}].v)", self.index(below)),
        }
    }

    fn condition(&mut self, depth: u32) -> String {
        let (a, b) = (self.expression(depth), self.expression(depth));
        match self.pick(4) {
            0 => format!("({a} < 100 && {b} > 20)"),
            1 => format!("({a} == 3 || {b} != 7)"),
            _ => format!("({a} < {b})"),
        }
    }

    fn statement(&mut self, depth: u32) -> String {
        match self.pick(10) {
            0..=3 => format!("{} = {};", self.place(1), self.expression(depth)),
            4 => format!("st[{}].setInvalid();", self.index(1)),
            5 => format!("st[{}].setValid();", self.index(1)),
            6 => {
                let given = [("x", self.place(1)), ("y", self.expression(depth))];
                format!("change({});", self.arguments(&given))
            }
            7 => {
                let given = [("x", self.place(1)), ("y", self.expression(depth))];
                format!("inner.apply({});", self.arguments(&given))
            }
            8 => format!("e0[3:0] = (bit<4>){};", self.expression(depth)),
            _ => {
                let (a, b) = (self.expression(depth), self.expression(depth));
                let (x, y) = (self.variable(), self.variable());
                format!("if ({}) {{ {x} = {a}; }} else {{ {y} = {b}; }}", self.condition(1))
            }
        }
    }
}

/// Applies the sub-parser, twice, and the control at the start of `PREFIXParser` and
/// `PREFIXIngress`, whose lines are among these.
pub(super) fn apply(prefix: &str, lines: &mut Vec<String>) {
    insert(lines, &format!("struct {prefix}meta_t {{"), "", "    bit<8> effects;", &[]);
    let declared = format!("    {prefix}EffectsParser() effects;");
    let run = [
        "effects.apply(pkt, meta.effects, 3);",
        "effects.apply(pkt, meta.effects, meta.effects + 1);",
    ];
    insert(lines, &format!("parser {prefix}Parser("), "state start {", &declared, &run);
    let declared = format!("    {prefix}Effects() effects;");
    insert(
        lines,
        &format!("control {prefix}Ingress("),
        "apply {",
        &declared,
        &["effects.apply(sm, meta.effects);"],
    );
}

/// Puts a line behind the one that begins with `head`, and others behind the next line that is
/// `start`.
pub(super) fn insert(
    lines: &mut Vec<String>,
    head: &str,
    start: &str,
    declared: &str,
    run: &[&str],
) {
    let Some(at) = lines.iter().position(|line| line.starts_with(head)) else { return };
    if !declared.is_empty() {
        lines.insert(at + 1, declared.to_owned());
    }
    let start = lines.iter().skip(at).position(|line| line.trim() == start);
    if let (Some(start), false) = (start, run.is_empty()) {
        let run = run.iter().map(|line| format!("        {line}"));
        lines.splice(at + start + 1..at + start + 1, run);
    }
}

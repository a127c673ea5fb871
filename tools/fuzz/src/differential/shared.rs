//! Programs for two CPUs at once: whatever the order of the packets, the registers and counters
//! end with the same values, if no update is lost.
//!
//! Each register has one kind of change, and changes of one kind can come in any order. Kinds that
//! the compiler makes one step by itself stand anywhere; the others stand in what is `@atomic`.
//! No program changes its packet: the kernel runs it again and again on the same bytes.

use super::types::{Ty, convert, literal, width};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// How a register's elements change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// By `+` and `-`.
    Sum,
    /// By `^`.
    Parity,
    /// By `|`.
    Union,
    /// The lower digit of a number; the next register has the higher one.
    Carry,
    /// Always equal to the next register.
    Twin,
    /// The largest that was seen.
    Most,
    /// By `|+|`.
    Saturating,
}

impl Kind {
    /// Whether a plain update is one step without `@atomic`.
    fn is_plain(self) -> bool {
        matches!(self, Kind::Sum | Kind::Parity | Kind::Union)
    }
}

struct Register {
    name: String,
    width: u32,
    size: u32,
    kind: Kind,
    /// Of `Carry`: what the lower digit counts to.
    base: u32,
}

impl Register {
    fn ty(&self) -> Ty {
        Ty::bits(self.width)
    }
}

struct Shared<'a> {
    random: &'a mut StdRng,
    registers: Vec<Register>,
    counters: Vec<(String, u32)>,
    locals: usize,
}

/// The fields of the packet.
const FIELDS: [(&str, u32); 5] = [("a", 8), ("b", 3), ("c", 13), ("d", 32), ("e", 64)];

/// The program of this seed, without the include files. It has the names of a generated program.
pub(super) fn generate(seed: u64) -> String {
    let random = &mut StdRng::seed_from_u64(seed);
    let mut lines = vec!["header s0_t {".to_owned()];
    lines.extend(FIELDS.iter().map(|(name, width)| format!("    bit<{width}> {name};")));
    lines.extend(["}", "struct s0_headers_t {", "    s0_t h;", "}"].map(String::from));
    lines.extend(["struct s0_meta_t {", "    bit<32> m;", "}"].map(String::from));
    parser(random, &mut lines);
    for block in ["Verify", "Compute"] {
        lines.push(format!("control s0_{block}(inout s0_headers_t hdr, inout s0_meta_t meta) {{"));
        lines.extend(["    apply {", "    }", "}"].map(String::from));
    }
    let standard = "inout s0_headers_t hdr, inout s0_meta_t meta, inout standard_metadata_t sm";
    let atomic = if random.random_bool(0.3) { "@atomic " } else { "" };
    lines.push(format!("{atomic}control s0_Sub({standard}) {{"));
    control(random, &mut lines, 1, !atomic.is_empty());
    lines.push(format!("control s0_Ingress({standard}) {{"));
    lines.push("    s0_Sub() sub;".into());
    control(random, &mut lines, 5, false);
    lines.push(format!("control s0_Egress({standard}) {{"));
    control(random, &mut lines, 1, false);
    lines.push("control s0_Deparser(packet_out pkt, in s0_headers_t hdr) {".into());
    lines.extend(["    apply {", "        pkt.emit(hdr.h);", "    }", "}"].map(String::from));
    lines.push(
        "V1Switch(s0_Parser(), s0_Verify(), s0_Ingress(), s0_Egress(), s0_Compute(), s0_Deparser()) main;".into(),
    );
    lines.join("\n") + "\n"
}

fn parser(random: &mut StdRng, lines: &mut Vec<String>) {
    lines.push(
        "parser s0_Parser(packet_in pkt, out s0_headers_t hdr, inout s0_meta_t meta, inout standard_metadata_t sm) {"
            .into(),
    );
    let mut shared = Shared { random, registers: Vec::new(), counters: Vec::new(), locals: 0 };
    let has = shared.random.random_bool(0.4);
    if has {
        shared.declare(1, lines);
    }
    lines.extend(
        ["    state start {", "        pkt.extract(hdr.h);", "        transition count;", "    }"]
            .map(String::from),
    );
    let atomic = if has && shared.registers.iter().any(|register| !register.kind.is_plain()) {
        "@atomic "
    } else {
        ""
    };
    lines.push(format!("    {atomic}state count {{"));
    if has {
        shared.update_all(lines, 2, !atomic.is_empty());
    }
    lines.extend(["        transition accept;", "    }", "}"].map(String::from));
}

/// The rest of a control behind its head, with so many statements.
fn control(random: &mut StdRng, lines: &mut Vec<String>, statements: usize, atomic: bool) {
    let mut shared = Shared { random, registers: Vec::new(), counters: Vec::new(), locals: 0 };
    let ingress = statements > 1;
    let count =
        if ingress { shared.random.random_range(2..5) } else { shared.random.random_range(1..3) };
    shared.declare(count, lines);
    if !atomic {
        let size = shared.random.random_range(1..4);
        lines.push(format!("    counter({size}, CounterType.packets_and_bytes) count;"));
        shared.counters.push(("count".into(), size));
    }
    let mut calls = Vec::new();
    for index in 0..if ingress { shared.random.random_range(1..4) } else { 0 } {
        calls.push(shared.action(index, lines));
    }
    let tables = if calls.is_empty() { 0 } else { shared.random.random_range(0..3) };
    for index in 0..tables {
        shared.table(index, &calls, lines);
    }
    lines.push("    apply {".into());
    if ingress {
        lines.push("        sm.egress_spec = 1;".into());
    }
    let mut left: Vec<String> = calls;
    left.extend((0..tables).map(|index| format!("t{index}.apply")));
    if ingress {
        left.extend(std::iter::repeat_n("sub.apply".to_owned(), shared.random.random_range(1..3)));
    }
    for _ in 0..statements {
        let at = lines.len();
        shared.update(lines, 2, atomic);
        if shared.random.random_bool(0.3) {
            let condition = shared.condition();
            lines.insert(at, format!("        if ({condition}) {{"));
            lines.push("        }".into());
        }
        if !left.is_empty() && shared.random.random_bool(0.8) {
            let call = left.swap_remove(shared.random.random_range(0..left.len()));
            lines.push(shared.called(&call));
        }
    }
    for call in left {
        lines.push(shared.called(&call));
    }
    lines.extend(["    }", "}"].map(String::from));
}

impl Shared<'_> {
    fn declare(&mut self, count: usize, lines: &mut Vec<String>) {
        for index in 0..count {
            let plain = [Kind::Sum, Kind::Sum, Kind::Sum, Kind::Parity, Kind::Union];
            let atomic = [Kind::Carry, Kind::Twin, Kind::Most, Kind::Saturating, Kind::Sum];
            let list = if self.random.random_bool(0.6) { plain } else { atomic };
            let kind = list[self.random.random_range(0..list.len())];
            // Narrow elements hide a lost update if their sum comes round.
            let least = if kind == Kind::Carry { 32 } else { 8 };
            let width = width(self.random).max(least);
            let size = self.random.random_range(1..4);
            let base = self.random.random_range(2..200);
            let name = format!("r{index}");
            lines.push(format!("    register<bit<{width}>>({size}) {name};"));
            if matches!(kind, Kind::Carry | Kind::Twin) {
                lines.push(format!("    register<bit<{width}>>({size}) {name}_too;"));
                lines.push(format!("    register<bit<32>>(1) {name}_bad;"));
            }
            self.registers.push(Register { name, width, size, kind, base });
        }
    }

    fn local(&mut self) -> String {
        self.locals += 1;
        format!("v{}", self.locals)
    }

    fn field(&mut self, ty: Ty) -> String {
        let (name, width) = FIELDS[self.random.random_range(0..FIELDS.len())];
        convert(&format!("hdr.h.{name}"), Ty::bits(width), ty)
    }

    fn condition(&mut self) -> String {
        let field = self.field(Ty::bits(4));
        format!("{field} < {}", self.random.random_range(2..16))
    }

    /// What an element changes by: known before it is read, and seldom zero.
    fn step(&mut self, ty: Ty) -> String {
        match self.random.random_range(0..4) {
            0 => self.field(ty),
            1 => format!("({} | {}w1)", self.field(ty), ty.width()),
            2 => literal(ty, self.random),
            _ => format!("{}w{}", ty.width(), self.random.random_range(1..8)),
        }
    }

    fn index(&mut self, size: u32) -> String {
        match self.random.random_range(0..4) {
            // Now and then beyond the register.
            0 => self.field(Ty::bits(2)).replace("(bit<2>)", "(bit<32>)(bit<2>)"),
            _ => self.random.random_range(0..size).to_string(),
        }
    }

    /// A call of an action with a parameter, of a table or of a control.
    fn called(&mut self, call: &str) -> String {
        match call {
            "sub.apply" => format!("        {call}(hdr, meta, sm);"),
            _ if call.ends_with("apply") => format!("        {call}();"),
            _ => format!("        {call}({});", literal(Ty::bits(8), self.random)),
        }
    }

    fn update_all(&mut self, lines: &mut Vec<String>, indent: usize, atomic: bool) {
        for index in 0..self.registers.len() {
            self.update_one(index, lines, indent, atomic);
        }
    }

    fn update(&mut self, lines: &mut Vec<String>, indent: usize, atomic: bool) {
        if !self.counters.is_empty() && self.random.random_bool(0.2) {
            let (name, size) = self.counters[0].clone();
            let index = self.index(size);
            return lines.push(format!("{}{name}.count({index});", "    ".repeat(indent)));
        }
        let register = self.random.random_range(0..self.registers.len());
        self.update_one(register, lines, indent, atomic);
    }

    /// A change of a register. `atomic`: it stands in what is.
    fn update_one(
        &mut self,
        register: usize,
        lines: &mut Vec<String>,
        indent: usize,
        atomic: bool,
    ) {
        let pad = "    ".repeat(indent);
        let plain = self.registers[register].kind.is_plain();
        let index = self.index(self.registers[register].size);
        let body = if plain && self.random.random_bool(0.7) {
            self.plain(register, &index)
        } else {
            self.any_order(register, &index)
        };
        let opens = !atomic && (!plain || self.random.random_bool(0.2) || body.1);
        if opens {
            lines.push(format!("{pad}@atomic {{"));
        }
        let more = if opens { "    " } else { "" };
        lines.extend(body.0.iter().map(|line| format!("{pad}{more}{line}")));
        if opens {
            lines.push(format!("{pad}}}"));
        }
    }

    /// A plain update, and whether it must be `@atomic`.
    fn plain(&mut self, register: usize, index: &str) -> (Vec<String>, bool) {
        let (name, ty, kind) = {
            let register = &self.registers[register];
            (register.name.clone(), register.ty(), register.kind)
        };
        let operator = match kind {
            Kind::Parity => "^",
            Kind::Union => "|",
            _ if self.random.random() => "+",
            _ => "-",
        };
        let (v, step) = (self.local(), self.step(ty));
        let mut lines = vec![format!("{} {v};", ty.name()), format!("{name}.read({v}, {index});")];
        if self.random.random_bool(0.3) {
            lines.push(format!("meta.m = meta.m + {};", self.field(Ty::bits(32))));
        }
        match self.random.random_range(0..4) {
            0 => lines.push(format!("{name}.write({index}, {v} {operator} {step});")),
            1 if operator != "-" => {
                lines.push(format!("{name}.write({index}, {step} {operator} {v});"))
            }
            2 => {
                let again = self.step(ty);
                lines.push(format!("{v} = {v} {operator} {step};"));
                lines.push(format!("{v} = {v} {operator} {again};"));
                lines.push(format!("{name}.write({index}, {v});"));
            }
            _ => {
                lines.push(format!("{v} = {v} {operator} {step};"));
                lines.push(format!("{name}.write({index}, {v});"));
            }
        }
        if self.random.random_bool(0.3) {
            lines.push(format!("meta.m = {};", convert(&v, ty, Ty::bits(32))));
        }
        (lines, false)
    }

    /// A change that only `@atomic` makes one step.
    fn any_order(&mut self, register: usize, index: &str) -> (Vec<String>, bool) {
        let (name, ty, kind, base) = {
            let register = &self.registers[register];
            (register.name.clone(), register.ty(), register.kind, register.base)
        };
        let (v, w, step) = (self.local(), self.local(), self.step(ty));
        let mut lines = vec![format!("{} {v};", ty.name()), format!("{name}.read({v}, {index});")];
        let twice = format!("{} {w};", ty.name());
        let condition = self.condition();
        match kind {
            Kind::Carry => lines.extend([
                format!("if ({v} == {base}) {{"),
                format!("    {name}.write({index}, 0);"),
                format!("    {twice}"),
                format!("    {name}_too.read({w}, {index});"),
                format!("    {name}_too.write({index}, {w} + 1);"),
                "} else {".into(),
                format!("    {name}.write({index}, {v} + 1);"),
                "}".into(),
            ]),
            Kind::Twin => lines.extend([
                twice,
                format!("{name}_too.read({w}, {index});"),
                format!("if ({v} != {w}) {{"),
                format!("    {name}_bad.write(0, 1);"),
                "}".into(),
                format!("{name}.write({index}, {v} + {step});"),
                format!("{name}_too.write({index}, {v} + {step});"),
            ]),
            Kind::Most => lines.extend([
                format!("if ({v} < {step}) {{"),
                format!("    {name}.write({index}, {step});"),
                "}".into(),
            ]),
            Kind::Saturating => lines.push(format!("{name}.write({index}, {v} |+| {step});")),
            Kind::Sum | Kind::Parity | Kind::Union => {
                let operator = if kind == Kind::Sum {
                    "+"
                } else if kind == Kind::Parity {
                    "^"
                } else {
                    "|"
                };
                lines.extend([
                    format!("if ({condition}) {{"),
                    format!("    {v} = {v} {operator} {step};"),
                    "}".into(),
                    format!("{name}.write({index}, {v});"),
                ]);
            }
        }
        (lines, true)
    }

    fn action(&mut self, index: usize, lines: &mut Vec<String>) -> String {
        let atomic = if self.random.random_bool(0.3) { "@atomic " } else { "" };
        lines.push(format!("    {atomic}action a{index}(bit<8> p) {{"));
        let at = lines.len();
        let register = self.random.random_range(0..self.registers.len());
        self.update_one(register, lines, 2, !atomic.is_empty());
        // The parameter in some of the steps.
        for line in &mut lines[at..] {
            if line.contains("meta.m = meta.m") {
                *line = "        meta.m = (bit<32>)p;".into();
            }
        }
        lines.push("    }".into());
        format!("a{index}")
    }

    fn table(&mut self, index: usize, calls: &[String], lines: &mut Vec<String>) {
        let key = self.field(Ty::bits(2));
        lines.push(format!("    table t{index} {{"));
        lines.push(format!("        key = {{ {key} : exact @name(\"k\"); }}"));
        lines.push(format!("        actions = {{ {}; NoAction; }}", calls.join("; ")));
        let action = |shared: &mut Self| {
            let call = &calls[shared.random.random_range(0..calls.len())];
            format!("{call}({})", literal(Ty::bits(8), shared.random))
        };
        let default = action(self);
        lines.push(format!("        default_action = {default};"));
        let word = if self.random.random() { "const " } else { "" };
        lines.push(format!("        {word}entries = {{"));
        let entry = action(self);
        lines.push(format!("            {} : {entry};", self.random.random_range(0..4)));
        lines.extend(["        }", "    }"].map(String::from));
    }
}

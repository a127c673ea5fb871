//! Values of all kinds on all ways: bytes, headers, stacks, unions and structs as parameters of
//! every direction of functions, actions, controls and parsers, moved as a whole and in parts, with
//! calls that have effects in every position that takes an expression.
//!
//! It works on headers and metadata of its own, `hdr.mx` and `meta.mx`, and on registers, so that
//! whatever goes wrong is seen.

mod callable;
mod expression;
mod parser;
mod statement;

use rand::Rng;
use rand::rngs::StdRng;

/// Elements of a stack.
const ELEMENTS: u32 = 3;
/// A body may run so many statements, those of what it calls among them.
const MOST_COST: u32 = 60;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `bit<8>`.
    Byte,
    /// A header of two bytes, `v` and `w`.
    Head,
    /// A stack of these.
    Stack,
    /// A union of one, `a`, and a header `b` of 16 bits.
    Union,
    /// A struct of three bytes, `a`, `b` and `c`.
    Pair,
    /// A struct of such a struct `p`, a header `h`, and four bits `n`.
    Nest,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::Byte, Kind::Head, Kind::Stack, Kind::Union, Kind::Pair, Kind::Nest];

    fn name(self, prefix: &str) -> String {
        match self {
            Kind::Byte => "bit<8>".into(),
            Kind::Head => format!("{prefix}mh_t"),
            Kind::Stack => format!("{prefix}mh_t[{ELEMENTS}]"),
            Kind::Union => format!("{prefix}mu_t"),
            Kind::Pair => format!("{prefix}mp_t"),
            Kind::Nest => format!("{prefix}mn_t"),
        }
    }
}

/// What a place is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Read,
    /// It is not read before.
    Write,
    Change,
}

/// A variable or parameter.
#[derive(Clone, Debug)]
struct Place {
    path: String,
    kind: Kind,
    writable: bool,
}

#[derive(Clone, Debug)]
struct Parameter {
    name: String,
    /// `in`, `inout` or `out`; of actions also none.
    direction: &'static str,
    kind: Kind,
}

/// A function, action, control or parser.
#[derive(Clone, Debug)]
struct Callable {
    name: String,
    result: Option<Kind>,
    parameters: Vec<Parameter>,
    /// Statements that a call runs at most.
    cost: u32,
    /// A control with a constructor parameter.
    constructed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Function,
    Action,
    Control,
    Parser,
}

/// A body under construction, and what it sees.
struct Scope<'a> {
    prefix: &'a str,
    random: &'a mut StdRng,
    inside: Inside,
    result: Option<Kind>,
    places: Vec<Place>,
    functions: Vec<Callable>,
    actions: Vec<Callable>,
    /// Instances of controls or parsers.
    instances: Vec<Callable>,
    /// Controls that are applied by their type's name.
    direct: Vec<Callable>,
    /// Names of tables and their actions.
    tables: Vec<(String, Vec<String>)>,
    /// Whether the registers `left` and `nibbles` and the counter `seen` are there.
    registers: bool,
    cost: u32,
    locals: u32,
    lines: Vec<String>,
    indent: usize,
}

impl<'a> Scope<'a> {
    fn new(prefix: &'a str, random: &'a mut StdRng, inside: Inside) -> Scope<'a> {
        Scope {
            prefix,
            random,
            inside,
            result: None,
            places: Vec::new(),
            functions: Vec::new(),
            actions: Vec::new(),
            instances: Vec::new(),
            direct: Vec::new(),
            tables: Vec::new(),
            registers: false,
            cost: 0,
            locals: 0,
            lines: Vec::new(),
            indent: 1,
        }
    }

    fn pick(&mut self, most: u32) -> u32 {
        self.random.random_range(0..most)
    }

    fn line(&mut self, text: impl AsRef<str>) {
        self.lines.push(format!("{}{}", "    ".repeat(self.indent), text.as_ref()));
    }

    fn open(&mut self, text: impl AsRef<str>) {
        self.line(text);
        self.indent += 1;
    }

    fn close(&mut self) {
        self.indent -= 1;
        self.line("}");
    }

    /// Parameters become places; what is `out` gets a value first.
    fn enter(&mut self, parameters: &[Parameter]) {
        for parameter in parameters {
            let writable = matches!(parameter.direction, "out" | "inout");
            self.places.push(Place {
                path: parameter.name.clone(),
                kind: parameter.kind,
                writable,
            });
        }
        for parameter in parameters.iter().filter(|parameter| parameter.direction == "out") {
            // Headers come in invalid, and show it.
            self.initialize(&parameter.name, parameter.kind);
        }
    }

    /// Gives the scalars in a new variable a value.
    fn initialize(&mut self, path: &str, kind: Kind) {
        match kind {
            Kind::Byte => {
                let value = self.pick(256);
                self.line(format!("{path} = {value};"));
            }
            Kind::Pair => {
                let values: Vec<String> = (0..3).map(|_| self.pick(256).to_string()).collect();
                self.line(format!("{path} = {{ {} }};", values.join(", ")));
            }
            Kind::Nest => {
                self.initialize(&format!("{path}.p"), Kind::Pair);
                let value = self.pick(16);
                self.line(format!("{path}.n = {value};"));
            }
            Kind::Head | Kind::Stack | Kind::Union => {}
        }
    }

    /// A new local with a value; its path.
    fn declare(&mut self, kind: Kind) -> String {
        self.locals += 1;
        let name = format!("x{}", self.locals);
        self.declare_as(&name, kind);
        name
    }

    fn declare_as(&mut self, name: &str, kind: Kind) {
        let ty = kind.name(self.prefix);
        let by_list = matches!(kind, Kind::Byte | Kind::Head | Kind::Pair) && self.pick(2) == 0;
        if by_list {
            let value = self.value(kind, 1);
            self.line(format!("{ty} {name} = {value};"));
        } else {
            self.line(format!("{ty} {name};"));
            self.initialize(name, kind);
        }
        self.places.push(Place { path: name.to_owned(), kind, writable: true });
    }
}

/// The lines that declare functions, parsers and controls, before the program's parser.
pub(super) fn declare(prefix: &str, random: &mut StdRng, lines: &mut Vec<String>) {
    let mut functions = callable::fixed(prefix, lines);
    for index in 0..random.random_range(2..5) {
        let function = callable::function(prefix, random, index, &functions, lines);
        functions.push(function);
    }
    let inner = parser::parser(prefix, random, "MovesInner", &functions, None, lines);
    let outer = parser::parser(prefix, random, "MovesParser", &functions, Some(&inner), lines);
    let mut controls = Vec::new();
    for index in 0..random.random_range(0..3) {
        let name = format!("MovesSub{index}");
        controls.push(callable::control(prefix, random, &name, &functions, &controls, lines));
    }
    let main = callable::control(prefix, random, "Moves", &functions, &controls, lines);
    root(prefix, random, &functions, &outer, &main, lines);
}

/// The lines that declare the types: before all others.
pub(super) fn types(prefix: &str, lines: &mut Vec<String>) {
    lines.push(format!("header {prefix}mh_t {{ bit<8> v; bit<8> w; }}"));
    lines.push(format!("header {prefix}mb_t {{ bit<16> v; }}"));
    lines.push(format!("header {prefix}mv_t {{ bit<3> n; bit<5> k; varbit<56> d; }}"));
    lines.push(format!("header_union {prefix}mu_t {{ {prefix}mh_t a; {prefix}mb_t b; }}"));
    lines.push(format!("struct {prefix}mp_t {{ bit<8> a; bit<8> b; bit<8> c; }}"));
    lines.push(format!("struct {prefix}mn_t {{ {prefix}mp_t p; {prefix}mh_t h; bit<4> n; }}"));
    lines.push(format!("enum {prefix}me_t {{ A, B, C }}"));
    lines.push(format!("enum bit<8> {prefix}ms_t {{ X = 3, Y = 0xf1 }}"));
    lines.push(format!("type bit<8> {prefix}my_t;"));
    lines.push(format!("struct {prefix}mx_t {{"));
    lines.push(format!("    {prefix}mh_t h;"));
    lines.push(format!("    {prefix}mh_t[{ELEMENTS}] s;"));
    lines.push(format!("    {prefix}mu_t u;"));
    lines.push(format!("    {prefix}mv_t vb;"));
    lines.push("}".into());
    lines.push(format!("struct {prefix}mm_t {{ bit<8> b; {prefix}mp_t p; {prefix}mn_t n; }}"));
}

/// The places of the program itself that controls and parsers get as arguments.
fn own_places() -> Vec<Place> {
    let list = [
        ("hdr.mx.h", Kind::Head),
        ("hdr.mx.s", Kind::Stack),
        ("hdr.mx.u", Kind::Union),
        ("meta.mx.b", Kind::Byte),
        ("meta.mx.p", Kind::Pair),
        ("meta.mx.n", Kind::Nest),
    ];
    list.map(|(path, kind)| Place { path: path.into(), kind, writable: true }).into()
}

/// `PREFIXMovesStart`, a parser, and `PREFIXMovesEnd`, a control: they apply the others to the
/// program's places.
fn root(
    prefix: &str,
    random: &mut StdRng,
    functions: &[Callable],
    parser: &Callable,
    control: &Callable,
    lines: &mut Vec<String>,
) {
    let both = format!("inout {prefix}headers_t hdr, inout {prefix}meta_t meta");
    lines.push(format!("parser {prefix}MovesStart(packet_in pkt, {both}) {{"));
    lines.push(format!("    {}() inner;", parser.name));
    lines.push("    state start {".into());
    let mut scope = Scope::new(prefix, random, Inside::Parser);
    scope.indent = 2;
    scope.places = own_places();
    scope.functions = functions.to_vec();
    for place in scope.places.clone() {
        scope.initialize(&place.path, place.kind);
    }
    // What a parser that rejects leaves in arguments of one variable is left open: mostly they are
    // variables of their own.
    let own = scope.random.random_bool(0.8);
    let outer = scope.places.clone();
    if own {
        for (index, place) in scope.places.iter_mut().enumerate() {
            place.path = format!("m{index}");
        }
        for (place, outer) in scope.places.clone().iter().zip(&outer) {
            scope.line(format!("{} {} = {};", place.kind.name(prefix), place.path, outer.path));
        }
    }
    for _ in 0..scope.random.random_range(1..3) {
        let apply = Callable { name: "inner".into(), ..parser.clone() };
        scope.apply(&apply, "pkt");
    }
    for (place, outer) in scope.places.clone().iter().zip(&outer).filter(|_| own) {
        scope.line(format!("{} = {};", outer.path, place.path));
    }
    scope.varbit_extract();
    lines.append(&mut scope.lines);
    lines.extend(["        transition accept;", "    }", "}"].map(String::from));

    lines.push(format!("control {prefix}MovesEnd({both}, inout standard_metadata_t sm) {{"));
    lines.push("    register<bit<8>>(16) ends;".into());
    let argument = if control.constructed { "11" } else { "" };
    lines.push(format!("    {}({argument}) inner;", control.name));
    lines.push("    apply {".into());
    let mut scope = Scope::new(prefix, random, Inside::Control);
    scope.indent = 2;
    scope.places = own_places();
    scope.functions = functions.to_vec();
    scope.cost = MOST_COST / 2;
    for _ in 0..scope.random.random_range(1..3) {
        let apply = Callable { name: "inner".into(), ..control.clone() };
        scope.apply(&apply, "");
    }
    scope.varbit_moves();
    let shown = [
        "meta.mx.b",
        "meta.mx.p.a",
        "meta.mx.p.b",
        "meta.mx.p.c",
        "meta.mx.n.p.a",
        "meta.mx.n.p.b",
    ];
    for (index, path) in shown.iter().enumerate() {
        scope.line(format!("ends.write({index}, {path});"));
    }
    scope.line("ends.write(6, 4w0 ++ meta.mx.n.n);");
    scope.line("if (meta.mx.n.h.isValid()) { ends.write(7, meta.mx.n.h.v ^ meta.mx.n.h.w); }");
    lines.append(&mut scope.lines);
    lines.extend(["    }", "}"].map(String::from));
}

/// Checksums over a list with a field of variable length and a call, at the start of
/// `PREFIXVerify` and `PREFIXCompute`.
fn checksums(prefix: &str, random: &mut StdRng, lines: &mut Vec<String>) {
    for (block, word) in [("Verify", "verify"), ("Compute", "update")] {
        if random.random_bool(0.5) {
            continue;
        }
        let algorithm = ["csum16", "crc16", "xor16"][random.random_range(0..3)];
        let condition = ["hdr.mx.u.b.isValid()", "hdr.mx.u.b.isValid() && hdr.mx.vb.isValid()"];
        let condition = condition[random.random_range(0..2)];
        let list = "hdr.mx.vb.n, hdr.mx.vb.k, hdr.mx.vb.d, hdr.mx.h.v";
        let line = format!(
            "{word}_checksum({condition}, {{ {list}, {prefix}mstep(meta.mx.b) }}, hdr.mx.u.b.v, HashAlgorithm.{algorithm});"
        );
        super::effects::insert(
            lines,
            &format!("control {prefix}{block}("),
            "apply {",
            "",
            &[&line],
        );
    }
}

/// Applies the parser and the control at the start of `PREFIXParser` and `PREFIXIngress`, whose
/// lines are among these.
pub(super) fn apply(prefix: &str, random: &mut StdRng, lines: &mut Vec<String>) {
    checksums(prefix, random, lines);
    super::effects::insert(
        lines,
        &format!("struct {prefix}headers_t {{"),
        "",
        &format!("    {prefix}mx_t mx;"),
        &[],
    );
    super::effects::insert(
        lines,
        &format!("struct {prefix}meta_t {{"),
        "",
        &format!("    {prefix}mm_t mx;"),
        &[],
    );
    let declared = format!("    {prefix}MovesStart() moves;");
    let run = ["moves.apply(pkt, hdr, meta);"];
    super::effects::insert(
        lines,
        &format!("parser {prefix}Parser("),
        "state start {",
        &declared,
        &run,
    );
    let declared = format!("    {prefix}MovesEnd() moves;");
    let run = ["moves.apply(hdr, meta, sm);"];
    super::effects::insert(lines, &format!("control {prefix}Ingress("), "apply {", &declared, &run);
}

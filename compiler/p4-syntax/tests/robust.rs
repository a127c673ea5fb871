//! No input makes the front end panic, hang or overflow the stack.
//!
//! proptest prints the seed of a failing case and keeps it in `proptest-regressions`.

use std::fs;
use std::path::Path;

use p4_syntax::{Options, SourceMap, all_to_json, lexer, parse_source, parser, render_all};
use proptest::prelude::*;

/// Lexer, parser and both renderings; returns how many messages there were.
fn run(text: &str) -> usize {
    let (tokens, mut diagnostics) = lexer::lex(text);
    let (program, more) = parser::parse(text, tokens);
    diagnostics.extend(more);
    let sources = SourceMap::plain("fuzz.p4", text);
    let shown = render_all(&diagnostics, &sources, true);
    assert_eq!(shown.is_empty(), diagnostics.is_empty());
    all_to_json(&diagnostics, &sources);
    // Debug walks the whole tree, as every later pass does.
    drop(format!("{program:?}"));
    diagnostics.len()
}

fn seeds() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let systems = fs::read_dir(root.join("p4/include/stateplane")).unwrap();
    let mut systems: Vec<_> = systems.map(|entry| entry.unwrap().path()).collect();
    systems.sort();
    assert!(!systems.is_empty());
    let files = [
        "p4/include/core.p4",
        "p4/include/v1model.p4",
        "p4/include/stateplane.p4",
        "p4/tests/gateway_router.p4",
    ]
    .map(|file| root.join(file));
    let mut out: Vec<String> = files
        .into_iter()
        .chain(systems)
        .map(|file| fs::read_to_string(file).unwrap())
        // Directives are the preprocessor's: without them the rest is read as it stands.
        .map(|t| t.lines().filter(|l| !l.starts_with('#')).collect::<Vec<_>>().join("\n"))
        .collect();
    out.push(CORNERS.into());
    out
}

const CORNERS: &str = r#"
@a(x (y) "z" ') @b[k=1, l={2,3}] @c[1, "s"] enum bit<8> E { A = 1, B = 8w2, }
header_union U<T> { T a; } struct S<T> { T f; E e; tuple<bit<8>, list<int<4>>> t; }
extern X<T> { X(bit<(W+1)> n); abstract T f<U>(in U u, @optional out T t = 5); }
T id<T>(in T x) { return x; }
X<bit<8>>(3) inst = { bit<8> f<U>(in U u, out bit<8> t) { return (bit<8>) 4 |+| 3; } };
control C(inout S<bit<8>> s)(bit<4> n) {
    E[3] st;
    action a(bit<8> p) { s.f[7:4] = p[3+:4]; s.f |-|= 3; s.f >>= 2; s.f <<= 1; }
    table t {
        key = { s.f : exact @name("k"); s.t[0] & 0xf : ternary; }
        actions = { a; @defaultonly .NoAction(); }
        const entries = { (1, _) : a(1) @x; const priority = 10 : (2 &&& 3, 4 .. 5) : a(2); (default, 0) : a(0); }
        const default_action = a(9); size = 1 << 4;
    }
    apply {
        if (t.apply().hit && !s.isValid()) exit; else if (true) { return; } else ;
        switch (t.apply().action_run) { a: { } .NoAction: default: { } }
        for (bit<8> i = 0, bit<8> j = 1; i < 5 >> 1; i = i + 1, j += 2) { continue; }
        for (@z bit<4> k in 1 .. 3) break;
        s = { f = 1, ... }; s = {#}; s = (S<bit<8>>) { 1, E.A, ... };
        s.f = id<bit<8>>(s.f) ++ (s.e == E.A ? 1w0 : ~1w1) + -(4s3) % 0x1F;
        D<bit<8>>.apply(s, _, n = _); this.f(error.NoError);
    }
}
parser P(packet_in p) { value_set<tuple<bit<8>, E>>(4) vs;
    state start { p.extract(h.next); transition select(h.x, h.y) { vs : s; (1, _): s; (0 &&& 1): s; default: reject; } }
    state s { transition accept; } }
"#;

#[derive(Clone, Debug)]
enum Edit {
    Delete(usize, usize),
    Insert(usize, String),
    Duplicate(usize, usize),
    Flip(usize, u8),
    Swap(usize, usize, usize),
}

fn snippet() -> impl Strategy<Value = String> {
    let words = [
        "<",
        ">",
        ">>",
        ">=",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ";",
        ",",
        ":",
        "...",
        "..",
        "&&&",
        "{#}",
        "@",
        "@pragma ",
        "\"",
        "/*",
        "*/",
        "//",
        "\n",
        "=",
        "_",
        "error",
        "bit<",
        "apply {",
        "table",
        "state",
        "transition select(",
        "if (",
        "else",
        "for (",
        "switch",
        "8w",
        "0x",
        "?",
        "\\",
        "\u{20ac}",
        "\0",
        "'",
        "tuple<",
        "list<",
        "header h {",
        "T<",
        "key = {",
        "entries = {",
        "priority =",
        "const",
        "default",
        "extern",
        "abstract",
        "(bit<8>)",
        "-",
        "+:",
    ];
    prop_oneof![
        4 => proptest::sample::select(words.to_vec()).prop_map(String::from),
        1 => any::<String>(),
        1 => (proptest::sample::select(words.to_vec()), 1usize..400).prop_map(|(w, n)| w.repeat(n)),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<usize>();
    prop_oneof![
        (at, 0usize..200).prop_map(|(a, n)| Edit::Delete(a, n)),
        (at, snippet()).prop_map(|(a, s)| Edit::Insert(a, s)),
        (at, 0usize..200).prop_map(|(a, n)| Edit::Duplicate(a, n)),
        (at, any::<u8>()).prop_map(|(a, b)| Edit::Flip(a, b)),
        (at, at, 1usize..40).prop_map(|(a, b, n)| Edit::Swap(a, b, n)),
    ]
}

fn mutate(text: &str, edits: &[Edit]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for e in edits {
        let len = bytes.len().max(1);
        match e {
            Edit::Delete(a, n) => {
                let a = a % len;
                bytes.drain(a.min(bytes.len())..(a + n).min(bytes.len()));
            }
            Edit::Insert(a, s) => {
                let a = (a % len).min(bytes.len());
                bytes.splice(a..a, s.bytes());
            }
            Edit::Duplicate(a, n) => {
                let a = (a % len).min(bytes.len());
                let copy = bytes[a..(a + n).min(bytes.len())].to_vec();
                bytes.splice(a..a, copy);
            }
            Edit::Flip(a, b) => {
                if let Some(x) = bytes.get_mut(a % len) {
                    *x = *b;
                }
            }
            Edit::Swap(a, b, n) => {
                let (a, b) = (a % len, b % len);
                for i in 0..*n {
                    if a + i < bytes.len() && b + i < bytes.len() {
                        bytes.swap(a + i, b + i);
                    }
                }
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The number of cases, unless the environment's PROPTEST_CASES says another.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, max_shrink_iters: 2_000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        run(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_tokens(words in proptest::collection::vec(snippet(), 0..80)) {
        run(&words.join(" "));
    }
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn mutated_programs(seed in any::<usize>(), edits in proptest::collection::vec(edit(), 1..8)) {
        let seeds = seeds();
        run(&mutate(&seeds[seed % seeds.len()], &edits));
    }
}

proptest! {
    // Each case runs the preprocessor.
    #![proptest_config(cases(40))]

    #[test]
    fn mutated_programs_preprocessed(edits in proptest::collection::vec(edit(), 1..8)) {
        let text = format!("#include <v1model.p4>\n#define M(a, b) ((a) + b)\n#if 1\nconst bit<8> x = M(1, 2);\n#endif\n{CORNERS}");
        match parse_source("fuzz.p4", &mutate(&text, &edits), &Options::default()) {
            Ok((program, sources)) => {
                for d in &program.declarations {
                    let place = sources.resolve(d.span());
                    assert!(place.line >= 1 && place.column >= 1);
                }
            }
            Err((diagnostics, sources)) => {
                assert!(diagnostics.iter().any(|d| d.is_error()));
                render_all(&diagnostics, &sources, false);
                all_to_json(&diagnostics, &sources);
            }
        }
    }
}

#[test]
fn corners_parse() {
    let sources = SourceMap::plain("corners.p4", CORNERS);
    let (tokens, mut d) = lexer::lex(CORNERS);
    d.extend(parser::parse(CORNERS, tokens).1);
    assert!(d.is_empty(), "{}", render_all(&d, &sources, false));
}

/// Deep nesting is refused with a message, on the 2 MiB stack that tests have.
#[test]
fn deep_nesting_is_an_error() {
    let n = 100_000;
    let deep = [
        format!("const int x = {}1{};", "(".repeat(n), ")".repeat(n)),
        format!("const int x = {}1{};", "{".repeat(n), "}".repeat(n)),
        format!("const int x = {}1;", "-".repeat(n)),
        format!("const int x = {}1;", "- ".repeat(n)),
        format!("const int x = {}1;", "(bit<8>)".repeat(n)),
        format!("const int x = 1{};", "+1".repeat(n)),
        format!("const int x = 1{};", "?1:1".repeat(n)),
        format!("const int x = {}1;", "1?".repeat(n)),
        format!("const int x = y{};", ".y".repeat(n)),
        format!("const int x = y{};", "()".repeat(n)),
        format!("const int x = y{};", "[0]".repeat(n)),
        format!("const int x = {};", "y[".repeat(n)),
        format!("const int x = {};", "a < b ".repeat(n)),
        format!("struct a {{}} const int x = {};", "a<".repeat(n)),
        format!("struct a {{}} const int x = {};", "a<bit<(".repeat(n)),
        format!("struct a {{}} const int x = {};", "(bit<(a + ".repeat(n)),
        format!("const {} x = 1;", "tuple<".repeat(n)),
        format!("const {} x = 1;", "bit<(".repeat(n)),
        format!("{} x;", "a<".repeat(n)),
        format!("{} x;", "a[".repeat(n)),
        format!("action a() {}", "{".repeat(n)),
        format!("action a() {{ {} }}", "if (x) ".repeat(n)),
        format!("action a() {{ {} }}", "if (x) {} else ".repeat(n)),
        format!("action a() {{ {} }}", "for (;x;) ".repeat(n)),
        format!("action a() {{ {} }}", "switch (x) { 1: {".repeat(n)),
        format!("{} int x = 1;", "@a[{".repeat(n)),
        format!("@a{} const int x = 1;", "(".repeat(n)),
        "X() x = { ".repeat(n),
        "control C() { ".repeat(n),
        "}".repeat(n),
        "header h {".repeat(n),
        format!("const int x = {};", "9".repeat(n)),
        format!("const int x = 0x{};", "f".repeat(n)),
        format!("const int x = {}w1;", "9".repeat(n)),
    ];
    for text in deep {
        let shown: String = text.chars().take(60).collect();
        assert!(run(&text) > 0, "accepted: {shown}");
    }
    // One error, not one for each level that was left as well.
    let text = format!(
        "control C() {{ apply {{ {} {{ }} }} }} const int x = ;",
        "if (x) { } else ".repeat(400)
    );
    assert_eq!(run(&text), 1);
}

/// The limits leave room for real programs.
#[test]
fn reasonable_nesting_is_accepted() {
    let n = 90;
    for text in [
        format!("const int x = {}1{};", "(".repeat(n), ")".repeat(n)),
        format!("const int x = 1{};", "+1".repeat(n)),
        format!("action a() {{ {} ; }}", "if (x) {} else ".repeat(n)),
    ] {
        assert_eq!(run(&text), 0);
    }
}

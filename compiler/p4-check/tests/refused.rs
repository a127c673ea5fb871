//! Faulty programs: each `§` stands where an error must be reported, and there must be no other
//! errors.

mod common;

use common::program;

/// Checks that the errors are exactly at the marks, in order, with these words.
fn refuse(marked: &str, expected: &[&str]) {
    let mut marks = Vec::new();
    let mut text = String::new();
    for (i, line) in marked.lines().enumerate() {
        let mut column = 1;
        for c in line.chars() {
            if c == '§' {
                marks.push((i as u32 + 1, column));
            } else {
                text.push(c);
                column += 1;
            }
        }
        text.push('\n');
    }
    let outcome = p4_check::check_source("t.p4", &text, &Default::default());
    let shown = outcome.render(false);
    let errors: Vec<_> = outcome.diagnostics.iter().filter(|d| d.is_error()).collect();
    let places: Vec<(u32, u32)> = errors
        .iter()
        .filter_map(|d| d.span)
        .map(|s| outcome.source_map.resolve(s))
        .map(|p| (p.line, p.column))
        .collect();
    assert_eq!(places, marks, "{shown}\n{text}");
    for (e, words) in errors.iter().zip(expected) {
        assert!(e.message.contains(words), "{words:?} is not in {:?}\n{shown}", e.message);
    }
    assert_eq!(errors.len(), expected.len(), "{shown}");
}

fn refuse_apply(apply: &str, expected: &[&str]) {
    refuse(&program("", "", apply), expected);
}

#[test]
fn all_independent_errors_of_a_run() {
    refuse_apply(
        "meta.x = §hdr.h.b; §nope = 1; meta.y = hdr.h.§q; bit<8> v = §true; meta.z = v §+ meta.z;
         v = §undefined + 1; bool w = (bool)v[0:0];",
        &[
            "expected `bit<8>`, found `bit<16>`",
            "`nope` is not declared",
            "no field `q`",
            "expected `bit<8>`, found `bool`",
            "`+` cannot be applied to `bit<8>` and `bool`",
            "`undefined` is not declared",
        ],
    );
}

#[test]
fn constant_index_beyond_a_stack() {
    let index = "index out of bounds: the stack has 4 elements";
    refuse_apply(
        "const bit<8> four = 4; hdr.s[3].setValid(); hdr.s[§4].setValid(); hdr.h = hdr.s[§four];
         hdr.s[§four + 1].a = 1; hdr.s[meta.x].a = 1;",
        &[index, index, index],
    );
}

#[test]
fn types_of_operators() {
    for (apply, message) in [
        ("meta.z = meta.x §&& meta.z;", "`&&` cannot be applied"),
        ("meta.x = §!meta.x;", "`!` cannot be applied"),
        ("meta.x = meta.x §+ meta.y;", "`+` cannot be applied to `bit<8>` and `bit<16>`"),
        ("meta.x = meta.x §/ meta.x;", "constant on the right"),
        ("meta.x = 5 §% 0;", "division by zero"),
        ("meta.x = meta.x §<< hdr.h.c;", "`<<` cannot be applied"),
        ("meta.x = §(bit<8>)hdr.h;", "cannot cast"),
        ("meta.z = §(bool)meta.x;", "cannot cast"),
        ("meta.x = meta.y[§8:0];", ""),
        ("meta.x = meta.x[§8:1];", "goes beyond"),
        ("meta.x = hdr.s[§4].a;", "out of bounds"),
        ("if (§meta.x) { }", "expected `bool`"),
        ("meta.z = hdr.h §== hdr.s;", "`==` cannot be applied"),
        ("const int big = 1 << 5; bit<8> n = big > 3 ? §16w1 : 2;", "expected `bit<8>`"),
        ("meta.x = §meta.z ? 1 : 2;", "the width of this value is not known"),
        ("tuple<bit<8>, bit<8>> q = { 1, 2 }; §q[0] = 5;", "a field of a tuple cannot be assigned"),
    ] {
        if !message.is_empty() {
            refuse_apply(apply, &[message]);
        }
    }
}

#[test]
fn directions_and_lvalues() {
    refuse(
        &program(
            "void set(out bit<8> o, in bit<8> i) { o = i; }
             bit<8> missing_return§_() { }",
            "action a(in bit<8> v, bit<8> data) { §v = 1; §data = 2; }",
            "set(§5, 1); set(§meta.y, 1); set(meta.x); §8w1 = 2; a(1, 2);",
        )
        .replace("missing_return§_", "§missing_return")
        .replace("set(meta.x)", "§set(meta.x)"),
        &[
            "does not return",
            "`in` parameter",
            "without direction",
            "not a variable",
            "needs `bit<8>`",
            "`i` is missing",
            "cannot be assigned",
        ],
    );
}

#[test]
fn names_and_order() {
    refuse(
        &program(
            "const bit<8> twice = 1; const bit<8> §twice = 2;",
            "",
            "§later(); meta.x = §E2.Q; §meta(); ",
        ),
        &["declared twice", "`later` is not declared", "`E2` is not declared", "cannot be called"],
    )
}

#[test]
fn tables() {
    refuse(
        &program(
            "",
            "action a(bit<8> v) { meta.x = v; } action b() { }
             table t {
                 key = { hdr.h.a: §exactly; §hdr.h: exact; }
                 actions = { a; b; §c; §a; }
                 default_action = §NoAction();
                 size = §meta.x;
             }
             table u {
                 key = { hdr.h.a: exact; hdr.h.b: lpm; }
                 actions = { a; b; }
                 const entries = { (§1): b(); (§256w1, _): b(); (1, §1 &&& 0x0f): b(); (2, _): §a(); §(_, 3): b(); }
                 §size = 3;
                 §size = 4;
             }",
            "t.apply(); u.apply(§1);",
        )
        .replace("§size = 3", "size = 3"),
        &[
            "match_kind `exactly`",
            "a key cannot have type",
            "`c` is not declared",
            "twice",
            "not in the actions",
            "constant number",
            "1 value given",
            "expected `bit<8>`",
            "prefix",
            "`v` is missing",
            "cannot match",
            "given twice",
            "takes no arguments",
        ],
    );
}

#[test]
fn parsers() {
    refuse(
        "#include <core.p4>
header h_t { bit<8> a; }
parser P(packet_in packet, out h_t h) {
    state start { packet.extract(h); transition select(h.a) { 1: §nowhere; §16w2: accept; 3: other; } }
    state other { transition §gone; }
    state §other { transition accept; }
    state §accept { }
}
parser §Q(packet_in packet) { state begin { transition accept; } }",
        &[
            "no state `nowhere`",
            "expected `bit<8>`",
            "no state `gone`",
            "declared twice",
            "cannot be declared",
            "no state `start`",
        ],
    );
}

#[test]
fn architecture() {
    refuse(
        &program("", "", "").replace("V1Switch(P(), V(), I()", "V1Switch(P(), V(), §V()"),
        &["does not have the signature"],
    );
    let no_main = program("", "", "").replace("V1Switch(P(), V(), I(), E(), C(), D()) main;", "");
    let outcome = p4_check::check_source("t.p4", &no_main, &Default::default());
    assert!(outcome.render(false).contains("no `main`"), "{}", outcome.render(false));
}

#[test]
fn switches() {
    refuse(
        &program(
            "",
            "action a() { } action b() { } table t { actions = { a; } }",
            "switch (t.apply().action_run) { a: { } §b: { } §a: { } default: { } }
             switch (meta.x) { 1: { } §1: { } §meta.x: { } §true: { } }
             switch (§hdr.h) { }",
        ),
        &[
            "has no action `b`",
            "occurs twice",
            "occurs twice",
            "must be a constant",
            "expected `bit<8>`",
            "a switch on",
        ],
    );
}

#[test]
fn sizes_that_would_not_end() {
    let mut types = String::from("struct t0 { bit<8> a; bit<8> b; }\n");
    for i in 1..40 {
        types += &format!("struct t{i} {{ t{} a; t{} b; }}\n", i - 1, i - 1);
    }
    let outcome = p4_check::check_preprocessed("t.p4", &types);
    assert!(outcome.render(false).contains("type too large"));
    for text in [
        "const int x = 1 << 999999999999;",
        "const bit<99999> x = 1;",
        "const int x = 1 << (1 << 70);",
    ] {
        let outcome = p4_check::check_preprocessed("t.p4", text);
        assert!(outcome.has_errors(), "{text}");
    }
    let mut functions = String::from("bit<8> f0(in bit<8> x) { return x + 1; }\n");
    for i in 1..38 {
        functions +=
            &format!("bit<8> f{i}(in bit<8> x) {{ return f{}(x) + f{}(x); }}\n", i - 1, i - 1);
    }
    let too_large = &["with this call of function f37, inlining makes more than"];
    refuse(&program(&functions, "", "meta.x = §f37(1);"), too_large);
    // Returns in the middle are jumps, which take no less.
    let mut functions =
        String::from("bit<8> f0(in bit<8> x) { if (x == 3) { return 1; } return x; }\n");
    for i in 1..12 {
        let below = i - 1;
        functions +=
            &format!("bit<8> f{i}(in bit<8> x) {{ if (x == {i}) {{ return f{below}(x); }} ");
        functions += &format!("return f{below}(f{below}(x)); }}\n");
    }
    refuse(&program(&functions, "", "meta.x = §f11(1);"), &["with this call of function f11"]);
}

#[test]
fn tables_that_contradict_themselves() {
    let table = |list: &str, rest: &str| {
        let locals = format!(
            "action a() {{ }} action b() {{ }}
             table t {{ key = {{ hdr.h.a: exact; hdr.h.b: ternary; }} actions = {{ {list} }} {rest} }}"
        );
        program("", &locals, "t.apply();")
    };
    let both = "a; b;";
    let refuse_table = |list: &str, rest: &str, why: &[&str]| refuse(&table(list, rest), why);
    refuse_table(
        both,
        "const entries = { priority = §1: (1, 2): a(); }",
        &["`const entries` cannot have priorities"],
    );
    refuse_table(
        both,
        "entries = { §(1, 2): a(); priority = 4: (1, 3): b(); }",
        &["the first entry needs a priority"],
    );
    refuse_table("@defaultonly a; b;", "entries = { (1, 2): §a(); }", &["`a` is @defaultonly"]);
    refuse_table("@tableonly a; b;", "default_action = §a();", &["`a` is @tableonly"]);
    refuse_table("@tableonly §@defaultonly a; b;", "", &["is @defaultonly and @tableonly"]);
    refuse_table("@defaultonly §@tableonly a; b;", "", &["is @defaultonly and @tableonly"]);
    refuse_table(both, "§idle = 4;", &["no table property `idle`"]);
    refuse_table(both, "stateplane_exchange = §4;", &["must be `true` or `false`"]);
    refuse_table(
        both,
        "stateplane_exchange = true; §stateplane_exchange = true;",
        &["property `stateplane_exchange` is given twice"],
    );
    refuse_table(both, "stateplane_per_incarnation = §hdr.h.a == 1;", &["must be `true` or"]);
    refuse_table(both, "support_timeout = §true;", &["no idle timeouts"]);
    refuse_table(both, "priority_delta = §0;", &["`priority_delta` must be a positive"]);
    refuse_table(
        both,
        "priority_delta = 5; entries = { priority = 3: (1, 2): a(); §(1, 3): b(); }",
        &["priority is -2"],
    );
    // Nothing is left for a priority to decide (spec §14.2.1.4).
    for kind in ["exact", "lpm"] {
        let locals = format!(
            "action a() {{ }}
             table t {{ key = {{ hdr.h.a: exact; hdr.h.b: {kind}; }} actions = {{ a; }}
                 entries = {{ priority = §2: (1, 2): a(); priority = 1: (1, 3): a(); }} }}"
        );
        refuse(&program("", &locals, "t.apply();"), &["all exact or lpm"]);
    }
}

#[test]
fn what_tables_say_twice() {
    let table = |list: &str, rest: &str| {
        let locals = format!(
            "action a(in bit<8> x, bit<8> y) {{ meta.x = x + y; }} action b() {{ }}
             direct_counter(CounterType.packets) c;
             table t {{ key = {{ hdr.h.a: exact; }} actions = {{ a({list}); b; @tableonly NoAction; }} {rest} }}"
        );
        let next = "bit<8> next(inout bit<8> x, in bit<8> by) { x = x + by; return x; }";
        program(next, &locals, "t.apply();")
    };
    let refuse_table = |list: &str, rest: &str, why: &[&str]| refuse(&table(list, rest), why);
    refuse_table("hdr.h.a", "default_action = a(hdr.h.a, 1);", &[]);
    refuse_table(
        "hdr.h.a",
        "default_action = a(§hdr.g.a, 1);",
        &["differs from the one in the table's list"],
    );
    let entries =
        "default_action = b; const entries = { 1: a(hdr.h.a, 1); 2: a(§hdr.h.b[7:0], 1); }";
    refuse_table("hdr.h.a", entries, &["differs from the one in the table's list"]);
    refuse_table("hdr.h.b[7:0] + 1", "default_action = a(hdr.h.b[7:0] + 1, 1);", &[]);
    refuse_table("next(hdr.h.a, 1)", "default_action = a(next(hdr.h.a, 1), 1);", &[]);
    refuse_table(
        "next(hdr.h.a, 1)",
        "default_action = a(§next(hdr.h.a, 2), 1);",
        &["differs from the one"],
    );
    refuse_table("hdr.h.a", "default_action = b; §tally = c;", &["no table property `tally`"]);
    let implicit = table("hdr.h.a", "").replace("@tableonly", "§@tableonly");
    refuse(&implicit, &["`NoAction` is @tableonly"]);
}

#[test]
fn verify_outside_of_parsers() {
    refuse_apply("§verify(meta.z, error.NoMatch);", &["`verify` can be called in parsers only"]);
    let function = "void f(in bool b) { §verify(b, error.NoMatch); }";
    refuse(&program(function, "", "f(meta.z);"), &["`verify` can be called in parsers only"]);
}

#[test]
fn casts_of_places_and_new_types() {
    let types = "type bit<8> n_t; enum bit<8> e_t { A = 1 } bit<8> f(inout bit<8> x) { return x; }";
    for (apply, why) in [
        ("meta.x = f(§(bit<8>)hdr.h.a);", "not a variable"),
        ("n_t n = §(n_t)meta.y;", "neither is made from the other"),
        ("n_t n = §(n_t)hdr.h.c;", "neither is made from the other"),
        ("n_t n = (n_t)1; meta.y = §(bit<16>)n;", "neither is made from the other"),
        ("e_t e = §(e_t)meta.y;", "neither is made from the other"),
        ("tuple<§int, bit<8>> t = { 1, 2 };", "cannot have type"),
    ] {
        refuse(&program(types, "", &apply.replace("tuple<§int", "§tuple<int")), &[why]);
    }
    refuse(&program("struct s_t { §int x; }", "", ""), &["cannot have a field of type `int`"]);
}

#[test]
fn equal_exact_entries() {
    let locals = "action a() { }
        table t { key = { hdr.h.a: exact; } actions = { a; } const entries = { 1: a(); §1: a(); } }";
    refuse(&program("", locals, "t.apply();"), &["has the same key"]);
    // Of equal prefixes neither is the longest.
    let lpm = |entries: &str| {
        let locals = format!(
            "action a() {{ }} table t {{ key = {{ hdr.h.a: lpm; meta.x: exact; }} actions = {{ a; }} const entries = {{ {entries} }} }}"
        );
        program("", &locals, "t.apply();")
    };
    refuse(&lpm("(1, 2): a(); §(1, 2): a();"), &["has the same key"]);
    refuse(&lpm("(0x12 &&& 0xf0, 2): a(); §(0x1f &&& 0xf0, 2): a();"), &["has the same key"]);
    refuse(
        &lpm(
            "(0x12 &&& 0xf0, 2): a(); (0x12, 2): a(); (0x12, 3): a(); (_, 2): a(); §(0 &&& 0, 2): a();",
        ),
        &["has the same key"],
    );
}

#[test]
fn values_and_arguments_that_are_fixed() {
    refuse(
        &program("enum bit<4> e_t { A = 1, B = §16 }", "", ""),
        &["16 does not fit in `bit<4>`"],
    );
    refuse(&program("enum int<4> e_t { A = -8, B = §8 }", "", ""), &["8 does not fit in `int<4>`"]);
    let types = "type bit<8> n_t; type bit<8> m_t; type n_t o_t;";
    let casts =
        "n_t n = (n_t)meta.x; o_t o = (o_t)n; n = (n_t)o; m_t m = §(m_t)n; m = (m_t)(bit<8>)n;";
    refuse(&program(types, "", casts), &["both are made by `type`"]);
    let function = "bit<8> f(bit<8> x, in bit<8> y) { return x + y; }";
    refuse(
        &program(function, "", "meta.x = f(3, meta.x); meta.x = f(§meta.x, 3);"),
        &["`x` of `f` has no direction"],
    );
    let inner = "bit<8> f(bit<8> x) { return x; } bit<8> g(bit<8> x) { return f(x); }";
    refuse(
        &program(inner, "action a(bit<8> x) { meta.x = f(§x); }", "a(1); meta.x = g(2);"),
        &["no direction"],
    );
    refuse_apply(
        "§register<bit<8>>(4) r; r.write(0, 1);",
        &["cannot be declared among statements"],
    );
    let parser = "parser S(packet_in p) { state start { transition accept; } }";
    refuse(&program(parser, "§S() s;", ""), &["a parser cannot be instantiated in a control"]);
    let inner = "control S() { apply { } } parser Q(packet_in p) { §S() s; state start { transition accept; } }";
    refuse(
        &program(inner, "S() s;", "s.apply();"),
        &["a control cannot be instantiated in a parser"],
    );
    refuse_apply("switch (§meta.z) { true: { meta.x = 1; } }", &["a switch on `bool`"]);
}

#[test]
fn atomic_parsers() {
    let parsers = |atomic: &str, state: &str, inside: &str| {
        format!(
            "#include <core.p4>
            #include <v1model.p4>
            header h_t {{ bit<8> a; }}
            struct headers_t {{ h_t h; }}
            struct meta_t {{ }}
            parser Sub(packet_in packet, out h_t h) {{ state start {{ packet.extract(h); transition accept; }} }}
            {atomic} parser P(packet_in packet, out headers_t hdr, inout meta_t m, inout standard_metadata_t s) {{
                register<bit<8>>(1) r;
                Sub() sub;
                {state} state start {{ bit<8> x = 0; {inside} transition accept; }}
            }}
            control V(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
            control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{ apply {{ }} }}
            control D(packet_out packet, in headers_t hdr) {{ apply {{ packet.emit(hdr); }} }}
            V1Switch(P(), V(), I(), I(), V(), D()) main;"
        )
    };
    refuse(&parsers("", "@atomic", "r.read(x, 0); r.write(0, x);"), &[]);
    refuse(&parsers("@atomic", "", "sub.apply(packet, hdr.h);"), &[]);
    let applied = parsers("", "", "@atomic §{ sub.apply(packet, hdr.h); }");
    refuse(&applied, &["a parser cannot be applied in `@atomic` code"]);
    let whole = parsers("@atomic", "", "r.read(x, 0);").replace("parser P(", "parser §P(");
    refuse(&whole, &["an `@atomic` parser that uses extern objects"]);
}

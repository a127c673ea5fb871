//! Good programs and what their IR says.

mod common;

use common::program;

fn ir(text: &str) -> String {
    let outcome = p4_check::check_source("t.p4", text, &Default::default());
    match &outcome.program {
        Some(p) => p.to_string(),
        None => panic!("{}\n{text}", outcome.render(false)),
    }
}

/// The IR of a program with these parts has these lines (leading spaces aside), in this order.
fn expect(top: &str, locals: &str, apply: &str, lines: &[&str]) {
    let dump = ir(&program(top, locals, apply));
    let mut found = dump.lines().map(str::trim);
    for want in lines {
        assert!(found.any(|l| l == *want), "no line `{want}` (in this order) in\n{dump}");
    }
}

#[test]
fn nat_program() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/nat.p4");
    let outcome = p4_check::check_file(path.as_ref(), &Default::default());
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    assert_eq!(program.tables.len(), 2);
    assert_eq!(program.tables[1].name, "NatIngress.routes");
    assert_eq!(program.externs[0].extern_type, "Bindings");
    assert!(outcome.diagnostics.is_empty(), "{}", outcome.render(false));
}

#[test]
fn constants_fold() {
    expect(
        "const int W = 3 + 5; const bit<(W)> K = (bit<(W)>)(0x1ff & 0xf0) | 1; typedef bit<(W * 2)> y_t; const y_t Y = 16w0xabcd;",
        "",
        "meta.x = K; meta.y = Y[15:8] ++ Y[7:0]; meta.y = -1; meta.x = 8w250 |+| 10; meta.z = 3 > 2 && W == 8; meta.x = (bit<8>)hdr.h.c;",
        &[
            "meta.x = 8w241",
            "meta.y = 16w43981",
            "meta.y = 16w65535",
            "meta.x = 8w255",
            "meta.z = true",
            "meta.x = (bit<8>)hdr.h.c",
        ],
    );
}

#[test]
fn evaluation_order_and_short_circuit() {
    expect(
        "bit<8> next(inout bit<8> x) { x = x + 1; return x; }",
        "",
        "meta.x = meta.x + next(meta.x); if (meta.z && next(meta.x) == 3) { meta.y = 1; }",
        &[
            "tmp = meta.x",
            "meta.x = (meta.x + 8w1)",
            "next_result = meta.x",
            "meta.x = (tmp + next_result)",
            "if tmp_2 {",
        ],
    );
}

#[test]
fn copy_in_and_copy_out() {
    // Aliased arguments are copied, in the order of parameters.
    expect(
        "void swap(inout bit<8> a, inout bit<8> b) { bit<8> t = a; a = b; b = t; }",
        "",
        "swap(hdr.h.a, hdr.g.a); swap(meta.x, meta.x);",
        &[
            "t = hdr.h.a",
            "hdr.h.a = hdr.g.a",
            "hdr.g.a = t",
            "a = meta.x",
            "b = meta.x",
            "a = b",
            "meta.x = a",
            "meta.x = b",
        ],
    );
}

#[test]
fn sub_controls_and_names() {
    expect(
        "control Inner(inout h_t h)(bit<8> step) {
             action go(bit<8> v) { h.a = v + step; }
             table t { key = { h.a: ternary @name(\"alpha\"); } actions = { go; } size = 4; }
             apply { if (t.apply().miss) { return; } h.b = 1; }
         }",
        "Inner(3) one; @name(\"deux\") Inner(4) two; @name(\".everywhere\") action top() { }",
        "one.apply(hdr.h); two.apply(hdr.g); top();",
        &[
            "hdr.h.a = (I_one_go_v + 8w3)",
            "hdr.g.a = (I_deux_go_v + 8w4)",
            "table I.one.t [p4_I_one_t] {",
            "key alpha: ternary = hdr.h.a",
            "table I.deux.t [p4_I_deux_t] {",
            "apply I.one.t hit=t_hit",
            "if !t_hit {",
            "hdr.h.b = 16w1",
        ],
    );
}

#[test]
fn headers_are_taken_apart() {
    expect(
        "struct in_t { bit<8> p; bit<8> q; } header n_t { bit<8> a; in_t i; } struct s_t { bit<8> u; h_t h; }",
        "n_t n; s_t s; s_t r;",
        "n.i.q = 1; n.i = { 2, 3 }; meta.z = hdr.h == hdr.g; hdr.h = { 1, 2, 3, 1 }; hdr.g = {#}; s = { u = 1, h = hdr.h }; meta.z = s != r;",
        &[
            "n.i_q = 8w1",
            "n.i_p = 8w2",
            "n.i_q = 8w3",
            "hdr.h = header {8w1, 16w2, 8s3, 1w1}",
            "hdr.g = {#}",
            "s = {8w1, hdr.h}",
        ],
    );
}

#[test]
fn generics_named_and_default_arguments() {
    expect(
        "T pick<T>(in bool c, in T a, in T b) { if (c) { return a; } return b; }
         bit<8> plus(in bit<8> x, in bit<8> by = 2) { return x + by; }
         struct pair<A, B> { A first; B second; }",
        "pair<bit<8>, bit<16>> p;",
        "meta.y = pick(meta.z, meta.y, 5); meta.x = plus(by = 3, x = meta.x); meta.x = plus(meta.x); p = { 1, 2 };
         random(meta.x, 0, 7); hash(meta.y, HashAlgorithm.crc16, 16w0, { hdr.h.a, hdr.h.b }, 16w100);",
        &[
            "pick_result = meta.y",
            "plus_result = (meta.x + 8w3)",
            "plus_result_2 = (meta.x + 8w2)",
            "p = {8w1, 16w2}",
            "call random<bit<8>>(out meta.x, 8w0, 8w7)",
            "call hash<bit<16>, bit<16>, tuple_2, bit<16>>(out meta.y, HashAlgorithm.crc16, 16w0, {hdr.h.a, hdr.h.b}, 16w100)",
        ],
    );
}

#[test]
fn sub_parsers_and_stacks() {
    let text = program(
        "parser Sub(packet_in p, out h_t h) { state start { p.extract(h); transition select(h.a) { 0: reject; default: accept; } } }",
        "",
        "hdr.s.push_front(1); hdr.s[1].setInvalid();",
    )
    .replace(
        "state start { packet.extract(hdr.h); transition accept; }",
        "Sub() sub;
         state start { sub.apply(packet, hdr.g); transition loop; }
         state loop { packet.extract(hdr.s.next); transition select(hdr.s.last.a, packet.lookahead<bit<4>>()) {
             (0 .. 5, 4w1 &&& 4w3): loop; (_, _): rest; } }
         state rest { packet.advance(8); packet.extract<h_t>(_); transition accept; }",
    );
    let dump = ir(&text);
    for line in [
        "state start {",
        "state P_sub_start {",
        "goto P_sub_start",
        "(8w0): reject",
        "state start_after {",
        "extract hdr.s.next",
        "select (hdr.s.last.a, lookahead<bit<4>>()) {",
        "(0 .. 5, 0x1 &&& 0x3): loop",
        "advance 32w8",
        "skip 33",
    ] {
        assert!(dump.lines().any(|l| l.trim() == line), "no `{line}` in\n{dump}");
    }
}

#[test]
fn bound_actions_entries_and_attached_objects() {
    expect(
        "",
        "direct_counter(CounterType.bytes) hits;
         action add(inout bit<8> to, bit<8> v) { to = to + v; hits.count(); }
         table t {
             key = { hdr.h.b: lpm; hdr.h.isValid(): exact; }
             actions = { add(meta.x); NoAction; }
             default_action = add(meta.x, 9);
             const entries = { (0x0a00 &&& 0xff00, true): add(1); (_, false): NoAction(); }
             counters = hits;
         }",
        "t.apply();",
        &[
            "meta.x = (meta.x + I_add_v)",
            "call I.hits.count()",
            "key hdr.h.$valid$: exact = hdr.h.isValid()",
            "default I.add(9)",
            "const entry (0xa00 &&& 0xff00, true) -> I.add(1)",
            "const entry (_, false) -> NoAction()",
            "counters = I.hits",
        ],
    );
}

#[test]
fn chains_ranges_and_macros() {
    let sum = vec!["meta.x"; 250].join(" + ");
    let ifs: String =
        (0..250).map(|n| format!("if (meta.y == {n}) {{ meta.x = 1; }} else ")).collect();
    ir(&program("", "", &format!("meta.x = {sum}; {ifs} {{ meta.x = 2; }}")));
    let guards = "#if !defined(_CORE_P4_) || !defined(_V1_MODEL_P4_) || V1MODEL_VERSION != 20180101
        the macros of the standard's files are missing
        #endif";
    ir(&program(guards, "", ""));
    ir(&program(
        "",
        "",
        "const int big = 1 << 5; meta.x = big > 3 ? 1 : 2; meta.x = meta.z ? 1 : 8w2;",
    ));
    ir(&program("", "", "tuple<bit<8>, bool> q = { 1, true }; q = { 3, false }; meta.x = q[0];"));
    // An empty range matches nothing.
    let locals = "action a() { } table t { key = { meta.x: range; } actions = { a; } const entries = { 5..3: a(); } }";
    ir(&program("", locals, "t.apply();"));
}

#[test]
fn what_is_atomic_stays_marked() {
    let locals = "register<bit<8>>(4) r;
        @atomic action all() { r.read(meta.x, 0); }
        action body() @atomic { r.read(meta.x, 1); }
        action none() { meta.z = true; }
        table t { actions = { all; } default_action = all(); }";
    let apply = "@atomic { r.write(2, meta.x); }
        if (meta.z) @atomic { r.write(3, meta.x); }
        body();
        @atomic { t.apply(); }
        @atomic { none(); meta.y = 7; }
        { r.write(4, meta.x); }
        switch (meta.x) { 1: @atomic { r.write(5, meta.x); } }";
    let block = |inside: &str, depth: usize| {
        let at = "    ".repeat(depth);
        format!("{at}@atomic {{\n{at}    {inside}\n{at}}}\n")
    };
    let shown = ir(&program("", locals, apply)).to_string();
    let expected = [
        block("call I.r.read(out meta.x, 32w0)", 1),
        block("call I.r.write(32w2, meta.x)", 1),
        block("call I.r.write(32w3, meta.x)", 2),
        block("call I.r.read(out meta.x, 32w1)", 2),
        block("apply I.t", 1),
        block("call I.r.write(32w5, meta.x)", 2),
    ];
    for part in &expected {
        assert!(shown.contains(part.as_str()), "{part} is not in\n{shown}");
    }
    // What packets do not share needs no mark.
    assert_eq!(shown.matches("@atomic").count(), expected.len(), "{shown}");
}

#[test]
fn a_callers_argument_of_an_action_may_change() {
    // Spec §6.8: given in the program, action data is like an `in` parameter.
    expect("", "action a(bit<8> v) { meta.x = v; }", "a(hdr.h.a);", &["meta.x = hdr.h.a"]);
}

#[test]
fn numbers_beyond_their_type_are_cut_and_told() {
    // Spec §8.11.1: the number is cut, and a warning says so; bounds and masks of sets are numbers
    // like others.
    let program = program(
        "",
        "action a() { } table t { key = { hdr.h.a: range; } actions = { a; } const entries = { 3..300: a(); } }",
        "t.apply(); meta.x = 300; switch (meta.x) { 301: { } }",
    );
    let outcome = p4_check::check_source("t.p4", &program, &Default::default());
    let told: Vec<&str> = outcome.diagnostics.iter().map(|d| d.message.as_str()).collect();
    let cut = |from: u32, to: u32| format!("{from} does not fit in `bit<8>`: it becomes {to}");
    assert_eq!(told, [cut(300, 44), cut(300, 44), cut(301, 45)]);
}

//! Messages: their words, and the place they point to in the file as the user wrote it.

use std::fs;

use p4_syntax::{Options, all_to_json, parse_file, parse_source, render_all};

fn errors(text: &str) -> String {
    match parse_source("a.p4", text, &Options::default()) {
        Ok(_) => panic!("accepted: {text}"),
        Err((d, sources)) => render_all(&d, &sources, false),
    }
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let shown = errors(text);
    assert_eq!(shown, expected, "\n{shown}");
}

#[test]
fn place_line_caret_and_reason() {
    check(
        "header h {\n    bit<8> a;\n    bit<W> b;\n}\n",
        "a.p4:3:9: error: a width that is not a plain number must stand in parentheses\n    \
             3 |     bit<W> b;\n      |         ^ write `(W)`\n1 error\n",
    );
}

#[test]
fn missing_semicolon_points_behind_the_line_and_costs_one_error() {
    check(
        "action a() {\n    x = 1\n    y = 2;\n}\n",
        "a.p4:2:10: error: expected `;` after the assignment, found `y`\n    \
             2 |     x = 1\n      |          ^ `;` is missing here\n1 error\n",
    );
}

#[test]
fn independent_errors_come_in_one_run() {
    let shown = errors(
        "const bit<8> a = ;\nstruct s { bit<8> ; bit<8> ok; bit<> z; }\ncontrol c() {\n  action b() { x = = 1; y = (1; z = 1; }\n  \
         table t { key = { k exact; } size = ; }\n  apply { if x { } t.apply( ; }\n}\nparser p() { state s { transition } }\n",
    );
    let places: Vec<&str> = shown
        .lines()
        .filter(|l| l.contains("error: "))
        .map(|l| l.split(": ").next().unwrap())
        .collect();
    let expected = [
        "a.p4:1:18",
        "a.p4:2:19",
        "a.p4:2:36",
        "a.p4:4:20",
        "a.p4:4:31",
        "a.p4:5:23",
        "a.p4:5:39",
        "a.p4:6:14",
        "a.p4:6:29",
        "a.p4:8:35",
    ];
    assert_eq!(places, expected, "\n{shown}");
}

#[test]
fn missing_parentheses_and_braces_cost_one_error_each() {
    let shown = errors(
        "control c() { apply {\n if (x > 5 { f(); } else if x < 3 { f() } else g();\n hash(x, { h.a, h.b);\n r.write(5, x)\n \
         y = { 1 2 };\n z = ;\n} }\n",
    );
    let places: Vec<&str> = shown
        .lines()
        .filter(|l| l.contains("error: "))
        .map(|l| l.split(": ").next().unwrap())
        .collect();
    let expected =
        ["a.p4:2:12", "a.p4:2:29", "a.p4:2:40", "a.p4:3:20", "a.p4:4:15", "a.p4:5:10", "a.p4:6:6"];
    assert_eq!(places, expected, "\n{shown}");
}

#[test]
fn missing_brace_is_reported_where_it_is_noticed_and_opened() {
    check(
        "header h {\n    bit<8> a;\nstruct s { }\nconst bit<8> x = ;\n",
        "a.p4:3:1: error: expected `}`, found keyword `struct`\n    3 | struct s { }\n      | ^^^^^^\n\
         a.p4:1:10: note: this `{` is not closed\n    1 | header h {\n      |          ^\n\
         a.p4:4:18: error: expected an expression, found `;`\n    4 | const bit<8> x = ;\n      |                  ^\n2 errors\n",
    );
}

#[test]
fn stray_brace() {
    assert!(
        errors("}\nconst int x = 1;").starts_with("a.p4:1:1: error: this `}` closes nothing\n")
    );
}

#[test]
fn end_of_file_errors_point_at_its_end() {
    for (text, place) in [
        ("struct s {", "a.p4:1:11"),
        ("const int x =\n", "a.p4:1:14"),
        ("@a(", "a.p4:1:3"),
        ("/* c\n\n", "a.p4:1:1"),
        ("const string x = \"abc\n;", "a.p4:1:18"),
    ] {
        let shown = errors(text);
        assert!(shown.starts_with(&format!("{place}: error: ")), "{text:?}\n{shown}");
        assert!(shown.ends_with("1 error\n"), "{text:?}\n{shown}");
    }
}

#[test]
fn columns_count_characters_and_carets_stand_under_them() {
    check(
        "/* \u{e9}\u{65e5}\u{672c} */ const int x = $;",
        "a.p4:1:25: error: expected an expression, found the character `$`, which P4 does not use\n    \
             1 | /* \u{e9}\u{65e5}\u{672c} */ const int x = $;\n      |                           ^\n1 error\n",
    );
    check(
        "\tconst int\tx = ;",
        "a.p4:1:16: error: expected an expression, found `;`\n    1 |     const int   x = ;\n      |                     ^\n1 error\n",
    );
}

#[test]
fn crlf_and_byte_order_mark() {
    let shown = errors("\u{feff}const int x = 1;\r\nconst int y = ;\r\n");
    assert!(shown.starts_with("a.p4:2:15: error"), "{shown}");
    assert!(!shown.contains('\r'));
}

#[test]
fn a_huge_line_is_cut_around_the_caret() {
    let text = format!("const int x = {};{}", "1 + ".repeat(100), " ".repeat(1_000_000));
    let shown = errors(&text);
    assert!(shown.starts_with("a.p4:1:415: error: expected an expression, found `;`"), "{shown}");
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[1].chars().count() < 200, "{}", lines[1].len());
    let caret = lines[2].chars().position(|c| c == '^').unwrap();
    assert_eq!(lines[1].chars().nth(caret), Some(';'), "{shown}");
}

#[test]
fn control_characters_never_reach_the_terminal() {
    let shown = errors("const int x = \x1b[31m;\0\n");
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
}

#[test]
fn errors_stop_at_the_limit() {
    let shown = errors(&"const int x = ;\n".repeat(1000));
    assert!(shown.contains("stopped after 50 syntax errors"), "{shown}");
    assert_eq!(shown.matches("expected an expression").count(), 50);
}

#[test]
fn empty_and_blank_programs_are_programs() {
    for text in ["", "\n", " \t\r\n", "// c", "/* c */", "\u{feff}"] {
        assert!(parse_source("a.p4", text, &Options::default()).is_ok(), "{text:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read() {
    let (d, sources) = parse_file("/nonexistent/x.p4".as_ref(), &Options::default()).unwrap_err();
    let shown = render_all(&d, &sources, false);
    assert!(shown.starts_with("error: cannot read /nonexistent/x.p4: No such file"), "{shown}");
    let dir = tempfile::tempdir().unwrap();
    assert!(
        parse_file(dir.path(), &Options::default()).unwrap_err().0[0]
            .message
            .contains("not a regular file")
    );
}

#[test]
fn places_behind_macros_comments_and_white_space() {
    let text = "#define W 8\n#define ADD(a, b) a + b\n\nheader  h_t {   bit<W>   a;  /* c */   bit<W>   ;  }\n\
                const  bit<W>   x  =  ADD(1,   2)   3;\nconst int y = ADD(1,\n   2) ; const int z =  ;\n";
    let shown = errors(text);
    let places: Vec<&str> = shown
        .lines()
        .filter(|l| l.contains("error: "))
        .map(|l| l.split(": ").next().unwrap())
        .collect();
    assert_eq!(places[0], "a.p4:4:49", "{shown}");
    assert!(places[1].starts_with("a.p4:5:3"), "{shown}");
    assert_eq!(places[2], "a.p4:7:24", "{shown}");
    assert_eq!(places.len(), 3, "{shown}");
}

#[test]
fn an_error_inside_a_macro_points_at_its_use() {
    let shown = errors("#define BAD 1 + ;\n\nconst int x = BAD\n");
    assert!(shown.starts_with("a.p4:3:15: error: expected an expression, found `;`\n    3 | const int x = BAD\n      |               ^^^\n"), "{shown}");
}

#[test]
fn places_in_included_files() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/h.p4"), "// comment\nheader  h {  bit<8> ; }\n").unwrap();
    let main = dir.path().join("main.p4");
    fs::write(&main, "#include <core.p4>\n#include \"sub/h.p4\"\nconst   int x = ;\n").unwrap();
    let (d, sources) = parse_file(&main, &Options::default()).unwrap_err();
    let places: Vec<(String, u32, u32)> = d
        .iter()
        .map(|d| sources.resolve(d.span.unwrap()))
        .map(|p| (p.file_name.to_string(), p.line, p.column))
        .collect();
    assert_eq!(places.len(), 2);
    assert!(places[0].0.ends_with("sub/h.p4"), "{places:?}");
    assert_eq!((places[0].1, places[0].2), (2, 21));
    assert!(places[1].0.ends_with("main.p4"));
    assert_eq!((places[1].1, places[1].2), (3, 17));
}

#[test]
fn built_in_files_are_known_as_such() {
    let text = "#include <v1model.p4>\nconst bit<8> mine = 1;\n";
    let (program, sources) = parse_source("a.p4", text, &Options::default()).unwrap();
    let last = program.declarations.last().unwrap();
    assert_eq!(last.name().unwrap().as_str(), "mine");
    assert!(!sources.is_builtin(last.span()));
    assert_eq!(sources.file_line(last.span()), ("a.p4".into(), 2));
    let first = &program.declarations[0];
    assert!(sources.is_builtin(first.span()));
    assert_eq!(&*sources.resolve(first.span()).file_name, "core.p4");
}

#[test]
fn the_preprocessors_errors_are_ours() {
    check(
        "// don't\n  #include \"nowhere.p4\"\n",
        "a.p4:2:12: error: include file 'nowhere.p4' not found\n    2 |   #include \"nowhere.p4\"\n      |            ^^^^^^^^^^^^\n\
              \x20     = help: `-I FOLDER` adds a folder to search\n1 error\n",
    );
    let shown = errors("#if 1\nconst int x = 1;\n#error \"no luck\"\n");
    assert!(shown.contains("a.p4:1:2: error: unterminated conditional directive"), "{shown}");
    assert!(shown.contains("a.p4:3:2: error: \"no luck\""), "{shown}");
}

#[test]
fn apostrophes_and_odd_tokens_survive_the_preprocessor() {
    let text = "#define X 1\n@name(\"it's\") @doc(don't stop) const bit<8> x = 8w0b1010_0001; // can't\n\
                /* won't */ const int y = X; const bool r = 1..2 == x;\n";
    let shown = errors(text);
    assert!(shown.starts_with("a.p4:3:46: error"), "{shown}");
    assert!(shown.ends_with("1 error\n"), "{shown}");
}

#[test]
fn options_reach_the_preprocessor() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("x.p4"), "const int x = N;\n").unwrap();
    let options = Options {
        include_dirs: vec![dir.path().into()],
        defines: vec!["N=5".into()],
        ..Options::default()
    };
    assert!(
        parse_source("a.p4", "#include \"x.p4\"\n#ifndef N\n#error N\n#endif\n", &options).is_ok()
    );
    let no_clang = Options { clang: "/nonexistent/clang".into(), ..Options::default() };
    let (d, _) = parse_source("a.p4", "#define N 5\n", &no_clang).unwrap_err();
    assert!(d[0].message.contains("install it with `apt install clang`"), "{}", d[0].message);
}

#[test]
fn includes_that_never_end_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let main = dir.path().join("loop.p4");
    fs::write(&main, "#include \"loop.p4\"\n").unwrap();
    let (d, sources) = parse_file(&main, &Options::default()).unwrap_err();
    assert!(render_all(&d, &sources, false).contains("#include nested too deeply"));
}

#[test]
fn literals_that_do_not_fit_are_warnings_with_the_value_they_get() {
    let text = "const bit<8> a = 8w256;\nconst int<1> b = 1s1;\nconst int<2> c = 2s3;\n";
    let (program, sources) = parse_source("a.p4", text, &Options::default()).unwrap();
    let shown = render_all(&program.warnings, &sources, false);
    assert!(
        shown.starts_with("a.p4:1:18: warning: the value does not fit bit<8> and becomes 0\n"),
        "{shown}"
    );
    assert!(
        shown.contains("a.p4:2:18: warning: the value does not fit int<1> and becomes -1\n"),
        "{shown}"
    );
    assert!(
        shown.contains("a.p4:3:18: warning: the value does not fit int<2> and becomes -1\n"),
        "{shown}"
    );
}

#[test]
fn bad_literals() {
    for (literal, reason) in [
        ("0x", "a hexadecimal number needs at least one digit"),
        ("0b12", "`2` is not a binary digit"),
        ("0o8", "`8` is not an octal digit"),
        ("12ab", "`a` is not a decimal digit"),
        ("0w1", "the width of a literal must be at least 1"),
        ("2049w1", "the width of a literal can be at most 2048 bits"),
        ("99999999999999999999w1", "the width of a literal can be at most 2048 bits"),
        ("0x8w1", "`0x8` is not a width: it must be a decimal number"),
        ("8w", "a decimal number needs at least one digit"),
    ] {
        let shown = errors(&format!("const int x = {literal};"));
        assert!(shown.starts_with(&format!("a.p4:1:15: error: {reason}\n")), "{literal}: {shown}");
        assert!(shown.ends_with("1 error\n"));
    }
}

#[test]
fn json_has_places_and_notes() {
    let text = "header h {\nstruct s { }\n";
    let (d, sources) = parse_source("a.p4", text, &Options::default()).unwrap_err();
    let json = all_to_json(&d, &sources);
    assert_eq!(json[0]["severity"], "error");
    assert_eq!(json[0]["location"]["file"], "a.p4");
    assert_eq!(json[0]["location"]["line"], 2);
    assert_eq!(json[0]["location"]["column"], 1);
    assert_eq!(json[0]["location"]["end_column"], 7);
    assert_eq!(json[0]["notes"][0]["location"]["line"], 1);
}

#[test]
fn what_a_state_or_a_control_cannot_hold() {
    for (text, place, reason) in [
        ("parser p() { state s { exit; } }", "1:24", "`exit` is not allowed in a parser state"),
        (
            "parser p() { state s { transition a; x = 1; } }",
            "1:38",
            "nothing can follow a state's `transition`",
        ),
        (
            "parser p() { state s { } bit<8> x; }",
            "1:26",
            "declarations must stand before the parser's first state",
        ),
        ("control c() { }", "1:9", "control `c` has no `apply` block"),
        (
            "control c() { apply { } action a() { } }",
            "1:25",
            "declarations must stand before the control's `apply` block",
        ),
        ("control c() { apply { } apply { } }", "1:31", "a control has one `apply` block only"),
        ("control c() { bit<8> f() { } apply { } }", "1:22", "a function cannot be declared here"),
        ("bit<8> x;", "1:1", "variables cannot be declared at the top level"),
        ("bit<8> f();", "1:11", "expected the function's body, found `;`"),
        (
            "enum bit<8> E { A }",
            "1:17",
            "member `A` of an enum with an underlying type needs a value",
        ),
        ("enum E { A = 1 }", "1:10", "member `A` has a value, but the enum has no underlying type"),
        ("action a() { x == 1; }", "1:14", "a value alone is not a statement"),
        ("action a() { if (x = 1) { } }", "1:20", "expected `)`, found `=`"),
        ("action a() { else { } }", "1:14", "`else` without an `if` before it"),
        ("const int table = 1;", "1:11", "expected the constant's name, found keyword `table`"),
        ("const int x = _;", "1:15", "expected an expression, found `_`"),
        ("const s x = {..., 1};", "1:14", "`...` must be the last element"),
        (
            "extern E { bit<8>(); }",
            "1:12",
            "a method needs a return type; a constructor is called `E`",
        ),
    ] {
        let shown = errors(text);
        assert!(shown.starts_with(&format!("a.p4:{place}: error: {reason}\n")), "{text}\n{shown}");
        assert!(shown.ends_with("1 error\n"), "{text}\n{shown}");
    }
}

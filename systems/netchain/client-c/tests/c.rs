//! The header says what the library is: numbers, types, functions; and the example is a C program.

use netchain::{Answer, HAS_OWN, HAS_VALUE, MOVED, OPERATIONS, OUTCOMES, RequestC};
use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Where the library is that this test was built with.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let places = [deps.join("libnetchain.a"), deps.parent().unwrap().join("libnetchain.a")];
    places.into_iter().find(|path| path.exists()).expect("libnetchain.a")
}

/// Compiles a C file that must be clean; with `out` it is linked, too.
fn compile(source: &Path, out: Option<&Path>) {
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(format!("{HERE}/include"));
    command.arg(source);
    match out {
        Some(out) => command.arg(library()).args(["-lpthread", "-ldl", "-lm", "-o"]).arg(out),
        None => command.arg("-fsyntax-only"),
    };
    let output = command.output().expect("cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_header_has_the_librarys_numbers_and_layouts() {
    let mut text = "#include <netchain.h>\n".to_owned();
    let mut same = |what: &str, value: usize| {
        writeln!(text, "_Static_assert({what} == {value}, \"{what}\");").unwrap();
    };
    for (number, (name, _)) in OUTCOMES.iter().enumerate() {
        same(name, number);
    }
    for (name, number) in OPERATIONS {
        same(name, number as usize);
    }
    for (name, bit) in [("NC_HAS_VALUE", HAS_VALUE), ("NC_HAS_OWN", HAS_OWN), ("NC_MOVED", MOVED)] {
        same(name, bit as usize);
    }
    same("sizeof(nc_request)", size_of::<RequestC>());
    same("sizeof(nc_answer)", size_of::<Answer>());
    macro_rules! fields {
        ($rust:ty, $c:literal, $($field:ident),*) => {
            $(same(
                concat!("offsetof(", $c, ", ", stringify!($field), ")"),
                offset_of!($rust, $field),
            );)*
        };
    }
    fields!(RequestC, "nc_request", operation, length, operand, deadline_ms, key, value);
    fields!(Answer, "nc_answer", ticket, own, version, outcome, flags, length, value);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("layout.c");
    std::fs::write(&file, text).unwrap();
    compile(&file, None);
}

/// Each function of the header is in the library: a table of all of them can be linked.
#[test]
fn the_library_has_the_headers_functions() {
    let header = std::fs::read_to_string(format!("{HERE}/include/netchain.h")).unwrap();
    let mut functions = vec![];
    let mut rest = header.as_str();
    while let Some(at) = rest.find("nc_") {
        rest = &rest[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap();
        let (word, after) = rest.split_at(end);
        if after.starts_with('(') {
            functions.push(word.to_owned());
        }
        rest = after;
    }
    assert!(functions.len() > 25, "{functions:?}");
    let table: Vec<String> =
        functions.iter().map(|name| format!("(void (*)(void)){name}")).collect();
    let text = format!(
        "#include <netchain.h>\nvoid (*all[])(void) = {{{}}};\n\
         int main(void) {{ return all[0] == 0; }}\n",
        table.join(", ")
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("functions.c");
    std::fs::write(&file, text).unwrap();
    compile(&file, Some(&folder.path().join("functions")));
}

/// (That it talks to switches: `tools/cli/tests/lab_clients.rs`.)
#[test]
fn the_example_says_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("greeting");
    compile(Path::new(&format!("{HERE}/examples/greeting.c")), Some(&program));
    let run = |arguments: &[&str]| {
        let output = Command::new(&program).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(run(&[]), (Some(1), "no file is named\n".into()));
    let (code, said) = run(&["none.toml"]);
    assert!(code == Some(1) && said.contains("none.toml"), "{said}");
}

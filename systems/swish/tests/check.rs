//! What `stateplane check` says of merges that a program names for its sketches, and of the memory
//! that shared variables take.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn own() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the source tree").join("systems/swish/p4/own/own.p4")
}

/// The exit code, and what is written to both outputs.
fn check(arguments: &[&str], program: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stateplane"));
    let output = command.arg("check").args(arguments).arg(program).output().expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_laws_that_a_merge_keeps_are_told() {
    let (code, told, _) = check(&[], &own());
    assert_eq!(code, Some(0), "{told}");
    let line = told.lines().find(|it| it.contains("merge saturated of OwnIngress.total"));
    let line = line.expect("a line for each merge");
    assert!(line.ends_with("tried with seed 1: commutative, associative, identity 0"), "{line}");
    assert!(line.contains("own.p4:"), "{line}");

    let (code, told, _) = check(&["--json", "--seed", "7"], &own());
    assert_eq!(code, Some(0), "{told}");
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let merges = told[0]["merges"].as_array().expect("merges");
    assert_eq!(merges.len(), 4, "{told}");
    assert_eq!((&merges[2]["function"], &merges[2]["seed"]), (&"smaller".into(), &7.into()));
    assert_eq!(merges[2]["laws"].as_array().map(Vec::len), Some(4), "{told}");
}

#[test]
fn a_broken_law_is_told_with_its_values_its_line_and_its_seed() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("broken.p4");
    let text = std::fs::read_to_string(own()).expect("the program");
    assert!(text.contains("return a |+| b;"));
    std::fs::write(&program, text.replace("return a |+| b;", "return a - b;")).expect("written");
    let (code, _, said) = check(&[], &program);
    assert_eq!(code, Some(1), "{said}");
    let message = "saturated is not commutative: saturated(0, 1) = 0xffffffff, but saturated(1, 0)";
    assert!(said.contains(message), "{said}");
    assert!(said.contains("saturated, tried with seed 1"), "{said}");
    let line = 1 + text.lines().position(|it| it.starts_with("bit<32> saturated(")).expect("it");
    assert!(said.contains(&format!("broken.p4:{line}:")), "{said}");
    // The same for programs.
    let (code, told, _) = check(&["--json"], &program);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((code, &told[0]["ok"]), (Some(1), &false.into()));
    let first = told[0]["diagnostics"][0]["message"].as_str().expect("a message");
    assert!(first.contains(message), "{first}");
}

#[test]
fn what_variables_take_is_told() {
    let program = own().with_file_name("../detector/detector.p4");
    let (code, told, _) = check(&[], &program);
    assert_eq!(code, Some(0), "{told}");
    let head = told.lines().nth(1).expect("a table below the program's line");
    assert!(head.starts_with("shared variable") && head.contains("in maps"), "{told}");
    assert!(told.contains("main, anew in 60000 windows"), "{told}");
    let bound = "for 1 M updates/s 100000, if a switch dies (`dead_ms` of controllers: 0.1 s), and \
                 2000000, if one is slow";
    assert!(told.contains("B (`bound` in switch.toml)") && told.contains(bound), "{told}");
    let (code, told, _) = check(&["--json"], &program);
    assert_eq!(code, Some(0), "{told}");
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let variables = told[0]["shared"]["variables"].as_array().expect("variables");
    for it in variables {
        let factor = it["factor"].as_f64().expect("a number");
        assert!(it["consistency"] == "SDW" && factor > 4.2, "{it}");
        assert_eq!(it["sent"][0]["of"], "window", "{it}");
        assert_eq!(it["group"], "main", "{it}");
    }
    assert!(variables.iter().any(|it| it["period_windows"] == 60_000), "{told}");
    assert!(!variables.is_empty() && told[0]["shared"]["fixed_bytes"].as_u64() > Some(0));
    // A program without has no table.
    let program = own().with_file_name("../../../../p4/tests/calculator.p4");
    let (_, told, _) = check(&[], &program);
    assert!(!told.contains("shared variable"), "{told}");
}

#[test]
fn what_a_bound_carries_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let stateplane = |words: &[&str], path: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stateplane"));
        let output = command.args(words).arg(path).current_dir(folder.path()).output();
        let output = output.expect("runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    stateplane(&["keys", "generate"], &at("fabric.secrets"));
    stateplane(&["compile", "-o", "own.o"], &own());
    let text = "name = \"s1\"\nobject = \"own.o\"\nsecrets = \"fabric.secrets\"\n\
                [shared.main]\ncontrollers = [\"10.2.1.10:5412\"]\nown = \"10.9.0.1\"\n\
                bound = 1000000\n[[port]]\ninterface = \"core\"\nport = 1\nfabric = true\n";
    std::fs::write(at("switch.toml"), text).expect("written");
    let told = stateplane(&["switch", "--check", "--config"], &at("switch.toml"));
    let line = told.lines().find(|it| it.contains("shared.main.bound: ")).expect("a line");
    assert!(line.contains("carries 10000000 updates a second") && line.contains("500000 for 2 s"));
}

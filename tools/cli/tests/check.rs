//! What `stateplane compile` refuses for what is written in a program, `stateplane check` refuses
//! with the same words: `tests/refused/*.p4`, whose lines say what is wrong with them.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The exit code, and the messages as JSON.
fn say(arguments: &[&str], program: &Path) -> (Option<i32>, Vec<Value>) {
    let output = Command::new(env!("CARGO_BIN_EXE_stateplane"))
        .args(arguments)
        .args(["--json", program.to_str().expect("UTF-8 path")])
        .output()
        .expect("runs");
    let mut said: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    if said.is_array() {
        said = said[0].take();
    }
    assert_eq!(said["ok"], Value::Bool(output.status.success()), "{said}");
    (output.status.code(), said["diagnostics"].as_array().expect("diagnostics").clone())
}

fn compile(program: &Path) -> (Option<i32>, Vec<Value>) {
    let folder = tempfile::tempdir().expect("a folder");
    let object = folder.path().join("x.o");
    say(&["compile", "--no-verify", "-o", object.to_str().expect("UTF-8 path")], program)
}

/// Line and part of the message of each error that the program's comments promise.
fn promised(text: &str) -> Vec<(u64, String)> {
    let of_line = |(number, line): (usize, &str)| -> Vec<(u64, String)> {
        line.split("// refused: ")
            .skip(1)
            .map(|part| (number as u64 + 1, part.trim().to_owned()))
            .collect()
    };
    text.lines().enumerate().flat_map(of_line).collect()
}

/// A FlowState that waits for a store keeps its packets where there is none: the failure says what
/// to write, once.
#[test]
fn a_packet_test_of_replicated_state_without_a_store_names_the_remedy() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: XDP needs root");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems/redplane/p4/small_nat");
    let local = std::fs::read_to_string(program.join("translate.stf")).expect("the case");
    let of_both = |line: &&str| !line.contains("define:");
    let replicated = local.lines().filter(of_both).collect::<Vec<_>>().join("\n");
    let run = |text: &str| {
        let case = folder.path().join("case.stf");
        std::fs::write(&case, text).expect("write");
        let mut command = Command::new(env!("CARGO_BIN_EXE_stateplane"));
        let output =
            command.arg("test").arg(program.join("small_nat.p4")).arg(case).output().expect("runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
    };
    let hint = "FlowState NatIngress.bindings is LINEARIZABLE";
    let (code, said) = run(&replicated);
    assert!(
        code == Some(1) && said.matches(hint).count() == 1 && said.contains("`# store:`"),
        "{said}"
    );
    // As it says.
    let (code, said) = run(&format!("# store:\n{replicated}"));
    assert_eq!(code, Some(0), "{said}");
    // A missing packet has another reason then, and in a local program.
    for whole in [&format!("# store:\n{replicated}"), &local] {
        let (code, said) = run(&format!("{whole}\nexpect 1 00\n"));
        let only = said.contains("none came out") && !said.contains("store:`");
        assert!(code == Some(1) && only, "{said}");
    }
    let without_pool = replicated.lines().filter(|line| !line.contains("nat_pool"));
    let without_pool = without_pool.collect::<Vec<_>>().join("\n");
    let (code, said) = run(&format!("# store:\n{without_pool}"));
    assert!(code == Some(1) && said.contains("write a line `# nat_pool: NatIngress"), "{said}");
}

#[test]
fn what_compile_refuses_check_refuses_with_the_same_words() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/refused"));
    let mut programs = 0;
    for entry in std::fs::read_dir(folder).expect("folder") {
        let path = entry.expect("entry").path();
        programs += 1;
        let (code, refused) = compile(&path);
        assert_eq!(code, Some(1), "{}: {refused:?}", path.display());
        assert_eq!(say(&["check"], &path), (code, refused.clone()), "{}", path.display());

        let mut missing = promised(&std::fs::read_to_string(&path).expect("reads"));
        for error in &refused {
            let (message, line) =
                (error["message"].as_str().expect("message"), error["location"]["line"].as_u64());
            let is_this =
                |(at, part): &(u64, String)| Some(*at) == line && message.contains(part.as_str());
            let found = missing.iter().position(is_this);
            missing.remove(
                found.unwrap_or_else(|| panic!("{}: nobody expects {error}", path.display())),
            );
            assert_eq!(error["location"]["file"].as_str(), path.to_str());
            // Whoever declares or uses a state object wrongly is told what to do.
            let of_state = message.contains("State")
                || message.contains("add_each")
                || message.contains("Overdue");
            assert!(!of_state || error["notes"][0]["message"].is_string(), "no remedy: {error}");
        }
        assert!(missing.is_empty(), "{}: not refused: {missing:?}", path.display());
    }
    assert!(programs >= 3, "{programs} programs");
}

#[test]
fn for_people_too_and_the_ir_is_shown_nevertheless() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/refused/snapshot_states.p4");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stateplane"));
        let output = command.args(arguments).arg(path).output().expect("runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, out, errors) = run(&["check"]);
    assert!(code == Some(1) && out.is_empty(), "{code:?}: {out}");
    let parts = [
        "never asks is_overdue",
        "snapshot_states.p4:",
        "never_asked;",
        "mark the packet if is_overdue(key)",
    ];
    assert!(parts.iter().all(|part| errors.contains(part)), "{errors}");
    let (code, out, _) = run(&["check", "--emit-ir"]);
    assert!(code == Some(1) && out.contains("never_asked"), "{code:?}: {out}");
}

#[test]
fn the_call_that_another_collides_with_is_shown() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/refused/contracts.p4");
    let text = std::fs::read_to_string(path).expect("reads");
    let line =
        |part: &str| text.lines().position(|line| line.contains(part)).expect("a line") as u64 + 1;
    let (set, read) = (line("flows.set({ 2 }"), line("flows.get({ 1 }, value); // refused"));
    let (_, errors) = say(&["check"], Path::new(path));
    let is_it = |error: &&Value| {
        let message = error["message"].as_str().expect("message");
        error["location"]["line"] == read && message.contains("a look-up after a `set`")
    };
    let notes = &errors.iter().find(is_it).expect("an error")["notes"];
    assert!(notes[0]["location"]["line"] == set && notes[0]["location"]["column"] == 9, "{notes}");
    assert!(notes[1]["location"].is_null() && notes[1]["message"].is_string(), "{notes}");

    let output = Command::new(env!("CARGO_BIN_EXE_stateplane"))
        .args(["check", path])
        .output()
        .expect("runs");
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    let parts = [
        format!("{path}:{read}:9: error: "),
        format!("{path}:{set}:9: note: the `set` is here"),
        "help: do all".into(),
    ];
    assert!(parts.iter().all(|part| shown.contains(part.as_str())), "{shown}");
}

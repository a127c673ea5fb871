//! RedPlane's rules through the commands: what `check`, `compile` and `test` say of programs with
//! its objects.

#[path = "../../../tools/cli/tests/refusals/mod.rs"]
mod refusals;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file of RedPlane's folder, as the commands are to show it.
fn here(file: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the source tree").join("systems/redplane").join(file)
}

#[test]
fn what_compile_refuses_check_refuses_with_the_same_words() {
    assert!(refusals::all_of(&here("tests/refused")) >= 4);
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
    let program = here("p4/small_nat");
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
fn for_people_too_and_the_ir_is_shown_nevertheless() {
    let path = &here("tests/refused/snapshot_states.p4");
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
    let path = here("tests/refused/contracts.p4");
    let text = std::fs::read_to_string(&path).expect("reads");
    let line =
        |part: &str| text.lines().position(|line| line.contains(part)).expect("a line") as u64 + 1;
    let (set, second) = (line("flows.set({ 2 }"), line("here.set({ hdr.h.a }"));
    let (_, errors) = refusals::say(&["check"], &path);
    let is_it = |error: &&Value| {
        let message = error["message"].as_str().expect("message");
        error["location"]["line"] == second && message.contains("a second `set` on one path")
    };
    let notes = &errors.iter().find(is_it).expect("an error")["notes"];
    assert!(notes[0]["location"]["line"] == set && notes[0]["location"]["column"] == 9, "{notes}");
    assert!(notes[1]["location"].is_null() && notes[1]["message"].is_string(), "{notes}");

    let output = Command::new(env!("CARGO_BIN_EXE_stateplane"))
        .arg("check")
        .arg(&path)
        .output()
        .expect("runs");
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    let parts = [
        format!("{}:{second}:9: error: ", path.display()),
        format!("{}:{set}:9: note: the first `set` is here", path.display()),
        "help: put all".into(),
    ];
    assert!(parts.iter().all(|part| shown.contains(part.as_str())), "{shown}");
}

/// A command that a system adds ends as all do when nobody reads what it says.
#[test]
fn a_store_checks_its_configuration_quietly() {
    // The example with its secrets beside it.
    let folder = tempfile::tempdir().expect("a folder");
    let example = folder.path().join("store.toml");
    std::fs::copy(here("docs").join("store.example.toml"), &example).expect("a configuration");
    let made = Command::new(env!("CARGO_BIN_EXE_stateplane"))
        .args(["keys", "generate"])
        .arg(folder.path().join("secrets.toml"))
        .output();
    assert!(made.expect("runs").status.success());
    let (reader, writer) = std::io::pipe().expect("pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_stateplane"));
    command.args(["store", "--check", "--config"]).arg(&example);
    let output = command.stdout(writer).stderr(Stdio::piped()).output().expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{}: {errors}", output.status);
}

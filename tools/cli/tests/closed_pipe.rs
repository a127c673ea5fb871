//! Output that nobody reads (`stateplane … | head -1`) is no error, output that cannot be written
//! is one; help has help.

use std::process::{Command, Stdio};

#[test]
fn help_is_helped_with() {
    let ask = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_stateplane")).args(arguments).output().expect("runs")
    };
    let help = ask(&["help"]);
    for arguments in [&["help", "--help"][..], &["help", "-h"]] {
        let output = ask(arguments);
        assert!(
            output.status.success() && output.stdout == help.stdout,
            "{arguments:?}: {output:?}"
        );
    }
    assert_eq!(ask(&["help", "no-such"]).status.code(), Some(2));
}

#[test]
fn commands_end_quietly() {
    let nat = concat!(env!("CARGO_MANIFEST_DIR"), "/../../systems/redplane/p4/nat/nat.p4");
    // The example with its secrets beside it.
    let folder = tempfile::tempdir().expect("a folder");
    let example = folder.path().join("store.toml");
    let text = include_str!("../../../systems/redplane/docs/store.example.toml");
    std::fs::write(&example, text).expect("a configuration");
    let secrets = folder.path().join("secrets.toml");
    let made = Command::new(env!("CARGO_BIN_EXE_stateplane"))
        .args(["keys", "generate"])
        .arg(&secrets)
        .output();
    assert!(made.expect("runs").status.success());
    let example = example.to_str().expect("UTF-8 path");
    let commands = [
        vec!["check", nat],
        vec!["check", "--json", nat],
        vec!["check", "--emit-ir", nat],
        vec!["compile", nat, "--emit-c", "-"],
        vec!["store", "--config", example, "--check"],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().expect("pipe");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_stateplane"));
        let output =
            command.args(&arguments).stdout(writer).stderr(Stdio::piped()).output().expect("runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && errors.is_empty(),
            "{arguments:?}: {}: {errors}",
            output.status
        );
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let nat = concat!(env!("CARGO_MANIFEST_DIR"), "/../../systems/redplane/p4/nat/nat.p4");
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("a device that is always full");
    let mut command = Command::new(env!("CARGO_BIN_EXE_stateplane"));
    let output = command
        .args(["check", "--json", nat])
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && errors.contains("standard output"),
        "{}: {errors}",
        output.status
    );
}

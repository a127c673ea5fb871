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
    let router = concat!(env!("CARGO_MANIFEST_DIR"), "/../../p4/tests/gateway_router.p4");
    let commands = [
        vec!["check", router],
        vec!["check", "--json", router],
        vec!["check", "--emit-ir", router],
        vec!["compile", router, "--emit-c", "-"],
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
    let router = concat!(env!("CARGO_MANIFEST_DIR"), "/../../p4/tests/gateway_router.p4");
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("a device that is always full");
    let mut command = Command::new(env!("CARGO_BIN_EXE_stateplane"));
    let output = command
        .args(["check", "--json", router])
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

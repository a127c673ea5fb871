//! What `stateplane compile` refuses for what is written in a program, `stateplane check` refuses
//! with the same words: programs whose lines say what is wrong with them.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The exit code, and the messages as JSON.
pub fn say(arguments: &[&str], program: &Path) -> (Option<i32>, Vec<Value>) {
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

/// Each program in a folder is refused for what its lines say, and for nothing else; how many.
pub fn all_of(folder: &Path) -> usize {
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
    programs
}

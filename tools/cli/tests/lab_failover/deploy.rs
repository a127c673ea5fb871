//! The page that sets a cluster up: its commands can be run, and its configurations are good.

use crate::page::{blocks, read, repository, texts};
use std::path::Path;
use std::process::{Command, Output};

const STATEPLANE: &str = env!("CARGO_BIN_EXE_stateplane");
const UNIT: &str = "systems/netchain/deploy/stateplane-kv-controller.service";

fn said(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr];
    parts.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Runs a program; None: the machine has none.
fn run(command: &mut Command) -> Option<Output> {
    match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        other => Some(other.unwrap()),
    }
}

fn must(command: &mut Command) {
    let output = run(command).unwrap_or_else(|| panic!("{command:?}: not there"));
    assert!(output.status.success(), "{command:?}: {}", said(&output));
}

/// Writes a file of the page into a folder that stands for `/etc/stateplane`.
fn write(folder: &Path, path: &Path, text: &str) -> std::path::PathBuf {
    let file = folder.join(path.file_name().unwrap());
    let text = text.replace("/var/lib/stateplane", folder.to_str().unwrap());
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn the_page_sets_a_cluster_up() {
    let page = read("systems/netchain/docs/deploy.md");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Section 1: as it stands there, with this build and this tree.
    let commands = texts(&page, "sh")[0]
        .replace("stateplane ", &format!("{STATEPLANE} "))
        .replace("systems/netchain/p4", repository().join("systems/netchain/p4").to_str().unwrap());
    must(Command::new("sh").args(["-euc", &commands]).current_dir(folder));
    let (mut checked, configurations) = (vec![], texts(&page, "toml"));
    for text in configurations.iter().filter(|text| text.starts_with("# /")) {
        let path = Path::new(text.lines().next().unwrap().trim_start_matches("# "));
        let file = write(folder, path, text);
        let name = path.file_name().unwrap().to_str().unwrap();
        let words: &[&str] =
            if name.starts_with("kv-") { &["kv", "controller"] } else { &["switch"] };
        must(Command::new(STATEPLANE).args(words).arg("--config").arg(file).arg("--check"));
        checked.push(name.to_owned());
    }
    assert_eq!(checked, ["kv-controller.toml", "switch-s1.toml"]);
    // A client's: it is read, and no switch answers here.
    let client = configurations.iter().find(|text| text.starts_with("# kv.toml")).unwrap();
    let file = write(folder, Path::new("kv.toml"), client);
    let output = run(Command::new(STATEPLANE)
        .args(["kv", "--config"])
        .arg(file)
        .args(["get", "web/greeting"]));
    let told = said(&output.unwrap());
    assert!(told.contains("no switch answers"), "{told}");
    for (path, text) in blocks(&page, "bird") {
        let file = write(folder, &path, &text);
        if let Some(output) = run(Command::new("bird").arg("-p").arg("-c").arg(file)) {
            assert!(output.status.success(), "{}", said(&output));
        }
    }
}

#[test]
fn the_controllers_unit_loads() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stateplane-kv-controller.service");
    std::fs::write(&file, read(UNIT).replace("/usr/bin/stateplane", STATEPLANE)).unwrap();
    let verify = run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file));
    let Some(output) = verify else { return };
    let told = said(&output);
    assert!(output.status.success() && !told.contains("stateplane"), "{told}");
}

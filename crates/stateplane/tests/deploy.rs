//! `docs/deploy.md` and `deploy/`: every configuration is good, every unit loads, every metric that is named exists.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const STATEPLANE: &str = env!("CARGO_BIN_EXE_stateplane");

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Standard output and error, for messages.
fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

fn is_there(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}

/// The page's blocks of a language, each with the path in its first line (`# PATH`).
fn blocks(page: &str, language: &str) -> Vec<(PathBuf, String)> {
    let parts = page.split("\n```").skip(1).step_by(2);
    let blocks = parts.filter_map(|part| part.strip_prefix(language)?.strip_prefix('\n'));
    blocks
        .map(|text| {
            let path = text.lines().next().and_then(|line| line.strip_prefix("# /")).unwrap_or_else(|| {
                panic!("a {language} block does not begin with `# /path/of/the/file`:\n{text}");
            });
            (PathBuf::from("/").join(path), text.to_owned())
        })
        .collect()
}

#[test]
fn every_configuration_on_the_page_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let program = repository().join("p4/apps/nat/nat.p4");
    let compiled =
        Command::new(STATEPLANE).arg("compile").arg(program).arg("-o").arg(folder.path().join("nat.o")).output();
    let compiled = compiled.unwrap();
    assert!(compiled.status.success(), "{}", said(&compiled));
    let found = blocks(&read("docs/deploy.md"), "toml");
    // The others first: they may be named in these.
    for (path, text) in &found {
        std::fs::write(folder.path().join(path.file_name().unwrap()), text).unwrap();
    }
    let mut kinds = vec![];
    for (path, _) in &found {
        let name = path.file_name().unwrap().to_str().unwrap();
        let command = ["store", "switch", "controller"].into_iter().find(|kind| name.starts_with(kind));
        let Some(command) = command else { continue };
        let output = Command::new(STATEPLANE)
            .args([command, "--check", "--config"])
            .arg(folder.path().join(name))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}: {}", path.display(), said(&output));
        kinds.push(command);
    }
    assert!(kinds.contains(&"store") && kinds.contains(&"switch"), "the page has configurations of both: {kinds:?}");
}

#[test]
fn birds_configuration_on_the_page_is_good() {
    if !is_there("bird") {
        eprintln!("skipped: there is no bird (apt install bird2)");
        return;
    }
    let found = blocks(&read("docs/deploy.md"), "bird");
    assert!(!found.is_empty());
    for (path, text) in found {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let output = Command::new("bird").arg("-p").arg("-c").arg(file.path()).output().unwrap();
        assert!(output.status.success(), "{}: {}", path.display(), said(&output));
    }
}

/// The units, with the binary of this build in the place of the installed one.
#[test]
fn units_load() {
    if !is_there("systemd-analyze") {
        eprintln!("skipped: there is no systemd-analyze");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(repository().join("deploy/systemd")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().replace("@.service", "@s1.service");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("ExecStart=/usr/bin/stateplane "), "{name}");
        let unit = folder.path().join(name);
        // BIRD and the network's targets are the machine's own.
        std::fs::write(&unit, text.replace("/usr/bin/stateplane", STATEPLANE)).unwrap();
        let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output().unwrap();
        // systemd-analyze only warns of keys that it does not know; a good unit leaves it silent.
        let ours: Vec<String> =
            said(&output).lines().filter(|line| line.contains("stateplane")).map(str::to_owned).collect();
        assert!(output.status.success() && ours.is_empty(), "{}: {ours:#?}", path.display());
        seen += 1;
    }
    assert!(seen >= 2);
}

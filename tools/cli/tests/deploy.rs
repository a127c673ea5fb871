//! `docs/deploy.md`, `docs/operate.md` and `deploy/`: every configuration is good, every unit
//! loads, every metric that is named exists. Needs root. Waits for timers,
//! and for the host's ports.

mod metrics;
mod page;

use page::{blocks, guide, markdown, read, repository};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const STATEPLANE: &str = env!("CARGO_BIN_EXE_stateplane");

/// Standard output and error, for messages.
fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// The program of the guide.
fn nat() -> PathBuf {
    repository().join("systems/redplane/p4/nat/nat.p4")
}

fn is_there(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}

#[test]
fn every_configuration_on_the_page_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let program = nat();
    let compiled = Command::new(STATEPLANE)
        .arg("compile")
        .arg(program)
        .arg("-o")
        .arg(folder.path().join("nat.o"))
        .output();
    let compiled = compiled.unwrap();
    assert!(compiled.status.success(), "{}", said(&compiled));
    let found = blocks(&guide(), "toml");
    keys(folder.path());
    // The others first: they may be named in these.
    for (path, text) in &found {
        // Whoever runs this may not write where the daemons do.
        let text = text.replace("/var/lib/stateplane", folder.path().to_str().unwrap());
        std::fs::write(folder.path().join(path.file_name().unwrap()), text).unwrap();
    }
    let mut kinds = vec![];
    for (path, _) in &found {
        let name = path.file_name().unwrap().to_str().unwrap();
        let command =
            ["store", "switch", "controller"].into_iter().find(|kind| name.starts_with(kind));
        let Some(command) = command else { continue };
        let output = Command::new(STATEPLANE)
            .args([command, "--check", "--config"])
            .arg(folder.path().join(name))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}: {}", path.display(), said(&output));
        kinds.push(command);
    }
    assert!(
        kinds.contains(&"store") && kinds.contains(&"switch"),
        "the page has configurations of both: {kinds:?}"
    );
    // Secrets that others may read: found before the switch starts.
    let secrets = folder.path().join("fabric.secrets");
    std::fs::set_permissions(&secrets, std::fs::Permissions::from_mode(0o644)).unwrap();
    let switch = folder.path().join("switch-s1.toml");
    let output =
        Command::new(STATEPLANE).args(["switch", "--check", "--config"]).arg(&switch).output();
    let output = output.unwrap();
    let told = said(&output);
    assert!(!output.status.success(), "{told}");
    assert!(
        told.contains("switch-s1.toml: line ")
            && told.contains(": secrets: ")
            && told.contains("`chmod 600"),
        "{told}"
    );
}

/// All TOML in all pages can be read, and what the applications' pages add to a configuration is
/// good there.
#[test]
fn every_configuration_on_the_other_pages_is_good() {
    let folder = tempfile::tempdir().unwrap();
    keys(folder.path());
    let deploy = guide();
    let mut checked = vec![];
    for page in markdown() {
        let text = read(&page);
        let mut parts: BTreeMap<&str, String> = BTreeMap::new();
        for block in page::texts(&text, "toml") {
            toml::from_str::<toml::Table>(block).unwrap_or_else(|error| panic!("{page}: {error}"));
            let kind = if block.starts_with("[[table") { "switch" } else { "store" };
            *parts.entry(kind).or_default() += &format!("{block}\n");
        }
        let Some(app) = page
            .strip_prefix("systems/redplane/docs/apps/")
            .and_then(|name| name.strip_suffix(".md"))
        else {
            continue;
        };
        for (kind, part) in parts {
            let [whole, object, start] = match kind {
                "switch" => ["switch-s1.toml", "[[table]]", "object = \"nat.o\""],
                _ => ["store.toml", "[wal]", "manifest = \"nat.json\""],
            };
            let program = repository().join(format!("systems/redplane/p4/{app}/{app}.p4"));
            let out = folder.path().join(format!("{app}.o"));
            let compiled = Command::new(STATEPLANE)
                .arg("compile")
                .arg(program)
                .arg("-o")
                .arg(out)
                .output()
                .unwrap();
            assert!(compiled.status.success(), "{}", said(&compiled));
            let (_, text) = blocks(&deploy, "toml")
                .into_iter()
                .find(|(path, _)| path.ends_with(whole))
                .unwrap();
            let (head, _) = text.split_once(object).unwrap();
            assert!(head.contains(start), "{head}");
            let config = folder.path().join(whole);
            std::fs::write(
                &config,
                head.replace(start, &start.replace("nat.", &format!("{app}."))) + &part,
            )
            .unwrap();
            let output = Command::new(STATEPLANE)
                .args([kind, "--check", "--config"])
                .arg(config)
                .output()
                .unwrap();
            assert!(output.status.success(), "{page}: {}", said(&output));
            checked.push(format!("{app} {kind}"));
        }
    }
    assert_eq!(
        checked,
        ["heavy_hitter switch", "load_balancer store", "sequencer switch", "usage_monitor switch"],
        "a new one belongs in this list"
    );
}

/// A setting that stands in a comment can be used as it is: without its `#` the file is good TOML.
#[test]
fn commented_settings_of_the_examples_can_be_used() {
    let examples = [
        ("docs/controller.example.toml", 7),
        ("systems/redplane/docs/store.example.toml", 5),
        ("docs/switch.example.toml", 0),
    ];
    for (page, settings) in examples {
        let text = read(page);
        let is_setting = |line: &str| {
            let name: String =
                line.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            (line.starts_with('[') && line.ends_with(']'))
                || (!name.is_empty() && line[name.len()..].starts_with(" = "))
        };
        let mut found = 0;
        let used: String = text
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(setting) if is_setting(setting) => {
                    found += 1;
                    format!("{setting}\n")
                }
                _ => format!("{line}\n"),
            })
            .collect();
        let parsed: Result<toml::Table, _> = toml::from_str(&used);
        assert!(parsed.is_ok(), "{page}: {}", parsed.unwrap_err());
        assert!(found >= settings, "{page}: {found} settings in comments, {settings} expected");
    }
}

/// Makes the fabric's shared secrets.
fn keys(folder: &Path) -> PathBuf {
    let file = folder.join("fabric.secrets");
    let output = Command::new(STATEPLANE).args(["keys", "generate"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    file
}

#[test]
fn birds_configuration_on_the_page_is_good() {
    if !is_there("bird") {
        eprintln!("skipped: there is no bird (apt install bird2)");
        return;
    }
    let found = blocks(&guide(), "bird");
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
    let units = repository().join("deploy/systemd");
    // What a store with a fast path needs beside: read together with its unit.
    let more = "stateplane-store.service.d/fast-path.conf";
    let text = std::fs::read_to_string(units.join(more)).unwrap();
    assert!(text.contains("AmbientCapabilities=CAP_BPF CAP_NET_ADMIN"));
    std::fs::create_dir(folder.path().join(more).parent().unwrap()).unwrap();
    std::fs::write(folder.path().join(more), text).unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(units).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap().replace("@.service", "@s1.service");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("ExecStart=/usr/bin/stateplane "), "{name}");
        // `running` below has them say that they are ready.
        assert!(text.lines().any(|line| line == "Type=notify"), "{name}");
        // A switch's threads ask for a real-time policy (`dataplane::before_others`).
        let may = text.contains("CAP_SYS_NICE") && !text.contains("RestrictRealtime=yes");
        assert!(may || !name.contains("switch"), "{name}: no real-time policy");
        let unit = folder.path().join(name);
        // BIRD and the network's targets are the machine's own.
        std::fs::write(&unit, text.replace("/usr/bin/stateplane", STATEPLANE)).unwrap();
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&unit)
            .output()
            .unwrap();
        // systemd-analyze only warns of keys that it does not know; a good unit leaves it silent.
        let ours: Vec<String> = said(&output)
            .lines()
            .filter(|line| line.contains("stateplane"))
            .map(str::to_owned)
            .collect();
        assert!(output.status.success() && ours.is_empty(), "{}: {ours:#?}", path.display());
        seen += 1;
    }
    assert!(seen >= 3);
}

/// What `stateplane WORDS --help` says.
fn help(words: &[&str]) -> String {
    let output = Command::new(STATEPLANE).args(words).arg("--help").output().unwrap();
    assert!(output.status.success(), "stateplane {}: {}", words.join(" "), said(&output));
    said(&output)
}

/// The subcommand of a line of a page, and its options, are there.
fn is_known(page: &str, line: &str) {
    let words: Vec<&str> =
        line.split_whitespace().take_while(|word| *word != "#" && *word != "--").collect();
    let Some(command) = words.get(1).filter(|word| !word.starts_with('-')) else { return };
    let general = help(&[command]);
    let own = match (general.split_once("\nCommands:\n"), words.get(2)) {
        (Some((_, list)), Some(second))
            if second.starts_with(|letter: char| letter.is_ascii_lowercase()) =>
        {
            let mut known = list
                .lines()
                .take_while(|line| !line.is_empty())
                .filter_map(|line| line.split_whitespace().next());
            assert!(
                known.any(|name| name == *second),
                "{page}: {line}: stateplane {command} has no {second}"
            );
            help(&[command, second])
        }
        _ => general,
    };
    for option in words.iter().filter(|word| word.starts_with("--")) {
        let option = option.split(['=', ')', ',']).next().unwrap();
        let is_there = own
            .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-')
            .any(|word| word == option);
        assert!(is_there, "{page}: {line}: no option {option}");
    }
}

#[test]
fn every_command_on_the_pages_is_one() {
    let mut seen = BTreeSet::new();
    for page in markdown() {
        let text = read(&page);
        let inline = text.split('`').skip(1).step_by(2);
        let lines = [page::texts(&text, "sh"), page::texts(&text, "")].concat();
        for line in inline.chain(lines.into_iter().flat_map(str::lines)) {
            let line = line.strip_prefix("target/release/").unwrap_or(line);
            if line.starts_with("stateplane ")
                && !line.contains('\n')
                && seen.insert(line.to_owned())
            {
                is_known(&page, line);
            }
        }
    }
    assert!(seen.len() > 50, "{seen:?}");
}

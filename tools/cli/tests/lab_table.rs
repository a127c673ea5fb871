//! `stateplane table replace` on a running switch. Needs root. Waits for timers.

mod common;

use common::{TestLab, json, skip, stateplane};
use serde_json::Value;

/// A switch, and a file for the entries that it is to have.
struct Tables<'a> {
    lab: &'a TestLab,
    file: tempfile::NamedTempFile,
}

impl Tables<'_> {
    fn words<'a>(&self, words: &[&'a str], switch: &'a str) -> Vec<&'a str> {
        [&["table"], words, &["--switch", switch]].concat()
    }

    fn list(&self, table: &str) -> Value {
        let switch = format!("{}-s1", self.lab.name);
        json(&common::must(&self.words(&["list", table, "--json"], &switch)))
    }

    /// The keys of a table's entries.
    fn keys(&self, table: &str) -> Vec<String> {
        let list = self.list(table);
        let entries = list["entries"].as_array().unwrap_or_else(|| panic!("{list}"));
        entries.iter().map(|entry| entry["key"].to_string()).collect()
    }

    /// Exchanges the entries: what it says, or why it refuses.
    fn replace(&self, text: &str, more: &[&str]) -> Result<String, String> {
        std::fs::write(self.file.path(), text).expect("written");
        let (switch, path) = (format!("{}-s1", self.lab.name), self.file.path().to_str());
        let words = [&["replace", path.expect("UTF-8")], more].concat();
        let output = stateplane(&self.words(&words, &switch));
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(said(&output.stdout)),
            false => Err(said(&output.stderr)),
        }
    }
}

fn routes(groups: &[u32]) -> String {
    let entry = |group: &u32| {
        format!(
            "[[table.entry]]\nkey = {{ \"hdr.h.group\" = {group}, \"hdr.h.address\" = \
             \"10.0.0.0/8\" }}\naction = \"I.leave_by\"\narguments = {{ port = 1 }}\n"
        )
    };
    let entries: String = groups.iter().map(entry).collect();
    format!("[[table]]\nname = \"I.routes\"\n{entries}")
}

const ROLES: &str = "[[table]]\nname = \"I.roles\"\n[[table.entry]]\nkey = { \"hdr.h.group\" = 7 }\n\
                     action = \"I.take_part\"\narguments = { first = 1, second = 2 }\n";

#[test]
fn entries_are_exchanged_as_one_or_not_at_all() {
    if skip() {
        return;
    }
    let lab = TestLab::up("table", "tests/lab_table/exchanged.toml", &[]);
    let tables =
        Tables { lab: &lab, file: tempfile::NamedTempFile::with_suffix(".toml").expect("a file") };
    assert_eq!(tables.keys("I.routes").len(), 1, "the program's own entry");

    let said = tables.replace(&routes(&[2, 3]), &[]).expect("exchanged");
    assert!(said.contains("no packet uses an earlier entry"), "{said}");
    assert_eq!(tables.keys("I.routes").len(), 2);

    // An entry that cannot be: the others stay.
    let wrong = routes(&[4]).replace("I.leave_by", "I.take_part");
    let why = tables.replace(&wrong, &[]).expect_err("no such action");
    assert!(why.contains("I.take_part"), "{why}");
    assert_eq!(tables.keys("I.routes").len(), 2);

    // Another version than the entries have.
    let why = tables.replace(&routes(&[5]), &["--expect", "I.routes=0x12345678"]);
    assert!(why.expect_err("another version").contains("version"));
    assert_eq!(tables.keys("I.routes").len(), 2);

    // Entries that hold for one incarnation.
    let why = tables.replace(ROLES, &[]).expect_err("for which incarnation?");
    assert!(why.contains("--incarnation"), "{why}");
    let why = tables.replace(ROLES, &["--incarnation", "1"]).expect_err("another incarnation");
    assert!(why.contains("incarnation"), "{why}");
    let incarnation = lab.switch("s1").expect("it answers")["incarnation"].to_string();
    tables.replace(ROLES, &["--incarnation", &incarnation]).expect("exchanged");
    assert_eq!(tables.keys("I.roles").len(), 1);
    lab.down();
}

//! Programs, packet tests, configurations, JSON.

use fuzz_door::told;
use manifest::Manifest;
use std::path::Path;
use std::sync::OnceLock;
use wire::Views;

/// A file that is not there, in a folder that is not there: what an input names beside it is not
/// there either.
const NOWHERE: &str = "/nonexistent/stateplane-fuzz/input.toml";

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

/// core.p4 and v1model.p4 as the preprocessor leaves them.
fn prelude() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let includes = "#include <core.p4>\n#include <v1model.p4>\n#include <stateplane.p4>\n";
        let outcome =
            p4_check::check_source("prelude.p4", includes, &p4_syntax::Options::default());
        let lines = outcome.source_map.text().lines().filter(|line| !line.starts_with('#'));
        lines.fold(String::new(), |text, line| text + line + "\n")
    })
}

/// The front end: lexer, parser, checker, lowering, and how the messages look. Lines with a `#` in
/// front are left out: the preprocessor is clang's.
pub(crate) fn p4(data: &[u8]) {
    let own: String = text(data)
        .lines()
        .filter(|line| !line.starts_with('#'))
        .fold(String::new(), |all, line| all + line + "\n");
    // Short inputs go alone: what they declare cannot clash with the include files.
    let whole = if own.contains("V1Switch") { prelude().to_owned() + &own } else { own };
    let outcome = p4_check::check_preprocessed("fuzz.p4", &whole);
    let shown = outcome.render(false);
    let _ = p4_syntax::all_to_json(&outcome.diagnostics, &outcome.source_map).to_string();
    match &outcome.program {
        Some(program) => drop(program.to_string()),
        None => assert!(!shown.trim().is_empty(), "refused without a message"),
    }
}

/// Packet tests.
pub(crate) fn stf(data: &[u8]) {
    match packet_test::Case::parse("fuzz.stf", &text(data), systems::packet_tests()) {
        Ok(case) => assert!(case.commands.len() <= data.len()),
        Err(errors) => {
            assert!(!errors.is_empty(), "refused without a message");
            errors.iter().for_each(|error| told(error));
        }
    }
}

/// `controller.toml`
pub(crate) fn controller_config(data: &[u8]) {
    if let Err(error) = controller::config::Config::parse(Path::new(NOWHERE), &text(data)) {
        told(&error);
    }
}

/// `switch.toml`, and what systems read of it.
pub(crate) fn switch_config(data: &[u8]) {
    static NO_STATE: OnceLock<Manifest> = OnceLock::new();
    let no_state = NO_STATE.get_or_init(|| {
        let text = include_str!("no_state.json");
        serde_json::from_str(text).expect("a manifest")
    });
    match switch_agent::config::Config::parse(Path::new(NOWHERE), &text(data), systems::switch()) {
        Ok(config) => {
            for system in systems::switch() {
                if let Err(error) = system.check(&config, no_state) {
                    told(&error);
                }
            }
        }
        Err(error) => told(&error),
    }
}

/// A lab's file.
pub(crate) fn lab_topology(data: &[u8]) {
    match lab::topology::Topology::parse(&text(data), Path::new(NOWHERE)) {
        Ok(topology) => drop(topology.default_mode().to_owned()),
        Err(error) => told(&error),
    }
}

/// The file of shared secrets.
pub(crate) fn secrets_file(data: &[u8]) {
    if let Err(error) = secrets::SecretsFile::parse(Path::new(NOWHERE), &text(data)) {
        told(&error);
    }
}

/// The JSON beside an object: read and written again it is the same.
pub(crate) fn manifest(data: &[u8]) {
    if let Ok(manifest) = serde_json::from_slice::<Manifest>(data) {
        let again: Manifest = serde_json::from_str(&manifest.to_json()).expect("what was written");
        assert_eq!(again, manifest);
    }
}

/// What a controller answers to tools, as JSON. Read and written again it is the same.
pub(crate) fn message_json(data: &[u8]) {
    match serde_json::from_slice::<controller::shell::Status>(data) {
        Ok(value) => {
            let again = serde_json::to_vec(&value).expect("plain data");
            let second: controller::shell::Status =
                serde_json::from_slice(&again).expect("what was written");
            assert_eq!(second, value);
        }
        Err(error) => told(&error),
    }
}

/// The controller's decisions, as messages carry them and redb and etcd keep them: read and written
/// again they are the same.
pub(crate) fn views(data: &[u8]) {
    match Views::from_json(data) {
        Ok(views) => {
            assert_eq!(Views::from_json(&views.to_json()).as_ref(), Ok(&views));
            let _ = views.heads().count();
        }
        Err(error) => told(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_has_a_controllers_answer() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/message_json"));
        let text = std::fs::read(folder.join("controller")).unwrap();
        assert!(serde_json::from_slice::<controller::shell::Status>(&text).is_ok());
    }
}

//! The switch program, as the compiler's front end reads it: with a seeded bug, if wanted.

use crate::seeded::SeededBug;
use p4_ir::Program;
use std::path::Path;

/// The program's files, by their names beside each other.
pub(crate) const FILES: [(&str, &str); 6] = [
    ("netchain.p4", include_str!("../../p4/netchain.p4")),
    ("include/message.p4", include_str!("../../p4/include/message.p4")),
    ("include/slot.p4", include_str!("../../p4/include/slot.p4")),
    ("include/list.p4", include_str!("../../p4/include/list.p4")),
    ("include/collect.p4", include_str!("../../p4/include/collect.p4")),
    ("include/parts.p4", include_str!("../../p4/include/parts.p4")),
];

/// Keys that a simulated switch has room for: all that a run has.
pub(crate) const KEYS: usize = 20;
/// Clients that it remembers.
const CLIENTS: usize = 64;

/// Reads netchain.p4 with small tables.
///
/// # Errors
/// What the compiler says, for people.
pub fn compile(bug: Option<&SeededBug>) -> Result<Program, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
    let include = folder.path().join("include");
    std::fs::create_dir(&include).map_err(|error| format!("{}: {error}", include.display()))?;
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    for (name, text) in FILES {
        let text = match bug {
            Some(bug) => bug.plant(name, text)?,
            None => text.to_owned(),
        };
        write(&folder.path().join(name), &text)?;
    }
    let defines = vec![format!("NETCHAIN_KEYS={KEYS}"), format!("NETCHAIN_CLIENTS={CLIENTS}")];
    let options = p4_syntax::Options { defines, ..Default::default() };
    let outcome = p4_check::check_file(&folder.path().join("netchain.p4"), &options);
    let rendered = outcome.render(false);
    outcome.program.ok_or(rendered)
}

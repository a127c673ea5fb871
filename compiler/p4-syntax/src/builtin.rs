//! The include files that come with the compiler, so that the binary needs no installed folder.

use std::fs;
use std::io;
use std::path::Path;

/// Name and text of every file that `#include <...>` finds without an include path: those of
/// `p4/include`, which build.rs lists.
pub const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/include_files.rs"));

/// Writes all of them into `dir`, which must exist.
pub(crate) fn write_into(dir: &Path) -> io::Result<()> {
    for (name, text) in FILES {
        let path = dir.join(name);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)?;
    }
    Ok(())
}

/// The file to include for this name: what a program lacks that uses the name. What is declared
/// below `X/` comes with `X.p4`.
pub fn include_that_declares(name: &str) -> Option<&'static str> {
    let (file, _) = FILES.iter().find(|(_, text)| declares(text, name))?;
    let whole = file.split_once('/').map(|(folder, _)| format!("{folder}.p4"));
    FILES.iter().map(|(name, _)| *name).find(|name| *name == whole.as_deref().unwrap_or(file))
}

/// Whether a file declares a name at its top level, or as a match kind. The files are our own: a
/// declaration begins at the left margin, and its name is on that line.
fn declares(text: &str, name: &str) -> bool {
    let mut among_match_kinds = false;
    text.lines().any(|line| {
        if line.starts_with("match_kind") {
            among_match_kinds = true;
        } else if line.starts_with('}') {
            among_match_kinds = false;
        }
        let is_match_kind = among_match_kinds && line.trim().trim_end_matches(',') == name;
        is_match_kind || declared(line) == Some(name)
    })
}

/// The name that a line declares: the last word before the parameters, the body or the value,
/// type arguments and parameters aside.
fn declared(line: &str) -> Option<&str> {
    const KINDS: [&str; 11] = [
        "action", "const", "control", "enum", "extern", "header", "package", "parser", "struct",
        "type", "typedef",
    ];
    let (kind, rest) = line.split_once(' ')?;
    if !KINDS.contains(&kind) {
        return None;
    }
    let head = rest.split(['(', '{', '=', ';']).next()?;
    // `bit<9> NAME`, `NAME<K, V>` and `NAME<T` at the line's end.
    let head = match head.trim_end().rsplit_once('>') {
        Some((before, "")) => before.rsplit_once('<')?.0,
        Some((_, after)) => after,
        None => head.split('<').next()?,
    };
    head.split_whitespace().last()
}

#[cfg(test)]
mod tests {
    use super::include_that_declares;

    #[test]
    fn names_are_found_where_they_are_declared() {
        for (name, file) in [
            ("packet_in", "core.p4"),
            ("NoAction", "core.p4"),
            ("lpm", "core.p4"),
            ("static_assert", "core.p4"),
            ("range", "v1model.p4"),
            ("V1Switch", "v1model.p4"),
            ("register", "v1model.p4"),
            ("PortId_t", "v1model.p4"),
            ("mark_to_drop", "v1model.p4"),
            ("HashAlgorithm", "v1model.p4"),
            ("KERNEL_PORT", "stateplane.p4"),
            ("switch_id", "stateplane.p4"),
            ("StateResult", "stateplane.p4"),
            ("SlotResult", "stateplane.p4"),
        ] {
            assert_eq!(include_that_declares(name), Some(file), "{name}");
        }
        for name in ["no_such_name", "void", "bit", "extern", "T", "index", "crc16"] {
            assert_eq!(include_that_declares(name), None, "{name}");
        }
    }
}

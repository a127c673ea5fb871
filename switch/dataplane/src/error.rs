//! What can go wrong between a manifest and the kernel, each with its remedy.

use std::io;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process may not use BPF.
    #[error(
        "{action}: not permitted; run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, on a kernel with BPF (Linux 6.1 or later)"
    )]
    NotPermitted {
        /// What was tried.
        action: String,
    },
    /// The kernel refused a call.
    #[error("{action}: {source}")]
    Kernel {
        /// What was tried.
        action: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The object file is not usable.
    #[error("{path}: {reason}")]
    Object {
        /// The object file.
        path: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The kernel's verifier refused a program.
    #[error("{path}: the kernel's verifier refused program {program}:\n{}", tail(log, 40))]
    Verifier {
        /// The object file.
        path: String,
        /// The program in it.
        program: String,
        /// The whole log; lines that start with `;` carry the emitted C's line (`@ file.c:123`).
        log: String,
    },
    /// The object has no such map: object and manifest do not belong together.
    #[error(
        "map {map} (of {owner}) is not in the object; object and manifest do not belong together: compile the program again"
    )]
    NoMap {
        /// The missing map.
        map: String,
        /// Which part of the manifest names it.
        owner: String,
    },
    /// A name that the manifest does not have.
    #[error("no {kind} {name:?}; there is {}", list(known))]
    Unknown {
        /// `table`, `action`, `key`, …
        kind: &'static str,
        /// As asked for.
        name: String,
        /// What could have been asked for.
        known: Vec<String>,
    },
    /// A name that fits several things.
    #[error("{kind} {name:?} is ambiguous: it could be {}", list(known))]
    Ambiguous {
        /// `table`, `action`, `key`, …
        kind: &'static str,
        /// As asked for.
        name: String,
        /// What it fits.
        known: Vec<String>,
    },
    /// A value that does not fit.
    #[error("{what}: {text:?}: {reason}")]
    Value {
        /// Which key, parameter or element.
        what: String,
        /// The text.
        text: String,
        /// Why not.
        reason: String,
    },
    /// A table operation that cannot be done.
    #[error("table {table}: {reason}")]
    Table {
        /// The table's name.
        table: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// A register or counter index past the end.
    #[error("{name}: index {index} is past the end: it has {size} elements")]
    Index {
        /// Register or counter.
        name: String,
        /// As asked for.
        index: u32,
        /// How many there are.
        size: u32,
    },
}

/// The result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// From an errno-bearing error: permission problems get their own kind.
    pub(crate) fn kernel(action: impl Into<String>, source: io::Error) -> Error {
        let action = action.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Error::NotPermitted { action },
            _ => Error::Kernel { action, source },
        }
    }

    /// From libbpf-rs.
    pub fn libbpf(action: impl Into<String>, error: libbpf_rs::Error) -> Error {
        let kind = match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            libbpf_rs::ErrorKind::NotFound => io::ErrorKind::NotFound,
            libbpf_rs::ErrorKind::AlreadyExists => io::ErrorKind::AlreadyExists,
            _ => io::ErrorKind::Other,
        };
        Error::kernel(action, io::Error::new(kind, format!("{error:#}")))
    }

    /// The verifier's log, if that is what went wrong.
    pub fn verifier_log(&self) -> Option<&str> {
        match self {
            Error::Verifier { log, .. } => Some(log),
            _ => None,
        }
    }
}

/// The C source lines that a verifier log names, in order: `(file, line)` of each `; … @
/// file.c:123`. The compiler maps the last of them back to the P4 program.
pub fn verifier_source_lines(log: &str) -> Vec<(String, u32)> {
    log.lines()
        .filter(|line| line.starts_with(';'))
        .filter_map(|line| {
            let (file, number) = line.rsplit_once(" @ ")?.1.rsplit_once(':')?;
            Some((file.to_owned(), number.trim().parse().ok()?))
        })
        .collect()
}

fn tail(log: &str, lines: usize) -> String {
    let all: Vec<&str> = log.lines().collect();
    let from = all.len().saturating_sub(lines);
    let cut = if from > 0 { format!("  … ({from} lines before)\n") } else { String::new() };
    cut + &all[from..].iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

fn list(known: &[String]) -> String {
    match known {
        [] => "none".to_owned(),
        _ => known.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_source_lines_of_a_verifier_log() {
        let log = "0: R1=ctx()\n; int a = 1; @ nat.c:12\n1: (b7) r0 = 1\n; x @ nat.c:40\ninvalid access\n";
        assert_eq!(
            verifier_source_lines(log),
            [("nat.c".to_owned(), 12), ("nat.c".to_owned(), 40)]
        );
    }
}

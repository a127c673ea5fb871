//! What all configuration files have in common: they are TOML, and every error names the file, the
//! line or field, and the remedy.
//!
//! Owns how a file is read and what its errors look like; what is in it belongs to who reads it.

use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::fmt::Display;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use thiserror::Error;
use toml::de::{DeArray, DeTable};

/// A configuration that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: cannot read: {source}; check the path and its permissions")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Not TOML, or a field is missing, misspelt or of another type.
    #[error("{path}: {message}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, column and reason; never the line itself, which may hold a secret.
        message: String,
    },
    /// A field's value makes no sense.
    #[error("{place}: {field}: {problem}")]
    Field {
        /// The file, with the line if the field is in it.
        place: String,
        /// The field, with its table and number.
        field: String,
        /// What is wrong and what to write instead.
        problem: String,
    },
}

/// A field and what is wrong with it, before it is known of which file.
pub type Problem = (String, String);

impl ConfigError {
    /// The problem, of the file at `path`.
    pub fn field(path: &Path, (field, problem): Problem) -> ConfigError {
        ConfigError::Field { place: path.display().to_string(), field, problem }
    }

    /// The problem, of the file at `path` with this text: with the field's line.
    pub fn in_text(path: &Path, text: &str, (field, problem): Problem) -> ConfigError {
        ConfigError::Field { place: place(path, text, &field), field, problem }
    }
}

/// A file, with the line of a field if it is there: `switch.toml: line 7`.
pub fn place(path: &Path, text: &str, field: &str) -> String {
    let path = path.display();
    line_of(text, field).map_or_else(|| path.to_string(), |line| format!("{path}: line {line}"))
}

/// The line of a field, such as `port[1].interface`. If it is missing, the line of the table that
/// it belongs in, if that is not the whole file.
fn line_of(text: &str, field: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let (mut table, mut list, mut start) = (Some(document.get_ref()), None::<&DeArray<'_>>, None);
    let mut rest = field;
    while !rest.is_empty() {
        let found = match (table, list) {
            // (A key may have dots: then the longest one is meant.)
            (Some(table), _) => table
                .iter()
                .filter_map(|(key, value)| {
                    let after = rest.strip_prefix(key.get_ref().as_ref())?;
                    let ends = after.is_empty() || after.starts_with(['.', '[']);
                    ends.then_some((after, key.span(), value))
                })
                .min_by_key(|(after, ..)| after.len()),
            (_, Some(list)) => rest
                .strip_prefix('[')
                .and_then(|rest| rest.split_once(']'))
                .and_then(|(at, after)| Some((after, list.get(at.parse::<usize>().ok()?)?)))
                .map(|(after, value)| (after, value.span(), value)),
            _ => None,
        };
        let Some((after, span, value)) = found else { break };
        start = Some(span.start);
        (table, list) = (value.get_ref().as_table(), value.get_ref().as_array());
        rest = after.strip_prefix('.').unwrap_or(after);
    }
    Some(line_at(text, start?))
}

/// The line of a place in the text.
fn line_at(text: &str, start: usize) -> usize {
    text.get(..start).unwrap_or(text).matches('\n').count() + 1
}

/// A file's text.
pub fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

/// What a file's text says; `path` is for messages.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| ConfigError::Parse {
        path: path.to_owned(),
        message: placed(text, error.span(), error.message()),
    })
}

/// What a file's text says to two readers: the fields of the top level in `first`, and all others,
/// which the second reader should deny if it does not know them.
///
/// # Errors
/// As [`parse`].
pub fn parse_parts<A: DeserializeOwned, B: DeserializeOwned>(
    path: &Path,
    text: &str,
    first: &[&str],
) -> Result<(A, B), ConfigError> {
    let failed = |error: toml::de::Error| ConfigError::Parse {
        path: path.to_owned(),
        message: placed(text, error.span(), error.message()),
    };
    let part = |of_first: bool| {
        let mut table = DeTable::parse(text)?;
        let all = std::mem::take(table.get_mut());
        let wanted = |name: &str| first.contains(&name) == of_first;
        *table.get_mut() = all.into_iter().filter(|(name, _)| wanted(name.get_ref())).collect();
        Ok(toml::Deserializer::from(table))
    };
    // (An unknown field says more than one that is missing for its sake.)
    let second = part(false).and_then(B::deserialize).map_err(failed)?;
    Ok((part(true).and_then(A::deserialize).map_err(failed)?, second))
}

/// A reason with the line and column that it is about.
fn placed(text: &str, span: Option<std::ops::Range<usize>>, reason: &str) -> String {
    let at = span.map(|span| {
        let before = text.get(..span.start).unwrap_or(text);
        let line = line_at(text, span.start);
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        format!("{line}:{column}: ")
    });
    format!("{}{reason}", at.unwrap_or_default())
}

/// That something holds, or else which field is at fault and why.
pub fn require(holds: bool, field: &str, problem: impl FnOnce() -> String) -> Result<(), Problem> {
    if holds { Ok(()) } else { Err((field.to_owned(), problem())) }
}

/// That a list has nothing twice; `what` is one of its entries, for people ("controller").
pub fn require_distinct<T: Eq + Hash + Display>(
    list: &[T],
    field: &str,
    what: &str,
) -> Result<(), Problem> {
    let mut seen = HashSet::new();
    match list.iter().find(|entry| !seen.insert(*entry)) {
        Some(entry) => {
            Err((field.to_owned(), format!("{entry} is given twice; write each {what} once")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[expect(dead_code, reason = "only whether it parses is of interest")]
        port: u16,
    }

    #[derive(serde::Deserialize)]
    struct Empty {}

    #[test]
    fn the_line_of_a_field_is_found() {
        let text = "name = \"s1\"\n[shared.main]\nmembers = [\n  \"a\",\n  \"b\",\n]\n\
                    [[port]]\nport = 1\n[[port]]\ninterface = \"x\"\nport = 2\n\
                    [shared.\"main.b\"]\nc = { d = 1 }\n";
        let at = |field: &str| line_of(text, field);
        for (field, line) in [
            ("name", 1),
            ("shared.main", 2),
            ("shared.main.members", 3),
            ("shared.main.members[1]", 5),
            ("port", 7),
            ("port[1]", 9),
            ("port[1].port", 11),
            ("shared.main.b.c.d", 13),
            // What is missing: where it belongs.
            ("shared.main.own", 2),
            ("shared.main.members[2]", 3),
            ("port[0].interface", 7),
        ] {
            assert_eq!(at(field), Some(line), "{field}");
        }
        assert_eq!((at("object"), at("")), (None, None));
        let path = Path::new("s1.toml");
        assert_eq!(place(path, text, "port[1].port"), "s1.toml: line 11");
        assert_eq!(place(path, text, "object"), "s1.toml");
        let problem = ("name".to_owned(), "no name".to_owned());
        let error = ConfigError::in_text(path, text, problem).to_string();
        assert_eq!(error, "s1.toml: line 1: name: no name");
    }

    #[test]
    fn errors_name_the_file_and_the_place() {
        let path = Path::new("some/where.toml");
        let text = |text: &str| parse::<File>(path, text).unwrap_err().to_string();
        assert!(parse::<File>(path, "port = 1").is_ok());
        let error = text("# ä\n  prot = 1\n");
        assert!(error.starts_with("some/where.toml: 2:3: ") && error.contains("prot"), "{error}");
        let error = text("# a\nport = \"a secret\n");
        assert!(error.starts_with("some/where.toml: 2:") && !error.contains("a secret"), "{error}");
        let parts = |text: &str| {
            parse_parts::<Empty, File>(path, text, &["one"]).map(drop).unwrap_err().to_string()
        };
        let error = parts("one = 1\n\nprot = 2\n");
        assert!(error.starts_with("some/where.toml: 3:1: ") && error.contains("prot"), "{error}");
        let error = read(&path.join("not there")).unwrap_err().to_string();
        assert!(error.starts_with("some/where.toml/not there: cannot read: "), "{error}");
        let error =
            require(false, "port", || "0 is no port; write 1 to 65535".to_owned()).unwrap_err();
        assert_eq!(require_distinct(&["a", "b", "aa"], "hosts", "host"), Ok(()));
        let twice = require_distinct(&["a", "b", "c", "b", "a"], "hosts", "host").unwrap_err();
        assert_eq!(
            ConfigError::field(path, twice).to_string(),
            "some/where.toml: hosts: b is given twice; write each host once"
        );
        assert_eq!(
            ConfigError::field(path, error).to_string(),
            "some/where.toml: port: 0 is no port; write 1 to 65535"
        );
    }
}

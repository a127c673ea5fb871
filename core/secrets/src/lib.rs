//! The file of shared secrets that switches, store servers and controllers read: reading, checking,
//! changing, writing.
//!
//! Owns the file's format and its permissions; what a tag is belongs to `wire`.
//!
//! ```toml
//! send = 0
//!
//! [[secret]]
//! id = 0
//! hex = "…32 hexadecimal digits…"
//! ```

mod private;

pub use private::{create_private, from_hex, random_secret, read_private, replace_private, to_hex};

use daemon::config::ConfigError;
use serde::Deserialize;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use thiserror::Error;
use wire::{KeyRing, MOST_SECRETS, SECRET_BYTES};

/// Why a file of secrets cannot be used or changed.
#[derive(Debug, Error)]
pub enum SecretsError {
    /// The file cannot be read.
    #[error("{path}: cannot read: {source}{}", remedy(path, source))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Others than its owner could read it.
    #[error(
        "{path}: mode {mode:04o} lets others read the secrets; `chmod 600 {path}`, and rotate them if others may have read them"
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Not TOML, a field's value makes no sense, or an operation does not fit the file. Never names
    /// a secret.
    #[error(transparent)]
    Content(#[from] ConfigError),
    /// The file cannot be written.
    #[error("{path}: cannot write: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// No randomness.
    #[error("/dev/urandom: {0}")]
    Random(std::io::Error),
}

/// What helps against a file that cannot be read.
fn remedy(path: &Path, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => format!("; `stateplane keys generate {}` makes one", path.display()),
        ErrorKind::PermissionDenied => {
            "; it must belong to the user of the daemon or command".to_owned()
        }
        _ => String::new(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    send: u8,
    #[serde(default)]
    secret: Vec<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    id: u8,
    hex: String,
}

/// A checked file: at least one secret, and one of them is sent with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretsFile {
    path: PathBuf,
    ring: KeyRing,
}

impl SecretsFile {
    /// Reads and checks a file. Refuses one that others than its owner can read.
    pub fn load(path: &Path) -> Result<SecretsFile, SecretsError> {
        let text = read_private(path)?;
        SecretsFile::parse(path, &text)
    }

    /// Checks a file's text; `path` is for messages.
    pub fn parse(path: &Path, text: &str) -> Result<SecretsFile, SecretsError> {
        let file: File = daemon::config::parse(path, text)?;
        let field = |field: String, problem: String| {
            SecretsError::from(ConfigError::field(path, (field, problem)))
        };
        let mut ring: Option<KeyRing> = None;
        for (at, table) in file.secret.iter().enumerate() {
            let place = format!("secret[{at}]");
            let secret = from_hex(&table.hex).ok_or_else(|| {
                let problem = format!(
                    "needs {} hexadecimal digits, not {} characters; `stateplane keys generate` makes valid ones",
                    2 * SECRET_BYTES,
                    table.hex.len()
                );
                field(format!("{place}.hex"), problem)
            })?;
            let taken = ring.as_ref().is_some_and(|ring| ring.secret(table.id).is_some());
            if taken {
                return Err(field(
                    format!("{place}.id"),
                    format!("{} is used twice; give each entry a number of its own", table.id),
                ));
            }
            let accepted = match &mut ring {
                None => {
                    ring = KeyRing::new(table.id, secret);
                    ring.is_some()
                }
                Some(ring) => ring.accept(table.id, secret),
            };
            if !accepted {
                return Err(field(
                    format!("{place}.id"),
                    format!("{} is out of range; write 0 to 3", table.id),
                ));
            }
        }
        let Some(mut ring) = ring else {
            return Err(field(
                "secret".to_owned(),
                "there is none; `stateplane keys generate` makes one".to_owned(),
            ));
        };
        if !ring.send_with(file.send) {
            let problem = format!(
                "no secret has the number {}; write the number of a secret in \
                                   this file",
                file.send
            );
            return Err(field("send".to_owned(), problem));
        }
        Ok(SecretsFile { path: path.to_owned(), ring })
    }

    /// Makes a file with one new secret, readable by its owner only. Never overwrites one.
    pub fn generate(path: &Path) -> Result<SecretsFile, SecretsError> {
        let Some(ring) = KeyRing::new(0, random_secret()?) else { unreachable!("0 is in range") };
        let file = SecretsFile { path: path.to_owned(), ring };
        create_private(path, &file.text())?;
        Ok(file)
    }

    /// The secrets, to sign and verify with.
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// Numbers and fingerprints of the secrets, lowest first.
    pub fn fingerprints(&self) -> impl Iterator<Item = (u8, u64)> {
        (0..MOST_SECRETS as u8).filter_map(|id| Some((id, self.ring.secret(id)?.fingerprint())))
    }

    /// Adds a new secret under the lowest free number, which it returns: accepted, not sent with.
    pub fn add(&mut self) -> Result<u8, SecretsError> {
        let free = (0..MOST_SECRETS as u8).find(|id| self.ring.secret(*id).is_none());
        let id = free.ok_or_else(|| {
            self.problem(
                "secret",
                "all four numbers are taken; run `stateplane keys remove` on the oldest first"
                    .to_owned(),
            )
        })?;
        let _ = self.ring.accept(id, random_secret()?); // in range
        Ok(id)
    }

    /// Sends with the secret `id`.
    pub fn send_with(&mut self, id: u8) -> Result<(), SecretsError> {
        if self.ring.send_with(id) { Ok(()) } else { Err(self.unknown(id)) }
    }

    /// Takes the secret `id` away.
    pub fn remove(&mut self, id: u8) -> Result<(), SecretsError> {
        if self.ring.secret(id).is_none() {
            return Err(self.unknown(id));
        }
        if self.ring.sending() == id {
            let problem = format!(
                "secret {id} is used to send; run `stateplane keys use` with another one first"
            );
            return Err(self.problem("send", problem));
        }
        let kept: Vec<_> = (0..MOST_SECRETS as u8)
            .filter(|at| *at != id)
            .filter_map(|at| Some((at, *self.ring.secret(at)?)))
            .collect();
        let mut ring: Option<KeyRing> = None;
        for (at, secret) in kept {
            match &mut ring {
                None => ring = KeyRing::new(at, secret),
                Some(ring) => {
                    let _ = ring.accept(at, secret); // in range
                }
            }
        }
        if let Some(mut ring) = ring {
            let _ = ring.send_with(self.ring.sending()); // kept: it is not `id`
            self.ring = ring;
        }
        Ok(())
    }

    /// Writes the file anew, in one step: whoever reads it meanwhile sees the old one or the new
    /// one. Owner, group and mode stay, so that the daemon that could read it still can, also when
    /// root changes it.
    pub fn save(&self) -> Result<(), SecretsError> {
        replace_private(&self.path, &self.text())
    }

    fn text(&self) -> String {
        let mut text = format!(
            "# Shared secrets of the state protocol: keep them from others. `stateplane keys --help` says how to rotate them.\nsend = {}\n",
            self.ring.sending()
        );
        for id in 0..MOST_SECRETS as u8 {
            if let Some(secret) = self.ring.secret(id) {
                let _ = write!(text, "\n[[secret]]\nid = {id}\nhex = \"{}\"\n", to_hex(secret)); // writing to a string cannot fail
            }
        }
        text
    }

    fn unknown(&self, id: u8) -> SecretsError {
        let known: Vec<_> = self.fingerprints().map(|(id, _)| id.to_string()).collect();
        self.problem(
            "secret",
            format!("there is no secret {id}; the file has {}", known.join(", ")),
        )
    }

    fn problem(&self, field: &str, problem: String) -> SecretsError {
        ConfigError::field(&self.path, (field.to_owned(), problem)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::private::MODE;
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    const GOOD: &str = "send = 2\n[[secret]]\nid = 2\nhex = \"000102030405060708090a0b0c0d0E0F\"\n";

    #[test]
    fn a_file_goes_through_a_rotation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secrets.toml");
        let mut file = SecretsFile::generate(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        assert!(
            matches!(SecretsFile::generate(&path), Err(SecretsError::Write { .. })),
            "never overwritten"
        );
        assert_eq!(SecretsFile::load(&path).unwrap(), file);
        assert_eq!(file.add().unwrap(), 1);
        assert_eq!(file.ring().sending(), 0, "accepted, not sent with");
        let error = file.remove(0).unwrap_err().to_string();
        assert!(error.contains("used to send") && error.contains("keys use"), "{error}");
        file.send_with(1).unwrap();
        file.remove(0).unwrap();
        assert!(file.send_with(0).is_err() && file.remove(0).is_err());
        file.save().unwrap();
        let again = SecretsFile::load(&path).unwrap();
        assert_eq!(again, file);
        assert_eq!(again.fingerprints().map(|(id, _)| id).collect::<Vec<_>>(), [1]);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing left over");
        for id in [0, 2, 3] {
            assert_eq!(file.add().unwrap(), id);
        }
        assert!(file.add().unwrap_err().to_string().contains("keys remove"));
        let distinct: std::collections::HashSet<_> =
            file.fingerprints().map(|(_, print)| print).collect();
        assert_eq!(distinct.len(), 4);
    }

    #[test]
    fn its_owner_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secrets.toml");
        let mut file = SecretsFile::generate(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
        // Only root may give a file away.
        let root = std::fs::metadata(&path).unwrap().uid() == 0;
        if root {
            std::os::unix::fs::chown(&path, Some(12_345), Some(54_321)).unwrap();
        }
        let about = || {
            let found = std::fs::metadata(&path).unwrap();
            (found.uid(), found.gid(), found.mode() & 0o7777, found.ino())
        };
        let before = about();
        file.add().unwrap();
        file.save().unwrap();
        let after = about();
        assert_eq!((before.0, before.1, before.2), (after.0, after.1, after.2));
        assert_ne!(before.3, after.3, "replaced in one step");
        assert_eq!(SecretsFile::load(&path).unwrap(), file);
        eprintln!("{}", if root { "as root" } else { "not as root: its own file only" });
    }

    #[test]
    fn a_file_that_cannot_be_read_is_told_from_one_that_is_not_there() {
        let says = |kind| {
            SecretsError::Read { path: "s.toml".into(), source: std::io::Error::from(kind) }
                .to_string()
        };
        let (missing, closed) = (says(ErrorKind::NotFound), says(ErrorKind::PermissionDenied));
        assert!(missing.contains("keys generate"), "{missing}");
        assert!(
            !closed.contains("keys generate") && closed.contains("belong to the user"),
            "{closed}"
        );
    }

    #[test]
    fn others_may_not_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secrets.toml");
        SecretsFile::generate(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = SecretsFile::load(&path).unwrap_err().to_string();
        assert!(error.contains("mode 0640") && error.contains("chmod 600"), "{error}");
        std::fs::remove_file(&path).unwrap();
        assert!(SecretsFile::load(&path).unwrap_err().to_string().contains("keys generate"));
    }

    #[test]
    fn every_fault_names_file_field_and_remedy_and_no_secret() {
        let parse = |text: &str| SecretsFile::parse(Path::new("s.toml"), text);
        let file = parse(GOOD).unwrap();
        assert_eq!(
            file.ring().secret(2).unwrap().0,
            [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
        );
        for (from, to, field, remedy) in [
            ("send = 2", "send = 1", "send", "number of a secret"),
            ("id = 2", "id = 4", "secret[0].id", "0 to 3"),
            ("0F\"", "0\"", "secret[0].hex", "keys generate"),
            ("0F\"", "0g\"", "secret[0].hex", "32"),
            ("hex", "hexx", "4:1", ""),
            ("send = 2\n", "", "send", ""),
            (
                "id = 2",
                "id = 2\nhex = \"000102030405060708090a0b0c0d0e00\"\n[[secret]]\nid = 2",
                "secret[1].id",
                "its own",
            ),
        ] {
            let text = parse(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(
                text.starts_with("s.toml: ") && text.contains(field) && text.contains(remedy),
                "{to}: {text}"
            );
            assert!(!text.contains("0001020304"), "{text}");
        }
        assert!(parse("send = 0\n").unwrap_err().to_string().contains("there is none"));
    }
}

//! How far many runs have come, in a file: whoever stops them, they go on there.

use crate::program::Kind;
use crate::run::{Outcome, Summary};
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hasher};
use std::io::ErrorKind;
use std::path::Path;

/// The file's contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// The simulator's: what another one ran says nothing of this one.
    build: String,
    /// The first seed.
    pub seed: u64,
    /// Only this object; none: all.
    object: Option<String>,
    runs: u64,
    least_events: Option<u64>,
    events: u64,
    inputs: u64,
    outputs: u64,
    snapshots: [u64; 3],
    /// Time that the runs took, in s.
    pub seconds: u64,
    /// Digest of all that.
    digest: String,
}

/// A digest of the program that runs.
fn build() -> Result<String, String> {
    let failed = |error| format!("/proc/self/exe: {error}");
    let mut digest = DefaultHasher::new();
    digest.write(&std::fs::read("/proc/self/exe").map_err(failed)?);
    Ok(format!("{:016x}", digest.finish()))
}

impl Resumed {
    fn digest(&self) -> String {
        let mut digest = DefaultHasher::new();
        let rest = Resumed { digest: String::new(), ..self.clone() };
        digest.write(format!("{rest:?}").as_bytes());
        format!("{:016x}", digest.finish())
    }

    /// Nothing is done yet.
    ///
    /// # Errors
    /// The running program cannot be read.
    pub fn begin(seed: u64, kind: Option<Kind>) -> Result<Resumed, String> {
        let object = kind.map(|kind| kind.name().to_owned());
        let mut resumed =
            Resumed { build: build()?, seed, object, ..Resumed::of(&Summary::default()) };
        resumed.least_events = None;
        Ok(resumed)
    }

    fn of(summary: &Summary) -> Resumed {
        let total = &summary.total;
        Resumed {
            build: String::new(),
            seed: 0,
            object: None,
            runs: summary.runs,
            least_events: summary.least_events,
            events: total.events,
            inputs: total.inputs,
            outputs: total.outputs,
            snapshots: total.snapshots,
            seconds: 0,
            digest: String::new(),
        }
    }

    /// What the file says; none: there is no file yet.
    ///
    /// # Errors
    /// It cannot be read, was changed, or is of another build, or of other runs than asked for
    /// (`seed`, `kind`).
    pub fn read(
        path: &Path,
        seed: Option<u64>,
        kind: Option<Kind>,
    ) -> Result<Option<Resumed>, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = match std::fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| failed(&error))?,
        };
        let remedy = "; to begin anew, remove the file";
        let found: Resumed = serde_json::from_slice(&text).map_err(|error| {
            failed(&format!("not what `stateplane sim --resume` writes: {error}{remedy}"))
        })?;
        if found.build != build()? {
            return Err(failed(&format!(
                "these runs were made by another build of stateplane, and say nothing of this one{remedy}"
            )));
        }
        if found.digest != found.digest() {
            return Err(failed(&format!("its figures are not those that were written{remedy}")));
        }
        if seed.is_some_and(|seed| seed != found.seed) {
            return Err(failed(&format!("these runs began with seed {}{remedy}", found.seed)));
        }
        if found.object.as_deref() != kind.map(Kind::name) {
            let object = found.object.as_deref().unwrap_or("all objects");
            return Err(failed(&format!("these runs are of {object}{remedy}")));
        }
        Ok(Some(found))
    }

    /// What was done.
    pub fn summary(&self) -> Summary {
        let total = Outcome {
            events: self.events,
            inputs: self.inputs,
            outputs: self.outputs,
            snapshots: self.snapshots,
            ..Outcome::default()
        };
        Summary { runs: self.runs, least_events: self.least_events, total, failures: Vec::new() }
    }

    /// Replaces the file, in one go. A run that failed is not counted as done: it fails again.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path, summary: &Summary, seconds: u64) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let (build, object) = (self.build.clone(), self.object.clone());
        let mut resumed =
            Resumed { build, seed: self.seed, object, seconds, ..Resumed::of(summary) };
        resumed.digest = resumed.digest();
        let text = serde_json::to_string(&resumed).map_err(|error| failed(error.into()))?;
        let folder =
            path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        std::io::Write::write_all(&mut file, format!("{text}\n").as_bytes()).map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_comes_back_and_other_runs_are_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("runs.json");
        assert_eq!(Resumed::read(&path, None, None), Ok(None));
        let begun = Resumed::begin(7, Some(Kind::Snapshots)).expect("the program can be read");
        let mut summary = Summary::default();
        summary.add(
            7,
            Kind::Snapshots,
            Outcome { events: 300, inputs: 5, outputs: 4, ..Outcome::default() },
        );
        summary.add(
            8,
            Kind::Snapshots,
            Outcome { events: 200, snapshots: [1, 2, 3], ..Outcome::default() },
        );
        begun.write(&path, &summary, 12).expect("written");
        let found =
            Resumed::read(&path, Some(7), Some(Kind::Snapshots)).expect("read").expect("there");
        let again = found.summary();
        assert_eq!(
            (found.seconds, again.runs, again.least_events, again.total.clone()),
            (12, 2, Some(200), summary.total)
        );
        assert!(Resumed::read(&path, Some(8), Some(Kind::Snapshots)).is_err());
        assert!(Resumed::read(&path, None, None).is_err());
        let written = std::fs::read_to_string(&path).expect("read");
        let edited = written.replace("\"runs\":2", "\"runs\":18446744073709551615");
        assert_ne!(edited, written);
        std::fs::write(&path, edited).expect("written");
        assert!(
            Resumed::read(&path, Some(7), Some(Kind::Snapshots)).unwrap_err().contains("not those")
        );
        for damaged in [&b""[..], b"\xff", &written.as_bytes()[..40]] {
            std::fs::write(&path, damaged).expect("written");
            assert!(Resumed::read(&path, None, None).unwrap_err().contains("remove the file"));
        }
        let text = written.replace(&found.build, "0");
        std::fs::write(&path, text).expect("written");
        assert!(
            Resumed::read(&path, Some(7), Some(Kind::Snapshots))
                .unwrap_err()
                .contains("another build")
        );
    }
}

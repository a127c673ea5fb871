//! `[fast_path]`: which interfaces have the program, and for how many records.

use super::File;
use daemon::config::{Problem, require, require_distinct};
use serde::Deserialize;

/// With their index, the memory of so many records is 1 GiB at most.
const MOST_RECORDS: u32 = 1 << 22;
const MOST_INTERFACES: usize = 16;

/// The chain's fast path: docs/output-commit.md.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastPathSettings {
    /// The interfaces by which batches come.
    pub interfaces: Vec<String>,
    /// Records that the program can update, of all shards together.
    pub records: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FastPathTable {
    interfaces: Vec<String>,
    #[serde(default = "default_records")]
    records: u32,
}

fn default_records() -> u32 {
    65_536
}

pub(super) fn check_fast_path(file: &File) -> Result<Option<FastPathSettings>, Problem> {
    let Some(FastPathTable { interfaces, records }) = &file.fast_path else { return Ok(None) };
    require((1..=MOST_INTERFACES).contains(&interfaces.len()), "fast_path.interfaces", || {
        format!(
            "names {} interfaces; write 1 to {MOST_INTERFACES}, such as [\"eth0\"]",
            interfaces.len()
        )
    })?;
    require_distinct(interfaces, "fast_path.interfaces", "interface")?;
    require((1..=MOST_RECORDS).contains(records), "fast_path.records", || {
        format!("{records} is out of range; write 1 to {MOST_RECORDS} (default 65536)")
    })?;
    require(file.wal.is_none(), "fast_path", || {
        "goes with no [wal]: each update must be on a disk first; leave one of them out".to_owned()
    })?;
    require(file.workers == 1, "fast_path", || {
        format!(
            "goes with one worker, and there are {}; the kernel spreads its work over the cores",
            file.workers
        )
    })?;
    Ok(Some(FastPathSettings { interfaces: interfaces.clone(), records: *records }))
}

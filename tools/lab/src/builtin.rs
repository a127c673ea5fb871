//! The lab of `lab up` and `demo` without an argument: the NAT of the source tree around it, or
//! else the one that this program was built with.

use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// Its topology, which compiles the NAT of the source tree.
const TOPOLOGY: &str = "systems/redplane/lab/nat.toml";

/// The other topology of `lab chaos`, which only the source tree has.
pub const OTHER_TOPOLOGY: &str = "systems/redplane/lab/flow_counter.toml";

/// Where topology and program are written to when there is no source tree around.
const FOLDER: &str = "/run/stateplane/builtin";

/// The topology's file, which is written if it is not there.
///
/// # Errors
/// It cannot be written.
pub fn topology() -> Result<PathBuf> {
    let here = Path::new(TOPOLOGY);
    if here.exists() { Ok(here.to_owned()) } else { write(Path::new(FOLDER)) }
}

/// Writes topology and program below `root`, placed as in the source tree; returns the topology's
/// file.
///
/// # Errors
/// They cannot be written.
pub fn write(root: &Path) -> Result<PathBuf> {
    let topology = root.join(TOPOLOGY);
    let files = [
        (&topology, include_str!("../../../systems/redplane/lab/nat.toml")),
        (
            &root.join("systems/redplane/p4/nat/nat.p4"),
            include_str!("../../../systems/redplane/p4/nat/nat.p4"),
        ),
    ];
    for (path, text) in files {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
        }
        std::fs::write(path, text).map_err(Error::io(path))?;
    }
    Ok(topology)
}

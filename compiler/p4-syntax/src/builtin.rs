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

//! The include files that come with the compiler, so that the binary needs no installed folder.

use std::fs;
use std::io;
use std::path::Path;

/// Name and text of every file that `#include <...>` finds without an include path.
pub const FILES: &[(&str, &str)] = &[
    ("core.p4", include_str!("../../../p4/include/core.p4")),
    ("v1model.p4", include_str!("../../../p4/include/v1model.p4")),
    ("stateplane.p4", include_str!("../../../p4/include/stateplane.p4")),
    ("headers.p4", include_str!("../../../p4/include/headers.p4")),
    ("checksum.p4", include_str!("../../../p4/include/checksum.p4")),
];

/// Writes all of them into `dir`, which must exist.
pub(crate) fn write_into(dir: &Path) -> io::Result<()> {
    FILES.iter().try_for_each(|(name, text)| fs::write(dir.join(name), text))
}

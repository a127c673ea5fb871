//! Small files that must outlive a power cut.

use crate::error::{Error, Result};
use std::io::Write;
use std::path::Path;

/// Writes the file anew, all or nothing and durably; its folder is made if it is not there.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = Path::new(&fresh);
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|error| Error::path("make", folder, error))?;
    let written = std::fs::File::create(fresh).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|error| Error::path("write", fresh, error))?;
    let renamed =
        std::fs::rename(fresh, path).and_then(|()| std::fs::File::open(folder)?.sync_all());
    renamed.map_err(|error| Error::path("write", path, error))
}

//! Lists the include files that come with the compiler: all of `p4/include`.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../p4/include");
    let mut names = Vec::new();
    files(&folder, "", &mut names)?;
    names.sort();
    let mut text = String::from("&[\n");
    for name in &names {
        let path = folder.join(name);
        let _ = writeln!(text, "    ({name:?}, include_str!({path:?})),");
    }
    text.push_str("]\n");
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    fs::write(Path::new(&out).join("include_files.rs"), text)
}

/// The P4 files below a folder, by their names for `#include`.
fn files(folder: &Path, prefix: &str, names: &mut Vec<String>) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            files(&entry.path(), &format!("{name}/"), names)?;
        } else if name.ends_with(".p4") {
            names.push(name);
        }
    }
    Ok(())
}

//! Compiles the program, `bpf/core/fast_chain.c`, to an object that the library contains.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

fn main() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf/core");
    println!("cargo::rerun-if-changed={}", folder.display());
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    let mut command = Command::new("clang");
    command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-std=gnu11"]);
    command.args(["-fno-strict-aliasing", "-Wall", "-Werror", "-fno-color-diagnostics"]);
    // Debian keeps asm/types.h under the multiarch folder, where -target bpf does not look.
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let multiarch = PathBuf::from(format!("/usr/include/{architecture}-linux-gnu"));
    if multiarch.is_dir() {
        command.arg("-I").arg(multiarch);
    }
    command.arg("-c").arg(folder.join("fast_chain.c"));
    command.arg("-o").arg(Path::new(&out).join("fast_chain.o"));
    let output = command.output().map_err(|error| {
        io::Error::other(format!(
            "clang did not start: {error}. It compiles bpf/core/fast_chain.c to BPF: \
             apt install clang libbpf-dev"
        ))
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!(
            "clang refuses bpf/core/fast_chain.c (are the headers of libbpf-dev and \
             linux-libc-dev here?):\n{said}"
        )));
    }
    Ok(())
}

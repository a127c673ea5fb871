//! Objects to measure: P4 by `stateplane compile`, C by clang.

use anyhow::{Context, Result, anyhow, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Objects of C programs that this process has compiled.
static COMPILED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Where things are.
#[derive(Clone, Debug)]
pub struct Places {
    /// The repository.
    pub root: PathBuf,
    /// The `stateplane` binary.
    pub stateplane: PathBuf,
    /// Objects, manifests and results go here.
    pub output: PathBuf,
}

fn finish(mut command: Command, what: &str) -> Result<()> {
    let output =
        command.output().with_context(|| format!("cannot run {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!(
            "{what}: {command:?} failed\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

impl Places {
    /// Compiles an app of `systems/redplane/p4` with these macros defined, to an object of this
    /// name; its path.
    pub fn compile_p4(&self, app: &str, name: &str, defines: &[&str]) -> Result<PathBuf> {
        self.compile_p4_of("redplane", app, name, defines)
    }

    /// The same for an app of another system.
    pub fn compile_p4_of(
        &self,
        system: &str,
        app: &str,
        name: &str,
        defines: &[&str],
    ) -> Result<PathBuf> {
        let folder = self.root.join("systems").join(system).join("p4").join(app);
        let source = folder.join(format!("{app}.p4"));
        let object = self.output.join(format!("{name}.o"));
        let mut command = Command::new(&self.stateplane);
        command.arg("compile").arg(&source).arg("-o").arg(&object);
        for define in defines {
            command.arg(format!("-D{define}"));
        }
        finish(command, &source.display().to_string())?;
        Ok(object)
    }

    /// Compiles a C program of `setups/`; the object's path.
    pub fn compile_c(&self, name: &str) -> Result<PathBuf> {
        self.compile_c_as(name, name, &[])
    }

    /// The same with these macros defined (`NAME=VALUE`), to an object of another name; once in the
    /// life of this process.
    pub fn compile_c_as(&self, name: &str, object: &str, defines: &[String]) -> Result<PathBuf> {
        let source = self.root.join("tools/bench/setups").join(format!("{name}.c"));
        let words: Vec<String> =
            std::iter::once(object.to_owned()).chain(defines.iter().cloned()).collect();
        let object = self.output.join(format!("{}.o", words.join("-").replace(['=', '/'], "_")));
        let mut compiled = COMPILED
            .lock()
            .map_err(|_| anyhow!("compiling {} panicked before", source.display()))?;
        if !compiled.contains(&object) {
            let mut command = Command::new("clang");
            command
                .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]);
            // Debian keeps <asm/types.h> below the host's own architecture.
            let include =
                Path::new("/usr/include").join(format!("{}-linux-gnu", std::env::consts::ARCH));
            command.args(defines.iter().map(|define| format!("-D{define}")));
            command.arg("-I").arg(include).arg("-c").arg(&source).arg("-o").arg(&object);
            finish(command, &source.display().to_string())?;
            compiled.insert(object.clone());
        }
        Ok(object)
    }
}

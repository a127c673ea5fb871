//! The labs of this machine: finding them by name, and taking them down from their run directories
//! alone.

use crate::error::{Error, Result};
use crate::instance::{LABS_DIR, Lab, require_root};
use crate::process;
use netns::Netns;
use std::path::{Path, PathBuf};

/// Takes a lab down from its run directory alone: every process in its namespaces, the namespaces,
/// its bpffs, the directory.
///
/// # Errors
/// There is no such lab, or something of it cannot be removed.
pub fn down(name: &str) -> Result<()> {
    require_root()?;
    let dir = Path::new(LABS_DIR).join(name);
    if !dir.exists() {
        return Err(no_lab(name));
    }
    // A crash before the record was written: then there is nothing else either.
    let (names, state): (Vec<String>, Vec<PathBuf>) = match Lab::open(name) {
        Ok(lab) => lab.into_namespaces_and_state(),
        Err(_) => (Vec::new(), Vec::new()),
    };
    let spaces: Vec<Netns> = names.iter().filter_map(|n| Netns::open(n).ok()).collect();
    for netns in &spaces {
        process::signal_all(netns);
    }
    for netns in &spaces {
        process::wait_gone(netns)?;
    }
    drop(spaces);
    for state in &state {
        remove_state(state)?;
    }
    for name in &names {
        netns::remove(name)?;
    }
    std::fs::remove_dir_all(&dir).map_err(Error::io(&dir))
}

/// Names of the labs that have a run directory.
pub fn names() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(LABS_DIR) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The lab of that name, or the only one there is.
///
/// # Errors
/// None, or several and no name given.
pub fn find(name: Option<&str>) -> Result<Lab> {
    match (name, names().as_slice()) {
        (Some(name), _) => Lab::open(name),
        (None, [only]) => Lab::open(only),
        (None, []) => Err(Error::NoLab("no lab is up: stateplane lab up starts one".to_string())),
        (None, several) => Err(Error::NoLab(format!(
            "several labs are up ({}): choose one with --name",
            several.join(", ")
        ))),
    }
}

/// Whether a lab may come up that got no name: not beside another, which the command most likely
/// means. Labs that belong to a process (a demonstration, a test) do not count: they end with it.
///
/// # Errors
/// A lab is up; the error names it.
pub fn check_none_up() -> Result<()> {
    let owned = |name: &String| Lab::open(name).is_ok_and(|lab| lab.owner().is_some());
    let up: Vec<String> = names().into_iter().filter(|name| !owned(name)).collect();
    let Some(first) = up.first() else { return Ok(()) };
    Err(Error::NoLab(format!(
        "a lab is up already ({}): take it down with stateplane lab down --name {first}, \
         or give the new lab a name of its own with --name",
        up.join(", ")
    )))
}

/// Removes labs whose owner is gone.
///
/// # Errors
/// One cannot be removed.
pub fn remove_left_over(progress: &dyn Fn(&str)) -> Result<()> {
    for name in names() {
        let Ok(lab) = Lab::open(&name) else { continue };
        if lab.owner().is_some_and(|owner| !owner.alive()) {
            progress(&format!(
                "lab {name} was left over by a process that is gone: taking it down"
            ));
            lab.down()?;
        }
    }
    Ok(())
}

/// Removes a directory and what is mounted in it. Pins are removed one by one first: a mount may
/// live on in another mount namespace, and with it whatever is pinned there.
pub(crate) fn remove_state(state: &Path) -> Result<()> {
    if !state.exists() {
        return Ok(());
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let inside = mounts
        .lines()
        .filter_map(|l| l.split(' ').nth(1))
        .filter(|m| Path::new(m).starts_with(state));
    // The innermost was mounted last.
    for mount in inside.collect::<Vec<_>>().into_iter().rev() {
        for entry in std::fs::read_dir(mount).into_iter().flatten().flatten() {
            let path = entry.path();
            let _ = if path.is_dir() {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
        }
        nix::mount::umount2(mount, nix::mount::MntFlags::MNT_DETACH)
            .map_err(|e| Error::system(format!("unmounting {mount}"))(e.into()))?;
    }
    std::fs::remove_dir_all(state).map_err(Error::io(state))
}

pub(crate) fn no_lab(name: &str) -> Error {
    let known = names();
    Error::NoLab(if known.is_empty() {
        format!("no lab {name}: none is up; stateplane lab up starts one")
    } else {
        format!("no lab {name}; there is {}", known.join(", "))
    })
}

pub(crate) fn check_lab_name(name: &str) -> Result<()> {
    let good = !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if good {
        return Ok(());
    }
    Err(Error::NoLab(format!("lab name \"{name}\" must be 1 to 64 letters, digits, '-' or '_'")))
}

pub(crate) fn free_name(wish: &str) -> String {
    let taken = names();
    std::iter::once(wish.to_string())
        .chain((2..).map(|n| format!("{wish}-{n}")))
        .find(|name| !taken.contains(name))
        .unwrap_or_else(|| wish.to_string())
}

//! Generated programs whose packets set up to three LINEARIZABLE objects, behind a store, against
//! a model: packets wait in the switch, and, where the program allows it, in messages too.

mod program;

use anyhow::{Context, Result, bail, ensure};
use dataplane::{Dataplane, Object, Settings};
use packet_test::{Case, Systems, run_case};
use program::Drawn;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fmt;
use std::path::{Path, PathBuf};

/// RedPlane's store behind the switch, and no other system.
const SYSTEMS: Systems = Systems(&[&redplane_tools::RedPlane]);

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Programs.
    pub programs: u64,
    /// Of these, such with groups: their packets wait in the switch only.
    pub grouped: u64,
    /// Packets that came in, in both modes.
    pub packets: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { programs, grouped, packets } = self;
        write!(
            f,
            "{programs} programs ({grouped} with groups), {packets} packets as the model says"
        )
    }
}

/// Draws `count` programs, and runs packets through each.
///
/// # Errors
/// A packet that the model does not have, or lacks; the text has program and case.
pub fn run(seed: u64, count: u64) -> Result<Summary> {
    println!("groups: seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut total = Summary::default();
    let folder = tempfile::tempdir()?;
    for number in 0..count {
        let drawn = Drawn::new(&mut random);
        let (text, case) = (drawn.text(), drawn.case(&mut random));
        let groups = drawn.has_groups();
        let packets = one(folder.path(), &text, &case, groups).with_context(|| {
            format!("seed {seed}, program {number}:\n{text}\n--- its case:\n{case}")
        })?;
        total.programs += 1;
        total.grouped += u64::from(groups);
        total.packets += packets;
    }
    Ok(total)
}

/// Runs the case through one program, in each mode that it has.
fn one(folder: &Path, text: &str, case: &str, groups: bool) -> Result<usize> {
    let case = Case::parse("case.stf", case, SYSTEMS)
        .map_err(|errors| anyhow::anyhow!("the case is malformed: {errors:?}"))?;
    let object = compile(folder, text)?;
    let modes: &[bool] = if groups { &[true] } else { &[true, false] };
    let mut packets = 0;
    for &waits in modes {
        let report =
            run_case(&case, SYSTEMS, || load(&object, waits).map_err(|error| format!("{error:#}")));
        if !report.passed() {
            let failures: String = report.failures.iter().map(|it| format!("{it}\n")).collect();
            bail!("packets wait in the switch: {waits}\n{failures}");
        }
        ensure!(report.matched > 0, "the case checks nothing");
        packets += report.packets;
    }
    Ok(packets)
}

fn compile(folder: &Path, text: &str) -> Result<PathBuf> {
    let (source, object) = (folder.join("groups.p4"), folder.join("groups.o"));
    std::fs::write(&source, text)?;
    let outcome = p4_check::check_file(&source, &p4_syntax::Options::default());
    let program = outcome.program.as_ref().with_context(|| outcome.render(false))?;
    let options = xdp_backend::Options {
        program_name: "groups.p4".to_owned(),
        ..xdp_backend::Options::new(redplane_compiler::ALONE)
    };
    let compiled = xdp_backend::compile(program, &options, &object)?;
    let manifest = compiled.generated.manifest.to_json();
    std::fs::write(manifest::Manifest::path_for(&object), manifest)?;
    Ok(object)
}

/// A fresh copy in the kernel.
fn load(object: &Path, waits: bool) -> Result<Dataplane> {
    let manifest = manifest::Manifest::read(&manifest::Manifest::path_for(object))?;
    let mut opened = Object::open(object, manifest)?;
    opened.set(Settings { test_mode: true, host_traffic: false, virtual_clock: true })?;
    if waits {
        opened.wait_in_switch(1)?;
    }
    Ok(opened.load()?)
}

/// So many users, and keys of each: packets meet.
const FEW: u8 = 3;

/// One of few.
fn few(random: &mut StdRng) -> u8 {
    random.random_range(0..FEW)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program whose last `set` is left out.
    #[test]
    fn half_of_a_group_is_found() {
        if dataplane::check_permitted().is_err() {
            eprintln!("skipped: BPF needs root");
            return;
        }
        let mut random = StdRng::seed_from_u64(1);
        let drawn = std::iter::repeat_with(|| Drawn::new(&mut random))
            .find(Drawn::has_groups)
            .expect("most have groups");
        let (text, case) = (drawn.text(), drawn.case(&mut random));
        let at = text.rfind(".set(").expect("a set");
        let line =
            text[..at].rfind('\n').expect("a line")..at + text[at..].find('\n').expect("one");
        let mut half = text.clone();
        half.replace_range(line, "");

        let folder = tempfile::tempdir().expect("a folder");
        let found =
            one(folder.path(), &half, &case, true).expect_err("half of a group").to_string();
        assert!(found.starts_with("packets wait in the switch: true"), "{found}");
        one(folder.path(), &text, &case, true).expect("the whole");
    }
}

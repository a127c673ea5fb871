//! Compiles programs with the real pipeline and loads them.

use super::compare::{self, Finding, Scenario, Summary, wrong};
use super::sides::Kernel;
use dataplane::{Dataplane, Object, Settings};
use p4_ir::Program;
use std::fmt;
use std::path::Path;
use xdp_backend::{CompileError, Options, Placement};

/// Lines of a verifier's log that are kept.
const LOG_LINES: usize = 300;

/// The placement of storage is drawn too: each is a different program to clang and the verifier. Several programs
/// seldom fit in registers, and to try that first costs a run of clang.
fn placement(seed: u64, programs: u32) -> Placement {
    match (programs, seed % 8) {
        (1, 0) => Placement::Partial(0),
        (1, 1) | (_, 0 | 1) => Placement::Scratch,
        (1, 2) | (_, 2..7) => Placement::AllScratch,
        _ => Placement::Registers,
    }
}

fn internal(error: &dyn fmt::Display) -> Finding {
    Finding::Wrong { kind: "environment", story: error.to_string() }
}

/// Holds the compiled form against the tree. Of a difference the story says whether the lowered form has it too.
pub(super) fn compiled(of: &Scenario<'_>, summary: &mut Summary) -> Result<(), Finding> {
    let folder = tempfile::tempdir().map_err(|error| internal(&error))?;
    let dataplane = load(of.program, placement(of.seed, of.programs), folder.path())?;
    match compare::compare(of, &mut Kernel { dataplane }, summary) {
        Err(Finding::Wrong { kind, story }) => {
            let side = match compare::lowered(of, &mut Summary::default()) {
                Ok(()) => "the lowered form does as the tree: the back end is wrong".to_owned(),
                Err(Finding::Wrong { story, .. }) => {
                    let told: Vec<&str> = story.lines().take(2).collect();
                    format!("the lowered form differs from the tree:\n{}", told.join("\n"))
                }
                Err(Finding::Refused { reason, .. }) => reason,
            };
            wrong(kind, format!("{story}\n{side}"))
        }
        other => other,
    }
}

pub(super) fn load(program: &Program, placement: Placement, folder: &Path) -> Result<Dataplane, Finding> {
    let object = folder.join("generated.o");
    let options = Options { program_name: "generated.p4".into(), placement, ..Options::default() };
    let compiled = match xdp_backend::compile(program, &options, &object) {
        Ok(compiled) => compiled,
        Err(CompileError::Unsupported(errors)) => {
            let reason = errors.first().map_or_else(String::new, |error| error.message.clone());
            if reason.starts_with("internal") {
                return wrong("internal", reason);
            }
            return Err(Finding::Refused { by: "back end", reason, details: String::new() });
        }
        Err(CompileError::Clang(message)) => return wrong("clang", message),
        Err(other) => return Err(internal(&other)),
    };
    let opened = Object::open(&object, compiled.generated.manifest.clone()).and_then(|mut opened| {
        opened.set(Settings { test_mode: true, virtual_clock: true, ..Settings::default() })?;
        Ok(opened)
    });
    match opened.and_then(Object::load) {
        Ok(dataplane) => Ok(dataplane),
        Err(dataplane::Error::Verifier { log, .. }) => {
            let generated = &compiled.generated;
            let report = xdp_backend::explain(&log, &generated.c_source, &generated.line_map);
            let from = log.lines().count().saturating_sub(LOG_LINES);
            let end: Vec<&str> = log.lines().skip(from).collect();
            let details = format!("{report:?}, {:?}\n{}\n{}", compiled.placement, end.join("\n"), generated.c_source);
            Err(Finding::Refused { by: "verifier", reason: report.reason, details })
        }
        Err(error) => wrong("load", error.to_string()),
    }
}

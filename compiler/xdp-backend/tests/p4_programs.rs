//! Every program under `p4/` through front end, C, clang and the verifier, and every `.stf` beside it through the loaded object.
//!
//! `P4_PROGRAM=name` runs one program; `KEEP=folder` keeps the emitted C there.

use dataplane::{Object, Settings};
use packet_test::Case;
use std::path::{Path, PathBuf};
use xdp_backend::{CompileError, Options, Placement};

fn programs(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("p4 folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            programs(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "p4") {
            found.push(path);
        }
    }
}

fn parse(stf: &Path) -> Result<Case, String> {
    let text = std::fs::read_to_string(stf).expect("stf");
    Case::parse(&stf.display().to_string(), &text).map_err(|errors| format!("{errors:?}"))
}

/// Cases name the macros that they need.
fn defines(case: &Case) -> Vec<String> {
    case.setup.defines.iter().map(|(_, define)| define.clone()).collect()
}

/// Compiles with one placement, loads, runs. What went wrong, if anything.
fn run(path: &Path, stf: Option<&Path>, placement: Placement) -> Result<(), String> {
    let case = stf.map(parse).transpose()?;
    let defines = case.as_ref().map(defines).unwrap_or_default();
    let options = p4_syntax::Options { defines, ..Default::default() };
    let outcome = p4_check::check_file(path, &options);
    let program = outcome.program.as_ref().ok_or_else(|| outcome.render(false))?;
    let folder = tempfile::tempdir().expect("folder");
    let object = folder.path().join("program.o");
    let name = path.file_name().expect("name").to_string_lossy().into_owned();
    let options = Options { program_name: name.clone(), placement, ..Default::default() };
    let compiled = xdp_backend::compile(program, &options, &object).map_err(|error| match error {
        CompileError::Unsupported(errors) => errors
            .iter()
            .map(|error| format!("{}: {}\n", program.place(error.location), error.message))
            .collect::<String>(),
        other => other.to_string(),
    })?;
    if let Ok(keep) = std::env::var("KEEP") {
        // Several placements may end up as the same one: the stack decides.
        let name = format!("{name}.{:?}", compiled.placement);
        std::fs::write(format!("{keep}/{name}.c"), &compiled.generated.c_source).expect("write");
        std::fs::copy(&object, format!("{keep}/{name}.o")).expect("copy");
    }
    let generated = compiled.generated;
    let load = || {
        let mut opened = Object::open(&object, generated.manifest.clone()).map_err(|error| error.to_string())?;
        let settings = Settings { test_mode: true, virtual_clock: true, ..Settings::default() };
        opened.set(settings).map_err(|error| error.to_string())?;
        opened.load().map_err(|error| match &error {
            dataplane::Error::Verifier { log, .. } => {
                let report = xdp_backend::explain(log, &generated.c_source, &generated.line_map);
                let place = report.location.map_or("?".into(), |location| program.place(location));
                format!("{place}: {} ({})\n{error}", report.message, report.hint)
            }
            _ => error.to_string(),
        })
    };
    let Some(case) = &case else { return load().map(drop) };
    let report = packet_test::run_case(case, load);
    if report.passed() {
        return Ok(());
    }
    Err(report.failures.iter().map(|failure| format!("{failure}\n")).collect())
}

#[test]
fn programs_pass_the_verifier_and_their_packet_tests() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    programs(&root.join("p4"), &mut found);
    programs(&root.join("systems/redplane/p4"), &mut found);
    found.sort();
    let wanted = std::env::var("P4_PROGRAM").unwrap_or_default();
    let mut failures = Vec::new();
    for path in found.iter().filter(|path| path.to_string_lossy().contains(&wanted)) {
        if path.parent().is_some_and(|parent| parent.ends_with("include")) {
            continue;
        }
        let beside = std::fs::read_dir(path.parent().expect("folder")).expect("folder").flatten();
        let stem = path.file_stem().expect("stem").to_string_lossy().into_owned();
        let in_tests = path.parent().is_some_and(|parent| parent.ends_with("tests"));
        let mut cases: Vec<Option<PathBuf>> = beside
            .map(|entry| entry.path())
            .filter(|case| case.extension().is_some_and(|ending| ending == "stf"))
            .filter(|case| !in_tests || case.file_stem().is_some_and(|name| name.to_string_lossy() == stem))
            .map(Some)
            .collect();
        cases.sort();
        // A case that defines no macros has loaded what the program is without them.
        let plain = |case: &Option<PathBuf>| {
            case.as_deref().is_some_and(|case| parse(case).is_ok_and(|case| defines(&case).is_empty()))
        };
        if !cases.iter().any(plain) {
            cases.push(None);
        }
        for (number, case) in cases.iter().enumerate() {
            let mut placements =
                vec![Placement::Registers, Placement::Partial(0), Placement::Scratch, Placement::AllScratch];
            // The same storage as the one before, and longer: once for each program.
            if number == 0 {
                placements.push(Placement::Forgotten);
            }
            for placement in placements {
                if let Err(reason) = run(path, case.as_deref(), placement) {
                    let case = case.as_deref().unwrap_or(Path::new("(load only)"));
                    failures.push(format!("{} {} {placement:?}:\n{reason}", path.display(), case.display()));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

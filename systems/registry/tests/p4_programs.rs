//! Every program under `p4/` and `systems/*/p4` through front end, C, clang and the verifier, and
//! every `.stf` beside it through the loaded object. Each (program, macros, placement) is compiled
//! once; each case has its own load of that object. Programs are spread over the cores. Needs root.
//!
//! `P4_PROGRAM=name` runs one program; `KEEP=folder` keeps the emitted C there; `ALL=1` tries each
//! case of programs with many in all placements.

use dataplane::{Dataplane, Object, Settings};
use packet_test::Case;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use xdp_backend::{CompileError, Generated, Options, Placement};

/// The first that fits is the program's own, and is tried with all cases; each other one with every
/// third case, if there are more than three.
const PLACEMENTS: [Placement; 4] =
    [Placement::Registers, Placement::Partial(0), Placement::Scratch, Placement::AllScratch];

/// A program with one set of macros.
struct Job {
    program: PathBuf,
    defines: Vec<String>,
    /// None: the program is only loaded.
    cases: Vec<Case>,
    /// Does the first case run with `Forgotten` too? It has the storage of `AllScratch` and takes
    /// longer: once for each program.
    forgotten: bool,
}

impl Job {
    /// The cases to run in a placement, which is the `nth` of the program (from 1).
    fn cases_in(&self, placement: Placement, nth: usize) -> Vec<&Case> {
        if placement == Placement::Forgotten {
            return self.cases.iter().take(1).collect();
        }
        let all = nth == 1 || self.cases.len() <= 3 || std::env::var_os("ALL").is_some();
        let turn = |(number, case)| (all || number % 3 == nth % 3).then_some(case);
        self.cases.iter().enumerate().filter_map(turn).collect()
    }
}

/// A compiled job.
struct Built<'a> {
    program: &'a p4_ir::Program,
    object: PathBuf,
    generated: Generated,
}

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
    Case::parse(&stf.display().to_string(), &text, systems::packet_tests())
        .map_err(|errors| format!("{}:\n{errors:?}", stf.display()))
}

/// The cases of a program: those in its folder, or in `tests/` the one of the same name.
fn cases_of(program: &Path) -> Vec<PathBuf> {
    let folder = program.parent().expect("folder");
    let in_tests = folder.ends_with("tests");
    let mut cases: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("folder")
        .flatten()
        .map(|entry| entry.path())
        .filter(|case| case.extension().is_some_and(|ending| ending == "stf"))
        .filter(|case| !in_tests || case.file_stem() == program.file_stem())
        .collect();
    cases.sort();
    cases
}

/// A program's jobs, by macros. Without macros it is at least loaded.
fn jobs_of(program: &Path, jobs: &mut Vec<Job>, failures: &mut Vec<String>) {
    let mut by_defines: BTreeMap<Vec<String>, Vec<Case>> = BTreeMap::new();
    let mut first = None;
    for stf in cases_of(program) {
        match parse(&stf) {
            Ok(case) => {
                let defines: Vec<String> =
                    case.setup.defines.iter().map(|(_, define)| define.clone()).collect();
                first.get_or_insert_with(|| defines.clone());
                by_defines.entry(defines).or_default().push(case);
            }
            Err(reason) => failures.push(reason),
        }
    }
    by_defines.entry(vec![]).or_default();
    let first = first.unwrap_or_default();
    jobs.extend(by_defines.into_iter().map(|(defines, cases)| {
        let forgotten = defines == first;
        Job { program: program.to_owned(), defines, cases, forgotten }
    }));
}

/// Compiles with one placement; says which one it became, if the stack is too small for it.
fn compile<'a>(
    job: &Job,
    program: &'a p4_ir::Program,
    placement: Placement,
    folder: &Path,
) -> Result<(Placement, Built<'a>), String> {
    let object = folder.join(format!("{placement:?}.o"));
    let name = job.program.file_name().expect("name").to_string_lossy().into_owned();
    let options =
        Options { program_name: name.clone(), placement, ..Options::new(systems::compiler()) };
    let compiled =
        xdp_backend::compile(program, &options, &object).map_err(|error| match error {
            CompileError::Unsupported(errors) => errors
                .iter()
                .map(|error| format!("{}: {}\n", program.place(error.location), error.message))
                .collect::<String>(),
            other => other.to_string(),
        })?;
    if let Ok(keep) = std::env::var("KEEP") {
        let name = [vec![name], job.defines.clone(), vec![format!("{:?}", compiled.placement)]]
            .concat()
            .join(".");
        std::fs::write(format!("{keep}/{name}.c"), &compiled.generated.c_source).expect("write");
        std::fs::copy(&object, format!("{keep}/{name}.o")).expect("copy");
    }
    Ok((compiled.placement, Built { program, object, generated: compiled.generated }))
}

impl Built<'_> {
    /// Can packets of the program wait in the switch (`docs/output-commit.md`)?
    fn may_wait(&self) -> bool {
        self.generated.c_source.contains("#define SP_FLOW_HAS_COMMIT")
    }

    /// Must they?
    fn must_wait(&self) -> bool {
        systems::packet_tests().must_wait(&self.generated.manifest)
    }

    /// A fresh copy in the kernel. `waits`: packets wait in the switch.
    fn load(&self, waits: bool) -> Result<Dataplane, String> {
        let opened = Object::open(&self.object, self.generated.manifest.clone());
        let mut opened = opened.map_err(|error| error.to_string())?;
        let settings = Settings { test_mode: true, virtual_clock: true, ..Settings::default() };
        opened.set(settings).map_err(|error| error.to_string())?;
        if waits {
            opened.wait_in_switch(1).map_err(|error| error.to_string())?;
        }
        opened.load().map_err(|error| match &error {
            dataplane::Error::Verifier { log, .. } => {
                let report =
                    xdp_backend::explain(log, &self.generated.c_source, &self.generated.line_map);
                let place =
                    report.location.map_or("?".into(), |location| self.program.place(location));
                format!("{place}: {} ({})\n{error}", report.message, report.hint)
            }
            _ => error.to_string(),
        })
    }

    /// Runs the cases, or loads only if there are none. What went wrong.
    fn run(&self, cases: &[&Case], waits: bool) -> Vec<String> {
        if cases.is_empty() {
            return self
                .load(waits)
                .err()
                .map(|reason| format!("(load only):\n{reason}"))
                .into_iter()
                .collect();
        }
        let reports = cases
            .iter()
            .map(|case| packet_test::run_case(case, systems::packet_tests(), || self.load(waits)));
        let failed = reports.filter(|report| !report.passed());
        failed
            .map(|report| {
                let lines: String =
                    report.failures.iter().map(|failure| format!("{failure}\n")).collect();
                format!("{}:\n{lines}", report.case)
            })
            .collect()
    }
}

/// Runs a job with each placement. What went wrong.
fn run(job: &Job) -> Vec<String> {
    let what = format!("{} {:?}", job.program.display(), job.defines);
    let options = p4_syntax::Options { defines: job.defines.clone(), ..Default::default() };
    let outcome = p4_check::check_file(&job.program, &options);
    let Some(program) = outcome.program.as_ref() else {
        return vec![format!("{what}:\n{}", outcome.render(false))];
    };
    let folder = tempfile::tempdir().expect("folder");
    let mut failures = vec![];
    let forgotten = job.forgotten.then_some(Placement::Forgotten);
    // A placement that does not fit becomes a later one, and so do all between: the same C, and the
    // same runs.
    let mut became = vec![];
    for placement in PLACEMENTS.into_iter().chain(forgotten) {
        let found = match compile(job, program, placement, folder.path()) {
            Ok((actual, _)) if became.contains(&actual) => continue,
            Ok((actual, built)) => {
                became.push(actual);
                let cases = job.cases_in(placement, became.len());
                let must_wait = built.must_wait();
                let mut failed = built.run(&cases, must_wait);
                // The same packets leave, wherever they wait.
                if became.len() == 1 && built.may_wait() && !must_wait {
                    let waiting = built.run(&cases, true);
                    failed.extend(waiting.iter().map(|reason| format!("(waiting) {reason}")));
                }
                failed
            }
            Err(reason) => vec![reason],
        };
        failures.extend(found.iter().map(|reason| format!("{what} {placement:?} {reason}")));
    }
    failures
}

#[test]
fn programs_pass_the_verifier_and_their_packet_tests() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root.join("systems"))
        .expect("systems")
        .flatten()
        .map(|system| system.path().join("p4"))
        .filter(|folder| folder.is_dir())
        .collect();
    folders.sort();
    assert!(!folders.is_empty(), "no systems/*/p4");
    // The systems' programs first: they take longest, and none should be left for one thread at the
    // end.
    folders.push(root.join("p4"));
    let mut found = Vec::new();
    for folder in folders {
        let mut here = Vec::new();
        programs(&folder, &mut here);
        here.sort();
        found.append(&mut here);
    }
    let wanted = std::env::var("P4_PROGRAM").unwrap_or_default();
    let (mut jobs, mut failures) = (vec![], vec![]);
    let name = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    for path in found.iter().filter(|path| name(path).is_some_and(|it| it.contains(&wanted))) {
        if !path.components().any(|part| part.as_os_str() == "include") {
            jobs_of(path, &mut jobs, &mut failures);
        }
    }
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(failures));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = run(job);
                    failures.lock().expect("no thread panics with it").extend(found);
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no thread panics with it");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

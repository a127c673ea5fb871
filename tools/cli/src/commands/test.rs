//! `stateplane test`: compiles a program and runs STF cases through it in the kernel.

use clap::Parser;
use dataplane::{Dataplane, Object, Settings};
use manifest::Manifest;
use packet_test::{Case, CaseReport};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  stateplane test nat.p4 nat.stf                 compiles nat.p4, runs the case
  stateplane test nat.p4 *.stf                   all cases here; one program a set of macros
  stateplane test --object nat.o nat.stf         a compiled object, with nat.json beside it

Comments of a case set it up: `# define: NAME` a preprocessor macro, `# port:`, `# neighbor:` and
`# route:` a network around it, `# store:` a store for replicated state. With `# takes_over: another
switch` the switch dies. docs/packet-tests.md has the whole format.

Exit codes: 0 all cases passed, 1 a case failed or a file is at fault, 2 wrong usage.";

/// Command line of `stateplane test`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The P4 program (unless --object), then STF files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A compiled object instead of a program; `# define:` lines of the cases are ignored then.
    #[arg(long, value_name = "OBJECT")]
    object: Option<PathBuf>,
    /// Folder to search for `#include` files; can be given several times.
    #[arg(short = 'I', value_name = "DIR")]
    include: Vec<PathBuf>,
    /// Preprocessor macro, beside those of the cases; can be given several times.
    #[arg(short = 'D', value_name = "NAME[=VALUE]")]
    define: Vec<String>,
    /// Packets wait in the switch for the store, as with `commit = "batch"` in switch.toml. The
    /// same ones leave. Where packets set several LINEARIZABLE objects they always do.
    #[arg(long)]
    wait: bool,
    /// Write the results as JSON to standard output.
    #[arg(long)]
    json: bool,
}

/// A folder that goes away.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is in the system's temporary folder: it will go.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `stateplane compile`'s own command line.
#[derive(Parser)]
struct Compile {
    #[command(flatten)]
    args: super::compile::Args,
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    let (program, cases) = match (&args.object, args.files.split_first()) {
        (None, Some((program, cases)))
            if program.extension().is_some_and(|ending| ending == "p4") =>
        {
            (Some(program), cases)
        }
        (Some(_), _)
            if !args
                .files
                .iter()
                .any(|file| file.extension().is_some_and(|ending| ending == "p4")) =>
        {
            (None, &args.files[..])
        }
        _ => {
            eprintln!(
                "stateplane test: give a .p4 program and then .stf files, or --object OBJECT and .stf files"
            );
            return 2;
        }
    };
    if cases.is_empty() {
        eprintln!("stateplane test: no STF file given");
        return 2;
    }
    if let Err(error) = dataplane::check_permitted() {
        eprintln!("stateplane test: {error}");
        return 1;
    }
    let scratch =
        Scratch(std::env::temp_dir().join(format!("stateplane-test-{}", std::process::id())));
    let mut objects = Objects { args: &args, folder: &scratch.0, compiled: BTreeMap::new() };
    let reports: Vec<CaseReport> = cases
        .iter()
        .map(|path| match read_case(path) {
            Ok(case) => match objects.for_case(program, &case) {
                Ok(object) => packet_test::run_case(&case, systems::packet_tests(), || {
                    load(&object, args.wait)
                }),
                Err(reason) => CaseReport::failed(&case.path, 0, reason),
            },
            Err(report) => report,
        })
        .collect();
    show(&reports, args.json)
}

/// The objects that the cases need: one for each distinct set of macros.
struct Objects<'a> {
    args: &'a Args,
    folder: &'a Path,
    /// By macros: the object, or why there is none.
    compiled: BTreeMap<Vec<String>, Result<PathBuf, String>>,
}

impl Objects<'_> {
    fn for_case(&mut self, program: Option<&PathBuf>, case: &Case) -> Result<PathBuf, String> {
        let Some(program) = program else {
            return Ok(self.args.object.clone().unwrap_or_default());
        };
        let mut defines: Vec<String> = vec![];
        for define in case.setup.defines.iter().map(|(_, define)| define).chain(&self.args.define) {
            if !defines.contains(define) {
                defines.push(define.clone());
            }
        }
        if let Some(object) = self.compiled.get(&defines) {
            return object.clone();
        }
        let object = self.folder.join(format!("program-{}.o", self.compiled.len()));
        let made = std::fs::create_dir_all(self.folder)
            .map_err(|error| format!("{}: {error}", self.folder.display()))
            .and_then(|()| compile(program, &self.args.include, &defines, &object));
        self.compiled.insert(defines, made.clone().map(|()| object.clone()));
        made.map(|()| object)
    }
}

/// Compiles as `stateplane compile` does, with its messages on standard error.
fn compile(
    program: &Path,
    include: &[PathBuf],
    defines: &[String],
    object: &Path,
) -> Result<(), String> {
    let mut line: Vec<OsString> = vec!["compile".into(), "-o".into(), object.into()];
    for folder in include {
        line.extend(["-I".into(), folder.into()]);
    }
    for define in defines {
        line.extend(["-D".into(), define.into()]);
    }
    // The object's folder goes away; what helps to report a bug stays.
    let name = program.file_stem().unwrap_or_default().to_string_lossy();
    let log = std::env::temp_dir().join(format!("stateplane-{name}-{}.log", std::process::id()));
    line.extend(["--log".into(), log.into(), "--".into(), program.into()]);
    let compile = Compile::try_parse_from(line).map_err(|error| error.to_string())?;
    match super::compile::run(compile.args) {
        0 => Ok(()),
        _ => {
            let with: Vec<String> =
                defines.iter().map(|define| format!(" with -D {define}")).collect();
            Err(format!(
                "{} does not compile{}: see the messages above",
                program.display(),
                with.concat()
            ))
        }
    }
}

fn read_case(path: &Path) -> Result<Case, CaseReport> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| CaseReport::failed(&shown, 0, error.to_string()))?;
    Case::parse(&shown, &text, systems::packet_tests())
        .map_err(|errors| CaseReport::malformed(&shown, errors))
}

/// A fresh copy of the object in the kernel: cases share no state.
fn load(object: &Path, wait: bool) -> Result<Dataplane, String> {
    let settings = Settings { test_mode: true, host_traffic: false, virtual_clock: true };
    let manifest =
        Manifest::read(&Manifest::path_for(object)).map_err(|error| error.to_string())?;
    let waits = wait || systems::packet_tests().must_wait(&manifest);
    let mut object = Object::open(object, manifest).map_err(|error| error.to_string())?;
    object.set(settings).map_err(|error| error.to_string())?;
    if waits {
        object.wait_in_switch(1).map_err(|error| error.to_string())?;
    }
    object.load().map_err(|error| error.to_string())
}

fn show(reports: &[CaseReport], json: bool) -> u8 {
    let failed = reports.iter().filter(|report| !report.passed()).count();
    if json {
        command_line::say(format_args!("{}\n", command_line::json(&reports)));
        return u8::from(failed > 0);
    }
    for report in reports {
        if report.passed() {
            command_line::say(format_args!(
                "ok      {}  ({} packets in, {} as expected)\n",
                report.case, report.packets, report.matched
            ));
            continue;
        }
        command_line::say(format_args!("FAILED  {}\n", report.case));
        for failure in &report.failures {
            command_line::say(format_args!("{failure}\n"));
        }
    }
    command_line::say(format_args!("{} passed, {failed} failed\n", reports.len() - failed));
    u8::from(failed > 0)
}

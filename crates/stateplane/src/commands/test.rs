//! `stateplane test`: compiles a program and runs STF cases through it in the kernel.

use clap::Parser;
use dataplane::{Object, Settings};
use manifest::Manifest;
use packet_test::{Case, CaseReport, Failure, Runner};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  stateplane test nat.p4 nat.stf                 compiles nat.p4, runs the case
  stateplane test p4/apps/nat/nat.p4 p4/apps/nat/*.stf
  stateplane test --object nat.o nat.stf         an object that is compiled already, with nat.json beside it

Exit codes: 0 all cases passed, 1 a case failed or a file is at fault, 2 wrong usage.";

/// Command line of `stateplane test`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The P4 program (unless --object), then STF files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A compiled object instead of a program.
    #[arg(long, value_name = "OBJECT")]
    object: Option<PathBuf>,
    /// Folder to search for `#include` files; can be given several times.
    #[arg(short = 'I', value_name = "DIR")]
    include: Vec<PathBuf>,
    /// Preprocessor macro; can be given several times.
    #[arg(short = 'D', value_name = "NAME[=VALUE]")]
    define: Vec<String>,
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
        (None, Some((program, cases))) if program.extension().is_some_and(|ending| ending == "p4") => {
            (Some(program), cases)
        }
        (Some(_), _) if !args.files.iter().any(|file| file.extension().is_some_and(|ending| ending == "p4")) => {
            (None, &args.files[..])
        }
        _ => {
            eprintln!("stateplane test: give a .p4 program and then .stf files, or --object OBJECT and .stf files");
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
    let scratch = Scratch(std::env::temp_dir().join(format!("stateplane-test-{}", std::process::id())));
    let object = match (program, &args.object) {
        (Some(program), _) => match compile(&args, program, &scratch.0) {
            Ok(object) => object,
            Err(code) => return code,
        },
        (None, object) => object.clone().unwrap_or_default(),
    };
    let reports: Vec<CaseReport> = cases.iter().map(|case| run_case(&object, case)).collect();
    show(&reports, args.json)
}

/// Compiles as `stateplane compile` does, with its messages; the exit code if that fails.
fn compile(args: &Args, program: &Path, folder: &Path) -> Result<PathBuf, u8> {
    std::fs::create_dir_all(folder).map_err(|error| {
        eprintln!("stateplane test: {}: {error}", folder.display());
        1
    })?;
    let object = folder.join("program.o");
    let mut line: Vec<OsString> = vec!["compile".into(), program.into(), "-o".into(), (&object).into()];
    for folder in &args.include {
        line.extend(["-I".into(), folder.into()]);
    }
    for define in &args.define {
        line.extend(["-D".into(), define.into()]);
    }
    let compile = Compile::try_parse_from(line).map_err(|error| {
        eprintln!("{error}");
        2
    })?;
    match super::compile::run(compile.args) {
        0 => Ok(object),
        code => Err(code),
    }
}

fn run_case(object: &Path, path: &Path) -> CaseReport {
    let shown = path.display().to_string();
    let failed = |failures| CaseReport { case: shown.clone(), packets: 0, matched: 0, failures };
    let failure = |line, reason| Failure { file: shown.clone(), line, reason, diff: None };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return failed(vec![failure(0, error.to_string())]),
    };
    let case = match Case::parse(&shown, &text) {
        Ok(case) => case,
        Err(errors) => {
            let wrong = |error: packet_test::StfError| {
                failure(error.line, format!("column {}: {}", error.column, error.reason))
            };
            return failed(errors.into_iter().map(wrong).collect());
        }
    };
    let settings = Settings { test_mode: true, host_traffic: false, virtual_clock: true };
    let loaded = Manifest::read(&Manifest::path_for(object)).map_err(|error| error.to_string()).and_then(|manifest| {
        let mut object = Object::open(object, manifest).map_err(|error| error.to_string())?;
        object.set(settings).map_err(|error| error.to_string())?;
        object.load().map_err(|error| error.to_string())
    });
    match loaded {
        Ok(dataplane) => Runner::new(&dataplane, &case).run(),
        Err(error) => failed(vec![failure(0, error)]),
    }
}

fn show(reports: &[CaseReport], json: bool) -> u8 {
    let failed = reports.iter().filter(|report| !report.passed()).count();
    if json {
        println!("{}", super::table::json(&reports));
        return u8::from(failed > 0);
    }
    for report in reports {
        if report.passed() {
            println!("ok      {}  ({} packets in, {} as expected)", report.case, report.packets, report.matched);
            continue;
        }
        println!("FAILED  {}", report.case);
        for failure in &report.failures {
            println!("{failure}");
        }
    }
    println!("{} passed, {failed} failed", reports.len() - failed);
    u8::from(failed > 0)
}

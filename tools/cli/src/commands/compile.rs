//! `stateplane compile`

use super::messages::{Report, backend_options};
use command_line::outln;
use manifest::Manifest;
use p4_ir::Program;
use p4_syntax::Options as PreprocessOptions;
use serde_json::json;
use std::path::{Path, PathBuf};
use xdp_backend::{BackendError, CompileError, Compiled};

const EXAMPLES: &str = "\
Examples:
  stateplane compile nat.p4 -o nat.o         writes nat.o and nat.json, and tries them here
  stateplane compile nat.p4 --emit-c -       shows the C
  stateplane compile -D NAT_LOCAL nat.p4 -o nat-local.o --no-verify
  stateplane compile nat.p4 -o nat.o --json  the messages for programs

Exit codes: 0 compiled, 1 the program is at fault, 2 wrong usage.";

/// Command line of `stateplane compile`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// P4-16 program.
    #[arg(value_name = "PROGRAM")]
    program: PathBuf,
    /// Object to write; the manifest goes beside it with the ending .json. Default: the program's
    /// name with .o, in this folder.
    #[arg(short, long, value_name = "OBJECT")]
    output: Option<PathBuf>,
    /// Write the emitted C to a file. `-`: to standard output; then no object is made unless -o is
    /// given.
    #[arg(long, value_name = "FILE")]
    emit_c: Option<PathBuf>,
    /// Folder to search for `#include` files; can be given several times.
    #[arg(short = 'I', value_name = "DIR")]
    include: Vec<PathBuf>,
    /// Preprocessor macro; can be given several times.
    #[arg(short = 'D', value_name = "NAME[=VALUE]")]
    define: Vec<String>,
    /// Do not try the object on this kernel's verifier.
    #[arg(long)]
    no_verify: bool,
    /// File for the output of clang or the kernel's verifier, if one of them refuses the program.
    /// Default: beside the object, with the ending .log.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write the messages as JSON to standard output, in the form of `stateplane check --json`.
    #[arg(long)]
    json: bool,
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    let mut report = Report::new(args.json);
    let code = compile(&args, &mut report);
    if args.json && code != 2 {
        let program = args.program.to_string_lossy();
        let value =
            json!({ "program": program, "ok": code == 0, "diagnostics": report.diagnostics });
        outln!("{value:#}");
    }
    code
}

fn compile(args: &Args, report: &mut Report) -> u8 {
    let to_stdout = args.emit_c.as_deref() == Some(Path::new("-"));
    if to_stdout && args.json {
        eprintln!(
            "stateplane compile: --json and --emit-c - both write to standard output: name a file for the C"
        );
        return 2;
    }
    let options = PreprocessOptions {
        include_dirs: args.include.clone(),
        defines: args.define.clone(),
        ..Default::default()
    };
    let outcome = p4_check::check_file(&args.program, &options);
    report.front_end(&outcome);
    let Some(program) = outcome.program else { return 1 };
    let options = backend_options(&args.program);
    if to_stdout && args.output.is_none() {
        return match xdp_backend::generate(&program, &options) {
            Ok(generated) => {
                command_line::say(format_args!("{}", generated.c_source));
                0
            }
            Err(errors) => report.unsupported(&program, &errors),
        };
    }
    let object = args.output.clone().unwrap_or_else(|| {
        PathBuf::from(args.program.file_stem().unwrap_or_default()).with_extension("o")
    });
    if let Some(reason) = overwrites(args, &object) {
        eprintln!("stateplane compile: {reason}");
        return 2;
    }
    let mut failure = None;
    let permitted = dataplane::check_permitted().is_ok();
    // Loads the object once, so that a refusal is found now and is told with its P4 line.
    let mut try_on_kernel = |compiled: &Compiled| {
        if args.no_verify || !permitted {
            return None;
        }
        let manifest = compiled.generated.manifest.clone();
        match dataplane::Object::open(&object, manifest).and_then(dataplane::Object::load) {
            Ok(_) => None,
            Err(dataplane::Error::Verifier { log, .. }) => Some(log),
            Err(error) => {
                failure = Some(error.to_string());
                None
            }
        }
    };
    let compiled =
        match xdp_backend::compile_for_kernel(&program, &options, &object, &mut try_on_kernel) {
            Ok(compiled) => compiled,
            Err(CompileError::Unsupported(errors)) => return report.unsupported(&program, &errors),
            Err(CompileError::Clang { error, log }) => {
                return refused(args, &program, &object, *error, &log, report);
            }
            Err(CompileError::Kernel { error, log, compiled, .. }) => {
                if let Err(error) = write_beside(args, &object, &compiled) {
                    return report.failure(&error);
                }
                return refused(args, &program, &object, *error, &log, report);
            }
            Err(error) => return report.failure(&error.to_string()),
        };
    if let Err(error) = write_beside(args, &object, &compiled) {
        return report.failure(&error);
    }
    if !args.no_verify && !permitted {
        eprintln!(
            "note: the kernel's verifier was not tried: it needs root (--no-verify leaves it out)"
        );
    }
    failure.map_or(0, |error| report.failure(&error))
}

/// Would one of the files that are written replace the program, or another of them?
fn overwrites(args: &Args, object: &Path) -> Option<String> {
    // Links and `..` do not hide that two names mean one file; what does not exist yet has only its
    // name.
    let identity = |path: &Path| {
        std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_default()
    };
    let manifest = Manifest::path_for(object);
    let mut seen = vec![("the program", args.program.as_path())];
    let emit_c = args
        .emit_c
        .as_deref()
        .filter(|path| *path != Path::new("-"))
        .map(|path| ("the emitted C", path));
    let log = args.log.as_deref().map(|path| ("the log", path));
    let always = [("the object", object), ("the manifest", &manifest)];
    for (what, path) in always.into_iter().chain(emit_c).chain(log) {
        if let Some((other, _)) = seen.iter().find(|(_, other)| identity(other) == identity(path)) {
            return Some(format!(
                "{what} would overwrite {other} {}: name another file",
                path.display()
            ));
        }
        seen.push((what, path));
    }
    None
}

/// Manifest and C.
fn write_beside(args: &Args, object: &Path, compiled: &Compiled) -> Result<(), String> {
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
    };
    write(&Manifest::path_for(object), &compiled.generated.manifest.to_json())?;
    match args.emit_c.as_deref() {
        Some(path) if path == Path::new("-") => {
            command_line::say(format_args!("{}", compiled.generated.c_source))
        }
        Some(path) => {
            write(path, &compiled.generated.c_source)?;
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            xdp_backend::write_headers(folder, systems::compiler())
                .map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        None => {}
    }
    Ok(())
}

/// What clang or the kernel refused: in our words here, in theirs in a file.
fn refused(
    args: &Args,
    program: &Program,
    object: &Path,
    mut error: BackendError,
    log: &str,
    report: &mut Report,
) -> u8 {
    let path = args.log.clone().unwrap_or_else(|| object.with_extension("log"));
    let kept = match std::fs::write(&path, log) {
        Ok(()) => format!("the tool's output is in {}", path.display()),
        Err(reason) => {
            format!("the tool's output cannot be written to {}: {reason}", path.display())
        }
    };
    error.help = Some(error.help.map_or_else(|| kept.clone(), |help| format!("{help}; {kept}")));
    report.unsupported(program, &[error])
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn messages_of_the_back_end_as_json() {
        let folder = std::env::temp_dir().join(format!("stateplane-json-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("folder");
        let path = folder.join("x.p4");
        std::fs::write(
            &path,
            include_str!("../../../../p4/tests/link_monitor.p4")
                .replace("(MAX_PORTS) byte_cnt_reg", "(4000000000) byte_cnt_reg"),
        )
        .expect("write");
        let args = Line::parse_from([
            "compile",
            &path.display().to_string(),
            "-o",
            &folder.join("x.o").display().to_string(),
        ])
        .args;
        let mut report = Report::new(true);
        assert_eq!(compile(&args, &mut report), 1);
        let [error] = &report.diagnostics[..] else { panic!("{:?}", report.diagnostics) };
        assert!(
            error["message"].as_str().is_some_and(|text| text.contains("4000000000 elements")),
            "{error}"
        );
        assert_eq!(
            (&error["severity"], &error["location"]["file"]),
            (&json!("error"), &json!(path))
        );
        assert!(
            error["location"]["line"].as_u64().is_some_and(|line| line > 1)
                && error["notes"][0]["message"].is_string()
        );
        std::fs::remove_dir_all(&folder).expect("remove");
    }

    #[test]
    fn the_verifiers_words_are_in_a_file_that_the_error_names() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("x.p4");
        std::fs::write(&path, include_str!("../../../../p4/tests/loops.p4")).expect("write");
        let outcome = p4_check::check_file(&path, &PreprocessOptions::default());
        let program =
            outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
        let args = Line::parse_from(["compile".to_string(), path.display().to_string()]).args;
        let (log, object) =
            ("BPF program is too large. Processed 1000001 insn\n", folder.path().join("x.o"));
        let found = xdp_backend::explain(log, "", &xdp_backend::LineMap::default());
        let mut report = Report::new(true);
        assert_eq!(refused(&args, program, &object, found.error(program), log, &mut report), 1);
        let kept = folder.path().join("x.log");
        assert_eq!(std::fs::read_to_string(&kept).expect("log"), log);
        let [error] = &report.diagnostics[..] else { panic!("{:?}", report.diagnostics) };
        let message = error["message"].as_str().expect("message");
        assert!(
            message.contains("1,000,000 instructions") && !message.contains("1000001"),
            "{message}"
        );
        assert!(error["location"]["line"].as_u64().is_some_and(|line| line > 1), "{error}");
        let help = error["notes"][0]["message"].as_str().expect("help");
        assert!(help.contains(&kept.display().to_string()), "{help}");
    }

    #[test]
    fn no_file_is_overwritten_by_another() {
        let folder =
            std::env::temp_dir().join(format!("stateplane-overwrites-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("folder");
        let program = folder.join("x.p4");
        std::fs::write(&program, "not P4").expect("write");
        for (line, expected) in [
            (vec!["-o", "x.o"], None),
            (vec!["-o", "x.o", "--emit-c", "x.c"], None),
            (vec!["-o", "x.p4"], Some("object would overwrite the program")),
            (vec!["-o", "../HERE/x.p4"], Some("object would overwrite the program")),
            (vec!["-o", "x.json"], Some("manifest would overwrite the object")),
            (vec!["-o", "x.o", "--emit-c", "x.p4"], Some("C would overwrite the program")),
            (vec!["-o", "x.o", "--emit-c", "x.o"], Some("C would overwrite the object")),
            (vec!["-o", "x.o", "--emit-c", "x.json"], Some("C would overwrite the manifest")),
            (vec!["-o", "x.o", "--log", "x.o"], Some("log would overwrite the object")),
        ] {
            let here = folder.file_name().expect("name").to_string_lossy();
            let words = line.iter().map(|word| match word.starts_with('-') {
                true => word.to_string(),
                false => format!("{}/{}", folder.display(), word.replace("HERE", &here)),
            });
            let start = ["compile".to_string(), program.display().to_string()];
            let args = Line::parse_from(start.into_iter().chain(words)).args;
            let found = overwrites(&args, args.output.as_deref().expect("-o"));
            match expected {
                Some(part) => assert!(
                    found.as_deref().is_some_and(|text| text.contains(part)),
                    "{line:?}: {found:?}"
                ),
                None => assert_eq!(found, None, "{line:?}"),
            }
        }
        std::fs::remove_dir_all(&folder).expect("remove");
    }
}

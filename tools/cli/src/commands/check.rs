//! `stateplane check`

use super::merges::{self, Tried};
use super::messages::{Report, backend_options};
use command_line::Sizes;
use p4_interpreter::laws;
use p4_ir::Program;
use p4_syntax::Options;
use serde_json::json;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  stateplane check nat.p4                    errors and warnings, or `nat.p4: ok (...)`, and
                                             what shared variables take
  stateplane check -I include -D SIZE=64 nat.p4 firewall.p4
  stateplane check --json nat.p4             the same for programs
  stateplane check --emit-ir nat.p4          the typed IR of the program
  stateplane check --seed 7 sketch.p4        the merges that it names are tried with other values

A program that passes is valid P4, and the XDP target supports all of it. Only `stateplane compile`
shows the errors of clang (too much on the stack) and of the kernel's verifier.

Exit codes: 0 all programs are good, 1 a program is at fault, 2 wrong usage.";

/// Command line of `stateplane check`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// P4-16 programs.
    #[arg(required = true, value_name = "PROGRAM")]
    programs: Vec<PathBuf>,
    /// Folder to search for `#include` files; can be given several times.
    #[arg(short = 'I', value_name = "DIR")]
    include: Vec<PathBuf>,
    /// Preprocessor macro; can be given several times.
    #[arg(short = 'D', value_name = "NAME[=VALUE]")]
    define: Vec<String>,
    /// Write the messages as JSON to standard output.
    #[arg(long)]
    json: bool,
    /// Write the typed IR of valid programs to standard output.
    #[arg(long, conflicts_with = "json")]
    emit_ir: bool,
    /// Where the random values begin with which merges of programs (`@merge`) are tried.
    #[arg(long, value_name = "N", default_value_t = laws::SEED)]
    seed: u64,
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    let mut code = 0;
    let mut results = Vec::new();
    for path in &args.programs {
        let mut report = Report::new(args.json);
        let Checked { good, merges, sizes } = check(path, &args, &mut report);
        if !good {
            code = 1;
        }
        if args.json {
            let mut result = json!({
                "program": path.to_string_lossy(),
                "ok": good,
                "diagnostics": report.diagnostics,
            });
            if !merges.is_empty() {
                result["merges"] = merges.iter().map(|it| it.json(args.seed)).collect();
            }
            for Sizes { field: (name, value), .. } in sizes {
                result[name] = value;
            }
            results.push(result);
        }
    }
    if args.json {
        command_line::say(format_args!("{:#}\n", serde_json::Value::from(results)));
    }
    code
}

/// What was found out about a program.
#[derive(Default)]
struct Checked {
    good: bool,
    merges: Vec<Tried>,
    sizes: Vec<Sizes>,
}

/// Is the program good? What `stateplane compile` would refuse for what is written in it is told
/// here, too: the C is made, and thrown away.
fn check(path: &Path, args: &Args, report: &mut Report) -> Checked {
    let options = Options {
        include_dirs: args.include.clone(),
        defines: args.define.clone(),
        ..Options::default()
    };
    let outcome = p4_check::check_file(path, &options);
    report.front_end(&outcome);
    let Some(program) = outcome.program else { return Checked::default() };
    if args.emit_ir {
        command_line::say(format_args!("{program}"));
    }
    let generated = match xdp_backend::generate(&program, &backend_options(path)) {
        Ok(generated) => generated,
        Err(errors) => {
            report.unsupported(&program, &errors);
            return Checked::default();
        }
    };
    let kept = &generated.kept_laws;
    let merges = merges::tried(&program, kept, args.seed);
    if let Some(error) = merges.iter().find_map(|it| it.unlike(kept, args.seed)) {
        report.unsupported(&program, &[error]);
        return Checked { merges, ..Checked::default() };
    }
    // (The manifest is this version's own.)
    let mut sizes = Sizes::of_all(systems::command_line(), &generated.manifest).unwrap_or_default();
    if !args.emit_ir && !args.json {
        show(path, &program);
        let tell = |it: &Tried| command_line::say(format_args!("  {}\n", it.text(args.seed)));
        merges.iter().for_each(tell);
        sizes.drain(..).for_each(Sizes::print);
    }
    Checked { good: true, merges, sizes }
}

fn show(path: &Path, program: &Program) {
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    command_line::say(format_args!(
        "{}: ok ({}, {}, {}, {})\n",
        path.display(),
        count(program.parser.states.len(), "parser state"),
        count(program.tables.len(), "table"),
        count(program.actions.len(), "action"),
        count(program.externs.len(), "extern"),
    ));
}

//! `stateplane check`

use std::path::{Path, PathBuf};

use p4_check::Outcome;
use p4_syntax::Options;
use serde_json::json;
use std::io::IsTerminal;

const EXAMPLES: &str = "\
Examples:
  stateplane check nat.p4                    errors and warnings, or `nat.p4: ok (...)`
  stateplane check -I include -D SIZE=64 nat.p4 firewall.p4
  stateplane check --json nat.p4             the same for programs
  stateplane check --emit-ir nat.p4          what the program means: the typed IR

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
    /// Write the typed IR of good programs to standard output.
    #[arg(long, conflicts_with = "json")]
    emit_ir: bool,
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    let options = Options { include_dirs: args.include.clone(), defines: args.define.clone(), ..Options::default() };
    let mut code = 0;
    let mut results = Vec::new();
    for path in &args.programs {
        let outcome = p4_check::check_file(path, &options);
        if outcome.has_errors() {
            code = 1;
        }
        if args.json {
            results.push(json!({
                "program": path.to_string_lossy(),
                "ok": !outcome.has_errors(),
                "diagnostics": p4_syntax::all_to_json(&outcome.diagnostics, &outcome.source_map),
            }));
        } else {
            show(path, &outcome, args.emit_ir);
        }
    }
    if args.json {
        super::say(format_args!("{:#}\n", serde_json::Value::from(results)));
    }
    code
}

fn show(path: &Path, outcome: &Outcome, emit_ir: bool) {
    eprint!("{}", outcome.render(std::io::stderr().is_terminal()));
    let Some(program) = &outcome.program else { return };
    if emit_ir {
        super::say(format_args!("{program}"));
        return;
    }
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    super::say(format_args!(
        "{}: ok ({}, {}, {}, {})\n",
        path.display(),
        count(program.parser.states.len(), "parser state"),
        count(program.tables.len(), "table"),
        count(program.actions.len(), "action"),
        count(program.externs.len(), "extern"),
    ));
}

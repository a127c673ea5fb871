//! What `check` and `compile` say of a program, in the same words: errors and warnings of the
//! language, and what the target cannot do.

use p4_ir::{Location, Program};
use p4_syntax::SourceSpan;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::Path;
use xdp_backend::{BackendError, Options};

/// How a program is compiled, and so how it is checked.
pub fn backend_options(program: &Path) -> Options {
    let name =
        program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Options { program_name: name, ..Options::new(systems::compiler()) }
}

/// Where messages go: to standard error as they come, or into one JSON document at the end.
pub struct Report {
    json: bool,
    /// What there is to say, as JSON, if it is said so.
    pub diagnostics: Vec<Value>,
}

impl Report {
    pub fn new(json: bool) -> Report {
        Report { json, diagnostics: Vec::new() }
    }

    /// Errors and warnings of the language.
    pub fn front_end(&mut self, outcome: &p4_check::Outcome) {
        if !self.json {
            eprint!("{}", outcome.render(std::io::stderr().is_terminal()));
        } else if let Value::Array(list) =
            p4_syntax::all_to_json(&outcome.diagnostics, &outcome.source_map)
        {
            self.diagnostics.extend(list);
        }
    }

    /// What the target cannot do; the exit code.
    pub fn unsupported(&mut self, program: &Program, errors: &[BackendError]) -> u8 {
        for error in errors {
            let note = error.note.as_ref().map(|(location, note)| (*location, note.as_str()));
            self.show_beside(program, error.location, &error.message, error.help.as_deref(), note);
        }
        1
    }

    /// What no line of the program is to blame for; the exit code.
    pub fn failure(&mut self, message: &str) -> u8 {
        match self.json {
            true => self.diagnostics.push(diagnostic(None, message, None, None)),
            false => eprintln!("error: {message}"),
        }
        1
    }

    /// One message with its source line and a caret, and another place that matters.
    fn show_beside(
        &mut self,
        program: &Program,
        location: Location,
        message: &str,
        help: Option<&str>,
        note: Option<(Location, &str)>,
    ) {
        let place = (location.line > 0).then(|| source_span(program, location));
        let note = note.map(|(location, message)| (source_span(program, location), message));
        let note = note.as_ref().map(|(place, message)| (place, *message));
        match self.json {
            true => self.diagnostics.push(diagnostic(place.as_ref(), message, help, note)),
            false => {
                let color = std::io::stderr().is_terminal();
                eprint!("{}", p4_syntax::render_error(place.as_ref(), message, help, note, color));
            }
        }
    }
}

/// An error of the back end, in the form of the front end's (`stateplane check --json`).
fn diagnostic(
    place: Option<&SourceSpan>,
    message: &str,
    help: Option<&str>,
    note: Option<(&SourceSpan, &str)>,
) -> Value {
    let location = |place: &SourceSpan| {
        json!({
            "file": &*place.file_name, "line": place.line, "column": place.column,
            "end_line": place.end_line, "end_column": place.end_column,
        })
    };
    let notes = note.map(|(place, note)| json!({ "message": note, "location": location(place) }));
    let helps = help.map(|help| json!({ "message": help, "location": null }));
    let notes: Vec<Value> = notes.into_iter().chain(helps).collect();
    let location = place.map(location);
    json!({ "severity": "error", "message": message, "label": null, "location": location, "notes": notes })
}

fn source_span(program: &Program, location: Location) -> SourceSpan {
    let file = program.files.get(location.file as usize).map_or("?", String::as_str);
    let text = std::fs::read_to_string(file).unwrap_or_default();
    SourceSpan {
        file_name: file.into(),
        builtin: false,
        line: location.line,
        column: location.column,
        end_line: location.line,
        end_column: location.column + 1,
        line_text: text.lines().nth(location.line as usize - 1).unwrap_or_default().to_string(),
    }
}

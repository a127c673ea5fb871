//! P4-16 text to syntax tree: preprocessing, tokens, grammar, and the form of every message about a
//! program.
//!
//! This crate knows the language's grammar (P4-16 1.2.5) and nothing of its meaning: names are not
//! resolved and types not checked here, see `p4-check`.
//!
//! ```
//! let (program, sources) =
//!     p4_syntax::parse_source("a.p4", "const bit<8> x = 5;", &Default::default()).unwrap();
//! assert_eq!(program.declarations.len(), 1);
//! assert_eq!(sources.resolve(program.declarations[0].span()).line, 1);
//! ```

mod align;
pub mod ast;
pub mod builtin;
pub mod diagnostic;
pub mod lexer;
pub mod parser;
mod preprocess;
pub mod source;
pub mod span;

use std::fs;
use std::path::Path;

pub use ast::Program;
pub use builtin::include_that_declares;
pub use diagnostic::{Diagnostic, Note, Severity, all_to_json, render_all, render_error};
pub use preprocess::{MAX_TEXT, Options};
pub use source::{SourceMap, SourceSpan};
pub use span::Span;

use preprocess::Input;

/// A program that parses, or why it does not; the map resolves spans in either case.
pub type ParseResult = Result<(Program, SourceMap), (Vec<Diagnostic>, SourceMap)>;

/// Reads, preprocesses and parses a file.
///
/// # Errors
/// All syntax errors of the file (or all of the preprocessor's, if there are any), with the
/// warnings, in the order of the text. Warnings of a program that parses are in
/// [`Program::warnings`].
pub fn parse_file(path: &Path, options: &Options) -> ParseResult {
    match read_text(path) {
        Ok(text) => parse_input(&Input::File(path), &text, options),
        Err(message) => {
            Err((vec![Diagnostic::global(message)], SourceMap::plain(&path.to_string_lossy(), "")))
        }
    }
}

/// Preprocesses and parses a text; `name` stands for the file's name in messages.
///
/// # Errors
/// As [`parse_file`].
pub fn parse_source(name: &str, text: &str, options: &Options) -> ParseResult {
    parse_input(&Input::Text(name), text, options)
}

fn start_of(diagnostic: &Diagnostic) -> Option<u32> {
    diagnostic.span.map(|s| s.start)
}

fn read_text(path: &Path) -> Result<String, String> {
    let cannot = |e: &dyn std::fmt::Display| format!("cannot read {}: {e}", path.display());
    let meta = fs::metadata(path).map_err(|e| cannot(&e))?;
    if !meta.is_file() {
        return Err(cannot(&"not a regular file"));
    }
    if meta.len() > MAX_TEXT as u64 {
        return Err(cannot(&format!("longer than {} MiB", MAX_TEXT >> 20)));
    }
    let bytes = fs::read(path).map_err(|e| cannot(&e))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn parse_input(input: &Input, text: &str, options: &Options) -> ParseResult {
    if text.len() > MAX_TEXT {
        let d = Diagnostic::global(format!("the program is longer than {} MiB", MAX_TEXT >> 20));
        return Err((vec![d], SourceMap::default()));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (sources, mut diagnostics) = preprocess::preprocess(input, text, options)?;
    let (tokens, lexical) = lexer::lex(sources.text());
    let (mut program, syntactic) = parser::parse(sources.text(), tokens);
    // The lexer's errors are comments and strings without an end, which swallow what follows.
    let swallowed =
        lexical.iter().filter(|d| d.is_error()).filter_map(|d| d.span).map(|s| s.start).min();
    diagnostics.extend(lexical);
    let follows_from_it =
        |d: &Diagnostic| d.is_error() && start_of(d) >= swallowed && swallowed.is_some();
    diagnostics.extend(syntactic.into_iter().filter(|d| !follows_from_it(d)));
    // In the order of the text; messages without a place go last.
    diagnostics.sort_by_key(|d| start_of(d).unwrap_or(u32::MAX));
    diagnostics.dedup_by(|b, a| {
        a.is_error() && b.is_error() && a.span.is_some() && start_of(a) == start_of(b)
    });
    if diagnostics.iter().any(Diagnostic::is_error) {
        return Err((diagnostics, sources));
    }
    program.warnings = diagnostics;
    Ok((program, sources))
}

//! Checks P4-16 programs and elaborates them into the typed IR.
//!
//! Two steps: the checker ([`context`] and what is beside it) resolves names, infers and checks
//! types, folds constants and makes the [`hir`]; `lower` starts at `V1Switch(...) main`,
//! instantiates, inlines and makes the IR. All errors of the first step are reported together; the
//! second runs on programs without errors.
//!
//! It must not know: files and tokens (p4-syntax), C or BPF (back ends).

#![forbid(unsafe_code)]

mod call;
mod consts;
mod context;
mod decl;
mod expr;
#[allow(missing_docs)]
pub mod hir;
mod infer;
mod literal;
mod lower;
mod lower_args;
mod lower_call;
mod lower_expr;
mod lower_instance;
pub mod lower_merge;
mod lower_parser;
mod lower_program;
mod lower_stmt;
mod lower_table;
mod lower_types;
pub mod mutations;
#[allow(missing_docs)]
pub mod names;
mod states;
mod stmt;
mod table;
#[allow(missing_docs)]
pub mod ty;
mod types;
#[allow(missing_docs)]
pub mod walk;

use std::path::Path;

use p4_syntax::{Diagnostic, Options, ParseResult, SourceMap};

/// What checking a program gives.
#[derive(Debug)]
pub struct Outcome {
    /// The elaborated program; None if there is an error.
    pub program: Option<p4_ir::Program>,
    /// What it was elaborated from, names resolved and types known, for whoever runs the program as
    /// it is written.
    pub checked: Option<hir::Hir>,
    /// All errors and warnings, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// Resolves the places of the diagnostics.
    pub source_map: SourceMap,
}

impl Outcome {
    /// Whether the program was refused.
    pub fn has_errors(&self) -> bool {
        self.program.is_none()
    }

    /// All messages as a person reads them.
    pub fn render(&self, color: bool) -> String {
        p4_syntax::render_all(&self.diagnostics, &self.source_map, color)
    }
}

/// Reads, preprocesses, parses, checks and elaborates the program in a file.
pub fn check_file(path: &Path, options: &Options) -> Outcome {
    finish(p4_syntax::parse_file(path, options))
}

/// The same for a text; `name` stands for the file in messages.
pub fn check_source(name: &str, text: &str, options: &Options) -> Outcome {
    finish(p4_syntax::parse_source(name, text, options))
}

/// The same for text that needs no preprocessor: no `#include`, no macros. For tests that check
/// thousands of texts.
pub fn check_preprocessed(name: &str, text: &str) -> Outcome {
    let sources = SourceMap::plain(name, text);
    let (tokens, mut diagnostics) = p4_syntax::lexer::lex(sources.text());
    let (mut program, more) = p4_syntax::parser::parse(sources.text(), tokens);
    diagnostics.extend(more);
    if diagnostics.iter().any(Diagnostic::is_error) {
        return finish(Err((diagnostics, sources)));
    }
    program.warnings = diagnostics;
    finish(Ok((program, sources)))
}

fn finish(parsed: ParseResult) -> Outcome {
    let (ast, source_map) = match parsed {
        Ok(p) => p,
        Err((diagnostics, source_map)) => {
            return Outcome { program: None, checked: None, diagnostics, source_map };
        }
    };
    let mut checker = context::Checker::new(&ast);
    checker.check_program(&ast);
    let failed = checker.has_errors();
    let mut diagnostics = ast.warnings.clone();
    diagnostics.append(&mut checker.diagnostics);
    let mut program = None;
    if !failed {
        let (made, mut more) = lower::Lowerer::new(&checker.hir, &source_map).program();
        program = made;
        diagnostics.append(&mut more);
    }
    diagnostics.sort_by_key(|d| d.span.map(|s| s.start));
    let checked = program.is_some().then_some(checker.hir);
    Outcome { program, checked, diagnostics, source_map }
}

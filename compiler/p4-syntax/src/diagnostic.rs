//! Messages about a program: what they hold and how they look.
//!
//! ```text
//! nat.p4:12:9: error: expected `;`, found `}`
//!    12 |     x = y }
//!       |           ^ the assignment ends here
//!       = help: ...
//! ```

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::source::{SourceMap, SourceSpan};
use crate::span::Span;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The program means something, but perhaps not what was meant.
    Warning,
    /// The program is refused.
    Error,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    fn color(self) -> &'static str {
        match self {
            Self::Warning => "\x1b[1;35m",
            Self::Error => "\x1b[1;31m",
        }
    }
}

/// More about a [`Diagnostic`]: another place that matters, or advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The place, shown with its line; `None` for advice.
    pub span: Option<Span>,
    /// What to know.
    pub message: String,
}

/// One message about a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Where; `None` if it concerns no place in a file (a file that cannot be read).
    pub span: Option<Span>,
    /// What is wrong, in one line.
    pub message: String,
    /// A few words beside the caret.
    pub label: Option<String>,
    /// More places, and advice.
    pub notes: Vec<Note>,
}

impl Diagnostic {
    /// An error at `span`.
    pub fn error(span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            span: Some(span),
            message: message.into(),
            label: None,
            notes: Vec::new(),
        }
    }

    /// A warning at `span`.
    pub fn warning(span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(span, message) }
    }

    /// An error that has no place in a file.
    pub fn global(message: impl Into<String>) -> Self {
        Self { span: None, ..Self::error(Span::default(), message) }
    }

    /// Adds the words beside the caret.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Adds another place that matters.
    #[must_use]
    pub fn note_at(mut self, span: Span, message: impl Into<String>) -> Self {
        self.notes.push(Note { span: Some(span), message: message.into() });
        self
    }

    /// Adds advice.
    #[must_use]
    pub fn help(mut self, message: impl Into<String>) -> Self {
        self.notes.push(Note { span: None, message: message.into() });
        self
    }

    /// Whether it makes the program refused.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The message for a person, with source excerpts; ends with a newline. `color`: with terminal
    /// escapes.
    pub fn render(&self, sources: &SourceMap, color: bool) -> String {
        let mut out = String::new();
        let place = self.span.map(|s| sources.resolve(s));
        let style = if color { Style::COLOR } else { Style::PLAIN };
        let sev_color = if color { self.severity.color() } else { "" };
        header(&mut out, place.as_ref(), self.severity.as_str(), sev_color, &self.message, style);
        if let Some(place) = &place {
            excerpt(&mut out, place, sev_color, self.label.as_deref(), style);
        }
        for note in &self.notes {
            match note.span.map(|s| sources.resolve(s)) {
                Some(at) => {
                    header(&mut out, Some(&at), "note", style.note, &note.message, style);
                    excerpt(&mut out, &at, style.note, None, style);
                }
                None => {
                    let _ = writeln!(
                        out,
                        "      {}={} help: {}",
                        style.dim,
                        style.reset,
                        clean(&note.message)
                    );
                }
            }
        }
        out
    }

    /// The message for a program. Lines and columns count from 1; columns count characters.
    pub fn to_json(&self, sources: &SourceMap) -> Value {
        let place = |span: Option<Span>| match span.map(|s| sources.resolve(s)) {
            Some(p) => json!({
                "file": &*p.file_name, "line": p.line, "column": p.column,
                "end_line": p.end_line, "end_column": p.end_column,
            }),
            None => Value::Null,
        };
        json!({
            "severity": self.severity.as_str(),
            "message": self.message,
            "label": self.label,
            "location": place(self.span),
            "notes": self.notes.iter().map(|n| json!({
                "message": n.message, "location": place(n.span),
            })).collect::<Vec<_>>(),
        })
    }
}

/// An error of a later stage, at a place of the preprocessed program, as [`Diagnostic::render`]
/// shows one.
pub fn render_error(
    place: Option<&SourceSpan>,
    message: &str,
    help: Option<&str>,
    note: Option<(&SourceSpan, &str)>,
    color: bool,
) -> String {
    let style = if color { Style::COLOR } else { Style::PLAIN };
    let severity = Severity::Error;
    let severity_color = if color { severity.color() } else { "" };
    let mut out = String::new();
    header(&mut out, place, severity.as_str(), severity_color, message, style);
    if let Some(place) = place {
        excerpt(&mut out, place, severity_color, None, style);
    }
    if let Some((at, note)) = note {
        header(&mut out, Some(at), "note", style.note, note, style);
        excerpt(&mut out, at, style.note, None, style);
    }
    if let Some(help) = help {
        let _ = writeln!(out, "      {}={} help: {}", style.dim, style.reset, clean(help));
    }
    out
}

/// Renders all, in the order given, and a closing line with the number of errors, if there is one.
pub fn render_all(diagnostics: &[Diagnostic], sources: &SourceMap, color: bool) -> String {
    let mut out: String = diagnostics.iter().map(|d| d.render(sources, color)).collect();
    match diagnostics.iter().filter(|d| d.is_error()).count() {
        0 => {}
        1 => out.push_str("1 error\n"),
        n => {
            let _ = writeln!(out, "{n} errors");
        }
    }
    out
}

/// All as one JSON array.
pub fn all_to_json(diagnostics: &[Diagnostic], sources: &SourceMap) -> Value {
    diagnostics.iter().map(|d| d.to_json(sources)).collect()
}

#[derive(Clone, Copy)]
struct Style {
    bold: &'static str,
    dim: &'static str,
    note: &'static str,
    reset: &'static str,
}

impl Style {
    const PLAIN: Style = Style { bold: "", dim: "", note: "", reset: "" };
    const COLOR: Style =
        Style { bold: "\x1b[1m", dim: "\x1b[2m", note: "\x1b[1;36m", reset: "\x1b[0m" };
}

fn header(
    out: &mut String,
    at: Option<&SourceSpan>,
    kind: &str,
    kind_color: &str,
    message: &str,
    style: Style,
) {
    let message = clean(message);
    if let Some(p) = at {
        let _ =
            write!(out, "{}{}:{}:{}:{} ", style.bold, p.file_name, p.line, p.column, style.reset);
    }
    let _ =
        writeln!(out, "{kind_color}{kind}:{} {}{message}{}", style.reset, style.bold, style.reset);
}

/// Most characters of a source line that are shown; of a longer one, a window around the caret.
const MAX_SHOWN: usize = 160;
/// Characters of context before the caret in such a window.
const WINDOW_BEFORE: usize = 60;
const TAB_WIDTH: usize = 4;

fn excerpt(out: &mut String, at: &SourceSpan, color: &str, label: Option<&str>, style: Style) {
    let chars: Vec<char> = at.line_text.chars().collect();
    let from = (at.column as usize).saturating_sub(1).min(chars.len());
    let to = if at.end_line == at.line {
        (at.end_column as usize).saturating_sub(1)
    } else {
        chars.len()
    };
    let to = to.clamp(from, chars.len());
    let (low, high) = if chars.len() <= MAX_SHOWN {
        (0, chars.len())
    } else {
        let low = from.saturating_sub(WINDOW_BEFORE);
        (low, (low + MAX_SHOWN).min(chars.len()))
    };

    let mut line = String::new();
    let mut pad = 0;
    let mut carets = 0;
    let mut width = 0;
    if low > 0 {
        line.push('…');
        width += 1;
    }
    for (i, &c) in chars.iter().enumerate().take(high).skip(low) {
        if i == from {
            pad = width;
        }
        let w = push_shown(&mut line, c, width);
        width += w;
        if i >= from && i < to {
            carets += w;
        }
    }
    if from >= high {
        pad = width;
    }
    if high < chars.len() {
        line.push('…');
    }
    let number = at.line.to_string();
    let gutter = number.len().max(5);
    let (dim, reset) = (style.dim, style.reset);
    let _ = writeln!(out, "{dim}{number:>gutter$} |{reset} {}", line.trim_end());
    let marks = "^".repeat(carets.max(1));
    let label = label.map(|l| format!(" {}", clean(l))).unwrap_or_default();
    let _ = writeln!(out, "{dim}{:gutter$} |{reset} {:pad$}{color}{marks}{label}{reset}", "", "");
}

/// Appends `c` as a terminal can show it and returns how many columns it takes.
fn push_shown(line: &mut String, c: char, column: usize) -> usize {
    if c == '\t' {
        let w = TAB_WIDTH - column % TAB_WIDTH;
        line.extend(std::iter::repeat_n(' ', w));
        return w;
    }
    if c.is_control() {
        line.push('\u{fffd}');
        return 1;
    }
    line.push(c);
    char_width(c)
}

/// Columns of a character on a terminal: 0 for combining marks, 2 for East Asian wide ones and
/// emoji.
fn char_width(c: char) -> usize {
    match c as u32 {
        0x300..=0x36f | 0x200b..=0x200f | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// Control characters (a program can put them in a name or string) never reach the terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

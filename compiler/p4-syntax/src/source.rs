//! Where a byte of the preprocessed text comes from: file, line and column as the user wrote them.
//!
//! The preprocessor says by `# line "file"` markers which file and line follow, but not where on
//! the line a token stood: it removes comments, folds white space and expands macros. So for a
//! message the tokens of the preprocessed line are aligned with those of the original line
//! (`align.rs`); that costs nothing while there is no message.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::align::{self, RawToken};
use crate::span::Span;

/// A program's text with the files it came from.
#[derive(Debug, Default)]
pub struct SourceMap {
    text: String,
    /// Offset of each line of `text`.
    line_starts: Vec<u32>,
    segments: Vec<Segment>,
    files: Vec<SourceFile>,
}

/// Consecutive lines of the text that are consecutive lines of one file.
#[derive(Debug)]
struct Segment {
    /// Index of its first line in `line_starts`.
    first_line: usize,
    file: usize,
    /// Number of that line in the file.
    line: u32,
    /// The text is the file's own, byte for byte.
    exact: bool,
}

#[derive(Debug)]
struct SourceFile {
    name: Arc<str>,
    text: Arc<str>,
    builtin: bool,
    line_starts: Vec<u32>,
    tokens: OnceLock<Vec<RawToken>>,
}

/// A span in an original file, ready to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSpan {
    /// The file's name as given on the command line or in `#include`.
    pub file_name: Arc<str>,
    /// The file comes with the compiler.
    pub builtin: bool,
    /// First line, from 1.
    pub line: u32,
    /// First column, from 1, in characters (a tab is one).
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// The column after the last character.
    pub end_column: u32,
    /// The text of the first line, without its line end.
    pub line_text: String,
}

/// Longest preprocessed line, in bytes, whose tokens are aligned; in a longer one the whole line is
/// shown.
const MAX_ALIGNED: usize = 1 << 16;

impl SourceMap {
    /// A map for text that was not preprocessed.
    pub fn plain(name: &str, text: &str) -> Self {
        Self::verbatim([(name, text)])
    }

    /// A map whose text is the given files one after the other, as they are; also the span of each.
    pub(crate) fn verbatim<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut text = String::new();
        let mut map = SourceMap::default();
        let mut lines = 0;
        for (name, body) in files {
            map.segments.push(Segment {
                first_line: lines,
                file: map.files.len(),
                line: 1,
                exact: true,
            });
            text.push_str(body);
            if !body.ends_with('\n') {
                text.push('\n');
            }
            lines += body.lines().count().max(1);
            map.files.push(SourceFile::new(name, body.into(), false));
        }
        // The last line keeps the end it has in its file: an error at the end of the file points
        // there.
        text.pop();
        map.line_starts = line_starts(&text);
        map.text = text;
        map
    }

    /// A map for the preprocessor's output. `read` finds the text of a file named in a line marker;
    /// `builtin_dir` is where the compiler's own include files were written.
    pub(crate) fn preprocessed(
        text: String,
        builtin_dir: &Path,
        read: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let mut map = SourceMap { line_starts: line_starts(&text), ..Self::default() };
        for (index, start) in map.line_starts.clone().into_iter().enumerate() {
            let line = text[start as usize..].lines().next().unwrap_or("");
            if let Some((number, name)) = parse_marker(line) {
                let file = map.file_index(&name, builtin_dir, &read);
                map.segments.push(Segment {
                    first_line: index + 1,
                    file,
                    line: number,
                    exact: false,
                });
            }
        }
        map.text = text;
        map
    }

    fn file_index(
        &mut self,
        raw_name: &str,
        builtin_dir: &Path,
        read: impl Fn(&str) -> Option<String>,
    ) -> usize {
        let builtin = Path::new(raw_name).strip_prefix(builtin_dir).ok().and_then(Path::to_str);
        let name = builtin.unwrap_or_else(|| raw_name.strip_prefix("./").unwrap_or(raw_name));
        if let Some(i) =
            self.files.iter().position(|f| &*f.name == name && f.builtin == builtin.is_some())
        {
            return i;
        }
        let text = read(raw_name).unwrap_or_default();
        self.files.push(SourceFile::new(name, text.into(), builtin.is_some()));
        self.files.len() - 1
    }

    /// The text that spans index.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text that `span` covers; empty if it is not of this map.
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or("")
    }

    /// File and line of the first byte of `span`. Cheap, unlike [`SourceMap::resolve`].
    pub fn file_line(&self, span: Span) -> (Arc<str>, u32) {
        match self.segment_at(span.start) {
            Some((s, line)) => (self.files[s.file].name.clone(), line),
            None => (Arc::from(""), 1),
        }
    }

    /// Whether `span` begins in a file that comes with the compiler (core.p4 and its kin).
    pub fn is_builtin(&self, span: Span) -> bool {
        self.segment_at(span.start).is_some_and(|(s, _)| self.files[s.file].builtin)
    }

    /// Names of the files that the text came from, in order of first appearance; built-in ones
    /// included.
    pub fn file_names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|f| &*f.name)
    }

    /// The place in the original file, with columns and the text of the line.
    pub fn resolve(&self, span: Span) -> SourceSpan {
        let Some((segment, line)) = self.segment_at(span.start) else {
            return SourceSpan {
                file_name: Arc::from("<unknown>"),
                builtin: false,
                line: 1,
                column: 1,
                end_line: 1,
                end_column: 1,
                line_text: String::new(),
            };
        };
        let file = &self.files[segment.file];
        let (start, end) = if segment.exact {
            self.exact_offsets(span, segment)
        } else {
            self.aligned_offsets(span, segment, line)
        };
        file.show(start, end)
    }

    fn segment_at(&self, offset: u32) -> Option<(&Segment, u32)> {
        let index = self.line_index(offset);
        let s = self.segments.partition_point(|s| s.first_line <= index).checked_sub(1)?;
        let segment = &self.segments[s];
        Some((segment, segment.line.saturating_add((index - segment.first_line) as u32)))
    }

    fn line_index(&self, offset: u32) -> usize {
        self.line_starts.partition_point(|&s| s <= offset).saturating_sub(1)
    }

    fn exact_offsets(&self, span: Span, segment: &Segment) -> (usize, usize) {
        let base = self.line_starts.get(segment.first_line).copied().unwrap_or(0);
        (
            (span.start - base) as usize,
            span.end.saturating_sub(base).max(span.start - base) as usize,
        )
    }

    fn aligned_offsets(&self, span: Span, segment: &Segment, line: u32) -> (usize, usize) {
        let (start, start_end) =
            self.aligned_token(span.start, segment.file, line, span.end <= span.start);
        if span.end <= span.start {
            return (start, start);
        }
        let last = span.end - 1;
        match self.segment_at(last) {
            Some((s, l)) if s.file == segment.file && !s.exact => {
                let (_, end) = self.aligned_token(last, s.file, l, false);
                (start, if end > start { end } else { start_end })
            }
            _ => (start, start_end),
        }
    }

    /// The original byte range of the token at `offset`, cut at `offset` where the token is
    /// unchanged: the start is that of the byte itself, the end is that just after it for the last
    /// byte of a span.
    fn aligned_token(&self, offset: u32, file: usize, line: u32, point: bool) -> (usize, usize) {
        let file = &self.files[file];
        let index = self.line_index(offset);
        let line_start = self.line_starts[index] as usize;
        let pp_line = self.line_at(index);
        let in_line = offset as usize - line_start;
        let (from, to) = file.line_range(line);
        if pp_line == &file.text[from..to] {
            // Nothing was replaced: most lines.
            let start = (from + in_line).min(to);
            return (start, if point { start } else { (start + 1).min(to) });
        }
        if pp_line.len() > MAX_ALIGNED {
            return (from, to);
        }
        let pp = align::raw_tokens(pp_line);
        let originals = file.tokens_of_lines(line, self.next_used_line(index, file, line));
        align::locate(pp_line, &pp, &file.text, originals, in_line, point).unwrap_or((from, to))
    }

    /// The preprocessor joins lines (a macro's arguments, a backslash at a line's end) and leaves
    /// empty ones behind: the line of the file that the next line with text comes from, or the one
    /// after `line`.
    fn next_used_line(&self, index: usize, file: &SourceFile, line: u32) -> u32 {
        const MOST_JOINED: usize = 64;
        let mut last = line + 1;
        for i in index + 1..(index + MOST_JOINED).min(self.line_starts.len()) {
            let text = self.line_at(i);
            if !text.trim().is_empty() {
                return match parse_marker(text) {
                    Some((n, _)) if n > line => n.min(line + MOST_JOINED as u32),
                    _ => last,
                };
            }
            last = last.saturating_add(1);
        }
        last.min(file.line_starts.len() as u32 + 1)
    }

    fn line_at(&self, index: usize) -> &str {
        let start = self.line_starts[index] as usize;
        let end = self.line_starts.get(index + 1).map_or(self.text.len(), |&e| e as usize);
        self.text[start..end].trim_end_matches(['\n', '\r'])
    }
}

impl SourceFile {
    fn new(name: &str, text: Arc<str>, builtin: bool) -> Self {
        let line_starts = line_starts(&text);
        Self { name: name.into(), text, builtin, line_starts, tokens: OnceLock::new() }
    }

    fn show(&self, start: usize, end: usize) -> SourceSpan {
        let (line, column) = self.line_column(start);
        let (end_line, end_column) = self.line_column(end.max(start));
        let range = self.line_range(line);
        SourceSpan {
            file_name: self.name.clone(),
            builtin: self.builtin,
            line,
            column,
            end_line,
            end_column,
            line_text: self.text[range.0..range.1].to_string(),
        }
    }

    fn line_column(&self, offset: usize) -> (u32, u32) {
        let offset = offset.min(self.text.len());
        let index = self.line_starts.partition_point(|&s| s as usize <= offset).saturating_sub(1);
        let start = self.line_starts.get(index).copied().unwrap_or(0) as usize;
        // Count characters that begin before the offset: right even inside a character.
        let column =
            self.text.as_bytes()[start..offset].iter().filter(|b| **b & 0xc0 != 0x80).count();
        (index as u32 + 1, column as u32 + 1)
    }

    /// Byte range of a line, from 1, without its line end; empty at the end of the file for a line
    /// it has not.
    fn line_range(&self, line: u32) -> (usize, usize) {
        let index = (line as usize).saturating_sub(1);
        let start = self.line_starts.get(index).map_or(self.text.len(), |&s| s as usize);
        let end = self.line_starts.get(index + 1).map_or(self.text.len(), |&s| s as usize);
        (start, start + self.text[start..end].trim_end_matches(['\n', '\r']).len())
    }

    /// Tokens that begin on lines `first..last`.
    fn tokens_of_lines(&self, first: u32, last: u32) -> &[RawToken] {
        let tokens = self.tokens.get_or_init(|| align::raw_tokens(&self.text));
        let from = self.line_range(first).0;
        let to = self.line_range(last.max(first + 1)).0;
        let a = tokens.partition_point(|t| t.start < from);
        let b = tokens.partition_point(|t| t.start < to);
        &tokens[a..b.max(a)]
    }
}

fn line_starts(text: &str) -> Vec<u32> {
    std::iter::once(0)
        .chain(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i as u32 + 1))
        .collect()
}

/// `# 12 "file" flags`: the number of the line that follows, and the file's name.
pub(crate) fn parse_marker(line: &str) -> Option<(u32, String)> {
    let rest = line.strip_prefix("# ")?;
    let (number, rest) = rest.split_once(' ')?;
    let number = number.parse().ok()?;
    let mut name = String::new();
    let mut chars = rest.strip_prefix('"')?.chars();
    loop {
        match chars.next()? {
            '"' => return Some((number, name)),
            '\\' => name.push(chars.next()?),
            c => name.push(c),
        }
    }
}

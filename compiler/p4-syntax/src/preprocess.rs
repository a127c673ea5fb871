//! The C preprocessor: `clang -E`, run on the user's file, with our include files behind the user's
//! own.
//!
//! A text without any directive is not preprocessed at all, which saves a process and keeps every
//! column.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::builtin;
use crate::diagnostic::{Diagnostic, Severity};
use crate::source::SourceMap;
use crate::span::Span;

/// Longest text, before and after preprocessing, in bytes. Spans are 32 bits wide, and no program
/// comes near.
pub const MAX_TEXT: usize = 64 << 20;

/// How long the preprocessor may take: includes can be read from a pipe that never ends.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How a program is preprocessed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folders that `#include` searches, in order, before the files that come with the compiler.
    pub include_dirs: Vec<PathBuf>,
    /// Macros: `NAME` or `NAME=VALUE`.
    pub defines: Vec<String>,
    /// The program that preprocesses; must understand clang's options.
    pub clang: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self { include_dirs: Vec::new(), defines: Vec::new(), clang: PathBuf::from("clang") }
    }
}

/// What the text is called and where it comes from.
pub(crate) enum Input<'a> {
    /// A file; its own folder is searched by `#include "..."`.
    File(&'a Path),
    /// A text in memory with a name for messages.
    Text(&'a str),
}

type Failure = (Vec<Diagnostic>, SourceMap);

/// The preprocessed text and the preprocessor's warnings.
pub(crate) fn preprocess(
    input: &Input,
    text: &str,
    options: &Options,
) -> Result<(SourceMap, Vec<Diagnostic>), Failure> {
    let name = match input {
        Input::File(path) => path.to_string_lossy().into_owned(),
        Input::Text(name) => (*name).to_string(),
    };
    if options.defines.is_empty() && !needs_preprocessor(text) {
        return Ok((SourceMap::plain(&name, text), Vec::new()));
    }
    let global =
        |message: String| (vec![Diagnostic::global(message)], SourceMap::plain(&name, text));
    let dir = tempfile::Builder::new()
        .prefix("stateplane-p4-")
        .tempdir()
        .and_then(|d| builtin::write_into(d.path()).map(|()| d))
        .map_err(|e| {
            global(format!("cannot write the include files to a temporary folder: {e}"))
        })?;
    let output = run(input, &name, text, options, dir.path()).map_err(global)?;
    let read = |file: &str| read_source(file, &name, text, input);
    let messages = parse_messages(&output.errors);
    if output.failed || messages.iter().any(|m| m.severity == Severity::Error) {
        return Err(failure(&messages, &output.errors, dir.path(), read));
    }
    let sources = SourceMap::preprocessed(output.text, dir.path(), read);
    let warnings = messages.iter().map(|m| Diagnostic {
        span: None,
        ..Diagnostic::warning(
            Span::default(),
            format!("{}:{}:{}: {}", m.file, m.line, m.column, m.text),
        )
    });
    Ok((sources, warnings.collect()))
}

/// Whether the preprocessor would change anything that is not white space or a comment.
fn needs_preprocessor(text: &str) -> bool {
    text.lines().any(|l| l.trim_start().starts_with('#') || l.trim_end().ends_with('\\'))
        || [
            "__LINE__",
            "__FILE__",
            "__DATE__",
            "__TIME__",
            "__COUNTER__",
            "__INCLUDE_LEVEL__",
            "??",
        ]
        .iter()
        .any(|m| text.contains(m))
}

fn read_source(file: &str, name: &str, text: &str, input: &Input) -> Option<String> {
    match input {
        Input::Text(_) if file == name => Some(text.to_string()),
        _ if file.starts_with('<') => None,
        _ => fs::read(file).ok().map(|b| String::from_utf8_lossy(&b).into_owned()),
    }
}

struct Output {
    text: String,
    errors: String,
    failed: bool,
}

fn run(
    input: &Input,
    name: &str,
    text: &str,
    options: &Options,
    builtin_dir: &Path,
) -> Result<Output, String> {
    let mut command = Command::new(&options.clang);
    command.env("LC_ALL", "C").args([
        "-E",
        "-x",
        "c",
        "-undef",
        "-nostdinc",
        "-Wno-everything",
        "-W#warnings",
    ]);
    command.args(["-fno-caret-diagnostics", "-fno-color-diagnostics", "-ferror-limit=20"]);
    for define in &options.defines {
        command.arg(format!("-D{define}"));
    }
    for dir in options.include_dirs.iter().map(PathBuf::as_path).chain([builtin_dir]) {
        let mut arg = OsString::from("-I");
        arg.push(dir);
        command.arg(arg);
    }
    match input {
        Input::File(path) if path.as_os_str().to_string_lossy().starts_with('-') => {
            command.arg(Path::new(".").join(path))
        }
        Input::File(path) => command.arg(path),
        Input::Text(_) => command.arg("-"),
    };
    let stdin = if matches!(input, Input::Text(_)) { Stdio::piped() } else { Stdio::null() };
    let child = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.map_err(|e| {
        format!(
            "cannot run the preprocessor `{}`: {e}; install it with `apt install clang`",
            options.clang.display()
        )
    })?;
    let quoted = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ");
    collect(child, format!("# 1 \"{quoted}\"\n{text}"))
}

/// Feeds and empties the pipes of `child`, and ends it if it takes too long or writes too much.
fn collect(mut child: Child, input: String) -> Result<Output, String> {
    let feeder =
        child.stdin.take().map(|mut pipe| thread::spawn(move || pipe.write_all(input.as_bytes())));
    let errors = child.stderr.take().map(|p| thread::spawn(move || read_limited(p)));
    let (sender, receiver) = mpsc::channel();
    if let Some(pipe) = child.stdout.take() {
        thread::spawn(move || sender.send(read_limited(pipe)));
    }
    let text = match receiver.recv_timeout(TIMEOUT) {
        Ok(Some(bytes)) => bytes,
        other => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(match other {
                Ok(_) => format!("the preprocessed program is longer than {} MiB", MAX_TEXT >> 20),
                Err(_) => format!("the preprocessor took more than {} s", TIMEOUT.as_secs()),
            });
        }
    };
    let status = child.wait().map_err(|e| {
        format!(
            "waiting for the end of the preprocessor failed: \
                                                   {e}"
        )
    })?;
    if let Some(f) = feeder {
        let _ = f.join();
    }
    let errors = errors.and_then(|e| e.join().ok().flatten()).unwrap_or_default();
    Ok(Output {
        text: String::from_utf8_lossy(&text).into_owned(),
        errors: String::from_utf8_lossy(&errors).into_owned(),
        failed: !status.success(),
    })
}

/// All of `pipe`, or `None` if it is longer than [`MAX_TEXT`].
fn read_limited(pipe: impl Read) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    pipe.take(MAX_TEXT as u64 + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() <= MAX_TEXT).then_some(bytes)
}

/// One `file:line:column: error: text` of the preprocessor.
struct Message {
    file: String,
    line: usize,
    column: usize,
    severity: Severity,
    text: String,
}

fn parse_messages(errors: &str) -> Vec<Message> {
    errors.lines().filter_map(parse_message).collect()
}

fn parse_message(line: &str) -> Option<Message> {
    let kinds = [
        (": fatal error: ", Severity::Error),
        (": error: ", Severity::Error),
        (": warning: ", Severity::Warning),
    ];
    let (at, len, severity) = kinds
        .iter()
        .filter_map(|(k, s)| line.find(k).map(|i| (i, k.len(), *s)))
        .min_by_key(|m| m.0)?;
    let mut place = line[..at].rsplitn(3, ':');
    let column = place.next()?.parse().ok()?;
    let line_number = place.next()?.parse().ok()?;
    let file = place.next()?.to_string();
    Some(Message { file, line: line_number, column, severity, text: line[at + len..].to_string() })
}

/// The preprocessor's errors as diagnostics on the files as they are.
fn failure(
    messages: &[Message],
    raw: &str,
    builtin_dir: &Path,
    read: impl Fn(&str) -> Option<String>,
) -> Failure {
    let mut files: Vec<(String, String, String)> = Vec::new();
    for m in messages {
        if !files.iter().any(|(path, ..)| *path == m.file) {
            let shown = Path::new(&m.file).strip_prefix(builtin_dir).unwrap_or(Path::new(&m.file));
            let shown = shown.to_string_lossy().trim_start_matches("./").to_string();
            files.push((m.file.clone(), shown, read(&m.file).unwrap_or_default()));
        }
    }
    let sources =
        SourceMap::verbatim(files.iter().map(|(_, shown, text)| (shown.as_str(), text.as_str())));
    let mut bases = Vec::new();
    let mut base = 0;
    for (_, _, text) in &files {
        bases.push(base);
        base += text.len() + usize::from(!text.ends_with('\n'));
    }
    let mut diagnostics: Vec<Diagnostic> = messages
        .iter()
        .filter_map(|m| {
            let index = files.iter().position(|(path, ..)| *path == m.file)?;
            let (start, end) = word_at(&files[index].2, m.line, m.column);
            let span = Span::new((bases[index] + start) as u32, (bases[index] + end) as u32);
            let d = Diagnostic {
                severity: m.severity,
                ..Diagnostic::error(span, message_text(&m.text))
            };
            Some(if m.text.contains("file not found") {
                d.help("`-I FOLDER` adds a folder to search")
            } else {
                d
            })
        })
        .collect();
    if !diagnostics.iter().any(Diagnostic::is_error) {
        let first = raw.lines().next().unwrap_or("no message");
        diagnostics.push(Diagnostic::global(format!("the preprocessor failed: {first}")));
    }
    (diagnostics, sources)
}

/// Clang's words, without the advice that means nothing here.
fn message_text(text: &str) -> String {
    match text.strip_suffix(" file not found") {
        Some(file) => format!("include file {file} not found"),
        None => text.to_string(),
    }
}

/// Byte range of the word, string or `<...>` at a line and column (in bytes), both from 1.
fn word_at(text: &str, line: usize, column: usize) -> (usize, usize) {
    let start_of_line: usize =
        text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let line_text = text[start_of_line..].lines().next().unwrap_or("");
    let column = column.saturating_sub(1).min(line_text.len());
    let rest = &line_text.as_bytes()[column..];
    let len = match rest.first() {
        Some(b'"') => rest[1..].iter().position(|b| *b == b'"').map_or(rest.len(), |n| n + 2),
        Some(b'<') => rest.iter().position(|b| *b == b'>').map_or(1, |n| n + 1),
        Some(_) => {
            rest.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count().max(1)
        }
        None => 0,
    };
    (start_of_line + column, start_of_line + column + len)
}

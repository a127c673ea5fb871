//! Standard output: what cannot be written is an error in the end, but that a reader went away
//! (`| head`) is none.

use serde::Serialize;
use std::io::{ErrorKind, Write};
use std::sync::Mutex;

/// `print!` for commands: see [`say`](crate::say).
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::say(format_args!($($text)*)) };
}

/// `println!` for commands: see [`say`](crate::say).
#[macro_export]
macro_rules! outln {
    ($($text:tt)*) => { $crate::say(format_args!("{}\n", format_args!($($text)*))) };
}

/// Why not all of what was printed was written.
static UNWRITTEN: Mutex<Option<std::io::Error>> = Mutex::new(None);

/// Prints to standard output. What cannot be written is an error in the end: see [`written`].
pub fn say(text: std::fmt::Arguments<'_>) {
    remember(std::io::stdout().write_fmt(text));
}

/// Remembers the first error; that a reader went away (`| head`) is none.
fn remember(result: std::io::Result<()>) {
    if let Err(error) = result
        && error.kind() != ErrorKind::BrokenPipe
        && let Ok(mut first) = UNWRITTEN.lock()
    {
        first.get_or_insert(error);
    }
}

/// Whether all that was printed is written.
///
/// # Errors
/// What the first write said that failed.
pub fn written() -> std::io::Result<()> {
    remember(std::io::stdout().flush());
    UNWRITTEN.lock().ok().and_then(|mut first| first.take()).map_or(Ok(()), Err)
}

/// As indented JSON. Plain data with string keys always serialises.
pub fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Prints columns of equal width.
pub fn print_table(head: &[&str], rows: Vec<Vec<String>>) {
    let head: Vec<String> = head.iter().map(|name| (*name).to_owned()).collect();
    let width = |column: usize| {
        std::iter::once(&head)
            .chain(&rows)
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..head.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = std::io::stdout().lock();
    for row in std::iter::once(&head).chain(&rows) {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        // A reader that hangs up (`| head`) has had enough.
        if writeln!(out, "{}", line.trim_end()).is_err() {
            return;
        }
    }
}

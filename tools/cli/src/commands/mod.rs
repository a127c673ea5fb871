//! One module a subcommand: each parses its own arguments and calls one crate.

/// `print!` for commands: see [`say`].
macro_rules! out {
    ($($text:tt)*) => { $crate::commands::say(format_args!($($text)*)) };
}

/// `println!` for commands: see [`say`].
macro_rules! outln {
    ($($text:tt)*) => { $crate::commands::say(format_args!("{}\n", format_args!($($text)*))) };
}

pub mod check;
pub mod compile;
pub mod controller;
pub mod counter;
pub mod daemon;
pub mod demo;
pub mod keys;
pub mod lab;
mod messages;
pub mod ports;
pub mod register;
pub mod sim;
pub mod state;
pub mod status;
pub mod store;
pub mod switch;
pub mod table;
pub mod test;
pub mod trace;
pub mod traffic;

use std::io::{ErrorKind, Write};
use std::sync::Mutex;

/// Why not all of what was printed was written.
static UNWRITTEN: Mutex<Option<std::io::Error>> = Mutex::new(None);

/// Prints to standard output. What cannot be written is an error in the end: see [`written`].
fn say(text: std::fmt::Arguments<'_>) {
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

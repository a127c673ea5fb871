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

use std::io::Write;

/// Prints to standard output; a reader that went away (`| head`) is no error.
fn say(text: std::fmt::Arguments<'_>) {
    let _ = std::io::stdout().write_fmt(text);
}

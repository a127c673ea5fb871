//! `stateplane check`

/// Command line of `stateplane check`.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the command; returns the process exit code.
pub fn run(_args: Args) -> u8 {
    eprintln!("stateplane check: not built yet");
    2
}

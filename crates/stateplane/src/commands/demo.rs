//! `stateplane demo`

/// Command line of `stateplane demo`.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the command; returns the process exit code.
pub fn run(_args: Args) -> u8 {
    eprintln!("stateplane demo: not built yet");
    2
}

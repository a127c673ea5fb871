//! `stateplane compile`

/// Command line of `stateplane compile`.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the command; returns the process exit code.
pub fn run(_args: Args) -> u8 {
    eprintln!("stateplane compile: not built yet");
    2
}

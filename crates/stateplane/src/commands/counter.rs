//! `stateplane counter`

/// Command line of `stateplane counter`.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the command; returns the process exit code.
pub fn run(_args: Args) -> u8 {
    eprintln!("stateplane counter: not built yet");
    2
}

//! `stateplane switch`

/// Command line of `stateplane switch`.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the command; returns the process exit code.
pub fn run(_args: Args) -> u8 {
    eprintln!("stateplane switch: not built yet");
    2
}

//! `stateplane store`

/// Command line of `stateplane store`.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the command; returns the process exit code.
pub fn run(_args: Args) -> u8 {
    eprintln!("stateplane store: not built yet");
    2
}

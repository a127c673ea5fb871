//! `stateplane test`

/// Command line of `stateplane test`.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the command; returns the process exit code.
pub fn run(_args: Args) -> u8 {
    eprintln!("stateplane test: not built yet");
    2
}

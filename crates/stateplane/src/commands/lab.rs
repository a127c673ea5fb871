//! `stateplane lab`

/// Command line of `stateplane lab`.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the command; returns the process exit code.
pub fn run(_args: Args) -> u8 {
    eprintln!("stateplane lab: not built yet");
    2
}

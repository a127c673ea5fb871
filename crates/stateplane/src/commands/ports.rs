//! `stateplane ports`

/// Command line of `stateplane ports`.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the command; returns the process exit code.
pub fn run(_args: Args) -> u8 {
    eprintln!("stateplane ports: not built yet");
    2
}

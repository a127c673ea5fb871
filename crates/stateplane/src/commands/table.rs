//! `stateplane table`

/// Command line of `stateplane table`.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the command; returns the process exit code.
pub fn run(_args: Args) -> u8 {
    eprintln!("stateplane table: not built yet");
    2
}

//! `stateplane register`

/// Command line of `stateplane register`.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the command; returns the process exit code.
pub fn run(_args: Args) -> u8 {
    eprintln!("stateplane register: not built yet");
    2
}

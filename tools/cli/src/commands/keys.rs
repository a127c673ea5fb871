//! `stateplane keys`: makes and rotates the shared secrets.

use command_line::outln;
use secrets::{SecretsError, SecretsFile};
use std::path::PathBuf;

const HELP: &str = "\
Switches, store servers and controllers sign every message of the state protocol with a secret from one file, the same on all machines, named `secrets` in their \
configurations. Each machine accepts all secrets in the file and sends with one of them.

Rotation without a gap, each step on all machines before the next one begins:
  1. stateplane keys add FILE        add a secret that is only accepted; copy FILE to all machines
  2. stateplane keys use FILE ID     send with the new secret; copy FILE to all machines
  3. stateplane keys remove FILE ID  remove the old one; copy FILE to all machines
After a copy send SIGHUP to the daemons: they read the file again. A daemon that cannot use the file logs \
that and keeps its secrets. A message with an unknown secret is counted as `bad_tag` and changes nothing.

Examples:
  stateplane keys generate fabric.secrets
  stateplane keys show fabric.secrets            fingerprints: the same on all machines";

/// Command line of `stateplane keys`.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP, after_long_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Make a new file with one secret, readable by its owner only.
    Generate {
        /// The file; it must not exist.
        file: PathBuf,
    },
    /// Add a new secret: accepted, but not used to send.
    Add {
        /// The file.
        file: PathBuf,
    },
    /// Send with a secret that the file has.
    Use {
        /// The file.
        file: PathBuf,
        /// The secret's number.
        id: u8,
    },
    /// Remove a secret; not the one that is used to send.
    Remove {
        /// The file.
        file: PathBuf,
        /// The secret's number.
        id: u8,
    },
    /// Check the file and show numbers and fingerprints, never secrets.
    Show {
        /// The file.
        file: PathBuf,
    },
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    match execute(args.command) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("stateplane keys: {error}");
            1
        }
    }
}

fn execute(command: Command) -> Result<(), SecretsError> {
    let file = match command {
        Command::Generate { file } => SecretsFile::generate(&file)?,
        Command::Show { file } => SecretsFile::load(&file)?,
        Command::Add { file } => change(&file, |secrets| secrets.add().map(|_| ()))?,
        Command::Use { file, id } => change(&file, |secrets| secrets.send_with(id))?,
        Command::Remove { file, id } => change(&file, |secrets| secrets.remove(id))?,
    };
    for (id, fingerprint) in file.fingerprints() {
        let role = if id == file.ring().sending() { "accepted, sent with" } else { "accepted" };
        outln!("{id}  fingerprint {fingerprint:016x}  {role}");
    }
    Ok(())
}

fn change(
    path: &std::path::Path,
    step: impl FnOnce(&mut SecretsFile) -> Result<(), SecretsError>,
) -> Result<SecretsFile, SecretsError> {
    let mut file = SecretsFile::load(path)?;
    step(&mut file)?;
    file.save()?;
    Ok(file)
}

//! `stateplane keys`: makes and rotates the shared secrets.

use secrets::{SecretsError, SecretsFile};
use std::path::PathBuf;

const HELP: &str = "\
Switches, store servers and controllers sign every message of the state protocol with a secret from one file, the same on all machines, named `secrets` in their \
configurations. Everyone accepts all secrets in the file and sends with one of them.

Rotation without a gap, each step on all machines before the next one begins:
  1. stateplane keys add FILE        one new secret, accepted and not sent with; copy FILE to all machines
  2. stateplane keys use FILE ID     send with it; copy FILE to all machines
  3. stateplane keys remove FILE ID  the old one; copy FILE to all machines
After a copy, let the daemons read it: SIGHUP (a file that they cannot use is reported in the log, and the secrets before stay). A message whose secret the receiver does not have is \
counted as `bad_tag` and changes nothing.

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
    /// Add a new secret: accepted, not sent with.
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
    /// Take a secret away; not the one that is sent with.
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

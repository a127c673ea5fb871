//! `stateplane switch`: run the agent, check its configuration, stop or detach a switch.

use clap::Subcommand;
use command_line::{Sizes, outln};
use manifest::Manifest;
use secrets::SecretsFile;
use std::net::{SocketAddrV4, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;
use switch_agent::config::Config;
use switch_agent::control::{Reply, Request};
use switch_agent::{RunDirectory, client};

const EXAMPLES: &str = "Examples:
  stateplane switch --config s1.toml --check   check the configuration and the object
  stateplane switch --config s1.toml           run; after a crash: take the program over
  stateplane switch --config s1.toml --fresh   run with empty tables and state
  stateplane switch status                     the running switches
  stateplane switch flows --switch s1          the flows of s1
  stateplane switch detach s1                  take the program off the ports

docs/switch.example.toml is a commented configuration.";

/// Command line of `stateplane switch`.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXAMPLES)]
pub struct Args {
    /// Configuration of the switch (TOML).
    #[arg(long, required = true)]
    config: Option<PathBuf>,
    /// Only check the configuration and the object.
    #[arg(long)]
    check: bool,
    /// Discard the program and state of a dead agent of this name, instead of taking them over.
    #[arg(long, conflicts_with = "check")]
    fresh: bool,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Show the switches whose agents run.
    Status {
        /// Only this switch.
        name: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// End the agent; the program stays on the ports and goes on forwarding.
    Stop {
        /// The switch.
        name: String,
    },
    /// Take the program off the ports and forget all its state, whether the agent runs or not.
    Detach {
        /// The switch.
        name: String,
    },
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    let result = match (&args.action, &args.config) {
        (Some(action), _) => act(action),
        (None, Some(path)) => Config::read(path, systems::switch()).and_then(|config| {
            if args.check {
                // No faults: it may be another machine's configuration, or what is missing comes
                // later.
                for problem in switch_agent::check(&config, systems::switch())? {
                    eprintln!("stateplane switch: warning: {problem}");
                }
                for problem in controllers_that_do_not_answer(&config) {
                    eprintln!("stateplane switch: warning: {problem}");
                }
                outln!("{}: good", path.display());
                for line in switch_agent::figures(&config, systems::switch())? {
                    outln!("  {line}");
                }
                show_sizes(&config);
                return Ok(());
            }
            command_line::daemon::log();
            switch_agent::run(config, args.fresh, systems::switch())
        }),
        (None, None) => {
            eprintln!("stateplane switch: --config is needed");
            return 2;
        }
    };
    super::table::exit_code("switch", result)
}

fn act(action: &Action) -> switch_agent::Result<()> {
    match action {
        Action::Status { name, json } => status(name.as_deref(), *json),
        Action::Stop { name } => {
            client::ask(&RunDirectory::of(name)?, &Request::Stop { detach: false })?;
            wait_for_end(&RunDirectory::of(name)?);
            Ok(())
        }
        Action::Detach { name } => {
            let run = RunDirectory::of(name)?;
            if client::ask(&run, &Request::Stop { detach: true }).is_ok() {
                wait_for_end(&run);
                return Ok(());
            }
            switch_agent::detach(&run)
        }
    }
}

/// What the program's objects take. (A manifest that cannot be read was refused before.)
fn show_sizes(config: &Config) {
    let manifest = Manifest::read(&Manifest::path_for(&config.object));
    let sizes = manifest.ok().and_then(|it| Sizes::of_all(systems::command_line(), &it).ok());
    sizes.unwrap_or_default().into_iter().for_each(Sizes::print);
}

/// What keeps a switch's controllers from answering it: field and reason of each. Only asked from
/// the switch's own machine; from another one it says nothing.
fn controllers_that_do_not_answer(config: &Config) -> Vec<String> {
    let own = |address| UdpSocket::bind((address, 0)).is_ok();
    let here = config.protocol_address.is_some_and(own);
    let secrets = config.secrets.as_ref().and_then(|path| SecretsFile::load(path).ok());
    let Some(secrets) = secrets.filter(|_| here) else { return vec![] };
    let ask = &|(at, address): (usize, &SocketAddrV4)| {
        let answer: Result<serde_json::Value, _> =
            daemon::ask::query(*address, secrets.ring(), CONTROLLERS_ANSWER);
        let error = answer.err()?;
        Some(format!("{}: controllers[{at}]: {error}", config.file.display()))
    };
    // All at once: systemd checks before each start.
    std::thread::scope(|scope| {
        let asked = config.controllers.iter().enumerate();
        let asked: Vec<_> = asked.map(|it| scope.spawn(move || ask(it))).collect();
        asked.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    })
}

/// Controllers that run answer within this time.
const CONTROLLERS_ANSWER: Duration = Duration::from_millis(150);

/// Until the agent is gone and another one may start, at most ten seconds.
fn wait_for_end(run: &RunDirectory) {
    for _ in 0..1_000 {
        if !run.is_held() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn status(name: Option<&str>, json: bool) -> switch_agent::Result<()> {
    let names = name.map_or_else(switch_agent::running, |name| vec![name.to_owned()]);
    let mut found = vec![];
    for name in names {
        if let Reply::Status(status) = client::ask(&RunDirectory::of(&name)?, &Request::Status)? {
            found.push(status);
        }
    }
    if json {
        outln!("{}", command_line::json(&found));
        return Ok(());
    }
    let rows = found.iter().map(|status| {
        let numbers = [
            status.pid.to_string(),
            status.switch_id.to_string(),
            format!("{:#010x}", status.incarnation),
        ];
        let [pid, id, incarnation] = numbers;
        vec![status.name.clone(), status.program.clone(), status.how.clone(), pid, id, incarnation]
    });
    command_line::print_table(
        &["switch", "program", "how", "pid", "id", "incarnation"],
        rows.collect(),
    );
    Ok(())
}

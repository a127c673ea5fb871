//! `stateplane switch`: run the agent, check its configuration, stop or detach a switch.

use clap::Subcommand;
use redplane_switch::{Flows, FlowsRequest};
use std::path::PathBuf;
use switch_agent::config::Config;
use switch_agent::control::{Reply, Request};
use switch_agent::{RunDirectory, client};

const EXAMPLES: &str = "Examples:
  stateplane switch --config s1.toml --check   check the configuration and the object
  stateplane switch --config s1.toml           run; after a crash the same command takes the running program over
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
    /// Show the flows of a FlowState object.
    Flows {
        /// The object; may be left out if there is only one.
        object: Option<String>,
        /// The switch; may be left out if only one runs.
        #[arg(long)]
        switch: Option<String>,
        /// Show at most this many.
        #[arg(long, default_value_t = 100)]
        limit: usize,
        /// Print JSON.
        #[arg(long)]
        json: bool,
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
                for problem in super::daemon::controllers_that_do_not_answer(&config) {
                    eprintln!("stateplane switch: warning: {problem}");
                }
                outln!("{}: good", path.display());
                return Ok(());
            }
            super::daemon::log();
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
        Action::Flows { object, switch, limit, json } => {
            flows(object.clone(), switch.as_deref(), *limit, *json)
        }
    }
}

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
        outln!("{}", super::table::json(&found));
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
    super::table::print(&["switch", "program", "how", "pid", "id", "incarnation"], rows.collect());
    Ok(())
}

fn flows(
    object: Option<String>,
    switch: Option<&str>,
    limit: usize,
    json: bool,
) -> switch_agent::Result<()> {
    let reply: Flows = client::ask_system(&client::find(switch)?, &FlowsRequest { object, limit })?;
    let Flows { object, count, flows } = &reply;
    if json {
        outln!("{}", super::table::json(&reply));
        return Ok(());
    }
    outln!("{object}: {count} flows");
    let fields = |pairs: &[(String, String)]| {
        pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    let rows = flows.iter().map(|flow| vec![fields(&flow.key), fields(&flow.value)]);
    super::table::print(&["key", "value"], rows.collect());
    if flows.len() < *count {
        outln!("… and {} more (--limit)", count - flows.len());
    }
    Ok(())
}

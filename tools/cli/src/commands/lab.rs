//! `stateplane lab`: a network in namespaces, with real routing and real failures.

use clap::{Parser, Subcommand};
use command_line::{out, outln};
use lab::{Error, Lab, Options, Result, Topology, builtin, registry};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Command line of `stateplane lab`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  stateplane lab up                          the NAT lab that is built in
  stateplane lab up my.toml --name mine      another topology, another name
  stateplane lab status --json
  stateplane lab exec inside -- ping -c1 198.51.100.10
  stateplane lab fail s1                     SIGKILL to all of s1's processes, its ports down
  stateplane lab restore s1
  stateplane lab kill s1 switch              SIGKILL to one daemon; the rest of s1 goes on
  stateplane lab start s1 switch
  stateplane lab link down core s1
  stateplane lab chaos --rounds 20 --seed 7  random failures in labs of their own, with a verdict
  stateplane lab down

Everything about a lab is in /run/stateplane/labs/NAME: configurations, logs, PIDs.
Exit codes: 0 success, 1 a failure, 2 wrong usage; exec passes on the command's own.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Bring a lab up and wait until its routing has converged.
    Up(Up),
    /// Take a lab down, also after a crash: processes, namespaces, BPF pins, files.
    Down {
        /// The lab; needed only if several are up.
        #[arg(long)]
        name: Option<String>,
        /// Every lab.
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Show nodes, daemons, BGP and BFD sessions, and routes.
    Status {
        /// The lab; needed only if several are up.
        #[arg(long)]
        name: Option<String>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run a command in a node; its exit code is passed on.
    Exec {
        /// The lab; needed only if several are up.
        #[arg(long)]
        name: Option<String>,
        /// The node.
        node: String,
        /// Program and arguments.
        #[arg(trailing_var_arg = true, required = true)]
        command: Vec<String>,
    },
    /// Kill a node: SIGKILL to all its processes, its ports down, its BPF state gone.
    Fail {
        /// The lab; needed only if several are up.
        #[arg(long)]
        name: Option<String>,
        /// The node.
        node: String,
    },
    /// Bring a failed node back, empty, and wait until its routing has converged.
    Restore {
        /// The lab; needed only if several are up.
        #[arg(long)]
        name: Option<String>,
        /// The node.
        node: String,
    },
    /// Kill one daemon of a node (SIGKILL); the rest of the node goes on.
    Kill {
        /// The lab; needed only if several are up.
        #[arg(long)]
        name: Option<String>,
        /// The node.
        node: String,
        /// The daemon, as `lab status` names it.
        daemon: String,
    },
    /// Start a daemon that was killed or has ended, and wait until it is ready.
    Start {
        /// The lab; needed only if several are up.
        #[arg(long)]
        name: Option<String>,
        /// The node.
        node: String,
        /// The daemon, as `lab status` names it.
        daemon: String,
    },
    /// Take one link down or up.
    Link {
        /// The lab; needed only if several are up.
        #[arg(long)]
        name: Option<String>,
        /// The link's new state.
        state: LinkState,
        /// Node at one end.
        a: String,
        /// Node at the other end.
        b: String,
    },
    /// Break labs at random while traffic passes, in rounds. Exit code 1 if a connection broke or a
    /// count was lost.
    Chaos(Chaos),
    /// Run one end of the demonstration's idle connections (in the namespace that it is started
    /// in).
    #[command(hide = true, subcommand)]
    Peer(Peer),
}

/// The two ends of the demonstration's idle connections.
#[derive(Subcommand, Debug)]
enum Peer {
    /// Echo every message.
    Serve { address: SocketAddr },
    /// Open connections and use them on command.
    Connect {
        address: SocketAddr,
        #[arg(long, default_value_t = 1)]
        count: usize,
    },
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, Eq, PartialEq)]
enum LinkState {
    Up,
    Down,
}

#[derive(Parser, Debug)]
struct Up {
    /// Topology file; by default the NAT lab.
    topology: Option<PathBuf>,
    /// The lab's name; by default the topology's. A lab of this name is replaced; without a name, a
    /// lab that is up is an error.
    #[arg(long)]
    name: Option<String>,
    /// One of the topology's modes; by default its first.
    #[arg(long)]
    mode: Option<String>,
    /// Route all traffic through this node while it is up, instead of sharing flows between equal
    /// paths; "" for none.
    #[arg(long)]
    prefer: Option<String>,
    /// Value of a variable of the topology.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    vars: Vec<(String, String)>,
}

/// Random failures.
#[derive(Parser, Debug)]
#[command(
    after_help = "Faults depend only on the seed, the number of the round and the topology. A seed repeats them, also in a
single round:
  stateplane lab chaos --seed 7 --from 31 --rounds 1

tools/chaos/src/lib.rs defines the violations. OUT/chaos.json has every round and violation,
OUT/history-LAB.jsonl every counted packet, OUT/LAB-round-N the logs after a round with a violation."
)]
struct Chaos {
    /// Rounds in each lab.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Begin no round after this many seconds.
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Seed of the faults; by default a new one each time, which is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// The first round's number.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// A topology with a `chaos` field; several run side by side (may be repeated). By default
    /// the NAT lab that is built in, and in the source tree the flow counter's.
    #[arg(long = "topology", value_name = "FILE")]
    topologies: Vec<PathBuf>,
    /// One of the topologies' modes; by default the first of each.
    #[arg(long)]
    mode: Option<String>,
    /// Value of a variable of the topologies.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    vars: Vec<(String, String)>,
    /// Folder for the results.
    #[arg(long, default_value = "out/chaos")]
    out: PathBuf,
    /// Print the report as JSON on standard output; progress goes to standard error in any case.
    #[arg(long)]
    json: bool,
}

pub(crate) fn key_value(text: &str) -> std::result::Result<(String, String), String> {
    text.split_once('=')
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .ok_or_else(|| "must be KEY=VALUE".to_string())
}

/// Reads a topology file, or the built-in lab's; also returns the folder that `${topology_dir}`
/// stands for.
pub(crate) fn read_topology(path: Option<&Path>) -> Result<(Topology, PathBuf)> {
    let path = match path {
        Some(path) => path,
        None => &builtin::topology()?,
    };
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    let folder = std::path::absolute(folder.unwrap_or(Path::new("."))).map_err(Error::io(path))?;
    Ok((Topology::read(path)?, folder))
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    match act(args.action) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("stateplane lab: {error}");
            1
        }
    }
}

fn act(action: Action) -> Result<u8> {
    match action {
        Action::Up(up) => start(up)?,
        Action::Down { name, all } => stop(name.as_deref(), all)?,
        Action::Status { name, json } => {
            let status = lab::status::status(&registry::find(name.as_deref())?)?;
            if json {
                let text = serde_json::to_string_pretty(&status)
                    .map_err(|e| Error::NoLab(e.to_string()))?;
                outln!("{text}");
            } else {
                out!("{}", status.render());
            }
        }
        Action::Exec { name, node, command } => return execute(name.as_deref(), &node, &command),
        Action::Fail { name, node } => registry::find(name.as_deref())?.fail(&node)?,
        Action::Restore { name, node } => {
            let lab = registry::find(name.as_deref())?;
            lab.restore(&node)?;
            lab.wait_converged(&[node])?;
        }
        Action::Kill { name, node, daemon } => {
            registry::find(name.as_deref())?.kill_daemon(&node, &daemon)?
        }
        Action::Start { name, node, daemon } => {
            registry::find(name.as_deref())?.restart_daemon(&node, &daemon)?
        }
        Action::Chaos(arguments) => return chaos(arguments),
        Action::Peer(Peer::Serve { address }) => lab::peer::serve(address)?,
        Action::Peer(Peer::Connect { address, count }) => lab::peer::connect(address, count)?,
        Action::Link { name, state, a, b } => {
            registry::find(name.as_deref())?.set_link(&a, &b, state == LinkState::Up)?;
        }
    }
    Ok(0)
}

fn start(up: Up) -> Result<()> {
    if up.name.is_none() {
        registry::check_none_up()?;
    }
    let (topology, folder) = read_topology(up.topology.as_deref())?;
    command_line::interrupt::install();
    let options = Options {
        name: up.name,
        mode: up.mode,
        vars: up.vars.into_iter().collect::<BTreeMap<_, _>>(),
        prefer: up.prefer,
        owned: false,
    };
    let lab = Lab::up(topology, &folder, options, &|step| eprintln!("{step}"))?;
    let nodes: Vec<&str> = lab.topology().node.keys().map(String::as_str).collect();
    outln!("lab {} is up: {}", lab.name(), nodes.join(", "));
    outln!("stateplane lab exec --name {} NODE -- COMMAND runs a command in a node", lab.name());
    Ok(())
}

fn chaos(arguments: Chaos) -> Result<u8> {
    let files = match arguments.topologies.as_slice() {
        // Outside of a source tree there is the NAT lab.
        [] if Path::new(builtin::OTHER_TOPOLOGY).exists() => {
            vec![None, Some(PathBuf::from(builtin::OTHER_TOPOLOGY))]
        }
        [] => vec![None],
        files => files.iter().cloned().map(Some).collect(),
    };
    let topologies =
        files.iter().map(|file| read_topology(file.as_deref())).collect::<Result<Vec<_>>>()?;
    let clock =
        || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs() % 1_000_000);
    let config = chaos::Config {
        topologies,
        from: arguments.from,
        rounds: arguments.rounds,
        limit: arguments.seconds.map(std::time::Duration::from_secs),
        seed: arguments.seed.unwrap_or_else(clock),
        mode: arguments.mode,
        vars: arguments.vars.into_iter().collect(),
        connections: Default::default(),
        counts: Default::default(),
        out: arguments.out,
    };
    command_line::interrupt::install();
    eprintln!("seed {}", config.seed);
    let report = chaos::run(&config, &|line| eprintln!("{line}"))?;
    if arguments.json {
        let text = serde_json::to_string_pretty(&report).map_err(|e| Error::Run(e.to_string()))?;
        outln!("{text}");
    } else {
        outln!("{}", report.line());
    }
    Ok(u8::from(report.violations() > 0 || report.interrupted))
}

fn stop(name: Option<&str>, all: bool) -> Result<()> {
    if all {
        for name in registry::names() {
            registry::down(&name)?;
            outln!("lab {name} is down");
        }
        return Ok(());
    }
    let name = match name {
        Some(name) => name.to_string(),
        None => match registry::names().as_slice() {
            [only] => only.clone(),
            [] => {
                outln!("no lab is up");
                return Ok(());
            }
            several => {
                return Err(Error::NoLab(format!(
                    "several labs are up ({}): choose one with --name, or all with --all",
                    several.join(", ")
                )));
            }
        },
    };
    registry::down(&name)?;
    outln!("lab {name} is down");
    Ok(())
}

fn execute(name: Option<&str>, node: &str, command: &[String]) -> Result<u8> {
    use std::os::unix::process::ExitStatusExt;
    let netns = registry::find(name)?.netns(node)?;
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| Error::NoLab("exec needs a command after --".to_string()))?;
    let status = netns
        .command(program)?
        .args(arguments)
        .status()
        .map_err(|e| Error::Command { command: command.join(" "), reason: e.to_string() })?;
    // As shells do: 128 and the signal for a command that a signal ended.
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nat_lab_comes_with_its_program() {
        let root = std::env::temp_dir().join(format!("stateplane-builtin-{}", std::process::id()));
        let path = builtin::write(&root).expect("written");
        let (topology, folder) = read_topology(Some(&path)).expect("read");
        assert!(topology.node.contains_key("s1"));
        // As the topology's commands name it.
        let program = folder.join("../p4/nat/nat.p4");
        assert!(p4_check::check_file(&program, &Default::default()).program.is_some());
        std::fs::remove_dir_all(&root).expect("remove");
    }
}

//! `stateplane shared`: the controller of shared variables, and what operators ask of it.

pub(crate) mod groups;
mod switches;

use clap::{Args, Parser, Subcommand};
use command_line::{daemon as commands, outln, print_table};
use controller::config::Keep;
use secrets::SecretsFile;
use std::error::Error;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;
use swish_daemon::{Config, GroupStatus, Status, SwitchStatus};
use swish_protocol::objects::{COUNTER, SKETCH};
use swish_switch::load::relaxation_text;
use swish_switch::orders::{Answer, Ask, Entry, OP, Order};
use switch_agent::client;
use wire::ToolType;

const EXAMPLES: &str = "Examples:
  stateplane shared controller --config controller.toml --check
  stateplane shared controller --config controller.toml
  stateplane shared status --address 10.2.1.10:5412 --secrets fabric.secrets
  stateplane shared status                       the switches of this machine
  stateplane shared leave --switch s1            before it is taken out of service
  stateplane shared join --switch s1
  stateplane shared get signatures --json
  stateplane shared get matches                  a counter or sketch: cells that are not zero
  stateplane shared get matches index=17
  stateplane shared set signatures port=53 payload=0xdeadbeef00000000 id=7
  stateplane shared set blocks source=10.66.0.1
  stateplane shared set connections inside=::ffff:10.0.0.1 outside=::ffff:192.0.2.7 \\
      inside_port=4000 outside_port=53 protocol=17 phase=0 --if-absent
  stateplane shared delete blocks source=10.66.0.1
  stateplane shared clear blocks

systems/swish/docs/controller.example.toml is a commented configuration of a controller.";

/// Help behind the options of `get`, `set`, `delete` and `clear`.
macro_rules! orders {
    ($examples:literal) => {
        concat!(
            "Examples:\n",
            $examples,
            "\n\n",
            "With Shared.EWO a write takes effect at once on the switch of the command, and goes \
             to the others as packets' writes do. The last writer wins.\n\
             With Shared.SRO a write takes effect on all switches of the group before the command \
             returns: it goes through their chain, as a packet's write does. `get` reads values \
             that all switches have.\n\n\
             Exit codes: 0 done; 1 not done (the error says if a write may still take effect), or \
             `get` or `delete` finds no such key; 3 `set --if-absent` finds the key, and writes \
             nothing."
        )
    };
}

const GET: &str = orders!(
    "  stateplane shared get signatures --json
  stateplane shared get blocks source=10.66.0.1
  stateplane shared get matches index=17         a counter, sketch or register"
);
const SET: &str = orders!(
    "  stateplane shared set signatures port=53 payload=0xdeadbeef00000000 id=7
  stateplane shared set blocks source=10.66.0.1  a set
  stateplane shared set thresholds index=3 value=500 --switch s1"
);
const DELETE: &str = orders!(
    "  stateplane shared delete blocks source=10.66.0.1
  stateplane shared delete thresholds index=3    a register: it writes zero"
);
const CLEAR: &str = orders!(
    "  stateplane shared clear blocks
  stateplane shared clear blocks --switch s1"
);
const CONTROLLER: &str = "Examples:
  stateplane shared controller --config controller.toml --check
  stateplane shared controller --config controller.toml

systems/swish/docs/controller.example.toml is a commented configuration.";
const STATUS: &str = "Examples:
  stateplane shared status                       the switches of this machine
  stateplane shared status --switch s1 --json
  stateplane shared status --address 10.2.1.10:5412 --secrets fabric.secrets

Without --address, each switch of this machine is asked: it needs no controller.
Exit codes: 0 all switches share their groups, and controllers answer; 1 they do not, or a switch's \
agent does not answer; 2 there is no answer.";

/// Help behind the options of `leave` and `join`.
macro_rules! moves {
    ($examples:literal) => {
        concat!(
            "Examples:\n",
            $examples,
            "\n\n",
            "Packets of a switch that leaves read window 0, and update nothing. When their \
             earlier updates count at all members, the others go on without the switch. It stays \
             out until `shared join`, or until its agent starts again.\n\
             Exit codes: 0 done; 1 not done within --timeout-ms; 2 there is no answer."
        )
    };
}

const LEAVE: &str = moves!(
    "  stateplane shared leave --switch s1            before it is taken out of service
  stateplane shared leave --switch s1 --group main --timeout-ms 60000"
);
const JOIN: &str = moves!("  stateplane shared join --switch s1");

/// Shared variables: run their controller, show groups, read and write values
#[derive(Parser, Debug)]
#[command(name = "shared", after_help = EXAMPLES)]
pub struct Command {
    #[command(subcommand)]
    word: Word,
}

#[derive(Subcommand, Debug)]
enum Word {
    /// Run a controller: it decides which switches share each group
    #[command(after_help = CONTROLLER)]
    Controller(ControllerArgs),
    /// Show groups, as a controller or the switches of this machine know them
    #[command(after_help = STATUS)]
    Status(StatusArgs),
    /// Take a switch out of its groups, when all its updates count
    #[command(after_help = LEAVE)]
    Leave(LeaveArgs),
    /// Bring a switch that left back into its groups
    #[command(after_help = JOIN)]
    Join(LeaveArgs),
    /// Read a register, table, set, counter or sketch on a switch: one key, or all
    #[command(after_help = GET)]
    Get(OrderArgs),
    /// Write a value, or add a key to a set, for all switches of the group
    #[command(after_help = SET)]
    Set(SetArgs),
    /// Remove a key; of a register: write zero
    #[command(after_help = DELETE)]
    Delete(OrderArgs),
    /// Remove all keys that the switch has
    #[command(after_help = CLEAR)]
    Clear(ClearArgs),
}

/// Words after `shared get`, `set` and `delete`.
#[derive(Args, Debug)]
struct OrderArgs {
    /// The variable's name, or the last part of the name.
    #[arg(value_name = "NAME")]
    object: String,
    /// Fields of the key, and of the value: numbers, addresses, members of enums. Where key and
    /// value have fields of one name: key.FIELD, value.FIELD. The key of a register, counter or
    /// sketch is `index`.
    #[arg(value_name = "FIELD=VALUE", value_parser = field)]
    fields: Vec<(String, String)>,
    /// The switch; needed only if several run on this machine.
    #[arg(long)]
    switch: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Words after `shared clear`.
#[derive(Args, Debug)]
struct ClearArgs {
    /// The variable; the last part of its name will do.
    #[arg(value_name = "NAME")]
    object: String,
    /// The switch; may be left out if only one runs.
    #[arg(long)]
    switch: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl From<&ClearArgs> for OrderArgs {
    fn from(args: &ClearArgs) -> OrderArgs {
        let ClearArgs { object, switch, json } = args;
        let (object, switch) = (object.clone(), switch.clone());
        OrderArgs { object, fields: vec![], switch, json: *json }
    }
}

/// Words after `shared set`.
#[derive(Args, Debug)]
struct SetArgs {
    #[command(flatten)]
    order: OrderArgs,
    /// With Shared.SRO, of a table whose program says how long keys stay (`idle_s`): the key is
    /// removed after so many seconds without a packet that reads it. Otherwise it stays.
    #[arg(long, value_name = "S")]
    idle_s: Option<u16>,
    /// With Shared.SRO: write nothing if the key is there. The head of the chain decides, so of
    /// all writers of an absent key one wins. Exit code 3, and what is there, if it stays.
    #[arg(long)]
    if_absent: bool,
}

fn field(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write FIELD=VALUE, as in source=10.0.0.1".into()),
    }
}

/// Words after `shared controller`.
#[derive(Args, Debug)]
struct ControllerArgs {
    /// The controller's configuration.
    #[arg(long = "config", id = "controller_config", value_name = "FILE")]
    config: PathBuf,
    /// Only check the configuration: exit code 0 if it is good, 1 with the reason if not.
    #[arg(long)]
    check: bool,
}

/// Words after `shared status`.
#[derive(Args, Debug)]
struct StatusArgs {
    /// Only this switch of this machine.
    #[arg(long, value_name = "NAME", conflicts_with = "address")]
    switch: Option<String>,
    /// The controller's address.
    #[arg(long, value_name = "IP:PORT", requires = "secrets")]
    address: Option<SocketAddrV4>,
    /// The fabric's shared secrets (`stateplane keys`); the controller answers only with them.
    #[arg(long, value_name = "FILE", requires = "address")]
    secrets: Option<PathBuf>,
    /// How long to wait for an answer.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    timeout_ms: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Words after `shared leave` and `shared join`.
#[derive(Args, Debug)]
struct LeaveArgs {
    /// The switch; needed only if several run on this machine.
    #[arg(long, value_name = "NAME")]
    switch: Option<String>,
    /// Only this group; otherwise all groups that have controllers.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// How long to wait until it is done.
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    timeout_ms: u64,
}

type Said<T> = Result<T, Box<dyn Error>>;

/// The exit code of a write that found its key. (1 may mean that the outcome is unknown.)
const KEPT: u8 = 3;

/// Runs a command; the exit code.
pub fn run(command: &Command) -> u8 {
    let (done, failed) = match &command.word {
        Word::Controller(args) => (controller(args), 1),
        Word::Status(args) => (status(args), 2),
        Word::Leave(args) => (switches::moves(args, true), 2),
        Word::Join(args) => (switches::moves(args, false), 2),
        Word::Get(args) => (order(args, Order::Get, None, false), 1),
        Word::Set(SetArgs { order: args, idle_s, if_absent }) => {
            (order(args, Order::Set, *idle_s, *if_absent), 1)
        }
        Word::Delete(args) => (order(args, Order::Delete, None, false), 1),
        Word::Clear(args) => (order(&args.into(), Order::Clear, None, false), 1),
    };
    done.unwrap_or_else(|error| {
        eprintln!("stateplane shared: {error}");
        failed
    })
}

/// Runs or checks a controller.
fn controller(args: &ControllerArgs) -> Said<u8> {
    let config = Config::load(&args.config)?;
    if args.check {
        if let Keep::Database(file) = &config.shell.keep {
            commands::can_keep_database(&args.config, file)?;
        }
        config.shell.keys()?;
        outln!("{}: good", args.config.display());
        return Ok(0);
    }
    commands::log();
    swish_daemon::run(&config)?;
    Ok(0)
}

/// Prints groups and switches.
fn status(args: &StatusArgs) -> Said<u8> {
    let timeout = Duration::from_millis(args.timeout_ms);
    let (Some(address), Some(secrets)) = (args.address, &args.secrets) else {
        return switches::status(args.switch.as_deref(), args.json);
    };
    let secrets = SecretsFile::load(secrets)?;
    let status: Status =
        daemon::ask::ask(ToolType::StatusRequest, &[], address, secrets.ring(), timeout)?;
    let code = u8::from(!status.settled);
    if args.json {
        outln!("{}", command_line::json(&status));
        return Ok(code);
    }
    let settled = if status.settled { "settled" } else { "changing" };
    let leads = if status.leading { "leading" } else { "waiting for its turn" };
    outln!("{leads}  decision {}  {settled}", status.version);
    if let Some(why) = &status.cannot_decide {
        outln!("  the controller cannot decide: {why}");
    }
    status.groups.iter().for_each(print);
    Ok(code)
}

/// Asks a switch's agent.
fn order(args: &OrderArgs, order: Order, idle_s: Option<u16>, if_absent: bool) -> Said<u8> {
    let OrderArgs { object, fields, switch, json } = args;
    let (object, fields) = (object.clone(), fields.clone());
    let is_of_one = !fields.is_empty();
    let ask = Ask { op: OP.to_owned(), order, object, fields, idle_s, if_absent };
    let answer: Answer = client::ask_system(&client::find(switch.as_deref())?, &ask)?;
    let is_missing = answer.absent || order == Order::Get && is_of_one && answer.entries.is_empty();
    let code = if answer.kept { KEPT } else { u8::from(is_missing) };
    if *json {
        outln!("{}", command_line::json(&answer));
        return Ok(code);
    }
    let Answer { object, kind, size, window, removed, kept, absent, entries } = &answer;
    let has_cells = [COUNTER, SKETCH].contains(&kind.as_str());
    let of = window.map_or(String::new(), |window| format!(" in window {window}"));
    match order {
        Order::Get if has_cells && is_of_one => outln!("{object}{of}"),
        Order::Get if has_cells => {
            outln!("{object}{of}: {} of {size} cells are not zero", entries.len());
        }
        Order::Get if is_of_one && entries.is_empty() => outln!("{object}: no such key"),
        Order::Get if !is_of_one => {
            outln!("{object}: {} of {size} keys, {removed} removed", entries.len());
        }
        Order::Set if *kept => outln!("{object}: the key is there, and stays as it is"),
        Order::Get | Order::Set => outln!("{object}"),
        Order::Delete if *absent => outln!("{object}: no such key"),
        Order::Delete => outln!("{object}: removed"),
        Order::Clear => outln!("{object}: {} keys removed", entries.len()),
    }
    if matches!(order, Order::Get | Order::Set) && !entries.is_empty() {
        let fields = |fields: &[(String, String)]| {
            let all: Vec<String> = fields.iter().map(|(name, it)| format!("{name}={it}")).collect();
            all.join(" ")
        };
        let times = entries.iter().any(|it| it.idle_s.is_some());
        let idle = |it: &Entry| it.idle_s.map_or("never".to_owned(), |idle_s| idle_s.to_string());
        let rows = entries.iter().map(|it| {
            let time = times.then(|| idle(it));
            [fields(&it.key), fields(&it.value)].into_iter().chain(time).collect()
        });
        let columns = ["key", "value", "over after idle seconds"];
        print_table(&columns[..2 + usize::from(times)], rows.collect());
    }
    Ok(code)
}

fn print(group: &GroupStatus) {
    let GroupStatus { group: name, view, stage, window, age_ms, .. } = group;
    let relaxation = relaxation_text(group.relaxation, group.unbounded);
    outln!("");
    match group.batches {
        Some((written, all)) => {
            outln!("group {name}: view {view}, {stage}; {written} batches, {all} at all switches");
        }
        None if group.eventual => {
            outln!("group {name}: view {view}, {stage}; members heard in the last {age_ms} ms");
        }
        None => outln!(
            "group {name}: view {view}, {stage}, window {window}, for {age_ms} ms; r {relaxation}"
        ),
    }
    for (one, other) in &group.held_up {
        if group.eventual {
            outln!("  {one} hears nothing of {other}");
        } else {
            outln!("  held up: {one} lacks messages of {other}");
        }
    }
    for (switch, newer) in &group.ahead {
        outln!("  {switch} is in view {newer}, the database has {view}");
    }
    for why in group.switches.iter().filter_map(|it| it.excluded.as_ref()) {
        outln!("  {}", why.text());
    }
    let row = |it: &SwitchStatus| {
        let report = it.report_ms.map_or("never".to_owned(), |ms| format!("{ms} ms ago"));
        let (number, view) = (it.number.to_string(), it.view.to_string());
        let address = it.address.to_string();
        let (received, memory) = (bytes(it.bytes_per_s), bytes(it.memory_bytes));
        let window = match it.window {
            _ if group.eventual => String::new(),
            0 => "none".to_owned(),
            window => window.to_string(),
        };
        let standing = it.standing.clone();
        vec![number, address, standing, view, window, format!("{received}/s"), memory, report]
    };
    print_table(
        &["", "switch", "standing", "view", "window", "received", "memory", "reported"],
        group.switches.iter().map(row).collect(),
    );
}

/// Bytes for people.
fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{} KB", count / 1000),
        _ => format!("{} MB", count / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn each_word_has_an_example() {
        for word in Command::command().get_subcommands() {
            let help = word.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = format!("  stateplane shared {}", word.get_name());
            assert!(help.starts_with("Examples:\n") && help.contains(&example), "{example}");
            assert!(help.contains("Exit codes: 0") || word.get_name() == "controller", "{example}");
        }
    }

    #[test]
    fn words_take_what_they_can_use() {
        let takes = |words: &[&str]| Command::try_parse_from(words).is_ok();
        assert!(takes(&["shared", "clear", "blocks", "--switch", "s1"]));
        assert!(!takes(&["shared", "clear", "blocks", "source=10.66.0.1"]));
        assert!(takes(&["shared", "status", "--switch", "s1"]));
        let both = ["--switch", "s1", "--address", "10.0.0.1:5412", "--secrets", "f"];
        assert!(!takes(&[&["shared", "status"][..], &both].concat()));
    }
}

//! `stateplane table`: entries of a running switch. Also what the commands about a running switch
//! share.

mod replace;

use clap::Subcommand;
use command_line::{json, outln, print_table as print};
use dataplane::{ActionSpec, EntrySpec, KeySpec};
use switch_agent::client;
use switch_agent::control::{Reply, Request, TableListing};
use switch_agent::origin::Origin;

/// Command line of `stateplane table`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  stateplane table                                         the tables (as `table list`)
  stateplane table list MyIngress.routes --json            its entries
  stateplane table add MyIngress.routes hdr.ipv4.dst=10.0.0.0/8 -a MyIngress.forward port=2
  stateplane table add acl 10.0.0.0&&&255.0.0.0 '*' -a drop --priority 10
  stateplane table replace roles.toml --incarnation 0x0f2c1a07
  stateplane table delete MyIngress.routes 10.0.0.0/8
  stateplane table set-default MyIngress.routes MyIngress.drop

How long a change lasts: docs/deploy.md, \"Entries added at run time\".")]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    target: Target,
}

/// Which switch, and how to print.
#[derive(clap::Args, Debug)]
pub struct Target {
    /// The switch; may be left out if only one runs.
    #[arg(long, global = true)]
    pub switch: Option<String>,
    /// Print JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// List a table's entries; without a table, the tables.
    List {
        /// The table's name; its last part is enough if only one table has it.
        table: Option<String>,
    },
    /// Add an entry: `add TABLE KEY=MATCH… -a ACTION PARAMETER=VALUE…`.
    Add {
        /// The table's name, as `table list` shows it, or its last part.
        table: String,
        /// KEY=MATCH; a match is a value, value/length, value&&&mask or *. A value may be the name
        /// of a member of the key's enum. Without KEY=, in the table's order.
        keys: Vec<String>,
        /// ACTION, then PARAMETER=VALUE… (or values in order).
        #[arg(short, long, num_args = 1.., required = true)]
        action: Vec<String>,
        /// Priority of an entry of a ternary table: the highest wins (the lowest if the table has
        /// `largest_priority_wins = false`).
        #[arg(short, long)]
        priority: Option<u32>,
        /// Change the action of an existing entry.
        #[arg(long)]
        replace: bool,
        /// The switch's incarnation that the entry is for (`stateplane switch status`); a switch
        /// with another one refuses the entry. Tables whose entries hold for one incarnation need
        /// it.
        #[arg(long, value_name = "NUMBER", value_parser = replace::number)]
        incarnation: Option<u32>,
    },
    /// Exchange all entries of tables as one: those of FILE become the only ones.
    Replace(replace::Args),
    /// Delete an entry: `delete TABLE KEY=MATCH…`.
    Delete {
        /// The table's name, as `table list` shows it, or its last part.
        table: String,
        /// As for `add`.
        keys: Vec<String>,
    },
    /// Set a table's default action.
    SetDefault {
        /// The table's name, as `table list` shows it, or its last part.
        table: String,
        /// The action's name.
        #[arg(required_unless_present = "reset")]
        action: Option<String>,
        /// PARAMETER=VALUE, or values in order.
        arguments: Vec<String>,
        /// Restore the program's own default action.
        #[arg(long, conflicts_with_all = ["action", "arguments"])]
        reset: bool,
    },
}

/// Prints an error, if it is one; the exit code.
pub fn exit_code(command: &str, result: switch_agent::Result<()>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("stateplane {command}: {error}");
            error.exit_code()
        }
    }
}

/// `name=value`, or a value alone. The first `=` divides.
fn pair(text: &str) -> (Option<String>, String) {
    match text.split_once('=') {
        Some((name, value)) => (Some(name.to_owned()), value.to_owned()),
        None => (None, text.to_owned()),
    }
}

fn keys(texts: &[String]) -> Vec<KeySpec> {
    let key = |text: &String| {
        let (name, text) = pair(text);
        KeySpec { name, text }
    };
    texts.iter().map(key).collect()
}

fn action(name: &str, arguments: &[String]) -> ActionSpec {
    ActionSpec {
        name: name.to_owned(),
        arguments: arguments.iter().map(|text| pair(text)).collect(),
    }
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    exit_code("table", act(&args))
}

fn act(args: &Args) -> switch_agent::Result<()> {
    let request = match args.action.as_ref().unwrap_or(&Action::List { table: None }) {
        Action::List { table: None } => Request::Tables,
        Action::List { table: Some(table) } => Request::TableList { table: table.clone() },
        Action::Add { table, keys: texts, action: words, priority, replace, incarnation } => {
            let (name, arguments) =
                words.split_first().map_or(("", &[][..]), |(name, rest)| (name, rest));
            let entry = EntrySpec {
                keys: keys(texts),
                priority: *priority,
                action: action(name, arguments),
            };
            Request::TableAdd {
                table: table.clone(),
                entry,
                replace: *replace,
                incarnation: *incarnation,
            }
        }
        Action::Replace(args) => replace::request(args)?,
        Action::Delete { table, keys: texts } => {
            Request::TableDelete { table: table.clone(), keys: keys(texts) }
        }
        Action::SetDefault { table, action: name, arguments, reset: _ } => {
            Request::TableSetDefault {
                table: table.clone(),
                action: name.as_ref().map(|name| action(name, arguments)),
            }
        }
    };
    let reply = client::ask(&client::find(args.target.switch.as_deref())?, &request)?;
    match &reply {
        _ if args.target.json => outln!("{}", json(&reply)),
        Reply::Tables { tables } => {
            let rows = tables.iter().map(|table| {
                let keys = table
                    .keys
                    .iter()
                    .map(|(name, kind)| format!("{name}: {kind}"))
                    .collect::<Vec<_>>();
                vec![
                    table.name.clone(),
                    table.kind.clone(),
                    format!("{}/{}", table.entries, table.size),
                    table.at_run_time.to_string(),
                    keys.join(", "),
                ]
            });
            print(&["table", "kind", "entries", "at run time", "keys"], rows.collect());
        }
        Reply::Table(listing) => list(listing),
        Reply::Replaced { incarnation, tables } => replace::print(*incarnation, tables),
        Reply::Done => outln!("{}", args.action.as_ref().map_or("", how_long)),
        _ => {}
    }
    Ok(())
}

/// How long a change lasts.
fn how_long(action: &Action) -> &'static str {
    match action {
        Action::List { .. } | Action::Replace(_) => "",
        Action::Add { .. } => {
            "added: the entry stays until it is deleted, until `switch detach`, `switch --fresh` \
             or a reboot; the configuration (table.entry) brings one at every start"
        }
        Action::Delete { .. } => {
            "deleted: if the configuration (table.entry) has the entry, \
             the next start of the agent adds it again"
        }
        Action::SetDefault { .. } => {
            "set: it stays until the agent starts with a default in the configuration \
             (table.default), until `switch detach`, `switch --fresh` or a reboot"
        }
    }
}

/// An enum's name for a value, or the value.
fn named<'a>(names: &'a [(String, String)], (of, value): &'a (String, String)) -> &'a str {
    names.iter().find(|(name, _)| name == of).map_or(value, |(_, member)| member)
}

fn call(name: &str, arguments: &[(String, String)], names: &[(String, String)]) -> String {
    let argument = |it: &(String, String)| format!("{}={}", it.0, named(names, it));
    let arguments: Vec<String> = arguments.iter().map(argument).collect();
    format!("{name}({})", arguments.join(", "))
}

fn list(listing: &TableListing) {
    let counts = |counter: &Option<(u64, u64)>| match counter {
        Some((packets, bytes)) => vec![packets.to_string(), bytes.to_string()],
        None => vec![],
    };
    let counting = listing.default_counter.is_some()
        || listing.entries.iter().any(|entry| entry.counter.is_some());
    let mut head: Vec<&str> = listing.keys.iter().map(String::as_str).collect();
    head.extend(listing.ternary.then_some("priority"));
    head.extend(["action", "from"]);
    head.extend(counting.then_some(["packets", "bytes"]).into_iter().flatten());
    let mut rows: Vec<Vec<String>> = vec![];
    let from = |origin: Option<&Origin>| origin.map_or("", |origin| origin.name()).to_owned();
    for (at, entry) in listing.entries.iter().enumerate() {
        let mut row: Vec<String> =
            entry.keys.iter().map(|key| named(&entry.key_names, key).to_owned()).collect();
        row.extend(listing.ternary.then(|| entry.priority.unwrap_or(0).to_string()));
        row.push(
            call(&entry.action, &entry.arguments, &entry.argument_names)
                + if entry.constant { " (const)" } else { "" },
        );
        row.push(from(listing.origins.get(at)));
        row.extend(counts(&entry.counter));
        rows.push(row);
    }
    let mut row: Vec<String> = listing
        .keys
        .iter()
        .enumerate()
        .map(|(index, _)| if index == 0 { "default" } else { "" }.to_owned())
        .collect();
    row.extend(listing.ternary.then(String::new));
    let names = &listing.default_argument_names;
    row.push(call(&listing.default_action, &listing.default_arguments, names));
    row.push(from(listing.default_origin.as_ref()));
    row.extend(counts(&listing.default_counter));
    rows.push(row);
    print(&head, rows);
    if let Some(version) = listing.version {
        outln!("version {version}: all entries are exchanged as one (`table replace`)");
    }
}

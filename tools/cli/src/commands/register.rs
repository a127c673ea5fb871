//! `stateplane register`

use super::table::{Target, exit_code};
use clap::Subcommand;
use command_line::{json, outln, print_table as print};
use manifest::Register;
use switch_agent::client;
use switch_agent::control::{Reply, Request};

/// Command line of `stateplane register`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  stateplane register                               the registers
  stateplane register read MyIngress.seen           every element
  stateplane register read seen 7 --json            one element; a unique end of a name is enough
  stateplane register write MyIngress.seen 7 0x2a")]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Read elements; without an index, all; without a register, list the registers.
    Read {
        /// The register's name; its last part is enough if only one register has it.
        register: Option<String>,
        /// Index of the element.
        index: Option<u32>,
    },
    /// Write an element.
    Write {
        /// The register's name.
        register: String,
        /// Index of the element.
        index: u32,
        /// Decimal, 0x…, or an address.
        value: String,
    },
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    exit_code("register", act(&args))
}

fn act(args: &Args) -> switch_agent::Result<()> {
    let run = client::find(args.target.switch.as_deref())?;
    let request = match &args.action {
        None | Some(Action::Read { register: None, .. }) => {
            return list(&run.running_manifest()?.registers, args.target.json);
        }
        Some(Action::Read { register: Some(register), index }) => {
            Request::RegisterRead { register: register.clone(), index: *index }
        }
        Some(Action::Write { register, index, value }) => Request::RegisterWrite {
            register: register.clone(),
            index: *index,
            value: value.clone(),
        },
    };
    let reply = client::ask(&run, &request)?;
    match &reply {
        _ if args.target.json => outln!("{}", json(&reply)),
        Reply::Register { elements, names, index_names, .. } => {
            let row = |(index, value): &(u32, String)| {
                let value = named(names, *index).unwrap_or(value).to_owned();
                vec![of_index(index_names, *index), value]
            };
            let rows = elements.iter().map(row);
            print(&["index", "value"], rows.collect());
        }
        _ => {}
    }
    Ok(())
}

/// An enum's name for an element.
fn named(names: &[(u32, String)], index: u32) -> Option<&str> {
    names.iter().find(|(named, _)| *named == index).map(|(_, member)| member.as_str())
}

/// An element's index, with its name if it has one.
pub(super) fn of_index(names: &[(u32, String)], index: u32) -> String {
    named(names, index).map_or(index.to_string(), |member| format!("{index} ({member})"))
}

fn list(registers: &[Register], as_json: bool) -> switch_agent::Result<()> {
    if as_json {
        outln!("{}", json(&registers));
        return Ok(());
    }
    let row = |it: &Register| {
        let sort = if it.signed { "int" } else { "bit" };
        vec![it.name.clone(), format!("{sort}<{}>", it.width), it.size.to_string()]
    };
    print(&["register", "type", "elements"], registers.iter().map(row).collect());
    Ok(())
}

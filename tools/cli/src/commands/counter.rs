//! `stateplane counter`

use super::table::{Target, exit_code};
use clap::Subcommand;
use command_line::{json, outln, print_table as print};
use manifest::Counter;
use switch_agent::client;
use switch_agent::control::{Reply, Request};

/// Command line of `stateplane counter`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  stateplane counter                                    the counters
  stateplane counter read NatIngress.translated_out     every element that is not zero
  stateplane counter read translated_out 0 --json")]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Read elements; without an index, all that are not zero. Without a counter, list the
    /// counters.
    Read {
        /// The counter's name; its last part is enough if only one counter has it.
        counter: Option<String>,
        /// Index of the element.
        index: Option<u32>,
    },
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    exit_code("counter", act(&args))
}

fn act(args: &Args) -> switch_agent::Result<()> {
    let run = client::find(args.target.switch.as_deref())?;
    let Some(Action::Read { counter: Some(counter), index }) = &args.action else {
        return list(&run.running_manifest()?.counters, args.target.json);
    };
    let request = Request::CounterRead { counter: counter.clone(), index: *index };
    let reply = client::ask(&run, &request)?;
    match &reply {
        _ if args.target.json => outln!("{}", json(&reply)),
        Reply::Counter { elements, unit, index_names, .. } => {
            let (packets, bytes) = (unit.contains("packets"), unit.contains("bytes"));
            let mut head = vec!["index"];
            head.extend(packets.then_some("packets"));
            head.extend(bytes.then_some("bytes"));
            let rows = elements.iter().map(|(index, value)| {
                let mut row = vec![super::register::of_index(index_names, *index)];
                row.extend(packets.then(|| value.packets.to_string()));
                row.extend(bytes.then(|| value.bytes.to_string()));
                row
            });
            print(&head, rows.collect());
        }
        _ => {}
    }
    Ok(())
}

fn list(counters: &[Counter], as_json: bool) -> switch_agent::Result<()> {
    if as_json {
        outln!("{}", json(&counters));
        return Ok(());
    }
    let row = |it: &Counter| vec![it.name.clone(), it.unit.replace('_', " "), it.size.to_string()];
    print(&["counter", "unit", "elements"], counters.iter().map(row).collect());
    Ok(())
}

//! `stateplane switch flows`: the flows of a FlowState object on a running switch.

use command_line::outln;
use redplane_switch::{Flows, FlowsRequest};
use switch_agent::client;

/// Show the flows of a FlowState object.
#[derive(clap::Parser, Debug)]
#[command(name = "flows")]
pub struct Args {
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
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    match flows(args) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("stateplane switch: {error}");
            1
        }
    }
}

fn flows(args: Args) -> switch_agent::Result<()> {
    let request = FlowsRequest { object: args.object, limit: args.limit };
    let reply: Flows = client::ask_system(&client::find(args.switch.as_deref())?, &request)?;
    if args.json {
        outln!("{}", command_line::json(&reply));
        return Ok(());
    }
    let Flows { object, count, flows } = &reply;
    outln!("{object}: {count} flows");
    let fields = |pairs: &[(String, String)], members: &[(String, String)]| {
        let named = |name: &str| members.iter().find(|(of, _)| of == name).map(|(_, it)| it);
        let field =
            |(name, value): &(String, String)| format!("{name}={}", named(name).unwrap_or(value));
        pairs.iter().map(field).collect::<Vec<_>>().join(" ")
    };
    let rows = flows.iter().map(|flow| {
        vec![fields(&flow.key, &flow.key_names), fields(&flow.value, &flow.value_names)]
    });
    command_line::print_table(&["key", "value"], rows.collect());
    if flows.len() < *count {
        outln!("… and {} more (--limit)", count - flows.len());
    }
    Ok(())
}

//! `stateplane ports`

use super::table::{Target, exit_code};
use command_line::{json, outln, print_table as print};
use switch_agent::client;
use switch_agent::control::{Reply, Request};

/// Command line of `stateplane ports`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  stateplane ports                  every port with its packets and bytes
  stateplane ports --switch s1 --json")]
pub struct Args {
    #[command(flatten)]
    target: Target,
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    exit_code("ports", act(&args))
}

fn act(args: &Args) -> switch_agent::Result<()> {
    let reply = client::ask(&client::find(args.target.switch.as_deref())?, &Request::Ports)?;
    match &reply {
        _ if args.target.json => outln!("{}", json(&reply)),
        Reply::Ports { ports } => {
            let rows = ports.iter().map(|port| {
                let role = match (port.attached, port.fabric) {
                    (false, _) => "away",
                    (true, true) => "fabric",
                    (true, false) => "edge",
                };
                let stats = &port.stats;
                let counts = [
                    stats.rx_packets,
                    stats.rx_bytes,
                    stats.tx_packets,
                    stats.tx_bytes,
                    stats.dropped,
                    stats.to_host,
                ];
                let mut row = vec![port.port.to_string(), port.interface.clone(), role.to_owned()];
                row.extend(counts.iter().map(u64::to_string));
                row
            });
            let head = [
                "port",
                "interface",
                "role",
                "rx",
                "rx bytes",
                "tx",
                "tx bytes",
                "dropped",
                "to host",
            ];
            print(&head, rows.collect());
        }
        _ => {}
    }
    Ok(())
}

//! `stateplane kv found` and `kv ring`: founding files.

use clap::Args;
use command_line::outln;
use netchain_client::{Founding, Member, Report, Ring, read_ring};
use rand::TryRngCore;
use rand::rngs::OsRng;
use serde_json::json;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// Words after `kv found`.
#[derive(Args, Debug)]
pub struct FoundArgs {
    /// NetChain address of each switch, and the rack where it fails together with others: ADDRESS
    /// or ADDRESS=RACK. By default each switch is a rack of its own.
    #[arg(required = true, value_name = "SWITCH")]
    switches: Vec<String>,
    /// Groups that keys are spread over. Each has a chain, and fails over and is copied on its own.
    #[arg(long, default_value_t = 512)]
    groups: u16,
    /// Virtual nodes of each switch: with more of them chains spread more evenly.
    #[arg(long, default_value_t = 100)]
    virtual_nodes: u16,
    /// Switches of a chain that may fail at a time. A chain has one switch more.
    #[arg(long, default_value_t = 2)]
    failures: usize,
}

/// Words after `kv ring`.
#[derive(Args, Debug)]
pub struct RingArgs {
    /// A founding file, as `kv found` writes it.
    file: PathBuf,
}

fn member(text: &str) -> Result<Member, String> {
    let (address, rack) = text.split_once('=').unwrap_or((text, text));
    let address: Ipv4Addr =
        address.parse().map_err(|_| format!("{text}: write ADDRESS or ADDRESS=RACK"))?;
    Ok(Member { address, rack: rack.to_owned() })
}

/// Prints a founding file with a random identity.
pub fn found(args: &FoundArgs) -> Result<(), String> {
    let identity = OsRng.try_next_u64().map_err(|error| error.to_string())?;
    let ring = Ring::found(Founding {
        cluster: format!("{identity:016x}"),
        groups: args.groups,
        virtual_nodes: args.virtual_nodes,
        failures: args.failures,
        member: args.switches.iter().map(|it| member(it)).collect::<Result<_, _>>()?,
    })?;
    outln!("# What a NetChain cluster was founded with: never change it.");
    outln!(
        "# All clients, switches and controllers have this file. Fingerprint: {:08x}",
        ring.fingerprint()
    );
    outln!("{}", ring.to_toml()?.trim_end());
    Ok(())
}

/// Prints how evenly a founding file spreads keys, chains and recovery.
pub fn ring(args: &RingArgs, as_json: bool) -> Result<(), String> {
    let report = Report::of(&read_ring(&args.file)?);
    if as_json {
        outln!("{}", json!(report));
    } else {
        outln!("{}", table(&report).trim_end());
    }
    Ok(())
}

/// The report for people.
fn table(report: &Report) -> String {
    let Report { fingerprint, groups, replicas, shares } = report;
    let share = 100.0 / f64::from(*groups);
    let mut text = format!(
        "fingerprint {fingerprint:08x}: {groups} groups, each with {share:.2} % of the keys, in \
         chains of {replicas}\n\n\
         {:<16}{:>8}{:>8}{:>8}{:>8}   when it dies, others take over\n",
        "switch", "chains", "keys %", "heads", "tails"
    );
    for (address, it) in shares {
        let mut heirs: Vec<_> = it.heirs.iter().collect();
        heirs.sort_by_key(|(address, parts)| (std::cmp::Reverse(**parts), **address));
        let mut said: Vec<String> =
            heirs.iter().map(|(address, parts)| format!("{address}: {parts}")).collect();
        if it.short > 0 {
            said.push(format!("nobody: {}", it.short));
        }
        let keys = f64::from(it.chains) * share;
        text += &format!(
            "{:<16}{:>8}{keys:>8.1}{:>8}{:>8}   {}\n",
            address.to_string(),
            it.chains,
            it.heads,
            it.tails,
            said.join(", ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_an_address_and_perhaps_a_rack() {
        assert_eq!(member("10.9.0.1=a").unwrap().rack, "a");
        assert_eq!(member("10.9.0.1").unwrap().rack, "10.9.0.1");
        assert!(member("s1=a").unwrap_err().contains("s1=a"));
    }

    #[test]
    fn the_table_has_a_line_for_each_switch() {
        let member = (1..=4).map(|i| super::member(&format!("10.9.0.{i}")).unwrap()).collect();
        let cluster = "0123456789abcdef".into();
        let founding = Founding { cluster, groups: 8, virtual_nodes: 10, failures: 2, member };
        let text = table(&Report::of(&Ring::found(founding).unwrap()));
        assert_eq!(text.lines().count(), 7, "{text}");
        assert!(text.contains("8 groups, each with 12.50 % of the keys, in chains of 3"), "{text}");
        let first = text.lines().find(|line| line.starts_with("10.9.0.1 ")).unwrap();
        assert!(first.ends_with("10.9.0.4: 3, 10.9.0.2: 1, 10.9.0.3: 1"), "{first}");
    }
}

//! The state protocol's messages on the wire between a switch and the stores: counted, or lost on
//! purpose, by nftables on the router between them.

use crate::apps::{STORES_ROUTER, SWITCH};
use crate::labs::Running;
use anyhow::{Context, Result, bail};
use lab::netns::Netns;
use serde_json::Value;

/// UDP ports of the state protocol: the stores', and the controllers'.
const PORTS: &str = "{ 5407, 5408 }";
/// The stores' alone: what is lost on purpose is updates and their acknowledgements.
const STORE_PORT: &str = "5407";
const ETHERNET_BYTES: u64 = 14;

/// Rules on a router for the messages of one switch; they stay until the lab goes down.
pub struct Messages {
    router: Netns,
}

/// What was on the wire.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Messages both ways.
    pub packets: u64,
    /// Their bytes, Ethernet included.
    pub bytes: u64,
}

impl Messages {
    /// Begins to count: what the switch and the stores tell each other, and its reports to
    /// controllers with their answers.
    ///
    /// # Errors
    /// nftables refuses.
    pub fn count(lab: &Running) -> Result<Messages> {
        Messages::rules(lab, PORTS, "counter")
    }

    /// Replaces the rules: these many of a million messages are lost, each way by itself.
    ///
    /// # Errors
    /// nftables refuses.
    pub fn lose(lab: &Running, per_million: u32) -> Result<Messages> {
        let drop = format!("numgen random mod 1000000 < {per_million} counter drop");
        Messages::rules(lab, STORE_PORT, &drop)
    }

    fn rules(lab: &Running, ports: &str, verdict: &str) -> Result<Messages> {
        let messages = Messages { router: lab.netns(STORES_ROUTER)? };
        let address =
            lab.node(SWITCH)?.loopback.as_deref().context("the switch has no loopback address")?;
        let rules = rules(address.trim_end_matches("/32"), ports, verdict);
        messages.nft(&[&rules])?;
        Ok(messages)
    }

    fn nft(&self, arguments: &[&str]) -> Result<String> {
        let command: Vec<String> =
            ["nft"].iter().chain(arguments).map(|word| (*word).to_owned()).collect();
        let (good, said) = lab::process::run(Some(&self.router), &command)?;
        if !good {
            bail!("{}: {}", command.join(" "), said.trim());
        }
        Ok(said)
    }

    /// What the rules have counted.
    ///
    /// # Errors
    /// nftables says nothing that can be read.
    pub fn seen(&self) -> Result<Seen> {
        let text = self.nft(&["-j", "list", "table", "ip", "bench"])?;
        let value: Value = serde_json::from_str(&text).context("nft -j")?;
        let mut seen = Seen::default();
        add_counters(&value, &mut seen);
        seen.bytes += seen.packets * ETHERNET_BYTES;
        Ok(seen)
    }
}

/// For messages from and to the switch's protocol address, of these ports at the other end. (Not by
/// interface: when a link between router and switch is out for a moment, messages come another
/// way.)
fn rules(address: &str, ports: &str, verdict: &str) -> String {
    format!(
        "add table ip bench\ndelete table ip bench\ntable ip bench {{ chain messages {{ type filter hook forward priority -300; \
         ip saddr {address} udp dport {ports} {verdict}; ip daddr {address} udp sport {ports} {verdict}; }}; }}"
    )
}

/// Sums all counters of nftables' JSON.
fn add_counters(value: &Value, seen: &mut Seen) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| add_counters(item, seen)),
        Value::Object(fields) => {
            for (name, field) in fields {
                if let (true, Some(packets), Some(bytes)) =
                    (name == "counter", field["packets"].as_u64(), field["bytes"].as_u64())
                {
                    seen.packets += packets;
                    seen.bytes += bytes;
                } else {
                    add_counters(field, seen);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_messages_count_and_are_not_lost() {
        assert_eq!(
            rules("10.255.0.1", PORTS, "counter").matches("port { 5407, 5408 } counter").count(),
            2
        );
        assert!(!rules("10.255.0.1", STORE_PORT, "drop").contains("5408"));
    }

    #[test]
    fn counters_are_found_where_nftables_puts_them() {
        let text = r#"{"nftables":[{"rule":{"expr":[{"match":{}},{"counter":{"packets":2,"bytes":100}}]}},
            {"rule":{"expr":[{"counter":{"packets":1,"bytes":30}},{"drop":null}]}}]}"#;
        let mut seen = Seen::default();
        add_counters(&serde_json::from_str(text).expect("JSON"), &mut seen);
        assert_eq!((seen.packets, seen.bytes), (3, 130));
    }
}

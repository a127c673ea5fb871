//! The state protocol's messages on the wire between a switch and the stores: counted, or lost on purpose, by nftables on the router between them.

use crate::labs::Running;
use anyhow::{Context, Result};
use serde_json::Value;

/// UDP port of the state protocol.
const PORT: u16 = 5_407;
const ETHERNET_BYTES: u64 = 14;

/// Rules on a router for the messages of one switch; they stay until the lab goes down.
pub struct Messages<'a> {
    lab: &'a Running,
    router: &'a str,
    switch: &'a str,
}

/// What was on the wire.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Messages both ways.
    pub packets: u64,
    /// Their bytes, Ethernet included.
    pub bytes: u64,
}

impl<'a> Messages<'a> {
    /// Begins to count.
    ///
    /// # Errors
    /// nftables refuses.
    pub fn count(lab: &'a Running, router: &'a str, switch: &'a str) -> Result<Messages<'a>> {
        let messages = Messages { lab, router, switch };
        messages.rules("counter", "counter")?;
        Ok(messages)
    }

    /// Replaces the rules: these many of a million messages are lost, each way by itself.
    ///
    /// # Errors
    /// nftables refuses.
    pub fn lose(lab: &'a Running, router: &'a str, switch: &'a str, per_million: u32) -> Result<Messages<'a>> {
        let messages = Messages { lab, router, switch };
        let drop = format!("numgen random mod 1000000 < {per_million} counter drop");
        messages.rules(&drop, &drop)?;
        Ok(messages)
    }

    fn rules(&self, to_store: &str, from_store: &str) -> Result<()> {
        let Messages { router, switch, .. } = self;
        let rules = format!(
            "add table ip bench\ndelete table ip bench\ntable ip bench {{ chain messages {{ type filter hook forward priority -300; \
             iifname \"{switch}\" udp dport {PORT} {to_store}; oifname \"{switch}\" udp sport {PORT} {from_store}; }}; }}"
        );
        self.lab.run(router, &["nft", &rules]).map(|_| ())
    }

    /// What the rules have counted.
    ///
    /// # Errors
    /// nftables says nothing that can be read.
    pub fn seen(&self) -> Result<Seen> {
        let text = self.lab.run(self.router, &["nft", "-j", "list", "table", "ip", "bench"])?;
        let value: Value = serde_json::from_str(&text).context("nft -j")?;
        let mut seen = Seen::default();
        add_counters(&value, &mut seen);
        seen.bytes += seen.packets * ETHERNET_BYTES;
        Ok(seen)
    }
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
    fn counters_are_found_where_nftables_puts_them() {
        let text = r#"{"nftables":[{"rule":{"expr":[{"match":{}},{"counter":{"packets":2,"bytes":100}}]}},
            {"rule":{"expr":[{"counter":{"packets":1,"bytes":30}},{"drop":null}]}}]}"#;
        let mut seen = Seen::default();
        add_counters(&serde_json::from_str(text).expect("JSON"), &mut seen);
        assert_eq!((seen.packets, seen.bytes), (3, 130));
    }
}

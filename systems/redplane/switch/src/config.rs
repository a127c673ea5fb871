//! The fields of `switch.toml` that RedPlane reads.

use serde::Deserialize;
use state_protocol::layouts::MAX_POOL_ADDRESSES;
use std::net::{Ipv4Addr, SocketAddrV4};
use switch_agent::Result;
use switch_agent::config::Config;

/// Their names.
pub(crate) const FIELDS: [&str; 7] = [
    "lease_margin_us",
    "resend_timeout_us",
    "resend_timeout_most_us",
    "window_packets",
    "idle",
    "nat_pool",
    "backend",
];

/// RedPlane's part of a switch's configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SwitchConfig {
    /// How much earlier than the store the switch ends a lease: the clocks' drift over a lease, and
    /// then some.
    pub lease_margin_us: u64,
    /// An update that is not acknowledged is sent again no sooner than after so long; the time-out
    /// is measured.
    pub resend_timeout_us: u64,
    /// However slow the store and however often before, it is sent again after this time.
    pub resend_timeout_most_us: u64,
    /// Packets of a shard that may wait for the store; more are dropped and counted. 0: any number.
    pub window_packets: u32,
    /// A flow that no packet has used for so long leaves this switch's tables.
    pub idle: Idle,
    /// Addresses and ports that a local NAT allocator draws from.
    pub nat_pool: Option<NatPool>,
    /// Where a local BACKENDS allocator sends new conversations.
    pub backend: Vec<Backend>,
}

impl Default for SwitchConfig {
    fn default() -> SwitchConfig {
        SwitchConfig {
            // The coarse clock that leases are checked by lags by a tick at most (10 ms at 100 Hz);
            // the rest is for drift.
            lease_margin_us: 12_000,
            resend_timeout_us: 5_000,
            // A shard's lease is longer: a few messages may get lost in it.
            resend_timeout_most_us: 100_000,
            // Some milliseconds of what a shard takes; waiting longer makes no packet faster.
            window_packets: 128,
            idle: Idle::default(),
            nat_pool: None,
            backend: vec![],
        }
    }
}

/// When flows leave the switch's tables.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Idle {
    /// Linearizable and asynchronous objects: so long after the last packet the flow goes back to
    /// the store, which has idle times of its own.
    pub release_after_s: u64,
    /// Local objects: so long after the last packet. This is the only copy, so as long as RFC 5382
    /// (REQ-5) asks for TCP.
    pub local_s: u64,
    /// Local objects: the same of a connection that was asked for and not answered. (RFC 5382,
    /// REQ-5)
    pub local_half_open_s: u64,
    /// Local objects: the same of a closed one. (RFC 7857, section 2)
    pub local_closed_s: u64,
}

impl Default for Idle {
    fn default() -> Idle {
        Idle { release_after_s: 60, local_s: 7_440, local_half_open_s: 240, local_closed_s: 240 }
    }
}

/// `[nat_pool]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NatPool {
    /// Addresses.
    pub external: Vec<Ipv4Addr>,
    /// `LOW-HIGH`, both included.
    #[serde(default = "default_ports")]
    pub ports: String,
}

fn default_ports() -> String {
    "1024-65535".to_owned()
}

impl NatPool {
    /// The lowest and the highest port.
    pub fn port_range(&self) -> Option<(u16, u16)> {
        let (low, high) = self.ports.split_once('-')?;
        let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        (low > 0 && low <= high).then_some((low, high))
    }
}

/// `[[backend]]`
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// Address and port.
    pub address: SocketAddrV4,
    /// Its part of new conversations is its weight over the sum of all.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// Whether it gets new conversations.
    #[serde(default)]
    pub state: BackendState,
}

/// Whether a backend gets new conversations; those that it has go on either way.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum BackendState {
    /// It does.
    #[default]
    Active,
    /// It does not.
    Drained,
}

fn default_weight() -> u32 {
    1
}

impl Backend {
    /// The weight that counts: none for a drained backend.
    pub fn share(&self) -> u32 {
        if self.state == BackendState::Active { self.weight } else { 0 }
    }
}

impl SwitchConfig {
    /// RedPlane's part of a configuration, checked.
    ///
    /// # Errors
    /// Names the file, the field or line, and what would be right.
    pub fn of(config: &Config) -> Result<SwitchConfig> {
        let own: SwitchConfig = config.part(&FIELDS)?;
        own.validate_times(config)?;
        own.validate_backends(config)?;
        own.validate_pool(config)?;
        Ok(own)
    }

    fn validate_times(&self, config: &Config) -> Result<()> {
        for (field, seconds) in [
            ("idle.release_after_s", self.idle.release_after_s),
            ("idle.local_s", self.idle.local_s),
            ("idle.local_half_open_s", self.idle.local_half_open_s),
            ("idle.local_closed_s", self.idle.local_closed_s),
        ] {
            if seconds == 0 {
                return config.fault(field, "0 would remove flows in use; write 1 or more");
            }
        }
        for (field, value) in [
            ("lease_margin_us", self.lease_margin_us),
            ("resend_timeout_us", self.resend_timeout_us),
            ("resend_timeout_most_us", self.resend_timeout_most_us),
        ] {
            // Less is shorter than the kernel's timers are exact, or than a store's answer takes.
            if !(1_000..=60_000_000).contains(&value) {
                return config.fault(
                    field,
                    format!("{value} is out of range; write 1000 to 60000000 (1 ms to 60 s)"),
                );
            }
        }
        if self.resend_timeout_most_us < self.resend_timeout_us {
            let (most, least) = (self.resend_timeout_most_us, self.resend_timeout_us);
            return config.fault(
                "resend_timeout_most_us",
                format!("{most} is less than resend_timeout_us ({least}); write {least} or more"),
            );
        }
        Ok(())
    }

    fn validate_backends(&self, config: &Config) -> Result<()> {
        for (index, backend) in self.backend.iter().enumerate() {
            let address = backend.address;
            if address.ip().is_unspecified() || address.port() == 0 {
                return config.fault(
                    format!("backend[{index}].address"),
                    format!("{address} is not an address of a server"),
                );
            }
            if self.backend.iter().take(index).any(|earlier| earlier.address == address) {
                return config.fault(
                    format!("backend[{index}].address"),
                    format!("{address} is listed twice"),
                );
            }
        }
        Ok(())
    }

    fn validate_pool(&self, config: &Config) -> Result<()> {
        let Some(pool) = &self.nat_pool else { return Ok(()) };
        if pool.external.is_empty() || pool.external.len() > MAX_POOL_ADDRESSES {
            return config
                .fault("nat_pool.external", format!("needs 1 to {MAX_POOL_ADDRESSES} addresses"));
        }
        if pool.port_range().is_none() {
            return config.fault(
                "nat_pool.ports",
                format!("{:?} is not LOW-HIGH from 1 to 65535, such as 1024-65535", pool.ports),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedPlane;
    use std::path::Path;

    const SWITCH: &str = "name = \"s1\"\nobject = \"nat.o\"\n";
    const PORTS: &str = "[[port]]\ninterface = \"tor\"\nport = 2\n";

    fn of(own: &str) -> Result<SwitchConfig> {
        let text = format!("{SWITCH}{own}\n{PORTS}");
        Config::parse(Path::new("/etc/sp/switch.toml"), &text, &[&RedPlane])
            .and_then(|config| SwitchConfig::of(&config))
    }

    #[test]
    fn the_documented_example_is_good_and_has_the_defaults() {
        let path =
            Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/switch.example.toml"));
        let config = Config::read(path, &[&RedPlane]).unwrap();
        assert_eq!(
            (config.port.len(), config.table.len(), config.switch_id, config.detach),
            (2, 2, 1, false)
        );
        let (own, default) = (SwitchConfig::of(&config).unwrap(), SwitchConfig::default());
        assert_eq!((own.idle, own.lease_margin_us), (default.idle, default.lease_margin_us));
    }

    #[test]
    fn the_agent_leaves_every_field_to_it() {
        let own =
            of("window_packets = 0\nidle = { local_s = 9 }\nnat_pool = { external = [\"203.0.113.1\"] }").unwrap();
        assert_eq!((own.window_packets, own.idle.local_s, own.idle.local_closed_s), (0, 9, 240));
        assert_eq!(own.nat_pool.unwrap().port_range(), Some((1024, 65535)));
        let own = of("[[backend]]\naddress = \"10.0.0.1:80\"\nstate = \"drained\"\n").unwrap();
        assert_eq!(own.backend[0].share(), 0);
        assert_eq!((of("").unwrap().window_packets, of("").unwrap().backend.len()), (128, 0));
    }

    /// What the check says of a program with one object, whose packets set it with others or not.
    fn told_of(commit: &str, grouped: bool, value_bytes: u32) -> Option<String> {
        let grouped = if grouped { r#", "grouped": true"# } else { "" };
        let object = format!(
            r#"{{"id": 2, "name": "I.totals", "system": "redplane", "kind": "FlowState",
            "map": "totals", "capacity": 8, "home": "peers", "key": [], "key_bytes": 4,
            "value": {{"fields": {{"fields": [], "bytes": {value_bytes}, "offset": 72}}}},
            "settings": {{"consistency": "linearizable", "allocator": "zero"{grouped}}}}}"#
        );
        let object: manifest::StateObject = serde_json::from_str(&object).unwrap();
        let manifest =
            manifest::Manifest { state_objects: vec![object], ..manifest::Manifest::new("p") };
        let text = format!("{SWITCH}commit = \"{commit}\"\n{PORTS}");
        let config = Config::parse(Path::new("/etc/sp/switch.toml"), &text, &[&RedPlane]).unwrap();
        switch_agent::System::check(&RedPlane, &config, &manifest).err().map(|it| it.to_string())
    }

    #[test]
    fn a_program_whose_packets_set_several_objects_needs_batches() {
        let told = told_of("wrap", true, 8).expect("refused");
        let parts = [
            "/etc/sp/switch.toml: line ",
            ": commit: \"wrap\" does not carry",
            "FlowState I.totals",
        ];
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        assert_eq!(told_of("batch", true, 8), None);
        assert_eq!(told_of("wrap", false, 8), None);
    }

    #[test]
    fn a_group_is_no_longer_than_a_batch() {
        let told = told_of("batch", true, 1_376).expect("refused");
        let parts =
            ["/etc/sp/switch.toml: line ", ": port: batches have 1400 bytes", "has 1408", "by 8"];
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        assert_eq!(told_of("batch", true, 1_368), None);
    }

    #[test]
    fn each_fault_names_file_and_field() {
        let pool = |ports: &str| {
            format!("nat_pool = {{ external = [\"203.0.113.1\"], ports = \"{ports}\" }}")
        };
        let backends = |addresses: [&str; 2]| {
            addresses.map(|address| format!("[[backend]]\naddress = \"{address}\"\n")).concat()
        };
        for (own, parts) in [
            ("lease_margin_us = 999".to_owned(), "lease_margin_us: 999"),
            ("idle = { release_after_s = 0 }".to_owned(), "idle.release_after_s"),
            ("idle = { local_closed_s = 0 }".to_owned(), "idle.local_closed_s"),
            ("idle = { local_half_open_s = 0 }".to_owned(), "idle.local_half_open_s"),
            ("resend_timeout_us = 0".to_owned(), "resend_timeout_us: 0"),
            ("resend_timeout_most_us = 4999".to_owned(), "resend_timeout_most_us: 4999 is less"),
            ("nat_pool = { external = [] }".to_owned(), "nat_pool.external: needs 1 to 16"),
            (pool("5-4"), "nat_pool.ports"),
            (pool("0-9"), "nat_pool.ports"),
            (
                backends(["10.0.0.1:80", "10.0.0.1:80"]),
                "backend[1].address: 10.0.0.1:80 is listed twice",
            ),
            (backends(["10.0.0.1:80", "10.0.0.2:0"]), "backend[1].address: 10.0.0.2:0"),
            ("idle = { local_h = 1 }".to_owned(), "line 3"),
            ("\nwindow_packets = -1".to_owned(), "line 4"),
            ("windows_packets = 1".to_owned(), "unknown field `windows_packets`"),
        ] {
            let message = of(&own).unwrap_err().to_string();
            assert!(
                message.starts_with("/etc/sp/switch.toml: ") && message.contains(parts),
                "{own}: {message}"
            );
        }
    }
}

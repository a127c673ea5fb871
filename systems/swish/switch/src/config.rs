//! SwiSh's part of `switch.toml`.

use crate::gossip::Terms;
use crate::group::View;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use swish_protocol::control::Member;
use swish_protocol::layouts::MEMBERS;
use switch_agent::Result;
use switch_agent::config::Config;

pub(crate) const FIELDS: [&str; 1] = ["shared"];

/// Of a window, if the configuration does not say.
const USUAL_PERIOD_US: u64 = 10_000;
/// Updates of a rotation, if it does not say.
const USUAL_BOUND: u64 = 1 << 32;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    #[serde(default)]
    shared: BTreeMap<String, Shared>,
}

/// `[shared.GROUP]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    /// Addresses of the switches that share the group; their numbers as members are their places.
    #[serde(default)]
    members: Vec<Ipv4Addr>,
    /// Or the controllers that say who does.
    #[serde(default)]
    controllers: Vec<SocketAddrV4>,
    /// Which of them this switch is.
    own: Ipv4Addr,
    /// From one window to the next, at the least.
    period_us: Option<u64>,
    /// B: updates of this switch between two windows.
    bound: Option<u64>,
    /// EWO: of all messages that this switch sends, in Mbit/s.
    bandwidth_mbps: Option<u64>,
    /// EWO: a change is sent after so much time at the latest, if the bandwidth allows it.
    mirror_us: Option<u64>,
    /// EWO: so long a round of gossip takes, if the bandwidth allows it.
    gossip_ms: Option<u64>,
    /// EWO: so long a removed key's tombstone is kept at the least.
    tombstone_s: Option<u64>,
}

/// Who says which switches share a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The configuration.
    Fixed(View),
    /// These controllers.
    Controllers(Vec<SocketAddrV4>, Own),
}

/// What the configuration says of a group that has controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    /// This switch's address.
    pub address: Ipv4Addr,
    /// See `Shared`.
    pub period_ns: u64,
    /// See `Shared`.
    pub bound: u64,
}

impl Source {
    /// From one window to the next, at the least.
    pub(crate) fn period_ns(&self) -> u64 {
        match self {
            Source::Fixed(view) => view.period_ns,
            Source::Controllers(_, own) => own.period_ns,
        }
    }
}

/// What the configuration says of each of the program's groups.
pub(crate) struct Groups<'a> {
    config: &'a Config,
    shared: BTreeMap<String, Shared>,
}

/// Reads it; `known` are the names of the program's groups.
///
/// # Errors
/// A field names no group of the program.
pub(crate) fn groups<'a>(config: &'a Config, known: &[&str]) -> Result<Groups<'a>> {
    let own: Read = config.part(&FIELDS)?;
    if let Some(name) = own.shared.keys().find(|name| !known.contains(&name.as_str())) {
        let reason = format!(
            "the program has no such group of shared variables; it has: {}",
            if known.is_empty() { "none".into() } else { known.join(", ") }
        );
        return config.fault(format!("shared.{name}"), reason);
    }
    Ok(Groups { config, shared: own.shared })
}

impl Groups<'_> {
    /// Who shares a group. One that the configuration does not name is this switch's alone.
    ///
    /// # Errors
    /// A field is out of range.
    pub(crate) fn source(&self, group: &str) -> Result<Source> {
        source(self.config, group, self.shared.get(group))
    }

    /// How much is sent of a group's variables with EWO.
    ///
    /// # Errors
    /// A field is out of range.
    pub(crate) fn terms(&self, group: &str) -> Result<Terms> {
        let shared = self.shared.get(group);
        let field = |name: &str, value: Option<u64>, usual: u64, most: u64| match value {
            Some(value) if value == 0 || value > most => {
                let reason = format!("{value}: must be from 1 to {most}");
                self.config.fault(format!("shared.{group}.{name}"), reason)
            }
            value => Ok(value.unwrap_or(usual)),
        };
        let bandwidth_mbps = shared.and_then(|it| it.bandwidth_mbps);
        let mirror_us = shared.and_then(|it| it.mirror_us);
        let gossip_ms = shared.and_then(|it| it.gossip_ms);
        let tombstone_s = shared.and_then(|it| it.tombstone_s);
        Ok(Terms {
            bytes_per_s: field("bandwidth_mbps", bandwidth_mbps, 100, 1_000_000)? * 125_000,
            mirror_ns: field("mirror_us", mirror_us, 1000, 10_000_000)? * 1000,
            gossip_ns: field("gossip_ms", gossip_ms, 1000, 3_600_000)? * 1_000_000,
            tombstone_ns: field("tombstone_s", tombstone_s, 60, 31_536_000)? * 1_000_000_000,
        })
    }
}

fn source(config: &Config, group: &str, shared: Option<&Shared>) -> Result<Source> {
    let field = |name: &str| format!("shared.{group}.{name}");
    let Some(shared) = shared else {
        return Ok(Source::Fixed(View {
            number: 1,
            own: 0,
            members: vec![fixed(0, Ipv4Addr::LOCALHOST)],
            period_ns: USUAL_PERIOD_US * 1000,
            bound: USUAL_BOUND,
            window: 1,
            begins_ns: 0,
            turns_ns: 0,
        }));
    };
    if shared.members.is_empty() == shared.controllers.is_empty() {
        let reason = "give either `members`, the switches that share the group, or \
                      `controllers`, which say who does";
        return config.fault(field("members"), reason);
    }
    if shared.members.len() > MEMBERS as usize {
        return config.fault(field("members"), format!("more than {MEMBERS} switches"));
    }
    for (at, member) in shared.members.iter().enumerate() {
        if shared.members[..at].contains(member) {
            return config.fault(field("members"), format!("{member} is given twice"));
        }
    }
    let (period_ns, bound) = terms(config, shared, &field)?;
    if !shared.controllers.is_empty() {
        let own = Own { address: shared.own, period_ns, bound };
        return Ok(Source::Controllers(shared.controllers.clone(), own));
    }
    let Some(own) = shared.members.iter().position(|member| *member == shared.own) else {
        return config.fault(field("own"), format!("{} is none of `members`", shared.own));
    };
    Ok(Source::Fixed(View {
        number: 1,
        own: own as u32,
        members: (0..).zip(&shared.members).map(|(number, it)| fixed(number, *it)).collect(),
        period_ns,
        bound,
        window: 1,
        begins_ns: 0,
        turns_ns: 0,
    }))
}

/// A member that the configuration names. (It does not know of lives.)
fn fixed(number: u32, address: Ipv4Addr) -> Member {
    Member { number, address, incarnation: 0 }
}

/// Period and bound.
fn terms(config: &Config, shared: &Shared, field: &dyn Fn(&str) -> String) -> Result<(u64, u64)> {
    let period_us = shared.period_us.unwrap_or(USUAL_PERIOD_US);
    if period_us > 60_000_000 {
        return config.fault(field("period_us"), format!("{period_us}: must be at most 60000000"));
    }
    let bound = shared.bound.unwrap_or(USUAL_BOUND);
    if bound == 0 {
        return config.fault(field("bound"), "0: must be at least 1 update");
    }
    Ok((period_us * 1000, bound))
}

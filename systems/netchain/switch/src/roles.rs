//! The controller's decision in the program's tables: parts in groups, dead switches, the switch's
//! own address with the decision's version. Each table is exchanged as one, and the version last:
//! what a probe returns is never newer than the parts.

use crate::peers::Peers;
use dataplane::{ActionCall, Dataplane, Entry, Match, TableRef};
use netchain_protocol::CHAIN_MAX;
use netchain_protocol::control::{Config, Part, Role};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use switch_agent::{Error, Result};

const ROLES: &str = "NetChainIngress.roles";
const DEAD_SOURCES: &str = "NetChainIngress.dead_sources";
const DESTINATIONS: &str = "NetChainIngress.destinations";
const SERVE: &str = "serve";
const TAKE_PART: &str = "take_part";

/// The tables of a loaded object.
pub(crate) struct Tables {
    dataplane: Arc<Dataplane>,
    own: Ipv4Addr,
    ring: u32,
    /// Dead switches, as `dead_sources` has them; None: not known.
    dead: Mutex<Option<Vec<Ipv4Addr>>>,
}

/// The last part of a control-plane name.
fn is_named(name: &str, wanted: &str) -> bool {
    name.rsplit('.').next() == Some(wanted)
}

/// An action of a table by its name, with these arguments.
fn call(table: &TableRef<'_>, name: &str, arguments: &[(&str, u128)]) -> Result<ActionCall> {
    let missing = |what: &str| {
        Error::Other(format!(
            "table {}: no {what}: the table belongs to another program",
            table.description().name
        ))
    };
    let action = (0..table.description().actions.len())
        .find(|at| is_named(table.action_name(*at), name))
        .ok_or_else(|| missing(name))?;
    let value = |parameter: &manifest::Parameter| {
        let found = arguments.iter().find(|(name, _)| *name == parameter.name);
        found.map(|(_, value)| *value).ok_or_else(|| missing(&parameter.name))
    };
    let arguments = table.parameters(action).iter().map(value).collect::<Result<_>>()?;
    Ok(ActionCall { action, arguments })
}

fn number(address: Ipv4Addr) -> u128 {
    address.to_bits().into()
}

fn entry(key: u128, action: ActionCall) -> Entry {
    Entry { matches: vec![Match::Exact(key)], priority: 0, action }
}

/// A role as the arguments of its action, beside `peers`.
fn arguments(role: &Role) -> Vec<(&'static str, u128)> {
    const MEMBERS: [&str; CHAIN_MAX] = ["member0", "member1", "member2", "member3"];
    let members = MEMBERS
        .iter()
        .enumerate()
        .map(|(at, name)| (*name, role.chain.get(at).copied().map_or(0, number)));
    let first = [
        ("view", role.view.into()),
        ("head_since", role.head_since.into()),
        ("session", role.session.into()),
        ("floor", role.floor.into()),
        ("position", role.part.position().into()),
        ("next", role.next.map_or(0, number)),
        ("members", role.chain.len() as u128),
    ];
    first.into_iter().chain(members).collect()
}

impl Tables {
    pub fn new(dataplane: Arc<Dataplane>, own: Ipv4Addr, ring: u32) -> Tables {
        Tables { dataplane, own, ring, dead: Mutex::default() }
    }

    fn role(&self, table: &TableRef<'_>, role: &Role, peers: &Peers) -> Result<ActionCall> {
        let mut arguments = arguments(role);
        let name = match role.part {
            Part::None => "refer",
            Part::Paused => "pause",
            Part::Lost => "lost",
            Part::Member { .. } => TAKE_PART,
        };
        if let Part::Member { .. } = role.part {
            let numbers = peers.members(&role.chain).ok_or_else(|| {
                Error::Other(format!("a member of {:?} is not a peer of this switch", role.chain))
            })?;
            arguments.push(("peers", numbers.into()));
        }
        call(table, name, &arguments)
    }

    /// The switch has no parts and no version: its slots are new.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn begin(&self) -> Result<()> {
        self.exchange_dead(&[])?;
        self.exchange_destinations(0, &[])
    }

    /// The version of the decision that all CPUs have; None: the switch has no parts, or not its
    /// own address.
    pub fn applied(&self) -> Result<Option<u64>> {
        if self.dataplane.table(ROLES)?.list()?.is_empty() {
            return Ok(None);
        }
        let table = self.dataplane.table(DESTINATIONS)?;
        let own = table.list()?.into_iter().map(|listed| listed.entry).find(|entry| {
            entry.matches.first().is_some_and(|key| key.value() == number(self.own))
                && is_named(table.action_name(entry.action.action), SERVE)
        });
        let Some(own) = own else { return Ok(None) };
        let parameters = table.parameters(own.action.action);
        let at = |wanted: &str| {
            let at = parameters.iter().position(|it| it.name == wanted)?;
            own.action.arguments.get(at).copied()
        };
        let of_this_ring = at("ring") == Some(self.ring.into());
        Ok(at("version").filter(|_| of_this_ring).map(|version| version as u64))
    }

    /// Takes a decision. When it returns no CPU has an older one.
    ///
    /// # Errors
    /// It does not fit the program, or the kernel refuses: what was exchanged before stays, with
    /// the earlier version.
    pub fn apply(&self, config: &Config, peers: &Peers) -> Result<()> {
        self.exchange_roles(&config.roles, peers)?;
        self.exchange_dead(&config.dead)?;
        self.exchange_destinations(config.version, &config.dead)
    }

    /// The first part of it: parts in groups.
    ///
    /// # Errors
    /// As [`Tables::apply`].
    pub fn exchange_roles(&self, roles: &[Role], peers: &Peers) -> Result<()> {
        let table = self.dataplane.table(ROLES)?;
        let entries = (0u128..)
            .zip(roles)
            .map(|(group, role)| Ok(entry(group, self.role(&table, role, peers)?)))
            .collect::<Result<Vec<_>>>()?;
        table.replace(&entries)?;
        Ok(())
    }

    /// The groups in which the switch is a member, and their views.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn members(&self) -> Result<BTreeMap<u16, u32>> {
        let table = self.dataplane.table(ROLES)?;
        let member = |entry: &Entry| {
            let action = entry.action.action;
            let view = table.parameters(action).iter().position(|it| it.name == "view")?;
            let view = *entry.action.arguments.get(view)?;
            let group = entry.matches.first()?.value();
            is_named(table.action_name(action), TAKE_PART).then_some((group as u16, view as u32))
        };
        Ok(table.list()?.iter().filter_map(|listed| member(&listed.entry)).collect())
    }

    fn exchange_dead(&self, dead: &[Ipv4Addr]) -> Result<()> {
        let mut known = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_deref() == Some(dead) {
            return Ok(());
        }
        let table = self.dataplane.table(DEAD_SOURCES)?;
        let dead_call = call(&table, "dead", &[])?;
        let entries: Vec<Entry> =
            dead.iter().map(|it| entry(number(*it), dead_call.clone())).collect();
        *known = None;
        table.replace(&entries)?;
        *known = Some(dead.to_vec());
        Ok(())
    }

    fn exchange_destinations(&self, version: u64, dead: &[Ipv4Addr]) -> Result<()> {
        let table = self.dataplane.table(DESTINATIONS)?;
        let own = [("ring", self.ring.into()), ("version", version.into())];
        let mut entries = vec![entry(number(self.own), call(&table, SERVE, &own)?)];
        let dead_call = call(&table, "dead", &[])?;
        entries.extend(dead.iter().map(|it| entry(number(*it), dead_call.clone())));
        table.replace(&entries)?;
        Ok(())
    }
}

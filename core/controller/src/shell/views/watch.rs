//! What somebody must hear of: state that was lost, a controller that cannot decide, two switches
//! with one `switch_id`. Looked for beside the core, which goes on as it can.

use crate::core::{Controller, Event, Why};
use crate::shell::{Kept, Trouble};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use wire::Reporter;

#[cfg(test)]
const SECOND_NS: u64 = 1_000_000_000;
/// How often it is looked.
const LOOK_NS: u64 = 100_000_000;
/// What is wrong, and was.
#[derive(Debug, Default)]
pub struct Watch {
    look_at_ns: u64,
    /// Reports of newer views than the database's.
    behind: Option<Trouble>,
    /// Switches that report from two addresses at the same time, by their `switch_id`.
    twins: BTreeMap<u32, Trouble>,
    /// Shards whose state was lost.
    pub state_lost: u64,
}

impl Watch {
    /// Counts what was decided.
    pub fn decided(&mut self, event: &Event) {
        self.state_lost += u64::from(matches!(event, Event::Decided { why: Why::StateLost, .. }));
    }

    /// Looks, now and then, at whoever reports.
    pub fn look(&mut self, now_ns: u64, name: &str, core: &Controller, kept: &Kept) {
        if now_ns < self.look_at_ns {
            return;
        }
        self.look_at_ns = now_ns + LOOK_NS;
        self.look_at_versions(now_ns, name, core, kept);
        self.look_for_twins(now_ns, name, core);
    }

    /// As the core does, dead servers included: it decides nothing while one has newer views.
    /// Another controller's decisions come to the servers before they are read here; so a
    /// controller that does not lead is behind only with what it had not when it read the database
    /// a second later.
    fn look_at_versions(&mut self, now_ns: u64, name: &str, core: &Controller, kept: &Kept) {
        let own = core.views().version;
        let ahead = core
            .peers()
            .filter(|(_, seen)| seen.version > own)
            .max_by_key(|(_, seen)| seen.version);
        let Some((address, seen)) = ahead else {
            self.behind = None;
            return;
        };
        let behind = self.behind.get_or_insert_with(|| Trouble::since(now_ns));
        let judged_ns = if core.is_leading() { now_ns } else { kept.read_ns.unwrap_or(0) };
        behind.what = format!(
            "{address} has views {}, but this controller's database has views {own}: the database \
             is lost, or an old copy. The controller decides nothing. Give it the newest database, \
             or stop all controllers and run `stateplane controller rebuild`",
            seen.version
        );
        if behind.lasts(judged_ns) && behind.is_to_be_told(now_ns) {
            let version = seen.version;
            tracing::error!(name, %address, version, own, "a server has newer views than this controller's database: {}", behind.what);
        }
    }

    fn look_for_twins(&mut self, now_ns: u64, name: &str, core: &Controller) {
        let mut switches: BTreeMap<u32, Vec<SocketAddrV4>> = BTreeMap::new();
        for (address, seen) in core.peers().filter(|(_, seen)| core.is_alive(now_ns, seen)) {
            if let Reporter::Switch { switch_id } = seen.reporter {
                switches.entry(switch_id).or_default().push(*address);
            }
        }
        switches.retain(|_, addresses| addresses.len() > 1);
        self.twins.retain(|switch_id, _| switches.contains_key(switch_id));
        for (switch_id, addresses) in switches {
            // An agent that was started again reports from another port, and its last life is heard
            // of until it counts as dead.
            let trouble = self.twins.entry(switch_id).or_insert_with(|| Trouble::since(now_ns));
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            trouble.what = format!(
                "switches {} both have switch_id = {switch_id}: each takes the other's flows, and if both started in the same quarter of a second they corrupt state; give one another \
                 switch_id and start it with --fresh",
                addresses.join(" and ")
            );
            if trouble.lasts(now_ns) && trouble.is_to_be_told(now_ns) {
                tracing::error!(name, switch_id, "{}", trouble.what);
            }
        }
    }

    /// Reports of newer views than the database's.
    pub fn behind(&self) -> Option<&Trouble> {
        self.behind.as_ref()
    }

    /// What else is wrong: a sentence each.
    pub fn warnings(&self, now_ns: u64) -> Vec<String> {
        self.twins
            .values()
            .filter(|trouble| trouble.lasts(now_ns))
            .map(|trouble| trouble.what.clone())
            .collect()
    }

    /// Values of `switch_id` that two switches have at the same time.
    pub fn twins(&self, now_ns: u64) -> u64 {
        self.twins.values().filter(|trouble| trouble.lasts(now_ns)).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Input, Outputs, Settings};
    use std::net::Ipv4Addr;
    use wire::{Control, Report, Views};

    const MS: u64 = 1_000_000;

    fn controller(leading: bool) -> Controller {
        let settings = Settings {
            shards: 1,
            chain_length: 1,
            founding_servers: 9,
            dead_ns: 250 * MS,
            join_timeout_ns: SECOND_NS,
            most_joins: 1,
            reorder_after_ns: SECOND_NS,
        };
        Controller::new(settings, Views::default(), leading, 0)
    }

    fn report(core: &mut Controller, now_ns: u64, port: u16, reporter: Reporter, version: u64) {
        let report = Report {
            reporter,
            version,
            shards: 1,
            heard_ms: 0,
            accepted: false,
            machine: String::new(),
            replicas: vec![],
            load: None,
        };
        let incarnation = u64::from(port);
        let bytes = Control::Report { sent_ns: now_ns, incarnation, report }.encode().unwrap();
        let from = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        core.handle(now_ns, Input::Datagram { from, bytes: &bytes }, &mut Outputs::default());
    }

    #[test]
    fn two_switches_with_one_id_are_told_and_a_restarted_agent_is_not() {
        let (mut core, mut watch, kept) = (controller(true), Watch::default(), Kept::default());
        let switch = |switch_id| Reporter::Switch { switch_id };
        for now_ns in (1..60).map(|step| step * 50 * MS) {
            // Switch 7's agent is another process from 1 s on.
            report(&mut core, now_ns, if now_ns < SECOND_NS { 1 } else { 2 }, switch(7), 0);
            report(&mut core, now_ns, 3, switch(8), 0);
            watch.look(now_ns, "c", &core, &kept);
            assert_eq!((watch.twins(now_ns), watch.warnings(now_ns)), (0, vec![]), "{now_ns}");
        }
        for now_ns in (60..120).map(|step| step * 50 * MS) {
            report(&mut core, now_ns, 3, switch(8), 0);
            report(&mut core, now_ns, 4, switch(8), 0);
            watch.look(now_ns, "c", &core, &kept);
        }
        let now_ns = 120 * 50 * MS;
        assert_eq!(watch.twins(now_ns), 1);
        let warnings = watch.warnings(now_ns);
        assert!(
            warnings[0].contains("127.0.0.1:3 and 127.0.0.1:4 both have switch_id = 8"),
            "{warnings:?}"
        );
        // The other one is gone.
        for now_ns in (120..140).map(|step| step * 50 * MS) {
            report(&mut core, now_ns, 3, switch(8), 0);
            watch.look(now_ns, "c", &core, &kept);
        }
        assert_eq!(watch.twins(140 * 50 * MS), 0);
    }

    /// What another controller decided the servers have before this one reads it.
    #[test]
    fn a_stand_by_is_behind_only_with_what_it_did_not_find_in_the_database() {
        for (leading, reads_at, behind) in
            [(true, 0, true), (false, 0, false), (false, 1_400 * MS, true)]
        {
            let (mut core, mut watch) = (controller(leading), Watch::default());
            let mut kept = Kept::default();
            for now_ns in (1..30).map(|step| step * 50 * MS) {
                report(&mut core, now_ns, 1, Reporter::Server, 5);
                if now_ns == reads_at {
                    kept.read(now_ns, true);
                }
                watch.look(now_ns, "c", &core, &kept);
            }
            let told = watch.behind.as_ref().is_some_and(Trouble::was_told);
            assert_eq!(told, behind, "leading {leading}, read at {reads_at}");
            if leading {
                assert!(
                    kept.cannot_decide(1_500 * MS, watch.behind()).unwrap().contains("rebuild")
                );
            }
            let views = Views { version: 5, shards: vec![] };
            core.handle(1_500 * MS, Input::Loaded(views), &mut Outputs::default());
            watch.look(1_600 * MS, "c", &core, &kept);
            assert_eq!(kept.cannot_decide(1_600 * MS, watch.behind()), None);
        }
    }
}

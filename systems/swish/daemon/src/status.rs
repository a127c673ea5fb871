//! What tools are told.

use crate::rules::Switches;
use controller::shell::Kept;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};
use swish_controller::{MemberStatus, Stage};
use swish_protocol::control::{NO_BOUND, Report};
use swish_protocol::exclusion::Why;

/// How the controller and the groups are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Whether this controller decides.
    pub leading: bool,
    /// Of the decision; 0: nothing is decided yet.
    pub version: u64,
    /// All switches share their groups, and windows go on.
    pub settled: bool,
    /// Why it cannot decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_decide: Option<String>,
    /// By name.
    pub groups: Vec<GroupStatus>,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its name.
    pub group: String,
    /// The number of its view; 0: it has none yet.
    pub view: u32,
    /// `settled`, `sealing`, `taking`, `none`, or `behind`: switches are in a newer view than the
    /// database has, and nothing is decided.
    pub stage: String,
    /// The newest window that a member reports; with SRO, the newest round of the lease.
    pub window: u64,
    /// With SRO: batches that the head has written, and those of them that all members have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batches: Option<(u64, u64)>,
    /// Since it began; with EWO, since a member heard the one that is silent for longest.
    pub age_ms: u64,
    /// r = 2NB: updates that a packet misses at the most.
    pub relaxation: u64,
    /// A member has no `bound`: r says nothing.
    #[serde(default)]
    pub unbounded: bool,
    /// The window has stood still for so long.
    pub still_ms: u64,
    /// Its variables have EWO: there are no windows.
    #[serde(default)]
    pub eventual: bool,
    /// Pairs of members that hold the window up: the first lacks messages of the second. With EWO,
    /// the first hears nothing of the second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_up: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Switches that are in a newer view than the database has, each with its view.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<(Ipv4Addr, u32)>,
    /// All switches that may share it.
    pub switches: Vec<SwitchStatus>,
}

/// A switch of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStatus {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its number as a member.
    pub number: u32,
    /// `member`, `joining`, `silent`, `absent`, `leaving`, `left`, `excluded`, or `other_layout`:
    /// its variables lie in another way than the members' do.
    pub standing: String,
    /// Why it is kept out, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded: Option<Why>,
    /// Of its life; 0: it was never heard of.
    pub incarnation: u32,
    /// The view that it is in; 0: none.
    pub view: u32,
    /// The window that its packets read.
    pub window: u64,
    /// Messages that came to it from other members.
    pub bytes_per_s: u64,
    /// Of the group's maps.
    pub memory_bytes: u64,
    /// Time since its last report in ms; none: this controller has had none.
    pub report_ms: Option<u64>,
    /// Where its reports come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reports_from: Option<SocketAddrV4>,
}

/// The page.
pub(crate) fn status(rules: &Switches, kept: &Kept, now_ns: u64) -> Status {
    let core = rules.core();
    let settings = core.settings();
    // (A consistency of a group that no program uses any more is in the database only.)
    let is_used = |it: &GroupStatus| {
        let heard = |ms: u64| ms * 1_000_000 < settings.lost_ns;
        settings.groups.contains_key(&it.group)
            || it.switches.iter().any(|it| it.report_ms.is_some_and(heard))
    };
    let groups = core.names().filter_map(|name| group(rules, name, now_ns));
    let groups: Vec<GroupStatus> = groups.filter(is_used).collect();
    let cannot_decide = kept.cannot_decide(now_ns, None).map(str::to_owned);
    let all = |group: &GroupStatus| {
        group.view != 0
            && group.stage == "settled"
            && group
                .switches
                .iter()
                .all(|it| it.standing == "left" || it.standing == "member" && it.view == group.view)
    };
    Status {
        leading: core.is_leading(),
        version: core.state().version,
        settled: cannot_decide.is_none() && groups.iter().all(all),
        cannot_decide,
        groups,
    }
}

fn group(rules: &Switches, name: &str, now_ns: u64) -> Option<GroupStatus> {
    let core = rules.core();
    let (stage, members) = core.group(name, now_ns)?;
    let newest = core.state().groups.get(name).and_then(|it| it.newest());
    let view = newest.map_or(0, |it| it.number);
    let dead_ns = core.settings().dead_ns;
    let alive = |it: &&MemberStatus| it.heard_ns.is_some_and(|ns| ns < dead_ns) && it.member;
    let reports: Vec<&Report> =
        members.iter().filter(alive).filter_map(|it| it.report.as_ref()).collect();
    let address = |number: u32| members.iter().find(|it| it.number == number).map(|it| it.address);
    let still_ms = reports.iter().map(|it| it.still_ms).min().unwrap_or(0);
    let eventual = reports.iter().any(|it| it.eventual.is_some());
    let ages = reports.iter().map(|it| it.load.age_ms);
    let ahead = members.iter().filter(|it| it.unknown);
    let ahead = ahead.filter_map(|it| Some((it.address, it.report.as_ref()?.view)));
    Some(GroupStatus {
        group: name.to_owned(),
        view,
        stage: match stage {
            Stage::Behind => "behind",
            _ if view == 0 => "none",
            Stage::None => "none",
            Stage::Settled => "settled",
            Stage::Sealing => "sealing",
            Stage::Taking => "taking",
        }
        .to_owned(),
        window: reports.iter().map(|it| it.window).max().unwrap_or(0),
        batches: (reports.iter().filter_map(|it| it.chain))
            .map(|it| (it.applied, it.committed))
            .max(),
        age_ms: if eventual { ages.max() } else { ages.min() }.unwrap_or(0),
        relaxation: reports.iter().fold(0, |r, it| r.saturating_add(2 * it.load.bound)),
        unbounded: reports.iter().any(|it| it.load.bound >= NO_BOUND),
        still_ms,
        eventual,
        held_up: if eventual || still_ms >= 100 { lacking(&reports, address) } else { vec![] },
        ahead: ahead.collect(),
        switches: members.iter().map(|it| switch(rules, name, it, dead_ns)).collect(),
    })
}

/// Who lacks what from whom.
fn lacking(
    reports: &[&Report],
    address: impl Fn(u32) -> Option<Ipv4Addr>,
) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    let pairs = |report: &&Report| -> Vec<(Ipv4Addr, Ipv4Addr)> {
        let lacks = (0..u64::BITS).filter(|number| report.lacks >> number & 1 == 1);
        lacks.filter_map(|number| Some((report.switch, address(number)?))).collect()
    };
    reports.iter().flat_map(pairs).filter(|(one, other)| one != other).collect()
}

fn switch(rules: &Switches, group: &str, member: &MemberStatus, dead_ns: u64) -> SwitchStatus {
    let report = member.report.as_ref();
    let alive = member.heard_ns.is_some_and(|ns| ns < dead_ns);
    let standing = match (report, alive) {
        (None, _) => "absent",
        (Some(_), false) => "silent",
        (Some(report), true) if report.leaves && report.view == 0 => "left",
        (Some(report), true) if report.leaves => "leaving",
        (Some(_), true) if member.misfit => "other_layout",
        (Some(_), true) if member.excluded.is_some() => "excluded",
        (Some(report), true) if report.chain.is_some_and(|chain| chain.copying) => "joining",
        (Some(_), true) if !member.sent_all => "joining",
        (Some(report), true) if member.member && report.view != 0 => "member",
        _ => "joining",
    };
    SwitchStatus {
        address: member.address,
        number: member.number,
        standing: standing.to_owned(),
        excluded: member.excluded.clone(),
        incarnation: report.map_or(0, |it| it.incarnation),
        view: report.map_or(0, |it| it.view),
        window: report.map_or(0, |it| it.window),
        bytes_per_s: report.map_or(0, |it| it.load.bytes_per_s),
        memory_bytes: report.map_or(0, |it| it.load.memory_bytes),
        report_ms: member.heard_ns.map(|ns| ns / 1_000_000),
        reports_from: rules.core().address_of(group, member.address),
    }
}

impl Status {
    /// As a message carries it: what is well is left out until it fits.
    pub(crate) fn into_json(self) -> Vec<u8> {
        wire::json_that_fits(self, |status, step| {
            let mut less = false;
            for group in &mut status.groups {
                less |= !group.switches.is_empty();
                match step {
                    0 => group.switches.retain(|it| it.standing != "member"),
                    _ => group.switches.truncate(group.switches.len() / 2),
                }
            }
            less
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Decided;
    use controller::shell::{Input, Outputs, Rules};
    use std::path::Path;
    use swish_protocol::control::{ChainReport, Message};
    use swish_protocol::for_tests::report as new_report;

    const EXAMPLE: &str = include_str!("../../docs/controller.example.toml");

    fn empty() -> Switches {
        let config = crate::Config::parse(Path::new("c.toml"), EXAMPLE).unwrap();
        Switches::new(config, Decided::default(), true, 0)
    }

    fn report(number: u8) -> Report {
        let switch = Ipv4Addr::new(10, 9, 0, number);
        Report { sent_ns: 1, sums: true, view: 6, window: 9, known: 6, ..new_report(switch, 7) }
    }

    fn hear(rules: &mut Switches, now_ns: u64, report: Report) {
        let from = SocketAddrV4::new(report.switch, 4000);
        let bytes = Message::Report(report).encode();
        rules.handle(now_ns, Input::Datagram { from, bytes: &bytes }, &mut Outputs::default());
    }

    /// The database is lost, and a switch reports.
    fn rules() -> Switches {
        let mut rules = empty();
        hear(&mut rules, 1, report(1));
        rules
    }

    #[test]
    fn who_lacks_what_is_told_by_addresses() {
        let first = Report { lacks: 0b1011, ..report(1) };
        let address = |number| (number < 3).then(|| Ipv4Addr::new(10, 9, 0, number as u8 + 1));
        let [one, two] = [1, 2].map(|last| Ipv4Addr::new(10, 9, 0, last));
        assert_eq!(lacking(&[&first, &report(1)], address), [(one, two)]);
    }

    #[test]
    fn a_switch_with_another_layout_is_shown() {
        let mut rules = empty();
        // (Nothing is persistent yet: all wait for a view.)
        let mut now_ns = 0;
        for sent_ns in 1..1000 {
            now_ns += 10_000_000;
            for (number, layout) in [(1, 5), (2, 6)] {
                let report = Report { sent_ns, layout, view: 0, known: 0, ..report(number) };
                hear(&mut rules, now_ns, report);
            }
        }
        let page = status(&rules, &Kept::default(), now_ns);
        let standing: Vec<&str> =
            page.groups[0].switches[..2].iter().map(|it| it.standing.as_str()).collect();
        assert_eq!(standing, ["joining", "other_layout"]);
        let metrics = rules.metrics(now_ns, &Kept::default(), 0);
        let line =
            "stateplane_shared_controller_switches{group=\"main\",standing=\"other_layout\"} 1";
        assert!(metrics.lines().any(|it| it == line), "{metrics}");
    }

    /// All report so, and the decision that follows is persistent.
    fn decide(rules: &mut Switches, now_ns: u64, reports: impl Iterator<Item = Report>) {
        let mut out = Outputs::default();
        for report in reports {
            let from = SocketAddrV4::new(report.switch, 4000);
            let bytes = Message::Report(Report { sent_ns: now_ns, ..report }).encode();
            rules.handle(now_ns, Input::Datagram { from, bytes: &bytes }, &mut out);
            if out.persist.take().is_some() {
                rules.handle(now_ns, Input::Persisted, &mut out);
            }
        }
    }

    #[test]
    fn an_excluded_switch_is_shown_with_the_reason() {
        let mut rules = empty();
        let chain = ChainReport { copying: false, waits: true, applied: 9, committed: 9 };
        let report = |number: u8| Report { chain: Some(chain), ..report(number) };
        let begins = (1..=4).map(|number| Report { view: 0, known: 0, ..report(number) });
        decide(&mut rules, 10, begins);
        let still_ms = 60_000;
        // (The third one has not seen the newest round.)
        let window = |number: u8| if number < 3 { 9 } else { 8 };
        let stand = (1..=4).map(|number| Report {
            view: 1,
            known: 1,
            window: window(number),
            still_ms,
            ..report(number)
        });
        decide(&mut rules, 20, stand);
        let page = status(&rules, &Kept::default(), 20);
        let of = |number: usize| &page.groups[0].switches[number - 1];
        let standings: Vec<&str> = (1..=4).map(|it| of(it).standing.as_str()).collect();
        assert_eq!(standings, ["member", "member", "excluded", "member"]);
        let text = of(3).excluded.as_ref().expect("a reason").text();
        let why = "10.9.0.3 is excluded from view 2 on: 10.9.0.3 lacked messages of 10.9.0.2";
        assert!(text.starts_with(why), "{text}");
        let metrics = rules.metrics(20, &Kept::default(), 0);
        let line = "stateplane_shared_controller_switches{group=\"main\",standing=\"excluded\"} 1";
        assert!(metrics.lines().any(|it| it == line), "{metrics}");
        assert_eq!(rules.slow, 1);
    }

    #[test]
    fn views_that_the_database_does_not_have_are_shown() {
        let rules = rules();
        let page = status(&rules, &Kept::default(), 1);
        let group = &page.groups[0];
        assert_eq!((group.stage.as_str(), group.view, page.settled), ("behind", 0, false));
        assert_eq!(group.ahead, [(Ipv4Addr::new(10, 9, 0, 1), 6)]);
        let metrics = rules.metrics(1, &Kept::default(), 0);
        let line = "stateplane_shared_controller_behind{group=\"main\"} 1";
        assert!(metrics.lines().any(|it| it == line), "{metrics}");
    }
}

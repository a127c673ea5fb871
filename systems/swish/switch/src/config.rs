//! SwiSh's part of `switch.toml`.

mod addresses;
mod bounds;

use crate::gossip::Terms;
use crate::group::{Caps, View};
use addresses::{Addresses, check_controllers, no_switch};
pub(crate) use bounds::bounds;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use swish_protocol::control::{Member, NO_BOUND};
use swish_protocol::layouts::{MEMBERS, MEMBERS_MAX};
use switch_agent::Result;
use switch_agent::config::Config;

pub(crate) const FIELDS: [&str; 1] = ["shared"];

/// Of a window, if the configuration does not say.
const USUAL_PERIOD_US: u64 = 10_000;
/// Updates of a rotation, if it does not say.
const USUAL_BOUND: u64 = NO_BOUND;

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
    members: Vec<Addresses>,
    /// Or the controllers that decide on the members.
    #[serde(default, deserialize_with = "addresses::controllers")]
    controllers: Vec<SocketAddrV4>,
    /// The address of this switch as a member.
    #[serde(deserialize_with = "addresses::own")]
    own: Ipv4Addr,
    /// From one window to the next, at the least.
    period_us: Option<u64>,
    /// B: updates of this switch between two windows.
    bound: Option<u64>,
    /// EWO and SDW, each by itself: of all messages that this switch sends, in Mbit/s.
    bandwidth_mbps: Option<u64>,
    /// SDW: of one CPU's time, work on messages.
    cpu_percent: Option<u32>,
    /// SDW: how many children a member of the aggregation tree has at the most.
    tree: Option<u32>,
    /// EWO: a change is sent after so much time at the latest, if the bandwidth allows it.
    mirror_us: Option<u64>,
    /// EWO: so long a round of gossip takes, if the bandwidth allows it.
    gossip_ms: Option<u64>,
    /// EWO: so long a removed key's tombstone is kept at the least.
    tombstone_s: Option<u64>,
}

/// Of which consistencies a group has variables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Has {
    /// SDW.
    pub windows: bool,
    /// EWO.
    pub eventual: bool,
}

/// A field that some variables need.
struct Setting {
    name: &'static str,
    is_set: bool,
    /// The group has variables that use it.
    used: bool,
    needs: &'static str,
}

impl Setting {
    fn does_nothing(&self) -> bool {
        self.is_set && !self.used
    }
}

/// What decides which switches share a group.
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
    pub caps: Caps,
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

    /// Whether the group has an aggregation tree.
    pub(crate) fn has_tree(&self) -> bool {
        matches!(self, Source::Fixed(view) if view.fan_out > 0)
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
    /// What decides on the members of a group, with `room` in the program for so many switches. A
    /// group that the configuration does not name is this switch's alone.
    ///
    /// # Errors
    /// A field is out of range.
    pub(crate) fn source(&self, group: &str, room: u32) -> Result<Source> {
        source(self.config, group, self.shared.get(group), room)
    }

    /// What is set for variables that the group does not have would do nothing.
    ///
    /// # Errors
    /// There is such a field. (`period_us` and `bound` are told by [`Groups::unused`].)
    pub(crate) fn fits(&self, group: &str, has: Has) -> Result<()> {
        let Some(shared) = self.shared.get(group) else { return Ok(()) };
        let set = |name, is_set, used, needs| Setting { name, is_set, used, needs };
        let (eventual, windows) = ("EWO", "SDW, so no windows");
        let fields = [
            set("cpu_percent", shared.cpu_percent.is_some(), has.windows, windows),
            set("tree", shared.tree.is_some(), has.windows, windows),
            set("mirror_us", shared.mirror_us.is_some(), has.eventual, eventual),
            set("gossip_ms", shared.gossip_ms.is_some(), has.eventual, eventual),
            set("tombstone_s", shared.tombstone_s.is_some(), has.eventual, eventual),
            set(
                "bandwidth_mbps",
                shared.bandwidth_mbps.is_some(),
                has.windows || has.eventual,
                "SDW or EWO",
            ),
        ];
        match fields.into_iter().find(Setting::does_nothing) {
            Some(Setting { name, needs, .. }) => {
                let reason = format!("the group has no variable with {needs}; leave it out");
                self.config.fault(format!("shared.{group}.{name}"), reason)
            }
            None => Ok(()),
        }
    }

    /// Fields that do nothing, as the group has no windows, and why. They are no errors: programs
    /// with SDW, EWO and SRO may share a configuration.
    pub(crate) fn unused(&self, group: &str, has: Has) -> Vec<(String, String)> {
        let Some(shared) = self.shared.get(group).filter(|_| !has.windows) else { return vec![] };
        let set = [("period_us", shared.period_us), ("bound", shared.bound)];
        let set = set.into_iter().filter(|(_, value)| value.is_some());
        let reason =
            "does nothing: the group has no variable with SDW, so no windows; leave it out";
        set.map(|(name, _)| (format!("shared.{group}.{name}"), reason.to_owned())).collect()
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

fn source(config: &Config, group: &str, shared: Option<&Shared>, room: u32) -> Result<Source> {
    let field = |name: &str| format!("shared.{group}.{name}");
    let Some(shared) = shared else {
        return Ok(Source::Fixed(View {
            number: 1,
            own: 0,
            members: vec![fixed(0, Ipv4Addr::LOCALHOST)],
            period_ns: USUAL_PERIOD_US * 1000,
            caps: Caps::default(),
            bound: USUAL_BOUND,
            window: 1,
            begins_ns: 0,
            turns_ns: 0,
            fan_out: 0,
        }));
    };
    if shared.members.is_empty() == shared.controllers.is_empty() {
        let reason = "give either `members`, the switches that share the group, or \
                      `controllers`, which decide on the members";
        return config.fault(field("members"), reason);
    }
    let members = members(shared, room).or_else(|why| config.fault(field("members"), why))?;
    if let Some(why) = no_switch(shared.own) {
        return config.fault(field("own"), why);
    }
    check_controllers(&shared.controllers)
        .or_else(|why| config.fault(field("controllers"), why))?;
    // (A switch that is alone in its group sends nothing.)
    let has_others = members.len() > 1 || !shared.controllers.is_empty();
    if has_others && !config.port.iter().any(|port| port.fabric) {
        let reason = format!(
            "no port has `fabric = true`, so no message of another switch comes in, and \
             [shared.{group}] is shared with nobody; write it at each port that leads to switches \
             of the group"
        );
        return config.fault("port", reason);
    }
    let (period_ns, bound) = terms(config, shared, &field)?;
    let caps = match caps(shared) {
        Ok(caps) => caps,
        Err((name, reason)) => return config.fault(field(name), reason),
    };
    let fan_out = fan_out(shared).or_else(|why| config.fault(field("tree"), why))?;
    if !shared.controllers.is_empty() {
        let own = Own { address: shared.own, period_ns, caps, bound };
        return Ok(Source::Controllers(shared.controllers.clone(), own));
    }
    let Some(own) = members.iter().position(|member| *member == shared.own) else {
        let reason =
            format!("{} is none of `members`; write which of them this switch is", shared.own);
        return config.fault(field("own"), reason);
    };
    Ok(Source::Fixed(View {
        number: 1,
        own: own as u32,
        members: (0..).zip(&members).map(|(number, it)| fixed(number, *it)).collect(),
        period_ns,
        caps,
        bound,
        window: 1,
        begins_ns: 0,
        turns_ns: 0,
        fan_out,
    }))
}

/// Children in the aggregation tree at the most; 0: there is none.
///
/// # Errors
/// There can be no such tree; with the remedy.
fn fan_out(shared: &Shared) -> std::result::Result<u32, String> {
    match shared.tree {
        Some(_) if !shared.controllers.is_empty() => Err(
            "a group with `controllers` has no tree: the updates of a dead switch could not be \
             told from those of the switches below it; leave it out, or give `members`"
                .into(),
        ),
        Some(tree) if !(2..=MEMBERS_MAX).contains(&tree) => Err(format!(
            "{tree}: must be from 2 to {MEMBERS_MAX}, the number of children of a switch in the \
             aggregation tree; leave it out for no tree"
        )),
        tree => Ok(tree.unwrap_or(0)),
    }
}

/// All members, in their order.
///
/// # Errors
/// There is no room for so many, or one is given twice; with the remedy.
fn members(shared: &Shared, room: u32) -> std::result::Result<Vec<Ipv4Addr>, String> {
    let count: u64 = shared.members.iter().map(|it| it.count()).sum();
    if count > room.into() {
        return Err(if count > MEMBERS_MAX.into() {
            format!("{count} switches: a group has at most {MEMBERS_MAX}")
        } else {
            format!(
                "{count} switches, and the program has room for {room}: with SDW, write \
                 `@members({count})` before one of its variables; with EWO and SRO a group has at \
                 most {MEMBERS}"
            )
        });
    }
    let members: Vec<Ipv4Addr> = shared.members.iter().flat_map(|it| it.all()).collect();
    if let Some(why) = members.iter().find_map(|it| no_switch(*it)) {
        return Err(why);
    }
    let mut seen = BTreeSet::new();
    match members.iter().find(|it| !seen.insert(**it)) {
        Some(twice) => Err(format!("{twice} is given twice; write each switch once")),
        None => Ok(members),
    }
}

/// A member that the configuration names. (It does not know of lives.)
fn fixed(number: u32, address: Ipv4Addr) -> Member {
    Member { number, address, incarnation: 0 }
}

/// What windows may cost; else the field that is wrong, and why.
fn caps(shared: &Shared) -> std::result::Result<Caps, (&'static str, String)> {
    let (mbps, percent) = (shared.bandwidth_mbps, shared.cpu_percent);
    if let Some(percent) = percent.filter(|it| !(1..=6400).contains(it)) {
        let reason = "must be from 1 to 6400 (100: one CPU); leave it out for no cap";
        return Err(("cpu_percent", format!("{percent}: {reason}")));
    }
    if let Some(mbps) = mbps.filter(|it| !(1..=1_000_000).contains(it)) {
        let reason = "must be from 1 to 1000000; leave it out for no cap";
        return Err(("bandwidth_mbps", format!("{mbps}: {reason}")));
    }
    Ok(Caps { bandwidth_mbps: mbps.unwrap_or(0), cpu_percent: percent.unwrap_or(0) })
}

/// Period and bound.
fn terms(config: &Config, shared: &Shared, field: &dyn Fn(&str) -> String) -> Result<(u64, u64)> {
    let period_us = shared.period_us.unwrap_or(USUAL_PERIOD_US);
    if period_us > 60_000_000 {
        return config.fault(field("period_us"), format!("{period_us}: must be at most 60000000"));
    }
    let bound = shared.bound.unwrap_or(USUAL_BOUND);
    if bound == 0 {
        return config
            .fault(field("bound"), "0: must be at least 1 update; leave it out for no bound");
    }
    Ok((period_us * 1000, bound))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn shared(members: &str) -> serde_json::Result<Shared> {
        serde_json::from_str(&format!("{{ \"own\": \"10.0.0.1\", \"members\": {members} }}"))
    }

    #[test]
    fn ranges_are_members_in_their_order() {
        let few = shared(r#"["10.0.1.7", "10.0.0.254-10.0.1.1"]"#).expect("it reads");
        let all = members(&few, 32).expect("members");
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(all, ["10.0.1.7", "10.0.0.254", "10.0.0.255", "10.0.1.0", "10.0.1.1"]);
        let many = shared(r#"["10.0.0.0-10.0.15.255"]"#).expect("it reads");
        assert_eq!(members(&many, MEMBERS_MAX).map(|it| it.len()), Ok(4096));
    }

    #[test]
    fn what_has_no_room_is_told_with_the_remedy() {
        let error = |text: &str, room| members(&shared(text).expect("it reads"), room).unwrap_err();
        let more = r#"["10.0.0.1-10.0.0.40"]"#;
        assert!(error(more, 32).contains("40 switches, and the program has room for 32"));
        assert!(error(more, 32).contains("@members(40)"));
        assert!(error(r#"["0.0.0.0-255.255.255.255"]"#, 4096).contains("at most 4096"));
        assert!(error(r#"["0.0.0.0-0.0.0.3"]"#, 32).contains("no switch's"));
        assert!(error(r#"["10.0.0.3", "10.0.0.1-10.0.0.4"]"#, 32).contains("10.0.0.3 is given"));
    }

    #[test]
    fn caps_have_a_range() {
        let of = |field: &str| {
            let text = format!("{{ \"own\": \"10.0.0.1\", \"members\": [], {field} }}");
            caps(&serde_json::from_str(&text).expect("it reads"))
        };
        assert_eq!(of("\"period_us\": 1"), Ok(Caps::default()));
        let both = of("\"bandwidth_mbps\": 5, \"cpu_percent\": 6400");
        assert_eq!(both, Ok(Caps { bandwidth_mbps: 5, cpu_percent: 6400 }));
        for (field, value) in [
            ("cpu_percent", "0"),
            ("cpu_percent", "6401"),
            ("bandwidth_mbps", "0"),
            ("bandwidth_mbps", "1000001"),
        ] {
            let (wrong, reason) = of(&format!("\"{field}\": {value}")).expect_err("out of range");
            assert!(wrong == field && reason.starts_with(&format!("{value}: must be from 1 to")));
        }
    }

    #[test]
    fn a_tree_has_a_range_and_no_controllers() {
        let of = |fields: &str| {
            let text = format!("{{ \"own\": \"10.0.0.1\", {fields} }}");
            fan_out(&serde_json::from_str(&text).expect("it reads"))
        };
        assert_eq!(of("\"members\": []"), Ok(0));
        assert_eq!(of("\"members\": [], \"tree\": 2"), Ok(2));
        for tree in ["0", "1", "4097"] {
            let reason = of(&format!("\"members\": [], \"tree\": {tree}")).expect_err("no tree");
            assert!(reason.starts_with(&format!("{tree}: must be from 2 to 4096")), "{reason}");
        }
        let reason = of("\"controllers\": [\"10.0.0.9:5408\"], \"tree\": 2").expect_err("refused");
        assert!(reason.contains("`controllers` has no tree") && reason.contains("leave it out"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let error = |text: &str| shared(text).map(drop).unwrap_err().to_string();
        assert!(error(r#"["10.0.0.9-10.0.0.1"]"#).contains("below the first"));
        assert!(error(r#"["10.0.0.9-"]"#).contains("write an IPv4 address"));
        assert!(error(r#"["all"]"#).contains("write an IPv4 address"));
        let of = |fields: &str| {
            let text = format!("{{ {fields} }}");
            serde_json::from_str::<Shared>(&text).map(drop).unwrap_err().to_string()
        };
        assert!(of(r#""own": "s1""#).contains("\"s1\": write this switch's IPv4 address"));
        let controllers = of(r#""own": "10.0.0.1", "controllers": ["10.0.0.9"]"#);
        assert!(controllers.contains("write ADDRESS:PORT, such as \"10.0.0.9:5412\""));
    }

    /// What a configuration with this `[shared.main]` is refused for.
    fn refused(fields: &str, ports: &str, has: Has) -> String {
        let text = format!(
            "name = \"s1\"\nobject = \"x.o\"\n[shared.main]\n{fields}\n[[port]]\ninterface = \
             \"a\"\nport = 1\n{ports}\n"
        );
        let config = Config::parse(Path::new("s1.toml"), &text, &[&crate::SwiSh]).expect(fields);
        let said = groups(&config, &["main"]).expect(fields);
        let result = said.fits("main", has).and_then(|()| said.source("main", MEMBERS));
        result.map_or_else(|error| error.to_string(), |_| "good".to_owned())
    }

    #[test]
    fn what_cannot_work_is_told_with_file_field_and_remedy() {
        const BOTH: Has = Has { windows: true, eventual: true };
        let two = "members = [\"10.9.0.1\", \"10.9.0.2\"]\nown = \"10.9.0.1\"";
        let fabric = "fabric = true";
        assert_eq!(refused(two, fabric, BOTH), "good");
        assert_eq!(refused("members = [\"10.9.0.1\"]\nown = \"10.9.0.1\"", "", BOTH), "good");
        let error = refused(two, "", BOTH);
        assert!(error.starts_with("s1.toml: line 6: port: no port has `fabric = true`"), "{error}");
        for (fields, field, remedy) in [
            ("members = [\"224.0.0.1\"]\nown = \"10.9.0.1\"", "members", "own address"),
            ("members = [\"127.0.0.1\"]\nown = \"127.0.0.1\"", "members", "own address"),
            ("members = [\"10.9.0.1\"]\nown = \"255.255.255.255\"", "own", "own address"),
            ("members = [\"10.9.0.1\"]\nown = \"10.9.0.9\"", "own", "which of them"),
            (
                "controllers = [\"10.0.0.9:1\", \"10.0.0.9:1\"]\nown = \"10.9.0.1\"",
                "controllers",
                "each controller once",
            ),
            ("controllers = [\"10.0.0.9:0\"]\nown = \"10.9.0.1\"", "controllers", ":5412"),
            ("controllers = [\"0.0.0.0:9\"]\nown = \"10.9.0.1\"", "controllers", "own address"),
        ] {
            let error = refused(fields, fabric, BOTH);
            let at = fields.split('\n').position(|it| it.starts_with(field)).expect(field);
            let start = format!("s1.toml: line {}: shared.main.{field}: ", 4 + at);
            assert!(error.starts_with(&start) && error.contains(remedy), "{fields}: {error}");
        }
    }

    #[test]
    fn what_would_do_nothing_is_told() {
        let of = |field: &str, has| {
            let two = "members = [\"10.9.0.1\", \"10.9.0.2\"]\nown = \"10.9.0.1\"";
            refused(&format!("{two}\n{field}"), "fabric = true", has)
        };
        let (windows, eventual) =
            (Has { windows: true, eventual: false }, Has { windows: false, eventual: true });
        for (field, has) in [
            ("gossip_ms = 0", windows),
            ("mirror_us = 7", windows),
            ("tombstone_s = 7", Has::default()),
            ("cpu_percent = 7", eventual),
            ("tree = 2", eventual),
            ("bandwidth_mbps = 7", Has::default()),
        ] {
            let (error, name) = (of(field, has), field.split(' ').next().unwrap_or(field));
            assert!(
                error.starts_with(&format!("s1.toml: line 6: shared.main.{name}: ")),
                "{error}"
            );
            assert!(error.ends_with("leave it out"), "{error}");
        }
        for (field, has) in [("bandwidth_mbps = 7", eventual), ("bandwidth_mbps = 7", windows)] {
            assert_eq!(of(field, has), "good");
        }
        let text = "name = \"s1\"\nobject = \"x.o\"\n[shared.main]\nmembers = []\nown = \
                    \"10.9.0.1\"\nbound = 5\nperiod_us = 5\n[[port]]\ninterface = \"a\"\nport = 1\n";
        let config = Config::parse(Path::new("s1.toml"), text, &[&crate::SwiSh]).expect("it reads");
        let said = groups(&config, &["main"]).expect("a group");
        let unused: Vec<String> =
            said.unused("main", eventual).into_iter().map(|it| it.0).collect();
        assert_eq!(unused, ["shared.main.period_us", "shared.main.bound"]);
        assert!(said.unused("main", windows).is_empty());
    }

    #[test]
    fn the_example_has_every_field() {
        const EXAMPLE: &str = include_str!("../../../../docs/switch.example.toml");
        let (_, section) = EXAMPLE.split_once("# [shared.main]\n").expect("the section");
        let (section, _) = section.split_once("\n\n").expect("its end");
        let settings = section.lines().filter_map(|line| {
            let setting = line.strip_prefix("# ")?;
            let (name, _) = setting.split_once(" = ")?;
            (!name.contains(' ')).then_some((name, setting))
        });
        let settings: Vec<(&str, &str)> = settings.collect();
        // (The reader names all fields when it meets another one.)
        let error = serde_json::from_str::<Shared>("{ \"no_such_field\": 1 }").map(drop);
        let error = error.unwrap_err().to_string();
        let known: BTreeSet<&str> = error.split('`').skip(3).step_by(2).collect();
        assert!(known.len() > 8, "{error}");
        assert_eq!(settings.iter().map(|it| it.0).collect::<BTreeSet<_>>(), known);
        // It is good, with either of `members` and `controllers`.
        const BOTH: Has = Has { windows: true, eventual: true };
        for out in [vec!["controllers"], vec!["members", "tree"]] {
            let fields = settings.iter().filter(|it| !out.contains(&it.0)).map(|it| it.1);
            let fields: Vec<&str> = fields.collect();
            assert_eq!(refused(&fields.join("\n"), "fabric = true", BOTH), "good");
        }
    }
}

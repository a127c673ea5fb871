//! The page: a table for each kind of daemon, and under it what is wrong and what to do.

use super::overview::{Controller, Load, Overview, Store, Switch, daemons, silent};
use command_line::StoreView;
use command_line::outln;
use controller::shell::{PeerStatus, Status as ControllerStatus};
use switch_agent::load::{GatewayLoad, HopLoad, ViewsKnown};
use switch_agent::system::{Holds, ObjectLoad};
use wire::{Reporter, SwitchLoad};

/// Next hops that are named, of those that do not answer.
const MOST_HOPS: usize = 8;

/// A table of the page.
pub struct Section {
    pub head: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    /// Below the table: what is wrong, and what to do.
    pub notes: Vec<String>,
}

/// The page, from top to bottom: a further kind of daemon adds its section here.
fn sections(overview: &Overview) -> Vec<Section> {
    vec![
        switches(&overview.switches, &overview.reported_switches(), overview.shards()),
        super::drops::drops(&overview.switches),
        stores(&overview.stores),
        controllers(overview),
        overview.leading().map_or(Section { head: vec![], rows: vec![], notes: vec![] }, chains),
    ]
}

/// Prints it.
pub fn print(overview: &Overview) {
    let sections = sections(overview);
    if sections.iter().all(|section| section.rows.is_empty()) {
        outln!(
            "no switch runs on this machine; --store and --controller ask the state store's daemons"
        );
    }
    for section in sections.into_iter().filter(|section| !section.rows.is_empty()) {
        section.print();
        outln!("");
    }
}

impl Section {
    /// Prints the table and its notes.
    pub fn print(self) {
        command_line::print_table(&self.head, self.rows);
        for note in &self.notes {
            outln!("  {note}");
        }
    }
}

/// Which next hops are not resolved.
fn gateway_notes(name: &str, load: &GatewayLoad) -> Vec<String> {
    let note = |hop: &HopLoad| {
        let (address, port) = (&hop.address, hop.port);
        format!("{name}: next hop {address} (port {port}) does not answer: packets to it are lost")
    };
    let mut notes: Vec<String> = load.unresolved.iter().take(MOST_HOPS).map(note).collect();
    let more = load.unresolved.len().saturating_sub(MOST_HOPS);
    if more > 0 {
        notes.push(format!("{name}: {more} more next hops do not answer"));
    }
    notes
}

/// How late the generator is, in words.
fn lag(generator_lag_us: Option<u64>) -> String {
    generator_lag_us.map_or("-".to_owned(), |us| format!("{:.1} ms", us as f64 / 1_000.0))
}

/// The row of a switch of another machine.
fn reported(peer: &PeerStatus, load: &SwitchLoad, shards: usize) -> Vec<String> {
    let id = match peer.reporter {
        Reporter::Switch { switch_id } => switch_id.to_string(),
        Reporter::Server => "-".to_owned(),
    };
    let state = match peer.alive {
        true if load.ports_attached < load.ports => "not well",
        true => "up",
        false => "not heard",
    };
    vec![
        load.name.clone(),
        id,
        load.program.clone(),
        state.to_owned(),
        format!("{} of {}", load.ports_attached, load.ports),
        format!("{} of {shards}", load.sessions),
        load.owned.to_string(),
        load.pending.to_string(),
        lag(load.generator_lag_us),
    ]
}

fn switches(found: &[Switch], elsewhere: &[(&PeerStatus, &SwitchLoad)], shards: usize) -> Section {
    let mut notes = vec![];
    let row = |switch: &Switch| {
        let id =
            switch.status.as_ref().map_or("-".to_owned(), |status| status.switch_id.to_string());
        let program =
            switch.status.as_ref().map_or("-".to_owned(), |status| status.program.clone());
        let mut row = vec![switch.name.clone(), id, program, switch.state().to_owned()];
        let Some(Load { agent: load, view, .. }) = &switch.load else {
            row.extend(["-", "-", "-", "-", "-"].map(str::to_owned));
            return row;
        };
        let owned: u64 = load.objects.iter().map(|object| object.owned).sum();
        row.extend([
            format!("{} of {}", load.ports_attached, load.ports),
            format!("{} of {}", view.sessions.0, view.sessions.1),
            owned.to_string(),
            view.pending.to_string(),
            lag(load.generator_lag_us),
        ]);
        row
    };
    let there = elsewhere.iter().map(|(peer, load)| reported(peer, load, shards));
    let rows = found.iter().map(row).chain(there).collect();
    for (peer, load) in elsewhere.iter().filter(|(_, load)| load.ports_attached < load.ports) {
        notes.push(format!(
            "{}: a port is not attached: see `stateplane status` on its machine ({})",
            load.name,
            peer.address.ip()
        ));
    }
    for switch in found {
        notes.extend(switch.error.clone());
        let Some(Load { agent: load, view, .. }) = &switch.load else { continue };
        let named = |note: &String| format!("{}: {note}", switch.name);
        match load.views {
            // Said below: the controllers run.
            _ if !load.other_secrets.is_empty() => {}
            Some(ViewsKnown::None) => notes.push(format!(
                "{}: no views: no controller has said where the store is, and packets that need its state are dropped; do the controllers run, and is there a route to them?",
                switch.name
            )),
            Some(ViewsKnown::Kept) => notes.push(format!(
                "{}: no controller has answered since the agent started: it uses the views of an earlier agent",
                switch.name
            )),
            Some(ViewsKnown::Told) | None => {}
        }
        notes.extend(load.other_secrets.iter().map(|controller| {
            format!(
                "{}: controller {controller} runs and has other secrets: it accepts no message of this switch; copy the fabric's file, and compare `stateplane keys show`",
                switch.name
            )
        }));
        notes.extend(view.notes.iter().map(named));
        for object in &load.objects {
            notes.push(format!("{}: {}", switch.name, held(object)));
        }
        notes.extend(load.waiting.iter().map(|waiting| named(&waiting.to_string())));
        notes.extend(view.more.iter().map(named));
        notes.extend(gateway_notes(&switch.name, &load.gateway));
        notes.extend(load.narrow_ports.iter().map(|port| format!("{}: {port}", switch.name)));
        if load.ports_attached < load.ports {
            notes.push(format!(
                "{}: a port is not attached: see `stateplane ports --switch {}`",
                switch.name, switch.name
            ));
        }
    }
    Section {
        head: vec![
            "switch",
            "id",
            "program",
            "state",
            "ports",
            "sessions",
            "flows owned",
            "pending",
            "generator lag",
        ],
        rows,
        notes,
    }
}

/// The columns of all stores' systems, each once.
fn store_columns(found: &[Store]) -> Vec<&'static str> {
    let mut head = vec!["store"];
    for (name, _) in found.iter().filter_map(|store| store.view.as_ref()).flat_map(|it| &it.columns)
    {
        if !head.contains(name) {
            head.push(name);
        }
    }
    if !head.contains(&StoreView::STATE) {
        head.push(StoreView::STATE);
    }
    head
}

fn stores(found: &[Store]) -> Section {
    let mut notes = vec![];
    let head = store_columns(found);
    let row = |store: &Store| {
        let state = match (&store.view, &store.status) {
            (Some(_), _) => "-",
            (None, Some(_)) => "not known",
            (None, None) => "no answer",
        };
        let cell = |name: &&str| {
            let columns = store.view.iter().flat_map(|view| &view.columns);
            let own =
                columns.into_iter().find(|(own, _)| own == name).map(|(_, cell)| cell.clone());
            let other = if *name == StoreView::STATE { state } else { "-" };
            own.unwrap_or_else(|| other.to_owned())
        };
        std::iter::once(store.address.to_string()).chain(head[1..].iter().map(cell)).collect()
    };
    let rows = found.iter().map(row).collect();
    for store in found {
        notes.extend(store.error.clone());
        match (&store.view, &store.status) {
            (Some(view), _) => {
                notes.extend(view.notes.iter().map(|note| format!("{}: {note}", store.address)));
            }
            (None, Some(_)) => notes.push(format!(
                "{}: the answer is not from a store of this version: is this a controller's address?",
                store.address
            )),
            (None, None) => {}
        }
    }
    Section { head, rows, notes }
}

fn controllers(overview: &Overview) -> Section {
    let row = |controller: &Controller| {
        let Some(status) = &controller.status else {
            return vec![
                controller.address.to_string(),
                "no answer".to_owned(),
                "-".to_owned(),
                "-".to_owned(),
                "-".to_owned(),
            ];
        };
        let (alive, known) =
            (daemons(status).filter(|peer| peer.alive).count(), daemons(status).count());
        vec![
            controller.address.to_string(),
            controller_state(status).to_owned(),
            status.version.to_string(),
            format!("{alive} of {known}"),
            if status.settled { "yes" } else { "no" }.to_owned(),
        ]
    };
    let mut notes: Vec<_> =
        overview.controllers.iter().filter_map(|controller| controller.error.clone()).collect();
    if !overview.controllers.is_empty() && overview.leading().is_none() {
        notes.push(
            "no controller decides: chains go on as they are, but are not repaired".to_owned(),
        );
    }
    if overview.leaders() > 1 {
        notes.push(
            "more than one controller decides: does each have a database of its own? They decide against each other: stop all but the one with the newest views, or give them one etcd"
                .to_owned(),
        );
    }
    for controller in &overview.controllers {
        let of = |note: String| format!("{}: {note}", controller.address);
        notes.extend(
            controller
                .status
                .as_ref()
                .map(controller_notes)
                .unwrap_or_default()
                .into_iter()
                .map(of),
        );
    }
    for peer in overview.leading().into_iter().flat_map(silent) {
        let (what, address, silent_ms) = (reporter(peer.reporter), peer.address, peer.silent_ms);
        notes.push(format!(
            "{what} ({address}): the controller has not heard it for {silent_ms} ms"
        ));
    }
    Section {
        head: vec!["controller", "state", "views", "daemons heard", "settled"],
        rows: overview.controllers.iter().map(row).collect(),
        notes,
    }
}

/// In a word or two.
pub fn controller_state(status: &ControllerStatus) -> &'static str {
    match (status.leading, &status.cannot_decide) {
        (true, None) => "decides",
        (true, Some(_)) => "cannot decide",
        (false, _) => "stands by",
    }
}

/// What is wrong, and what was lost.
pub fn controller_notes(status: &ControllerStatus) -> Vec<String> {
    let mut notes: Vec<String> =
        status.cannot_decide.iter().map(|why| format!("cannot decide: {why}")).collect();
    notes.extend(status.warnings.iter().cloned());
    if status.peers_left_out > 0 {
        notes.push(format!(
            "{} daemons are not listed: the answer would not fit a message",
            status.peers_left_out
        ));
    }
    if !status.state_lost.is_empty() {
        let shards: Vec<_> = status.state_lost.iter().map(ToString::to_string).collect();
        notes.push(format!(
            "STATE WAS LOST in shards {}: all servers of their chains died, and they began anew, empty (its log says when)",
            shards.join(" ")
        ));
    }
    notes
}

/// The chains as the deciding controller has them: head first.
pub fn chains(status: &ControllerStatus) -> Section {
    let row = |shard: &controller::shell::ShardStatus| {
        let chain: Vec<_> = shard.chain.iter().map(ToString::to_string).collect();
        vec![
            shard.shard.to_string(),
            shard.view.to_string(),
            chain.join(" "),
            shard.joining.map_or("-".to_owned(), |address| address.to_string()),
            format!("{} entries", shard.lag),
        ]
    };
    let left_out = status.shards_left_out;
    let note = format!(
        "{left_out} more chains are not listed: their answer would not fit a message; whole ones are left out first"
    );
    Section {
        head: vec!["shard", "view", "chain, head first", "joins", "lag"],
        rows: status.shards.iter().map(row).collect(),
        notes: if left_out > 0 { vec![note] } else { vec![] },
    }
}

/// In words.
pub fn reporter(reporter: Reporter) -> String {
    match reporter {
        Reporter::Server => "server".to_owned(),
        Reporter::Switch { switch_id } => format!("switch {switch_id}"),
    }
}

/// What a state object holds.
fn held(object: &ObjectLoad) -> String {
    let ObjectLoad { name, consistency, flows, owned, limit, holds } = object;
    let held = match holds {
        Holds::Flows => format!("{owned} flows owned; {flows} of {limit} entries used"),
        Holds::Entries => format!("{flows} of {limit} entries used"),
        Holds::Cells => format!("{limit} cells"),
    };
    format!("{name} ({consistency}): {held}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use switch_agent::load::NarrowPort;

    #[test]
    fn only_flows_are_owned() {
        let load = |holds, flows| ObjectLoad {
            name: "ingress.t".to_owned(),
            consistency: "sro".to_owned(),
            flows,
            owned: 0,
            limit: 64,
            holds,
        };
        assert_eq!(held(&load(Holds::Entries, 3)), "ingress.t (sro): 3 of 64 entries used");
        assert_eq!(held(&load(Holds::Cells, 0)), "ingress.t (sro): 64 cells");
        let text = held(&load(Holds::Flows, 3));
        assert_eq!(text, "ingress.t (sro): 0 flows owned; 3 of 64 entries used");
    }

    /// A controller's page with these `(address, reporter, heard)`.
    fn overview(peers: &[(&str, Reporter, bool)]) -> Overview {
        let peer = |(address, reporter, alive): &(&str, Reporter, bool)| PeerStatus {
            address: address.parse().expect("address"),
            reporter: *reporter,
            machine: String::new(),
            alive: *alive,
            version: 1,
            silent_ms: 7,
            load: None,
        };
        let peers = peers.iter().map(peer).collect();
        let status = ControllerStatus {
            leading: true,
            version: 1,
            settled: true,
            peers,
            shards: vec![],
            shards_left_out: 0,
            peers_left_out: 0,
            cannot_decide: None,
            state_lost: Vec::new(),
            warnings: Vec::new(),
        };
        let address = "10.0.0.9:5408".parse().expect("address");
        let controllers = vec![Controller { address, error: None, status: Some(status) }];
        Overview { switches: vec![], stores: vec![], controllers }
    }

    #[test]
    fn switches_of_other_machines_are_told_as_the_controller_heard_of_them() {
        let reporter = Reporter::Switch { switch_id: 7 };
        let mut overview =
            overview(&[("10.0.0.2:1000", reporter, true), ("10.0.0.2:900", reporter, false)]);
        let load = SwitchLoad {
            name: "leaf-7".to_owned(),
            program: "nat.p4".to_owned(),
            ports_attached: 2,
            ports: 2,
            sessions: 8,
            owned: 1_234,
            pending: 5,
            generator_lag_us: Some(1_500),
        };
        let row = |overview: &Overview| {
            switches(&overview.switches, &overview.reported_switches(), 8).rows
        };
        assert!(row(&overview).is_empty() && overview.is_good(), "it has told nothing yet");
        let peers = |overview: &mut Overview, load: &SwitchLoad| {
            let status = overview.controllers[0].status.as_mut().expect("a status");
            status.peers.iter_mut().for_each(|peer| peer.load = Some(load.clone()));
        };
        peers(&mut overview, &load);
        let expected = ["leaf-7", "7", "nat.p4", "up", "2 of 2", "8 of 8", "1234", "5", "1.5 ms"]
            .map(str::to_owned);
        assert_eq!((row(&overview), overview.is_good()), (vec![expected.to_vec()], true));
        peers(&mut overview, &SwitchLoad { ports_attached: 1, ..load });
        assert_eq!((row(&overview)[0][3].as_str(), overview.is_good()), ("not well", false));
    }

    /// A toy system: a counter that gossips.
    struct Toy;

    impl command_line::System for Toy {
        fn switch(
            &self,
            told: &serde_json::Map<String, serde_json::Value>,
        ) -> Result<command_line::SwitchView, serde_json::Error> {
            let gossips: u64 = serde_json::from_value(told["toy_gossips"].clone())?;
            Ok(command_line::SwitchView {
                pending: gossips,
                fault: (gossips > 100).then_some("too chatty"),
                notes: vec![format!("{gossips} gossips are under way")],
                fields: [("toy_gossips".to_owned(), gossips.into())].into_iter().collect(),
                ..Default::default()
            })
        }
    }

    #[test]
    fn a_toy_systems_object_is_shown() {
        let shown = |gossips: serde_json::Value| {
            let told = serde_json::json!({
                "views": null, "views_version": 0, "generator_lag_us": null,
                "ports_attached": 2, "ports": 2, "toy_gossips": gossips,
                "waiting": { "mode": "batch", "why": "s1.toml says so" },
                "objects": [{ "name": "ingress.toy", "consistency": "gossip", "flows": 2, "owned": 1, "limit": 8 }],
            });
            let load = serde_json::from_value(told).expect("as agents tell");
            Load::of(load, &[&Toy]).map(|load| {
                let status = switch_agent::control::Status {
                    name: "s1".to_owned(),
                    program: "toy.p4".to_owned(),
                    how: "started".to_owned(),
                    switch_id: 3,
                    incarnation: 1,
                    pid: 1,
                    generated_frames: 0,
                };
                Switch {
                    name: "s1".to_owned(),
                    error: None,
                    status: Some(status),
                    load: Some(load),
                }
            })
        };
        let switch = shown(5.into()).expect("the toy's fields");
        let json = serde_json::to_value(&switch).expect("plain data");
        assert_eq!((&json["load"]["toy_gossips"], &json["load"]["ports"]), (&5.into(), &2.into()));
        let section = switches(&[switch], &[], 0);
        let row = ["s1", "3", "toy.p4", "up", "2 of 2", "0 of 0", "1", "5", "-"].map(str::to_owned);
        assert_eq!(section.rows, [row.to_vec()]);
        let notes = [
            "s1: 5 gossips are under way",
            "s1: ingress.toy (gossip): 1 flows owned; 2 of 8 entries used",
            "s1: packets wait in the switch (\"batch\"): s1.toml says so",
        ];
        assert_eq!(section.notes, notes);
        assert_eq!(shown(101.into()).expect("the toy's fields").state(), "too chatty");
        assert!(shown("many".into()).is_err(), "an agent of another version");
    }

    /// Each system's stores have columns of their own; those that give no answer have a state.
    #[test]
    fn stores_have_the_columns_of_their_systems() {
        let store =
            |number: u8, columns: Option<Vec<(&'static str, String)>>, answers: bool| Store {
                address: std::net::SocketAddrV4::new([10, 0, 0, number].into(), 5407),
                error: None,
                status: answers.then(|| serde_json::json!({})),
                view: columns.map(|columns| StoreView { ready: true, columns, notes: vec![] }),
            };
        let toy = |count: &str| {
            vec![("gossips", count.to_owned()), (StoreView::STATE, "chatty".to_owned())]
        };
        let other = vec![(StoreView::STATE, "ready".to_owned()), ("slots", "7".to_owned())];
        let none = stores(&[store(1, None, false), store(2, None, true)]);
        assert_eq!(none.head, ["store", "state"]);
        assert_eq!(none.rows[0], ["10.0.0.1:5407", "no answer"]);
        assert_eq!(none.rows[1], ["10.0.0.2:5407", "not known"]);
        let found = stores(&[
            store(1, Some(toy("5")), true),
            store(2, Some(other), true),
            store(3, None, false),
        ]);
        assert_eq!(found.head, ["store", "gossips", "state", "slots"]);
        assert_eq!(found.rows[0], ["10.0.0.1:5407", "5", "chatty", "-"]);
        assert_eq!(found.rows[1], ["10.0.0.2:5407", "-", "ready", "7"]);
        assert_eq!(found.rows[2], ["10.0.0.3:5407", "-", "no answer", "-"]);
    }

    #[test]
    fn a_gateway_says_which_next_hops_do_not_answer() {
        let hop = |last| HopLoad { address: format!("192.0.2.{last}"), port: 2 };
        assert_eq!(gateway_notes("s1", &GatewayLoad::default()), Vec::<String>::new());
        let unresolved = (0..10).map(hop).collect();
        let load = GatewayLoad { next_hops: 20, unresolved, ..Default::default() };
        let notes = gateway_notes("s1", &load);
        assert!(notes[0].starts_with("s1: next hop 192.0.2.0 (port 2) does not answer"));
        assert_eq!(notes[MOST_HOPS..], ["s1: 2 more next hops do not answer"]);
    }

    #[test]
    fn a_narrow_fabric_port_is_told_with_the_mtu_that_it_needs() {
        let interface = "core".to_owned();
        let port = NarrowPort { port: 1, interface, mtu: 1_500, leaves: 1_280, hosts_mtu: 1_500 };
        let told = port.to_string();
        assert!(
            told.contains("port 1 (core)") && told.contains("ip link set core mtu 1720"),
            "{told}"
        );
    }

    #[test]
    fn whoever_the_controller_does_not_hear_is_told_but_for_earlier_lives() {
        let switch = |switch_id| Reporter::Switch { switch_id };
        let (store, first, again) = ("10.0.0.1:5407", "10.0.0.2:1000", "10.0.0.2:2000");
        for (peers, heard, note) in [
            (&[(store, Reporter::Server, true), (first, switch(1), true)][..], "2 of 2", None),
            (
                &[(store, Reporter::Server, true), (first, switch(1), false)],
                "1 of 2",
                Some("switch 1 (10.0.0.2:1000)"),
            ),
            (
                &[(store, Reporter::Server, false), (first, switch(1), true)],
                "1 of 2",
                Some("server (10.0.0.1:5407)"),
            ),
            (&[(first, switch(1), false), (again, switch(1), true)], "1 of 1", None),
            (&[(first, switch(1), false), (again, switch(2), true)], "1 of 2", Some("switch 1 (")),
        ] {
            let overview = overview(peers);
            let section = controllers(&overview);
            assert_eq!(
                (overview.is_good(), section.rows[0][3].as_str()),
                (note.is_none(), heard),
                "{peers:?}"
            );
            let told =
                section.notes.iter().any(|told| note.is_some_and(|note| told.starts_with(note)));
            assert_eq!(
                (told, section.notes.is_empty()),
                (note.is_some(), note.is_none()),
                "{:?}",
                section.notes
            );
        }
    }
}

//! The store of a case: the real server (`state_store::core::Node`) as the only one of its chain,
//! and the agent of the switch. Messages take no time and none is lost; the simulator has networks
//! with faults.

use super::Lines;
use super::lines::StoreLine;
use dataplane::{Dataplane, Verdict};
use manifest::Manifest;
use packet_test::{Arrival, Backing, Fault, Identity, Line, Outcome};
use redplane_switch::runtime::FlowSettings;
use redplane_switch::{FlowRuntime, SwitchConfig, Work};
use sim::envelope::{STORE_PORT, frame_of, message_of};
use state_protocol::objects::{Allocator, Consistency, flow_states, snapshot_states};
use state_store::config::Config;
use state_store::core::{Input, MergeSettings, Node, Outputs, Start};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use wire::{KeyRing, Member, SECRET_BYTES, Secret, ShardView, Views};

/// The server.
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 254, 0, 1), wire::PORT);
/// Messages come in there. No case has packets from it: what the kernel is, and drops, is above.
const FABRIC_PORT: u32 = 509;
/// The store is older than any lease when the case begins: it serves at once.
const AGE_NS: u64 = 3_600_000_000_000;
/// Between two looks of the packet generator while something is queued.
const LOOK_NS: u64 = 1_000_000;
/// And while nothing is: short against any lease.
const QUIET_NS: u64 = 10_000_000;

/// A store with one shard, and the switch's agent.
pub(super) struct Store {
    node: Node,
    keys: KeyRing,
    /// Of the switch that lives; what comes for others is lost.
    address: Ipv4Addr,
    settings: Option<FlowSettings>,
    work: Work,
    manifest: Manifest,
    line: u32,
}

impl Store {
    /// A store for the objects of a program.
    pub fn new(
        line: &Line,
        store: StoreLine,
        lines: &Lines,
        manifest: &Manifest,
    ) -> Outcome<Store> {
        let text = configuration(line, store, lines, manifest)?;
        let config =
            Config::parse(Path::new("# store"), &text).map_err(|error| line.fault(error))?;
        let keys = KeyRing::new(1, Secret([1; SECRET_BYTES]))
            .ok_or_else(|| line.fault("the secret has no number"))?;
        let start = Start { incarnation: 1, epoch_base: 1, seed: 1, now_ns: 0 };
        let mut node = Node::new(config.settings, start, keys.clone(), SERVER, vec![]);
        for (object_id, backends) in config.backends {
            node.set_backends(object_id, backends);
        }
        let member = Member { address: SERVER, incarnation: start.incarnation };
        let shard = ShardView {
            number: 1,
            founded: 1,
            members: vec![member],
            joining: None,
            draining: false,
        };
        node.adopt(0, &Views { version: 1, shards: vec![shard] }, &mut Outputs::new());
        Ok(Store {
            node,
            keys,
            address: Ipv4Addr::UNSPECIFIED,
            settings: None,
            work: Work::of(manifest),
            manifest: manifest.clone(),
            line: line.number,
        })
    }

    /// The server takes an input; what comes to the switch of it.
    fn serve(&mut self, now_ns: u64, input: Input<'_>) -> Vec<Arrival> {
        let (mut out, now_ns) = (Outputs::new(), now_ns + AGE_NS);
        self.node.handle(now_ns, input, &mut out);
        self.node.flush(now_ns, &mut out);
        let (from, address) = (*SERVER.ip(), self.address);
        let ours = out.datagrams().filter(|(to, _)| *to.ip() == address);
        ours.map(|(_, bytes)| (FABRIC_PORT, frame_of(from, address, bytes))).collect()
    }

    /// A message of the switch.
    fn sent(&mut self, frame: &[u8], now_ns: u64) -> Vec<Arrival> {
        let from = SocketAddrV4::new(self.address, wire::PORT);
        match message_of(frame) {
            Some((to, bytes)) if to == SERVER => {
                self.serve(now_ns, Input::Datagram { from, bytes: &bytes })
            }
            _ => vec![],
        }
    }
}

impl Backing for Store {
    fn begin_switch(
        &mut self,
        switch: &Dataplane,
        identity: Identity,
        _now_ns: u64,
    ) -> Outcome<()> {
        let [_, b, c, d] = identity.switch_id.to_be_bytes();
        self.address = Ipv4Addr::new(10, b, c, d);
        let agent = SwitchConfig::default();
        let settings = FlowSettings {
            switch_id: identity.switch_id,
            incarnation: identity.incarnation,
            protocol_address: self.address,
            shards: 1,
            lease_margin_ns: agent.lease_margin_us * 1_000,
            resend_least_ns: agent.resend_timeout_us * 1_000,
            resend_most_ns: agent.resend_timeout_most_us * 1_000,
            window: u64::from(agent.window_packets),
            look_ns: LOOK_NS,
        };
        self.settings = Some(settings);
        self.work = Work::of(&self.manifest);
        switch
            .set_flow_settings(settings)
            .and_then(|()| switch.set_shard_head(0, Some(SERVER)))
            .and_then(|()| switch.set_secrets(&(&self.keys).into()))
            .and_then(|()| switch.set_fabric_port(FABRIC_PORT, true))
            .map_err(|error| Fault { line: self.line, reason: error.to_string() })
    }

    fn departs(&mut self, port: u32, frame: &[u8], now_ns: u64) -> Option<Vec<Arrival>> {
        (port == STORE_PORT).then(|| self.sent(frame, now_ns))
    }

    fn next_ns(&self, switch: &Dataplane, now_ns: u64) -> Option<u64> {
        let idle = switch.generator_work().is_ok_and(|work| work == 0);
        let look_ns = now_ns + if idle { QUIET_NS } else { LOOK_NS };
        let server_ns = self.node.next_deadline().map(|at_ns| at_ns.saturating_sub(AGE_NS));
        Some(server_ns.map_or(look_ns, |at_ns| at_ns.min(look_ns)))
    }

    fn tick(&mut self, switch: &Dataplane, now_ns: u64) -> Outcome<Vec<Arrival>> {
        let mut arrivals = vec![];
        if self.node.next_deadline().is_some_and(|at_ns| at_ns <= now_ns + AGE_NS) {
            arrivals.extend(self.serve(now_ns, Input::Timer));
        }
        let frames = self.settings.map_or(0, |settings| self.work.due(switch, &settings, now_ns));
        for _ in 0..frames {
            let made = switch.run_generated(now_ns).map_err(Fault::of_case)?;
            if let Verdict::Forward { port } = made.verdict {
                let looped = packet_test::copies(port, &made.frame);
                arrivals.extend(looped.unwrap_or_else(|| self.sent(&made.frame, now_ns)));
            }
        }
        Ok(arrivals)
    }
}

/// What stands in a `store.toml` for this case. (Writing to a string cannot fail.)
fn configuration(
    line: &Line,
    store: StoreLine,
    lines: &Lines,
    manifest: &Manifest,
) -> Outcome<String> {
    let mut text = format!(
        "name = \"store\"\nlisten = \"{SERVER}\"\ncontrollers = [\"10.254.0.2:5408\"]\n\
         secrets = \"fabric.secrets\"\nshards = 1\nlease_ms = {}\n",
        store.lease_ms
    );
    for flow in flow_states(manifest).map_err(|error| line.fault(error))? {
        if flow.settings.consistency == Consistency::Local {
            continue;
        }
        let (object, name) = (&flow.object, &flow.object.name);
        let (id, key_bytes, value_bytes) = (object.id, object.key_bytes, flow.value_bytes);
        let _ = writeln!(
            text,
            "[[object]]\nname = \"{name}\"\nid = {id}\nkey_bytes = {key_bytes}\n\
             value_bytes = {value_bytes}"
        );
        if let Some(bytes) = flow.settings.shard_bytes {
            let _ = writeln!(text, "shard_bytes = {bytes}");
        }
        match flow.settings.allocator {
            Allocator::Zero => text.push_str("allocator = \"zero\"\n"),
            Allocator::NatPorts => {
                let pool =
                    lines.nat_pool.as_ref().filter(|(_, it)| object.is_named(&it.flow_state));
                let Some((_, pool)) = pool else {
                    return Err(line.fault(format!(
                        "FlowState {name} allocates NAT ports: write a line \
                         `# nat_pool: {name} ADDRESS… ports LOW-HIGH`"
                    )));
                };
                let external: Vec<String> =
                    pool.addresses.iter().map(|address| format!("\"{address}\"")).collect();
                let _ = writeln!(
                    text,
                    "allocator = \"nat_ports\"\nexternal = [{}]\nports = \"{}-{}\"",
                    external.join(", "),
                    pool.port_low,
                    pool.port_high
                );
            }
            Allocator::Backends => {
                text.push_str("allocator = \"backends\"\n");
                let given = lines.backends.iter().filter(|(_, it)| object.is_named(&it.flow_state));
                for (to, weight) in given.flat_map(|(_, it)| &it.backends) {
                    let _ = writeln!(
                        text,
                        "[[object.backend]]\naddress = \"{}\"\nport = {}\nweight = {weight}",
                        to.ip(),
                        to.port()
                    );
                }
            }
        }
    }
    for snapshot in snapshot_states(manifest).map_err(|error| line.fault(error))? {
        if snapshot.settings.period_us == 0 {
            continue;
        }
        let _ = writeln!(
            text,
            "[[object]]\nname = \"{}\"\nid = {}\nkey_bytes = {}\nvalue_bytes = {}\n\
             allocator = \"snapshot\"\nslots = {}\nslot_bytes = {}",
            snapshot.object.name,
            snapshot.object.id,
            snapshot.object.key_bytes,
            state_protocol::SNAPSHOT_VALUE_BYTES,
            snapshot.slots,
            snapshot.slot_bytes
        );
        if let Some(MergeSettings { how, window_bits }) = MergeSettings::of(&snapshot) {
            let _ = writeln!(text, "merge = {}", serde_json::json!(how));
            if let Some(bits) = window_bits {
                let _ = writeln!(text, "window_bits = {bits}");
            }
        }
    }
    if !text.contains("[[object]]") {
        return Err(line.fault("the program has no state in a store: remove the line"));
    }
    Ok(text)
}

//! Packets that leave: what must hold of each.

use crate::bindings::{Shown, as_number};
use crate::frames::{flow_of, key_of};
use crate::scenario::Machine;
use crate::sketch::tenant_of;
use crate::world::World;
use std::net::SocketAddrV4;

impl World {
    /// A packet leaves a switch.
    pub(crate) fn let_out(&mut self, switch: usize, frame: &[u8]) {
        self.mix(frame);
        if self.sketch.is_some() {
            return self.let_out_sketch(switch, frame);
        }
        if self.bindings.is_some() {
            return self.let_out_binding(switch, frame);
        }
        let Some((flow, packet, count)) = flow_of(frame) else { return };
        self.note(
            Machine::Switch(switch),
            &format!("-> packet {packet} of flow {flow} leaves with {count}"),
        );
        if !self.operations.output(packet, count) {
            self.violated(
                "once",
                format!(
                    "packet {packet} of flow {flow} leaves twice, the second time with {count}"
                ),
            );
        }
        let key = key_of(flow, self.key_bytes);
        self.check_output(&key, count);
        self.check_one_owner(&key);
    }

    fn let_out_binding(&mut self, switch: usize, frame: &[u8]) {
        let Some(bindings) = &mut self.bindings else { return };
        match bindings.output(frame, self.now_ns) {
            Ok(Some(Shown { flow, packet, end, key, value })) => {
                let shown = SocketAddrV4::new(end.0.into(), end.1);
                self.note(
                    Machine::Switch(switch),
                    &format!("-> packet {packet} of flow {flow} leaves by {shown}"),
                );
                if !self.operations.output(packet, as_number(end)) {
                    self.violated("once", format!("packet {packet} of flow {flow} leaves twice"));
                }
                self.check_binding(&key, as_number(value));
                self.check_one_owner(&key);
            }
            Ok(None) => {}
            Err(detail) => self.violated("port pool", detail),
        }
    }

    fn let_out_sketch(&mut self, switch: usize, frame: &[u8]) {
        let Some(tenant) = tenant_of(frame) else { return };
        let epoch = self.switches[switch].epoch_of(&tenant.to_be_bytes());
        self.note(
            Machine::Switch(switch),
            &format!("-> packet of tenant {tenant} leaves, epoch {epoch}"),
        );
        let owns = self.switches[switch].holds(&tenant.to_be_bytes(), self.now_ns).is_some();
        // ε is a time by the clock of the switch that enforces it
        // (systems/redplane/docs/snapshots.md, "ε").
        let now_ns = self.switches[switch].clock(self.now_ns);
        let Some(sketch) = &mut self.sketch else { return };
        let found = sketch.leaves(switch, frame, epoch, owns).and_then(|strict| {
            sketch.output(switch, frame, epoch, now_ns)?;
            if strict {
                sketch.within_epsilon(switch, tenant, epoch, &self.store, now_ns)
            } else {
                Ok(())
            }
        });
        if let Err(detail) = found {
            self.violated("snapshots", detail);
        }
    }
}

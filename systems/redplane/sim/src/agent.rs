//! The lives of switches, and what their agents do: they tell the controller which views they know,
//! and run the packet generator.

use crate::faults::Faults;
use crate::network::Datagram;
use crate::scenario::Machine;
use crate::store::{LEASE_US, controller_address};
use crate::switch::Identity;
use crate::world::{MS, SHARDS, World};
use rand::Rng;
use std::net::SocketAddrV4;
use wire::{Control, KeyRing, Report, Reporter};

const REPORT_NS: u64 = 50 * MS;
/// The agents' own socket; the protocol's port is the data plane's.
pub(crate) const AGENT_PORT: u16 = 6000;

/// What surrounds a switch.
pub(crate) struct Around {
    pub(crate) frozen_until_ns: u64,
    /// It is dead until then: what is sent to it is lost.
    pub(crate) down_until_ns: u64,
    /// Its agent lives.
    pub(crate) agent: bool,
    pub(crate) ring: KeyRing,
    pub(crate) incarnation: u32,
    /// What the agent knows of the chains.
    pub(crate) views_version: u64,
    pub(crate) report_at_ns: u64,
}

impl Around {
    /// A life begins.
    pub(crate) fn begin(ring: KeyRing, incarnation: u32, now_ns: u64) -> Around {
        Around {
            frozen_until_ns: 0,
            down_until_ns: 0,
            agent: true,
            ring,
            incarnation,
            views_version: 0,
            report_at_ns: now_ns,
        }
    }
}

impl World {
    pub(crate) fn start_switch(&mut self, at: usize) -> dataplane::Result<()> {
        self.incarnation += 1;
        let Faults { drift_ppm: most_ppm, margin_ns: lease_margin_ns, .. } = self.faults;
        let (switch_id, drift_ppm) = (at as u32 + 1, self.rng.random_range(-most_ppm..=most_ppm));
        let identity =
            Identity { switch_id, incarnation: self.incarnation, drift_ppm, lease_margin_ns };
        self.switches[at].reset(identity, &[None; SHARDS as usize])?;
        self.switches[at].set_keys(&self.around[at].ring)?;
        let ring = self.around[at].ring.clone();
        self.around[at] = Around::begin(ring, self.incarnation, self.now_ns);
        Ok(())
    }

    /// A switch dies. Its next life, if it is one, has its number from now on, and hears and says
    /// nothing before it is back.
    pub(crate) fn crash(
        &mut self,
        switch: usize,
        down_ns: u64,
        keeps_state: bool,
    ) -> dataplane::Result<()> {
        let back = if keeps_state { "with its state" } else { "empty" };
        let until_ns = self.around[switch].down_until_ns.max(self.now_ns + down_ns);
        self.note(
            Machine::Switch(switch),
            &format!("dies for {:.1} ms, comes back {back}", down_ns as f64 / MS as f64),
        );
        if !keeps_state {
            self.start_switch(switch)?;
            if let Some(sketch) = &mut self.sketch {
                sketch.crashed(switch);
            }
        }
        self.around[switch].down_until_ns = until_ns;
        Ok(())
    }

    pub(crate) fn is_down(&self, switch: usize) -> bool {
        self.now_ns < self.around[switch].down_until_ns
    }

    /// What a switch's agent does in between.
    pub(crate) fn tick(&mut self, switch: usize) -> dataplane::Result<()> {
        let around = &self.around[switch];
        if !around.agent || self.now_ns < around.frozen_until_ns || self.is_down(switch) {
            return Ok(());
        }
        if self.now_ns >= around.report_at_ns {
            self.report(switch);
        }
        for became in self.switches[switch].tick(u64::from(LEASE_US) * 1000, self.now_ns)? {
            self.became(switch, became);
        }
        Ok(())
    }

    /// An agent tells the controller which views it knows; newer ones are the answer.
    fn report(&mut self, switch: usize) {
        let around = &mut self.around[switch];
        around.report_at_ns = self.now_ns + REPORT_NS;
        let reporter = Reporter::Switch { switch_id: switch as u32 + 1 };
        let report = Report {
            reporter,
            version: around.views_version,
            shards: SHARDS,
            heard_ms: 0,
            accepted: false,
            machine: String::new(),
            replicas: Vec::new(),
            load: None,
        };
        let incarnation = u64::from(around.incarnation);
        let Ok(mut bytes) =
            (Control::Report { sent_ns: self.now_ns, incarnation, report }).encode()
        else {
            return;
        };
        let (from, to) =
            (SocketAddrV4::new(self.switches[switch].address(), AGENT_PORT), controller_address());
        around.ring.sign(&mut bytes, *from.ip(), *to.ip());
        self.send(Machine::Switch(switch), Datagram { from, to, bytes });
    }

    /// An agent takes the controller's views.
    pub(crate) fn take_views(&mut self, at: usize, datagram: &Datagram) -> dataplane::Result<()> {
        let around = &mut self.around[at];
        let genuine =
            around.ring.verify(&datagram.bytes, *datagram.from.ip(), *datagram.to.ip()).is_ok();
        let Ok(Control::Views(views)) = Control::decode(&datagram.bytes) else { return Ok(()) };
        if genuine && around.agent && views.version > around.views_version {
            around.views_version = views.version;
            let heads: Vec<Option<SocketAddrV4>> = views.heads().collect();
            if heads.len() == usize::from(SHARDS) && heads.iter().all(Option::is_some) {
                self.switches[at].set_heads(&heads, self.now_ns)?;
            }
        }
        Ok(())
    }
}

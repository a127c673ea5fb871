//! Switches' machines: their lives, the work of their agents, and who gets frames for whom.

use super::{Event, Host, MS, World};
use crate::frames::machine_at;
use crate::node::{Node, PROBE_MS};
use crate::scenario::Machine;
use netchain_protocol::control::Config;
use rand::Rng;
use std::net::Ipv4Addr;

impl World<'_> {
    pub(super) fn power_on(&mut self, at: usize) {
        let later = self.rng.random_range(1..1000);
        let host = &mut self.hosts[at];
        host.life += 1;
        host.incarnation += later;
        let incarnation = host.incarnation;
        // (A switch's clock counts from when it began.)
        let (clock, now_ns) = (host.clock, self.now_ns);
        match Node::begin(&self.template, at, &self.ring, clock, incarnation, now_ns) {
            Ok(node) => host.node = Some(node),
            Err(error) => return self.violated("program", error),
        }
        let life = host.life;
        self.note(Machine::Switch(at), "begins with empty slots");
        self.events.push(self.now_ns, Event::Tick(at, life));
    }

    /// Whom a frame to this address comes to: who announces the address of a dead switch gets what
    /// is for it; while that one is alive, some of it.
    pub(super) fn route(&mut self, to: Ipv4Addr) -> Machine {
        let machine = machine_at(to);
        let Machine::Switch(dead) = machine else { return machine };
        let is_up = |host: &Host<'_>, now_ns| host.node.is_some() && now_ns >= host.down_until_ns;
        let now_ns = self.now_ns;
        let announcers: Vec<usize> = (0..self.hosts.len())
            .filter(|at| {
                let host = &self.hosts[*at];
                let node = host.node.as_ref().filter(|_| is_up(host, now_ns));
                *at != dead && node.is_some_and(|node| node.stands_in_for(to))
            })
            .collect();
        let Some(most) = announcers.len().checked_sub(1) else { return machine };
        let at = announcers[self.rng.random_range(0..=most)];
        if is_up(&self.hosts[dead], now_ns) && self.rng.random_bool(0.5) {
            return machine;
        }
        Machine::Switch(at)
    }

    /// A switch's agent and generator do what is due.
    pub(super) fn tick(&mut self, at: usize, life: u64) {
        let now_ns = self.now_ns;
        let host = &mut self.hosts[at];
        if host.life != life {
            return;
        }
        let next_ns = host.clock.time(host.clock.local(now_ns) + PROBE_MS * MS);
        self.events.push(next_ns, Event::Tick(at, life));
        let host = &mut self.hosts[at];
        let Some(node) = host.node.as_mut() else { return };
        if now_ns < host.agent_back_ns {
            return;
        }
        if host.agent_back_ns != 0 {
            // Another life of the agent, with the same data plane.
            host.agent_back_ns = 0;
            let began = node.begin_agent(self.rng.random(), now_ns);
            if let Err(error) = began {
                return self.violated("program", error);
            }
        }
        let Some(node) = self.hosts[at].node.as_mut() else { return };
        let frames = node.probes(now_ns);
        let copies = node.copies(&self.keys, &self.ring, now_ns);
        let report = node.report(now_ns);
        let down = now_ns < self.hosts[at].down_until_ns;
        match (frames, copies) {
            (Ok(probes), Ok(copies)) if !down => {
                for frame in probes.into_iter().chain(copies) {
                    self.send(Machine::Switch(at), frame);
                }
                for at_ns in self.transmit(Machine::Switch(at), Machine::Controller) {
                    self.events.push(at_ns, Event::Report(report.clone()));
                }
            }
            (Err(error), _) | (_, Err(error)) => self.violated("program", error),
            _ => {}
        }
    }

    pub(super) fn configure(&mut self, at: usize, config: Config) {
        let host = &mut self.hosts[at];
        let works = self.now_ns >= host.down_until_ns.max(host.agent_back_ns);
        let version = config.version;
        if let Some(node) = host.node.as_mut().filter(|_| works)
            && node.take(config)
        {
            let life = host.life;
            self.note(Machine::Switch(at), &format!("takes version {version}"));
            self.write_soon(at, life);
        }
    }

    /// The next table of a configuration is written after a while: CPUs must be done with the old
    /// one.
    pub(super) fn write_soon(&mut self, at: usize, life: u64) {
        let while_ns = self.rng.random_range(100_000..8 * MS);
        self.events.push(self.now_ns + while_ns, Event::Write(at, life));
    }

    pub(super) fn write(&mut self, at: usize, life: u64) {
        let host = &mut self.hosts[at];
        if host.life != life || self.now_ns < host.agent_back_ns {
            return;
        }
        let wrote = host.node.as_mut().map(|node| node.write(&self.keys, &self.ring));
        match wrote {
            Some(Ok(true)) => self.write_soon(at, life),
            Some(Ok(false)) => {
                let applied = host.node.as_ref().map_or(0, |node| node.follower.applied());
                self.note(Machine::Switch(at), &format!("has version {applied}"));
            }
            Some(Err(error)) => self.violated("program", error),
            None => {}
        }
    }
}

//! What happens in the world as its time advances: frames arrive, clocks tick, switches and the
//! controller act.

use super::*;

impl World<'_> {
    /// Lets time pass.
    pub(crate) fn advance(&mut self, by_ns: u64) {
        let until_ns = self.now_ns + by_ns;
        while self.violation.is_none() {
            let Some((at_ns, event)) = self.events.pop_until(until_ns) else { break };
            self.now_ns = self.now_ns.max(at_ns);
            self.happened += 1;
            if self.happened > MOST_EVENTS {
                self.violated("liveness", format!("more than {MOST_EVENTS} events"));
            }
            self.happen(event);
        }
        self.now_ns = self.now_ns.max(until_ns);
    }

    /// Until when the machine of an event stands still.
    pub(super) fn still_until_ns(&self, event: &Event) -> u64 {
        match event {
            Event::Frame(Machine::Switch(at), _)
            | Event::Config(at, _)
            | Event::Write(at, _)
            | Event::Tick(at, _) => self.hosts[*at].frozen_until_ns,
            Event::Frame(Machine::Client(at), _) | Event::Client(at) => {
                self.clients[*at].frozen_until_ns
            }
            Event::Report(_) | Event::Look(_) | Event::Persisted(..) => {
                self.control.frozen_until_ns
            }
            Event::Frame(Machine::Controller, _) | Event::Back(_) => 0,
        }
    }

    pub(super) fn happen(&mut self, event: Event) {
        let still_until_ns = self.still_until_ns(&event);
        if self.now_ns < still_until_ns {
            return self.events.push(still_until_ns, event);
        }
        match event {
            Event::Frame(machine, frame) => self.arrives(machine, &frame),
            Event::Report(report) => {
                if self.control.runs() {
                    self.control(Input::Report(report));
                }
            }
            Event::Config(at, config) => self.configure(at, config),
            Event::Write(at, life) => self.write(at, life),
            Event::Tick(at, life) => self.tick(at, life),
            Event::Look(life) if life == self.control.life => {
                self.control(Input::Timer);
                self.events.push(self.now_ns + CONTROLLER_EVERY_NS, Event::Look(life));
            }
            Event::Persisted(life, state) if life == self.control.life => {
                self.control.persisted(*state);
                self.control(Input::Persisted);
            }
            Event::Look(_) | Event::Persisted(..) => {}
            Event::Client(at) => {
                if self.now_ns >= self.clients[at].wakes_ns {
                    self.clients[at].wakes_ns = u64::MAX;
                    self.client_time(at);
                }
            }
            Event::Back(Machine::Switch(at)) => {
                let host = &self.hosts[at];
                if host.node.is_none() && self.now_ns >= host.down_until_ns {
                    self.power_on(at);
                }
            }
            Event::Back(Machine::Controller) => {
                if !self.control.runs() && self.now_ns >= self.control.returns_ns {
                    self.begin_controller();
                }
            }
            Event::Back(Machine::Client(_)) => {}
        }
    }

    /// A frame comes to a machine.
    pub(super) fn arrives(&mut self, machine: Machine, frame: &[u8]) {
        let Machine::Switch(at) = machine else {
            if let Machine::Client(at) = machine {
                self.mix(frame);
                self.draw(machine, frame, false);
                let heard = self.clients[at].receive(crate::frames::payload(frame), self.now_ns);
                self.client_does(at, heard);
            }
            return;
        };
        let now_ns = self.now_ns;
        let host = &mut self.hosts[at];
        let node = host.node.as_mut().filter(|_| now_ns >= host.down_until_ns);
        let Some(node) = node else { return self.draw(machine, frame, true) };
        let became = node.receive(frame, now_ns);
        self.mix(frame);
        self.draw(machine, frame, false);
        self.became(at, became);
        self.check_order();
    }

    pub(super) fn became(&mut self, at: usize, became: Result<Became, String>) {
        match became {
            Ok(Became::Sends(frame)) => self.send(Machine::Switch(at), frame),
            Ok(Became::Nothing) => {}
            Err(error) => self.violated("program", error),
        }
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

    pub(super) fn send(&mut self, from: Machine, frame: Vec<u8>) {
        let to = self.route(destination(&frame));
        let arrivals = self.transmit(from, to);
        if arrivals.is_lost() {
            self.draw(to, &frame, true);
        }
        for at_ns in arrivals {
            self.events.push(at_ns, Event::Frame(to, frame.clone()));
        }
    }

    pub(super) fn transmit(&mut self, from: Machine, to: Machine) -> Arrivals {
        self.network.send(self.now_ns, from, to, Treatment::default())
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

    /// The controller takes an input, and may die before or after anything that comes of it.
    pub(super) fn control(&mut self, input: Input) {
        if !self.control.runs() {
            return;
        }
        let Wants { persist, configs, events } = self.control.take(input, self.now_ns);
        for event in events {
            self.note(Machine::Controller, &format!("{event:?}"));
            self.decided.push((self.now_ns, event));
        }
        for (to, config) in configs {
            if self.dies_now() {
                return;
            }
            let version = config.version;
            if version > self.control.disk.version {
                let detail = format!("version {version} is sent before it is persistent");
                return self.violated("persistence", detail);
            }
            let machine = machine_at(to);
            if let Machine::Switch(at) = machine {
                for at_ns in self.transmit(Machine::Controller, machine) {
                    self.events.push(at_ns, Event::Config(at, config.clone()));
                }
            }
        }
        if let Some(state) = persist
            && !self.dies_now()
        {
            let done_ns = self.now_ns + self.rng.random_range(MS / 2..8 * MS);
            let (life, state) = (self.control.life, Box::new(state));
            self.events.push(done_ns, Event::Persisted(life, state));
        }
    }

    pub(super) fn dies_now(&mut self) -> bool {
        let dies = self.rng.random_bool(self.faults.controller_steps);
        if dies {
            self.note(Machine::Controller, "dies between two steps");
            let for_ns = self.rng.random_range(MS..200 * MS);
            self.kill_controller(for_ns);
        }
        dies
    }
}

//! The gateway's thread: waits for the kernel's news, the program's packets and time, and does what
//! the state machines say.

use super::keeper::{Action, Keeper};
use super::message::{Change, Hop, News, RTM_GETNEXTHOP};
use super::netlink::{Events, Requests};
use super::network::{Effect, Network};
use super::shared::{Count, Gateway, Hops};
use super::slow::SlowPath;
use super::solicit::{From, Solicitor};
use crate::config::{Config, DestinationMac};
use crate::error::{Error, Result};
use crate::load::HopLoad;
use dataplane::Dataplane;
use dataplane::{GatewayPort, GatewaySettings};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// News that are read before what they change is written.
const MOST_NEWS: usize = 1_024;
/// Should news have been lost without a word, everything is read anew this often.
const REREAD_MS: u64 = 300_000;
/// A reading that failed is tried again after this time.
const FAILED_REREAD_MS: u64 = 5_000;
/// What may be gone is looked for no sooner after the last reading, and no sooner than this many
/// times what that took.
const LEAST_REREAD_MS: u64 = 1_000;
const REREAD_SHARE: u64 = 100;
/// No wait is longer.
const MOST_WAIT_MS: u64 = 1_000;

/// An error of a system call.
pub(super) fn system<E: Into<std::io::Error>>(action: &'static str) -> impl Fn(E) -> Error {
    move |source| Error::System { action: action.to_owned(), source: source.into() }
}

fn solicitor() -> Option<Solicitor> {
    let opened = Solicitor::new();
    if let Err(error) = &opened {
        tracing::warn!(
            "cannot ask routers for their MAC: no socket: {error}; if a router changes its MAC \
             without a gratuitous ARP, only the kernel finds that, after half a minute; give the \
             agent CAP_NET_RAW and, in its unit, AF_PACKET"
        );
    }
    opened.ok()
}

/// The gateway's thread before it runs, and what it works with.
pub(crate) struct Worker {
    dataplane: Arc<Dataplane>,
    gateway: Arc<Gateway>,
    config: Config,
    began: Instant,
    events: Events,
    requests: Requests,
    /// None: this process may not ask routers by itself.
    solicitor: Option<Solicitor>,
    network: Network,
    keeper: Keeper,
    /// Of the keeper, as it was told last.
    summary: (usize, Vec<Hop>),
    /// By the index of the interface.
    ports: BTreeMap<u32, u32>,
    /// What the program was told of each port.
    told: BTreeMap<u32, GatewayPort>,
    generation: u32,
    reread_due_ms: u64,
    /// No sooner than this.
    reread_from_ms: u64,
}

impl Worker {
    /// Reads everything, and tells the program, before its first packet comes; `ports`: number and
    /// interface of each.
    pub fn begin(
        dataplane: Arc<Dataplane>,
        gateway: Arc<Gateway>,
        config: &Config,
        ports: &[(u32, u32)],
    ) -> Result<Worker> {
        gateway.set_ports(ports);
        let mut generation = 0;
        for (number, _) in ports {
            generation = dataplane.route_generation(*number)?.max(generation);
        }
        let mut worker = Worker {
            // What comes from here on is not lost.
            events: Events::new().map_err(system("listen to netlink"))?,
            requests: Requests::new().map_err(system("open a netlink socket"))?,
            solicitor: solicitor(),
            config: config.clone(),
            began: Instant::now(),
            network: Network::default(),
            keeper: Keeper::default(),
            summary: (0, vec![]),
            ports: gateway.ports(),
            told: BTreeMap::new(),
            generation,
            reread_due_ms: 0,
            reread_from_ms: 0,
            dataplane,
            gateway,
        };
        worker.reread().map_err(system("read the kernel's routes"))?;
        worker.tell_settings(false);
        worker.act();
        Ok(worker)
    }

    /// Starts the thread.
    pub fn start(self) -> Result<std::thread::JoinHandle<()>> {
        let thread = std::thread::Builder::new().name("gateway".into());
        thread.spawn(move || self.run()).map_err(system("start the thread for next hops"))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn run(mut self) {
        let path = SlowPath::open(&self.dataplane, &self.gateway, self.config.fragments);
        let mut path = path.unwrap_or_else(|error| {
            tracing::error!("{error}; packets that only the kernel can send are lost");
            None
        });
        self.tell_settings(path.is_some());
        while !self.gateway.is_stopping() {
            self.wait(path.as_ref());
            // The count of calls: why they called is looked at anyway.
            let _ = self.gateway.calls().read();
            self.look();
            self.act();
            if let Some(path) = &mut path {
                let interface = |port| {
                    self.ports.iter().find(|(_, it)| **it == port).map(|(ifindex, _)| *ifindex)
                };
                path.work(self.now_ms(), &self.dataplane, &self.gateway, interface);
            }
        }
        // Nobody holds fragments until the next agent does.
        self.tell_settings(false);
    }

    /// Until something comes, or is due.
    fn wait(&self, path: Option<&SlowPath>) {
        let now_ms = self.now_ms();
        let due = [
            self.keeper.next_ms(),
            path.and_then(|path| path.next_ms(now_ms)),
            Some(self.reread_due_ms.max(self.reread_from_ms)),
            Some(now_ms + MOST_WAIT_MS),
        ];
        let wait_ms = due.into_iter().flatten().min().unwrap_or(now_ms).saturating_sub(now_ms);
        let readable = |descriptor| PollFd::new(descriptor, PollFlags::POLLIN);
        let mut polled =
            vec![readable(self.events.as_fd()), readable(self.gateway.calls().as_fd())];
        polled.extend(path.map(|path| readable(path.descriptor())));
        let timeout = PollTimeout::try_from(wait_ms).unwrap_or(PollTimeout::ZERO);
        if poll(&mut polled, timeout).is_err_and(|error| error != nix::errno::Errno::EINTR) {
            // No memory: the next look is not to come at once.
            std::thread::sleep(std::time::Duration::from_millis(MOST_WAIT_MS));
        }
    }

    /// Takes in what is new.
    fn look(&mut self) {
        let mut effect = self.read_news();
        let ports = self.gateway.ports();
        if ports != self.ports {
            self.ports = ports;
            effect = effect.max(Effect::Ports);
        }
        let now_ms = self.now_ms();
        if effect == Effect::Gone {
            self.reread_due_ms = self.reread_due_ms.min(now_ms);
        }
        if effect >= Effect::Ports {
            self.tell_ports();
        }
        if effect >= Effect::Routes {
            self.tell_generation();
        }
        if now_ms >= self.reread_due_ms.max(self.reread_from_ms)
            && let Err(error) = self.reread()
        {
            tracing::warn!("reading the kernel's routes: {error}; next hops may be out of date");
            self.reread_from_ms = now_ms + FAILED_REREAD_MS;
        }
    }

    fn read_news(&mut self) -> Effect {
        let mut effect = Effect::None;
        for _ in 0..MOST_NEWS {
            match self.events.read() {
                Ok(Some(all)) => {
                    for news in &all {
                        effect = effect.max(self.take(news));
                    }
                }
                Ok(None) => break,
                // Some of it is lost.
                Err(_) => return Effect::Gone,
            }
        }
        effect
    }

    fn take(&mut self, news: &News) -> Effect {
        let now_ms = self.now_ms();
        match news {
            News::Neighbour(entry) if self.ports.contains_key(&entry.hop.ifindex) => {
                self.keeper.entry(now_ms, entry);
                Effect::None
            }
            News::NeighbourGone(hop) => {
                self.keeper.no_entry(now_ms, *hop);
                Effect::None
            }
            other => self.network.take(other),
        }
    }

    /// Reads links, addresses, routes and neighbours anew, and tells the program.
    fn reread(&mut self) -> std::io::Result<()> {
        let began_ms = self.now_ms();
        let mut network = Network::default();
        for kind in [libc::RTM_GETLINK, libc::RTM_GETADDR, RTM_GETNEXTHOP, libc::RTM_GETROUTE] {
            self.requests.list(kind, |news| {
                network.take(&news);
            })?;
        }
        self.network = network;
        self.tell_ports();
        let mut entries = vec![];
        self.requests.list(libc::RTM_GETNEIGH, |news| entries.push(news))?;
        for news in entries {
            self.take(&news);
        }
        self.gateway.count(Count::Rereads, 1);
        let now_ms = self.now_ms();
        let took_ms = now_ms - began_ms;
        self.reread_from_ms = now_ms + LEAST_REREAD_MS.max(took_ms.saturating_mul(REREAD_SHARE));
        self.reread_due_ms = now_ms + REREAD_MS;
        self.tell_generation();
        Ok(())
    }

    /// What each port is, and which next hops there are.
    fn tell_ports(&mut self) {
        let mut mtus = BTreeMap::new();
        let numbers: Vec<u32> = self.config.port.iter().map(|port| port.port).collect();
        for (position, number) in numbers.into_iter().enumerate() {
            let found = self.ports.iter().find(|(_, port)| **port == number);
            let unknown =
                || GatewayPort { route_generation: self.generation, ..GatewayPort::default() };
            let value = found.map_or_else(unknown, |(ifindex, _)| self.port(position, *ifindex));
            mtus.insert(number, value.mtu);
            if self.told.get(&number) == Some(&value) {
                continue;
            }
            match self.dataplane.set_gateway_port(number, &value) {
                Ok(()) => drop(self.told.insert(number, value)),
                Err(error) => tracing::warn!("port {number}: {error}"),
            }
        }
        self.gateway.set_mtus(mtus);
        let wanted = match self.config.host_traffic {
            true => self.network.wanted(&self.ports),
            // The kernel gets no answers: the program has ARP and neighbour discovery.
            false => Default::default(),
        };
        let now_ms = self.now_ms();
        self.keeper.want(now_ms, &wanted);
    }

    /// What a port is; `position`: in the configuration.
    fn port(&self, position: usize, ifindex: u32) -> GatewayPort {
        let (ingress, port) = (self.config.ingress, &self.config.port[position]);
        let link = self.network.link(ifindex).unwrap_or_default();
        GatewayPort {
            mac: link.mac.unwrap_or_default(),
            any_mac: ingress.destination_mac == DestinationMac::Any,
            siblings: self.network.siblings(ifindex, &self.ports),
            ipv4: self.network.ipv4_of(ifindex, None),
            ipv6: self.network.ipv6_of(ifindex),
            ifindex,
            mtu: link.mtu,
            reverse_path: port.reverse_path.unwrap_or(ingress.reverse_path),
            route_generation: self.generation,
        }
    }

    /// What the program knows of sources is void. Last: what it looks up from here on, it looks up
    /// by the new routes and the ports as they are now.
    fn tell_generation(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        for (number, value) in &mut self.told {
            value.route_generation = self.generation;
            if let Err(error) = self.dataplane.set_gateway_port(*number, value) {
                tracing::warn!("port {number}: {error}");
            }
        }
    }

    fn tell_settings(&self, has_path: bool) {
        let settings = GatewaySettings {
            icmp_rate_per_s: self.config.icmp_rate_per_s,
            clamp_mss: self.config.clamp_mss,
            hold_fragments: has_path && self.config.fragments.held > 0,
        };
        if let Err(error) = self.dataplane.set_gateway_settings(&settings) {
            tracing::warn!("{error}");
        }
    }

    /// Does what the keeper says.
    fn act(&mut self) {
        let now_ms = self.now_ms();
        // Reading an entry may say more.
        for _ in 0..2 {
            for action in self.keeper.actions(now_ms) {
                self.one(now_ms, action);
            }
        }
        let summary = self.keeper.summary();
        if summary == self.summary {
            return;
        }
        let (count, unresolved) = &summary;
        let load = |hop: &Hop| HopLoad {
            address: hop.address.to_string(),
            port: self.ports.get(&hop.ifindex).copied().unwrap_or(0),
        };
        let unresolved = unresolved.iter().map(load).collect();
        self.gateway.set_hops(Hops { count: *count, unresolved });
        self.summary = summary;
    }

    fn one(&mut self, now_ms: u64, action: Action) {
        match action {
            Action::Read(hop) => match self.requests.neighbour(hop) {
                Ok(Some(entry)) => self.keeper.entry(now_ms, &entry),
                Ok(None) => self.keeper.no_entry(now_ms, hop),
                // The interface is going: news of that are under way.
                Err(_) => {}
            },
            Action::Change(hop, change) => {
                let result = self.requests.change(hop, change);
                let count =
                    if result.is_ok() { Count::EntriesChanged } else { Count::EntriesRefused };
                // One that is gone needs no release, and one that is there already no creation.
                if result.is_ok() || change == Change::Manage {
                    self.gateway.count(count, 1);
                }
            }
            Action::Solicit(hop, to) => {
                let Some(mac) = self.network.link(hop.ifindex).and_then(|link| link.mac) else {
                    return;
                };
                let target = match hop.address {
                    IpAddr::V4(address) => Some(address),
                    IpAddr::V6(_) => None,
                };
                let from = From { mac, ipv4: self.network.ipv4_of(hop.ifindex, target) };
                let unicast = to.is_some();
                let count = if unicast { Count::UnicastRequests } else { Count::BroadcastRequests };
                let asked = self.solicitor.as_ref().map(|it| it.ask(hop, to, from));
                if matches!(asked, Some(Ok(()))) {
                    self.gateway.count(count, 1);
                }
            }
        }
    }
}

/// The kernel keeps nothing resolved any longer, behind these interfaces, that an agent asked for:
/// when a switch is taken off its ports.
pub(crate) fn release(ifindexes: &[u32]) {
    let release = || -> std::io::Result<()> {
        let mut requests = Requests::new()?;
        let mut ours = vec![];
        requests.list(libc::RTM_GETNEIGH, |news| {
            if let News::Neighbour(entry) = news
                && entry.ours
                && entry.managed
                && ifindexes.contains(&entry.hop.ifindex)
            {
                ours.push(entry.hop);
            }
        })?;
        // One that has gone meanwhile needs no release.
        ours.into_iter().for_each(|hop| drop(requests.change(hop, Change::Release)));
        Ok(())
    };
    if let Err(error) = release() {
        tracing::warn!("next hops stay resolved by the kernel: {error}");
    }
}

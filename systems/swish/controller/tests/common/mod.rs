//! A controller and switches that follow each order at once, but for those that are dead.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use swish_controller::{Controller, Event, Input, Outputs, State};
use swish_protocol::base::Before;
use swish_protocol::control::{Message, Report, Task, View};

pub mod settings;
pub use settings::{MS, address, settings};

/// A switch, as its agent reports it. None of these groups is sealed.
pub trait Agent: Clone {
    fn incarnation(&self) -> u32;
    fn report(&self, number: u32, now_ns: u64) -> Report;
    fn take(&mut self, number: u32, view: &View);
    fn removed(&mut self);
    /// It is asked for a sum.
    fn asked(&mut self, _view: u32, _before: &Before) {}
}

pub struct World<A> {
    pub controller: Controller,
    pub now_ns: u64,
    pub switches: Vec<A>,
    pub dead: BTreeSet<u32>,
    /// Of each switch, the views that it took.
    pub taken: Vec<(u32, View)>,
    pub removed: Vec<u32>,
    pub events: Vec<Event>,
}

impl<A: Agent> World<A> {
    pub fn new(count: u32, switch: A) -> World<A> {
        World {
            controller: Controller::new(settings(count), State::default()),
            now_ns: 0,
            switches: vec![switch; count as usize],
            dead: BTreeSet::new(),
            taken: vec![],
            removed: vec![],
            events: vec![],
        }
    }

    /// So many times 10 ms pass.
    pub fn pass(&mut self, times: u32) {
        for _ in 0..times {
            self.now_ns += 10 * MS;
            let out = self.controller.handle(self.now_ns, Input::Timer);
            self.follow(out);
            for number in 0..self.switches.len() as u32 {
                if !self.dead.contains(&number) {
                    let from = SocketAddrV4::new(address(number), 4000);
                    let report = self.switches[number as usize].report(number, self.now_ns);
                    let input = Input::Message(from, Message::Report(report));
                    let out = self.controller.handle(self.now_ns, input);
                    self.follow(out);
                }
            }
        }
    }

    pub fn follow(&mut self, out: Outputs) {
        self.events.extend(out.events);
        for (to, message) in out.messages {
            let number = to.ip().octets()[3].into();
            let Message::Order(order) = message else { panic!("{message:?}") };
            let it = &mut self.switches[number as usize];
            if self.dead.contains(&number) || order.incarnation != it.incarnation() {
                continue;
            }
            match order.task {
                Task::Take(view) => {
                    it.take(number, &view);
                    self.taken.push((number, view));
                }
                Task::Removed { .. } => {
                    it.removed();
                    self.removed.push(number);
                }
                Task::Heard => {}
                Task::Sum { view, before } => it.asked(view, &before),
                Task::Seal { .. } => panic!("{} is sealed", address(number)),
            }
        }
        if out.persist.is_some() {
            let out = self.controller.handle(self.now_ns, Input::Persisted);
            self.follow(out);
        }
    }
}

//! Clients' machines: what they ask, and what becomes of it.

use super::{Event, World};
use crate::client::{Does, Over};
use crate::frames::{address_of, frame};
use crate::history::listings::Wanted;
use crate::scenario::{Ask, List, Machine};
use netchain_protocol::Operation;

/// Requests of a client at a time: more at once make histories that nobody can judge.
const MOST_WAITING: usize = 4;
/// Listings of a client at a time.
const MOST_LISTINGS: usize = 2;

impl World<'_> {
    /// A client begins a request.
    pub(crate) fn ask(&mut self, ask: Ask) {
        let Ask { client, operation, key, length, back } = ask;
        if self.clients[client].waiting() >= MOST_WAITING {
            return;
        }
        let seen = self.history.seen(client, key);
        let seen = seen.len().checked_sub(1 + back).and_then(|at| seen.get(at));
        let version = seen.map_or(0, |shown| shown.version);
        let word =
            |bytes: &Vec<u8>| bytes.first_chunk::<8>().map_or(0, |it| u64::from_be_bytes(*it));
        let operand = match operation {
            Operation::CompareVersion => version,
            Operation::CompareOwner => seen.and_then(|it| it.value.as_ref()).map_or(0, word),
            Operation::Delete if back % 2 == 1 => version,
            Operation::Add => 1 << (20 + self.values % 20),
            _ => 0,
        };
        let writes_value = matches!(
            operation,
            Operation::Put
                | Operation::Insert
                | Operation::CompareVersion
                | Operation::CompareOwner
        );
        self.values += 1;
        let value = writes_value.then(|| {
            let mut value = self.values.to_be_bytes().to_vec();
            value.resize(length.max(8), self.values as u8);
            value
        });
        let asked = (operation, operand, value.as_deref());
        let number = self.history.ask(self.now_ns, client, key, asked);
        let text = format!("{operation:?} k{key} ({operand:x}) as request {number}");
        self.note(Machine::Client(client), &text);
        let asked = (operation, operand, value);
        let key = self.keys[key];
        // (Too many at a time: the request is not begun, and is never answered.)
        if self.clients[client].begin(number, key, asked, self.now_ns).is_ok() {
            self.client_time(client);
        }
    }

    /// A client begins a listing.
    pub(crate) fn list(&mut self, list: List) {
        let List { client, key, bytes, pause_ns } = list;
        if self.clients[client].listings() >= MOST_LISTINGS {
            return;
        }
        let prefix = self.keys[key].0[..bytes].to_vec();
        let wanted = (0..).zip(&self.keys).filter(|(_, key)| key.0.starts_with(&prefix));
        let wanted = wanted.map(|(number, key)| {
            let group = self.ring.group_of(key);
            Wanted { key: *key, number, group }
        });
        let number = self.history.lists(self.now_ns, wanted.collect());
        let text = format!("listing {number}: {bytes} bytes of k{key}");
        self.note(Machine::Client(client), &text);
        self.clients[client].list(number, &prefix, (pause_ns, self.now_ns));
        self.client_time(client);
    }

    /// What a client has due is done.
    pub(super) fn client_time(&mut self, at: usize) {
        if self.now_ns < self.clients[at].frozen_until_ns {
            return self.client_soon(at);
        }
        let due = self.clients[at].time(self.now_ns);
        self.client_does(at, due);
    }

    pub(super) fn client_does(&mut self, at: usize, (sends, over): Does) {
        let from = address_of(Machine::Client(at));
        for send in sends {
            self.send(Machine::Client(at), frame(from, send.to, &send.payload));
        }
        for over in over {
            self.is_over(at, over);
        }
        self.client_soon(at);
    }

    /// A client wakes when something is due.
    pub(super) fn client_soon(&mut self, at: usize) {
        let client = &mut self.clients[at];
        let Some(next_ns) = client.next_ns() else { return };
        let next_ns = next_ns.max(self.now_ns + 1_000);
        if next_ns < client.wakes_ns {
            client.wakes_ns = next_ns;
            self.events.push(next_ns, Event::Client(at));
        }
    }

    /// Something that a client began is over.
    fn is_over(&mut self, at: usize, over: Over) {
        let machine = Machine::Client(at);
        match over {
            Over::Request(number, result) => {
                self.note(machine, &format!("request {number}: {result:?}"));
                self.history.over(self.now_ns, number, &result);
            }
            Over::Page(number, Ok(page)) => {
                let told: Vec<u8> = page.told.iter().map(|key| key.0[1]).collect();
                let missing = if page.incomplete { ", and more that is missing" } else { "" };
                let text = format!("listing {number}: group {} k{told:?}{missing}", page.group);
                self.note(machine, &text);
                self.history.page(number, page);
            }
            Over::Page(number, Err(failure)) => {
                self.violated("progress", format!("listing {number} fails: {failure}"));
            }
            Over::Listing(number) => {
                self.note(machine, &format!("listing {number} is over"));
                self.history.listed(number, self.now_ns);
            }
        }
    }
}

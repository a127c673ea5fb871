//! What must hold.

use super::Server;
use super::counters::Name;
use chain::{Role, StateMachine};
use std::collections::HashMap;

/// An answer to a client: the operation's number, whether it counted, the count, the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub operation: u64,
    pub counted: bool,
    pub count: u64,
    pub name: Name,
}

impl Answer {
    pub fn encode(&self) -> Vec<u8> {
        let numbers = [self.operation, u64::from(self.counted), self.count];
        let numbers = numbers.iter().flat_map(|number| number.to_be_bytes());
        numbers.chain(self.name.iter().copied()).collect()
    }

    pub fn decode(bytes: &[u8]) -> Answer {
        let number = |at: usize| u64::from_be_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap());
        let (operation, counted, count) = (number(0), number(1) == 1, number(2));
        Answer { operation, counted, count, name: bytes[24..].to_vec() }
    }
}

#[derive(Default)]
pub struct Checks {
    /// Which operation got a name's count.
    counted: HashMap<(Name, u64), u64>,
    /// The highest count of a name that a client was told.
    told: HashMap<Name, u64>,
    /// Of each operation under way: the highest count of its name that was told when it began.
    began: HashMap<u64, u64>,
    pub answers: u64,
    pub joined: u64,
    pub deaths: u64,
    pub reordered: u64,
    pub power_cuts: u64,
}

impl Checks {
    /// An operation begins at a server that takes itself for the head.
    pub fn begins(&mut self, operation: u64, name: &Name) {
        self.began.insert(operation, self.told.get(name).copied().unwrap_or(0));
    }

    /// Output commit: a server that answers is the last to have the entry, of all that are in its
    /// view.
    pub fn answered(&self, servers: &[Server], at: usize, answer: &Answer) {
        let Some(replica) = servers[at].replica() else { return };
        for server in servers {
            let Some(other) = server.replica() else { continue };
            if other.view().number == replica.view().number
                && matches!(server.role(), Role::Head | Role::Middle | Role::Tail)
            {
                let has = other.state().reached(&answer.name);
                let (number, me) = (other.view().number, server.me.address);
                assert!(
                    has >= answer.count,
                    "output commit: view {number}: {answer:?} was answered, and {me} has {has}"
                );
            }
        }
    }

    /// A client is told. Once to each operation and count; never less than was told before it
    /// began.
    pub fn told(&mut self, answer: &Answer) {
        let Answer { operation, counted, count, name } = answer;
        let before = self.began[operation];
        let grows = if *counted { *count > before } else { *count >= before };
        assert!(grows, "linearizable: {answer:?}, and {before} was told before it began");
        if *counted {
            let first = *self.counted.entry((name.clone(), *count)).or_insert(*operation);
            assert_eq!(first, *operation, "once: {answer:?}, and another got that count");
        }
        let told = self.told.entry(name.clone()).or_default();
        *told = (*told).max(*count);
        self.answers += 1;
    }

    /// A replica that did something has the state of every other in its view with the same last
    /// entry.
    pub fn alike(&self, servers: &[Server], at: usize) {
        let replicas = servers.iter().filter_map(Server::replica);
        let Some(one) = servers[at].replica().filter(|one| one.is_synced()) else { return };
        let (number, index) = (one.view().number, one.index());
        let mut same = replicas
            .filter(|it| it.is_synced() && (it.view().number, it.index()) == (number, index))
            .map(|it| it.state().digest());
        let first = same.next();
        assert!(same.all(|digest| Some(digest) == first), "order: view {number}, entry {index}");
    }

    /// The newest view's members all have everything.
    pub fn all_have_all(&self, members: &[&Server]) {
        let replicas = members.iter().map(|server| server.replica().expect("a replica"));
        let ends: Vec<_> = replicas
            .map(|it| (it.index(), it.committed(), it.unacked(), it.state().digest()))
            .collect();
        let (index, _, _, digest) = ends[0];
        assert!(ends.iter().all(|end| *end == (index, index, 0, digest)), "the end: {ends:?}");
        let state = members[0].replica().expect("a replica").state();
        for (name, told) in &self.told {
            assert!(state.reached(name) >= *told, "lost: {name:?}, of which {told} was told");
        }
    }
}

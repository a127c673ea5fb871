//! What is sent. A case's name is its key in `table.txt` and `differences.toml`.

mod basic;
mod fragments;
mod malformed;
mod mtu;
mod neighbours;
mod sources;
mod tcp;

use super::packet::{Body, TCP_SYN};
use super::system::App;
use super::talk::{How, Talk};
use std::sync::Arc;

pub type Run = Arc<dyn Fn(&mut Talk) + Send + Sync>;

/// A case: packets, and what is told of them.
pub struct Case {
    pub name: String,
    pub run: Run,
    /// Not with others: it changes what they need.
    pub alone: bool,
}

/// A list of cases that is being written.
#[derive(Default)]
pub struct Cases(Vec<Case>);

impl Cases {
    fn add(&mut self, name: impl Into<String>, run: impl Fn(&mut Talk) + Send + Sync + 'static) {
        self.0.push(Case { name: name.into(), run: Arc::new(run), alone: false });
    }

    fn alone(&mut self, name: impl Into<String>, run: impl Fn(&mut Talk) + Send + Sync + 'static) {
        self.0.push(Case { name: name.into(), run: Arc::new(run), alone: true });
    }
}

/// All cases, in the order of the table.
pub fn all() -> Vec<Case> {
    let mut cases = Cases::default();
    basic::add(&mut cases);
    mtu::add(&mut cases);
    sources::add(&mut cases);
    malformed::add(&mut cases);
    tcp::add(&mut cases);
    fragments::add(&mut cases);
    neighbours::add(&mut cases);
    cases.0
}

fn syn() -> Body {
    Body::Tcp { flags: TCP_SYN, options: vec![] }
}

fn tcp(flags: u8) -> Body {
    Body::Tcp { flags, options: vec![] }
}

fn changed(change: fn(&mut Vec<u8>)) -> How {
    How { change: Some(change), ..How::default() }
}

fn as_is() -> How {
    How::default()
}

/// Whether an application knows pings as conversations (a balancer does not).
fn knows_echo(talk: &Talk) -> bool {
    talk.system().app != App::Balancer
}

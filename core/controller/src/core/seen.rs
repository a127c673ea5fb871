//! What a controller remembers of a server or switch.

use std::collections::HashMap;
use std::net::SocketAddrV4;
use wire::{Member, Report, Reporter, ShardReport, SwitchLoad};

/// Earlier lives that are remembered, so that their late reports are not taken for news.
const MOST_FORMER: usize = 16;

/// A server or switch.
#[derive(Debug, Clone)]
pub struct Seen {
    /// What it is.
    pub reporter: Reporter,
    /// What it dies with: the machine that it named, or else itself.
    pub machine: String,
    /// Its life.
    pub incarnation: u64,
    /// When it was last heard of, in ns of the controller's clock.
    pub heard_ns: u64,
    /// Since when it has been heard of without a gap.
    pub since_ns: u64,
    /// The version of the views that it has.
    pub version: u64,
    /// When it last heard anything from anybody, in ns of the controller's clock.
    pub hearing_ns: u64,
    /// Its replicas.
    pub replicas: HashMap<u16, ShardReport>,
    /// Switch: how much it has to do.
    pub load: Option<SwitchLoad>,
    pub(super) sent_ns: u64,
    pub(super) pushed_ns: u64,
    pub(super) silent: bool,
    pub(super) deaf: bool,
    pub(super) mismatch: bool,
    /// That its views are newer than the controller's has been told.
    pub(super) ahead: bool,
    /// Incarnations before, and when each sent what was taken of it last.
    former: Vec<(u64, u64)>,
}

/// Who has been silent for so long may be followed by an incarnation whose clock is behind its own,
/// or by one that it had superseded.
const TAKEN_BACK_NS: u64 = 300_000_000;

impl Seen {
    pub(super) fn new(now_ns: u64, reporter: Reporter) -> Seen {
        Seen {
            reporter,
            machine: String::new(),
            incarnation: 0,
            heard_ns: now_ns,
            since_ns: now_ns,
            version: 0,
            hearing_ns: now_ns,
            replicas: HashMap::new(),
            load: None,
            sent_ns: 0,
            pushed_ns: 0,
            silent: false,
            deaf: false,
            mismatch: false,
            ahead: false,
            former: Vec::new(),
        }
    }

    /// Takes a report; `false` if it is older than what is known.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        sent_ns: u64,
        incarnation: u64,
        report: Report,
    ) -> bool {
        if incarnation == 0 {
            return false;
        }
        // What an earlier life once sent may be sent again by anybody. Of a true successor it has
        // only the clock that was set back, and waits until its predecessor is known to be silent.
        let silent = now_ns >= self.heard_ns + TAKEN_BACK_NS;
        if incarnation != self.incarnation && sent_ns <= self.sent_ns && !silent {
            return false;
        }
        if let Some(at) = self.former.iter().position(|(former, _)| *former == incarnation) {
            // A late report of an even earlier life may have taken this one's place. It does not
            // report again, so the one that does comes back.
            if sent_ns <= self.former[at].1 || !silent {
                return false;
            }
            self.former.remove(at);
        }
        if incarnation == self.incarnation {
            if sent_ns <= self.sent_ns {
                return false;
            }
        } else {
            if self.incarnation != 0 {
                self.former.push((self.incarnation, self.sent_ns));
                self.former.drain(..self.former.len().saturating_sub(MOST_FORMER));
            }
            (self.incarnation, self.since_ns, self.pushed_ns) = (incarnation, now_ns, 0);
        }
        self.hearing_ns = now_ns.saturating_sub(u64::from(report.heard_ms) * 1_000_000);
        if std::mem::replace(&mut self.silent, false) {
            self.since_ns = now_ns;
        }
        (self.reporter, self.version, self.sent_ns, self.heard_ns) =
            (report.reporter, report.version, sent_ns, now_ns);
        (self.machine, self.load) = (report.machine, report.load);
        self.replicas =
            report.replicas.into_iter().map(|replica| (replica.shard, replica)).collect();
        true
    }

    /// This life of this server.
    pub fn member(&self, address: SocketAddrV4) -> Member {
        Member { address, incarnation: self.incarnation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;

    fn report() -> Report {
        let nobody = Report {
            reporter: Reporter::Server,
            version: 1,
            shards: 1,
            heard_ms: 0,
            accepted: false,
            machine: String::new(),
            replicas: vec![],
            load: None,
        };
        Report { machine: "m".to_owned(), ..nobody }
    }

    #[test]
    fn what_a_life_before_all_that_are_known_sent_does_not_take_a_living_servers_place() {
        let mut seen = Seen::new(0, Reporter::Server);
        assert!(seen.take(0, 100 * SECOND, 2, report()));
        // Another controller may have known the life before, this one does not.
        for n in 1..100u64 {
            assert!(
                !seen.take(n * 50 * MS, 10 * SECOND + n * 50 * MS, 1, report()),
                "sent again, with a good tag"
            );
            assert!(seen.take(n * 50 * MS, 100 * SECOND + n * 50 * MS, 2, report()));
        }
        assert!(seen.take(5 * SECOND, 106 * SECOND, 3, report()), "the next life");
        assert!(!seen.take(5 * SECOND, 105 * SECOND, 2, report()), "what was still on its way");
    }
}

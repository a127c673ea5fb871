//! The views of a controller that lost its database, from the servers that have them: `(report or
//! views) -> answer`, and at the end a verdict.
//!
//! Why nothing is lost. Servers only go to higher views, and a view does nothing without its
//! members. If every server that the highest views name says, in the life that they name, that it
//! has none higher, then whatever else the lost database had was never followed by anybody: each
//! later view is of these members, or of one that joined through their tail. So the condition is
//! that all of them answer. A server that does not may have been left alone with its shards in a
//! later view, and may have acknowledged updates there: only a person can say that it is gone for
//! good.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use wire::{Control, Member, Reporter, ShardView, Views};

/// The new versions, and the numbers of the views of which not all answered, are as much higher:
/// above whatever the lost database decided.
const ABOVE: u64 = 1_000_000;
/// Servers that are listened to, at most.
const MOST_SERVERS: usize = 65_536;

/// Why there are no views yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RebuildProblem {
    /// No server reported.
    #[error(
        "no server reports; are they running, and do they name this controller's `listen` as one of their `controllers`?"
    )]
    Nobody,
    /// The servers have no views.
    #[error(
        "no server has any views: the cluster has not begun, and there is nothing to rebuild; start the controller"
    )]
    NoViews,
    /// Nobody gives the newest views.
    #[error(
        "{server} has views {version} but did not send them: \
         another controller is active; stop it first"
    )]
    Kept {
        /// Who has them.
        server: SocketAddrV4,
        /// Their version.
        version: u64,
    },
    /// Servers of the newest views are not heard.
    #[error(
        "views {version} name servers that do not answer, or have started again without their state: {}; start them, or, if they are gone for good, \
         name them with --without: state that only they had is lost then",
        list(.missing)
    )]
    Missing {
        /// The newest views' version.
        version: u64,
        /// The servers.
        missing: Vec<SocketAddrV4>,
    },
}

fn list(addresses: &[SocketAddrV4]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[derive(Debug, Clone, Copy)]
struct Reported {
    sent_ns: u64,
    incarnation: u64,
    version: u64,
}

/// What was heard so far.
#[derive(Debug, Default)]
pub struct Rebuild {
    servers: BTreeMap<SocketAddrV4, Reported>,
    views: Views,
}

impl Rebuild {
    /// Takes a genuine datagram; what to answer its sender, with no tag yet.
    pub fn datagram(&mut self, from: SocketAddrV4, bytes: &[u8]) -> Option<Vec<u8>> {
        match Control::decode(bytes).ok()? {
            Control::Report { sent_ns, incarnation, report }
                if report.reporter == Reporter::Server =>
            {
                let known = self.servers.get(&from);
                let news = known.is_none_or(|known| sent_ns > known.sent_ns);
                if news && (known.is_some() || self.servers.len() < MOST_SERVERS) {
                    self.servers
                        .insert(from, Reported { sent_ns, incarnation, version: report.version });
                }
                (report.version > self.views.version)
                    .then(|| Control::ViewsWanted.encode().ok())
                    .flatten()
            }
            Control::Views(views)
                if views.version > self.views.version && self.servers.contains_key(&from) =>
            {
                self.views = views;
                None
            }
            _ => None,
        }
    }

    /// The highest version that a server reported.
    pub fn version(&self) -> u64 {
        self.servers.values().map(|reported| reported.version).max().unwrap_or(0)
    }

    /// The views to go on with, above all that there were; `without`: servers that are gone for
    /// good.
    pub fn verdict(&self, without: &[SocketAddrV4]) -> Result<Views, RebuildProblem> {
        let newest = self.servers.iter().max_by_key(|(_, reported)| reported.version);
        let (server, newest) = newest.ok_or(RebuildProblem::Nobody)?;
        if newest.version == 0 {
            return Err(RebuildProblem::NoViews);
        }
        let version = newest.version;
        if version > self.views.version {
            return Err(RebuildProblem::Kept { server: *server, version });
        }
        let answers = |member: &Member| {
            self.servers
                .get(&member.address)
                .is_some_and(|reported| reported.incarnation == member.incarnation)
        };
        let missing: BTreeSet<_> =
            self.views.shards.iter().flat_map(named).filter(|member| !answers(member)).collect();
        let unexcused: BTreeSet<_> = missing
            .iter()
            .map(|member| member.address)
            .filter(|address| !without.contains(address))
            .collect();
        if !unexcused.is_empty() {
            let missing = unexcused.into_iter().collect();
            return Err(RebuildProblem::Missing { version: self.views.version, missing });
        }
        let mut views = Views { version: self.views.version + ABOVE, ..self.views.clone() };
        for view in &mut views.shards {
            // The lost database may have gone on with this shard under the next numbers, together
            // with those who do not answer.
            if named(view).any(|member| missing.contains(&member)) {
                view.number += ABOVE;
            }
        }
        Ok(views)
    }
}

/// Who is in a view.
fn named(view: &ShardView) -> impl Iterator<Item = Member> {
    view.members.iter().copied().chain(view.joining.map(|joining| joining.member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use wire::{Joining, Report};

    fn member(at: u8) -> Member {
        Member {
            address: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, at), 5407),
            incarnation: u64::from(at),
        }
    }

    fn views(version: u64) -> Views {
        let members = vec![member(1), member(2), member(3)];
        let one = ShardView { number: 4, founded: 1, members, joining: None, draining: false };
        let joining = Some(Joining { member: member(4), since: 6 });
        let two = ShardView {
            number: 6,
            founded: 1,
            members: vec![member(2), member(3)],
            joining,
            draining: false,
        };
        Views { version, shards: vec![one, two] }
    }

    fn report(rebuild: &mut Rebuild, of: Member, version: u64) -> bool {
        let machine = String::new();
        let report = Report {
            reporter: Reporter::Server,
            version,
            shards: 2,
            heard_ms: 0,
            accepted: false,
            machine,
            replicas: vec![],
            load: None,
        };
        let control = Control::Report { sent_ns: 1, incarnation: of.incarnation, report };
        rebuild.datagram(of.address, &control.encode().unwrap()).is_some()
    }

    fn give(rebuild: &mut Rebuild, from: Member, views: Views) {
        assert!(rebuild.datagram(from.address, &Control::Views(views).encode().unwrap()).is_none());
    }

    #[test]
    fn the_highest_views_are_taken_when_all_that_they_name_answer() {
        let mut rebuild = Rebuild::default();
        assert_eq!(rebuild.verdict(&[]), Err(RebuildProblem::Nobody));
        give(&mut rebuild, member(9), views(99)); // of nobody who reports
        assert!(!report(&mut rebuild, member(1), 0));
        assert_eq!(rebuild.verdict(&[]), Err(RebuildProblem::NoViews));
        assert!(report(&mut rebuild, member(2), 11));
        give(&mut rebuild, member(2), views(11));
        assert!(report(&mut rebuild, member(3), 12), "it is asked for its own");
        assert_eq!(
            rebuild.verdict(&[]),
            Err(RebuildProblem::Kept { server: member(3).address, version: 12 })
        );
        give(&mut rebuild, member(3), views(12));
        let missing = vec![member(4).address];
        assert_eq!(rebuild.verdict(&[]), Err(RebuildProblem::Missing { version: 12, missing }));
        assert!(!report(&mut rebuild, member(4), 11));
        let found = rebuild.verdict(&[]).unwrap();
        assert!(found.version > 12 + 1_000 && found.shards == views(12).shards, "{found:?}");
    }

    #[test]
    fn who_is_gone_or_started_again_empty_must_be_named() {
        let mut rebuild = Rebuild::default();
        report(&mut rebuild, member(1), 12);
        give(&mut rebuild, member(1), views(12));
        report(&mut rebuild, member(2), 12);
        report(&mut rebuild, member(3), 12);
        report(&mut rebuild, Member { incarnation: 77, ..member(4) }, 0);
        let error = rebuild.verdict(&[]).unwrap_err().to_string();
        assert!(error.contains("10.0.0.4:5407") && error.contains("--without"), "{error}");
        assert!(rebuild.verdict(&[member(1).address]).is_err(), "another one is excused");
        let found = rebuild.verdict(&[member(4).address]).unwrap();
        assert_eq!(found.shards[0], views(12).shards[0]);
        assert!(found.shards[1].number > 1_000, "{found:?}");
    }
}

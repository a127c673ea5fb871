//! Which reports are news, and where each switch reports from.

use netchain_controller::Report;
use netchain_protocol::control::{REPORT, Reported};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

/// What was not taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub reports: u64,
    /// Overtaken, recorded, or of an earlier life.
    pub old: u64,
    pub malformed: u64,
    /// Of a switch with another founding file, or that is not in this one.
    pub other_cluster: u64,
}

/// Why a report is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Malformed,
    OtherCluster,
    Old,
}

struct Last {
    incarnation: u32,
    sent_ns: u64,
    from: SocketAddrV4,
    /// When this switch was told that its reports come.
    told_ns: u64,
}

/// Switches are told that they are heard every so often.
const TELL_NS: u64 = 500_000_000;

/// By NetChain address.
#[derive(Default)]
pub(crate) struct Reports {
    last: BTreeMap<Ipv4Addr, Last>,
    pub counters: Counters,
}

impl Reports {
    /// Reads a report. `ring`: the cluster's; `decided`: a switch's incarnation in the persistent
    /// decision, None if it is none of the cluster's.
    pub fn take(
        &mut self,
        from: SocketAddrV4,
        bytes: &[u8],
        ring: u32,
        decided: impl Fn(&Ipv4Addr) -> Option<u32>,
    ) -> Result<Report, Refused> {
        let taken = self.read(from, bytes, ring, decided);
        let counted = match &taken {
            Ok(_) => &mut self.counters.reports,
            Err(Refused::Malformed) => &mut self.counters.malformed,
            Err(Refused::OtherCluster) => &mut self.counters.other_cluster,
            Err(Refused::Old) => &mut self.counters.old,
        };
        *counted += 1;
        taken
    }

    fn read(
        &mut self,
        from: SocketAddrV4,
        bytes: &[u8],
        ring: u32,
        decided: impl Fn(&Ipv4Addr) -> Option<u32>,
    ) -> Result<Report, Refused> {
        let reported = Reported::decode(bytes).map_err(|_| Refused::Malformed)?;
        let (sent_ns, report) = (reported.sent_ns, reported.report);
        let known = decided(&report.switch).filter(|_| reported.ring == ring);
        let known = known.ok_or(Refused::OtherCluster)?;
        let last = self.last.get(&report.switch);
        // A later life has a higher number, and its clock may begin anew.
        let least = last.map_or(known, |last| last.incarnation.max(known));
        let overtaken =
            last.is_some_and(|it| it.incarnation == report.incarnation && it.sent_ns >= sent_ns);
        if report.incarnation < least || overtaken {
            return Err(Refused::Old);
        }
        let told_ns = last.map_or(0, |last| last.told_ns);
        let last = Last { incarnation: report.incarnation, sent_ns, from, told_ns };
        self.last.insert(report.switch, last);
        Ok(report)
    }

    /// Whether it is time to tell a switch that it is heard; it is told then.
    pub fn is_to_be_told(&mut self, now_ns: u64, switch: &Ipv4Addr) -> bool {
        let last = self.last.get_mut(switch);
        let due = last.filter(|it| it.told_ns == 0 || now_ns >= it.told_ns + TELL_NS);
        due.map(|it| it.told_ns = now_ns).is_some()
    }

    /// Where a switch reports from.
    pub fn address(&self, switch: &Ipv4Addr) -> Option<SocketAddrV4> {
        self.last.get(switch).map(|last| last.from)
    }
}

/// Whether a message's type is that of a report.
pub(crate) fn is_report(kind: wire::Kind) -> bool {
    kind == wire::Kind::System(REPORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_overtaken_or_recorded_is_old() {
        let switch = Ipv4Addr::new(10, 9, 0, 1);
        let from = SocketAddrV4::new(Ipv4Addr::new(10, 255, 0, 1), 40_000);
        let mut reports = Reports::default();
        let mut take = |ring, incarnation, sent_ns| {
            let report = Report {
                switch,
                incarnation,
                applied: 0,
                asks: false,
                silent_ms: vec![],
                copied: vec![],
                used_percent: 0,
            };
            let bytes = Reported { sent_ns, ring, report }.encode();
            reports.take(from, &bytes, 7, |it| (*it == switch).then_some(5)).map(drop)
        };
        assert_eq!(take(8, 5, 10), Err(Refused::OtherCluster));
        assert_eq!(take(7, 4, 10), Err(Refused::Old), "of a life before the decision's");
        assert_eq!(take(7, 5, 10), Ok(()));
        assert_eq!(take(7, 5, 10), Err(Refused::Old), "recorded");
        assert_eq!(take(7, 5, 9), Err(Refused::Old), "overtaken");
        assert_eq!(take(7, 6, 1), Ok(()), "another boot");
        assert_eq!(take(7, 5, 11), Err(Refused::Old), "the earlier life");
        assert_eq!((reports.counters.reports, reports.counters.old), (2, 4));
        assert_eq!(reports.address(&switch), Some(from));
    }
}

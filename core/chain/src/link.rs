//! The two ends of a chain link: what is sent, what is acknowledged, what is sent again. Decisions
//! about the chain as a whole are in `replica`, `view` and `receive`.

use crate::log::Log;
use crate::out_of_order::OutOfOrder;
use crate::{Outputs, Settings};
use wire::{CHAIN_HEADER_BYTES, ChainHeader, Member};

/// Entries under way without a receipt, at most: what a socket buffer of a few MiB holds.
pub(crate) const WINDOW_ENTRIES: u64 = 2048;
pub(crate) const WINDOW_BYTES: usize = 1 << 20;
const MOST_BACK_OFF: u64 = 16;
/// Acknowledgements of entries that came in order go out together at multiples of this time, in ns:
/// those of all shards, so that they share a system call and wake the predecessor once. They let it
/// forget entries and widen its window, and nobody waits for that. At once, each would wake the
/// predecessor while the successor has the entry to work on.
const ACK_EVERY_NS: u64 = 2_000_000;
/// Or after so many entries at most: a part of the window.
const ACK_ENTRIES: u64 = WINDOW_ENTRIES / 64;
const HELLO_FIRST_NS: u64 = 5_000_000;
const HELLO_UNBOUND_NS: u64 = 80_000_000;
/// How often a link without traffic is tried: a cut one is to be noticed.
const HELLO_BOUND_NS: u64 = 50_000_000;

/// The link to the predecessor, in one view.
pub(crate) struct Upstream {
    pub peer: Member,
    /// The predecessor was heard of in this view.
    pub bound: bool,
    /// An acknowledgement is due.
    pub ack_due: bool,
    /// One is owed, at this time in ns at the latest.
    pub ack_by_ns: Option<u64>,
    /// The last entry that was acknowledged.
    acked: u64,
    /// Entries are missing before the last ones that came.
    pub gap: bool,
    /// What came behind them.
    pub out_of_order: OutOfOrder,
    /// The predecessor's configuration is another.
    pub mismatch: bool,
}

impl Upstream {
    pub fn new(peer: Member) -> Upstream {
        // The acknowledgement tells the predecessor at once which entries are here.
        Upstream {
            peer,
            bound: false,
            ack_due: true,
            ack_by_ns: None,
            acked: 0,
            gap: false,
            out_of_order: OutOfOrder::default(),
            mismatch: false,
        }
    }
}

impl Upstream {
    /// Entries came in order, or are known to be at the tail: an acknowledgement is owed.
    pub fn owe_ack(&mut self, now_ns: u64, resend_ns: u64) {
        // Long before the predecessor sends again.
        let every_ns = ACK_EVERY_NS.min(resend_ns / 4).max(1);
        self.ack_by_ns.get_or_insert((now_ns / every_ns + 1) * every_ns);
    }

    /// Whether an acknowledgement up to `index` goes out now; counts it as sent. `unacked`: so many
    /// entries without one hold the head up.
    pub fn take_ack(&mut self, now_ns: u64, index: u64, unacked: usize) -> bool {
        let enough = ACK_ENTRIES.min(unacked as u64 / 4).max(1);
        let many = index.saturating_sub(self.acked) >= enough;
        let late = self.ack_by_ns.is_some_and(|at| many || at <= now_ns);
        if !self.ack_due && !late {
            return false;
        }
        (self.ack_due, self.ack_by_ns, self.acked) = (false, None, index);
        true
    }
}

/// The link to the successor, in one view: which entries of the log are under way.
pub(crate) struct Downstream {
    pub peer: Member,
    /// The successor has said in this view which entries it has.
    pub bound: bool,
    /// The successor says that all links from it to the tail are up.
    pub ready: bool,
    /// When to send the next HELLO.
    pub hello_at_ns: u64,
    hello_pause_ns: u64,
    /// When the successor last told something new.
    pub progress_ns: u64,
    /// Since when the successor has owed a confirmation, of its place in this view or of what is
    /// under way to it, and given none.
    owed_since_ns: Option<u64>,
    /// When the successor's process was last heard of, in whatever view.
    pub heard_ns: u64,
    next_send: u64,
    received: u64,
    bytes_under_way: usize,
    resend_at_ns: Option<u64>,
    back_off: u64,
    /// The last entry that had been sent when sending last went back, and when that was, in ns.
    last_rewind: (u64, u64),
}

impl Downstream {
    pub fn new(peer: Member, now_ns: u64) -> Downstream {
        Downstream {
            peer,
            bound: false,
            ready: false,
            hello_at_ns: now_ns,
            hello_pause_ns: HELLO_FIRST_NS,
            progress_ns: now_ns,
            owed_since_ns: Some(now_ns),
            heard_ns: now_ns,
            next_send: 1,
            received: 0,
            bytes_under_way: 0,
            resend_at_ns: None,
            back_off: 1,
            last_rewind: (0, 0),
        }
    }

    /// Begins to send behind the last entry that the successor has.
    pub fn bind(&mut self, now_ns: u64, received: u64) {
        self.bound = true;
        (self.received, self.next_send, self.bytes_under_way) = (received, received + 1, 0);
        (self.resend_at_ns, self.back_off, self.progress_ns, self.owed_since_ns) =
            (None, 1, now_ns, None);
    }

    /// For how long the successor has owed a confirmation and given none.
    pub fn stalled_ns(&self, now_ns: u64) -> u64 {
        self.owed_since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns))
    }

    /// Time of the next resend, in ns.
    pub fn resend_at_ns(&self) -> Option<u64> {
        self.resend_at_ns
    }

    /// Whether it is time for a HELLO; counts it as sent.
    pub fn hello_due(&mut self, now_ns: u64) -> bool {
        if self.hello_at_ns > now_ns {
            return false;
        }
        let pause = if self.bound { HELLO_BOUND_NS } else { self.hello_pause_ns };
        self.hello_pause_ns = (self.hello_pause_ns * 2).min(HELLO_UNBOUND_NS);
        self.hello_at_ns = now_ns + pause;
        true
    }

    /// The successor has `received` and the tail `committed`; returns what may be forgotten, if
    /// that is news.
    pub fn acknowledge(
        &mut self,
        now_ns: u64,
        received: u64,
        committed: u64,
        log: &Log,
        resend_ns: u64,
    ) -> Option<u64> {
        let received = received.min(log.last());
        if received > self.received {
            let newly = self.received + 1..=received.min(self.next_send - 1);
            self.bytes_under_way -=
                newly.filter_map(|index| log.at(index)).map(Vec::len).sum::<usize>();
            self.received = received;
            self.next_send = self.next_send.max(received + 1);
            (self.back_off, self.progress_ns) = (1, now_ns);
            let under_way = self.next_send > received + 1;
            self.resend_at_ns = under_way.then_some(now_ns + resend_ns);
            self.owed_since_ns = under_way.then_some(now_ns);
        }
        let committed = committed.min(self.received);
        (committed >= log.first()).then_some(committed)
    }

    /// The successor says that what comes after `received` is missing: goes back at once, but not
    /// for what a going back sends again already (as "recover" in RFC 6582, 3.2). Or messages that
    /// overtake each other, each a gap at another place, would have the whole window sent again for
    /// each of them. What was missing there once, and is here now, is an old message.
    pub fn rewind_on_gap(&mut self, now_ns: u64, received: u64, resend_ns: u64) -> bool {
        let (recover, when) = self.last_rewind;
        if received < self.received || (self.received < recover && now_ns < when + resend_ns) {
            return false;
        }
        self.rewind(now_ns);
        true
    }

    /// No acknowledgement in time: goes back to the first entry not received (go-back-N), ever
    /// slower.
    pub fn resend_if_due(&mut self, now_ns: u64) -> bool {
        if self.resend_at_ns.is_none_or(|at| at > now_ns) {
            return false;
        }
        self.back_off = (self.back_off * 2).min(MOST_BACK_OFF);
        self.rewind(now_ns);
        true
    }

    /// The successor says that it has less than it had: it lost power, and what it had not made
    /// durable. Or this is an old message, which most are while new ones tell of progress: only
    /// when it has told nothing new for as long as an entry waits to be sent again, and only once
    /// in that time.
    /// `first` is the oldest entry here; before that everybody has all.
    pub fn step_back(&mut self, now_ns: u64, received: u64, first: u64, resend_ns: u64) -> bool {
        if received >= self.received || received + 1 < first {
            return false;
        }
        if now_ns < self.progress_ns.max(self.last_rewind.1) + resend_ns {
            return false;
        }
        self.received = received;
        self.rewind(now_ns);
        true
    }

    fn rewind(&mut self, now_ns: u64) {
        self.last_rewind = (self.last_rewind.0.max(self.next_send - 1), now_ns);
        (self.next_send, self.bytes_under_way, self.resend_at_ns) = (self.received + 1, 0, None);
    }

    /// Sends what the window allows of the entries up to `last`, several a datagram. `header` is
    /// complete but for `index` and `count`.
    pub fn send(
        &mut self,
        now_ns: u64,
        header: ChainHeader,
        log: &Log,
        last: u64,
        settings: &Settings,
        out: &mut Outputs,
    ) {
        let before = self.next_send;
        let last = last.min(log.last());
        while self.next_send <= last && self.window_open() {
            let mut bytes = CHAIN_HEADER_BYTES;
            let mut count: u16 = 0;
            while let Some(entry) = log.at(self.next_send + u64::from(count)) {
                let beyond = self.next_send + u64::from(count) > last;
                if beyond
                    || count == u16::MAX
                    || (count > 0 && bytes + entry.len() > settings.datagram_bytes)
                {
                    break;
                }
                bytes += entry.len();
                count += 1;
            }
            let index = self.next_send;
            out.push_with(self.peer.address, |arena| {
                arena.extend_from_slice(&ChainHeader { index, count, ..header }.encode());
                for at in index..index + u64::from(count) {
                    arena.extend_from_slice(log.at(at).map_or(&[], Vec::as_slice));
                }
            });
            self.next_send += u64::from(count);
            self.bytes_under_way += bytes - CHAIN_HEADER_BYTES;
        }
        if self.next_send > before {
            self.owed_since_ns.get_or_insert(now_ns);
        }
        if self.next_send > before && self.resend_at_ns.is_none() {
            self.resend_at_ns = Some(now_ns + settings.resend_ns * self.back_off);
        }
    }

    fn window_open(&self) -> bool {
        self.next_send - self.received <= WINDOW_ENTRIES && self.bytes_under_way < WINDOW_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddrV4};

    const RESEND_NS: u64 = 10_000_000;

    fn link(entries: usize) -> (Log, Downstream) {
        let mut log = Log::new(1);
        (0..entries).for_each(|_| log.push(vec![0; 10]));
        let peer = Member { address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1), incarnation: 1 };
        let mut down = Downstream::new(peer, 0);
        down.bind(0, 0);
        (log, down)
    }

    /// Sends on up to this entry.
    fn sends(down: &mut Downstream, to: u64) {
        down.bytes_under_way += (to + 1 - down.next_send) as usize * 10;
        down.next_send = to + 1;
    }

    #[test]
    fn a_successor_that_lost_power_is_believed_and_an_old_message_is_not() {
        let (log, mut down) = link(100);
        sends(&mut down, 100);
        down.acknowledge(1, 60, 0, &log, RESEND_NS);
        for at in 40..60 {
            assert!(!down.step_back(2, at, 1, RESEND_NS), "{at}: overtaken by what told of 60");
            assert!(!down.rewind_on_gap(2, at, RESEND_NS));
        }
        assert_eq!(down.next_send, 101);
        let later_ns = 1 + RESEND_NS;
        assert!(down.step_back(later_ns, 40, 1, RESEND_NS), "nothing new for so long: it has 40");
        assert_eq!((down.received, down.next_send), (40, 41));
        sends(&mut down, 100);
        assert!(!down.step_back(later_ns + 1, 39, 1, RESEND_NS), "not again and again");
        assert!(down.step_back(later_ns + RESEND_NS, 39, 1, RESEND_NS));
    }

    #[test]
    fn a_window_whose_entries_overtake_each_other_is_sent_again_once() {
        let (log, mut down) = link(200);
        let heard = |down: &mut Downstream, now_ns: u64, received: u64| {
            down.acknowledge(now_ns, received, 0, &log, RESEND_NS);
            down.rewind_on_gap(now_ns, received, RESEND_NS)
        };
        sends(&mut down, 100);
        assert!(heard(&mut down, 1, 10), "a gap behind 10");
        assert_eq!((down.next_send, down.bytes_under_way), (11, 0));
        sends(&mut down, 150);
        assert_eq!(
            (11..100).filter(|at| heard(&mut down, 2, *at)).count(),
            0,
            "all of that is under way again"
        );
        assert!(heard(&mut down, 3, 100), "the first that went out once only: this one is lost");
        assert!(!heard(&mut down, 4, 101));
        assert!(heard(&mut down, 3 + RESEND_NS, 102), "what is sent again can be lost too");
    }
}

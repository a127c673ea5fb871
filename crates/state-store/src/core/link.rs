//! The two ends of a chain link: what is sent, what is acknowledged, what is sent again. Decisions about the chain as a whole are in `chain`.

use super::output::Outputs;
use state_protocol::{CHAIN_HEADER_BYTES, ChainFlags, ChainHeader};
use std::collections::VecDeque;
use std::net::SocketAddrV4;

/// Entries under way without a receipt, at most: what a socket buffer of a few MiB holds.
const WINDOW_ENTRIES: u64 = 2048;
const WINDOW_BYTES: usize = 1 << 20;
const MOST_SPARE: usize = 4096;
const MOST_SPARE_BYTES: usize = 4096;
const MOST_BACK_OFF: u64 = 16;

/// The link to the predecessor.
pub(crate) struct Upstream {
    pub address: SocketAddrV4,
    /// The predecessor's incarnation; 0: none yet.
    pub peer: u64,
    /// An acknowledgement is owed.
    pub ack_due: bool,
    /// Entries are missing before the last ones that came.
    pub gap: bool,
    /// The predecessor's configuration is another.
    pub mismatch: bool,
}

impl Upstream {
    pub fn new(address: SocketAddrV4) -> Upstream {
        Upstream { address, peer: 0, ack_due: false, gap: false, mismatch: false }
    }
}

/// The link to the successor: the entries that the tail has not confirmed, and which of them are under way.
pub(crate) struct Downstream {
    pub address: SocketAddrV4,
    /// The successor's incarnation; 0: none yet.
    pub peer: u64,
    /// The successor says that all links from it to the tail are up.
    pub ready: bool,
    /// When to send the next HELLO.
    pub hello_at_ns: u64,
    /// When the successor last told something new.
    pub progress_ns: u64,
    log: VecDeque<Vec<u8>>,
    log_bytes: usize,
    spare: Vec<Vec<u8>>,
    /// Index of the log's first entry.
    first: u64,
    next_send: u64,
    received: u64,
    bytes_under_way: usize,
    resend_at_ns: Option<u64>,
    back_off: u64,
    last_rewind: (u64, u64),
}

impl Downstream {
    pub fn new(address: SocketAddrV4, now_ns: u64) -> Downstream {
        Downstream {
            address,
            peer: 0,
            ready: false,
            hello_at_ns: now_ns,
            progress_ns: now_ns,
            log: VecDeque::new(),
            log_bytes: 0,
            spare: Vec::new(),
            first: 1,
            next_send: 1,
            received: 0,
            bytes_under_way: 0,
            resend_at_ns: None,
            back_off: 1,
            last_rewind: (0, 0),
        }
    }

    /// Entries that the tail has not confirmed.
    pub fn unacked(&self) -> usize {
        self.log.len()
    }

    /// Bytes of those entries.
    pub fn unacked_bytes(&self) -> usize {
        self.log_bytes
    }

    /// Whether the log still has every entry of this chain's life: then even an empty successor can catch up.
    pub fn is_complete(&self) -> bool {
        self.first == 1
    }

    /// Time of the next resend, in ns.
    pub fn resend_at_ns(&self) -> Option<u64> {
        self.resend_at_ns
    }

    /// A buffer for the next entry.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Adds an entry to the log; it leaves with the next `send`.
    pub fn push(&mut self, entry: Vec<u8>) {
        self.log_bytes += entry.len();
        self.log.push_back(entry);
    }

    fn last(&self) -> u64 {
        self.first + self.log.len() as u64 - 1
    }

    fn at(&self, index: u64) -> Option<&Vec<u8>> {
        self.log.get(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }

    /// Begins again from the first entry, for a successor that has none.
    pub fn restart(&mut self, now_ns: u64) {
        (self.received, self.next_send, self.bytes_under_way) = (0, self.first, 0);
        (self.resend_at_ns, self.back_off, self.progress_ns) = (None, 1, now_ns);
    }

    /// The successor has `received` and the tail `committed`; returns whether the latter is news.
    pub fn acknowledge(&mut self, now_ns: u64, received: u64, committed: u64, resend_ns: u64) -> bool {
        let received = received.min(self.last());
        if received > self.received {
            let newly = self.received + 1..=received.min(self.next_send - 1);
            self.bytes_under_way -= newly.filter_map(|index| self.at(index)).map(Vec::len).sum::<usize>();
            self.received = received;
            self.next_send = self.next_send.max(received + 1);
            (self.back_off, self.progress_ns) = (1, now_ns);
            self.resend_at_ns = (self.next_send > received + 1).then_some(now_ns + resend_ns);
        }
        let committed = committed.min(self.received);
        let news = committed >= self.first;
        while self.first <= committed {
            let Some(mut entry) = self.log.pop_front() else { break };
            self.first += 1;
            self.log_bytes -= entry.len();
            if self.spare.len() < MOST_SPARE && entry.capacity() <= MOST_SPARE_BYTES {
                entry.clear();
                self.spare.push(entry);
            }
        }
        news
    }

    /// The successor says that an entry is missing: goes back at once, but not twice for the same loss.
    pub fn rewind_on_gap(&mut self, now_ns: u64, resend_ns: u64) -> bool {
        let (at, when) = self.last_rewind;
        if at == self.received + 1 && now_ns < when + resend_ns {
            return false;
        }
        self.rewind(now_ns);
        true
    }

    /// No acknowledgement in time: goes back to the first entry not received (go-back-N), ever slower.
    pub fn resend_if_due(&mut self, now_ns: u64) -> bool {
        if self.resend_at_ns.is_none_or(|at| at > now_ns) {
            return false;
        }
        self.back_off = (self.back_off * 2).min(MOST_BACK_OFF);
        self.rewind(now_ns);
        true
    }

    fn rewind(&mut self, now_ns: u64) {
        (self.next_send, self.bytes_under_way, self.resend_at_ns) = (self.received + 1, 0, None);
        self.last_rewind = (self.received + 1, now_ns);
    }

    /// Sends what the window allows, several entries a datagram. `header` is complete but for `index` and `count`.
    pub fn send(&mut self, now_ns: u64, header: ChainHeader, most_bytes: usize, resend_ns: u64, out: &mut Outputs) {
        let before = self.next_send;
        while self.next_send <= self.last() && self.window_open() {
            let mut bytes = CHAIN_HEADER_BYTES;
            let mut count: u16 = 0;
            while let Some(entry) = self.at(self.next_send + u64::from(count)) {
                if count == u16::MAX || (count > 0 && bytes + entry.len() > most_bytes) {
                    break;
                }
                bytes += entry.len();
                count += 1;
            }
            let index = self.next_send;
            out.push_with(self.address, |arena| {
                arena.extend_from_slice(&ChainHeader { index, count, ..header }.encode());
                for at in index..index + u64::from(count) {
                    arena.extend_from_slice(self.at(at).map_or(&[], Vec::as_slice));
                }
            });
            self.next_send += u64::from(count);
            self.bytes_under_way += bytes - CHAIN_HEADER_BYTES;
        }
        if self.next_send > before && self.resend_at_ns.is_none() {
            self.resend_at_ns = Some(now_ns + resend_ns * self.back_off);
        }
    }

    fn window_open(&self) -> bool {
        self.next_send - self.received <= WINDOW_ENTRIES && self.bytes_under_way < WINDOW_BYTES
    }
}

/// What an acknowledgement or HELLO says about its sender.
pub(crate) fn condition(ready: bool, broken: bool) -> ChainFlags {
    let ready = if ready { ChainFlags::READY } else { ChainFlags::NONE };
    if broken { ready.with(ChainFlags::BROKEN) } else { ready }
}

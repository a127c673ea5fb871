//! The program's slow path: what it hands over is sent by the kernel, or held.

use super::holder::{Holder, LOOK_MS};
use super::send::{Sender, Sent};
use super::shared::{Count, Gateway};
use crate::config::Fragments;
use crate::error::Result;
use dataplane::Dataplane;
use dataplane::slow_path::SlowRecord;
use libbpf_rs::RingBuffer;
use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// Records that are taken in one go.
const MOST_AT_ONCE: usize = 256;

/// The slow path's ring and what is done by it.
pub(crate) struct SlowPath {
    ring: RingBuffer<'static>,
    taken: Rc<RefCell<Vec<Option<SlowRecord>>>>,
    /// None: this process may not send packets with headers of their own.
    sender: Option<Sender>,
    holder: Holder,
}

impl SlowPath {
    /// None: the program has no slow path. What lies in the ring is dropped: nobody knows how old
    /// it is.
    pub fn open(
        dataplane: &Dataplane,
        gateway: &Gateway,
        fragments: Fragments,
    ) -> Result<Option<SlowPath>> {
        let taken: Rc<RefCell<Vec<_>>> = Rc::default();
        let into = taken.clone();
        let Some(ring) = dataplane.slow_path(move |record| into.borrow_mut().push(record))? else {
            return Ok(None);
        };
        let sender = Sender::new();
        if let Err(error) = &sender {
            tracing::error!(
                "no raw sockets: {error}; packets that only the kernel can send are lost; give the \
                 agent CAP_NET_RAW"
            );
        }
        let sender = sender.ok();
        let holder = Holder::new(fragments.held, fragments.held_ms);
        let path = SlowPath { ring, taken, sender, holder };
        while !path.read().is_empty() {
            gateway.count(Count::Stale, path.taken.take().len() as u64);
        }
        Ok(Some(path))
    }

    /// What the program has handed over.
    fn read(&self) -> std::cell::Ref<'_, Vec<Option<SlowRecord>>> {
        // It fails only if a record is asked for that is being written: it comes with the next
        // call.
        self.ring.consume_raw_n(MOST_AT_ONCE);
        self.taken.borrow()
    }

    /// What becomes readable when the program has handed something over.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns the descriptor, and lives as long as what borrows from `self`.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }

    /// When there is something to do, if nothing comes before.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        (self.holder.len() > 0).then_some(now_ms + LOOK_MS)
    }

    fn send(&self, frame: &[u8]) -> Count {
        self.sender.as_ref().map_or(Count::Refused, |sender| count_of(sender.send(frame)))
    }

    /// Does what is to be done; `ifindex_of`: by port.
    pub fn work(
        &mut self,
        now_ms: u64,
        dataplane: &Dataplane,
        gateway: &Gateway,
        ifindex_of: impl Fn(u32) -> Option<u32>,
    ) {
        drop(self.read());
        for record in self.taken.take() {
            let count = match record {
                Some(SlowRecord::Send(frame)) => self.send(&frame),
                Some(SlowRecord::Hold { port, key, frame }) => {
                    match self.holder.take(now_ms, port, key, frame) {
                        Ok(()) => continue,
                        Err(_) => Count::FragmentsNotHeld,
                    }
                }
                None => Count::Malformed,
            };
            gateway.count(count, 1);
        }
        if self.holder.len() > 0 {
            let (released, expired) = self.holder.look(now_ms, |key| dataplane.knows_fragment(key));
            gateway.count(Count::FragmentsExpired, expired);
            for (port, frame) in released {
                let run = ifindex_of(port).map(|ifindex| dataplane.run_released(&frame, ifindex));
                let good = matches!(run, Some(Ok(())));
                let count = if good { Count::FragmentsReleased } else { Count::FragmentsFailed };
                gateway.count(count, 1);
            }
        }
        gateway.held.store(self.holder.len() as u64, Ordering::Relaxed);
    }
}

fn count_of(sent: Sent) -> Count {
    match sent {
        Sent::Whole => Count::Sent,
        Sent::Fragmented => Count::Fragmented,
        Sent::TooBig => Count::TooBig,
        Sent::Unreachable => Count::Unreachable,
        Sent::Refused => Count::Refused,
        Sent::Malformed => Count::Malformed,
    }
}

//! Until when a controller may believe that it leads: told by the thread that asks etcd, looked at
//! by the one that decides.

use std::sync::atomic::{AtomicU64, Ordering};

/// Both threads have it. Times are the shell's clock, in ns; it counts while the machine sleeps.
#[derive(Debug, Default)]
pub struct Leadership(AtomicU64);

impl Leadership {
    /// It leads, and may until then.
    pub fn begin(&self, until_ns: u64) {
        self.0.store(until_ns, Ordering::SeqCst);
    }

    /// It leads still, and may until then. False: it had ended in between (and has then), so it
    /// must be begun anew.
    #[must_use]
    pub fn renew(&self, now_ns: u64, until_ns: u64) -> bool {
        let before = self.0.load(Ordering::SeqCst);
        if now_ns >= before {
            self.end();
            return false;
        }
        // The other thread may have ended it just now.
        self.0
            .compare_exchange(before, until_ns.max(before), Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// It does not lead.
    pub fn end(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    /// Whether it leads now. Once it does not, only [`Leadership::begin`] changes that.
    pub fn holds(&self, now_ns: u64) -> bool {
        let lapse = |until_ns| (now_ns >= until_ns).then_some(0);
        // Not if it was renewed meanwhile.
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lapse).is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_by_itself_and_is_not_renewed_after_that() {
        let leadership = Leadership::default();
        assert!(!leadership.holds(0) && !leadership.renew(0, 10));
        leadership.begin(10);
        assert!(leadership.holds(9) && leadership.renew(9, 20) && leadership.holds(19));
        assert!(
            leadership.renew(12, 15) && leadership.holds(19),
            "an older word does not shorten it"
        );
        assert!(!leadership.holds(20), "over");
        assert!(
            !leadership.renew(19, 40) && !leadership.holds(19),
            "the other thread has gone by its end"
        );
        leadership.begin(30);
        assert!(!leadership.renew(30, 50) && !leadership.holds(29), "too late");
        leadership.begin(40);
        leadership.end();
        assert!(!leadership.holds(39));
    }
}

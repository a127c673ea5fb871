//! A disk that loses what was not synchronised.

use std::collections::VecDeque;

/// What is on a disk, and what was written and may get lost.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// What a power cut leaves.
    pub durable: Vec<u8>,
    /// Written, not yet synchronised: by ticket, in order.
    pub written: VecDeque<(u64, Vec<u8>)>,
    /// Power cuts so far.
    pub lives: u64,
}

impl Disk {
    /// Takes a write. Tickets rise.
    pub fn write(&mut self, ticket: u64, bytes: Vec<u8>) {
        debug_assert!(self.written.back().is_none_or(|(last, _)| *last <= ticket), "tickets rise");
        self.written.push_back((ticket, bytes));
    }

    /// Everything up to this ticket is durable.
    pub fn sync(&mut self, ticket: u64) {
        let synced = self.written.partition_point(|(written, _)| *written <= ticket);
        self.durable.extend(self.written.drain(..synced).flat_map(|(_, bytes)| bytes));
    }

    /// Of what was not durable the first `survive` writes are on the disk nevertheless.
    pub fn lose_power(&mut self, survive: usize) {
        self.lives += 1;
        let written = std::mem::take(&mut self.written);
        self.durable.extend(written.into_iter().take(survive).flat_map(|(_, bytes)| bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_cut_leaves_what_was_synchronised_and_a_prefix_of_the_rest() {
        let mut disk = Disk::default();
        (1..=4).for_each(|ticket| disk.write(ticket, vec![ticket as u8]));
        disk.sync(2);
        disk.lose_power(1);
        assert_eq!((disk.durable, disk.written.len(), disk.lives), (vec![1, 2, 3], 0, 1));
    }
}

//! The sketch of systems/swish/p4/detector/detector.p4, and what one switch that sees every packet
//! would do with it.

/// Rows.
pub const ROWS: usize = 3;
/// Cells of a row.
const ROW_CELLS: u32 = 32_768;
/// All cells.
pub const CELLS: usize = ROWS * ROW_CELLS as usize;
/// Bits of a cell that mean too many destinations.
pub const THRESHOLD: u32 = 28;

fn mixed(x: u32) -> u32 {
    let y = (x ^ x >> 16).wrapping_mul(0x045d_9f3b);
    let y = (y ^ y >> 15).wrapping_mul(0x2c1b_3c6d);
    y ^ y >> 16
}

/// The cells of a source that was never blocked.
pub fn cells(source: u32) -> [usize; ROWS] {
    [0u32, 1, 2].map(|row| {
        let hash = mixed(source ^ row.wrapping_mul(0x7f4a_7c15));
        (row * ROW_CELLS + hash % ROW_CELLS) as usize
    })
}

/// What a packet sets in each row; 0: the row does not sample it.
pub fn bits(source: u32, destination: u32) -> [u32; ROWS] {
    let pair = destination.wrapping_add(mixed(source));
    [1u32, 2, 3].map(|row| {
        let hash = mixed(pair ^ row.wrapping_mul(0x3c6e_f372));
        if hash >> 28 == 0 { 1 << (hash & 31) } else { 0 }
    })
}

/// Whether so many bits mean that the cell's source has too many destinations.
pub fn is_full(cell: u32) -> bool {
    cell.count_ones() >= THRESHOLD
}

/// One switch's sketch.
pub struct Sketch(Vec<u32>);

impl Default for Sketch {
    fn default() -> Self {
        Sketch(vec![0; CELLS])
    }
}

impl Sketch {
    /// Whether the source is over the threshold.
    pub fn blocks(&self, source: u32) -> bool {
        cells(source).iter().all(|cell| is_full(self.0[*cell]))
    }

    /// Counts a packet, unless its source is blocked; whether this one filled its source's cells.
    pub fn take(&mut self, source: u32, destination: u32) -> bool {
        if self.blocks(source) {
            return false;
        }
        for (cell, bit) in cells(source).into_iter().zip(bits(source, destination)) {
            self.0[cell] |= bit;
        }
        self.blocks(source)
    }

    /// Adds what a switch has in a cell; whether that filled it.
    pub fn merge(&mut self, cell: usize, bits: u32) -> bool {
        let Some(own) = self.0.get_mut(cell) else { return false };
        let was_full = is_full(*own);
        *own |= bits;
        !was_full && is_full(*own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// The packet test `blocks.stf` of the program has these numbers, by another implementation.
    #[test]
    fn counts_as_the_program_does() {
        let source = u32::from(Ipv4Addr::new(10, 66, 0, 1));
        let destination = u32::from(Ipv4Addr::new(10, 128, 0, 0));
        let text = include_str!("../../../../systems/swish/p4/detector/blocks.stf");
        let mut words = text.split_whitespace().skip_while(|word| *word != "to");
        let tried: u32 = words.nth(1).and_then(|word| word.parse().ok()).expect("a number");
        let mut sketch = Sketch::default();
        let filled = (0..).find(|at| sketch.take(source, destination + at)).expect("it fills");
        assert_eq!(filled + 1, tried);
        assert!(sketch.blocks(source) && !sketch.blocks(source + 1));
    }

    #[test]
    fn a_union_is_as_good_as_one_switch() {
        let (mut one, mut all) = (Sketch::default(), Sketch::default());
        let mut parts = [Sketch::default(), Sketch::default(), Sketch::default()];
        let mut filled = 0;
        for destination in 0..4000 {
            one.take(7, destination);
            parts[destination as usize % 3].take(7, destination);
        }
        for part in &parts {
            assert_eq!(part.0.len(), CELLS);
            filled += (0..CELLS).filter(|cell| all.merge(*cell, part.0[*cell])).count();
        }
        assert_eq!(filled, ROWS);
        assert!(one.blocks(7) && all.blocks(7));
    }
}

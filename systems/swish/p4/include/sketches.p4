// sketches.p4: cells and values of well-known sketches, for a SharedSketch or SharedCounter. Each
// of them merges cell by cell: how many elements a switch has seen of them does not matter.
#ifndef SWISH_SKETCHES_P4
#define SWISH_SKETCHES_P4

/// A hash: each bit of the result depends on every bit of `x` and of `seed`.
bit<32> sketch_hash(in bit<32> x, in bit<32> seed) {
    bit<32> y = x + seed * 0x9e3779b9;
    y = (y ^ y >> 16) * 0x45d9f3b;
    y = (y ^ y >> 15) * 0x2c1b3c6d;
    return y ^ y >> 16;
}

/// Count-min (Sketch.COUNTERS, or a SharedCounter): the cell of an element in a row. `cells`: of a
/// row, a power of two. A packet adds in all rows; the smallest cell is what was added at the most.
bit<32> count_min_cell(in bit<32> element, in bit<32> row, in bit<32> cells) {
    return row * cells + (sketch_hash(element, row) & (cells - 1));
}

/// A set of bits (Sketch.BITS): the bit of an element. With b of 32 bits set, a cell has seen about
/// -32 ln(1 - b / 32) elements.
bit<32> set_bit(in bit<32> element) {
    return 32w1 << (bit<8>)(sketch_hash(element, 7) & 31);
}

/// Minimum values (Sketch.MAXIMA): each of k cells keeps the smallest hash of the elements that
/// fall into it. The cell of an element; `cells`: k, a power of two.
bit<32> minimum_cell(in bit<32> element, in bit<32> cells) {
    return sketch_hash(element, 8) & (cells - 1);
}

/// The value of an element there. Of the smallest hash it is the largest one, as a sketch begins
/// with 0: that is the hash of no element. With m = 1 - value / 2^32 in each of k cells, about
/// k (k - 1) / (the sum of all m) elements were seen, however often.
bit<32> minimum_value(in bit<32> element) {
    return sketch_hash(element, 9) | 1;
}

/// Quantiles (Sketch.COUNTERS, or a SharedCounter): the bucket of a value, one of 240. A packet
/// adds 1 there. Below 8 each value has a bucket; above, 8 buckets share each power of two, so a
/// bucket's values differ by an eighth at the most.
bit<32> quantile_bucket(in bit<32> value) {
    bit<32> rest = value;
    bit<32> power = 0;
    if (rest >> 16 != 0) {
        power = power + 16;
        rest = rest >> 16;
    }
    if (rest >> 8 != 0) {
        power = power + 8;
        rest = rest >> 8;
    }
    if (rest >> 4 != 0) {
        power = power + 4;
        rest = rest >> 4;
    }
    if (rest >> 2 != 0) {
        power = power + 2;
        rest = rest >> 2;
    }
    if (rest >> 1 != 0) {
        power = power + 1;
    }
    if (power < 3) {
        return value;
    }
    return ((power - 2) << 3) + ((value >> (bit<8>)(power - 3)) & 7);
}

#endif

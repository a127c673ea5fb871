// checksum.p4: incremental Internet checksums (RFC 1624). Not part of any standard.
//
// One's complement sums are sums modulo 2^16 - 1, and 2^16 is 1 there: 32-bit words can be added as
// they are, and folded in the end.
#ifndef CHECKSUM_P4
#define CHECKSUM_P4

// What replacing a word adds to a one's complement sum: ~m + m' (equation 3).
bit<64> replaced_address(in bit<32> before, in bit<32> after) {
    return (bit<64>)(~before) + (bit<64>)after;
}

bit<64> replaced_word(in bit<16> before, in bit<16> after) {
    return (bit<64>)(~before) + (bit<64>)after;
}

// HC' = ~(~HC + ~m + m'), for a difference of less than 2^36.
bit<16> adjusted(in bit<16> checksum, in bit<64> difference) {
    bit<64> sum = (bit<64>)(~checksum) + difference;
    sum = (sum & 0xffff) + (sum >> 16); // < 2^21
    sum = (sum & 0xffff) + (sum >> 16); // < 2^16 + 2^5
    sum = (sum & 0xffff) + (sum >> 16);
    return ~sum[15:0];
}

// The same for UDP, where 0 says that there is no checksum (RFC 768).
bit<16> adjusted_udp(in bit<16> checksum, in bit<64> difference) {
    if (checksum == 0) {
        return 0;
    }
    bit<16> result = adjusted(checksum, difference);
    return result == 0 ? 0xffff : result;
}

// One off the TTL takes 0x0100 from its word: ~m + (m - 0x0100) = 0xffff - 0x0100.
const bit<64> TTL_DECREMENTED = 0xfeff;

#endif

//! Packets of tests/counter.p4: a flow, the packet's number, and the count that it leaves with.

/// The source of all packets, and the key of their total.
pub(crate) const SOURCE: [u8; 4] = [192, 0, 2, 1];

/// A packet of counter.p4's flow (its destination address), with its number in the payload and room
/// for the count.
pub(crate) fn counter_frame(flow: u32, packet: u32, read: bool) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1]);
    frame.extend_from_slice(&flow.to_be_bytes());
    frame.extend_from_slice(&[0x30, 0x39, 0, if read { 84 } else { 80 }, 0, 20, 0, 0]);
    frame.extend_from_slice(&packet.to_be_bytes());
    frame.extend_from_slice(&[0; 8]);
    frame
}

/// A flow's key in counter.p4, of so many bytes.
pub(crate) fn key_of(flow: u32, bytes: usize) -> Vec<u8> {
    let mut key = SOURCE.to_vec();
    key.extend(flow.to_be_bytes());
    key.extend([0x30, 0x39, 0, 80, 17]);
    key.resize(bytes, 0xa5);
    key
}

pub(crate) fn flow_of(frame: &[u8]) -> Option<(u32, u32, u64)> {
    let word = |at: usize| frame.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    let count = frame.get(46..54)?.try_into().ok().map(u64::from_be_bytes)?;
    Some((word(30)?, word(42)?, count))
}

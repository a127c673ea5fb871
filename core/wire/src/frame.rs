//! The first four bytes of every message, and the limits of all: `state-protocol.md`, "Header".

use crate::bytes::Reader;
use crate::{BatchType, ChainType, ControlType, Malformed, ToolType};

/// UDP port of servers and switches.
pub const PORT: u16 = 5407;
/// UDP port of controllers.
pub const CONTROLLER_PORT: u16 = 5408;
/// First two bytes of every message: "SP".
pub const MAGIC: u16 = 0x5350;
/// The only protocol version there is.
pub const VERSION: u8 = 2;
/// Bytes of the fixed header of every message.
pub const HEADER_BYTES: usize = 64;
/// Longest piggybacked packet in bytes: any Ethernet jumbo frame, with room for the chain's own
/// header in one UDP datagram. JSON in the place of a packet has the same limit.
pub const MAX_PACKET_BYTES: usize = 16_384;

/// What a datagram is, by its first four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Between two servers of a chain.
    Chain(ChainType),
    /// To or from a controller.
    Control(ControlType),
    /// A tool's question or its answer.
    Tool(ToolType),
    /// Records that a switch waits for, or their acknowledgement.
    Batch(BatchType),
    /// Any other number: a message of a system, or none.
    System(u8),
}

/// Reads the magic, version and type that every message begins with.
#[inline]
pub fn kind(datagram: &[u8]) -> Result<Kind, Malformed> {
    let mut reader = Reader::new(datagram);
    if reader.u16().ok_or(Malformed::TooShort)? != MAGIC {
        return Err(Malformed::Magic);
    }
    if reader.u8().ok_or(Malformed::TooShort)? != VERSION {
        return Err(Malformed::Version);
    }
    let number = reader.u8().ok_or(Malformed::TooShort)?;
    Ok(ChainType::from_number(number)
        .map(Kind::Chain)
        .or_else(|| ControlType::from_number(number).map(Kind::Control))
        .or_else(|| ToolType::from_number(number).map(Kind::Tool))
        .or_else(|| BatchType::from_number(number).map(Kind::Batch))
        .unwrap_or(Kind::System(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_its_kind() {
        for number in 0..=u8::MAX {
            let kind = kind(&[0x53, 0x50, 2, number]).unwrap();
            let (is, of) = match kind {
                Kind::Chain(chain_type) => (32..=36, chain_type as u8),
                Kind::Control(control_type) => (48..=53, control_type as u8),
                Kind::Tool(tool_type) => (100..=105, tool_type as u8),
                Kind::Batch(batch_type) => (8..=74, batch_type as u8),
                Kind::System(number) => (0..=u8::MAX, number),
            };
            assert!(is.contains(&number) && of == number, "{number}: {kind:?}");
        }
        let system = (0..=u8::MAX)
            .filter(|number| matches!(kind(&[0x53, 0x50, 2, *number]), Ok(Kind::System(_))));
        assert_eq!(system.count(), 256 - 5 - 6 - 6 - 2);
    }

    #[test]
    fn other_frames_have_their_reasons() {
        assert_eq!(kind(&[0x53, 0x50, 2]), Err(Malformed::TooShort));
        assert_eq!(kind(&[0x53, 0x51, 2, 32]), Err(Malformed::Magic));
        assert_eq!(kind(&[0x53, 0x50, 1, 32]), Err(Malformed::Version));
    }
}

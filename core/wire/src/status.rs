//! Questions of tools, and their answers: JSON in the place of the packet.

use crate::{HEADER_BYTES, Kind, MAGIC, MAX_PACKET_BYTES, Malformed, VERSION, kind};
use serde::Serialize;

/// Type of a message between a tool and a server or controller; the number is the wire's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ToolType {
    /// How is the server or the controller?
    StatusRequest = 100,
    /// The answer: JSON.
    StatusReply = 101,
    /// What does the server have? The question is JSON.
    StateRequest = 102,
    /// The answer: JSON.
    StateReply = 103,
    /// Do something. What, is JSON.
    OrderRequest = 104,
    /// The answer: JSON.
    OrderReply = 105,
}

impl ToolType {
    #[inline]
    pub(crate) fn from_number(number: u8) -> Option<ToolType> {
        Some(match number {
            100 => ToolType::StatusRequest,
            101 => ToolType::StatusReply,
            102 => ToolType::StateRequest,
            103 => ToolType::StateReply,
            104 => ToolType::OrderRequest,
            105 => ToolType::OrderReply,
            _ => return None,
        })
    }
}

const TYPE_AT: usize = 3;
const FLAGS_AT: usize = 6;
/// Key and value have no bytes in these messages.
const KEY_AND_VALUE_BYTES_AT: usize = 28;
const PACKET_BYTES_AT: usize = 46;
const KEY_ID_AT: usize = 54;

/// A tool's question: `json` behind a header that says nothing but the type. `KeyRing::sign` writes
/// the tag. `None`: the JSON is longer than a packet.
pub fn question(tool_type: ToolType, json: &[u8]) -> Option<Vec<u8>> {
    let bytes = u16::try_from(json.len()).ok().filter(|_| json.len() <= MAX_PACKET_BYTES)?;
    let mut question = vec![0; HEADER_BYTES];
    question[..2].copy_from_slice(&MAGIC.to_be_bytes());
    question[2] = VERSION;
    question[TYPE_AT] = tool_type as u8;
    question[PACKET_BYTES_AT..][..2].copy_from_slice(&bytes.to_be_bytes());
    question.extend_from_slice(json);
    Some(question)
}

/// The JSON in an answer to a tool.
///
/// # Errors
/// The datagram is no answer, or not all of it.
pub fn answer(datagram: &[u8]) -> Result<&[u8], Malformed> {
    match kind(datagram)? {
        Kind::Tool(ToolType::StatusReply | ToolType::StateReply | ToolType::OrderReply) => {}
        _ => return Err(Malformed::Type),
    }
    json_of(datagram)
}

/// The JSON in a tool's question.
///
/// # Errors
/// The datagram is no question, or not all of it.
pub fn asked(datagram: &[u8]) -> Result<&[u8], Malformed> {
    match kind(datagram)? {
        Kind::Tool(ToolType::StatusRequest | ToolType::StateRequest | ToolType::OrderRequest) => {
            json_of(datagram)
        }
        _ => Err(Malformed::Type),
    }
}

fn json_of(datagram: &[u8]) -> Result<&[u8], Malformed> {
    let json = datagram.get(HEADER_BYTES..).ok_or(Malformed::TooShort)?;
    let nothing_else = datagram[KEY_AND_VALUE_BYTES_AT..][..4] == [0; 4];
    let told = datagram[PACKET_BYTES_AT..][..2] == (json.len() as u16).to_be_bytes();
    if nothing_else && told && json.len() <= MAX_PACKET_BYTES {
        Ok(json)
    } else {
        Err(Malformed::LengthMismatch)
    }
}

/// The answer to a question of a tool: the question's header, then `json`. `KeyRing::sign` writes
/// the tag. `None`: `request` is no question, or the JSON is longer than a packet.
pub fn reply(request: &[u8], json: &[u8]) -> Option<Vec<u8>> {
    asked(request).ok()?;
    let reply_type = match kind(request).ok()? {
        Kind::Tool(ToolType::StatusRequest) => ToolType::StatusReply,
        Kind::Tool(ToolType::StateRequest) => ToolType::StateReply,
        Kind::Tool(ToolType::OrderRequest) => ToolType::OrderReply,
        _ => return None,
    };
    let bytes = u16::try_from(json.len()).ok().filter(|_| json.len() <= MAX_PACKET_BYTES)?;
    let mut reply = request[..HEADER_BYTES].to_vec();
    reply[TYPE_AT] = reply_type as u8;
    reply[FLAGS_AT..FLAGS_AT + 2].fill(0);
    reply[PACKET_BYTES_AT..PACKET_BYTES_AT + 2].copy_from_slice(&bytes.to_be_bytes());
    reply[KEY_ID_AT..].fill(0);
    reply.extend_from_slice(json);
    Some(reply)
}

/// The answer to a status request: the request's header, then `json`. `KeyRing::sign` writes the
/// tag. `None`: `request` is no status request, or the JSON is longer than a packet.
pub fn status_reply(request: &[u8], json: &[u8]) -> Option<Vec<u8>> {
    let is_request =
        kind(request) == Ok(Kind::Tool(ToolType::StatusRequest)) && request.len() == HEADER_BYTES;
    if is_request { reply(request, json) } else { None }
}

/// An answer as a message carries it. While it is too long, `shorten` leaves something out of it,
/// more with each step (from 0 on); `false`: nothing is left to leave out.
pub fn json_that_fits<T: Serialize>(
    mut answer: T,
    mut shorten: impl FnMut(&mut T, usize) -> bool,
) -> Vec<u8> {
    let mut step = 0;
    loop {
        let json = serde_json::to_vec(&answer).unwrap_or_default();
        if json.len() <= MAX_PACKET_BYTES || !shorten(&mut answer, step) {
            return json;
        }
        step += 1;
    }
}

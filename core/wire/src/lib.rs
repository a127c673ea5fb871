//! What the messages of every system have in common: the frame, tags, shards, the chain and the
//! controller; batches of records that switches wait for.
//!
//! This crate owns these byte layouts and every way in which bytes can fail to follow them. It
//! knows no sockets, clocks or state, and no system's own messages: a system numbers its messages
//! with what this crate leaves free, and implements [`Effect`] for what the entries of its chains
//! do. The README says on which page the layouts are.

mod batch;
mod bytes;
mod chain;
mod control;
mod frame;
mod keys;
mod layouts;
mod malformed;
mod shard;
mod siphash;
mod status;

pub use batch::{
    Batch, BatchAck, BatchHead, BatchRecord, BatchRecords, BatchType, DIGEST_BYTES,
    MOST_RECORD_WORDS, MOST_RECORDS, MOST_RECORDS_BYTES, RECORD_HEADER_BYTES, RecordFlags,
};
pub use bytes::{Reader, Writer};
pub use chain::{
    CHAIN_HEADER_BYTES, ChainFlags, ChainHeader, ChainType, ENTRY_HEADER_BYTES, Effect, Entries,
    Entry, Handover,
};
pub use control::{
    Control, ControlType, Joining, MAX_CONTROL_BYTES, MOST_MACHINE_BYTES, Member, Refusal, Report,
    Reporter, ShardReport, ShardView, SwitchLoad, Views,
};
pub use frame::{
    CONTROLLER_PORT, HEADER_BYTES, Kind, MAGIC, MAX_PACKET_BYTES, PORT, VERSION, kind,
};
pub use keys::{KeyRing, MOST_SECRETS, NotGenuine, SECRET_BYTES, Secret, tag_of, tag_of_words};
pub use layouts::{BatchHeader, RecordHeader, header as batches_header};
pub use malformed::{EncodeError, Malformed};
pub use shard::{MOST_SHARDS, key_hash, shard_of};
pub use status::{ToolType, answer, asked, json_that_fits, question, reply, status_reply};

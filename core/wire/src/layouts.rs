//! Structs on the wire that programs in C build and read too, for any system. The C header
//! `bpf/core/stateplane_batch_layouts.h` is made of them.

use crate::batch::{
    BatchAck, BatchType, DIGEST_BYTES, MOST_RECORD_WORDS, MOST_RECORDS, MOST_RECORDS_BYTES,
    RECORD_HEADER_BYTES, RecordFlags,
};
use crate::{HEADER_BYTES, MAGIC, VERSION};
use c_layout::{Be16, Be32, Be64, CStruct, Header, Member, Number, c_struct};
use std::net::Ipv4Addr;

c_struct! {
    /// The header of a batch and of its acknowledgement: core/wire/docs/batches.md. Behind it:
    /// a digest and records; or the bits of records that were refused.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BatchHeader as "sp_batch_header" {
        /// SP_BATCH_MAGIC.
        pub magic: Be16,
        /// SP_BATCH_VERSION.
        pub version: u8,
        /// SP_BATCH or SP_BATCH_ACK.
        pub message_type: u8,
        /// No bit has a meaning yet.
        pub flags: Be16,
        /// Records.
        pub count: Be16,
        /// Whose records these are; unchanged from hop to hop.
        pub switch_id: Be32,
        /// Which of its lives.
        pub incarnation: Be32,
        /// The switch's clock when it sent the batch; echoed.
        pub request_ns: Be64,
        /// Number in the stream, from 1; echoed.
        pub batch: Be64,
        /// Between members: the view of the shard; 0 from and to a switch.
        pub view: Be64,
        /// The switch's session with the shard.
        pub session: Be32,
        /// Of the records; 0 in an acknowledgement.
        pub body_bytes: Be16,
        /// CPU of the switch; echoed.
        pub stream: Be16,
        /// The switch's protocol address: the tail answers there.
        pub client: Ipv4Addr,
        /// Of all keys.
        pub shard: Be16,
        /// Of the tag's secret.
        pub key_id: u8,
        /// Of the digest's secret; 0 in an acknowledgement.
        pub body_key_id: u8,
        /// Over addresses, header and the 8 bytes behind it.
        pub tag: Be64,
    }
}

c_struct! {
    /// With what a record begins; key and value follow, each filled up with zeros to 8 bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RecordHeader as "sp_record_header" {
        /// The object's number in the manifest.
        pub object_id: Be16,
        /// SP_RECORD_GROUP, and the system's own.
        pub flags: u8,
        /// Words of 8 bytes that key and value take.
        pub words: u8,
        /// The grant that the switch holds.
        pub epoch: Be32,
        /// Not used: 0.
        pub place: Be32,
        /// Zero.
        pub zero: Be32,
        /// Of the key's updates.
        pub seq: Be64,
    }
}

const _: () = assert!(BatchHeader::BYTES == HEADER_BYTES && RECORD_HEADER_BYTES.is_multiple_of(8));

/// The C file.
pub fn header() -> Header {
    let about = "batches of records, as they stand on the wire, for any system.";
    let number = |name, value: usize, doc| Number::new(name, value as u64, doc);
    Header::new(
        "stateplane_batch_layouts.h",
        about,
        "core/wire/src/layouts.rs",
        "cargo test -p wire --lib layouts",
    )
    .defines(&[
        number("SP_BATCH_MAGIC", MAGIC.into(), "first two bytes of a message"),
        number("SP_BATCH_VERSION", VERSION.into(), "of the protocol"),
        number("SP_BATCH", BatchType::Batch as usize, "type of a message: records"),
        number("SP_BATCH_ACK", BatchType::BatchAck as usize, "type: its acknowledgement"),
        number("SP_BATCH_HEADER_BYTES", HEADER_BYTES, ""),
        number(
            "SP_BATCH_DIGEST_BYTES",
            DIGEST_BYTES,
            "SipHash-2-4 of the records; first in the body",
        ),
        number("SP_BATCH_SIGNED_BYTES", HEADER_BYTES + DIGEST_BYTES, "what the tag covers"),
        number("SP_BATCH_ACK_BYTES", BatchAck::BYTES, "of a whole acknowledgement"),
        number("SP_BATCH_RECORDS_MAX", MOST_RECORDS, "records of a batch"),
        number("SP_BATCH_RECORDS_BYTES_MAX", MOST_RECORDS_BYTES, "of all records of a batch"),
        number("SP_RECORD_HEADER_BYTES", RECORD_HEADER_BYTES, ""),
        number("SP_RECORD_WORDS_MAX", MOST_RECORD_WORDS, "of key and value"),
        Number::new(
            "SP_RECORD_GROUP",
            RecordFlags::GROUP.0.into(),
            "the same packet's as the next",
        ),
    ])
    .packed(&BatchHeader::LAYOUT)
    .packed(&RecordHeader::LAYOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_header_has_these_layouts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/core");
        header().assert_is(format!("{folder}/stateplane_batch_layouts.h"));
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_batch_layouts.h: batches of records, as they stand on the wire, for any system.
 *
 * Generated from core/wire/src/layouts.rs. Edit that, then run
 * UPDATE=1 cargo test -p wire --lib layouts
 */
#ifndef STATEPLANE_BATCH_LAYOUTS_H
#define STATEPLANE_BATCH_LAYOUTS_H

#define SP_BATCH_MAGIC 21328 /* first two bytes of a message */
#define SP_BATCH_VERSION 2 /* of the protocol */
#define SP_BATCH 8 /* type of a message: records */
#define SP_BATCH_ACK 74 /* type: its acknowledgement */
#define SP_BATCH_HEADER_BYTES 64
#define SP_BATCH_DIGEST_BYTES 8 /* SipHash-2-4 of the records; first in the body */
#define SP_BATCH_SIGNED_BYTES 72 /* what the tag covers */
#define SP_BATCH_ACK_BYTES 72 /* of a whole acknowledgement */
#define SP_BATCH_RECORDS_MAX 64 /* records of a batch */
#define SP_BATCH_RECORDS_BYTES_MAX 1400 /* of all records of a batch */
#define SP_RECORD_HEADER_BYTES 24
#define SP_RECORD_WORDS_MAX 64 /* of key and value */
#define SP_RECORD_GROUP 1 /* the same packet's as the next */

/*
 * The header of a batch and of its acknowledgement: core/wire/docs/batches.md. Behind it:
 * a digest and records; or the bits of records that were refused.
 */
struct sp_batch_header {
	__be16 magic; /* SP_BATCH_MAGIC. */
	__u8 version; /* SP_BATCH_VERSION. */
	__u8 message_type; /* SP_BATCH or SP_BATCH_ACK. */
	__be16 flags; /* No bit has a meaning yet. */
	__be16 count; /* Records. */
	__be32 switch_id; /* Whose records these are; unchanged from hop to hop. */
	__be32 incarnation; /* Which of its lives. */
	__be64 request_ns; /* The switch's clock when it sent the batch; echoed. */
	__be64 batch; /* Number in the stream, from 1; echoed. */
	__be64 view; /* Between members: the view of the shard; 0 from and to a switch. */
	__be32 session; /* The switch's session with the shard. */
	__be16 body_bytes; /* Of the records; 0 in an acknowledgement. */
	__be16 stream; /* CPU of the switch; echoed. */
	__be32 client; /* The switch's protocol address: the tail answers there. */
	__be16 shard; /* Of all keys. */
	__u8 key_id; /* Of the tag's secret. */
	__u8 body_key_id; /* Of the digest's secret; 0 in an acknowledgement. */
	__be64 tag; /* Over addresses, header and the 8 bytes behind it. */
} __attribute__((packed));
_Static_assert(sizeof(struct sp_batch_header) == 64, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_batch_header, tag) == 56, "as in Rust");

/* With what a record begins; key and value follow, each filled up with zeros to 8 bytes. */
struct sp_record_header {
	__be16 object_id; /* The object's number in the manifest. */
	__u8 flags; /* SP_RECORD_GROUP, and the system's own. */
	__u8 words; /* Words of 8 bytes that key and value take. */
	__be32 epoch; /* The grant that the switch holds. */
	__be32 place; /* Not used: 0. */
	__be32 zero; /* Zero. */
	__be64 seq; /* Of the key's updates. */
} __attribute__((packed));
_Static_assert(sizeof(struct sp_record_header) == 24, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_record_header, seq) == 16, "as in Rust");

#endif

// v1model.p4: the declarations of the v1model architecture, version 20200408 and later.
//
// What the declarations mean is described by behavioral-model's docs/simple_switch.md. What a
// target of stateplane does not support is an error when a program uses it, never ignored.
#ifndef _V1_MODEL_P4_
#define _V1_MODEL_P4_

#include <core.p4>

// The architecture's version. Before 20200408, standard_metadata_t's and the checksum controls'
// forms were others.
#ifndef V1MODEL_VERSION
#define V1MODEL_VERSION 20180101
#endif

match_kind {
    /// Between two values, both included.
    range,
    /// Exact, or any value at all.
    optional,
    /// Not looked up: an input of the hash by which an action selector picks a member.
    selector
}

#if V1MODEL_VERSION >= 20200408
typedef bit<9> PortId_t;
#endif
const bit<32> __v1model_version = V1MODEL_VERSION;

/// What the switch tells the program of a packet, and the program the switch.
@metadata @name("standard_metadata")
struct standard_metadata_t {
#if V1MODEL_VERSION >= 20200408
    PortId_t ingress_port;
    PortId_t egress_spec;
    PortId_t egress_port;
#else
    /// Port that the packet came in on.
    bit<9> ingress_port;
    /// Port that ingress wants it to leave by; 511 drops it.
    bit<9> egress_spec;
    /// Port that it leaves by; valid in egress.
    bit<9> egress_port;
#endif
    /// 0 for a packet from a port; tells apart clones, recirculated and resubmitted packets.
    bit<32> instance_type;
    /// Bytes of the packet as it came in.
    bit<32> packet_length;

    // Queueing, valid in egress.
    /// Microseconds, when the packet entered the queue.
    @alias("queueing_metadata.enq_timestamp")
    bit<32> enq_timestamp;
    /// Packets in the queue then.
    @alias("queueing_metadata.enq_qdepth")
    bit<19> enq_qdepth;
    /// Microseconds in the queue.
    @alias("queueing_metadata.deq_timedelta")
    bit<32> deq_timedelta;
    /// Packets in the queue when it left.
    @alias("queueing_metadata.deq_qdepth")
    bit<19> deq_qdepth;

    // Intrinsic metadata.
    /// Microseconds, when ingress began.
    @alias("intrinsic_metadata.ingress_global_timestamp")
    bit<48> ingress_global_timestamp;
    /// Microseconds, when egress began.
    @alias("intrinsic_metadata.egress_global_timestamp")
    bit<48> egress_global_timestamp;
    /// Multicast group; 0 is none.
    @alias("intrinsic_metadata.mcast_grp")
    bit<16> mcast_grp;
    /// Which copy of a replicated packet.
    @alias("intrinsic_metadata.egress_rid")
    bit<16> egress_rid;
    /// 1 if a checksum that was verified is wrong.
    bit<1> checksum_error;
    /// Error that the parser ended with.
    error parser_error;
    /// Queue; higher leaves first.
    @alias("intrinsic_metadata.priority")
    bit<3> priority;
}

/// What a counter or meter counts.
enum CounterType {
    packets,
    bytes,
    packets_and_bytes
}

/// What a meter limits.
enum MeterType {
    packets,
    bytes
}

/// An array of counters.
extern counter
#if V1MODEL_VERSION >= 20200408
<I>
#endif
{
    counter(bit<32> size, CounterType type);
    /// Counts the packet; an index out of range does nothing.
#if V1MODEL_VERSION >= 20200408
    void count(in I index);
#else
    void count(in bit<32> index);
#endif
}

/// A counter in each entry of the one table that it is attached to by the property `counters`.
extern direct_counter {
    direct_counter(CounterType type);
    /// Counts the packet on the entry that matched: only in the table's actions. A table whose
    /// actions do not call it counts every match.
    void count();
}

/// A meter's colours, as its result has them.
#define V1MODEL_METER_COLOR_GREEN 0
#define V1MODEL_METER_COLOR_YELLOW 1
#define V1MODEL_METER_COLOR_RED 2

/// An array of two-rate three-colour meters (RFC 2698).
extern meter
#if V1MODEL_VERSION >= 20200408
<I>
#endif
{
    meter(bit<32> size, MeterType type);
    /// The packet's colour: 0 green, 1 yellow, 2 red. An index out of range leaves the result
    /// undefined.
#if V1MODEL_VERSION >= 20200408
    void execute_meter<T>(in I index, out T result);
#else
    void execute_meter<T>(in bit<32> index, out T result);
#endif
}

/// A meter in each entry of the one table that it is attached to by the property `meters`.
extern direct_meter<T> {
    direct_meter(MeterType type);
    /// The packet's colour by the meter of the entry that matched: only in the table's actions.
    void read(out T result);
}

/// An array of values that live from packet to packet.
extern register<T
#if V1MODEL_VERSION >= 20200408
, I
#endif
> {
    register(bit<32> size);
    /// An index out of range leaves the result undefined.
#if V1MODEL_VERSION >= 20200408
    @noSideEffects
    void read(out T result, in I index);
    /// An index out of range does nothing.
    void write(in I index, in T value);
#else
    @noSideEffects
    void read(out T result, in bit<32> index);
    /// An index out of range does nothing.
    void write(in bit<32> index, in T value);
#endif
}

/// A table's property `implementation`: entries share action instances.
extern action_profile {
    action_profile(bit<32> size);
}

/// A uniform random number between lo and hi, both included.
extern void random<T>(out T result, in T lo, in T hi);

/// Sends the fields of data to the control plane.
extern void digest<T>(in bit<32> receiver, in T data);

/// Algorithms of hash and of the checksums.
enum HashAlgorithm {
    crc32,
    crc32_custom,
    crc16,
    crc16_custom,
    random,
    identity,
    csum16,
    xor16
}

/// The older name of mark_to_drop(standard_metadata).
@deprecated("Please use mark_to_drop(standard_metadata) instead.")
extern void mark_to_drop();

/// The packet will be dropped at the end of ingress or egress unless egress_spec is set again or
/// mcast_grp is set.
@pure
extern void mark_to_drop(inout standard_metadata_t standard_metadata);

/// base + (hash of data mod max); base if max is 0.
@pure
extern void hash<O, T, D, M>(out O result, in HashAlgorithm algo, in T base, in D data, in M max);

/// A table's property `implementation`: an entry's group of action instances, one of them picked by
/// a hash of the `selector` keys.
extern action_selector {
    action_selector(HashAlgorithm algorithm, bit<32> size, bit<32> outputWidth);
}

/// What a packet is cloned from: I2E ingress' input, E2E egress' output.
enum CloneType {
    I2E,
    E2E
}

/// Was the 16-bit one's complement checksum of earlier versions.
@deprecated("Please use verify_checksum/update_checksum instead.")
extern Checksum16 {
    Checksum16();
    bit<16> get<D>(in D data);
}

/// If condition: sets checksum_error unless checksum is that of data.
extern void verify_checksum<T, O>(in bool condition, in T data, in O checksum, HashAlgorithm algo);

/// If condition: writes the checksum of data.
@pure
extern void update_checksum<T, O>(in bool condition, in T data, inout O checksum,
                                  HashAlgorithm algo);

/// As verify_checksum, with the payload behind the headers.
extern void verify_checksum_with_payload<T, O>(in bool condition, in T data, in O checksum,
                                               HashAlgorithm algo);

/// As update_checksum, with the payload behind the headers.
@noSideEffects
extern void update_checksum_with_payload<T, O>(in bool condition, in T data, inout O checksum,
                                               HashAlgorithm algo);

/// At the end of ingress, the packet as it came in starts over, with the fields of the given list
/// preserved.
extern void resubmit_preserving_field_list(bit<8> index);

/// At the end of the deparser, the packet starts over as if it came in, with the fields of the
/// given list preserved.
extern void recirculate_preserving_field_list(bit<8> index);

/// Copies the packet to the given mirror session.
extern void clone(in CloneType type, in bit<32> session);

/// As clone, with the fields of the given list preserved.
extern void clone_preserving_field_list(in CloneType type, in bit<32> session, bit<8> index);

/// Cuts the packet that leaves to at most length bytes.
extern void truncate(in bit<32> length);

/// Ends the run with a message if check is false.
extern void assert(in bool check);

/// As assert; tools may take check as given.
extern void assume(in bool check);

/// Writes a line to the switch's log.
extern void log_msg(string msg);
/// The same; each `{}` in msg is replaced by the next field of data.
extern void log_msg<T>(string msg, in T data);

// The programmable blocks.

parser Parser<H, M>(packet_in b, out H parsedHdr, inout M meta,
                    inout standard_metadata_t standard_metadata);

/// May only call verify_checksum and verify_checksum_with_payload.
control VerifyChecksum<H, M>(inout H hdr, inout M meta);

@pipeline
control Ingress<H, M>(inout H hdr, inout M meta, inout standard_metadata_t standard_metadata);

@pipeline
control Egress<H, M>(inout H hdr, inout M meta, inout standard_metadata_t standard_metadata);

/// May only call update_checksum and update_checksum_with_payload.
control ComputeChecksum<H, M>(inout H hdr, inout M meta);

/// May only call emit.
@deparser
control Deparser<H>(packet_out b, in H hdr);

package V1Switch<H, M>(Parser<H, M> p, VerifyChecksum<H, M> vr, Ingress<H, M> ig, Egress<H, M> eg,
                       ComputeChecksum<H, M> ck,
                       Deparser<H> dep);

#endif

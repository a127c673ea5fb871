/* stateplane_flow_maps.h: what FlowStates keep in BPF maps; included by stateplane_flow.h.
 *
 * Owns: the maps and their sizes. Those that the agent reads or writes it finds by these names
 * (systems/redplane/switch/src/runtime.rs, BTF); stateplane_flow_layouts.h has what is in them.
 */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_flow_settings);
} sp_flow_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_FLOW_SHARDS_MAX);
	__type(key, __u32);
	__type(value, struct sp_shard_head);
} sp_shards SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_FLOW_SHARDS_MAX);
	__type(key, __u32);
	__type(value, struct sp_session);
} sp_sessions SEC(".maps");

/* "Replays": the names of the newest replies (sp_flow_reply_name), in sets that their own bits
 * select. A name is as good as random, so a reply is known again until SP_SEEN_IN_SET others came
 * into its set: with 10,000 replies a second, a whole second later, that happens to one of
 * 10^11. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_SEEN_SETS);
	__type(key, __u32);
	__type(value, struct sp_seen_set);
} sp_seen_replies SEC(".maps");

/* Shards that are to get a heartbeat: the agent puts them in each third of the lease, the generator
 * takes them out. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 2 * SP_FLOW_SHARDS_MAX);
	__type(value, __u32);
} sp_heartbeats_due SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_flow_scratch);
} sp_flow_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SP_STAT_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} sp_flow_stats SEC(".maps");

/* sum of all objects' sizes: one place a flow, so the ring cannot overflow but by stale places of
 * deleted flows */
#define SP_FLOW_RING_PART(name, id, size, kb, vb, consistency, allocator) +(size)
#define SP_SNAPSHOT_SEGMENT 32 /* slots read under one hold of the lock */
#define SP_SNAPSHOT_PER_PART(slot_bytes) (SP_SNAPSHOT_PART_BYTES / (slot_bytes))
#define SP_SNAPSHOT_PARTS(slots, slot_bytes)                                                       \
	(((slots) + SP_SNAPSHOT_PER_PART(slot_bytes) - 1) / SP_SNAPSHOT_PER_PART(slot_bytes))
#define SP_SNAPSHOT_ALL(parts) ((parts) >= 64 ? ~0ull : (1ull << (parts)) - 1)

#define SP_SNAPSHOT_RING_PART(                                                                     \
    name, id, instances, kb, slots, width, slot_bytes, period_us, epsilon_us, overdue)             \
	+(instances) * SP_SNAPSHOT_PARTS(slots, slot_bytes)
#define SP_FLOW_RING_SIZE                                                                          \
	(0 SP_FLOW_OBJECTS(SP_FLOW_RING_PART) SP_SNAPSHOT_OBJECTS(SP_SNAPSHOT_RING_PART))

/* Flows with something to re-send: FIFO. (RedPlane §5.2 uses mirrored packets; XDP cannot mirror.)
 */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, SP_FLOW_RING_SIZE);
	__type(value, struct sp_flow_pending);
} sp_flow_ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_nat_pool);
} sp_nat_pool SEC(".maps");

/* The local mode's BACKENDS: where a new conversation goes, by its hash. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_BACKEND_PLACES);
	__type(key, __u32);
	__type(value, struct sp_backend);
} sp_backends SEC(".maps");

/* What is rare runs in programs of its own, by tail call: the hot path then has the whole 512 bytes
 * of stack, and no code that it jumps over. */
enum {
	SP_PROGRAM_AGAIN,
	SP_PROGRAM_RECEIVE,
	SP_PROGRAM_SEND,
	SP_PROGRAM_COMMIT,
	SP_PROGRAM_BATCH,
	SP_PROGRAM_BATCH_ACK,
	SP_PROGRAMS
};
/* the P4 program on a packet that was here before; emitted by the compiler */
int sp_again(struct xdp_md *xdp);
int sp_receive(struct xdp_md *xdp); /* a message of the state protocol */
int sp_send(struct xdp_md *xdp); /* the message in the scratch */
#ifdef SP_FLOW_HAS_COMMIT
int sp_commit(struct xdp_md *xdp); /* a finished packet that waits */
int sp_batch(struct xdp_md *xdp); /* the batch in sp_commit_work */
int sp_batch_ack(struct xdp_md *xdp); /* an acknowledgement of a batch */
#endif
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, SP_PROGRAMS);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} sp_programs SEC(".maps") = {
	.values = {
		[SP_PROGRAM_AGAIN] = (void *)&sp_again,
		[SP_PROGRAM_RECEIVE] = (void *)&sp_receive,
		[SP_PROGRAM_SEND] = (void *)&sp_send,
#ifdef SP_FLOW_HAS_COMMIT
		[SP_PROGRAM_COMMIT] = (void *)&sp_commit,
		[SP_PROGRAM_BATCH] = (void *)&sp_batch,
		[SP_PROGRAM_BATCH_ACK] = (void *)&sp_batch_ack,
#endif
	},
};

/* What sp_again must know of the packet. */
struct sp_flow_resume {
	__u32 ingress_port;
	__u32 attempts;
	/* of a packet that comes back from the store: of the interface that it comes to */
	__u8 host_mac[6];
	__u32 absent_object;
	__u32 reserved;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_flow_resume);
} sp_flow_resume SEC(".maps");

#define SP_FLOW_DECLARE(name, id, flows, kb, vb, consistency, allocator)                           \
	struct name##_entry {                                                                      \
		SP_FLOW_ENTRY_HEAD                                                                 \
		__u8 key[SP_ROUND8(kb)];                                                           \
		__u8 value[SP_ROUND8(vb)];                                                         \
	};                                                                                         \
	struct name##_key {                                                                        \
		__u8 bytes[SP_ROUND8(kb)];                                                         \
	};                                                                                         \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_HASH);                                                   \
		__uint(max_entries, flows);                                                        \
		__type(key, struct name##_key);                                                    \
		__type(value, struct name##_entry);                                                \
	} name SEC(".maps");
SP_FLOW_OBJECTS(SP_FLOW_DECLARE)

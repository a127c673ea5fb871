/* feed.h: what probe.c and traffic.c share: a list of frames that is gone through, counters, and a
 * program that lets everything pass. Belongs to no product. Whoever includes it says how long a
 * frame may be: FRAME_BYTES, a multiple of eight. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual BSD/GPL";

struct frame {
	__u32 bytes; /* of the packet: those after FRAME_BYTES are zero */
	__u32 zero;
	__u64 words[FRAME_BYTES / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct frame);
} list SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32[2]); /* frames in the list, number of the next */
} position SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[2]); /* packets, bytes */
} counted SEC(".maps");

/* The next frame of the list, round and round. */
static __always_inline struct frame *next_frame(void)
{
	__u32 zero = 0, number, *at = bpf_map_lookup_elem(&position, &zero);

	if (!at)
		return 0;
	number = at[1];
	at[1] = number + 1 >= at[0] ? 0 : number + 1;
	return bpf_map_lookup_elem(&list, &number);
}

/* Writes it over a packet of FRAME_BYTES. */
static __always_inline int write_frame(struct xdp_md *xdp, const struct frame *frame)
{
	void *data = (void *)(long)xdp->data, *data_end = (void *)(long)xdp->data_end;

	if (data + FRAME_BYTES > data_end)
		return -1;
	for (int i = 0; i < FRAME_BYTES / 8; i++)
		((__u64 *)data)[i] = frame->words[i];
	return 0;
}

static __always_inline void count_packet(struct xdp_md *xdp)
{
	__u32 zero = 0;
	__u64 *value = bpf_map_lookup_elem(&counted, &zero);

	if (value) {
		value[0] += 1;
		value[1] += xdp->data_end - xdp->data;
	}
}

/* A veth takes redirected frames only when its peer runs a program. */
SEC("xdp.frags")
int pass(struct xdp_md *xdp __attribute__((unused)))
{
	return XDP_PASS;
}

/* What the compiler makes of a per-flow counter, in short: key = addresses, ports, protocol; every packet takes the next number. */
#include "stateplane_xdp.h"
#define SP_FLOW_HAS_SET
#define SP_FLOW_OBJECTS(X) X(counts, 1, 1024, 13, 8, SP_FLOW_LINEARIZABLE, SP_ALLOCATOR_ZERO)
#include "stateplane_flow.h"

SEC("xdp.frags")
int sp_main(struct xdp_md *xdp)
{
	struct sp_flow_context flow = {};
	__u64 key[2] = {}, count = 0;
	__u32 port = 0;

	if (!sp_ingress_port(xdp, &port))
		return XDP_ABORTED;
	int verdict = sp_flow_receive(xdp, &flow, &port);
	if (verdict != -1)
		return verdict;
	void *data = (void *)(long)xdp->data;
	if (data + 54 > (void *)(long)xdp->data_end)
		return sp_drop(port);
	__builtin_memcpy(key, data + 26, 12);
	((__u8 *)key)[12] = *(__u8 *)(data + 23);
	__u32 result = counts_get(&flow, (__u8 *)key, (__u8 *)&count, 1);
	if (flow.kind == SP_FLOW_PARK)
		return sp_flow_park(xdp, &flow);
	if (result != SP_STATE_HIT)
		return sp_drop(port);
	count = bpf_cpu_to_be64(bpf_be64_to_cpu(count) + 1);
	counts_set(&flow, (__u8 *)key, (__u8 *)&count);
	if (flow.kind == SP_FLOW_PARK)
		return sp_flow_park(xdp, &flow);
	__builtin_memcpy(data + 46, &count, 8);
	if (flow.kind == SP_FLOW_COMMIT)
		return sp_flow_finish(xdp, &flow, 3);
	return sp_forward(xdp, 3);
}

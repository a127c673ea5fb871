/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_swish.h: the parts of a program with variables of stateplane/swish.p4, one for each
 * consistency that it uses; and what SRO does beside the others (systems/swish/README.md).
 *
 * Owns: what goes with a packet through the pipeline, for all parts; what a packet that waits has
 * noted. Must not know: windows, slots, chains.
 *
 * The emitted program defines, before it includes this, what the headers of its parts want:
 * SP_SHARED_OBJECTS (SDW), SP_EVENTUAL_OBJECTS (EWO), SP_STRONG_OBJECTS (SRO).
 *
 * A packet that waits until all switches have its writes has counted nothing yet: its updates with
 * SDW and EWO stand beside its slot, and take effect when it leaves. If it runs again or is dropped
 * they are forgotten.
 */
#ifndef STATEPLANE_SWISH_H
#define STATEPLANE_SWISH_H

#ifdef SP_SHARED_OBJECTS
#include "stateplane_shared.h"
#endif
#ifdef SP_EVENTUAL_OBJECTS
#include "stateplane_eventual.h"
#endif

#ifdef SP_STRONG_OBJECTS
#if defined(SP_SHARED_OBJECTS) || defined(SP_EVENTUAL_OBJECTS)
#define SP_COMMIT_NOTES
struct sp_commit_noted {
#ifdef SP_SHARED_OBJECTS
	struct sp_shared_context windows;
#endif
#ifdef SP_EVENTUAL_OBJECTS
	struct sp_eventual_context eventual;
#endif
#ifdef SP_LWW_RECORDS
	struct sp_lww_entry writes[SP_LWW_WRITES];
#endif
};
#endif
#include "stateplane_strong.h"
#endif

/* With a packet through the pipeline. */
struct sp_swish_context {
#ifdef SP_SHARED_OBJECTS
	struct sp_shared_context windows;
#endif
#ifdef SP_EVENTUAL_OBJECTS
	struct sp_eventual_context eventual;
#endif
#ifdef SP_STRONG_OBJECTS
	struct sp_strong_context strong;
#endif
};

/* Claims messages. */
SP_INLINE void sp_swish_claim(struct xdp_md *xdp)
{
#ifdef SP_SHARED_OBJECTS
	sp_shared_claim_frame(xdp);
#endif
#ifdef SP_EVENTUAL_OBJECTS
	sp_eventual_claim_frame(xdp);
#endif
#ifdef SP_STRONG_OBJECTS
	sp_strong_claim(xdp);
#endif
}

#ifdef SP_COMMIT_NOTES
/* A generated frame becomes what is due for the chain: a program of its own, as the kernel gives
 * one 64 maps. */
SEC("xdp.frags")
int sp_swish_chain(struct xdp_md *xdp)
{
	int verdict = sp_strong_generated(xdp);

	return verdict < 0 ? sp_strong_end() : verdict;
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} sp_swish_programs SEC(".maps") = {
	.values = { [0] = (void *)&sp_swish_chain },
};
#endif

/*
 * A generated frame becomes what is due. -1: nothing. (What windows and EWO have due is counted,
 * and the agent makes a frame for each; the others are the chain's.)
 */
SP_INLINE int sp_swish_generated(struct xdp_md *xdp)
{
	int verdict = -1;

#ifdef SP_SHARED_OBJECTS
	verdict = sp_shared_generated(xdp);
#endif
#ifdef SP_EVENTUAL_OBJECTS
	if (verdict < 0)
		verdict = sp_eventual_generated(xdp);
#endif
#ifdef SP_COMMIT_NOTES
	if (verdict < 0)
		bpf_tail_call(xdp, &sp_swish_programs, 0);
#elif defined(SP_STRONG_OBJECTS)
	verdict = sp_strong_generated(xdp);
#endif
	return verdict;
}

#ifdef SP_STRONG_OBJECTS
/* What the packet has noted is forgotten. It changes nothing, and holds nothing up. */
SP_INLINE void sp_swish_forget(struct sp_swish_context *shared)
{
#ifdef SP_SHARED_OBJECTS
	sp_shared_forget(&shared->windows);
#endif
#ifdef SP_EVENTUAL_OBJECTS
	sp_eventual_forget(&shared->eventual);
#endif
}

/* Has it noted anything? */
SP_INLINE int sp_swish_has_noted(const struct sp_swish_context *shared)
{
	__u32 noted = 0;

#ifdef SP_SHARED_OBJECTS
	noted |= shared->windows.updates;
#endif
#ifdef SP_EVENTUAL_OBJECTS
	noted |= shared->eventual.updates | shared->eventual.writes;
#endif
	return noted != 0;
}

/* Behind egress: as sp_strong_finish. A packet that a full window drops writes nothing. */
SP_INLINE int sp_swish_finish(struct xdp_md *xdp, struct sp_swish_context *shared)
{
#ifdef SP_SHARED_OBJECTS
	if (shared->windows.refused)
		return -1;
#endif
	return sp_strong_finish(xdp, &shared->strong);
}

/* The packet ends here. */
SP_INLINE int sp_swish_stop(struct xdp_md *xdp, struct sp_swish_context *shared, int why,
			    __u32 ingress_port)
{
	sp_swish_forget(shared);
	return sp_strong_stop(xdp, &shared->strong, why, ingress_port);
}

/*
 * The program drops the packet. 0: it goes on to that, or to wait for it (`strong.name`). What it
 * read does not leave the switch, unless in what it counts.
 */
SP_INLINE int sp_swish_dropped(struct xdp_md *xdp, struct sp_swish_context *shared)
{
	if (!sp_swish_has_noted(shared))
		shared->strong.waits = 0;
	return shared->strong.name ? 0 : sp_strong_finish(xdp, &shared->strong);
}

#ifdef SP_COMMIT_NOTES
/* What the packet has noted goes beside the slot in which it waits next. -1: none is free. */
static __noinline int sp_swish_keep(struct sp_swish_context *shared)
{
	struct sp_commit_noted *noted = sp_commit_notes();

	if (!noted)
		return -1;
#ifdef SP_SHARED_OBJECTS
	sp_shared_keep(&noted->windows, &shared->windows);
#endif
#ifdef SP_EVENTUAL_OBJECTS
	sp_eventual_keep(&noted->eventual, &shared->eventual);
#endif
#ifdef SP_LWW_RECORDS
	if (sp_lww_keep(noted->writes, shared->eventual.writes))
		return -1;
#endif
	return 0;
}

/* See stateplane_commit.h. A write of EWO gets its stamp here. */
SP_SHARED_GLOBAL int sp_commit_leaves(__u32 index, __u32 drops)
{
	struct sp_commit_noted *noted = bpf_map_lookup_elem(&sp_commit_noted, &index);

	if (!noted)
		return 0;
#ifdef SP_SHARED_OBJECTS
	sp_shared_renew(&noted->windows);
	/* (Windows first: a packet that they drop changes nothing else.) */
	if (sp_shared_commit(&noted->windows) && !drops)
		return 1;
#endif
#ifdef SP_LWW_RECORDS
	if (sp_lww_take_up(noted->writes, noted->eventual.writes))
		return 0;
#endif
#ifdef SP_EVENTUAL_OBJECTS
	sp_eventual_commit(&noted->eventual);
#endif
	return 0;
}
#endif

/* The finished packet waits, and changes nothing meanwhile. */
SP_INLINE int sp_swish_park(struct xdp_md *xdp, struct sp_swish_context *shared, __u32 port)
{
#ifdef SP_COMMIT_NOTES
	int fails = sp_swish_keep(shared);

	sp_swish_forget(shared);
	if (fails)
		return sp_strong_end();
#endif
	return sp_strong_park(xdp, &shared->strong, port);
}
#endif

#endif

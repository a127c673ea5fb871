/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_secrets.h: the secrets that the machines of a fabric share (`stateplane keys`), as the
 * agent writes them.
 */
#ifndef STATEPLANE_SECRETS_H
#define STATEPLANE_SECRETS_H

/* How many a machine can know at once (MOST_SECRETS in core/wire). */
#define SP_SECRETS 4

/* All that are accepted, and which one is sent with. One value, so that a change is one write. */
struct sp_secret_set {
	__u64 secret[SP_SECRETS][2]; /* as SipHash takes them: two little-endian words */
	__u32 present; /* bit n: secret n is there */
	__u32 sends;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_secret_set);
} sp_secrets SEC(".maps");

#endif

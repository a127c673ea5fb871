/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_messages.h: what any system with messages of its own needs: ports to the fabric,
 * secrets, generated packets. A system's header includes it, after stateplane_xdp.h.
 *
 * Owns: the maps; user space writes them (switch/dataplane). Must not know: a system's messages.
 */
#ifndef STATEPLANE_MESSAGES_H
#define STATEPLANE_MESSAGES_H

/* 1: messages of systems may come in here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_MAX_PORTS);
	__type(key, __u32);
	__type(value, __u8);
} sp_fabric_port SEC(".maps");

/* With what messages are tagged and checked. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_secret_set);
} sp_secrets SEC(".maps");

/*
 * How many things wait for a generated packet, which the emitted program sp_generator handles: the
 * agent reads it to know how many to make.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sp_generator_work SEC(".maps");

#endif

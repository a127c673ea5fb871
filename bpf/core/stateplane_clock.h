/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks. Part of stateplane_xdp.h.
 */
#ifndef STATEPLANE_CLOCK_H
#define STATEPLANE_CLOCK_H

/* The clock of tests and of the simulator. */
SP_INLINE __u64 sp_virtual_ns(void)
{
	__u32 zero = 0;
	struct sp_test_value *test = bpf_map_lookup_elem(&sp_test, &zero);

	return test ? test->clock_ns : 0;
}

SP_INLINE __u64 sp_now_ns(void)
{
	return sp_virtual_clock ? sp_virtual_ns() : bpf_ktime_get_ns();
}

/* The same clock at its last tick (every 4 ms at 250 Hz): much cheaper. */
SP_INLINE __u64 sp_coarse_ns(void)
{
	return sp_virtual_clock ? sp_virtual_ns() : bpf_ktime_get_coarse_ns();
}

/*
 * The time that all machines agree on, as far as their clocks are set. The clock above begins at
 * each machine's own boot.
 */
SP_INLINE __u64 sp_wall_clock_ns(void)
{
	return sp_virtual_clock ? sp_virtual_ns() : bpf_ktime_get_tai_ns();
}

#endif

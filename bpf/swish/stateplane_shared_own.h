/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_shared_own.h: cells that merge as functions of the program say (Sketch.OWN).
 *
 * Owns: which function a cell's number means. Must not know: where cells lie.
 *
 * The emitted program defines, before it includes this:
 *   SP_SHARED_OWN_COUNT       how many such functions there are
 *   SP_SHARED_OWN_MERGES(X)   X(number, function): two cells become one. Without side effects: it
 *                             is called under locks, and again when another CPU was faster.
 */
#ifndef STATEPLANE_SHARED_OWN_H
#define STATEPLANE_SHARED_OWN_H

#include "stateplane_shared_layouts.h"

#define SP_SHARED_OWN_CASE(number, function)                                                     \
	if (merge == SP_SHARED_OWN + (number))                                                   \
		return function(cell, by);

SP_INLINE int sp_shared_is_own(__u32 merge)
{
	return SP_SHARED_OWN_COUNT && merge >= SP_SHARED_OWN;
}

SP_INLINE __u32 sp_shared_own(__u32 merge, __u32 cell, __u32 by)
{
	SP_SHARED_OWN_MERGES(SP_SHARED_OWN_CASE)
	return cell;
}

#endif

//! Seeded bugs of the data plane: places in the runtime headers, and wrong text for each.
//!
//! The headers themselves read as if there were none. A place that a header no longer has is an
//! error, so a bug cannot go missing when a header changes.

use xdp_backend::system::{Header, Rule, StateSystem, System, Systems};

/// A mistake that the simulator's checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeededBug {
    /// Its name, in tests and tables.
    pub name: &'static str,
    /// What goes wrong.
    pub what: &'static str,
    header: &'static str,
    right: &'static str,
    wrong: &'static str,
}

impl SeededBug {
    /// The bug of this name.
    pub fn named(name: &str) -> Option<&'static SeededBug> {
        ALL.iter().find(|bug| bug.name == name)
    }

    /// The headers with the bug.
    ///
    /// # Errors
    /// The header has changed: the place is not in it, or more than once.
    pub fn seed(&self, headers: &[Header]) -> Result<Vec<(&'static str, String)>, String> {
        let mut places = 0;
        let seeded = headers.iter().map(|(name, text)| {
            if *name != self.header {
                return (*name, (*text).to_owned());
            }
            places += text.matches(self.right).count();
            (*name, text.replace(self.right, self.wrong))
        });
        let seeded = seeded.collect();
        match places {
            1 => Ok(seeded),
            _ => Err(format!(
                "{}: {} has {places} places for it; it needs one",
                self.name, self.header
            )),
        }
    }
}

/// All of them.
pub const ALL: &[SeededBug] = &[
    SeededBug {
        name: "RemovedAtOnce",
        what: "A released flow is removed before the store knows.",
        header: "stateplane_flow_sweep.h",
        right: "\t\t\tif (entry->flags & SP_FLOW_RELEASE_ACKED && !(entry->flags & SP_FLOW_QUEUED) &&\n\t\t\t    entry->sent_ns < request->released_before_ns)\n",
        wrong: "\t\t\tif (1)\n",
    },
    SeededBug {
        name: "SnapshotOfActiveCopy",
        what: "A snapshot reads the copy that updates go to.",
        header: "stateplane_snapshot_message.h",
        right: "__u32 sp_updated = (sp_apart - 1) >> 63; /* since the flip */",
        wrong: "__u32 sp_updated = 0;",
    },
    SeededBug {
        name: "SavedWithOnePart",
        what: "A snapshot counts as saved when the store has one part of it.",
        header: "stateplane_snapshot_message.h",
        right: "if (book->acked_parts == all) {",
        wrong: "if (1) {",
    },
    SeededBug {
        name: "CopySurvivesGrant",
        what: "A copy is used on although parts of another switch's state are in it.",
        header: "stateplane_snapshot_message.h",
        right: "\t\t\tentry->flags |= SP_FLOW_RELEASED | SP_FLOW_RELEASE_ACKED | SP_FLOW_UNKNOWN;\n\t\t\tlost =",
        wrong: "\t\t\tlost =",
    },
    SeededBug {
        name: "ReleaseNotSentAgain",
        what: "A release that was lost is not sent again.",
        header: "stateplane_flow_generator.h",
        right: "\t\tif (waiting)\n\t\t\ttodo = SP_GENERATE_KEEP;",
        wrong: "\t\tif (released)\n\t\t\twaiting = 0;\n\t\tif (waiting)\n\t\t\ttodo = SP_GENERATE_KEEP;",
    },
    SeededBug {
        name: "RingForgets",
        what: "A flow leaves the ring at the first look.",
        header: "stateplane_flow_generator.h",
        right: "\t\t\ttodo = SP_GENERATE_KEEP;\n\t\telse",
        wrong: "\t\t\t;\n\t\telse",
    },
    SeededBug {
        name: "NeverSentAgain",
        what: "Nothing that was lost is sent again.",
        header: "stateplane_flow_generator.h",
        right: "if (waiting && now",
        wrong: "if (0 && now",
    },
    SeededBug {
        name: "GrantCutShort",
        what: "A grant brings the first 64 bytes of a value.",
        header: "stateplane_flow_apply.h",
        right: "\t\t\tsp_flow_copy(entry_key + SP_ROUND8(key_bytes), scratch->value, value_bytes);\n",
        wrong: "\t\t\tsp_flow_copy(entry_key + SP_ROUND8(key_bytes), scratch->value, value_bytes < 64 ? value_bytes : 64);\n",
    },
    SeededBug {
        name: "SetsAtOnce",
        what: "What a packet sets takes effect before it waits for another flow's lease.",
        header: "stateplane_flow.h",
        right: "sp_flow_stage(flow, id, key, kb, value, vb)",
        wrong: "sp_flow_set(flow, &name, id, key, kb, value, vb, consistency)",
    },
    SeededBug {
        name: "RingFull",
        what: "No bug: the ring takes nothing in one millisecond of four.",
        header: "stateplane_flow.h",
        right: "if (bpf_map_push_elem(&sp_flow_ring, pending, 0)) {",
        wrong: "if ((sp_now_ns() / 1000000 * 2654435761u >> 9) % 4 == 0 || bpf_map_push_elem(&sp_flow_ring, pending, 0)) {",
    },
    SeededBug {
        name: "LeaseNeverOver",
        what: "A lease has no end.",
        header: "stateplane_flow_session.h",
        right: "sp_session_lives(session, seen->session, now_ns);\n}\n\n/* ---- \"Re-sending",
        wrong: "session->number;\n}\n\n/* ---- \"Re-sending",
    },
    SeededBug {
        name: "LeaseFromReply",
        what: "A lease counts from the reply, not from the request.",
        header: "stateplane_flow_session.h",
        right: "request_ns + lease_ns - margin_ns : 0;",
        wrong: "sp_now_ns() + lease_ns - margin_ns : 0;",
    },
    SeededBug {
        name: "ReadBeforeAck",
        what: "A packet that read what is not acknowledged leaves at once.",
        header: "stateplane_flow_access.h",
        right: "\t\treturn SP_STATE_PENDING;\n\tif (flow->kind == SP_FLOW_COMMIT) {\n\t\tif (scratch",
        wrong: "\t\treturn SP_STATE_PENDING;\n\treturn SP_STATE_HIT;\n\tif (flow->kind == SP_FLOW_COMMIT) {\n\t\tif (scratch",
    },
    SeededBug {
        name: "AckedWhenSent",
        what: "An update counts as acknowledged when it is sent.",
        header: "stateplane_flow_access.h",
        right: "\t\t\t\tqueue = !(entry->flags & SP_FLOW_QUEUED);\n\t\t\t\tentry->flags |= SP_FLOW_QUEUED;\n",
        wrong: "\t\t\t\tqueue = !(entry->flags & SP_FLOW_QUEUED);\n\t\t\t\tentry->flags |= SP_FLOW_QUEUED;\n\t\t\t\tentry->acked_seq = seq;\n",
    },
    SeededBug {
        name: "GrantOverOwnState",
        what: "A grant that comes again overwrites newer state.",
        header: "stateplane_flow_apply.h",
        right: "\t\tif (scratch->epoch > entry->epoch) {\n\t\t\tentry->version++;",
        wrong: "\t\tif (scratch->epoch > entry->epoch ||\n\t\t    (scratch->epoch == entry->epoch && !(entry->flags & SP_FLOW_RELEASED))) {\n\t\t\tentry->version++;",
    },
    SeededBug {
        name: "ReleasedTakenAgain",
        what: "A grant that comes again brings a released flow back.",
        header: "stateplane_flow_apply.h",
        right: "\t\tif (scratch->epoch > entry->epoch) {\n\t\t\tentry->version++;",
        wrong: "\t\tif (scratch->epoch > entry->epoch ||\n\t\t    (scratch->epoch == entry->epoch && entry->flags & SP_FLOW_RELEASED)) {\n\t\t\tentry->version++;",
    },
    SeededBug {
        name: "RecallKeeps",
        what: "A recalled flow stays this switch's.",
        header: "stateplane_flow_apply.h",
        right: "\t\tentry->flags |= SP_FLOW_RELEASED; /* from here on it is not this switch's */\n",
        wrong: "",
    },
    SeededBug {
        name: "SwitchReplaysTaken",
        what: "A switch takes a reply that it has had.",
        header: "stateplane_flow_receive.h",
        right: "\tif (!set)\n\t\treturn 1;\n\t/* Of two copies",
        wrong: "\treturn 0;\n\t/* Of two copies",
    },
    SeededBug {
        name: "SecondAnswerTaken",
        what: "A switch takes the old tail's answer to a request and the new one's.",
        header: "stateplane_flow_receive.h",
        right: "if (!packet_bytes || scratch->type == SP_SNAPSHOT_STATE)\n\t\treturn",
        wrong: "if (scratch)\n\t\treturn",
    },
    SeededBug {
        name: "ReplyToEarlierLife",
        what: "A switch takes replies to its earlier life.",
        header: "stateplane_flow_receive.h",
        right: "if (scratch->incarnation != settings->incarnation)",
        wrong: "if (0)",
    },
    SeededBug {
        name: "WindowInBothCopies",
        what: "A time window begins in the copy, too, that a snapshot on its way is read from.",
        header: "stateplane_snapshot.h",
        right: "~(interval) & 1] = slot->copy[(slot->tag ^ sp_updated) & 1];",
        wrong: "~(interval) & 1] = 0;",
    },
    SeededBug {
        name: "WindowGoesBack",
        what: "A packet whose clock is behind begins an older time window.",
        header: "stateplane_snapshot.h",
        right: "if (!ahead || (was && ahead > object->mask >> 1))",
        wrong: "if (!ahead)",
    },
    SeededBug {
        name: "NeverOverdue",
        what: "A packet is counted though the store lacks older updates than ε.",
        header: "stateplane_snapshot.h",
        right: "if (overdue && object->overdue == SP_OVERDUE_DROP) {",
        wrong: "if (0) {",
    },
    SeededBug {
        name: "UnmarkedWithoutLease",
        what: "A packet without a lease is not marked.",
        header: "stateplane_snapshot.h",
        right: "\tnow = sp_coarse_ns();\n\tif (object->overdue != SP_OVERDUE_DROP) {",
        wrong: "\tnow = sp_coarse_ns();\n\tif (0) {",
    },
    SeededBug {
        name: "ReleasedByAnyAck",
        what: "Any acknowledgement releases the batch in flight.",
        header: "stateplane_commit_release.h",
        right: "\tif (stream->departed == number && stream->acked != number) {\n\t\t*list",
        wrong: "\tnumber = stream->departed;\n\tif (stream->acked != number) {\n\t\t*list",
    },
    SeededBug {
        name: "RecordChangedInFlight",
        what: "A newer update is written into the batch that is in flight.",
        header: "stateplane_commit_record.h",
        right: "\tnumber = stream->departed + 1;\n\tbatch = number & 1 ? place->odd : place->even;\n\trecord",
        wrong: "\tnumber = stream->departed + (stream->acked == stream->departed || sp_commit_number_of(before) != stream->departed);\n\tbatch = number & 1 ? place->odd : place->even;\n\trecord",
    },
    SeededBug {
        name: "DurableWhenSent",
        what: "An update counts as durable when its batch has left.",
        header: "stateplane_commit_record.h",
        right: "return stream && *(volatile __u64 *)&stream->acked >=",
        wrong: "return stream && *(volatile __u64 *)&stream->departed >=",
    },
    SeededBug {
        name: "RefusedPacketsLeave",
        what: "A packet leaves although its record was refused.",
        header: "stateplane_flow_commit.h",
        right: "\tif (refused.bits && ",
        wrong: "\tif (0 && ",
    },
    SeededBug {
        name: "OtherCpusBatch",
        what: "A packet waits for a batch of its CPU that has the number of another CPU's.",
        header: "stateplane_flow_commit.h",
        right: "if (sp_commit_cpu_of(name) != cpu || sp_commit_record_of",
        wrong: "if (sp_commit_record_of",
    },
    SeededBug {
        name: "BatchNotSentAgain",
        what: "A batch that was lost is not sent again.",
        header: "stateplane_flow_commit.h",
        right: "\tif (again && sp_commit_choose(at, 1))",
        wrong: "\tif (!sent_ns && sp_commit_choose(at, 1))",
    },
    SeededBug {
        name: "WrappedReadLeaves",
        what: "A packet that saw an update in a message of its own waits for no batch.",
        header: "stateplane_flow_access.h",
        right: "seen->name = sp_commit_name(sp_cpu(), SP_COMMIT_UNPLACED, seen->seq);",
        wrong: "seen->name = SP_FLOW_LINES_UP(sp_cpu());",
    },
    SeededBug {
        name: "WrappedKeepsBatch",
        what: "An update in a message of its own counts as durable with its flow's last batch.",
        header: "stateplane_flow_access.h",
        right: "\t\t\t\t\tentry->name = 0; /* batches",
        wrong: "\t\t\t\t\t; /* batches",
    },
    SeededBug {
        name: "SettledUnheard",
        what: "A read notes that its flow's update is durable, though no answer has come.",
        header: "stateplane_flow_access.h",
        right: "\t\tif (!sp_commit_is_durable(seen->name, seen->shard))\n\t\t\treturn 1;\n\t\t/* Refused meanwhile",
        wrong: "\t\tif (settles)\n\t\t\tsp_flow_settle(entry, key, key_bytes, seen);\n\t\tif (!sp_commit_is_durable(seen->name, seen->shard))\n\t\t\treturn 1;\n\t\t/* Refused meanwhile",
    },
    SeededBug {
        name: "OldRecordIsNewest",
        what: "An asynchronous flow leaves the ring with its record, though it has a newer update.",
        header: "stateplane_flow_access.h",
        right: "\t\t\t\tqueue = !(entry->flags & SP_FLOW_QUEUED);",
        wrong: "\t\t\t\tqueue = !(entry->flags & SP_FLOW_QUEUED) && !entry->name;",
    },
    SeededBug {
        name: "RecordsStandAlone",
        what: "Records of what a packet sets in several objects are no group.",
        header: "stateplane_flow_record.h",
        right: "\t\tflags |= SP_RECORD_GROUP;",
        wrong: "\t\tflags |= 0;",
    },
    SeededBug {
        name: "GroupInTwoBatches",
        what: "Each record of what a packet sets in several objects leaves in a batch of its own.",
        header: "stateplane_flow_group.h",
        right: "staged->seq, staged->phases);",
        wrong: "staged->seq, staged->phases); sp_commit_depart_locked(group.place.stream);",
    },
    SeededBug {
        name: "RecallTakesHalf",
        what: "A recall does not wait until what was set together is durable.",
        header: "stateplane_flow_apply.h",
        right: "if (entry->seq > entry->acked_seq && !(settled && entry->name == name)) {",
        wrong: "if (!settled && settled) {",
    },
    SeededBug {
        name: "OtherCpusHalf",
        what: "A packet goes on with what another CPU has set together, before that is durable.",
        header: "stateplane_flow_access.h",
        right: "\treturn seen->seq != seen->acked_seq && sp_commit_cpu_of(seen->name) != sp_cpu() &&",
        wrong: "\treturn 0 && seen->seq != seen->acked_seq &&",
    },
    SeededBug {
        name: "KeptForGood",
        what: "A flow that was granted stays until its group is set, if it ever is.",
        header: "stateplane_flow_apply.h",
        right: "} else if (now < entry->sent_ns + kept_ns) {",
        wrong: "} else if (entry->sent_ns && kept_ns) {",
    },
];

/// The platform's headers that a bug may be in, beside RedPlane's own.
const ENGINE: [Header; 2] = [
    ("stateplane_commit_record.h", include_str!("../../../../bpf/core/stateplane_commit_record.h")),
    (
        "stateplane_commit_release.h",
        include_str!("../../../../bpf/core/stateplane_commit_release.h"),
    ),
];

/// A system's headers, and those of the platform that it is compiled with.
fn headers_with(system: &dyn System) -> Vec<Header> {
    system.headers().iter().chain(&ENGINE).copied().collect()
}

/// The registered systems, with the headers of the one that has the bug's changed. It stays in
/// memory: a test seeds each bug once.
pub(crate) fn systems_with(bug: &SeededBug) -> Result<Systems, String> {
    let has_it =
        |system: &&dyn System| headers_with(*system).iter().any(|(name, _)| *name == bug.header);
    let all = redplane_compiler::ALONE.0;
    let system = all
        .iter()
        .copied()
        .find(has_it)
        .ok_or_else(|| format!("{}: no system has {}", bug.name, bug.header))?;
    let headers = bug.seed(&headers_with(system))?;
    let headers = headers
        .into_iter()
        .map(|(name, text)| (name, &*text.leak()))
        .collect::<Vec<Header>>()
        .leak();
    let seeded: &'static dyn System = Box::leak(Box::new(Seeded { system, headers }));
    let others = all.iter().copied().filter(|other| !has_it(other));
    Ok(Systems(others.chain([seeded]).collect::<Vec<_>>().leak()))
}

struct Seeded {
    system: &'static dyn System,
    headers: &'static [Header],
}

impl System for Seeded {
    fn extern_types(&self) -> &'static [&'static str] {
        self.system.extern_types()
    }

    fn rules(&self) -> &'static [Rule] {
        self.system.rules()
    }

    fn headers(&self) -> &'static [Header] {
        self.headers
    }

    fn program_names(&self) -> &'static [&'static str] {
        self.system.program_names()
    }

    fn own_functions(&self) -> &'static [&'static str] {
        self.system.own_functions()
    }

    fn begin(&self) -> Box<dyn StateSystem> {
        self.system.begin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bug_has_its_place() {
        for bug in ALL {
            assert!(systems_with(bug).is_ok(), "{:?}", systems_with(bug).err());
            assert_eq!(SeededBug::named(bug.name), Some(bug));
        }
    }

    #[test]
    fn a_bug_without_its_place_is_an_error() {
        let bug = SeededBug { right: "no such line", ..ALL[0] };
        assert!(systems_with(&bug).unwrap_err().contains("0 places"));
    }
}

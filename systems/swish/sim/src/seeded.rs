//! Seeded bugs of the data plane: places in its headers, and wrong text for each.
//!
//! Also changes for measurements ([`WITHOUT_READY`], [`A_NODE_A_CPU`]), which no option of the
//! compiler can make.
//!
//! The headers themselves read as if there were none. A place that a header no longer has is an
//! error, so a bug cannot go missing when a header changes.

mod chain;
mod cpus;
mod large;
mod last;
mod tree;

pub(crate) use chain::FEW_TOMBS;
pub use chain::{CHAIN, CHAIN_DIRECTED, LIVES, ORDERS, TALLY, TALLY_DIRECTED};
pub use cpus::A_NODE_A_CPU;
pub use large::LARGE;
pub use last::LAST;
use swish_compiler::SwiSh;
pub use tree::TREE;
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

/// SwiSh without the ready phase (§9.2, Figure 5f), for measurements: a switch that says that it
/// is ready goes on at once, and still serves a member that is a window behind.
///
/// It is right only where user space has put the same into both deltas for good (`filled`). A
/// switch has two deltas. Without the phase, packets of the new window would change the delta that
/// a member a window behind still lacks: the updates of two rotations would be mixed.
pub const WITHOUT_READY: &[SeededBug] = &[
    SeededBug {
        name: "WithoutReady",
        what: "A switch rotates before all are ready.",
        header: "stateplane_shared_window.h",
        right: ALL_READY,
        wrong: "",
    },
    SeededBug {
        name: "ServesBehind",
        what: "A switch serves the window before in any phase.",
        header: "stateplane_shared_tree.h",
        right: "\tif (SP_SHARED_PHASE(word) >= SP_SHARED_ROTATED)\n\t\treturn 0;\n",
        wrong: "",
    },
];

/// What a switch waits for in the phase.
const ALL_READY: &str = "if (SP_SHARED_LOAD(node->all_ready) < window &&\n\t\t\t    SP_SHARED_LOAD(node->ready[window & 1]) != node->count)\n\t\t\t\tbreak;";

/// Virtual time passes in a program, as CPU time does in a real one: each time that a frame looks
/// whether the window turns takes 1 µs.
pub(crate) const TIME_PASSES: SeededBug = SeededBug {
    name: "TimePasses",
    what: "Virtual time passes in a program.",
    header: "stateplane_shared_window.h",
    right: "\t/* (A window has four steps, or five.",
    wrong: "\t{\n\t\t__u32 zero = 0;\n\t\tstruct sp_test_value *test = bpf_map_lookup_elem(&sp_test, &zero);\n\n\t\tif (test)\n\t\t\ttest->clock_ns += 1000;\n\t}\n\t/* (A window has four steps, or five.",
};

/// Of the cap on CPU time.
pub const CPU: &[SeededBug] = &[
    SeededBug {
        name: "CpuCapIgnored",
        what: "The next window begins as if this one had cost no CPU time.",
        header: "stateplane_shared_window.h",
        right: "if (least_ns < cost_ns)\n\t\tleast_ns = cost_ns;",
        wrong: "",
    },
    SeededBug {
        name: "AllOfACpu",
        what: "The next window begins as if the cap were one whole CPU.",
        header: "stateplane_shared_window.h",
        right: "(sum.busy_ns - node->busy_ns) * 100 / node->cpu_percent",
        wrong: "sum.busy_ns - node->busy_ns",
    },
    SeededBug {
        name: "OneCpuCounts",
        what: "Of the CPUs only the first one's time counts.",
        header: "stateplane_shared_window.h",
        right: "sum->busy_ns += SP_SHARED_LOAD(cpu->busy_ns);",
        wrong: "sum->busy_ns += i ? 0 : SP_SHARED_LOAD(cpu->busy_ns);",
    },
    SeededBug {
        name: "GeneratedFree",
        what: "Frames that the generator makes cost nothing.",
        header: "stateplane_shared_frame.h",
        right: "\tmessage.begun_ns = sp_shared_begun_ns(node);\n\tSP_SHARED_STORE(cpu->packet",
        wrong: "\tSP_SHARED_STORE(cpu->packet",
    },
];

/// Of members that are sealed: runs in which switches die show it.
pub const SEAL: &[SeededBug] = &[SeededBug {
    name: "SealIgnored",
    what: "A sealed member takes messages.",
    header: "stateplane_shared_frame.h",
    right: "if (SP_SHARED_LOAD(node->sealed)) {",
    wrong: "if (0) {",
}];

/// All of them.
pub const ALL: &[SeededBug] = &[
    SeededBug {
        name: "CapIgnored",
        what: "The next window begins as if this one had cost nothing.",
        header: "stateplane_shared_window.h",
        right: "due_ns = now_ns + least_ns;",
        wrong: "due_ns = now_ns;",
    },
    SeededBug {
        name: "MergedTwice",
        what: "A message that comes again is merged again (notes, C).",
        header: "stateplane_shared_window.h",
        right: "return word && !(__sync_fetch_and_or(word, bit) & bit);",
        wrong: "return word && (__sync_fetch_and_or(word, bit), 1);",
    },
    SeededBug {
        name: "RotatedOnAdvance",
        what: "Updates go into the next rotation as soon as the window turns: r is (3N-1)B (notes, A).",
        header: "stateplane_shared.h",
        right: "return SP_SHARED_WINDOW(word) + (SP_SHARED_PHASE(word) >= SP_SHARED_ROTATED);",
        wrong: "return SP_SHARED_WINDOW(word) + 1;",
    },
    SeededBug {
        name: "NoBase",
        what: "A window's merge begins from what was read two windows ago (notes, B).",
        header: "stateplane_shared_merge.h",
        right: "sides.base = read;\n",
        wrong: "sides.base = sides.to;\n",
    },
    SeededBug {
        name: "DropKeepsPin",
        what: "A packet that is dropped as B is reached keeps its pin.",
        header: "stateplane_shared.h",
        right: "for (__u32 group = 0; group < SP_SHARED_GROUPS; group++) {\n\t\tstruct sp_shared_cpu *cpu;\n\n\t\tif (!shared->word[group])",
        wrong: "for (__u32 group = 0; group < SP_SHARED_GROUPS; group++) {\n\t\tstruct sp_shared_cpu *cpu;\n\n\t\tif (!shared->word[group] || shared->refused)",
    },
    SeededBug {
        name: "ReadyWithoutPins",
        what: "A switch is ready while packets of the window before read (notes, 9).",
        header: "stateplane_shared_window.h",
        right: "\t\t\tif (!sp_shared_drained(group, word, node->cpus))\n\t\t\t\tbreak;\n\t\t\tnext = SP_SHARED_WORD(window, SP_SHARED_RESETTING);",
        wrong: "\t\t\tnext = SP_SHARED_WORD(window, SP_SHARED_RESETTING);",
    },
    SeededBug {
        name: "CountedBeforeDrained",
        what: "What is to be sent is counted while packets write to it: a late write.",
        header: "stateplane_shared_window.h",
        right: "\t\t\tif (!sp_shared_drained(group, word, node->cpus))\n\t\t\t\tbreak;\n\t\t\tnext = SP_SHARED_WORD(window, SP_SHARED_GATHERING);",
        wrong: "\t\t\tnext = SP_SHARED_WORD(window, SP_SHARED_GATHERING);",
    },
    SeededBug {
        name: "LineNotCleared",
        what: "A line keeps what packets changed two rotations ago.",
        header: "stateplane_shared.h",
        right: "\t\tfor (int i = 0; i < SP_SHARED_LINE_CELLS; i++)\n\t\t\tcells[i] = 0;\n\t\t/* A full",
        wrong: "\t\t/* A full",
    },
    SeededBug {
        name: "LineNotFresh",
        what: "A whole block is sent with lines of two rotations ago.",
        header: "stateplane_shared_merge.h",
        right: "block->line[side][line] = rotation << 16;\n\t\tfor",
        wrong: "block->line[side][line] = rotation << 16;\n\t\tfor (; 0;) for",
    },
    SeededBug {
        name: "OldWindowAsNew",
        what: "A message of another window counts as one of this window.",
        header: "stateplane_shared_frame.h",
        right: "if (sp_shared_cells_window(message) == window && SP_SHARED_PHASE(word) >= SP_SHARED_READY)",
        wrong: "if (SP_SHARED_PHASE(word) >= SP_SHARED_READY)",
    },
    SeededBug {
        name: "PreviousAsNew",
        what: "Cells of the window before count as cells of the sender's window.",
        header: "stateplane_shared_frame.h",
        right: "return message->window - !!(message->kind & SP_SHARED_KIND_PREVIOUS);",
        wrong: "return message->window;",
    },
    SeededBug {
        name: "NobodyWaitedFor",
        what: "A switch rotates before all are ready.",
        header: "stateplane_shared_window.h",
        right: ALL_READY,
        wrong: "",
    },
    SeededBug {
        name: "ReadyCountedTwice",
        what: "A member that says twice that it is ready counts as two.",
        header: "stateplane_shared_frame.h",
        right: "\t\tif (seen >= window)\n\t\t\tbreak;\n",
        wrong: "\t\tif (seen > window)\n\t\t\tbreak;\n",
    },
    SeededBug {
        name: "ReadyKept",
        what: "Members that were ready two windows ago count as ready.",
        header: "stateplane_shared_window.h",
        right: "\t\t\tSP_SHARED_STORE(node->ready[(window + 1) & 1], 0);\n",
        wrong: "",
    },
    SeededBug {
        name: "AdvancesAlone",
        what: "A window ends when the messages of all but one are merged.",
        header: "stateplane_shared_window.h",
        right: "SP_SHARED_LOAD(node->complete) != node->count",
        wrong: "SP_SHARED_LOAD(node->complete) + 1 < node->count",
    },
    SeededBug {
        name: "NoBound",
        what: "A packet counts beyond its CPU's share of B.",
        header: "stateplane_shared.h",
        right: "if (cpu->used >= cpu->share || ",
        wrong: "if (",
    },
    SeededBug {
        name: "MaximaAdded",
        what: "Merging a maximum in a message with single cells adds.",
        header: "stateplane_shared_merge.h",
        right: "sp_shared_larger(cell, by);",
        wrong: "cell + by;",
    },
    SeededBug {
        name: "JoinedBySum",
        what: "A function of the program merges whole blocks, and single cells are added.",
        header: "stateplane_shared_merge.h",
        right: "sp_shared_own(merge, cell, by) :",
        wrong: "cell + by :",
    },
    SeededBug {
        name: "TotalOfEarlierWindow",
        what: "A member that lacks messages is told how many there were a window earlier.",
        header: "stateplane_shared_tree.h",
        right: "node->totals[window & 1]);\n}",
        wrong: "node->totals[(window & 1) ^ (window != SP_SHARED_WINDOW(node->word))]);\n}",
    },
    SeededBug {
        name: "OwnMergedAgain",
        what: "A message of the window before that is sent again is merged by its sender again.",
        header: "stateplane_shared_frame.h",
        right: "if (window == SP_SHARED_WINDOW(SP_SHARED_LOAD(node->word)) &&\n\t    sp_shared_claim(",
        wrong: "if (sp_shared_claim(",
    },
    SeededBug {
        name: "AnewEarly",
        what: "One switch begins a period a window before the others (notes, 15).",
        header: "stateplane_shared.h",
        right: "SP_SHARED_LOAD(block->window[side]), window - 1))",
        wrong: "SP_SHARED_LOAD(block->window[side]),\n\t\t\t      window - (sp_shared_node(group) && sp_shared_node(group)->own != 1)))",
    },
    SeededBug {
        name: "OldPeriodRead",
        what: "Packets read the last period's value until something of the new one comes.",
        header: "stateplane_shared.h",
        right: "if (sp_shared_is_over_now(group, period, SP_SHARED_LOAD(block->window[side]), window - 1))\n\t\treturn 0;\n",
        wrong: "",
    },
    SeededBug {
        name: "PeriodAdded",
        what: "A period begins from the last one's value.",
        header: "stateplane_shared_merge.h",
        right: "sides.anew = sp_shared_is_over(period, block->window[read & 1], window);",
        wrong: "sides.anew = 0;",
    },
];

/// Those of variables with EWO.
pub const EVENTUAL: &[SeededBug] = &[
    SeededBug {
        name: "SlotBySwitch",
        what: "A switch that restarts has the slot that it had before (notes, 12).",
        header: "stateplane_eventual_frame.h",
        right: "if (seen != search->life)",
        wrong: "if ((seen & 63) != (search->life & 63))",
    },
    SeededBug {
        name: "OwnGossipOnly",
        what: "Gossip brings a switch's own slots only: a dead switch's last updates stay where they are (notes, 12).",
        header: "stateplane_eventual_frame.h",
        right: "if (column >= SP_EVENTUAL_COLUMNS || !life || !*life)",
        wrong: "if (column >= SP_EVENTUAL_COLUMNS || !life || !*life || column)",
    },
    SeededBug {
        name: "NoGossipOfBits",
        what: "Gossip leaves out cells without slots.",
        header: "stateplane_eventual_frame.h",
        right: "\t\tcells = node->direct;\n",
        wrong: "\t\tcells = 0;\n",
    },
    SeededBug {
        name: "Added",
        what: "Merging adds instead of taking the larger one.",
        header: "stateplane_eventual_frame.h",
        right: "__sync_fetch_and_add(&cell->value, value - seen);",
        wrong: "__sync_fetch_and_add(slot, seen);\n\t\t\t__sync_fetch_and_add(&cell->value, value);",
    },
    SeededBug {
        name: "SumOfMessages",
        what: "The sum grows by the whole slot.",
        header: "stateplane_eventual_frame.h",
        right: "__sync_fetch_and_add(&cell->value, value - seen);",
        wrong: "__sync_fetch_and_add(&cell->value, value);",
    },
    SeededBug {
        name: "Overwritten",
        what: "A late message puts an older slot in the place of a newer one.",
        header: "stateplane_eventual_frame.h",
        right: "if (seen >= value)\n\t\t\treturn 0;",
        wrong: "if (seen == value)\n\t\t\treturn 0;",
    },
    SeededBug {
        name: "ListedOnce",
        what: "A cell that was sent once is not listed again.",
        header: "stateplane_eventual.h",
        right: "SP_SHARED_LOAD(cell->listed) > SP_SHARED_LOAD(ends->taken)",
        wrong: "SP_SHARED_LOAD(cell->listed) > 0",
    },
    SeededBug {
        name: "SentToOne",
        what: "What one member was sent, no other member is sent.",
        header: "stateplane_eventual_frame.h",
        right: "\tfill.place = seen;\n",
        wrong: "\tfill.place = SP_SHARED_LOAD(ends->taken);\n",
    },
    SeededBug {
        name: "WrongLife",
        what: "Slots of another life are sent as this switch's.",
        header: "stateplane_eventual_frame.h",
        right: "message->life = *life;",
        wrong: "message->life = node->life;",
    },
    SeededBug {
        name: "RunFromZero",
        what: "A run's cells are taken for those at the group's beginning.",
        header: "stateplane_eventual_frame.h",
        right: "number = cells->first + i;",
        wrong: "number = i;",
    },
    SeededBug {
        name: "MaximumAdded",
        what: "A larger value is added to a maximum.",
        header: "stateplane_eventual.h",
        right: "__sync_val_compare_and_swap(&cell->value, seen, raise->value) == seen;",
        wrong: "__sync_val_compare_and_swap(&cell->value, seen, seen + raise->value) == seen;",
    },
    SeededBug {
        name: "BitsReplaced",
        what: "A set takes the place of the set that was there.",
        header: "stateplane_eventual.h",
        right: "__sync_fetch_and_or(&cell->value, value);",
        wrong: "__sync_lock_test_and_set(&cell->value, value);",
    },
];

impl SeededBug {
    /// Only a program with a merge of its own shows it.
    pub(crate) fn needs_own_merge(&self) -> bool {
        self.right.contains("sp_shared_own(")
    }
}

/// The headers with the mistakes in them.
///
/// # Errors
/// A header has changed: a place is not in it, or more than once.
fn seed(bugs: &[SeededBug]) -> Result<Vec<(&'static str, String)>, String> {
    let mut headers: Vec<(&'static str, String)> =
        SwiSh.headers().iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
    for bug in bugs {
        let mut places = 0;
        for (_, text) in headers.iter_mut().filter(|(name, _)| *name == bug.header) {
            places += text.matches(bug.right).count();
            *text = text.replace(bug.right, bug.wrong);
        }
        if places != 1 {
            let SeededBug { name, header, .. } = bug;
            return Err(format!("{name}: {header} has {places} places for it; it needs one"));
        }
    }
    Ok(headers)
}

/// The system with these mistakes. (Its headers are never given back: there are few.)
pub(crate) fn systems_with(bugs: &[SeededBug]) -> Result<Systems, String> {
    let headers = seed(bugs)?.into_iter().map(|(name, text)| (name, &*text.leak()));
    let headers = headers.collect::<Vec<Header>>().leak();
    let seeded: &'static dyn System = Box::leak(Box::new(Seeded { headers }));
    Ok(Systems(vec![seeded].leak()))
}

struct Seeded {
    headers: &'static [Header],
}

impl System for Seeded {
    fn extern_types(&self) -> &'static [&'static str] {
        SwiSh.extern_types()
    }

    fn rules(&self) -> &'static [Rule] {
        SwiSh.rules()
    }

    fn headers(&self) -> &'static [Header] {
        self.headers
    }

    fn program_names(&self) -> &'static [&'static str] {
        SwiSh.program_names()
    }

    fn own_functions(&self) -> &'static [&'static str] {
        SwiSh.own_functions()
    }

    fn begin(&self) -> Box<dyn StateSystem> {
        SwiSh.begin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bug_has_its_place() {
        let all = [ALL, TREE, LARGE, EVENTUAL, LAST, CHAIN, CHAIN_DIRECTED, CPU, SEAL];
        for bug in all.into_iter().flatten() {
            let systems = systems_with(std::slice::from_ref(bug));
            assert!(systems.is_ok(), "{:?}", systems.err());
        }
        for change in [WITHOUT_READY, A_NODE_A_CPU, &[TIME_PASSES], &[FEW_TOMBS]] {
            assert!(systems_with(change).is_ok(), "{:?}", systems_with(change).err());
        }
    }
}

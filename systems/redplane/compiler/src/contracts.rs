//! What RedPlane's objects demand of a program, on each way of a packet through it
//! (stateplane/redplane.p4).

use num_traits::ToPrimitive;
use p4_ir::{ConstArgument, ExternId, ExternInstance, Program, StatementKind, Type};
use state_protocol::objects::Consistency;
use xdp_backend::system::{
    Call, Question, Rule, Seen, Storage, Verdict, Walk, Witness, calls_outside, verdict,
};
use xdp_backend::walk;

const SECOND_SET: usize = 0;
const SET_WITHOUT_LOOKUP: usize = 1;
const PHASE_WITHOUT_LOOKUP: usize = 2;
const NAT_SHAPE: usize = 3;
const BACKENDS_SHAPE: usize = 4;
const SECOND_KEY: usize = 5;
const FLOW_AFTER_SNAPSHOT: usize = 6;
const OUTSIDE: usize = 7;
const GROUP_SHARD: usize = 8;
const GROUP_KEY: usize = 9;

/// All rules on the order of calls and the types of allocators.
pub static RULES: &[Rule] = &[
    Rule {
        id: "second-set",
        broken: "a second `set` on one path of a packet, of another key of this object or beside \
                 another object",
        remedy: "put all changes into one value under one key; only LINEARIZABLE objects can be \
                 set together, one key of each",
        note: Some("the first `set` is here"),
        on_any_path: true,
    },
    Rule {
        id: "set-without-lookup",
        broken: "`set` of a key that is not the last one looked up in this object",
        remedy: "`get` or `get_or_allocate` the same key before, and `set` it if the result is \
                 HIT; keep a copy of a key whose parts are written in between",
        note: Some("the last look-up in this object is here"),
        on_any_path: false,
    },
    Rule {
        id: "phase-without-lookup",
        broken: "`phase` of a key that was not looked up in this object",
        remedy: "`get` or `get_or_allocate` the same key before, and call `phase` if the result is \
                 HIT",
        note: Some("the last look-up in this object is here"),
        on_any_path: false,
    },
    Rule {
        id: "nat-ports-types",
        broken: "Allocator.NAT_PORTS with a key or value of other fields than it allocates for",
        remedy: "the key must be { bit<32>, bit<32>, bit<16>, bit<16>, bit<8> } and the value { bit<32>, bit<16> }",
        note: None,
        on_any_path: false,
    },
    Rule {
        id: "backends-types",
        broken: "Allocator.BACKENDS with a key or value of other fields than it allocates for",
        remedy: "the key must be { bit<32>, bit<32>, bit<16>, bit<16>, bit<8> } and the value { bit<32>, bit<16> }",
        note: None,
        on_any_path: false,
    },
    Rule {
        id: "second-snapshot-key",
        broken: "an access to a SnapshotState with a second key on one path of a packet",
        remedy: "use one key for all accesses of a packet: a packet that must wait for a second \
                 key's lease would count twice",
        note: Some("the first key is used here"),
        on_any_path: false,
    },
    Rule {
        id: "flow-after-snapshot",
        broken: "a FlowState is looked up or set after an access to a SnapshotState on one path of a packet",
        remedy: "use the FlowState first: a packet that must wait for a lease enters the program again, and would count twice",
        note: Some("the SnapshotState is accessed here"),
        on_any_path: false,
    },
    Rule {
        id: "outside-ingress-and-egress",
        broken: "a call in the parser, a checksum control or the deparser",
        remedy: "call it in ingress or egress: a packet that must wait for a lease, or be sent with an update, leaves the program there",
        note: None,
        on_any_path: false,
    },
    Rule {
        id: "group-without-shard",
        broken: "a `set` beside one of another object, and the two do not declare the same shard",
        remedy: "give both the fourth argument, `shard_fields`, and begin both keys with as many \
                 fields of the same widths: records that take effect together are in one shard",
        note: Some("the other object is set here"),
        on_any_path: true,
    },
    Rule {
        id: "group-of-two-shards",
        broken: "a `set` beside one of another object, whose key begins with other values",
        remedy: "use the same values in the fields that pick the shard (`shard_fields`): records \
                 that take effect together are in one shard",
        note: Some("the other object is set here"),
        on_any_path: true,
    },
];

/// Members of `Allocator`.
const NAT_PORTS: u32 = 1;
const BACKENDS: u32 = 2;

/// No rule: a `set`, or a call that may have to wait for a lease, that comes after a `set`.
static AFTER_SET: Rule = Rule { id: "", broken: "", remedy: "", note: None, on_any_path: true };

/// Do the program's `set`s take effect at the packet's end? They do if on some path a `set`, a
/// look-up or an access to a SnapshotState comes after a `set`. A packet that has to wait for a
/// lease there enters the program again, and would set twice. They also do if there are too many
/// paths to tell.
pub fn sets_at_the_end(program: &Program) -> bool {
    let mut storage = Storage::new(program, super::EXTERN_TYPES);
    let (found, complete) = Walk::explore(program, &mut storage, &AfterSets { program });
    !found.is_empty() || !complete
}

/// No rule: LINEARIZABLE objects that are set beside each other.
static TOGETHER: Rule = Rule { id: "", broken: "", remedy: "", note: None, on_any_path: true };

/// Does a packet set flows of several LINEARIZABLE objects? Too many paths to tell: if there are
/// several that it could.
pub fn sets_together(program: &Program) -> bool {
    let mut storage = Storage::new(program, super::EXTERN_TYPES);
    let (found, complete) = Walk::explore(program, &mut storage, &Together { program });
    let set = |id: &ExternId| is_set(program, *id);
    let ids = (0..).map(ExternId).zip(&program.externs);
    let waiting = ids.filter(|(id, it)| is_own(it) && waits(it) && set(id)).count();
    waiting > 1 && (!found.is_empty() || !complete)
}

/// Which rules the program breaks, and where.
pub fn check(program: &Program) -> Vec<Witness> {
    let mut found = Vec::new();
    let objects: Vec<(ExternId, &ExternInstance)> =
        (0..).map(ExternId).zip(&program.externs).filter(|(_, it)| is_own(it)).collect();
    if objects.is_empty() {
        return found;
    }
    let mut storage = Storage::new(program, super::EXTERN_TYPES);
    for (id, instance) in &objects {
        found.extend(check_types(program, *id, instance));
        if is_flow(instance) {
            let question = Lookups { object: *id, is_looked_up: is_looked_up(program, *id) };
            found.extend(Walk::run(program, &mut storage, &question));
        }
    }
    found.extend(Walk::run(program, &mut storage, &Sets { program }));
    found.extend(Walk::run(program, &mut storage, &Snapshots { program }));
    let outside = calls_outside(program, super::EXTERN_TYPES).into_iter();
    let rule = &RULES[OUTSIDE];
    found.extend(outside.map(|(object, location)| Witness {
        rule,
        object,
        location,
        earlier: None,
    }));
    found
}

fn is_own(instance: &ExternInstance) -> bool {
    super::EXTERN_TYPES.contains(&instance.extern_type.as_str())
}

fn is_flow(instance: &ExternInstance) -> bool {
    instance.extern_type == "FlowState"
}

/// Can a packet have to wait for this object's state?
fn is_in_store(instance: &ExternInstance) -> bool {
    Consistency::ALL.get(member(instance, 1) as usize).is_none_or(|it| it.is_replicated())
}

/// Does a packet that sets it wait?
fn waits(instance: &ExternInstance) -> bool {
    let mode = Consistency::ALL.get(member(instance, 1) as usize);
    is_flow(instance) && mode.is_some_and(|it| it.updates_wait())
}

/// Fields of a key that pick its shard, and their widths. `None`: all do.
fn picks<'a>(program: &'a Program, instance: &ExternInstance) -> Option<Vec<&'a Type>> {
    let fields = member(instance, 3) as usize;
    let Some(Type::Struct(id)) = instance.type_arguments.first() else { return None };
    let key = &program.struct_types[id.index()].fields;
    (fields > 0).then(|| key.iter().take(fields).map(|field| &field.ty).collect())
}

/// Does a packet need a lease on this SnapshotState's key? (A period of 0 makes it local.)
fn takes_snapshots(instance: &ExternInstance) -> bool {
    member(instance, 2) != 0
}

fn member(instance: &ExternInstance, index: usize) -> u32 {
    match instance.arguments.get(index) {
        Some(ConstArgument::Value(value, _)) => value.to_u32().unwrap_or(0),
        _ => 0,
    }
}

fn is_lookup(method: &str) -> bool {
    matches!(method, "get" | "get_or_allocate")
}

/// limits.rs tells of objects that are only ever set.
fn is_looked_up(program: &Program, object: ExternId) -> bool {
    is_called(program, object, |method| method != "set")
}

fn is_set(program: &Program, object: ExternId) -> bool {
    is_called(program, object, |method| method == "set")
}

fn is_called(program: &Program, object: ExternId, method: fn(&str) -> bool) -> bool {
    struct Finder(ExternId, fn(&str) -> bool, bool);
    impl walk::Visitor for Finder {
        fn statement(&mut self, statement: &p4_ir::Statement) {
            if let StatementKind::Extern { instance: Some(id), name, .. } = &statement.kind {
                self.2 |= *id == self.0 && self.1(name);
            }
        }
    }
    let mut finder = Finder(object, method, false);
    walk::program(program, &mut finder);
    finder.2
}

/// Allocators make values of their own form, for keys that they understand.
fn check_types(program: &Program, object: ExternId, instance: &ExternInstance) -> Option<Witness> {
    let rule = match (is_flow(instance), member(instance, 2)) {
        (true, NAT_PORTS) => &RULES[NAT_SHAPE],
        (true, BACKENDS) => &RULES[BACKENDS_SHAPE],
        _ => return None,
    };
    let has = |index: usize, widths: &[u32]| match instance.type_arguments.get(index) {
        Some(Type::Struct(id)) => {
            let fields = &program.struct_types[id.index()].fields;
            fields.iter().map(|field| &field.ty).eq(widths
                .iter()
                .map(|width| Type::bits(*width))
                .collect::<Vec<_>>()
                .iter())
        }
        // What is no struct is refused as such.
        _ => true,
    };
    let fits = has(0, &[32, 32, 16, 16, 8]) && has(1, &[32, 16]);
    (!fits).then_some(Witness { rule, object, location: instance.location, earlier: None })
}

/// What was looked up in one object.
struct Lookups {
    object: ExternId,
    is_looked_up: bool,
}

impl Question for Lookups {
    fn judge(
        &self,
        storage: &Storage,
        seen: &[Seen],
        call: &Call,
    ) -> Vec<(&'static Rule, Verdict)> {
        if call.object != self.object {
            return Vec::new();
        }
        let differs = |seen: &Seen| storage.strays(seen, call);
        match call.method {
            "set" if self.is_looked_up => {
                vec![(
                    &RULES[SET_WITHOUT_LOOKUP],
                    verdict(seen.last().is_none_or(differs), seen.last()),
                )]
            }
            "phase" => {
                vec![(&RULES[PHASE_WITHOUT_LOOKUP], verdict(seen.iter().all(differs), seen.last()))]
            }
            _ => Vec::new(),
        }
    }

    fn remembers(&self, seen: &[Seen], call: &Call) -> bool {
        call.object == self.object
            && is_lookup(call.method)
            && seen.last().is_none_or(|last| last.key != call.key)
    }
}

/// What comes after the first `set`, in whichever object.
struct AfterSets<'a> {
    program: &'a Program,
}

impl Question for AfterSets<'_> {
    fn judge(&self, _: &Storage, seen: &[Seen], call: &Call) -> Vec<(&'static Rule, Verdict)> {
        let object = &self.program.externs[call.object.index()];
        let waits = match call.method {
            "set" => true,
            method if is_flow(object) => is_lookup(method) && is_in_store(object),
            method => method != "is_overdue" && takes_snapshots(object),
        };
        vec![(&AFTER_SET, verdict(waits && !seen.is_empty(), seen.first()))]
    }

    fn remembers(&self, seen: &[Seen], call: &Call) -> bool {
        call.method == "set" && seen.is_empty()
    }
}

/// The first `set` of each object.
struct Sets<'a> {
    program: &'a Program,
}

impl Sets<'_> {
    /// Which rule a `set` breaks after one of another object.
    fn beside(&self, storage: &Storage, first: &Seen, call: &Call) -> Option<usize> {
        let [one, other] = [first.object, call.object].map(|id| &self.program.externs[id.index()]);
        if !waits(one) || !waits(other) {
            return Some(SECOND_SET);
        }
        let fields = picks(self.program, one);
        if fields.is_none() || fields != picks(self.program, other) {
            return Some(GROUP_SHARD);
        }
        let count = member(one, 3) as usize;
        storage.strays_within(first, call, count).then_some(GROUP_KEY)
    }
}

impl Question for Sets<'_> {
    fn judge(
        &self,
        storage: &Storage,
        seen: &[Seen],
        call: &Call,
    ) -> Vec<(&'static Rule, Verdict)> {
        if call.method != "set" || !is_flow(&self.program.externs[call.object.index()]) {
            return Vec::new();
        }
        let mut broken: Vec<(&'static Rule, Verdict)> = Vec::new();
        for first in seen {
            let rule = match first.object == call.object {
                true => storage.strays(first, call).then_some(SECOND_SET),
                false => self.beside(storage, first, call),
            };
            broken.extend(rule.map(|rule| (&RULES[rule], verdict(true, Some(first)))));
        }
        broken.truncate(1);
        broken
    }

    fn remembers(&self, seen: &[Seen], call: &Call) -> bool {
        call.method == "set" && seen.iter().all(|first| first.object != call.object)
    }
}

/// The first `set` of each LINEARIZABLE object.
struct Together<'a> {
    program: &'a Program,
}

impl Question for Together<'_> {
    fn judge(&self, _: &Storage, seen: &[Seen], call: &Call) -> Vec<(&'static Rule, Verdict)> {
        let is = call.method == "set" && waits(&self.program.externs[call.object.index()]);
        let other = seen.iter().find(|first| first.object != call.object);
        vec![(&TOGETHER, verdict(is && other.is_some(), other))]
    }

    fn remembers(&self, seen: &[Seen], call: &Call) -> bool {
        call.method == "set"
            && waits(&self.program.externs[call.object.index()])
            && seen.iter().all(|first| first.object != call.object)
    }
}

/// The first access to a SnapshotState, in whichever object. (`is_overdue` waits for nothing, and
/// changes nothing.)
struct Snapshots<'a> {
    program: &'a Program,
}

impl Question for Snapshots<'_> {
    fn judge(
        &self,
        storage: &Storage,
        seen: &[Seen],
        call: &Call,
    ) -> Vec<(&'static Rule, Verdict)> {
        let object = &self.program.externs[call.object.index()];
        let (rule, broken) = match (is_flow(object), call.method) {
            (false, "is_overdue") => return Vec::new(),
            (false, _) => {
                (&RULES[SECOND_KEY], seen.first().is_some_and(|seen| storage.strays(seen, call)))
            }
            (true, "set") => (&RULES[FLOW_AFTER_SNAPSHOT], !seen.is_empty()),
            (true, method) if is_lookup(method) && is_in_store(object) => {
                (&RULES[FLOW_AFTER_SNAPSHOT], !seen.is_empty())
            }
            _ => return Vec::new(),
        };
        vec![(rule, verdict(broken, seen.first()))]
    }

    fn remembers(&self, seen: &[Seen], call: &Call) -> bool {
        let object = &self.program.externs[call.object.index()];
        !is_flow(object) && call.method != "is_overdue" && seen.is_empty()
    }
}

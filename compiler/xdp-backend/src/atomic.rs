//! `@atomic`: which registers share a lock, and what runs while it is held.
//!
//! All registers of a block have one lock. It is taken for the statements from the block's first
//! access to a register to its last, or in the branches of an `if` that has all of them; every
//! other access to one of these registers takes it, too. The kernel lets a program hold one lock
//! at a time, and call nothing meanwhile: elements are looked up before.

use crate::generator::Generator;
use crate::layout::scalar_width;
use crate::updates::{Updates, Values, may_reject, register_of, same};
use crate::walk::{self, Visitor};
use p4_ir::effects::{self, Then};
use p4_ir::{Argument, Expr, ExternId, LabelId, Location, Program, Statement, StatementKind};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The lock of each register that has one.
#[derive(Default, Debug)]
pub(crate) struct Locks {
    of: HashMap<ExternId, u32>,
    /// How many there are.
    pub count: u32,
}

impl Locks {
    pub(crate) fn new(program: &Program, updates: &Updates) -> Locks {
        struct Blocks<'a>(&'a Program, &'a Updates, Vec<BTreeSet<ExternId>>);
        impl Visitor for Blocks<'_> {
            fn statement(&mut self, statement: &Statement) {
                if let StatementKind::Block { body, atomic: true, .. } = &statement.kind {
                    let accesses = accesses(self.0, self.1, body);
                    if accesses.len() > 1 {
                        self.2.push(accesses.into_iter().collect());
                    }
                }
            }
        }
        let mut blocks = Blocks(program, updates, Vec::new());
        walk::program(program, &mut blocks);
        // No instruction changes more than 64 bits at once.
        let wide = (0..program.externs.len() as u32).map(ExternId).filter(|id| {
            let ty = program.externs[id.index()].type_arguments.first();
            updates.has(*id) && ty.and_then(scalar_width).is_some_and(|width| width > 64)
        });
        let mut groups: Vec<BTreeSet<ExternId>> = Vec::new();
        for mut group in blocks.2.into_iter().chain(wide.map(|id| BTreeSet::from([id]))) {
            let (joined, rest) = groups.into_iter().partition(|other| !other.is_disjoint(&group));
            groups = rest;
            group.extend(Vec::into_iter(joined).flatten());
            groups.push(group);
        }
        let numbered = groups
            .iter()
            .zip(0..)
            .flat_map(|(group, lock)| group.iter().map(move |id| (*id, lock)));
        Locks { of: numbered.collect(), count: groups.len() as u32 }
    }

    pub(crate) fn of(&self, register: ExternId) -> Option<u32> {
        self.of.get(&register).copied()
    }
}

/// A lock that is held where C is being emitted.
pub(crate) struct Held {
    /// C: the lock.
    lock: String,
    /// C of the element that an index (by its address) stands for.
    elements: HashMap<usize, String>,
    /// Blocks that end before the lock is released.
    labels: HashSet<LabelId>,
}

impl Held {
    pub(crate) fn element(&self, index: &Expr) -> Option<&String> {
        self.elements.get(&address(index))
    }

    /// C that a jump needs before it; None: to the end of the control.
    pub(crate) fn before_jump(&self, label: Option<LabelId>) -> Option<String> {
        let stays = label.is_some_and(|label| self.labels.contains(&label));
        (!stays).then(|| release(&self.lock))
    }
}

fn release(lock: &str) -> String {
    format!("bpf_spin_unlock(&{lock}->lock);")
}

fn address(expr: &Expr) -> usize {
    std::ptr::from_ref(expr) as usize
}

/// The registers that statements access, one for each access.
fn accesses(program: &Program, updates: &Updates, body: &[Statement]) -> Vec<ExternId> {
    struct Accesses<'a>(&'a Program, &'a Updates, Vec<ExternId>);
    impl Visitor for Accesses<'_> {
        fn statement(&mut self, statement: &Statement) {
            if !self.1.is_done(statement) {
                self.2.extend(register_of(self.0, statement));
            }
        }
    }
    let mut found = Accesses(program, updates, Vec::new());
    body.iter().for_each(|statement| walk::statement(statement, &mut found));
    found.2
}

/// What an access to a register takes its element by.
fn index_of(statement: &Statement) -> Option<&Expr> {
    match &statement.kind {
        StatementKind::Extern { name, arguments, .. } => {
            match (name.as_str(), arguments.as_slice()) {
                ("read", [_, Argument::In(index)]) | ("write", [Argument::In(index), _]) => {
                    Some(index)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// An access under the lock: the index where it stands, and its value where the lock is taken.
struct Access {
    at: usize,
    register: ExternId,
    index: Option<Expr>,
    location: Location,
}

/// All accesses of statements, in order.
fn indices(
    values: &mut Values<'_>,
    updates: &Updates,
    body: &[Statement],
    always: bool,
    found: &mut Vec<Access>,
) {
    for statement in body {
        match &statement.kind {
            StatementKind::If { then, otherwise, .. } => {
                indices(values, updates, then, false, found);
                indices(values, updates, otherwise, false, found);
            }
            StatementKind::Switch { cases, default, .. } => {
                cases.iter().for_each(|(_, body)| indices(values, updates, body, false, found));
                indices(values, updates, default, false, found);
            }
            // With a label, some of it may be left out.
            StatementKind::Block { label, body, .. } => {
                indices(values, updates, body, always && label.is_none(), found);
            }
            StatementKind::Extern { arguments, .. } => {
                if let (Some(register), Some(index)) =
                    (register_of(values.program(), statement), index_of(statement))
                    && !updates.is_done(statement)
                {
                    let value = values.at_start(index);
                    found.push(Access {
                        at: address(index),
                        register,
                        index: value,
                        location: index.location,
                    });
                }
                for argument in arguments {
                    if let Argument::Out(target) | Argument::InOut(target) = argument {
                        values.forget(target);
                    }
                }
            }
            _ => {
                // What else it may do is refused.
                let _ = values.run(statement, always);
            }
        }
    }
}

impl Generator<'_> {
    /// A block that is `@atomic`.
    pub(crate) fn atomic_block(&mut self, body: &[Statement]) {
        self.refuse_shared(body);
        self.atomic_part(body);
    }

    /// What has no place in an `@atomic` block at all.
    fn refuse_shared(&mut self, body: &[Statement]) {
        struct Shared<'a>(&'a Program, Vec<(Location, String, &'static str)>);
        impl Visitor for Shared<'_> {
            fn statement(&mut self, statement: &Statement) {
                match &statement.kind {
                    StatementKind::Apply { table, .. } => self.1.push((
                        statement.location,
                        format!(
                            "table {} is applied in @atomic code",
                            self.0.tables[table.index()].name
                        ),
                        "no lock can be held while a table is looked up: apply the table before or \
                         after the block, and keep the results in variables",
                    )),
                    StatementKind::Extern { instance: Some(id), .. } => {
                        let instance = &self.0.externs[id.index()];
                        if !effects::is_plain_object(&instance.extern_type) {
                            self.1.push((
                                statement.location,
                                format!("{} {} is used in @atomic code", instance.extern_type, instance.name),
                                "each of its updates is atomic, but the registers' lock does not cover it: use it \
                                 before or after the block",
                            ));
                        }
                    }
                    _ => {}
                }
            }
        }
        let mut shared = Shared(self.program, Vec::new());
        body.iter().for_each(|statement| walk::statement(statement, &mut shared));
        shared
            .1
            .iter()
            .for_each(|(location, message, help)| self.error(*location, message, Some(help)));
    }

    /// Statements whose accesses to registers must happen at once.
    pub(crate) fn atomic_part(&mut self, body: &[Statement]) {
        let count = |statement: &Statement| {
            accesses(self.program, &self.updates, std::slice::from_ref(statement)).len()
        };
        let counts: Vec<usize> = body.iter().map(count).collect();
        let first = counts.iter().position(|count| *count > 0);
        let last = counts.iter().rposition(|count| *count > 0);
        let (Some(first), Some(last)) = (first, last) else { return self.block(body) };
        // One access is whole by itself.
        if counts.iter().sum::<usize>() == 1 {
            return self.block(body);
        }
        self.block(&body[..first]);
        let inside =
            matches!(body[first].kind, StatementKind::If { .. } | StatementKind::Block { .. });
        if first == last && inside {
            self.statement(&body[first], true);
        } else {
            self.under_lock(&body[first..=last]);
        }
        self.block(&body[last + 1..]);
    }

    fn under_lock(&mut self, body: &[Statement]) {
        let mut found = Vec::new();
        indices(&mut Values::new(self.program, None), &self.updates, body, true, &mut found);
        let refused = self.refuse_calls(body);
        let unknown: Vec<&Access> = found.iter().filter(|access| access.index.is_none()).collect();
        for access in &unknown {
            let name = &self.program.externs[access.register.index()].name;
            self.error(
                access.location,
                &format!("the index of register {name} is not known where the @atomic block's lock is taken"),
                Some(
                    "the lock is taken at the block's first access to a register, and all elements \
                     are looked up before that: compute the index before the block, not from \
                     values that the block reads",
                ),
            );
        }
        // A register has no lock only if what is wrong with it has been reported.
        let lock = found.first().and_then(|access| self.locks.of(access.register));
        let (Some(lock), false, true) = (lock, refused, unknown.is_empty()) else { return };
        self.open("");
        let mut known: Vec<(ExternId, Expr, String)> = Vec::new();
        let mut elements = HashMap::new();
        for Access { at, register, index, .. } in found {
            let Some(index) = index else { continue };
            let before = known.iter().find(|(id, other, _)| *id == register && same(other, &index));
            let name = match before {
                Some((_, _, name)) => name.clone(),
                None => {
                    let name = self.look_up(register, &index);
                    known.push((register, index, name.clone()));
                    name
                }
            };
            elements.insert(at, name);
        }
        let key = self.temporary("__u32", &lock.to_string());
        let lock =
            self.temporary("struct sp_lock *", &format!("bpf_map_lookup_elem(&sp_locks, &{key})"));
        self.out.line(format!("if (!{lock}) return XDP_ABORTED;"));
        self.out.line(format!("bpf_spin_lock(&{lock}->lock);"));
        let freed = release(&lock);
        self.held = Some(Held { lock, elements, labels: labels(body) });
        self.block(body);
        self.held = None;
        self.out.line(freed);
        self.out.line("}");
    }

    /// Calls of the kernel, and what may end the parser: not while a lock is held.
    fn refuse_calls(&mut self, body: &[Statement]) -> bool {
        struct Calls<'a>(&'a Program, Vec<(Location, String)>);
        impl Visitor for Calls<'_> {
            fn statement(&mut self, statement: &Statement) {
                let what = match &statement.kind {
                    // Has been refused.
                    StatementKind::Apply { .. } => return,
                    StatementKind::Extern { instance: Some(id), name, .. } => {
                        let instance = &self.0.externs[id.index()];
                        match instance.extern_type.as_str() {
                            "counter" | "direct_counter" => format!("{}.{name}", instance.name),
                            _ => return,
                        }
                    }
                    StatementKind::Extern { instance: None, name, .. } => {
                        // A packet whose way ends here would keep the lock.
                        match effects::function(name) {
                            Some(function)
                                if function.then == Then::GoesOn && !function.calls_kernel =>
                            {
                                return;
                            }
                            _ => name.to_string(),
                        }
                    }
                    StatementKind::Extract { .. } => "extract".into(),
                    StatementKind::Skip(_) | StatementKind::Advance(_) => "advance".into(),
                    StatementKind::Verify(..) => "verify".into(),
                    StatementKind::Emit(_) => "emit".into(),
                    _ if may_reject(statement) => "a stack's next or last, or lookahead,".into(),
                    _ => return,
                };
                self.1.push((statement.location, what));
            }
        }
        let mut calls = Calls(self.program, Vec::new());
        body.iter().for_each(|statement| walk::statement(statement, &mut calls));
        for (location, what) in &calls.1 {
            self.error(
                *location,
                &format!("{what} stands between an @atomic block's accesses to registers"),
                Some(
                    "the accesses happen under a lock, and the kernel allows no calls while a lock \
                     is held: move this before the first access or behind the last one",
                ),
            );
        }
        !calls.1.is_empty()
    }
}

/// Labels of blocks in statements.
fn labels(body: &[Statement]) -> HashSet<LabelId> {
    struct Labels(HashSet<LabelId>);
    impl Visitor for Labels {
        fn statement(&mut self, statement: &Statement) {
            if let StatementKind::Block { label: Some(label), .. } = &statement.kind {
                self.0.insert(*label);
            }
        }
    }
    let mut labels = Labels(HashSet::new());
    body.iter().for_each(|statement| walk::statement(statement, &mut labels));
    labels.0
}

//! What holds on every run of the program: which header fields may change, whether the layout of
//! the packet may, where headers stand.

use crate::layout::header_bits;
use crate::mutations::{Mutation, planted};
use crate::walk::{self, Visitor};
use p4_ir::effects;
use p4_ir::{
    Argument, Block, Expr, ExprKind, HeaderTypeId, Program, Statement, StatementKind, Type,
};
use std::collections::{HashMap, HashSet};

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct Facts {
    /// (header key, field) that some statement assigns.
    dirty_fields: HashSet<(String, u32)>,
    /// Keys (of headers, structs, stacks, unions) that are assigned as a whole.
    dirty: HashSet<String>,
    /// Keys whose validity, or length, changes other than by extraction.
    moved: HashSet<String>,
    /// The packet leaves with the headers that it came with, in the same places.
    pub same_layout: bool,
    /// Byte offset of headers that are always extracted at the same place.
    pub offsets: HashMap<String, u32>,
    /// How many parser states behind `start` a header is first extracted.
    pub depths: HashMap<String, u32>,
    /// Fields of standard_metadata that are read.
    pub standard_reads: HashSet<String>,
    /// Fields of standard_metadata that the program writes, by their names or with the whole of it.
    pub standard_writes: HashSet<String>,
    /// `exit` or `return` stands in the deparser.
    pub leaves_deparser: bool,
    /// Parser states that a loop leads back to.
    pub loop_heads: HashSet<u32>,
    /// Whether each parser state lies on a cycle.
    pub on_cycles: Vec<bool>,
    /// Ways from `start` to the parser's end; a loop counts as one round.
    pub parser_paths: u64,
    /// Some packet may go up to the kernel by `to_host`.
    pub uses_to_host: bool,
    /// Keys of varbit fields that some expression reads: (header key, field).
    varbit_reads: HashSet<(String, u32)>,
    /// (header key, field) that some expression reads.
    field_reads: HashSet<(String, u32)>,
    /// Keys of headers, structs, stacks and unions that are read as a whole.
    whole_reads: HashSet<String>,
}

/// Names the storage behind an l-value.
pub(crate) fn key(target: &Expr) -> Option<String> {
    match &target.kind {
        ExprKind::Var(id) => Some(format!("v{}", id.0)),
        ExprKind::Field(base, index) => Some(format!("{}.{index}", key(base)?)),
        ExprKind::Index(base, _) | ExprKind::StackNext(base) | ExprKind::StackLast(base) => {
            key(base)
        }
        _ => None,
    }
}

impl Facts {
    pub(crate) fn new(program: &Program) -> Facts {
        let mut facts = Facts::default();
        walk::program(
            program,
            &mut Collector {
                facts: &mut facts,
                program,
                parts: HashSet::new(),
                marked: HashSet::new(),
            },
        );
        find_loops(program, &mut facts);
        facts.on_cycles = program.parser.states_on_cycles();
        facts.parser_paths = count_paths(program);
        find_offsets(program, &mut facts);
        find_depths(program, &mut facts);
        facts.same_layout = same_layout(program, &facts);
        facts.leaves_deparser = leaves(program, &program.deparser.body);
        facts
    }

    /// May the field differ from what was in the packet?
    pub(crate) fn is_dirty(&self, header: &str, field: u32) -> bool {
        self.dirty_fields.contains(&(header.to_string(), field)) || has_prefix(&self.dirty, header)
    }

    /// Does an expression read the varbit field, by itself or with all of its header?
    pub(crate) fn reads_varbit(&self, header: &str, field: u32) -> bool {
        let whole = has_prefix(&self.whole_reads, header) && !planted(Mutation::VarbitNotTaken);
        whole || self.varbit_reads.contains(&(header.to_string(), field))
    }

    /// Which fields of a header must be kept beside the packet: those that are read, and those that
    /// are written back. The others stay in the packet only, if its layout stays.
    pub(crate) fn kept_fields(
        &self,
        program: &Program,
        header: &str,
        ty: HeaderTypeId,
    ) -> Vec<bool> {
        let fields = &program.header_types[ty.index()].fields;
        if !self.same_layout
            || has_prefix(&self.whole_reads, header)
            || has_prefix(&self.dirty, header)
        {
            return vec![true; fields.len()];
        }
        let mut kept: Vec<bool> = (0..fields.len() as u32)
            .map(|field| {
                self.field_reads.contains(&(header.to_string(), field))
                    || self.is_dirty(header, field)
            })
            .collect();
        // Written back are runs of whole bytes (packet.rs): a dirty field takes those along that
        // share its bytes.
        let mut run = 0..0;
        let mut bits = 0;
        for (index, field) in fields.iter().enumerate() {
            if bits % 8 == 0 {
                run.start = index;
            }
            run.end = index + 1;
            bits += crate::layout::scalar_width(&field.ty).unwrap_or(0);
            if bits % 8 == 0 && run.clone().any(|member| self.is_dirty(header, member as u32)) {
                kept[run.clone()].fill(true);
            }
        }
        kept
    }

    /// Must it be remembered where the header lies in the packet?
    pub(crate) fn needs_offset(&self, program: &Program, header: &str, ty: HeaderTypeId) -> bool {
        let fields = program.header_types[ty.index()].fields.len() as u32;
        !self.same_layout
            || (!self.offsets.contains_key(header)
                && (0..fields).any(|field| self.is_dirty(header, field)))
    }

    /// May the header's validity or length change after parsing?
    pub(crate) fn is_moved(&self, header: &str) -> bool {
        has_prefix(&self.moved, header) || has_prefix(&self.dirty, header)
    }
}

/// Is `key`, or something that contains it, in the set?
fn has_prefix(set: &HashSet<String>, key: &str) -> bool {
    set.contains(key) || key.match_indices('.').any(|(at, _)| set.contains(&key[..at]))
}

struct Collector<'a> {
    facts: &'a mut Facts,
    program: &'a Program,
    /// Addresses of expressions that are read in part only: `h` in `h.f` and `h.isValid()`.
    parts: HashSet<usize>,
    /// Addresses of arguments of `mark_to_drop`, which writes two fields only.
    marked: HashSet<usize>,
}

impl Collector<'_> {
    fn read_part(&mut self, expr: &Expr) {
        self.parts.insert(std::ptr::from_ref(expr) as usize);
    }

    /// The name of a field of standard_metadata.
    fn standard_field(&self, expr: &Expr) -> Option<&str> {
        let ExprKind::Field(base, index) = &expr.kind else { return None };
        match (&base.kind, &base.ty) {
            (ExprKind::Var(id), Type::Struct(ty)) if *id == self.program.standard_metadata => {
                Some(&self.program.struct_types[ty.index()].fields.get(*index as usize)?.name)
            }
            _ => None,
        }
    }

    /// A member of a header union that becomes valid makes the others invalid, emitted with it or
    /// not.
    fn note_rivals(&mut self, header: &Expr) {
        if let ExprKind::Field(union, _) = &header.kind
            && matches!(union.ty, Type::Union(_))
        {
            self.facts.moved.extend(key(union));
        }
    }

    /// What an expression reads of headers, and how much of them.
    fn note_extent(&mut self, expr: &Expr) {
        let part = self.parts.remove(&(std::ptr::from_ref(expr) as usize));
        match &expr.kind {
            ExprKind::Field(base, index) => {
                if key(base).is_some() {
                    self.read_part(base);
                }
                if matches!(base.ty, Type::Header(_))
                    && let Some(header) = key(base)
                {
                    self.facts.field_reads.insert((header, *index));
                }
            }
            ExprKind::IsValid(base) | ExprKind::StackLastIndex(base) => self.read_part(base),
            ExprKind::Index(base, _) | ExprKind::StackNext(base) | ExprKind::StackLast(base) => {
                self.read_part(base)
            }
            _ => {}
        }
        if !part && !is_plain(&expr.ty) {
            self.facts.whole_reads.extend(key(expr));
            if let (ExprKind::Var(id), Type::Struct(ty)) = (&expr.kind, &expr.ty)
                && *id == self.program.standard_metadata
            {
                let fields = &self.program.struct_types[ty.index()].fields;
                self.facts.standard_reads.extend(fields.iter().map(|field| field.name.clone()));
            }
        }
    }
}

impl Visitor for Collector<'_> {
    fn statement(&mut self, statement: &Statement) {
        match &statement.kind {
            StatementKind::SetValid(header, _) => {
                self.facts.moved.extend(key(header));
                self.note_rivals(header);
            }
            StatementKind::PushFront(stack, _) | StatementKind::PopFront(stack, _)
                if !planted(Mutation::ElementPlacesKept) =>
            {
                self.facts.dirty.extend(key(stack));
            }
            StatementKind::Extern { instance: None, name, .. } if effects::is_to_host(name) => {
                self.facts.uses_to_host = true
            }
            // It sets fields of standard_metadata and reads none: a read of them all would mean
            // calls for the time in every packet.
            StatementKind::Extern { instance: None, name, arguments, .. }
                if effects::marks_to_drop(name) =>
            {
                for argument in arguments {
                    if let Argument::InOut(value) = argument {
                        self.read_part(value);
                        self.marked.insert(std::ptr::from_ref(value) as usize);
                    }
                }
            }
            StatementKind::Emit(header) => self.read_part(header),
            _ => {}
        }
    }

    fn read(&mut self, expr: &Expr) {
        self.note_extent(expr);
        if let Some(name) = self.standard_field(expr) {
            self.facts.standard_reads.insert(name.to_string());
        }
        if let ExprKind::Field(base, index) = &expr.kind
            && matches!(expr.ty, Type::Varbit { .. })
            && let Some(header) = key(base)
        {
            self.facts.varbit_reads.insert((header, *index));
        }
    }

    fn write(&mut self, target: &Expr, _value: Option<&Expr>) {
        let target = walk::unsliced(target);
        if let Some(name) = self.standard_field(target) {
            self.facts.standard_writes.insert(name.to_string());
        }
        if let (ExprKind::Var(id), Type::Struct(ty)) = (&target.kind, &target.ty)
            && *id == self.program.standard_metadata
            && !self.marked.remove(&(std::ptr::from_ref(target) as usize))
        {
            let fields = &self.program.struct_types[ty.index()].fields;
            self.facts.standard_writes.extend(fields.iter().map(|field| field.name.clone()));
        }
        if let ExprKind::Field(base, index) = &target.kind
            && matches!(base.ty, Type::Header(_))
        {
            if let Some(header) = key(base) {
                // A varbit field may get another length: what is behind it moves.
                if matches!(target.ty, Type::Varbit { .. }) {
                    self.facts.moved.insert(header.clone());
                }
                self.facts.dirty_fields.insert((header, *index));
            }
        } else if !is_plain(&target.ty) {
            self.facts.dirty.extend(key(target));
            self.note_rivals(target);
        }
    }
}

fn is_plain(ty: &Type) -> bool {
    crate::layout::scalar_width(ty).is_some()
}

/// Whether the block, or an action of a table that it applies, exits or returns.
fn leaves(program: &Program, body: &Block) -> bool {
    struct Finder<'a>(&'a Program, bool);
    impl Visitor for Finder<'_> {
        fn statement(&mut self, statement: &Statement) {
            match &statement.kind {
                StatementKind::Exit | StatementKind::Return => self.1 = true,
                StatementKind::Apply { table, .. } => {
                    for action in &self.0.tables[table.index()].actions {
                        walk::block(&self.0.actions[action.action.index()].body, self);
                    }
                }
                _ => {}
            }
        }
    }
    let mut finder = Finder(program, false);
    walk::block(body, &mut finder);
    finder.1
}

/// Breadth-first from `start`.
fn find_depths(program: &Program, facts: &mut Facts) {
    struct Extractions<'a>(&'a mut HashMap<String, u32>, u32);
    impl Visitor for Extractions<'_> {
        fn statement(&mut self, statement: &Statement) {
            if let StatementKind::Extract { header, .. } = &statement.kind
                && let Some(name) = key(header)
            {
                self.0.entry(name).or_insert(self.1);
            }
        }
    }
    let states = &program.parser.states;
    let mut seen = vec![false; states.len()];
    let mut level: Vec<u32> = if states.is_empty() { Vec::new() } else { vec![0] };
    let mut depth = 0;
    while !level.is_empty() {
        let mut next = Vec::new();
        for state in level {
            if !std::mem::replace(&mut seen[state as usize], true) {
                walk::block(
                    &states[state as usize].body,
                    &mut Extractions(&mut facts.depths, depth),
                );
                next.extend(states[state as usize].transition.states());
            }
        }
        level = next;
        depth += 1;
    }
}

/// Depth-first: an edge to a state on the path closes a loop.
fn find_loops(program: &Program, facts: &mut Facts) {
    let states = &program.parser.states;
    let mut colour = vec![0u8; states.len()];
    // (state, its targets, next one to follow): an explicit stack, since programs may be long
    // chains.
    let mut path: Vec<(u32, Vec<u32>)> = Vec::new();
    if !states.is_empty() {
        colour[0] = 1;
        path.push((0, states[0].transition.states()));
    }
    while let Some((state, rest)) = path.last_mut() {
        if let Some(next) = rest.pop() {
            match colour.get(next as usize) {
                Some(0) => {
                    colour[next as usize] = 1;
                    path.push((next, states[next as usize].transition.states()));
                }
                Some(1) => {
                    facts.loop_heads.insert(next);
                }
                _ => {}
            }
        } else {
            colour[*state as usize] = 2;
            path.pop();
        }
    }
}

/// Ways through the parser, by depth-first search; edges that close a loop do not count.
fn count_paths(program: &Program) -> u64 {
    let states = &program.parser.states;
    // None: not seen; Some(0): on the path.
    let mut ways: Vec<Option<u64>> = vec![None; states.len()];
    let mut path: Vec<usize> = if states.is_empty() { Vec::new() } else { vec![0] };
    while let Some(&state) = path.last() {
        let next = states[state].transition.states();
        if ways[state].is_none() {
            ways[state] = Some(0);
        }
        if let Some(unseen) = next
            .iter()
            .map(|next| *next as usize)
            .find(|next| matches!(ways.get(*next), Some(None)))
        {
            path.push(unseen);
            continue;
        }
        let sum = next
            .iter()
            .fold(1u64, |sum, next| sum.saturating_add(ways[*next as usize].unwrap_or(0)));
        ways[state] = Some(sum);
        path.pop();
    }
    ways.first().copied().flatten().unwrap_or(0)
}

/// A static offset: none seen, one, or several.
#[derive(Clone, Copy, PartialEq)]
enum Offset {
    At(u32),
    Varies,
}

impl Offset {
    fn join(self, other: Offset) -> Offset {
        if self == other { self } else { Offset::Varies }
    }
    fn plus(self, bytes: Option<u32>) -> Offset {
        match (self, bytes) {
            (Offset::At(at), Some(bytes)) => Offset::At(at + bytes),
            _ => Offset::Varies,
        }
    }
}

/// Runs the extractions of a block over the cursor.
fn run_block(
    program: &Program,
    body: &Block,
    mut at: Offset,
    seen: &mut HashMap<String, Offset>,
) -> Offset {
    for statement in body {
        match &statement.kind {
            StatementKind::Extract { header, .. } => {
                let Type::Header(id) = header.ty else { continue };
                if let Some(name) = key(header) {
                    // Elements of a stack share a key: never static.
                    let here =
                        if matches!(header.kind, ExprKind::StackNext(_) | ExprKind::Index(..)) {
                            Offset::Varies
                        } else {
                            at
                        };
                    let joined = seen.get(&name).map_or(here, |before| before.join(here));
                    seen.insert(name, joined);
                }
                let (fixed, varbit) = header_bits(program, id);
                at = at.plus(varbit.is_none().then_some(fixed / 8));
            }
            StatementKind::Skip(bits) => at = at.plus(Some(bits / 8)),
            StatementKind::Advance(_) => at = Offset::Varies,
            StatementKind::Block { body, .. } => at = run_block(program, body, at, seen),
            StatementKind::If { then, otherwise, .. } => {
                let one = run_block(program, then, at, seen);
                at = run_block(program, otherwise, at, seen).join(one);
            }
            StatementKind::Switch { cases, default, .. } => {
                let mut joined = run_block(program, default, at, seen);
                for (_, body) in cases {
                    joined = joined.join(run_block(program, body, at, seen));
                }
                at = joined;
            }
            _ => {}
        }
    }
    at
}

fn find_offsets(program: &Program, facts: &mut Facts) {
    let states = &program.parser.states;
    let mut entry: HashMap<u32, Offset> = HashMap::new();
    let mut seen = HashMap::new();
    let mut work = Vec::new();
    let start = run_block(program, &program.parser.prologue, Offset::At(0), &mut seen);
    if !states.is_empty() {
        entry.insert(0, start);
        work.push(0u32);
    }
    // Each state's entry can only go unseen → one → varies, so this ends.
    while let Some(state) = work.pop() {
        let at = entry.get(&state).copied().unwrap_or(Offset::Varies);
        let after = run_block(program, &states[state as usize].body, at, &mut seen);
        for next in states[state as usize].transition.states() {
            let joined = entry.get(&next).map_or(after, |before| before.join(after));
            if entry.get(&next) != Some(&joined) {
                entry.insert(next, joined);
                work.push(next);
            }
        }
    }
    for (name, offset) in seen {
        if let Offset::At(bytes) = offset {
            facts.offsets.insert(name, bytes);
        }
    }
}

/// The headers that the deparser emits, by key, if it is a plain list of them.
fn emitted(program: &Program, body: &Block, keys: &mut Vec<String>) -> bool {
    body.iter().all(|statement| match &statement.kind {
        StatementKind::Emit(header) => match (key(header), &header.ty) {
            (Some(name), Type::Union(id)) => {
                keys.extend(
                    (0..program.union_types[id.index()].fields.len())
                        .map(|index| format!("{name}.{index}")),
                );
                true
            }
            (Some(name), _) => {
                keys.push(name);
                !matches!(header.kind, ExprKind::Index(..))
            }
            (None, _) => false,
        },
        StatementKind::Block { body, label: None, .. } => emitted(program, body, keys),
        StatementKind::Assign(..) => true,
        _ => false,
    })
}

/// Collects (before, after) pairs of headers that are extracted one after the other.
fn follow(
    body: &Block,
    mut last: HashSet<String>,
    pairs: &mut HashSet<(String, String)>,
    plain: &mut bool,
) -> HashSet<String> {
    for statement in body {
        match &statement.kind {
            StatementKind::Extract { header, .. } => {
                let Some(name) = key(header) else {
                    *plain = false;
                    continue;
                };
                let next = matches!(header.kind, ExprKind::StackNext(_));
                *plain &= !matches!(header.kind, ExprKind::Index(..) | ExprKind::StackLast(_));
                for before in &last {
                    // Elements of a stack come in order by themselves.
                    if !(next && *before == name) {
                        pairs.insert((before.clone(), name.clone()));
                    }
                }
                last = HashSet::from([name]);
            }
            StatementKind::Skip(_) | StatementKind::Advance(_) => *plain = false,
            StatementKind::Block { body, .. } => last = follow(body, last, pairs, plain),
            StatementKind::If { then, otherwise, .. } => {
                let mut both = follow(then, last.clone(), pairs, plain);
                both.extend(follow(otherwise, last, pairs, plain));
                last = both;
            }
            StatementKind::Switch { cases, default, .. } => {
                let mut all = follow(default, last.clone(), pairs, plain);
                for (_, body) in cases {
                    all.extend(follow(body, last.clone(), pairs, plain));
                }
                last = all;
            }
            _ => {}
        }
    }
    last
}

/// Is every packet emitted with the headers that were parsed, in the order in which they were
/// parsed?
fn same_layout(program: &Program, facts: &Facts) -> bool {
    let mut order = Vec::new();
    if !emitted(program, &program.deparser.body, &mut order) {
        return false;
    }
    let position: HashMap<&str, usize> =
        order.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
    if position.len() != order.len() || order.iter().any(|name| facts.is_moved(name)) {
        return false;
    }
    let mut pairs = HashSet::new();
    let mut plain = true;
    let states = &program.parser.states;
    let mut entry: Vec<HashSet<String>> = vec![HashSet::new(); states.len()];
    let mut visited = vec![false; states.len()];
    let first = follow(&program.parser.prologue, HashSet::new(), &mut pairs, &mut plain);
    let mut extracted: HashSet<String> = first.clone();
    let mut work = Vec::new();
    if !states.is_empty() {
        entry[0] = first;
        work.push(0usize);
    }
    while let Some(state) = work.pop() {
        visited[state] = true;
        let after = follow(&states[state].body, entry[state].clone(), &mut pairs, &mut plain);
        extracted.extend(after.iter().cloned());
        for next in states[state].transition.states() {
            let next = next as usize;
            let before = entry[next].len();
            entry[next].extend(after.iter().cloned());
            if !visited[next] || entry[next].len() > before {
                work.push(next);
            }
        }
    }
    for (before, after) in &pairs {
        extracted.insert(before.clone());
        extracted.insert(after.clone());
    }
    plain
        && !ousts(program, &pairs)
        && extracted.iter().all(|name| position.contains_key(name.as_str()))
        && pairs.iter().all(|(before, after)| {
            match (position.get(before.as_str()), position.get(after.as_str())) {
                (Some(first), Some(second)) => first < second,
                _ => false,
            }
        })
}

/// May a way through the parser extract two members of one header union? The second ousts the
/// first, which is then not emitted.
fn ousts(program: &Program, pairs: &HashSet<(String, String)>) -> bool {
    let mut unions = UnionMembers::default();
    walk::program(program, &mut unions);
    unions.members.iter().any(|(member, union)| {
        let (mut reached, mut work) = (HashSet::new(), vec![member.as_str()]);
        while let Some(from) = work.pop() {
            let next =
                pairs.iter().filter(|(before, _)| before == from).map(|(_, after)| after.as_str());
            work.extend(next.filter(|after| reached.insert(*after)));
        }
        reached.iter().any(|name| unions.members.get(*name) == Some(union))
    })
}

/// Members of header unions that are extracted, and their unions.
#[derive(Default)]
struct UnionMembers {
    members: HashMap<String, String>,
}

impl Visitor for UnionMembers {
    fn statement(&mut self, statement: &Statement) {
        if let StatementKind::Extract { header, .. } = &statement.kind
            && let ExprKind::Field(base, _) = &header.kind
            && matches!(base.ty, Type::Union(_))
            && let (Some(member), Some(union)) = (key(header), key(base))
        {
            self.members.insert(member, union);
        }
    }
}

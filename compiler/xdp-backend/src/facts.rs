//! What holds on every run of the program: which header fields may change, whether the layout of
//! the packet may, where headers stand.

mod layout;

use crate::layout::header_bits;
use crate::mutations::{Mutation, planted};
use crate::walk::{self, Visitor};
use layout::{find_offsets, same_layout};
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

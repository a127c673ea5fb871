//! Where P4 storage lives in C: every variable taken apart into scalars, headers, stacks and
//! unions.

use crate::Placement;
use crate::facts::Facts;
use p4_ir::{HeaderTypeId, Program, Scope, StructTypeId, Type, VariableId};
use std::collections::{HashMap, HashSet};

/// One scalar in C.
#[derive(Clone, Debug)]
pub(crate) struct Scalar {
    /// C l-value.
    pub c: String,
    /// In bits.
    pub width: u32,
    /// C condition under which it exists (an index in bounds); reads give 0 and writes vanish
    /// otherwise.
    pub guard: Option<String>,
}

/// One header in C.
#[derive(Clone, Debug)]
pub(crate) struct HeaderPlace {
    /// C l-value of the struct.
    pub c: String,
    /// C l-value of the byte offset in the packet that it was extracted at; empty if nobody asks
    /// for it.
    pub offset: String,
    /// Its type.
    pub ty: HeaderTypeId,
    /// As in [`Scalar::guard`].
    pub guard: Option<String>,
    /// Names the storage in the program's facts; all elements of a stack share one.
    pub key: String,
    /// The other members of the union that it belongs to, as C l-values.
    pub rivals: Vec<String>,
}

/// A header stack in C.
#[derive(Clone, Debug)]
pub(crate) struct StackPlace {
    /// C l-value of the array.
    pub c: String,
    /// C l-value of the next index.
    pub next: String,
    /// C l-value of the array of packet offsets.
    pub offsets: String,
    /// Type of the elements.
    pub ty: HeaderTypeId,
    /// Elements.
    pub size: u32,
    /// As in [`HeaderPlace::key`].
    pub key: String,
}

/// Storage of any type.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Scalar(Scalar),
    Varbit(Scalar),
    Header(HeaderPlace),
    Struct(StructTypeId, Vec<Place>),
    Stack(StackPlace),
    Union(Vec<Place>),
}

/// A C declaration.
pub(crate) struct Declaration {
    /// C type, without the array part.
    pub ty: String,
    pub name: String,
    /// `[4]` or nothing.
    pub array: String,
    /// In the per-CPU scratch map instead of on the stack.
    pub scratch: bool,
    /// What it starts as.
    pub initial: &'static str,
}

impl Declaration {
    /// Does it say where in the packet a header lies?
    pub(crate) fn is_offset(&self) -> bool {
        self.initial == "SP_NO_OFFSET"
    }
}

/// All storage of a program.
pub(crate) struct Layout {
    pub variables: HashMap<VariableId, Place>,
    pub declarations: Vec<Declaration>,
    /// Byte sizes (rounded up) of scalars wider than 128 bits: each has a struct type.
    pub wide: HashSet<u32>,
    /// Byte sizes of varbits: each has a struct type.
    pub varbits: HashSet<u32>,
    /// Struct types of headers in the scratch map that lack fields: name, header, which fields are
    /// there.
    pub kept_types: Vec<(String, HeaderTypeId, Vec<bool>)>,
    names: HashSet<String>,
}

/// How wide a scalar type is; None for others.
pub fn scalar_width(ty: &Type) -> Option<u32> {
    match ty {
        Type::Bits { width, .. } => Some(*width),
        Type::Bool => Some(1),
        Type::Error | Type::Enum(_) => Some(32),
        _ => None,
    }
}

/// The C type of a scalar.
pub(crate) fn c_type(width: u32) -> String {
    match width {
        0..=8 => "__u8".into(),
        9..=16 => "__u16".into(),
        17..=32 => "__u32".into(),
        33..=64 => "__u64".into(),
        65..=128 => "sp_u128".into(),
        _ => format!("struct sp_wide{}", width.div_ceil(8)),
    }
}

/// The characters of a P4 name that a C name may have; `_` for others.
fn c_characters(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

// P4's names must not meet C's keywords, the macros, types and functions of kernel headers, or
// those of the runtime. So: variables begin with `v_`, header types with `h_`, tables, actions and
// extern objects with `p4_` (names.rs in p4-check). Nothing else that is emitted or included begins
// so.

/// The C name of a P4 variable.
fn variable_name(name: &str) -> String {
    format!("v_{}", c_characters(name))
}

/// The tag of a header type's struct.
pub(crate) fn header_tag(name: &str) -> String {
    format!("h_{}", c_characters(name))
}

/// The name of a field as a struct member. Only keywords and macros can be in its way: all macros
/// of the headers have capitals or begin with `__`.
pub(crate) fn member_name(name: &str) -> String {
    const KEYWORDS: &[&str] = &[
        "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else",
        "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long", "register",
        "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef",
        "union", "unsigned", "void", "volatile", "while", "linux", "unix", "asm", "typeof", "bool",
        "true", "false",
    ];
    let safe = c_characters(name);
    let plain = safe.starts_with(|c: char| c.is_ascii_lowercase())
        && !safe.contains(|c: char| c.is_ascii_uppercase())
        && !["sp_", "f_"].iter().any(|taken| safe.starts_with(taken))
        && !KEYWORDS.contains(&safe.as_str());
    if plain { safe } else { format!("f_{safe}") }
}

/// What places are chosen by.
struct Context<'a> {
    program: &'a Program,
    facts: &'a Facts,
    placement: Placement,
}

impl Context<'_> {
    /// Is the header one of those that do not go into registers?
    fn is_deep(&self, key: &str) -> bool {
        match self.placement {
            Placement::Partial(most) => {
                self.facts.depths.get(key).is_none_or(|depth| *depth > most)
            }
            _ => false,
        }
    }
}

impl Layout {
    pub(crate) fn empty() -> Layout {
        Layout {
            variables: HashMap::new(),
            declarations: Vec::new(),
            wide: HashSet::new(),
            varbits: HashSet::new(),
            kept_types: Vec::new(),
            names: HashSet::new(),
        }
    }

    pub(crate) fn new(program: &Program, placement: Placement, facts: &Facts) -> Layout {
        let context = Context { program, facts, placement };
        let mut layout = Layout::empty();
        for (index, variable) in program.variables.iter().enumerate() {
            let id = VariableId(index as u32);
            // Intrinsic metadata is a few hot scalars: always in registers.
            let scratch = match placement {
                Placement::Registers | Placement::Partial(_) => false,
                Placement::Scratch => {
                    variable.scope == Scope::Pipeline && id != program.standard_metadata
                }
                Placement::AllScratch | Placement::Forgotten => true,
            };
            let all = matches!(placement, Placement::AllScratch | Placement::Forgotten);
            let whole = all || placement == Placement::Scratch;
            let scratch_headers = scratch || (whole && !is_scalar(&variable.ty));
            let place = layout.place(
                &context,
                &variable_name(&variable.name),
                &format!("v{index}"),
                &variable.ty,
                if id == program.standard_metadata { all } else { scratch_headers },
            );
            layout.variables.insert(id, place);
        }
        layout
    }

    /// Storage of this C type; what it is called in C.
    pub(crate) fn declare(
        &mut self,
        ty: String,
        wanted: &str,
        array: String,
        scratch: bool,
        initial: &'static str,
    ) -> String {
        let mut name = wanted.to_string();
        let mut number = 2;
        while !self.names.insert(name.clone()) {
            name = format!("{wanted}_{number}");
            number += 1;
        }
        let c = if scratch { format!("state->{name}") } else { name.clone() };
        self.declarations.push(Declaration { ty, name, array, scratch, initial });
        c
    }

    fn place(
        &mut self,
        context: &Context<'_>,
        name: &str,
        key: &str,
        ty: &Type,
        scratch: bool,
    ) -> Place {
        let Context { program, facts, .. } = *context;
        match ty {
            Type::Header(header) => {
                let scratch = scratch || context.is_deep(key);
                let ty = self.header_struct(context, key, *header, scratch);
                let c = self.declare(ty, name, String::new(), scratch, "{}");
                let offset = if facts.needs_offset(program, key, *header) {
                    self.declare(
                        "__u32".into(),
                        &format!("{name}_offset"),
                        String::new(),
                        scratch,
                        "SP_NO_OFFSET",
                    )
                } else {
                    String::new()
                };
                Place::Header(HeaderPlace {
                    c,
                    offset,
                    ty: *header,
                    guard: None,
                    key: key.into(),
                    rivals: Vec::new(),
                })
            }
            Type::Struct(id) => {
                let record = &program.struct_types[id.index()];
                let fields = record
                    .fields
                    .iter()
                    .enumerate()
                    .map(|(index, field)| {
                        let child = format!("{name}_{}", c_characters(&field.name));
                        self.place(context, &child, &format!("{key}.{index}"), &field.ty, scratch)
                    })
                    .collect();
                Place::Struct(*id, fields)
            }
            Type::Union(id) => {
                let record = &program.union_types[id.index()];
                let mut members: Vec<Place> = record
                    .fields
                    .iter()
                    .enumerate()
                    .map(|(index, field)| {
                        let child = format!("{name}_{}", c_characters(&field.name));
                        self.place(context, &child, &format!("{key}.{index}"), &field.ty, scratch)
                    })
                    .collect();
                let all: Vec<String> = members
                    .iter()
                    .filter_map(|member| {
                        if let Place::Header(header) = member {
                            Some(header.c.clone())
                        } else {
                            None
                        }
                    })
                    .collect();
                for member in &mut members {
                    if let Place::Header(header) = member {
                        header.rivals = all.iter().filter(|c| **c != header.c).cloned().collect();
                    }
                }
                Place::Union(members)
            }
            Type::Stack { header, size } => {
                let scratch = scratch || context.is_deep(key);
                let ty = self.header_struct(context, key, *header, scratch);
                let c = self.declare(ty, name, format!("[{size}]"), scratch, "{}");
                let next = self.declare(
                    "__u32".into(),
                    &format!("{name}_next"),
                    String::new(),
                    scratch,
                    "0",
                );
                let offsets = self.declare(
                    "__u32".into(),
                    &format!("{name}_offset"),
                    format!("[{size}]"),
                    scratch,
                    "SP_NO_OFFSET",
                );
                Place::Stack(StackPlace {
                    c,
                    next,
                    offsets,
                    ty: *header,
                    size: *size,
                    key: key.into(),
                })
            }
            Type::Varbit { max_width } => {
                let bytes = max_width.div_ceil(8);
                self.varbits.insert(bytes);
                let c = self.declare(
                    format!("struct sp_varbit{bytes}"),
                    name,
                    String::new(),
                    scratch,
                    "{}",
                );
                Place::Varbit(Scalar { c, width: *max_width, guard: None })
            }
            _ => {
                let width = scalar_width(ty).unwrap_or(32);
                if width > 128 {
                    self.wide.insert(width.div_ceil(8));
                }
                let initial = if width > 128 { "{}" } else { "0" };
                let c = self.declare(c_type(width), name, String::new(), scratch, initial);
                Place::Scalar(Scalar { c, width, guard: None })
            }
        }
    }

    /// The C type of a header. In the scratch map, where clang removes nothing, it has only the
    /// fields that are needed.
    fn header_struct(
        &mut self,
        context: &Context<'_>,
        key: &str,
        header: HeaderTypeId,
        scratch: bool,
    ) -> String {
        let Context { program, facts, .. } = *context;
        self.note_fields(program, header);
        let name = header_tag(&program.header_types[header.index()].name);
        let kept = facts.kept_fields(program, key, header);
        if !scratch || kept.iter().all(|kept| *kept) {
            return format!("struct {name}");
        }
        let name = format!("{name}__kept{}", self.kept_types.len());
        self.kept_types.push((name.clone(), header, kept));
        format!("struct {name}")
    }

    fn note_fields(&mut self, program: &Program, header: HeaderTypeId) {
        for field in &program.header_types[header.index()].fields {
            match &field.ty {
                Type::Varbit { max_width } => {
                    self.varbits.insert(max_width.div_ceil(8));
                }
                other => {
                    if let Some(width) = scalar_width(other).filter(|width| *width > 128) {
                        self.wide.insert(width.div_ceil(8));
                    }
                }
            }
        }
    }
}

fn is_scalar(ty: &Type) -> bool {
    scalar_width(ty).is_some()
}

/// A header's fixed bits, and its varbit's greatest width.
pub(crate) fn header_bits(program: &Program, header: HeaderTypeId) -> (u32, Option<u32>) {
    let mut fixed = 0;
    let mut varbit = None;
    for field in &program.header_types[header.index()].fields {
        match &field.ty {
            Type::Varbit { max_width } => varbit = Some(*max_width),
            other => fixed += scalar_width(other).unwrap_or(0),
        }
    }
    (fixed, varbit)
}

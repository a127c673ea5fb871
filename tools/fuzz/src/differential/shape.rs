//! What a program is made of: types, and what code can see.

use super::control::SubControl;
use super::standard::{self, Written};
use super::statement::{Array, Body, Function};
use super::types::{
    HeaderType, Named, Record, Ty, header_fields, record_leaves, record_paths, scalar,
};
use fuzz_door::StateObject;
use rand::Rng;
use rand::rngs::StdRng;

/// What a program has, besides text.
pub(super) struct Shape {
    pub prefix: String,
    pub header_types: Vec<HeaderType>,
    /// Structs of scalars and of each other.
    pub records: Vec<Record>,
    /// (path below `hdr`, index of the type); those of a struct inside the headers begin with
    /// `grp.`
    pub headers: Vec<(String, usize)>,
    pub stack: Option<(String, usize, u32)>,
    pub union: Option<Vec<(String, usize)>>,
    pub varbit: Option<usize>,
    /// A second header of that type, `vc`.
    pub varbit_twin: bool,
    pub meta: Vec<Named>,
    /// Structs in the metadata: (path, index of the record)
    pub nested: Vec<(String, usize)>,
    /// Bits of the wide member of the metadata.
    pub meta_wide: Option<u32>,
    pub functions: Vec<Function>,
    pub controls: Vec<SubControl>,
    /// The state object in its ingress.
    pub object: Option<Box<dyn StateObject>>,
    /// States of the parser may go back to any before them.
    pub loops: bool,
    /// Packets leave with the headers that they came with, in the same places.
    pub keeps_layout: bool,
    /// The fields of standard_metadata that the program writes.
    pub standard: Vec<Written>,
}

/// The structs in the headers that headers are in: (path below `hdr`, type's name after the
/// prefix), the inner one first.
const GROUPS: [(&str, &str); 2] = [("grp.inner", "inner_t"), ("grp", "grp_t")];

impl Shape {
    pub fn named(&self, path: &str, kind: usize) -> Vec<Named> {
        let fields = &self.header_types[kind].fields;
        fields.iter().map(|(name, ty)| Named { path: format!("{path}.{name}"), ty: *ty }).collect()
    }

    /// All headers without varbit, by path.
    pub fn all_headers(&self) -> Vec<(String, usize)> {
        let mut all: Vec<(String, usize)> =
            self.headers.iter().map(|(name, kind)| (format!("hdr.{name}"), *kind)).collect();
        if let Some((name, kind, size)) = &self.stack {
            all.extend((0..*size).map(|index| (format!("hdr.{name}[{index}]"), *kind)));
        }
        if let Some(members) = &self.union {
            all.extend(members.iter().map(|(name, kind)| (format!("hdr.un.{name}"), *kind)));
        }
        all
    }

    /// All headers with a varbit field, by path.
    pub fn varbits(&self) -> Vec<(String, usize)> {
        let paths = if self.varbit_twin { &["hdr.vb", "hdr.vc"][..] } else { &["hdr.vb"] };
        let all = self
            .varbit
            .iter()
            .flat_map(|kind| paths.iter().map(|path| ((*path).to_owned(), *kind)));
        all.collect()
    }

    /// Code that sees nothing but functions.
    pub fn bare<'a>(&'a self, random: &'a mut StdRng, standard: bool) -> Body<'a> {
        Body {
            random,
            header_types: &self.header_types,
            record_types: &self.records,
            readable: Vec::new(),
            writable: Vec::new(),
            headers: Vec::new(),
            varbits: Vec::new(),
            stacks: Vec::new(),
            records: Vec::new(),
            wides: Vec::new(),
            functions: self.functions.clone(),
            actions: Vec::new(),
            tables: Vec::new(),
            arrays: Vec::<Array>::new(),
            instances: Vec::new(),
            in_control: standard,
            standard: self.standard.clone(),
            keeps_layout: self.keeps_layout,
            may_exit: standard,
            lines: Vec::new(),
            indent: 2,
            locals: 0,
        }
    }

    /// Code that sees headers and metadata; with the intrinsic ones, if it is a control's.
    pub fn body<'a>(&'a self, random: &'a mut StdRng, standard: bool) -> Body<'a> {
        let mut body = self.bare(random, standard);
        body.see_headers(self.all_headers());
        body.varbits = self.varbits();
        for (path, kind) in self.varbits() {
            body.readable.extend(self.named(&path, kind));
        }
        body.readable.extend(self.meta.iter().cloned());
        for (path, kind) in &self.nested {
            body.readable.extend(record_leaves(&self.records, path, *kind));
            body.records.extend(record_paths(&self.records, path, *kind));
        }
        body.wides.extend(self.meta_wide.map(|width| ("meta.w0".to_owned(), width)));
        body.writable = body.readable.clone();
        if standard {
            for (name, width) in
                [("ingress_port", 9), ("packet_length", 32), ("egress_spec", 9), ("egress_port", 9)]
            {
                body.readable.push(Named { path: format!("sm.{name}"), ty: Ty::bits(width) });
            }
            // Several times, so that they are used.
            for _ in 0..3 {
                body.readable.extend(standard::named(&self.standard));
            }
        }
        body.stacks =
            self.stack.iter().map(|(name, kind, _)| (format!("hdr.{name}"), *kind)).collect();
        body
    }
}

/// Draws a program's types.
pub(super) fn shape(prefix: &str, random: &mut StdRng) -> Shape {
    let mut header_types: Vec<HeaderType> = (0..random.random_range(2..4))
        .map(|index| HeaderType {
            name: format!("{prefix}t{index}"),
            fields: header_fields(random),
            wide: random.random_bool(0.1).then(|| random.random_range(17..=32) * 8),
            varbit: None,
        })
        .collect();
    let plain = header_types.len();
    let mut headers: Vec<(String, usize)> = (0..random.random_range(1..4))
        .map(|i| (format!("h{i}"), random.random_range(0..plain)))
        .collect();
    if random.random_bool(0.25) {
        let paths: &[&str] =
            if random.random() { &["grp.x", "grp.inner.z"] } else { &["grp.x", "grp.y"] };
        headers
            .extend(paths.iter().map(|path| ((*path).to_owned(), random.random_range(0..plain))));
    }
    let stack = random
        .random_bool(0.35)
        .then(|| ("st".to_owned(), random.random_range(0..plain), random.random_range(2..4)));
    let union = random.random_bool(0.2).then(|| vec![("a".to_owned(), 0), ("b".to_owned(), 1)]);
    let varbit = random.random_bool(0.12).then(|| varbit_type(prefix, &mut header_types, random));
    let meta = (0..random.random_range(1..5))
        .map(|index| Named { path: format!("meta.m{index}"), ty: scalar(random) })
        .collect();
    let (records, nested) = records(prefix, random);
    let meta_wide =
        header_types.iter().find_map(|header| header.wide).filter(|_| random.random_bool(0.5));
    Shape {
        prefix: prefix.to_owned(),
        header_types,
        records,
        headers,
        stack,
        union,
        varbit,
        varbit_twin: false,
        meta,
        nested,
        meta_wide,
        functions: Vec::new(),
        controls: Vec::new(),
        object: None,
        loops: false,
        keeps_layout: false,
        standard: Vec::new(),
    }
}

/// Declares a header type with a varbit field; its index.
fn varbit_type(prefix: &str, header_types: &mut Vec<HeaderType>, random: &mut StdRng) -> usize {
    let length = [32, 64, 120][random.random_range(0..3)];
    let fields = vec![("f0".to_owned(), Ty::bits(3)), ("f1".to_owned(), Ty::bits(5))];
    let name = format!("{prefix}t{}", header_types.len());
    header_types.push(HeaderType { name, fields, wide: None, varbit: Some(length) });
    header_types.len() - 1
}

/// Makes a program one whose packets keep their layout, mostly with a header of variable length:
/// the compiler then leaves in the packet what it need not copy.
pub(super) fn keep_layout(shape: &mut Shape, random: &mut StdRng) {
    shape.keeps_layout = true;
    (shape.loops, shape.union) = (false, None);
    if shape.varbit.is_none() && random.random_bool(0.9) {
        shape.varbit = Some(varbit_type(&shape.prefix, &mut shape.header_types, random));
    }
}

/// Two types of structs, one inside the other, and the metadata's members of these.
fn records(prefix: &str, random: &mut StdRng) -> (Vec<Record>, Vec<(String, usize)>) {
    if random.random_bool(0.5) {
        return (Vec::new(), Vec::new());
    }
    let mut fields = |most: u32| {
        (0..random.random_range(1..most))
            .map(|index| (format!("f{index}"), scalar(random)))
            .collect::<Vec<_>>()
    };
    let inner = Record { name: format!("{prefix}n0"), fields: fields(4), inner: Vec::new() };
    let mut outer = Record {
        name: format!("{prefix}n1"),
        fields: fields(3),
        inner: vec![("deep".to_owned(), 0)],
    };
    if random.random_bool(0.3) {
        outer.inner.push(("more".to_owned(), 0));
    }
    let nested = (0..random.random_range(1..4))
        .map(|index| (format!("meta.g{index}"), random.random_range(0..2)));
    (vec![inner, outer], nested.collect())
}

/// The declarations of a program's types.
pub(super) fn declare_types(shape: &Shape, lines: &mut Vec<String>) {
    for header in &shape.header_types {
        lines.push(format!("header {} {{", header.name));
        lines.extend(header.fields.iter().map(|(name, ty)| format!("    {} {name};", ty.name())));
        lines.extend(header.wide.map(|width| format!("    bit<{width}> w;")));
        lines.extend(header.varbit.map(|most| format!("    varbit<{most}> v;")));
        lines.push("}".into());
    }
    let of_object = shape.object.iter().flat_map(|object| object.structs());
    let of_object =
        of_object.map(|one| Record { name: one.name, fields: one.fields, inner: Vec::new() });
    for record in shape.records.iter().cloned().chain(of_object) {
        lines.push(format!("struct {} {{", record.name));
        lines.extend(record.fields.iter().map(|(name, ty)| format!("    {} {name};", ty.name())));
        lines.extend(
            record
                .inner
                .iter()
                .map(|(name, kind)| format!("    {} {name};", shape.records[*kind].name)),
        );
        lines.push("}".into());
    }
    let prefix = &shape.prefix;
    if let Some(members) = &shape.union {
        lines.push(format!("header_union {prefix}un_t {{"));
        lines.extend(
            members
                .iter()
                .map(|(name, kind)| format!("    {} {name};", shape.header_types[*kind].name)),
        );
        lines.push("}".into());
    }
    let members = |below: &str| {
        let prefix_length = if below.is_empty() { 0 } else { below.len() + 1 };
        let own = move |name: &str| {
            let rest = name
                .get(prefix_length..)
                .filter(|_| below.is_empty() || name.starts_with(&format!("{below}.")));
            rest.filter(|rest| !rest.contains('.')).map(str::to_owned)
        };
        shape
            .headers
            .iter()
            .filter_map(|(name, kind)| {
                Some(format!("    {} {};", shape.header_types[*kind].name, own(name)?))
            })
            .collect::<Vec<String>>()
    };
    let has =
        |path: &str| shape.headers.iter().any(|(name, _)| name.starts_with(&format!("{path}.")));
    for (path, ty) in GROUPS.into_iter().filter(|(path, _)| has(path)) {
        lines.push(format!("struct {prefix}{ty} {{"));
        lines.extend(members(path));
        if path == "grp" && has("grp.inner") {
            lines.push(format!("    {prefix}inner_t inner;"));
        }
        lines.push("}".into());
    }
    lines.push(format!("struct {prefix}headers_t {{"));
    lines.extend(members(""));
    if has("grp") {
        lines.push(format!("    {prefix}grp_t grp;"));
    }
    if let Some((name, kind, size)) = &shape.stack {
        lines.push(format!("    {}[{size}] {name};", shape.header_types[*kind].name));
    }
    lines.extend(shape.union.as_ref().map(|_| format!("    {prefix}un_t un;")));
    for (path, kind) in shape.varbits() {
        lines.push(format!(
            "    {} {};",
            shape.header_types[kind].name,
            path.trim_start_matches("hdr.")
        ));
    }
    lines.push("}".into());
    lines.push(format!("struct {prefix}meta_t {{"));
    lines.extend(
        shape
            .meta
            .iter()
            .map(|m| format!("    {} {};", m.ty.name(), m.path.trim_start_matches("meta."))),
    );
    for (path, kind) in &shape.nested {
        lines.push(format!(
            "    {} {};",
            shape.records[*kind].name,
            path.trim_start_matches("meta.")
        ));
    }
    lines.extend(shape.meta_wide.map(|width| format!("    bit<{width}> w0;")));
    lines.push("}".into());
}

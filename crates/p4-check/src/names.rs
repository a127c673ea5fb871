//! Annotations as text, and the names that the control plane and C see.

use std::collections::HashMap;

use p4_syntax::ast;

/// The body of an annotation as text; a lone string without its quotes.
pub fn text(a: &ast::Annotation) -> String {
    match &a.body {
        ast::AnnotationBody::Empty => String::new(),
        ast::AnnotationBody::Unstructured(tokens) => match tokens.as_slice() {
            [one] => one.text.to_string(),
            many => {
                let shown: Vec<String> = many
                    .iter()
                    .map(|t| match t.kind {
                        ast::AnnotationTokenKind::Str => format!("{:?}", t.text),
                        _ => t.text.to_string(),
                    })
                    .collect();
                shown.join(" ")
            }
        },
        ast::AnnotationBody::Expressions(list) => list.iter().map(value_text).collect::<Vec<_>>().join(", "),
        ast::AnnotationBody::KeyValues(list) => {
            list.iter().map(|kv| format!("{}={}", kv.name, value_text(&kv.value))).collect::<Vec<_>>().join(", ")
        }
    }
}

fn value_text(e: &ast::Expr) -> String {
    match &e.kind {
        ast::ExprKind::Int(i) => i.value.to_string(),
        ast::ExprKind::Bool(b) => b.to_string(),
        ast::ExprKind::Str(s) => s.clone(),
        ast::ExprKind::Path(p) => p.name.to_string(),
        _ => "...".into(),
    }
}

/// `@name("x")` of a declaration.
pub fn annotated(list: &[ast::Annotation]) -> Option<String> {
    list.iter().find(|a| a.name.as_str() == "name").map(text).filter(|s| !s.is_empty())
}

/// The control plane's name: `prefix` ends in a dot or is empty; a leading dot of `@name` drops the prefix.
pub fn control_plane(prefix: &str, declared: &str, annotations: &[ast::Annotation]) -> String {
    let name = annotated(annotations).unwrap_or_else(|| declared.to_string());
    match name.strip_prefix('.') {
        Some(absolute) => absolute.to_string(),
        None => format!("{prefix}{name}"),
    }
}

/// Hands out unique C identifiers.
#[derive(Default)]
pub struct CNames {
    /// Names given out, with the last number put behind each.
    used: HashMap<String, u32>,
}

impl CNames {
    /// A C identifier like `wanted` that was not given out before.
    pub fn unique(&mut self, wanted: &str) -> String {
        let mut base: String =
            wanted.chars().take(100).map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
        if base.is_empty() || base.starts_with(|c: char| c.is_ascii_digit()) || C_WORDS.contains(&base.as_str()) {
            base.insert_str(0, "p4_");
        }
        let Some(&last) = self.used.get(&base) else {
            self.used.insert(base.clone(), 1);
            return base;
        };
        let mut n = last;
        loop {
            n += 1;
            let name = format!("{base}_{n}");
            if !self.used.contains_key(&name) {
                self.used.insert(base, n);
                self.used.insert(name.clone(), 1);
                return name;
            }
        }
    }
}

/// Words of C (and of what back ends include) that cannot be names.
const C_WORDS: &[&str] = &[
    "auto",
    "break",
    "case",
    "char",
    "const",
    "continue",
    "default",
    "do",
    "double",
    "else",
    "enum",
    "extern",
    "float",
    "for",
    "goto",
    "if",
    "inline",
    "int",
    "long",
    "register",
    "restrict",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "struct",
    "switch",
    "typedef",
    "union",
    "unsigned",
    "void",
    "volatile",
    "while",
    "asm",
    "typeof",
    "bool",
    "true",
    "false",
    "main",
    "NULL",
    "_Bool",
    "_Static_assert",
    "linux",
    "unix",
];

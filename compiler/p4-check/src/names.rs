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
        ast::AnnotationBody::Expressions(list) => {
            list.iter().map(value_text).collect::<Vec<_>>().join(", ")
        }
        ast::AnnotationBody::KeyValues(list) => list
            .iter()
            .map(|kv| format!("{}={}", kv.name, value_text(&kv.value)))
            .collect::<Vec<_>>()
            .join(", "),
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

/// The control plane's name: `prefix` ends in a dot or is empty; a leading dot of `@name` drops the
/// prefix.
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
    /// What all of them begin with, so that none meets a word of C or of the headers that a back
    /// end includes.
    prefix: &'static str,
    /// Endings with which a back end makes more names of one.
    endings: &'static [&'static str],
    /// Names given out, with the last number put behind each.
    used: HashMap<String, u32>,
}

impl CNames {
    /// Names of tables, actions and extern objects: they become maps, structs and functions.
    pub fn objects() -> CNames {
        let endings = &[
            "default",
            "masks",
            "key",
            "value",
            "mask",
            "entry",
            "entry_key",
            "search",
            "round",
            "rule",
            "rules",
            "values",
            "node",
            "nodes",
            "leaves",
            "get",
            "set",
            "phase",
            "blank",
            "access",
            "overdue",
            "words",
            "next",
            "offset",
            "_kept",
        ];
        CNames { prefix: "p4_", endings, used: HashMap::new() }
    }

    /// A C identifier like `wanted` that was not given out before.
    pub fn unique(&mut self, wanted: &str) -> String {
        let safe: String = wanted
            .chars()
            .take(100)
            .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' })
            .collect();
        let base = format!("{}{safe}", self.prefix);
        let mut number = self.used.get(&base).copied().unwrap_or(0);
        loop {
            number += 1;
            let name = if number == 1 { base.clone() } else { format!("{base}_{number}") };
            let made: Vec<String> =
                self.endings.iter().map(|ending| format!("{name}_{ending}")).collect();
            if !self.used.contains_key(&name)
                && !made.iter().any(|name| self.used.contains_key(name))
            {
                self.used.extend(made.into_iter().map(|name| (name, 1)));
                self.used.insert(name.clone(), 1);
                self.used.insert(base, number);
                return name;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_with_their_endings() {
        let mut names = CNames::objects();
        let given: Vec<String> = ["t", "t", "t_default", "int", "a.b", "a_b", "u_key", "u"]
            .map(|name| names.unique(name))
            .into();
        assert_eq!(
            given,
            [
                "p4_t",
                "p4_t_2",
                "p4_t_default_2",
                "p4_int",
                "p4_a_b",
                "p4_a_b_2",
                "p4_u_key",
                "p4_u_2"
            ]
        );
        // A name that a suffix made.
        assert_eq!([names.unique("s"), names.unique("s_blank")], ["p4_s", "p4_s_blank_2"]);
        let mut states = CNames::default();
        assert_eq!([states.unique("start"), states.unique("start")], ["start", "start_2"]);
    }
}

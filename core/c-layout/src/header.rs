//! The C file.

use crate::Layout;
use std::fmt::Write;
use std::path::Path;

/// Columns of a line.
const COLUMNS: usize = 100;
/// Columns that a tab takes.
const TAB: usize = 8;

/// A number with a name; in an enum without a value, one more than the number before.
#[derive(Clone, Copy, Debug)]
pub struct Number<'a> {
    /// As in C.
    pub name: &'a str,
    /// Its value.
    pub value: Option<u64>,
    /// What it is; may be empty.
    pub doc: &'a str,
}

impl<'a> Number<'a> {
    /// One with a value.
    pub const fn new(name: &'a str, value: u64, doc: &'a str) -> Number<'a> {
        Number { name, value: Some(value), doc }
    }

    /// One without.
    pub const fn next(name: &'a str, doc: &'a str) -> Number<'a> {
        Number { name, value: None, doc }
    }
}

/// A C file that is made of definitions in Rust.
pub struct Header {
    text: String,
}

impl Header {
    /// `name`: of the file; `about`: what it has, for its first line; `source`: where the
    /// definitions are; `update`: the command that writes the file.
    pub fn new(name: &str, about: &str, source: &str, update: &str) -> Header {
        let guard: String =
            name.chars().map(|it| if it == '.' { '_' } else { it.to_ascii_uppercase() }).collect();
        let text = format!(
            "/* SPDX-License-Identifier: Apache-2.0 */\n\
             /*\n * {name}: {about}\n *\n * Generated from {source}. Edit that, then run\n \
             * UPDATE=1 {update}\n */\n#ifndef {guard}\n#define {guard}\n"
        );
        Header { text }
    }

    fn line(&mut self, line: impl std::fmt::Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// A comment in front of what comes next.
    fn comment(&mut self, indent: &str, doc: &[&str]) {
        let lines: Vec<&str> = doc.iter().map(|line| line.trim()).collect();
        match lines[..] {
            [] | [""] => {}
            [line] => self.line(format_args!("{indent}/* {line} */")),
            _ => {
                self.line(format_args!("{indent}/*"));
                for line in lines {
                    self.line(format_args!("{indent} * {line}").to_string().trim_end());
                }
                self.line(format_args!("{indent} */"));
            }
        }
    }

    /// A declaration, with its comment behind it if there is room.
    fn declare(&mut self, indent: &str, declaration: &str, doc: &[&str]) {
        let columns = indent.len() * TAB + declaration.len() + " /*  */".len();
        match doc {
            [line] if !line.trim().is_empty() && columns + line.trim().len() <= COLUMNS => {
                self.line(format_args!("{indent}{declaration} /* {} */", line.trim()));
            }
            _ => {
                self.comment(indent, doc);
                self.line(format_args!("{indent}{declaration}"));
            }
        }
    }

    /// `#define`s.
    #[must_use]
    pub fn defines(mut self, numbers: &[Number<'_>]) -> Header {
        self.line("");
        for number in numbers {
            let value = number.value.unwrap_or_default();
            // Else C would calculate with 64 bits what is meant to have 32.
            let suffix = match value {
                0..=0x7fff_ffff => "",
                0x8000_0000..=0xffff_ffff => "u",
                _ => "ull",
            };
            self.declare("", &format!("#define {} {value}{suffix}", number.name), &[number.doc]);
        }
        self
    }

    /// An enum; `name` may be empty.
    #[must_use]
    pub fn enumeration(mut self, name: &str, doc: &str, numbers: &[Number<'_>]) -> Header {
        self.line("");
        self.comment("", &[doc]);
        self.line(format_args!("enum {name}{}{{", if name.is_empty() { "" } else { " " }));
        for Number { name, value, doc } in numbers {
            let value = value.map(|value| format!(" = {value}")).unwrap_or_default();
            self.declare("\t", &format!("{name}{value},"), &[doc]);
        }
        self.line("};");
        self
    }

    /// A struct.
    #[must_use]
    pub fn structure(self, layout: &Layout) -> Header {
        self.structure_with(layout, "")
    }

    /// A struct that may stand at any address, as a packet's headers do.
    ///
    /// # Panics
    /// It has padding, which C would leave out.
    #[must_use]
    pub fn packed(self, layout: &Layout) -> Header {
        let of_members: usize = layout.members.iter().map(|member| member.bytes).sum();
        assert_eq!(of_members, layout.bytes(), "struct {} has padding", layout.name);
        self.structure_with(layout, " __attribute__((packed))")
    }

    fn structure_with(mut self, layout: &Layout, attribute: &str) -> Header {
        self.line("");
        self.comment("", layout.doc);
        self.line(format_args!("struct {} {{", layout.name));
        for member in layout.members {
            self.declare("\t", &format!("{};", (member.declaration)(member.name)), member.doc);
        }
        self.line(format_args!("}}{attribute};"));
        self.assert(layout);
        self
    }

    /// The same whose members are a macro, too, for structs that begin with them: a map's value
    /// must have its lock itself, not in a struct within.
    #[must_use]
    pub fn beginning(mut self, layout: &Layout, macro_name: &str) -> Header {
        self.line("");
        self.comment("", layout.doc);
        self.line(format_args!("#define {macro_name} \\"));
        for (at, member) in layout.members.iter().enumerate() {
            let doc: Vec<&str> = member.doc.iter().map(|line| line.trim()).collect();
            let end = if at + 1 < layout.members.len() { " \\" } else { "" };
            let declaration = (member.declaration)(member.name);
            self.line(format_args!("\t{declaration}; /* {} */{end}", doc.join(" ")));
        }
        self.line(format_args!("struct {} {{\n\t{macro_name}\n}};", layout.name));
        self.assert(layout);
        self
    }

    /// C's compiler and this crate have the same rules.
    fn assert(&mut self, layout: &Layout) {
        let last = layout.places().last();
        self.line(format_args!(
            "_Static_assert(sizeof(struct {}) == {}, \"as in Rust\");",
            layout.name,
            layout.bytes()
        ));
        if let Some((offset, member)) = last {
            self.line(format_args!(
                "_Static_assert(__builtin_offsetof(struct {}, {}) == {offset}, \"as in Rust\");",
                layout.name, member.name
            ));
        }
    }

    /// The file's text.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.line("\n#endif");
        self.text
    }

    /// For a test: the file has this text. With `UPDATE` in the environment it is written.
    ///
    /// # Panics
    /// It has another.
    pub fn assert_is(self, path: impl AsRef<Path>) {
        let (path, text) = (path.as_ref(), self.finish());
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        let file = std::fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(file, text, "{} is not what its definitions say", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CStruct, SpinLock, c_struct};

    c_struct! {
        /// What is kept
        /// of a thing.
        pub struct Thing as "sp_thing" {
            /// Its lock.
            pub lock: SpinLock,
            /// Of which there are four; this text does not fit behind the short declaration.
            pub words: [u64; 4],
        }
    }

    #[test]
    fn a_header_has_comments_where_there_is_room() {
        let header = Header::new("a.h", "all that is shared.", "x.rs", "cargo test -p x")
            .defines(&[Number::new("SP_A", 7, "bytes"), Number::new("SP_B", 1 << 31, "")])
            .defines(&[Number::new("SP_B", 1 << 40, "")])
            .enumeration("sp_e", "Kinds.", &[Number::new("SP_C", 3, ""), Number::next("SP_D", "")])
            .structure(&Thing::LAYOUT);
        let text = header.finish();
        let body = text.split_once("#define A_H\n").unwrap().1;
        let wanted = "
#define SP_A 7 /* bytes */
#define SP_B 2147483648u

#define SP_B 1099511627776ull

/* Kinds. */
enum sp_e {
\tSP_C = 3,
\tSP_D,
};

/*
 * What is kept
 * of a thing.
 */
struct sp_thing {
\tstruct bpf_spin_lock lock; /* Its lock. */
\t/* Of which there are four; this text does not fit behind the short declaration. */
\t__u64 words[4];
};
_Static_assert(sizeof(struct sp_thing) == 40, \"as in Rust\");
_Static_assert(__builtin_offsetof(struct sp_thing, words) == 8, \"as in Rust\");

#endif
";
        assert_eq!(body, wanted);
    }

    #[test]
    fn a_beginning_is_a_macro() {
        let text = Header::new("a.h", "", "", "").beginning(&Thing::LAYOUT, "SP_THING").finish();
        let lines = "#define SP_THING \\\n\tstruct bpf_spin_lock lock; /* Its lock. */ \\\n";
        assert!(
            text.contains(lines) && text.contains("struct sp_thing {\n\tSP_THING\n};"),
            "{text}"
        );
    }
}

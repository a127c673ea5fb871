//! Tokens.

use crate::span::Span;

/// A token and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Which.
    pub kind: Tok,
    /// Where.
    pub span: Span,
}

macro_rules! tokens {
    (words { $($kw:ident $kw_text:literal,)* } puncts { $($p:ident $p_text:literal,)* }) => {
        /// The kinds of token.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Tok {
            /// A name that is no keyword.
            Ident,
            /// An integer literal.
            Int,
            /// A string literal.
            Str,
            /// A character that no token begins with; allowed in annotation bodies only.
            Unknown,
            /// End of the line of a `@pragma`.
            EndPragma,
            /// End of the text.
            Eof,
            $(#[doc = concat!("Keyword `", $kw_text, "`")] $kw,)*
            $(#[doc = concat!("`", $p_text, "`")] $p,)*
        }

        impl Tok {
            /// The keyword with this text.
            pub fn keyword(text: &str) -> Option<Tok> {
                match text {
                    $($kw_text => Some(Tok::$kw),)*
                    _ => None,
                }
            }

            /// The text of a keyword or punctuation mark.
            pub fn text(self) -> Option<&'static str> {
                match self {
                    $(Tok::$kw => Some($kw_text),)*
                    $(Tok::$p => Some($p_text),)*
                    _ => None,
                }
            }

            /// Whether it is a keyword.
            pub fn is_keyword(self) -> bool {
                matches!(self, $(Tok::$kw)|*)
            }

            /// The longest punctuation mark that `text` begins with. `>>` is two tokens, so that
            /// `list<bit<8>>` needs no space.
            pub fn punct(text: &[u8]) -> Option<(Tok, usize)> {
                let mut best: Option<(Tok, usize)> = None;
                $(if text.starts_with($p_text.as_bytes()) && best.is_none_or(|b| b.1 < $p_text.len()) {
                    best = Some((Tok::$p, $p_text.len()));
                })*
                best
            }
        }
    };
}

tokens! {
    words {
        Abstract "abstract", Action "action", Actions "actions", Apply "apply", Bool "bool", Bit "bit",
        Break "break", Const "const", Continue "continue", Control "control", Default "default", Else "else",
        Entries "entries", Enum "enum", Error "error", Exit "exit", Extern "extern", False "false", For "for",
        Header "header", HeaderUnion "header_union", If "if", In "in", InOut "inout", IntType "int", Key "key",
        List "list", MatchKind "match_kind", Out "out", Package "package", Parser "parser",
        Priority "priority", Return "return", Select "select", State "state", StringType "string",
        Struct "struct", Switch "switch", Table "table", This "this", Transition "transition", True "true",
        Tuple "tuple", Type "type", Typedef "typedef", ValueSet "value_set", Varbit "varbit", Void "void",
        DontCare "_",
    }
    puncts {
        LParen "(", RParen ")", LBracket "[", RBracket "]", LBrace "{", RBrace "}", InvalidHeader "{#}",
        Lt "<", Gt ">", Le "<=", Ge ">=", EqEq "==", NotEq "!=", Shl "<<", AndAnd "&&", OrOr "||", Mask "&&&",
        Dot ".", Range "..", Dots "...", Semi ";", Comma ",", Colon ":", At "@", Question "?",
        Plus "+", Minus "-", Star "*", Slash "/", Percent "%", Amp "&", Pipe "|", Caret "^", Tilde "~", Bang "!",
        SatPlus "|+|", SatMinus "|-|", PlusPlus "++",
        Assign "=", PlusAssign "+=", MinusAssign "-=", StarAssign "*=", SlashAssign "/=", PercentAssign "%=",
        SatPlusAssign "|+|=", SatMinusAssign "|-|=", ShlAssign "<<=", AmpAssign "&=", PipeAssign "|=",
        CaretAssign "^=",
    }
}

impl Tok {
    /// Names: identifiers and the keywords that may be used as one (spec, grammar: `name`).
    pub fn is_name(self) -> bool {
        use Tok::*;
        matches!(self, Ident | Apply | Key | Actions | State | Entries | Type | Priority | List)
    }

    /// How messages call it.
    pub fn describe(self) -> String {
        match self {
            Tok::Ident => "a name".into(),
            Tok::Int => "a number".into(),
            Tok::Str => "a string".into(),
            Tok::Unknown => "an unknown character".into(),
            Tok::EndPragma => "the end of the line".into(),
            Tok::Eof => "the end of the file".into(),
            t if t.is_keyword() => format!("keyword `{}`", t.text().unwrap_or("")),
            t => format!("`{}`", t.text().unwrap_or("")),
        }
    }
}

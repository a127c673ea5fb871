//! What is known of match kinds: which entries a key takes, and whether entries have priorities.

/// How an entry says what it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `_` or `default`
    Any,
    /// One value.
    Value,
    /// `value &&& mask`
    Mask,
    /// `low .. high`
    Range,
}

/// What of a key an entry compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compares {
    /// All bits.
    All,
    /// Leading bits; the longest prefix wins.
    Prefix,
    /// The bits of a mask.
    Mask,
    /// All bits, or none.
    AllOrNone,
    /// Its number, with the two ends of an interval.
    Interval,
    /// Nothing: the key is an input of a hash.
    Nothing,
}

/// A match kind of core.p4 or v1model.p4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchKind {
    /// As programs name it.
    pub name: &'static str,
    /// What an entry of it may be.
    pub forms: &'static [Form],
    /// What an entry compares.
    pub compares: Compares,
}

/// A new match kind gets its line here.
const KINDS: [MatchKind; 6] = {
    use Form::{Any, Mask, Range, Value};
    [
        kind("exact", &[Value], Compares::All),
        kind("lpm", &[Any, Value, Mask], Compares::Prefix),
        kind("ternary", &[Any, Value, Mask], Compares::Mask),
        kind("optional", &[Any, Value], Compares::AllOrNone),
        kind("range", &[Any, Value, Range], Compares::Interval),
        kind("selector", &[Any, Value, Mask, Range], Compares::Nothing),
    ]
};

const fn kind(name: &'static str, forms: &'static [Form], compares: Compares) -> MatchKind {
    MatchKind { name, forms, compares }
}

/// What is known of a match kind; `None`: the program declares it itself.
pub fn match_kind(name: &str) -> Option<&'static MatchKind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// Do several entries of a table with such a key match one packet, so that priorities decide?
/// (P4-16 §14.2.1.4: of exact keys one entry at most matches, of `lpm` keys the longest prefix
/// wins.) Nothing is known of a kind that the program declares: its entries may have priorities.
pub fn is_ranked(name: &str) -> bool {
    match_kind(name).is_none_or(|kind| !matches!(kind.compares, Compares::All | Compares::Prefix))
}

impl MatchKind {
    /// Does it compare numbers, and so `bit<N>` and `int<N>` only?
    pub fn is_for_numbers(&self) -> bool {
        matches!(self.compares, Compares::Prefix | Compares::Interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_decide_where_several_entries_match() {
        assert!(!is_ranked("exact") && !is_ranked("lpm"));
        for kind in ["ternary", "range", "optional", "selector", "a program's own"] {
            assert!(is_ranked(kind), "{kind}");
        }
    }

    #[test]
    fn an_entry_takes_what_the_kind_compares() {
        for kind in KINDS {
            let takes = |form| kind.forms.contains(&form);
            assert!(takes(Form::Value), "{kind:?}");
            assert_eq!(takes(Form::Any), kind.compares != Compares::All, "{kind:?}");
            assert!(!(kind.is_for_numbers() && takes(Form::Mask) && takes(Form::Range)));
        }
    }
}

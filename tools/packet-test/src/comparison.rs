//! Comparisons of values with expected ones.

/// How a value is compared with the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `==`
    Equal,
    /// `!=`
    Different,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

impl Comparison {
    const ALL: [(&'static str, Comparison); 7] = [
        ("==", Comparison::Equal),
        ("=", Comparison::Equal),
        ("!=", Comparison::Different),
        ("<", Comparison::Less),
        ("<=", Comparison::AtMost),
        (">", Comparison::Greater),
        (">=", Comparison::AtLeast),
    ];

    /// What an operator means.
    pub(crate) fn of(operator: &str) -> Option<Comparison> {
        Comparison::ALL
            .iter()
            .find(|(text, _)| *text == operator)
            .map(|(_, comparison)| *comparison)
    }

    /// Is `found` as wanted?
    pub fn holds<T: Ord>(self, found: T, wanted: T) -> bool {
        match self {
            Comparison::Equal => found == wanted,
            Comparison::Different => found != wanted,
            Comparison::Less => found < wanted,
            Comparison::AtMost => found <= wanted,
            Comparison::Greater => found > wanted,
            Comparison::AtLeast => found >= wanted,
        }
    }
}

/// As it reads before the expected value: nothing, or the operator and a space.
impl std::fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match Comparison::ALL.iter().find(|(_, comparison)| comparison == self) {
            Some((operator, comparison)) if *comparison != Comparison::Equal => {
                write!(formatter, "{operator} ")
            }
            _ => Ok(()),
        }
    }
}

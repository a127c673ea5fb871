//! Byte ranges of the preprocessed program text.

/// Half-open byte range `[start, end)` of the program text that the parser read.
///
/// The text is the preprocessor's output, so a span says nothing about files by itself:
/// `SourceMap` turns it into the original file, line and column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The range from `start` up to, not including, `end`.
    pub const fn new(start: u32, end: u32) -> Self {
        Self { start, end }
    }

    /// The smallest span that covers `self` and `other`.
    pub fn to(self, other: Span) -> Span {
        Span::new(self.start.min(other.start), self.end.max(other.end))
    }

    /// An empty span at the first byte of `self`.
    pub const fn at_start(self) -> Span {
        Span::new(self.start, self.start)
    }

    /// An empty span just after the last byte of `self`.
    pub const fn at_end(self) -> Span {
        Span::new(self.end, self.end)
    }
}

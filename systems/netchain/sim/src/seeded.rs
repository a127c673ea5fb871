//! Seeded bugs of the switch program: places in its source, and wrong text for each.
//!
//! The program itself reads as if there were none. A place that it no longer has is an error, so a
//! bug cannot go missing when the program changes.

/// A mistake in the switch program that the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeededBug {
    /// Its name, in tests and tables.
    pub name: &'static str,
    /// What goes wrong.
    pub what: &'static str,
    pub(crate) file: &'static str,
    pub(crate) right: &'static str,
    pub(crate) wrong: &'static str,
}

impl SeededBug {
    /// The file's text with the bug.
    ///
    /// # Errors
    /// The place is not in it, or more than once.
    pub(crate) fn plant(&self, text: &str) -> Result<String, String> {
        match text.matches(self.right).count() {
            1 => Ok(text.replace(self.right, self.wrong)),
            places => Err(format!(
                "{}: {} has {places} places for it; it needs one",
                self.name, self.file
            )),
        }
    }
}

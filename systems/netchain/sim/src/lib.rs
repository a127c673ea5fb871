//! t
#![forbid(unsafe_code)]
mod program;
mod seeded;
pub use program::compile;
pub use seeded::SeededBug;

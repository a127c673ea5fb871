//! Readable text of the IR, for `stateplane check --emit-ir` and for test failures.

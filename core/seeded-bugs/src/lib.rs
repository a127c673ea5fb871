//! Seeded bugs: errors that a test plants, to show that it can find them. README.md says more.

#![no_std]
#![forbid(unsafe_code)]

/// Lists a crate's seeded bugs. The crate needs a feature `mutations`.
///
/// It makes, beside the enum with its constant `ALL`:
/// - `plant(Option<Enum>)`, public, with the feature: this thread has that bug from now on, and no
///   other;
/// - `planted(Enum) -> bool`, inside the crate: whether this thread has it.
#[macro_export]
macro_rules! seeded_bugs {
    (
        $(#[$about:meta])*
        pub enum $name:ident { $( $(#[$says:meta])* $bug:ident, )+ }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $( $(#[$says])* $bug, )+ }

        impl $name {
            /// All of them.
            pub const ALL: [$name; [$( $name::$bug ),+].len()] = [$( $name::$bug ),+];
        }

        #[cfg(feature = "mutations")]
        ::std::thread_local! {
            static PLANTED: ::core::cell::Cell<Option<$name>> =
                const { ::core::cell::Cell::new(None) };
        }

        /// From now on this thread has that bug, and no other.
        #[cfg(feature = "mutations")]
        pub fn plant(bug: Option<$name>) {
            PLANTED.set(bug);
        }

        /// Whether this thread has the bug.
        #[cfg(feature = "mutations")]
        pub(crate) fn planted(bug: $name) -> bool {
            PLANTED.get() == Some(bug)
        }

        #[cfg(not(feature = "mutations"))]
        #[inline(always)]
        pub(crate) const fn planted(_: $name) -> bool {
            false
        }
    };
}

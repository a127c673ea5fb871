//! A struct's layout by C's rules, and the macro that defines one.

use crate::Member;

/// A member in its struct.
#[derive(Clone, Copy)]
pub struct MemberLayout {
    /// As in C.
    pub name: &'static str,
    /// What it is: the lines of its comment.
    pub doc: &'static [&'static str],
    /// [`Member::declaration`]
    pub declaration: fn(&str) -> String,
    /// Bytes that it takes.
    pub bytes: usize,
    /// Its offset is a multiple of this.
    pub align: usize,
}

impl MemberLayout {
    /// Of a member with this type.
    pub const fn of<T: Member>(name: &'static str, doc: &'static [&'static str]) -> MemberLayout {
        MemberLayout { name, doc, declaration: T::declaration, bytes: T::BYTES, align: T::ALIGN }
    }
}

/// A struct that C and Rust share.
#[derive(Clone, Copy)]
pub struct Layout {
    /// Of the struct in C.
    pub name: &'static str,
    /// What it is: the lines of its comment.
    pub doc: &'static [&'static str],
    /// In their order.
    pub members: &'static [MemberLayout],
}

/// Compares in constants, where `==` on text cannot be.
const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

impl Layout {
    /// Where a member lies; used in constants, so that a wrong name is an error of the compiler.
    ///
    /// # Panics
    /// There is no such member.
    pub const fn offset(&self, member: &str) -> usize {
        let (mut at, mut index) = (0_usize, 0);
        while index < self.members.len() {
            at = at.next_multiple_of(self.members[index].align);
            if same(self.members[index].name, member) {
                return at;
            }
            at += self.members[index].bytes;
            index += 1;
        }
        panic!("the struct has no such member");
    }

    /// In which 64-bit word of the struct a member begins.
    ///
    /// # Panics
    /// There is no such member.
    pub const fn word(&self, member: &str) -> usize {
        self.offset(member) / size_of::<u64>()
    }

    /// Each member with its offset.
    pub fn places(&self) -> impl Iterator<Item = (usize, &'static MemberLayout)> + use<> {
        let mut at = 0_usize;
        self.members.iter().map(move |member| {
            let offset = at.next_multiple_of(member.align);
            at = offset + member.bytes;
            (offset, member)
        })
    }

    /// The struct's size, with the padding at its end.
    pub const fn bytes(&self) -> usize {
        let (mut at, mut index) = (0_usize, 0);
        while index < self.members.len() {
            at = at.next_multiple_of(self.members[index].align) + self.members[index].bytes;
            index += 1;
        }
        at.next_multiple_of(self.align())
    }

    /// The struct's offset in another one is a multiple of this.
    pub const fn align(&self) -> usize {
        let (mut align, mut index) = (1, 0);
        while index < self.members.len() {
            if self.members[index].align > align {
                align = self.members[index].align;
            }
            index += 1;
        }
        align
    }
}

/// A type that [`c_struct!`](crate::c_struct) made.
pub trait CStruct: Member {
    /// Its layout.
    const LAYOUT: Layout;

    /// Reads a map's value. An object that an earlier version compiled may lack the last members:
    /// they are zero.
    fn from_bytes(bytes: &[u8]) -> Self {
        match bytes.len() >= Self::BYTES {
            true => Self::read(bytes),
            false => {
                let mut whole = vec![0; Self::BYTES];
                whole[..bytes.len()].copy_from_slice(bytes);
                Self::read(&whole)
            }
        }
    }

    /// A map's value; padding is zero.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::BYTES];
        self.write(&mut bytes);
        bytes
    }
}

/// For the macro alone.
pub mod c_struct_support {
    use crate::Member;

    /// Reads the next member, and moves on.
    pub fn read<T: Member>(bytes: &[u8], at: &mut usize) -> T {
        let from = at.next_multiple_of(T::ALIGN);
        *at = from + T::BYTES;
        T::read(bytes.get(from..*at).unwrap_or_default())
    }

    /// Writes the next member, and moves on.
    pub fn write<T: Member>(member: &T, bytes: &mut [u8], at: &mut usize) {
        let from = at.next_multiple_of(T::ALIGN);
        *at = from + T::BYTES;
        if let Some(place) = bytes.get_mut(from..*at) {
            member.write(place);
        }
    }
}

/// Defines a struct that C and Rust share. Comments go to both.
///
/// ```
/// use c_layout::{CStruct, c_struct};
///
/// c_struct! {
///     /// How far it is.
///     #[derive(Debug, PartialEq)]
///     pub struct Place as "sp_place" {
///         /// In metres.
///         pub distance: u16,
///         /// CLOCK_MONOTONIC.
///         pub seen_ns: u64,
///     }
/// }
/// assert_eq!((Place::LAYOUT.offset("seen_ns"), Place::LAYOUT.bytes()), (8, 16));
/// let place = Place { distance: 7, seen_ns: 9 };
/// assert_eq!(Place::from_bytes(&place.to_bytes()), place);
/// ```
#[macro_export]
macro_rules! c_struct {
    (
        $(#[doc = $doc:literal])+
        $(#[derive($($derive:path),+)])?
        pub struct $name:ident as $c:literal {
            $($(#[doc = $member_doc:literal])+ pub $member:ident: $type:ty,)+
        }
    ) => {
        $(#[doc = $doc])+
        #[doc = ""]
        #[doc = concat!("In C: `struct ", $c, "`.")]
        $(#[derive($($derive),+)])?
        pub struct $name {
            $($(#[doc = $member_doc])+ pub $member: $type,)+
        }

        impl $crate::CStruct for $name {
            const LAYOUT: $crate::Layout = $crate::Layout {
                name: $c,
                doc: &[$($doc),+],
                members: &[$(
                    $crate::MemberLayout::of::<$type>(stringify!($member), &[$($member_doc),+])
                ),+],
            };
        }

        impl $crate::Member for $name {
            const BYTES: usize = <$name as $crate::CStruct>::LAYOUT.bytes();
            const ALIGN: usize = <$name as $crate::CStruct>::LAYOUT.align();

            fn declaration(name: &str) -> String {
                format!(concat!("struct ", $c, " {}"), name)
            }

            fn read(bytes: &[u8]) -> Self {
                let mut at = 0;
                $(let $member = $crate::c_struct_support::read(bytes, &mut at);)+
                $name { $($member),+ }
            }

            fn write(&self, bytes: &mut [u8]) {
                let mut at = 0;
                $($crate::c_struct_support::write(&self.$member, bytes, &mut at);)+
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Be16, SpinLock};
    use std::net::{Ipv4Addr, Ipv6Addr};

    c_struct! {
        /// Inner.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct Inner as "sp_inner" {
            /// One.
            pub one: u8,
            /// Two.
            pub two: [Be16; 2],
        }
    }

    c_struct! {
        /// Of each kind of member, with holes between them and at the end.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct Outer as "sp_outer" {
            /// Lock.
            pub lock: SpinLock,
            /// Inner.
            pub inner: Inner,
            /// Words.
            pub words: [[u64; 2]; 2],
            /// IPv4.
            pub ipv4: Ipv4Addr,
            /// IPv6.
            pub ipv6: Ipv6Addr,
            /// The last.
            pub last: u16,
        }
    }

    #[test]
    fn members_lie_where_c_puts_them() {
        const LAST: usize = Outer::LAYOUT.offset("last");
        let offsets: Vec<usize> = Outer::LAYOUT.places().map(|(offset, _)| offset).collect();
        assert_eq!((offsets, LAST), (vec![0, 4, 16, 48, 52, 68], 68));
        assert_eq!((Inner::BYTES, Inner::ALIGN, Outer::BYTES, Outer::ALIGN), (6, 2, 72, 8));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let outer = Outer {
            lock: SpinLock,
            inner: Inner { one: 1, two: [Be16(0x203), Be16(0x405)] },
            words: [[6, 7], [8, u64::MAX]],
            ipv4: Ipv4Addr::new(10, 0, 0, 1),
            ipv6: Ipv6Addr::LOCALHOST,
            last: 0x1234,
        };
        let bytes = outer.to_bytes();
        assert_eq!(&bytes[..10], [0, 0, 0, 0, 1, 0, 2, 3, 4, 5]);
        assert_eq!((&bytes[48..52], bytes[67], bytes.len()), (&[10, 0, 0, 1][..], 1, 72));
        assert_eq!(Outer::from_bytes(&bytes), outer);
        let earlier = Outer::from_bytes(&bytes[..68]);
        assert_eq!((earlier.ipv6, earlier.last), (outer.ipv6, 0), "an object without the last");
    }

    #[test]
    #[should_panic(expected = "no such member")]
    fn a_member_that_is_not_there_has_no_offset() {
        Outer::LAYOUT.offset("other");
    }
}

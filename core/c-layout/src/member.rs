//! What a struct's members can be.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A member of a struct that C and Rust share.
pub trait Member: Sized {
    /// Bytes that it takes.
    const BYTES: usize;
    /// Its offset is a multiple of this.
    const ALIGN: usize;

    /// Its declaration in C, without the semicolon.
    fn declaration(name: &str) -> String;

    /// Reads it from [`Self::BYTES`] bytes.
    fn read(bytes: &[u8]) -> Self;

    /// Writes it to [`Self::BYTES`] bytes.
    fn write(&self, bytes: &mut [u8]);
}

macro_rules! integers {
    ($($rust:ty => $c:literal),+) => {$(
        impl Member for $rust {
            const BYTES: usize = size_of::<$rust>();
            const ALIGN: usize = size_of::<$rust>();

            fn declaration(name: &str) -> String {
                format!(concat!($c, " {}"), name)
            }

            fn read(bytes: &[u8]) -> Self {
                bytes.first_chunk().copied().map_or(0, <$rust>::from_ne_bytes)
            }

            fn write(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
        }
    )+};
}

integers!(u8 => "__u8", u16 => "__u16", u32 => "__u32", u64 => "__u64");

macro_rules! in_network_order {
    ($($(#[doc = $doc:literal])+ $name:ident($rust:ty) => $c:literal;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(pub $rust);

        impl Member for $name {
            const BYTES: usize = size_of::<$rust>();
            const ALIGN: usize = size_of::<$rust>();

            fn declaration(name: &str) -> String {
                format!(concat!($c, " {}"), name)
            }

            fn read(bytes: &[u8]) -> $name {
                $name(bytes.first_chunk().copied().map_or(0, <$rust>::from_be_bytes))
            }

            fn write(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.0.to_be_bytes());
            }
        }
    )+};
}

in_network_order! {
    /// A 16-bit number in network order.
    Be16(u16) => "__be16";
    /// A 32-bit number in network order.
    Be32(u32) => "__be32";
    /// A 64-bit number in network order.
    Be64(u64) => "__be64";
}

impl Member for Ipv4Addr {
    const BYTES: usize = 4;
    const ALIGN: usize = 4;

    fn declaration(name: &str) -> String {
        format!("__be32 {name}")
    }

    fn read(bytes: &[u8]) -> Ipv4Addr {
        bytes.first_chunk().copied().map_or(Ipv4Addr::UNSPECIFIED, <[u8; 4]>::into)
    }

    fn write(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.octets());
    }
}

impl Member for Ipv6Addr {
    const BYTES: usize = 16;
    const ALIGN: usize = 4;

    fn declaration(name: &str) -> String {
        format!("__be32 {name}[4]")
    }

    fn read(bytes: &[u8]) -> Ipv6Addr {
        bytes.first_chunk().copied().map_or(Ipv6Addr::UNSPECIFIED, <[u8; 16]>::into)
    }

    fn write(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.octets());
    }
}

/// The kernel's lock of a map's value. To user space it reads as zero, and what it writes there is
/// ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpinLock;

impl Member for SpinLock {
    const BYTES: usize = 4;
    const ALIGN: usize = 4;

    fn declaration(name: &str) -> String {
        format!("struct bpf_spin_lock {name}")
    }

    fn read(_: &[u8]) -> SpinLock {
        SpinLock
    }

    fn write(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

impl<T: Member, const N: usize> Member for [T; N] {
    const BYTES: usize = N * T::BYTES;
    const ALIGN: usize = T::ALIGN;

    fn declaration(name: &str) -> String {
        T::declaration(&format!("{name}[{N}]"))
    }

    fn read(bytes: &[u8]) -> [T; N] {
        std::array::from_fn(|index| {
            T::read(bytes.get(index * T::BYTES..(index + 1) * T::BYTES).unwrap_or_default())
        })
    }

    fn write(&self, bytes: &mut [u8]) {
        for (member, place) in self.iter().zip(bytes.chunks_exact_mut(T::BYTES)) {
            member.write(place);
        }
    }
}

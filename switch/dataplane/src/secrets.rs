//! The secrets of messages, in the map from which a system's program takes them.

use crate::Dataplane;
use crate::error::Result;
use crate::layouts::core::{SECRETS, SecretSetValue};
use c_layout::CStruct;
use wire::{KeyRing, Secret};

const MAP: &str = "sp_secrets";

/// What is accepted, and what is sent with.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct SecretSet {
    /// By number.
    pub secrets: [Option<[u8; wire::SECRET_BYTES]>; SECRETS],
    /// The number of the one that tags what is sent.
    pub sends: u8,
}

impl std::fmt::Debug for SecretSet {
    /// Secrets are never printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = self.secrets.map(|secret| secret.is_some());
        f.debug_struct("SecretSet").field("known", &known).field("sends", &self.sends).finish()
    }
}

impl From<&KeyRing> for SecretSet {
    fn from(ring: &KeyRing) -> SecretSet {
        SecretSet {
            secrets: std::array::from_fn(|id| ring.secret(id as u8).map(|secret| secret.0)),
            sends: ring.sending(),
        }
    }
}

impl SecretSet {
    fn value(&self) -> SecretSetValue {
        let mut value = SecretSetValue { sends: self.sends.into(), ..SecretSetValue::default() };
        for (number, secret) in self.secrets.iter().enumerate() {
            value.secret[number] = Secret(secret.unwrap_or_default()).words();
            value.present |= u32::from(secret.is_some()) << number;
        }
        value
    }
}

impl Dataplane {
    /// Does the program check and tag messages?
    pub fn has_secrets(&self) -> bool {
        self.has_map(MAP)
    }

    /// Replaces the secrets; in one write, so messages are checked and tagged all the time.
    pub fn set_secrets(&self, set: &SecretSet) -> Result<()> {
        self.write_array(MAP, 0, &set.value().to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_laid_out_as_siphash_takes_them() {
        let ring = KeyRing::new(2, Secret(std::array::from_fn(|at| at as u8))).unwrap();
        let value = SecretSet::from(&ring).value();
        assert_eq!(value.secret[2], [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        assert_eq!((value.secret[0], value.present, value.sends), ([0; 2], 4, 2));
        assert!(!format!("{:?}", SecretSet::from(&ring)).contains("0f"), "never printed");
    }
}

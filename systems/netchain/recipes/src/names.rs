//! Keys of recipes. The table is in the crate's page.

use crate::Error;
use netchain_client::Key;

/// The name itself.
pub(crate) fn key(name: &str) -> Result<Key, Error> {
    short(name, 16)
}

fn short(name: &str, most: usize) -> Result<Key, Error> {
    if name.is_empty() {
        return Err(Error::Name("the name is empty".into()));
    }
    if name.len() > most {
        let bytes = name.len();
        return Err(Error::Name(format!("{name:?} has {bytes} bytes; here a name has {most}")));
    }
    Key::from_name(name).map_err(|error| Error::Name(error.to_string()))
}

fn ending(mut key: Key, end: [u8; 2]) -> Key {
    key.0[14..].copy_from_slice(&end);
    key
}

/// A member's place, from 0 on.
pub(crate) fn place(name: &str, at: u16) -> Result<Key, Error> {
    Ok(ending(short(name, 13)?, at.saturating_add(1).to_be_bytes()))
}

/// A key of a transaction.
pub(crate) fn guarded(name: &str) -> Result<Key, Error> {
    short(name, 14)
}

/// Its lock.
pub(crate) fn guard(name: &str) -> Result<Key, Error> {
    Ok(ending(short(name, 14)?, [0xff, b'L']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_refused_and_others_do_not_meet() {
        assert!(key("sixteen-letters!").is_ok() && key("seventeen-letters").is_err());
        assert!(place("thirteen-long", 0).is_ok() && place("fourteen-long!", 0).is_err());
        assert!(guard("fourteen-long!").is_ok() && guard("fifteen-letters").is_err());
        assert!(key("").is_err());
        let all = [key("a"), place("a", 0), place("a", 1), guard("a")].map(Result::unwrap);
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(guarded("a").unwrap(), all[0]);
    }
}

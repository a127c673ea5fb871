//! Files with secrets in them, that nobody but their owner reads.

use crate::SecretsError;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;
use wire::{SECRET_BYTES, Secret};

pub(crate) const MODE: u32 = 0o600;

/// Reads a file. Refuses one that others than its owner can read.
///
/// # Errors
/// It cannot be read, or others can read it.
pub fn read_private(path: &Path) -> Result<String, SecretsError> {
    let read = |source| SecretsError::Read { path: path.to_owned(), source };
    let mut file = std::fs::File::open(path).map_err(read)?;
    let mode = file.metadata().map_err(read)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(SecretsError::Mode { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(read)?;
    Ok(text)
}

/// Makes a file. Never overwrites one.
///
/// # Errors
/// It cannot be written, or is there.
pub fn create_private(path: &Path, text: &str) -> Result<(), SecretsError> {
    write_new(path, text, None)
        .map_err(|source| SecretsError::Write { path: path.to_owned(), source })
}

/// Writes a file anew, in one step: whoever reads it meanwhile sees the old one or the new one.
/// Owner, group and mode stay, so that the daemon that could read it still can, also when root
/// changes it.
///
/// # Errors
/// It cannot be written; then the old one is as it was.
pub fn replace_private(path: &Path, text: &str) -> Result<(), SecretsError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let write = || {
        let old = match std::fs::metadata(path) {
            Ok(old) => Some(old),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        write_new(&new, text, old.as_ref())?;
        std::fs::rename(&new, path)
    };
    write().map_err(|source| {
        let _ = std::fs::remove_file(&new);
        SecretsError::Write { path: path.to_owned(), source }
    })
}

/// With owner, group and mode of `like`.
fn write_new(path: &Path, text: &str, like: Option<&std::fs::Metadata>) -> std::io::Result<()> {
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    if let Some(like) = like {
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (like.uid(), like.gid()) {
            fchown(&file, Some(like.uid()), Some(like.gid()))?;
        }
        file.set_permissions(like.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// A new secret, from the kernel.
///
/// # Errors
/// No randomness.
pub fn random_secret() -> Result<Secret, SecretsError> {
    let mut bytes = [0; SECRET_BYTES];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(SecretsError::Random)?;
    Ok(Secret(bytes))
}

/// A secret from its 32 hexadecimal digits.
pub fn from_hex(text: &str) -> Option<Secret> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    rest.is_empty().then(|| bytes.try_into().ok().map(Secret)).flatten()
}

/// A secret's 32 hexadecimal digits.
pub fn to_hex(secret: &Secret) -> String {
    secret.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

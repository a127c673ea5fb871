//! Before a new life of a switch begins: does another switch have its number? Controllers know. One
//! that cannot be reached yet, because routes come with the switch, says so later (`views.rs`).

use crate::config::Config;
use crate::error::{Error, Result};
use crate::views::{newcomer, now_ns, other_secrets, process, send};
use secrets::SecretsFile;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use wire::{Control, ControlType, Kind, kind};

/// From one question to the next.
const ASK_EVERY: Duration = Duration::from_millis(5);
const MOST_BYTES: usize = 65_536;

/// Asks the controllers until one answers, at most for `patience`.
///
/// # Errors
/// [`Error::SwitchIdTaken`].
pub(crate) fn ask(config: &Config, patience: Duration) -> Result<()> {
    let (Some(own), Some(path)) = (config.protocol_address, &config.secrets) else { return Ok(()) };
    if config.controllers.is_empty() {
        return Ok(());
    }
    // What is wrong with the file or the address is told elsewhere.
    let (Ok(file), Ok(socket)) = (SecretsFile::load(path), UdpSocket::bind((own, 0))) else {
        return Ok(());
    };
    let (began, began_ns) = (Instant::now(), now_ns());
    let mut buffer = vec![0; MOST_BYTES];
    let _ = socket.set_read_timeout(Some(ASK_EVERY));
    while began.elapsed() < patience {
        send(config, &socket, own, file.ring(), newcomer(config));
        let Ok((count, SocketAddr::V4(from))) = socket.recv_from(&mut buffer) else { continue };
        let bytes = &buffer[..count];
        if file.ring().verify(bytes, *from.ip(), own).is_err() {
            let hint = matches!(kind(bytes), Ok(Kind::Control(ControlType::OtherSecrets)));
            if hint && config.controllers.contains(&from) {
                tracing::error!("{}", other_secrets(from, path));
                return Ok(());
            }
            continue;
        }
        match Control::decode(bytes) {
            Ok(Control::Heard | Control::Views(_)) => return Ok(()),
            Ok(Control::Refused { sent_ns, incarnation, refusal })
                if incarnation == process() && sent_ns >= began_ns =>
            {
                let file = config.file.display().to_string();
                return Err(Error::SwitchIdTaken { file, refusal });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether this host has an address.
pub(crate) fn is_own(address: Ipv4Addr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

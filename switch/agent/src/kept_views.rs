//! The controllers' last views, kept in the configuration's `state_directory`, or in the run
//! directory, which a reboot empties: an agent that starts with new maps sends requests where they
//! went before until a controller answers. No controller can answer before there are routes to this
//! switch, and with them come packets.
//!
//! Old views of a cluster do no harm in it. A server that is no head any more answers nothing by
//! itself, and passes requests on or drops them; what a switch acts upon are tails' answers, under
//! epochs of which there are no two alike. So a stale view costs lost packets, as having none does.

use crate::config::Config;
use crate::durable;
use crate::error::{Error, Result};
use crate::run_dir::RunDirectory;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use wire::{MOST_SHARDS, Views};

/// Of the file's form.
const FORMAT: u32 = 1;
/// No file is larger: views fit into a datagram.
const MOST_BYTES: u64 = 131_072;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    /// Whose views these are: other controllers are another cluster's.
    controllers: Vec<SocketAddrV4>,
    views: serde_json::Value,
}

/// Where they are kept.
pub(crate) fn path(config: &Config, run: &RunDirectory) -> PathBuf {
    let in_state_directory =
        |directory: &PathBuf| directory.join(format!("{}.views.json", config.name));
    config.state_directory.as_ref().map_or_else(|| run.views(), in_state_directory)
}

/// Does every shard have a head? Not in a cluster that has not begun.
pub(crate) fn have_heads(views: &Views) -> bool {
    (1..=usize::from(MOST_SHARDS)).contains(&views.shards.len())
        && views.heads().all(|head| head.is_some())
}

/// Writes the file anew.
pub(crate) fn write(path: &Path, controllers: &[SocketAddrV4], views: &Views) -> Result<()> {
    let other = |error: serde_json::Error| Error::Other(error.to_string());
    let views = serde_json::from_slice(&views.to_json()).map_err(other)?;
    let file = File { format: FORMAT, controllers: controllers.to_vec(), views };
    let text = serde_json::to_vec(&file).map_err(other)?;
    durable::write(path, &text)
}

/// The views of these controllers that were written last, if they can be used; `Err` says why a
/// file that is there cannot.
pub(crate) fn read(path: &Path, controllers: &[SocketAddrV4]) -> Result<Option<Views>> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::path("read", path, error)),
    };
    let mut text = vec![];
    file.take(MOST_BYTES)
        .read_to_end(&mut text)
        .map_err(|error| Error::path("read", path, error))?;
    let unusable = |why: String| Error::Other(format!("{}: {why}; not used", path.display()));
    let file: File = serde_json::from_slice(&text).map_err(|error| unusable(error.to_string()))?;
    if file.format != FORMAT {
        return Err(unusable(format!(
            "another version of the agent wrote it, in format {}",
            file.format
        )));
    }
    if file.controllers != controllers {
        return Err(unusable("the views of other controllers".to_owned()));
    }
    let views = Views::from_json(file.views.to_string().as_bytes())
        .map_err(|error| unusable(error.to_string()))?;
    if !have_heads(&views) {
        return Err(unusable("a shard without a head".to_owned()));
    }
    Ok(Some(views))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Member, ShardView};

    #[test]
    fn views_come_back_and_what_is_unusable_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made when needed/views.json");
        let controllers: Vec<SocketAddrV4> = vec!["10.0.0.9:5408".parse().unwrap()];
        assert_eq!(read(&path, &controllers).unwrap(), None, "there is none");
        let head = Member { address: "10.0.0.1:5407".parse().unwrap(), incarnation: u64::MAX };
        let shard = ShardView { number: 3, founded: 1, members: vec![head], ..Default::default() };
        let views = Views { version: 7, shards: vec![shard; 8] };
        write(&path, &controllers, &views).unwrap();
        assert_eq!(read(&path, &controllers).unwrap(), Some(views.clone()));
        assert!(have_heads(&views) && !have_heads(&Views::default()));
        let other = ["10.0.0.8:5408".parse().unwrap()];
        assert!(read(&path, &other).unwrap_err().to_string().contains("other controllers"));
        let text = std::fs::read_to_string(&path).unwrap();
        for (from, to, why) in [
            ("\"format\":1", "\"format\":2", "another version"),
            ("\"format\":1", "\"form\":1", "unknown field"),
            ("[0]", "[1]", "not used"),
            ("[0]", "[]", "without a head"),
        ] {
            assert!(text.contains(from), "{text}");
            std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
            let error = read(&path, &controllers).unwrap_err().to_string();
            assert!(error.contains("views.json") && error.contains(why), "{to}: {error}");
        }
        for length in 0..text.len() {
            std::fs::write(&path, &text[..length]).unwrap();
            assert!(read(&path, &controllers).is_err(), "the first {length} bytes");
        }
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "nothing left over"
        );
    }

    #[test]
    fn a_reboot_leaves_them_only_in_a_state_directory() {
        let at = |line: &str| {
            let text = format!(
                "name = \"s1\"\nobject = \"nat.o\"\n{line}\n[[port]]\nport = 0\ninterface = \"eth0\"\n"
            );
            let config = Config::parse(Path::new("s1.toml"), &text, &[]).unwrap();
            path(&config, &RunDirectory::of("s1").unwrap())
        };
        assert_eq!(
            at("state_directory = \"/var/lib/stateplane\""),
            Path::new("/var/lib/stateplane/s1.views.json")
        );
        assert!(at("").starts_with("/run/stateplane"), "{}", at("").display());
    }
}

//! What every controller's configuration has, whatever it decides: name, address, secrets, and the
//! place where decisions are kept.

use daemon::config::{ConfigError, Problem, require, require_distinct};
use secrets::{SecretsError, SecretsFile};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use wire::KeyRing;

/// Certificates, keys and passwords are smaller.
const MOST_CREDENTIAL_BYTES: u64 = 1 << 20;

/// Where decisions are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keep {
    /// In a file of this machine: one controller.
    Database(PathBuf),
    /// In etcd: any number of controllers, one of which decides.
    Etcd(EtcdConfig),
}

/// An etcd cluster, and what a controller may do there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdConfig {
    /// The members' client URLs: `http://HOST:PORT` or `https://HOST:PORT`.
    pub endpoints: Vec<String>,
    /// What its keys begin with: another cluster, another prefix.
    pub prefix: String,
    /// Who it is to etcd, and whom it believes.
    pub access: EtcdAccess,
}

/// Files that are read each time that a controller connects, so that new certificates and passwords
/// need no restart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtcdAccess {
    /// Who signs the members' certificates (PEM); without it whoever this machine believes.
    pub ca_file: Option<PathBuf>,
    /// The controller's own certificate and its key (PEM).
    pub client_files: Option<(PathBuf, PathBuf)>,
    /// A user of etcd, and the file of its password.
    pub user: Option<(String, PathBuf)>,
}

/// What is in those files.
#[derive(Clone, Default)]
pub struct EtcdCredentials {
    /// PEM of who signs the members' certificates.
    pub ca: Option<Vec<u8>>,
    /// PEM of the controller's own certificate and of its key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
    /// A user and its password.
    pub user: Option<(String, String)>,
}

impl EtcdAccess {
    /// Reads the files; a problem names the field of the one that is at fault.
    pub fn read(&self) -> Result<EtcdCredentials, Problem> {
        let pem = |field: &str, path: &Path, what: &str, secret: bool| {
            let bytes = read_credential(field, path, secret)?;
            let marked = String::from_utf8_lossy(&bytes).lines().any(|line| {
                line.starts_with("-----BEGIN ")
                    && line.trim_end().ends_with(&format!("{what}-----"))
            });
            require(marked, field, || {
                format!("{} has no {what} in PEM form (\"-----BEGIN ...\")", path.display())
            })?;
            Ok::<_, Problem>(bytes)
        };
        let certificate = |field, path: &Path| pem(field, path, "CERTIFICATE", false);
        let ca =
            self.ca_file.as_deref().map(|path| certificate("etcd_ca_file", path)).transpose()?;
        let client = match &self.client_files {
            Some((own, key)) => Some((
                certificate("etcd_cert_file", own)?,
                pem("etcd_key_file", key, "PRIVATE KEY", true)?,
            )),
            None => None,
        };
        let user = match &self.user {
            Some((user, path)) => Some((user.clone(), password(path)?)),
            None => None,
        };
        Ok(EtcdCredentials { ca, client, user })
    }
}

fn password(path: &Path) -> Result<String, Problem> {
    const FIELD: &str = "etcd_password_file";
    let text = String::from_utf8(read_credential(FIELD, path, true)?).unwrap_or_default();
    let password = text.trim_end_matches(['\r', '\n']);
    require(!password.is_empty() && !password.contains('\n'), FIELD, || {
        format!("{} must have the password on its first line, and nothing else", path.display())
    })?;
    Ok(password.to_owned())
}

/// A file's bytes, as many as there may be; a secret must not be everybody's to read.
fn read_credential(field: &str, path: &Path, secret: bool) -> Result<Vec<u8>, Problem> {
    let shown = path.display();
    let problem = |error: std::io::Error| {
        (field.to_owned(), format!("{shown}: cannot read: {error}; check path and permissions"))
    };
    let file = std::fs::File::open(path).map_err(problem)?;
    let mode = file.metadata().map_err(problem)?.mode() & 0o7777;
    require(!secret || mode & 0o007 == 0, field, || {
        format!(
            "{shown}: mode {mode:04o} lets every user read it; `chmod o= {shown}`, and \
             replace the secret if others may have read it"
        )
    })?;
    let mut bytes = Vec::new();
    file.take(MOST_CREDENTIAL_BYTES).read_to_end(&mut bytes).map_err(problem)?;
    Ok(bytes)
}

/// What the shell needs of a configuration.
#[derive(Debug, Clone)]
pub struct ShellConfig {
    /// The controller's name, for people and for the election.
    pub name: String,
    /// The UDP address that servers and switches report to.
    pub listen: SocketAddrV4,
    /// TCP address of the metrics over HTTP.
    pub metrics: Option<SocketAddr>,
    /// The file of shared secrets, relative to the working directory.
    pub secrets: PathBuf,
    /// Where decisions are kept.
    pub keep: Keep,
}

/// The fields of [`File`].
const FIELDS: [&str; 12] = [
    "name",
    "listen",
    "metrics",
    "secrets",
    "database",
    "etcd",
    "etcd_prefix",
    "etcd_ca_file",
    "etcd_cert_file",
    "etcd_key_file",
    "etcd_user",
    "etcd_password_file",
];

#[derive(Deserialize)]
struct File {
    name: String,
    listen: SocketAddrV4,
    metrics: Option<SocketAddr>,
    secrets: PathBuf,
    database: Option<PathBuf>,
    etcd: Option<Vec<String>>,
    #[serde(default = "default_prefix")]
    etcd_prefix: String,
    etcd_ca_file: Option<PathBuf>,
    etcd_cert_file: Option<PathBuf>,
    etcd_key_file: Option<PathBuf>,
    etcd_user: Option<String>,
    etcd_password_file: Option<PathBuf>,
}

fn default_prefix() -> String {
    "/stateplane/".to_owned()
}

impl ShellConfig {
    /// Checks a file's text: the shell's part, and the fields of the rules. `path` is for messages
    /// and relative paths.
    ///
    /// # Errors
    /// They name the file, the line or field, and the remedy.
    pub fn parse<T: DeserializeOwned>(
        path: &Path,
        text: &str,
    ) -> Result<(ShellConfig, T), ConfigError> {
        let (file, rules): (File, T) = daemon::config::parse_parts(path, text, &FIELDS)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let shell =
            check(file, directory).map_err(|problem| ConfigError::in_text(path, text, problem))?;
        Ok((shell, rules))
    }

    /// Looks at the files that are named for etcd.
    ///
    /// # Errors
    /// They name the field of the file that is at fault.
    pub fn check_files(&self, path: &Path) -> Result<(), ConfigError> {
        if let Keep::Etcd(etcd) = &self.keep {
            etcd.access.read().map_err(|problem| ConfigError::field(path, problem))?;
        }
        Ok(())
    }

    /// Reads the shared secrets.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn keys(&self) -> Result<KeyRing, SecretsError> {
        Ok(SecretsFile::load(&self.secrets)?.ring().clone())
    }
}

fn check(file: File, directory: &Path) -> Result<ShellConfig, Problem> {
    require(!file.listen.ip().is_unspecified() && file.listen.port() != 0, "listen", || {
        format!("nobody can send to {}; write the machine's own address and port", file.listen)
    })?;
    let keep = check_keep(&file, directory)?;
    Ok(ShellConfig {
        name: file.name,
        listen: file.listen,
        metrics: file.metrics,
        secrets: directory.join(file.secrets),
        keep,
    })
}

fn check_keep(file: &File, directory: &Path) -> Result<Keep, Problem> {
    match (&file.database, &file.etcd) {
        (Some(path), None) => {
            let etcds = [
                ("etcd_ca_file", file.etcd_ca_file.is_some()),
                ("etcd_cert_file", file.etcd_cert_file.is_some()),
                ("etcd_key_file", file.etcd_key_file.is_some()),
                ("etcd_user", file.etcd_user.is_some()),
                ("etcd_password_file", file.etcd_password_file.is_some()),
            ];
            for (field, written) in etcds {
                require(!written, field, || {
                    "belongs to `etcd`, but decisions are kept in `database`; remove one of them"
                        .to_owned()
                })?;
            }
            Ok(Keep::Database(directory.join(path)))
        }
        (None, Some(endpoints)) => Ok(Keep::Etcd(check_etcd(file, endpoints, directory)?)),
        _ => {
            let problem = "write either `database = \"FILE\"` (one controller) or `etcd = [\"https://HOST:2379\"]` (several)";
            Err(("database".to_owned(), problem.to_owned()))
        }
    }
}

fn check_etcd(file: &File, endpoints: &[String], directory: &Path) -> Result<EtcdConfig, Problem> {
    let endpoints =
        endpoints.iter().map(|endpoint| check_endpoint(endpoint)).collect::<Result<Vec<_>, _>>()?;
    require(!endpoints.is_empty(), "etcd", || "is empty; write at least one address".to_owned())?;
    // Each is asked in turn, for as long as a member may take: one written twice is waited for
    // twice. Hosts' names are the same in any case.
    let plainly: Vec<_> = endpoints.iter().map(|endpoint| endpoint.to_ascii_lowercase()).collect();
    require_distinct(&plainly, "etcd", "member")?;
    let prefix = file.etcd_prefix.clone();
    require(prefix.starts_with('/') && prefix.ends_with('/'), "etcd_prefix", || {
        format!("\"{prefix}\" must begin and end with a slash (default \"/stateplane/\")")
    })?;
    let plain = endpoints.iter().find(|endpoint| !endpoint.starts_with("https://"));
    for (field, given) in
        [("etcd_ca_file", &file.etcd_ca_file), ("etcd_cert_file", &file.etcd_cert_file)]
    {
        if let (Some(_), Some(plain)) = (given, plain) {
            let problem = format!(
                "is for TLS, but {plain} is without TLS; write every endpoint of `etcd` with https://"
            );
            return Err((field.to_owned(), problem));
        }
    }
    let in_directory = |path: &PathBuf| directory.join(path);
    let client_files = both(
        ("etcd_cert_file", file.etcd_cert_file.as_ref().map(in_directory)),
        ("etcd_key_file", file.etcd_key_file.as_ref().map(in_directory)),
    )?;
    let user = both(
        ("etcd_user", file.etcd_user.clone().filter(|user| !user.is_empty())),
        ("etcd_password_file", file.etcd_password_file.as_ref().map(in_directory)),
    )?;
    let ca_file = file.etcd_ca_file.as_ref().map(in_directory);
    Ok(EtcdConfig { endpoints, prefix, access: EtcdAccess { ca_file, client_files, user } })
}

/// Two fields that have no meaning without each other.
fn both<A, B>(
    first: (&str, Option<A>),
    second: (&str, Option<B>),
) -> Result<Option<(A, B)>, Problem> {
    let without = |missing: &str, written: &str| {
        Err((
            missing.to_owned(),
            format!("is missing, but `{written}` needs it; write both or neither"),
        ))
    };
    match (first, second) {
        ((_, Some(first)), (_, Some(second))) => Ok(Some((first, second))),
        ((_, None), (_, None)) => Ok(None),
        ((written, Some(_)), (missing, None)) => without(missing, written),
        ((missing, None), (written, Some(_))) => without(missing, written),
    }
}

/// An endpoint as a URL.
fn check_endpoint(endpoint: &str) -> Result<String, Problem> {
    let (scheme, rest) = match endpoint.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => {
            (scheme, rest.strip_suffix('/').unwrap_or(rest))
        }
        Some(_) => ("", ""),
        None => ("http", endpoint),
    };
    let (host, port) = rest.rsplit_once(':').unwrap_or_default();
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match in_brackets {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        }
    };
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit())
        && port.parse::<u16>().is_ok_and(|port| port != 0);
    require(!scheme.is_empty() && is_host && is_port, "etcd", || {
        format!(
            "\"{endpoint}\" is not an address; write it as \"https://etcd1.example.net:2379\", or \"http://10.0.0.1:2379\" (without TLS)"
        )
    })?;
    Ok(format!("{scheme}://{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const ETCD: &str = "name = \"c\"\nlisten = \"127.0.0.1:5408\"\nsecrets = \"s\"\n";

    fn etcd(text: &str) -> Result<Config, ConfigError> {
        Config::parse(Path::new("/etc/c.toml"), &format!("{ETCD}{text}"))
    }

    #[test]
    fn endpoints_are_urls_of_names_or_addresses() {
        let good = r#"etcd = ["10.0.0.1:2379", "http://e1:2379/", "https://e2.example.net:1", "https://[::1]:2379"]"#;
        let Keep::Etcd(found) = etcd(good).unwrap().shell.keep else { panic!("etcd") };
        let wanted = [
            "http://10.0.0.1:2379",
            "http://e1:2379",
            "https://e2.example.net:1",
            "https://[::1]:2379",
        ];
        assert_eq!(found.endpoints, wanted);
        for bad in [
            "e1",
            "http://e1",
            "ftp://e1:1",
            "http://e1:0",
            "http://e1:65536",
            "https://a/b:1",
            "http://:1",
            "::1:1",
            "http://[e]:1",
            "http://e:+1",
            "http://u@e:1",
        ] {
            let error = etcd(&format!("etcd = [\"{bad}\"]")).unwrap_err().to_string();
            assert!(
                error.contains(": etcd: ") && error.contains(bad) && error.contains("https://"),
                "{error}"
            );
        }
        assert!(etcd("etcd = []").unwrap_err().to_string().contains("at least one"));
        // The same, however it is written.
        for twice in [
            r#"etcd = ["http://e1:2379", "http://e2:2379", "http://e1:2379"]"#,
            r#"etcd = ["e1:2379", "http://e1:2379"]"#,
            r#"etcd = ["http://e1:2379/", "http://E1:2379"]"#,
        ] {
            let error = etcd(twice).unwrap_err().to_string();
            assert_eq!(
                error,
                format!(
                    "/etc/c.toml: line {}: etcd: http://e1:2379 is given twice; write each \
                     member once",
                    1 + ETCD.matches('\n').count()
                )
            );
        }
        assert!(etcd(r#"etcd = ["http://e1:2379", "http://e1:2380", "http://e2:2379"]"#).is_ok());
    }

    #[test]
    fn credentials_of_etcd_are_whole_and_for_what_they_are() {
        let whole = "etcd = [\"https://e:1\"]\netcd_ca_file = \"ca\"\netcd_cert_file = \"/c\"\netcd_key_file = \"k\"\netcd_user = \"u\"\netcd_password_file = \"p\"\n";
        let Keep::Etcd(found) = etcd(whole).unwrap().shell.keep else { panic!("etcd") };
        assert_eq!(found.access.ca_file.as_deref(), Some(Path::new("/etc/ca")));
        assert_eq!(found.access.client_files, Some(("/c".into(), "/etc/k".into())));
        assert_eq!(found.access.user, Some(("u".to_owned(), "/etc/p".into())));
        for (from, to, field, remedy) in [
            ("https://e:1\"", "https://e:1\", \"http://f:1\"", "etcd_ca_file", "http://f:1"),
            ("etcd_cert_file = \"/c\"\n", "", "etcd_cert_file", "`etcd_key_file` needs it"),
            ("etcd_key_file = \"k\"\n", "", "etcd_key_file", "`etcd_cert_file` needs it"),
            ("etcd_user = \"u\"\n", "", "etcd_user", "`etcd_password_file` needs it"),
            ("etcd_password_file = \"p\"\n", "", "etcd_password_file", "`etcd_user` needs it"),
            ("etcd_user = \"u\"", "etcd_user = \"\"", "etcd_user", "both or neither"),
        ] {
            assert!(whole.contains(from), "{from}");
            let error = etcd(&whole.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(&format!(": {field}: ")) && error.contains(remedy), "{error}");
        }
        let plain = etcd("etcd = [\"http://e:1\"]\netcd_cert_file = \"c\"\netcd_key_file = \"k\"")
            .unwrap_err();
        assert!(plain.to_string().contains(": etcd_cert_file: is for TLS"), "{plain}");
    }

    #[test]
    fn files_for_etcd_are_looked_at_when_the_configuration_is_loaded() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.toml");
        let write = |name: &str, text: &str, mode: u32| {
            let file = directory.path().join(name);
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        };
        let fault = || Config::load(&path).map(drop).unwrap_err().to_string();
        let text = "etcd = [\"https://e:1\"]\netcd_ca_file = \"ca\"\netcd_cert_file = \"c\"\netcd_key_file = \"k\"\netcd_user = \"u\"\netcd_password_file = \"p\"\n";
        write("c.toml", &format!("{ETCD}{text}"), 0o644);
        assert!(
            fault().contains("etcd_ca_file: ") && fault().contains("/ca: cannot read: "),
            "{}",
            fault()
        );
        write("ca", "no PEM", 0o644);
        assert!(
            fault().contains("etcd_ca_file: ") && fault().contains("no CERTIFICATE in PEM form"),
            "{}",
            fault()
        );
        let certificate = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        write("ca", certificate, 0o644);
        write("c", certificate, 0o644);
        write("k", certificate, 0o640);
        assert!(
            fault().contains("etcd_key_file: ") && fault().contains("no PRIVATE KEY"),
            "{}",
            fault()
        );
        write("k", "-----BEGIN EC PRIVATE KEY-----\n", 0o644);
        assert!(fault().contains("etcd_key_file: ") && fault().contains("chmod o="), "{}", fault());
        write("k", "-----BEGIN EC PRIVATE KEY-----\n", 0o640);
        write("p", "\n", 0o600);
        assert!(
            fault().contains("etcd_password_file: ") && fault().contains("first line"),
            "{}",
            fault()
        );
        write("p", "pass word\n", 0o600);
        let Keep::Etcd(found) = Config::load(&path).unwrap().shell.keep else { panic!("etcd") };
        assert_eq!(
            found.access.read().unwrap().user,
            Some(("u".to_owned(), "pass word".to_owned()))
        );
    }
}

//! An etcd cluster's members, asked in turn, each for a limited time.

use crate::config::{EtcdAccess, Problem};
use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};
use std::future::Future;
use std::time::Duration;

/// For connecting to a member (and logging in), and again for each question.
pub(super) const TIMEOUT: Duration = Duration::from_millis(500);

/// The members. Each has a connection of its own, so that an error is some member's.
pub(super) struct Cluster {
    members: Vec<Member>,
    access: EtcdAccess,
}

struct Member {
    url: String,
    client: Option<Client>,
}

impl Cluster {
    /// Nothing is connected yet.
    pub(super) fn new(endpoints: Vec<String>, access: EtcdAccess) -> Cluster {
        let members = endpoints.into_iter().map(|url| Member { url, client: None }).collect();
        Cluster { members, access }
    }

    /// Asks the members in turn; the one that answered is asked first the next time. If none did,
    /// the error names them all.
    pub(super) async fn ask<T>(
        &mut self,
        question: impl AsyncFn(Client) -> Result<T, Error>,
    ) -> Result<T, String> {
        let mut problems = Vec::new();
        for at in 0..self.members.len() {
            match self.members[at].ask(&self.access, &question).await {
                Ok(answer) => {
                    self.members.swap(0, at);
                    return Ok(answer);
                }
                Err(problem) => problems.push(format!("{}: {problem}", self.members[at].url)),
            }
        }
        problems.sort();
        Err(problems.join("; "))
    }
}

impl Member {
    async fn ask<T>(
        &mut self,
        access: &EtcdAccess,
        question: &impl AsyncFn(Client) -> Result<T, Error>,
    ) -> Result<T, String> {
        let client = match self.client.take() {
            Some(client) => client,
            None => {
                let options = options(access, &self.url)
                    .map_err(|(field, problem)| format!("{field}: {problem}"))?;
                in_time(Client::connect([&self.url], Some(options))).await?
            }
        };
        let answer = in_time(question(client.clone())).await?;
        // After an error it connects, and logs in, anew: with the files as they are then.
        self.client = Some(client);
        Ok(answer)
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    match tokio::time::timeout(TIMEOUT, work).await {
        Ok(done) => done.map_err(|error| reason(&error)),
        Err(_) => Err(format!("no answer within {} ms", TIMEOUT.as_millis())),
    }
}

fn options(access: &EtcdAccess, url: &str) -> Result<ConnectOptions, Problem> {
    let credentials = access.read()?;
    // A member that is cut off from the others says so, rather than wait for them.
    let mut options = ConnectOptions::new().with_connect_timeout(TIMEOUT).with_require_leader(true);
    if url.starts_with("https://") {
        let mut tls = match credentials.ca {
            Some(pem) => TlsOptions::new().ca_certificate(Certificate::from_pem(pem)),
            None => TlsOptions::new().with_native_roots(),
        };
        if let Some((certificate, key)) = credentials.client {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        options = options.with_tls(tls);
    }
    if let Some((user, password)) = credentials.user {
        options = options.with_user(user, password).with_auto_token_refresh(true);
    }
    Ok(options)
}

/// What went wrong, for people: the message, and the innermost cause if that says more ("Connection
/// refused", "invalid peer certificate: …").
fn reason(error: &Error) -> String {
    let (message, error): (_, &dyn std::error::Error) = match error {
        Error::GRpcStatus(status) => (status.message().to_owned(), status),
        Error::TransportError(transport) => (transport.to_string(), transport),
        other => return other.to_string(),
    };
    let mut cause = error.source();
    while let Some(deeper) = cause.and_then(|cause| cause.source()) {
        cause = Some(deeper);
    }
    match cause.map(ToString::to_string) {
        Some(cause) if !message.contains(&cause) => format!("{message}: {cause}"),
        _ => message,
    }
}

//! Decisions in etcd, and the election of the controller that decides.
//!
//! What makes two controllers safe is not the election but that each write names the revision that
//! it replaces; the election only keeps them from deciding against each other all the time.

mod cluster;
mod leadership;
mod thread;

pub use leadership::Leadership;
pub use thread::EtcdThread;

use super::now_ns;
use super::rules::{Decision, Input};
use crate::config::EtcdConfig;

use cluster::{Cluster, TIMEOUT};
use etcd_client::{Client, Compare, CompareOp, Error, GetOptions, PutOptions, Txn, TxnOp};
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// How often the leader says that it still is, and the others look.
const EVERY: Duration = Duration::from_millis(300);
/// Without a word of the leader for so long there is none. etcd makes it longer if its own
/// elections take longer.
const LEADER_TTL_S: i64 = 2;
/// A leader believes in itself for that much less than its lease lasts.
const MARGIN: Duration = TIMEOUT;
/// For giving the lease back, at the end, whatever members do not answer.
const RESIGN: Duration = Duration::from_millis(800);
/// Problems that are remembered as told.
const MOST_TOLD: usize = 32;

/// What the etcd thread tells the controller.
#[derive(Debug)]
pub enum Told<D> {
    /// To be given to the rules.
    Input(Input<'static, D>),
    /// etcd was read just now; whether it has a decision.
    Read {
        /// It has.
        found: bool,
    },
    /// etcd had a decision, and has it no more.
    Missing(String),
    /// The decision was not written.
    Refused {
        /// What etcd has, if that could be read.
        found: Option<D>,
        /// The reason.
        why: String,
    },
}

/// An etcd cluster as a controller uses it.
pub struct Etcd<D> {
    /// Of this thread alone; there until the end.
    runtime: Option<Runtime>,
    keeper: Keeper<D>,
}

impl<D: Decision> Etcd<D> {
    /// Nothing is asked yet. `me` names this process to people who look into etcd. Fails if the
    /// system has no descriptors left.
    pub fn new(config: &EtcdConfig, me: String) -> std::io::Result<Etcd<D>> {
        // The pool is for looking up names only.
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(4).build()?;
        let (key, leader_key) =
            (format!("{}{}", config.prefix, D::NAME), format!("{}leader", config.prefix));
        let keeper = Keeper {
            cluster: Cluster::new(config.endpoints.clone(), config.access.clone()),
            key,
            leader_key,
            me,
            revision: 0,
            version: 0,
            lease: None,
            leading: false,
            leadership: Arc::default(),
            told: BTreeSet::new(),
            erred: false,
            decision: PhantomData,
        };
        Ok(Etcd { runtime: Some(runtime), keeper })
    }

    /// Whether it leads, and until when: for the thread that decides.
    pub fn leadership(&self) -> Arc<Leadership> {
        self.keeper.leadership.clone()
    }

    /// Runs until the controller is gone, or has hung up on `stop`: writes what comes in, keeps up
    /// the election, reads what another controller wrote. What it is doing then it leaves half
    /// done, as if the process had died: the lead is given back, and no more.
    pub fn run(
        mut self,
        decisions: &Receiver<D>,
        told: &Sender<Told<D>>,
        mut stop: oneshot::Receiver<()>,
    ) {
        let mut look_at = Instant::now();
        loop {
            let news = match decisions
                .recv_timeout(look_at.saturating_duration_since(Instant::now()))
            {
                Ok(decision) => {
                    let write = async |keeper: &mut Keeper<D>| vec![keeper.write(&decision).await];
                    self.work_until(&mut stop, write)
                }
                Err(RecvTimeoutError::Timeout) => {
                    look_at = Instant::now() + EVERY;
                    self.work_until(&mut stop, async |keeper| keeper.look().await)
                }
                Err(RecvTimeoutError::Disconnected) => None,
            };
            let Some(news) = news else { break };
            if news.into_iter().any(|input| told.send(input).is_err()) {
                break;
            }
        }
        self.work(async |keeper| keeper.resign().await);
    }

    /// Writes the decision in the place of that which was last read or written, and only then.
    pub(super) fn write(&mut self, decision: &D) -> Told<D> {
        let gone = || Told::Refused { found: None, why: "the etcd client has ended".to_owned() };
        self.work(async |keeper| keeper.write(decision).await).unwrap_or_else(gone)
    }

    /// The decision that etcd has.
    pub(super) fn read(&mut self) -> Result<Option<D>, String> {
        self.work(async |keeper| keeper.read().await).unwrap_or(Ok(None))
    }

    fn work<T>(&mut self, work: impl AsyncFnOnce(&mut Keeper<D>) -> T) -> Option<T> {
        let keeper = &mut self.keeper;
        self.runtime.as_ref().map(|runtime| runtime.block_on(work(keeper)))
    }

    /// None: it is to stop. Must not be called after that.
    fn work_until<T>(
        &mut self,
        stop: &mut oneshot::Receiver<()>,
        work: impl AsyncFnOnce(&mut Keeper<D>) -> T,
    ) -> Option<T> {
        let until = async |keeper: &mut Keeper<D>| {
            tokio::select! {
                biased;
                _ = stop => None,
                done = work(keeper) => Some(done),
            }
        };
        self.work(until).flatten()
    }
}

impl<D> Drop for Etcd<D> {
    fn drop(&mut self) {
        // Without waiting for a name server that does not answer.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// A lease that etcd has given.
#[derive(Debug, Clone, Copy)]
struct Lease {
    id: i64,
    ttl_ns: u64,
    /// When etcd was last asked, with success, to let it begin anew: etcd counts from later on.
    asked_ns: u64,
}

struct Keeper<D> {
    cluster: Cluster,
    key: String,
    leader_key: String,
    me: String,
    /// `mod_revision` of the decision that was last read or written; 0: there is none.
    revision: i64,
    /// Its version.
    version: u64,
    lease: Option<Lease>,
    leading: bool,
    leadership: Arc<Leadership>,
    /// Problems that were logged since all was well.
    told: BTreeSet<String>,
    /// Something failed in this look.
    erred: bool,
    decision: PhantomData<D>,
}

impl<D: Decision> Keeper<D> {
    async fn look(&mut self) -> Vec<Told<D>> {
        let mut news = Vec::new();
        self.erred = false;
        // Read before it leads: who decides must have seen the newest decision.
        if self.leading {
            news.extend(self.still_there().await);
        } else {
            self.load(&mut news).await;
        }
        let leads_until = match self.elect().await {
            Ok(until) => until,
            Err(problem) => {
                self.log(problem);
                // What etcd said before holds until its time is over, and no longer.
                self.leading.then_some(0)
            }
        };
        let leading = match leads_until {
            Some(until) if self.leading => self.leadership.renew(now_ns(), until),
            // Written between our reading and our election.
            Some(until) => self.load(&mut news).await && self.begin(until),
            None => false,
        };
        if leading != std::mem::replace(&mut self.leading, leading) {
            if !leading {
                self.leadership.end();
            }
            tracing::info!(name = self.me, leading, "election");
            news.push(Told::Input(Input::Leading(leading)));
        }
        if !self.erred && !self.told.is_empty() {
            tracing::info!(name = self.me, "etcd answers again");
            self.told.clear();
        }
        news
    }

    fn begin(&self, until_ns: u64) -> bool {
        self.leadership.begin(until_ns);
        true
    }

    /// Whether etcd could be read.
    async fn load(&mut self, news: &mut Vec<Told<D>>) -> bool {
        match self.read().await {
            Ok(Some(decision)) => {
                news.extend([Told::Input(Input::Loaded(decision)), Told::Read { found: true }])
            }
            Ok(None) => {
                news.extend([Told::Read { found: false }].into_iter().chain(self.missing()))
            }
            Err(problem) => {
                self.log(problem);
                return false;
            }
        }
        true
    }

    /// Whether the decision that was read or written is there still: asked without reading it, so
    /// that no write can take the place of what was not seen.
    async fn still_there(&mut self) -> Option<Told<D>> {
        let key = self.key.as_str();
        let count = async |client: Client| {
            let options = GetOptions::new().with_count_only();
            Ok(client.kv_client().get(key, Some(options)).await?.count())
        };
        match self.cluster.ask(count).await {
            Ok(0) => self.missing(),
            Ok(_) => Some(Told::Read { found: true }),
            Err(problem) => {
                self.log(problem);
                None
            }
        }
    }

    fn missing(&self) -> Option<Told<D>> {
        let lost =
            format!("etcd has lost its {}: this controller decides nothing. {}", self.key, D::LOST);
        (self.revision != 0).then_some(Told::Missing(lost))
    }

    fn log(&mut self, problem: String) {
        self.erred = true;
        if self.told.len() < MOST_TOLD && self.told.insert(problem.clone()) {
            tracing::error!(name = self.me, problem, "etcd");
        }
    }

    async fn write(&mut self, decision: &D) -> Told<D> {
        let other = format!(
            "the {} in etcd changed or were lost after this decision was based on them",
            self.key
        );
        // It goes by a decision that is not the one whose revision is known here: another
        // controller's was read meanwhile.
        let why = if decision.version() <= self.version {
            other
        } else {
            match self.replace(decision).await {
                Ok(Some(revision)) => {
                    (self.revision, self.version) = (revision, decision.version());
                    return Told::Input(Input::Persisted);
                }
                Ok(None) => other,
                Err(problem) => problem,
            }
        };
        // Not known whether it was written: what is there now tells.
        match self.read().await {
            Ok(Some(found)) if found == *decision => Told::Input(Input::Persisted),
            Ok(found) => Told::Refused { found, why },
            Err(problem) => Told::Refused { found: None, why: problem },
        }
    }

    /// The revision of the decision that is written now; none if another is there than that which
    /// it was to replace.
    async fn replace(&mut self, decision: &D) -> Result<Option<i64>, String> {
        let (key, revision) = (self.key.as_str(), self.revision);
        let bytes = decision.to_bytes();
        let write = async |client: Client| {
            let unchanged = Compare::mod_revision(key, CompareOp::Equal, revision);
            let put = TxnOp::put(key, bytes.clone(), None);
            let answer =
                client.kv_client().txn(Txn::new().when([unchanged]).and_then([put])).await?;
            let written = answer.header().map_or(0, |header| header.revision());
            Ok(answer.succeeded().then_some(written))
        };
        self.cluster.ask(write).await
    }

    async fn read(&mut self) -> Result<Option<D>, String> {
        let key = self.key.as_str();
        let answer = self
            .cluster
            .ask(async |client: Client| client.kv_client().get(key, None).await)
            .await?;
        let Some(found) = answer.kvs().first() else { return Ok(None) };
        let decision = D::from_bytes(found.value())
            .ok_or_else(|| format!("{key}: its value was not written by this program"))?;
        (self.revision, self.version) = (found.mod_revision(), decision.version());
        Ok(Some(decision))
    }

    /// Until when this process leads, if it does: its key is there with its lease, or nobody's is
    /// and now its own is.
    async fn elect(&mut self) -> Result<Option<u64>, String> {
        // Without the lease that it was elected with others may have led meanwhile: it begins anew,
        // by reading.
        if self.leading && !self.keep_lease().await? {
            return Ok(None);
        }
        let key = self.leader_key.as_str();
        let answer = self
            .cluster
            .ask(async |client: Client| client.kv_client().get(key, None).await)
            .await?;
        let own =
            |lease: &Lease| answer.kvs().first().is_some_and(|leader| leader.lease() == lease.id);
        let leads = match (self.lease, answer.kvs().first()) {
            (_, None) => !self.leading && self.claim().await?,
            (Some(lease), Some(_)) if own(&lease) => self.leading || self.keep_lease().await?,
            _ => false,
        };
        let until =
            |lease: Lease| (lease.asked_ns + lease.ttl_ns).saturating_sub(MARGIN.as_nanos() as u64);
        Ok(self.lease.filter(|_| leads).map(until))
    }

    /// Takes the lead that nobody has; false if another was faster.
    async fn claim(&mut self) -> Result<bool, String> {
        if !self.keep_lease().await? {
            let asked_ns = now_ns();
            let grant =
                async |client: Client| client.lease_client().grant(LEADER_TTL_S, None).await;
            let granted = self.cluster.ask(grant).await?;
            let ttl_ns = u64::try_from(granted.ttl()).unwrap_or(0).saturating_mul(1_000_000_000);
            self.lease = Some(Lease { id: granted.id(), ttl_ns, asked_ns });
        }
        let Some(lease) = self.lease else { return Ok(false) };
        let (key, me) = (self.leader_key.as_str(), self.me.as_str());
        let claim = async |client: Client| {
            let free = Compare::create_revision(key, CompareOp::Equal, 0);
            let put = TxnOp::put(key, me, Some(PutOptions::new().with_lease(lease.id)));
            Ok(client.kv_client().txn(Txn::new().when([free]).and_then([put])).await?.succeeded())
        };
        self.cluster.ask(claim).await
    }

    /// Gives the lease back, and with it the lead, if it has one: another may lead from now on.
    async fn resign(&mut self) {
        self.leadership.end();
        let Some(lease) = self.lease.take() else { return };
        let revoke =
            self.cluster.ask(async |client: Client| client.lease_client().revoke(lease.id).await);
        let revoked = tokio::time::timeout(RESIGN, revoke).await;
        match revoked.unwrap_or_else(|_| Err(format!("no answer within {} ms", RESIGN.as_millis())))
        {
            Ok(_) => {
                tracing::info!(name = self.me, "gave its lease back: another controller may lead")
            }
            Err(problem) => {
                tracing::warn!(
                    name = self.me,
                    problem,
                    "could not give its lease back: no controller leads until the lease is over"
                );
            }
        }
    }

    /// Lets the lease begin anew; false if there is none, or none any more.
    async fn keep_lease(&mut self) -> Result<bool, String> {
        let Some(mut lease) = self.lease else { return Ok(false) };
        // A question of its own each time: an answer that comes late is not taken for that to a
        // later one.
        lease.asked_ns = now_ns();
        let keep = async |client: Client| match client.lease_client().keep_alive(lease.id).await {
            Ok(_) => Ok(true),
            Err(Error::LeaseKeepAliveError(_)) => Ok(false),
            Err(error) => Err(error),
        };
        let kept = self.cluster.ask(keep).await?;
        self.lease = kept.then_some(lease);
        Ok(kept)
    }
}

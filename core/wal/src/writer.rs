//! The thread that writes and synchronises. While it waits for the disk, the next batch gathers:
//! group commit. So an update waits for one or two synchronisations, and a slow disk makes batches
//! larger, not the server slower.

use super::frame::{BATCH_HEADER_BYTES, FILE_HEADER_BYTES, FileHeader, batch_header};
use super::{Directory, SUFFIX, WalError};
use daemon::metrics::Histogram;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

const SYNC_BOUNDS_S: [f64; 10] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0];

/// What the log has done; any thread may read it.
#[derive(Debug)]
pub struct Stats {
    /// Batches written and synchronised.
    pub batches: AtomicU64,
    /// Bytes written.
    pub bytes: AtomicU64,
    /// Bytes of the files that there are.
    pub disk_bytes: AtomicU64,
    /// Checkpoints completed.
    pub checkpoints: AtomicU64,
    /// How long writing and synchronising a batch took.
    pub sync_seconds: Histogram<10>,
}

#[derive(Default)]
struct Queue {
    items: Vec<u8>,
    ticket: u64,
    /// A checkpoint begins: a new file before these items.
    rotate: bool,
    /// The checkpoint is durable: the files before it can go.
    remove_old: bool,
    stop: bool,
    done: u64,
    error: Option<WalError>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    done: AtomicU64,
    failed: AtomicU64,
    wake: EventFd,
    stats: Stats,
}

impl Shared {
    /// A poisoned lock means that the writer panicked; `done` grows no more, and what there is
    /// stays readable.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }
}

/// The store's end of the log.
pub struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Begins to write in `directory`: a new file, whose header is `header`, behind the files that
    /// there are.
    pub fn start(
        directory: Directory,
        header: FileHeader,
        old_files: Vec<PathBuf>,
    ) -> Result<Writer, WalError> {
        let path = directory.path.clone();
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(|error| WalError::system(&path, "making an event descriptor")(error.into()))?;
        let stats = Stats {
            batches: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            disk_bytes: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            sync_seconds: Histogram::new(SYNC_BOUNDS_S, 1e-9),
        };
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            wake,
            stats,
        });
        let mut files = Files::begin(directory, header, old_files)?;
        shared.stats.disk_bytes.store(files.bytes(), Ordering::Relaxed);
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("wal".to_owned())
            .spawn(move || write(&of_thread, &mut files));
        let thread = Some(thread.map_err(WalError::system(&path, "starting the log's thread"))?);
        Ok(Writer { shared, thread })
    }

    /// Has `items` written behind all before; they become durable with `ticket`. `rotate`: in a new
    /// file.
    pub fn append(&self, ticket: u64, items: &[u8], rotate: bool) {
        let mut queue = self.shared.lock();
        queue.items.extend_from_slice(items);
        queue.ticket = ticket;
        queue.rotate |= rotate;
        drop(queue);
        self.shared.changed.notify_all();
    }

    /// The newest ticket that is durable.
    pub fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Acquire)
    }

    /// Waits until `ticket` is durable, or the log has failed.
    pub fn wait(&self, ticket: u64) {
        let mut queue = self.shared.lock();
        while queue.done < ticket
            && queue.error.is_none()
            && self.shared.failed.load(Ordering::Acquire) == 0
        {
            queue = self.shared.wait(queue);
        }
    }

    /// Why nothing becomes durable any more. What the kernel said it could not write may be lost:
    /// the server must not go on (Rebello et al., "Can Applications Recover from fsync Failures?",
    /// ATC '20).
    pub fn error(&self) -> Option<WalError> {
        if self.shared.failed.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.shared.lock().error.take()
    }

    /// Readable when `done` has grown; `quiet` makes it not so.
    pub fn descriptor(&self) -> RawFd {
        self.shared.wake.as_raw_fd()
    }

    /// Takes note.
    pub fn quiet(&self) {
        let _ = self.shared.wake.read(); // would block: nothing to take note of
    }

    /// The files before the last `rotate` are needed no more.
    pub fn remove_old(&self) {
        self.shared.lock().remove_old = true;
        self.shared.changed.notify_all();
    }

    /// What it has done.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }
}

impl Drop for Writer {
    /// Everything that was appended is written first.
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it panics nowhere; if it does, its message is in the log
        }
    }
}

fn write(shared: &Shared, files: &mut Files) {
    let mut items = Vec::new();
    loop {
        let mut queue = shared.lock();
        while queue.items.is_empty() && !queue.stop && !queue.remove_old {
            queue = shared.wait(queue);
        }
        if queue.items.is_empty() && queue.stop {
            return;
        }
        std::mem::swap(&mut items, &mut queue.items);
        let ticket = queue.ticket;
        let rotate = std::mem::take(&mut queue.rotate);
        let remove_old = std::mem::take(&mut queue.remove_old);
        drop(queue);
        let result = write_once(shared, files, &items, rotate, remove_old);
        items.clear();
        let mut queue = shared.lock();
        match result {
            Ok(()) => {
                queue.done = ticket;
                shared.done.store(ticket, Ordering::Release);
            }
            Err(error) => {
                queue.error = Some(error);
                shared.failed.store(1, Ordering::Release);
            }
        }
        drop(queue);
        shared.changed.notify_all();
        let _ = shared.wake.write(1); // fails only when it is readable already
        if shared.failed.load(Ordering::Acquire) != 0 {
            return;
        }
    }
}

fn write_once(
    shared: &Shared,
    files: &mut Files,
    items: &[u8],
    rotate: bool,
    remove_old: bool,
) -> Result<(), WalError> {
    let stats = &shared.stats;
    if remove_old {
        files.remove_old()?;
        stats.checkpoints.fetch_add(1, Ordering::Relaxed);
    }
    if rotate {
        files.rotate()?;
    }
    if !items.is_empty() {
        let start = Instant::now();
        files.append(items)?;
        stats.sync_seconds.observe(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        stats.batches.fetch_add(1, Ordering::Relaxed);
        stats.bytes.fetch_add((items.len() + BATCH_HEADER_BYTES) as u64, Ordering::Relaxed);
    }
    stats.disk_bytes.store(files.bytes(), Ordering::Relaxed);
    Ok(())
}

/// The files of a log, the last of which is written to.
struct Files {
    directory: Directory,
    header: FileHeader,
    old: Vec<(PathBuf, u64)>,
    path: PathBuf,
    file: File,
    length: u64,
    next_batch: u64,
}

impl Files {
    fn begin(
        directory: Directory,
        header: FileHeader,
        old: Vec<PathBuf>,
    ) -> Result<Files, WalError> {
        let size =
            |path: PathBuf| (path.clone(), path.metadata().map_or(0, |metadata| metadata.len()));
        let (path, file) = create(&directory, &header)?;
        // A file that was made just before power was lost, and in which nothing is, has this name
        // too.
        let old = old.into_iter().filter(|old| *old != path).map(size).collect();
        let length = FILE_HEADER_BYTES as u64;
        Ok(Files { directory, header, old, path, file, length, next_batch: header.first_batch })
    }

    fn bytes(&self) -> u64 {
        self.length + self.old.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    fn rotate(&mut self) -> Result<(), WalError> {
        if self.next_batch == self.header.first_batch {
            return Ok(()); // it is new
        }
        self.header.first_batch = self.next_batch;
        let (path, file) = create(&self.directory, &self.header)?;
        self.old.push((std::mem::replace(&mut self.path, path), self.length));
        (self.file, self.length) = (file, FILE_HEADER_BYTES as u64);
        Ok(())
    }

    fn append(&mut self, items: &[u8]) -> Result<(), WalError> {
        let header = batch_header(self.next_batch, items);
        self.file.write_all(&header).map_err(WalError::system(&self.path, "writing"))?;
        self.file.write_all(items).map_err(WalError::system(&self.path, "writing"))?;
        self.file.sync_data().map_err(WalError::system(&self.path, "synchronising"))?;
        self.length += (header.len() + items.len()) as u64;
        self.next_batch += 1;
        Ok(())
    }

    fn remove_old(&mut self) -> Result<(), WalError> {
        // Oldest first: what is left after a power cut is without a hole.
        for (path, _) in std::mem::take(&mut self.old) {
            std::fs::remove_file(&path).map_err(WalError::system(&path, "removing"))?;
        }
        sync_directory(&self.directory.path)
    }
}

/// Makes a file with that header, durable with its name.
fn create(directory: &Directory, header: &FileHeader) -> Result<(PathBuf, File), WalError> {
    let path = directory.path.join(format!("{:016x}{SUFFIX}", header.first_batch));
    let file = File::options().create(true).truncate(true).write(true).open(&path);
    let mut file = file.map_err(WalError::system(&path, "making"))?;
    file.write_all(&header.encode()).map_err(WalError::system(&path, "writing"))?;
    file.sync_all().map_err(WalError::system(&path, "synchronising"))?;
    sync_directory(&directory.path)?;
    Ok((path, file))
}

fn sync_directory(path: &Path) -> Result<(), WalError> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(WalError::system(path, "synchronising"))
}

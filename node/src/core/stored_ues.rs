//! Registered UEs on the disk, for the next start: written when the core stops in order and, if the configuration asks for it, all the time, by a thread of
//! its own (docs/unit.md).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::{error, info, warn};
use whimbrel_control::UeId;
use whimbrel_control::udm::Subscribers;
use whimbrel_ids::Instant;
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{Cta, Entropy, Inspect, Outbox, StoredAmf, StoredUes, SurvivingState, ToStore};
use whimbrel_store::{SealedLog, SealedLogError};

use crate::config::{KeepUes, StoreConfig};
use crate::observation::{Console, Metric};

/// A log that is so many times as long as the UEs in it is written again.
const LENGTH_MAX: u64 = 4;
/// But not one that is shorter than this: it is read in some milliseconds.
const LENGTH_SHORT: u64 = 4 << 20;

/// Pause after a failure to write.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The file of stored UEs.
pub(super) struct StoredUeFile {
    path: PathBuf,
    key_file: PathBuf,
    always: bool,
    /// Writer of the changes, where they are written all the time.
    writer: Option<StoreWriter>,
    /// What has changed since the last turn.
    changed: Vec<ToStore>,
    /// The core stops: the UEs that were sent for the file, and the CPFs that have sent all.
    collected: Option<CollectedUes>,
}

#[derive(Default)]
struct CollectedUes {
    ues: BTreeMap<UeId, ToStore>,
    complete: BTreeSet<CpfId>,
}

/// Where the file is.
pub fn path_of(store: &Path) -> PathBuf {
    store.with_extension("ues")
}

impl StoredUeFile {
    /// The file of a core, if it keeps one. A file that an earlier configuration has left is deleted: nothing would update it.
    pub(super) fn of(store: &StoreConfig) -> Option<Self> {
        let path = path_of(&store.path);
        if store.keep_ues == KeepUes::Never {
            if let Err(e) = SealedLog::remove(&path) {
                warn!("the UEs of an earlier run cannot be deleted: {e}");
            }
            return None;
        }
        let (key_file, always) = (store.key_in_force(), store.keep_ues == KeepUes::Always);
        Some(Self { path, key_file, always, writer: None, changed: Vec::new(), collected: None })
    }

    /// Whether UEs are written all the time.
    pub(super) fn is_continuous(&self) -> bool {
        self.always
    }

    /// A new core begins with the UEs of the run before. When this returns, the file says no more that they are as that run left them: no later start may
    /// take it for that (TS 33.501 §6.4.3.1). `surviving`: what of that run's peers has not stopped.
    pub(super) fn restore<S: Subscribers, E: Entropy, I: Inspect>(
        &mut self,
        now: Instant,
        cta: &mut Cta<S, E, I>,
        console: &Console,
        surviving: Option<SurvivingState<'_>>,
        out: &mut Outbox,
    ) {
        let (ues, exact) = match self.read() {
            Ok(Some(read)) => read,
            Ok(None) => return,
            Err(sentence) => {
                warn!("the UEs of the run before are not restored, and register again: {sentence}");
                console.metrics.add(Metric::UeStorageFailures, 1);
                return;
            }
        };
        let on_disk = ues.ues.len();
        match cta.restore_among(now, ues, exact, surviving, out) {
            Ok(restored) => {
                console.metrics.set(Metric::UesRestored, restored.ues as u64);
                console.metrics.set(Metric::UesNotRestored, restored.refused as u64);
                info!(
                    ues = restored.ues,
                    sessions = restored.sessions,
                    as_they_were = restored.continued,
                    authenticated_again = restored.doubtful,
                    not_restored = restored.refused,
                    "the UEs of the run before are restored"
                );
            }
            Err(why) => {
                console.metrics.set(Metric::UesNotRestored, on_disk as u64);
                warn!(ues = on_disk, "the UEs of the run before are not restored, and register again: {why}");
            }
        }
    }

    /// The UEs of the run before, and whether it was ended in order. Errors: a sentence.
    fn read(&self) -> Result<Option<(StoredUes, bool)>, String> {
        let Some(read) = SealedLog::read(&self.path, &self.key_file).map_err(|e| e.to_string())? else {
            return Ok(None);
        };
        let records = read.records.iter().map(|record| record.as_slice());
        let (ues, whole) = StoredUes::read(records).ok_or("the file has no UEs")?;
        // The same UEs, whose states are the last ones no more; or no file, if a later start must find none.
        let outdated = ues.outdated_records();
        let outdated = outdated.iter().map(Vec::as_slice);
        let used = match self.always {
            true => SealedLog::create(&self.path, &self.key_file, outdated, false).map(drop),
            false => SealedLog::remove(&self.path),
        };
        used.or_else(|_| SealedLog::remove(&self.path)).map_err(|e| {
            format!("the file would be read again at a later start, when its UEs have changed: {e}")
        })?;
        Ok(Some((ues, read.ended && whole)))
    }

    /// What an input has changed.
    pub(super) fn take(&mut self, stored: ToStore) {
        match (&mut self.collected, stored) {
            (Some(collected), ToStore::All(cpf)) => {
                collected.complete.insert(cpf);
            }
            (Some(collected), ToStore::Gone(ue)) => {
                collected.ues.remove(&ue);
            }
            (Some(collected), ToStore::Ue(ue)) => {
                collected.ues.insert(ue.id(), ToStore::Ue(ue));
            }
            (None, ToStore::All(_)) => {}
            (None, stored) if self.always => self.changed.push(stored),
            (None, _) => {}
        }
    }

    /// Twice a second: hands what has changed to the writer. Returns whether UEs are to be sent for the file, and whether all.
    pub(super) fn turn(&mut self, console: &Arc<Console>, amf: StoredAmf) -> Option<bool> {
        if !self.always {
            return None;
        }
        let changed = std::mem::take(&mut self.changed);
        match &self.writer {
            Some(writer) if writer.is_alive() => {
                writer.write(changed);
                Some(false)
            }
            // It begins, or has failed and begins again.
            _ => {
                let begun =
                    StoreWriter::start(self.path.clone(), self.key_file.clone(), amf, console.clone());
                self.writer = begun.inspect_err(|sentence| error!("{sentence}")).ok();
                Some(true)
            }
        }
    }

    /// The core stops: from now on UEs are collected for the file.
    pub(super) fn collect(&mut self) {
        let collected = self.collected.get_or_insert_default();
        collected.complete.clear();
    }

    /// Whether all of these CPFs have sent what they have, since the last [`StoredUeFile::collect`].
    pub(super) fn have_sent(&self, cpfs: &[CpfId]) -> bool {
        self.collected
            .as_ref()
            .is_some_and(|collected| cpfs.iter().all(|cpf| collected.complete.contains(cpf)))
    }

    /// So many UEs are collected.
    pub(super) fn collected(&self) -> usize {
        self.collected.as_ref().map_or(0, |collected| collected.ues.len())
    }

    /// Writes the collected UEs. Returns whether the next start has them.
    pub(super) fn end(&mut self, amf: &StoredAmf, registered: usize, console: &Console) -> bool {
        self.writer = None; // it ends when it has written
        let collected = self.collected.take().unwrap_or_default();
        let ues = collected.ues.len();
        if ues == 0 && registered == 0 {
            // A file of a kill is of UEs that have left since.
            let _ = SealedLog::remove(&self.path);
            return false;
        }
        let records = collected.ues.into_values().filter_map(ToStore::record);
        let records: Vec<Vec<u8>> = std::iter::once(amf.record()).chain(records).collect();
        let records = records.iter().map(Vec::as_slice);
        match SealedLog::create(&self.path, &self.key_file, records, true) {
            Ok(_) => {
                let missing = registered.saturating_sub(ues);
                info!(ues, missing, "registered UEs are kept for the next start");
                true
            }
            Err(e) => {
                console.metrics.add(Metric::UeStorageFailures, 1);
                error!("UEs are not kept for the next start, and register again: {e}");
                // What stands there is not the last state of any UE.
                if let Err(e) = SealedLog::remove(&self.path) {
                    error!("{e}");
                }
                false
            }
        }
    }
}

/// The file, as the writer has it.
struct Log {
    path: PathBuf,
    key_file: PathBuf,
    amf: StoredAmf,
    file: Option<SealedLog>,
    /// Its length when each UE was in it once.
    first: u64,
}

impl Log {
    fn write(&mut self, changed: Vec<ToStore>) -> Result<(), SealedLogError> {
        let records: Vec<Vec<u8>> = changed.into_iter().filter_map(ToStore::record).collect();
        let Some(file) = &mut self.file else { return self.begin(records) };
        file.append(records.iter().map(Vec::as_slice))?;
        if file.octets() > LENGTH_SHORT.max(LENGTH_MAX * self.first)
            && let Some(read) = SealedLog::read(&self.path, &self.key_file)?
            && let Some((stored, _)) = StoredUes::read(read.records.iter().map(|record| record.as_slice()))
        {
            let ues = stored.ues.into_values().map(|ue| ToStore::Ue(ue.into()));
            return self.begin(ues.filter_map(ToStore::record).collect());
        }
        Ok(())
    }

    /// Replaces the file by one with these records alone.
    fn begin(&mut self, records: Vec<Vec<u8>>) -> Result<(), SealedLogError> {
        let amf = self.amf.record();
        let all = std::iter::once(&amf).chain(&records).map(Vec::as_slice);
        let file = SealedLog::create(&self.path, &self.key_file, all, false)?;
        self.first = file.octets();
        self.file = Some(file);
        Ok(())
    }
}

/// The thread that writes continuously: what waits is written together, and the disk is waited for once.
struct StoreWriter {
    changes: Option<Sender<Vec<ToStore>>>,
    thread: Option<JoinHandle<()>>,
}

impl StoreWriter {
    /// Errors: one sentence.
    fn start(
        path: PathBuf,
        key_file: PathBuf,
        amf: StoredAmf,
        console: Arc<Console>,
    ) -> Result<Self, String> {
        let (changes, incoming) = channel::<Vec<ToStore>>();
        let write = move || {
            let mut log = Log { path, key_file, amf, file: None, first: 0 };
            while let Ok(mut changed) = incoming.recv() {
                changed.extend(incoming.try_iter().flatten());
                if let Err(e) = log.write(changed) {
                    console.metrics.add(Metric::UeStorageFailures, 1);
                    error!("UEs are not kept for the next start, and this is tried again in a minute: {e}");
                    // Then the control thread finds this thread ended, and sends all UEs to another one.
                    let again = std::time::Instant::now() + TRIED_AGAIN_AFTER;
                    while incoming
                        .recv_timeout(again.saturating_duration_since(std::time::Instant::now()))
                        .is_ok()
                    {}
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("ues".into()).spawn(write);
        let thread = thread.map_err(|e| format!("UEs are not kept for the next start: {e}"))?;
        Ok(Self { changes: Some(changes), thread: Some(thread) })
    }

    fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn write(&self, changed: Vec<ToStore>) {
        if let Some(changes) = self.changes.as_ref().filter(|_| !changed.is_empty()) {
            let _ = changes.send(changed); // one that has ended is replaced
        }
    }
}

impl Drop for StoreWriter {
    fn drop(&mut self) {
        drop(self.changes.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            error!("the thread that keeps UEs ended in a panic");
        }
    }
}

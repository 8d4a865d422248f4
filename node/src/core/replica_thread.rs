//! The thread that brings the subscribers' file up to date with the PostgreSQL database of which it is a replica.
//!
//! UEs are served from the file, and nothing of a UE waits for this thread. It also writes the registrations of this home's UEs to the database, in
//! batches, and reads which of them have registered at another home since (TS 29.503 §5.3.2). What the database does not have yet is in the file. The
//! audit log and the charging records of this home are written in the same way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_ids::{SNssai, Supi};
use whimbrel_postgres::PostgresDatabase;
use whimbrel_postgres::{CopyReason, Deregistration, HomePlace};
use whimbrel_security::SqnSlot;
use whimbrel_store::{DatabaseFailure, OwnRegistration, SharedStore, Store, StoreError};

use super::history_writer::HistoryWriter;
use super::home_link::HomeLink;
use crate::clock;
use crate::config::Config;
use crate::observation::{Condition, Console, Metric};
use crate::subscribers;

/// Between two looks at the log of changes. A notification of the database comes sooner, but a connection pooler or a lost connection passes none on.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Between two attempts at a database that refuses until the operator changes something, such as a password.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Changes of one moment are written together: a hundred milliseconds, at a tenth of which each UE's change would be a transaction of its own.
const BATCH_INTERVAL: Duration = Duration::from_millis(100);
/// Registrations of one statement.
const REGISTRATIONS_MAX: usize = 4_096;
/// UEs that the control thread deregisters in one turn: it is done with them in some milliseconds.
const ORDERS_MAX: usize = 256;

/// The running thread. Dropped, it ends within a second or with its request.
pub struct ReplicaThread {
    stop: Arc<AtomicBool>,
    home: Arc<HomeLink>,
    _thread: JoinHandle<()>,
}

impl ReplicaThread {
    /// Starts it, if the configuration names a database. Errors: one sentence.
    pub fn start(config: &Config, console: &Arc<Console>) -> Result<Option<Self>, String> {
        let Some(settings) = &config.store.postgres else { return Ok(None) };
        let mut database = PostgresDatabase::new(settings.clone())?;
        let replica = subscribers::open(&config.store)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (link, place) = (HomeLink::new(database.waker()), place(config));
        database.listen_for(&place.amf);
        let amf = place.amf.clone();
        let registrations = Registrations { amf, has_rows_to_compare: false, carried_out: Vec::new() };
        let mut following = Following {
            hosts: database.hosts(),
            database,
            replica,
            console: console.clone(),
            logged: None,
            link: link.clone(),
            histories: HistoryWriter::new(config, &place.name),
            place,
            has_shares: true,
            shared_slot: None,
            // The registrations of another vendor's UDM are its own.
            registrations: (!config.has_remote_udm()).then_some(registrations),
        };
        // Once before any UE is served: a subscriber that was added while this core was stopped is not to be refused.
        following.look();
        let until = stop.clone();
        let thread = std::thread::Builder::new().name("postgres".into()).spawn(move || {
            while !until.load(Ordering::Relaxed) {
                following.turn();
            }
        });
        let thread =
            thread.map_err(|e| format!("the thread that follows PostgreSQL cannot be started: {e}"))?;
        Ok(Some(Self { stop, home: link, _thread: thread }))
    }

    /// The exchange with the control thread.
    pub fn home(&self) -> Arc<HomeLink> {
        self.home.clone()
    }
}

/// The AMF that this home is. The two CTAs of a unit share a file, and those of two hosts have one each.
fn place(config: &Config) -> HomePlace {
    let plmn: String = config.amf.plmn.digits().map(|digit| char::from(b'0' + digit)).collect();
    let [region, set, pointer] = config.amf.amf_id.octets();
    let pair = config.cluster.pair.as_ref().filter(|pair| pair.host.is_none());
    HomePlace {
        amf: format!("{plmn}-{region:02x}{set:02x}{pointer:02x}"),
        cta: pair.map_or(0, |pair| pair.number.into()),
        name: subscribers::home_name(config),
        sqn_slot: config.store.sqn_slot,
    }
}

impl Drop for ReplicaThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Following {
    database: PostgresDatabase,
    replica: Store,
    console: Arc<Console>,
    hosts: String,
    /// The failure that was logged last; none: it answers.
    logged: Option<String>,
    link: Arc<HomeLink>,
    /// The AMF that this home is.
    place: HomePlace,
    /// The audit log and charging records of this home.
    histories: HistoryWriter,
    /// The database may have shares of slices' limits of this AMF.
    has_shares: bool,
    /// The slot of SQNs that another AMF has, too, as it was logged last.
    shared_slot: Option<String>,
    /// The registrations of this home's UEs, unless another vendor's UDM has them.
    registrations: Option<Registrations>,
}

/// The registrations of this home's UEs, on their way to the database.
struct Registrations {
    /// Name of this AMF in the database.
    amf: String,
    /// The database may have registrations at this AMF for which there are no UEs.
    has_rows_to_compare: bool,
    /// Deregistrations whose order the control thread has.
    carried_out: Vec<Deregistration>,
}

impl Following {
    fn turn(&mut self) {
        match self.look() {
            None => {
                self.database.listen();
                self.database.wait(LOOK_INTERVAL);
                if self.registrations.is_some() {
                    std::thread::sleep(BATCH_INTERVAL);
                }
            }
            Some(pause) => self.pause(pause),
        }
    }

    /// Waits until the next attempt. What changes meanwhile is kept in the file, as this home may be killed.
    fn pause(&mut self, pause: Duration) {
        let until = clock::now() + pause;
        loop {
            let left = until.since(clock::now());
            if left.is_zero() {
                return;
            }
            self.database.wait(left);
            if let Err(e) = self.note_registrations() {
                warn!("registrations cannot be kept for PostgreSQL: {e}");
                return std::thread::sleep(left);
            }
        }
    }

    /// Brings the replica up to date; if that fails, the time after which to try again.
    fn look(&mut self) -> Option<Duration> {
        let noted = self.note_registrations();
        let caught_up = self.database.catch_up(&mut self.replica);
        if let Some(copy) = self.database.take_copy() {
            self.database_was_replaced(&copy.reason);
            match copy.differences.saved {
                Some(_) => warn!("{copy}"),
                None => info!("{copy}"),
            }
        }
        let looked = caught_up.and_then(|()| self.database.merge_offsets(&mut self.replica));
        let looked = looked.and_then(|merged| {
            self.enter()?;
            self.lease_shares()?;
            if noted? {
                self.write_registrations()?;
            }
            self.histories.write(&mut self.database, &self.replica)?;
            Ok(merged)
        });
        match looked {
            Ok(merged) => {
                if merged > 0 {
                    info!(merged, "SQN offsets of resynchronised UEs are in PostgreSQL");
                }
                self.answered();
                None
            }
            Err(e) => {
                self.histories.ask_again();
                let passes = matches!(&e, StoreError::Database(failure) if failure.passes());
                self.failed(&e);
                self.console.metrics.add(Metric::PostgresFailures, 1);
                if let Ok(count) = self.replica.unwritten_registrations_count() {
                    self.console.metrics.set(Metric::RegistrationsUnwritten, count);
                }
                Some(if passes { LOOK_INTERVAL } else { RETRY_INTERVAL })
            }
        }
    }

    /// Says that this home runs, and takes what it has leased.
    fn enter(&mut self) -> Result<(), StoreError> {
        let entered = self.database.enter(&mut self.replica, &self.place)?;
        if entered.is_lost {
            warn!("PostgreSQL lacks what this home has written: its registrations are written again");
            self.histories.ask_again();
            self.registrations_are_lost();
        }
        self.link.set_sqn_slot(entered.sqn_slot);
        let shared = entered.shared_with.map(|other| {
            let slot = entered.sqn_slot.map_or(0, SqnSlot::number);
            match self.place.sqn_slot {
                Some(_) => format!(
                    "the AMF {other} has store.sqn_slot {slot}, too: SIMs resynchronise where clocks differ; leave the key out at one of them"
                ),
                None => format!(
                    "the AMF {other} has SQN slot {slot}, too, as more than 32 homes share the subscribers or one has it in its configuration: \
                     SIMs resynchronise where clocks differ"
                ),
            }
        });
        self.console.metrics.set(Metric::SqnSlotShared, u64::from(shared.is_some()));
        if let Some(sentence) = shared.as_ref().filter(|_| shared != self.shared_slot) {
            warn!("{sentence}");
        }
        self.shared_slot = shared;
        Ok(())
    }

    /// Leases shares of the limits of slices: those of a limit that grow are in the database first, and those that shrink in force first, so that
    /// homes together never admit more UEs.
    fn lease_shares(&mut self) -> Result<(), StoreError> {
        let Self { database, replica, link, place: HomePlace { amf, .. }, console, .. } = self;
        let Some(slices) = link.slices() else {
            if !link.is_primary() {
                // The other CTA of a pair leases them.
                let shares = database.slice_shares(replica, amf)?;
                replica.set_slice_shares(&shares)?;
            }
            return Ok(());
        };
        let in_force: BTreeMap<SNssai, u32> = slices.iter().map(|(slice, of)| (*slice, of.share)).collect();
        replica.set_slice_shares(&in_force)?;
        let (mut leased, mut next) = (in_force.clone(), in_force.clone());
        for (slice, of) in slices {
            let (granted, target) = database.lease_slice_share(replica, amf, slice, of)?;
            leased.insert(slice, granted);
            next.insert(slice, granted.min(target.max(of.used)));
        }
        if in_force.is_empty() && !std::mem::replace(&mut self.has_shares, false) {
            return Ok(());
        }
        self.has_shares = !in_force.is_empty();
        let of: Vec<SNssai> = in_force.keys().copied().collect();
        database.keep_slice_shares(replica, amf, &of)?;
        replica.set_slice_shares(&leased)?;
        if next != in_force {
            link.set_shares(next);
            console.commands.wake();
        }
        Ok(())
    }

    /// Keeps what has changed in the file, durably. Returns whether this process has registrations to write.
    fn note_registrations(&mut self) -> Result<bool, StoreError> {
        let Some(taken) = self.link.take() else { return Ok(false) };
        let Some(registrations) = &mut self.registrations else { return Ok(false) };
        if taken.registered.is_some() {
            registrations.has_rows_to_compare = true;
            // Orders to the control thread before this one may not have been carried out.
            registrations.carried_out.clear();
        }
        let compared =
            taken.registered.as_ref().map_or(Ok(()), |all| self.replica.compare_registrations(all));
        // What has changed since then comes after it.
        let noted = compared.and_then(|()| self.replica.note_registrations(&taken.rows()));
        if noted.is_err() {
            self.link.put_back(taken);
        }
        noted.map(|()| true)
    }

    /// A database that may have lost commits gets all registrations again.
    fn database_was_replaced(&mut self, reason: &CopyReason) {
        if matches!(reason, CopyReason::OtherSystem | CopyReason::OtherTimeline | CopyReason::Lost { .. }) {
            self.histories.ask_again();
            self.registrations_are_lost();
        }
    }

    fn registrations_are_lost(&mut self) {
        let Some(registrations) = &mut self.registrations else { return };
        registrations.has_rows_to_compare = true;
        if let Err(e) = self.replica.forget_written_registrations() {
            warn!("registrations are not written to PostgreSQL again: {e}");
        }
    }

    /// Writes what the database does not have, and orders the deregistration of UEs that have registered at another home since.
    fn write_registrations(&mut self) -> Result<(), StoreError> {
        let Self { database, replica, console, link, registrations: Some(registrations), .. } = self else {
            return Ok(());
        };
        let Registrations { amf, has_rows_to_compare, carried_out } = registrations;
        if !carried_out.is_empty() {
            database.remove_deregistrations(replica, amf, carried_out)?;
            carried_out.clear();
        }
        if *has_rows_to_compare {
            note_rows_without_ue(database, replica, amf)?;
            *has_rows_to_compare = false;
        }
        let mut lost = Vec::new();
        loop {
            let mut pending = replica.unwritten_registrations(REGISTRATIONS_MAX)?;
            if pending.is_empty() {
                break;
            }
            lost = database.write_registrations(replica, amf, clock::now(), &pending)?;
            // Those stay, and are found again, until their UEs are deregistered.
            pending.retain(|one| one.at.is_none() || !lost.contains(&one.supi));
            replica.registrations_written(&pending)?;
            if !lost.is_empty() {
                break;
            }
        }
        console.metrics.set(Metric::RegistrationsUnwritten, replica.unwritten_registrations_count()?);
        *carried_out = database.deregistrations(replica, amf, ORDERS_MAX)?;
        let moved = carried_out.iter().filter(|d| !d.is_outdated).map(|d| &d.supi);
        // A SUPI that is none was written by another program, and is removed with the others.
        let orders: Vec<Supi> =
            lost.iter().take(ORDERS_MAX).chain(moved).filter_map(|digits| digits.parse().ok()).collect();
        if !carried_out.is_empty() || !orders.is_empty() {
            link.order(orders);
            console.commands.wake();
        }
        Ok(())
    }

    fn answered(&mut self) {
        if self.logged.take().is_some() {
            info!("PostgreSQL answers: the subscribers of this home are as it has them");
        }
        let number = self.replica.replica_position().ok().flatten().map_or(0, |at| at.generation);
        let saved = self.replica.saved_before_loss();
        match saved.first() {
            None => {
                let is = format!("change {number} of PostgreSQL at {} is in force", self.hosts);
                match &self.shared_slot {
                    None => self.show(Condition::Up, is),
                    Some(sentence) => self.show(Condition::Limited, format!("{is}; {sentence}")),
                }
            }
            Some(saved) => self.show(
                Condition::Limited,
                format!(
                    "PostgreSQL has lost changes; what this home had before is in {0}: compare it, bring back what is missing with `whimbrel store copy \
                     {0} postgres --on-existing skip`, and then remove the file",
                    saved.display()
                ),
            ),
        }
    }

    fn failed(&mut self, e: &StoreError) {
        let sentence = match self.replica.replica_position() {
            // A new home has no subscribers to serve yet.
            Ok(None) if matches!(e, StoreError::Database(DatabaseFailure::Unreachable { .. })) => {
                format!("{e}; this home has no subscribers before PostgreSQL has answered once")
            }
            _ => e.to_string(),
        };
        // What follows the first sentence of a failure, such as the reason of a connection, may change with each attempt.
        if self.logged.as_ref() != Some(&sentence) {
            warn!("{sentence}");
            self.logged = Some(sentence.clone());
        }
        self.show(Condition::Limited, sentence);
    }

    fn show(&self, condition: Condition, sentence: String) {
        self.console.components(|c| c.set("postgres", condition, sentence));
    }
}

/// Notes the end of registrations that the database has at this AMF, and for which there is no UE: those of a core that was killed.
fn note_rows_without_ue(
    database: &mut PostgresDatabase,
    replica: &mut Store,
    amf: &str,
) -> Result<(), StoreError> {
    let mut after = String::new();
    loop {
        let page = database.registered_at(replica, amf, &after, REGISTRATIONS_MAX)?;
        let Some(last) = page.last().cloned() else { return Ok(()) };
        let gone = replica.not_registered(page)?;
        let gone: Vec<OwnRegistration> =
            gone.into_iter().map(|supi| OwnRegistration { supi, at: None }).collect();
        replica.note_registrations(&gone)?;
        after = last;
    }
}

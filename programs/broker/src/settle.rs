//! `whimbrel-broker settle`: what an operator claims of the broker of its veiled sessions (LOCA, chapter 4.4.5, "claiming phase").
//!
//! When the broker has closed a settlement period, the operator reads its table, finds the rows of its own sessions, and proves their sum. It
//! claims only rows that equal its own reports: a broker that altered one could else recognise it in the sum. The table must be the
//! one whose root the witnesses signed. A claim is on disk before it is sent, so that after a crash the same one is sent again.
//!
//! The core writes the sessions that it reported beside its store; this command reads them, and the core's configuration. A proof takes
//! seconds of a processor, which are not the core's.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tracing::{error, info, warn};
use whimbrel_broker_client::client::Client;
use whimbrel_broker_client::files::write_durably;
use whimbrel_broker_client::veil::record::{Recorder, claim_without_proof};
use whimbrel_broker_client::veil::session_file::{ReportedSession, SessionFile};
use whimbrel_broker_client::veil::{QuestionKind, TlsEndpoint};
use whimbrel_broker_client::{random, tls};
use whimbrel_claims::{ClaimSecret, Row, Slots, Table, nonce, nullifier, prove};
use whimbrel_cli::{Done, print};
use whimbrel_node::config::{self, Config};
use whimbrel_node::logging;
use whimbrel_node::signals::{termination_signals, wait};
use whimbrel_open::id::OperatorId;
use whimbrel_open::msg::{Certificate, Subject};
use whimbrel_privacy::crypto::SigningKey;
use whimbrel_privacy::ledger::How;
use whimbrel_privacy::log::LogTrust;
use whimbrel_privacy::msg::{ClaimAnswer, ClaimRequest, PeriodHead, TablePart, TableRequest};

/// The most rounds in which a table is read: those of the longest one.
const PARTS_MAX: usize = PeriodHead::ROWS_MAX as usize / TablePart::ROWS_MAX + 1;
/// How long a request under the operator's name may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(crate) struct SettleOptions {
    /// Go on until SIGINT or SIGTERM, and settle again every `veil.claim_every`.
    #[arg(long)]
    repeat: bool,
    /// Configuration file of the operator's core; without it, whimbrel.yaml here or in /etc/whimbrel.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(crate) fn run(options: &SettleOptions) -> Done {
    let (config, file) = config::load(options.file.as_deref()).map_err(|e| e.to_string())?;
    let settlement = Settlement::of(&config).map_err(|what| match &file {
        Some(file) => format!("{}: {what}", file.display()),
        None => format!("{what}; name the core's configuration with -c"),
    })?;
    let _lock = settlement.lock()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("the broker cannot be asked: {e}"))?;
    let mut signals = termination_signals()?;
    let _logging = logging::start(config.log)?;
    if !options.repeat {
        let settled = runtime.block_on(settlement.settle())?;
        let unpaid = settlement.sessions.sessions()?.len();
        print(&format!(
            "settled periods: {}; paid claims: {}, {} MB; refused claims: {}; unpaid sessions: {unpaid}\n",
            settled.periods, settled.paid, settled.units, settled.refused
        ))?;
        return match settled.refused {
            0 => Ok(()),
            refused => Err(format!("the broker refuses {refused} claims: the log has its causes")),
        };
    }
    loop {
        if let Err(why) = runtime.block_on(settlement.settle()) {
            warn!("sessions are not claimed yet: {why}");
        }
        let next = Instant::now() + settlement.interval;
        if wait(&mut signals, || Instant::now() < next) {
            return Ok(());
        }
    }
}

/// The result of a settlement.
#[derive(Debug, Default)]
struct Settled {
    periods: u32,
    paid: u64,
    units: u64,
    refused: u64,
}

/// An operator with the files of one of its cores, as it claims of the broker.
struct Settlement {
    broker: TlsEndpoint,
    trust: LogTrust,
    certificate: Certificate,
    signing: SigningKey,
    client: Client,
    recorder: Recorder,
    /// The sessions that were reported and are not paid.
    sessions: SessionFile,
    /// How often the broker is asked for its next period.
    interval: Duration,
}

impl Settlement {
    /// From the configuration of a core. Errors: one sentence.
    fn of(config: &Config) -> Result<Self, String> {
        let veil = config.veil.as_ref().ok_or("the core serves no veiled UEs: `veil.broker` is missing")?;
        let tls = tls::client(&veil.tls_roots).map_err(|e| format!("`veil.tls_roots`: {e}"))?;
        let trust = LogTrust::new(veil.broker.domain.clone(), veil.broker_key, veil.witnesses.clone());
        Ok(Self {
            broker: veil.broker.clone(),
            trust: trust.ok_or("`veil.witnesses`: these are too many witnesses")?,
            certificate: veil.certificate.clone(),
            signing: veil.signing.clone(),
            client: Client::new(tls).from_address(veil.source),
            recorder: veil.record.as_deref().map(Recorder::open).transpose()?.unwrap_or_default(),
            sessions: SessionFile::new(config.veil_claims()),
            interval: veil.claim_every,
        })
    }

    /// Held while the command runs: two would claim the same sessions.
    fn lock(&self) -> Result<File, String> {
        let path = self.sessions.path().with_extension("settle.lock");
        let cannot = |e: std::io::Error| format!("{} cannot be locked: {e}", path.display());
        let options = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = options.map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                Err(format!("another `whimbrel-broker settle` has {}: wait for its end", path.display()))
            }
            Err(TryLockError::Error(e)) => Err(cannot(e)),
        }
    }

    /// The claim that was made and not answered.
    fn pending(&self) -> PathBuf {
        self.sessions.path().with_extension("claim")
    }

    /// The number of the next period.
    fn next_file(&self) -> PathBuf {
        self.sessions.path().with_extension("period")
    }

    /// Claims what can be claimed. Errors: one sentence; what was paid before it stays paid.
    async fn settle(&self) -> Result<Settled, String> {
        let (operator, mut settled) = (self.operator()?, Settled::default());
        if let Some(claim) = read_if_there(&self.pending())? {
            self.send(&claim, &mut settled).await?;
        }
        let mut period = match read_if_there(&self.next_file())? {
            Some(text) => String::from_utf8_lossy(&text)
                .trim()
                .parse()
                .map_err(|_| format!("{} holds no number of a period", self.next_file().display()))?,
            None => 0u32,
        };
        while let Some((head, table)) = self.table(period).await? {
            let slots = Slots::new(head.slots).ok_or("the period has a number of slots that no claim has")?;
            let (table, own) = (Arc::new(table), self.own(&head)?);
            let own = claimable(&table, own);
            for own in own.chunks(slots.get()) {
                let claim = self.claim(&head, table.clone(), own, slots, &operator).await?;
                write(&self.pending(), &claim)?;
                self.send(&claim, &mut settled).await?;
            }
            period += 1;
            settled.periods += 1;
            write(&self.next_file(), period.to_string().as_bytes())?;
        }
        Ok(settled)
    }

    /// The name under which the operator claims.
    fn operator(&self) -> Result<OperatorId, String> {
        match self.certificate.subject {
            Subject::Operator(id) => Ok(id),
            _ => Err("the certificate is not an operator's".into()),
        }
    }

    /// The sessions that are not paid.
    fn own(&self, head: &PeriodHead) -> Result<Vec<ReportedSession>, String> {
        let own = self.sessions.sessions()?;
        info!(period = head.period, rows = head.rows, sessions = own.len(), "the broker has closed a period");
        Ok(own)
    }

    /// The table of a period, and its head; `None` if the broker has closed no such period.
    async fn table(&self, period: u32) -> Result<Option<(PeriodHead, Table)>, String> {
        let (mut rows, mut first): (Vec<Row>, Option<PeriodHead>) = (Vec::new(), None);
        for _ in 0..PARTS_MAX {
            let request =
                TableRequest { broker: self.broker.domain.clone(), period, from: rows.len() as u32 };
            let path = (QuestionKind::Table.path(), TablePart::OCTETS_MAX);
            let request = request.to_octets();
            self.recorder.add(How::Sent, QuestionKind::Table.names().0, "", &request);
            let octets = self.client.post(path, &self.broker, &request, REQUEST_TIMEOUT).await;
            let octets = octets.map_err(|e| e.to_string())?;
            if octets.is_empty() {
                return Ok(None);
            }
            self.recorder.add(How::Received, QuestionKind::Table.names().1, "", &octets);
            let part = TablePart::parse(&octets).map_err(|e| format!("the broker's table is none: {e}"))?;
            let head = match first {
                None => {
                    part.head.check(&part.cosignatures, &self.trust).map_err(|e| e.to_string())?;
                    part.head
                }
                Some(head) if head == part.head => head,
                Some(_) => return Err("the broker's table changed while it was read".into()),
            };
            if head.period != period || (part.rows.is_empty() && rows.len() < head.rows as usize) {
                return Err("the broker's table lacks rows, or is another period's".into());
            }
            rows.extend(part.rows.into_iter().map(|(nonce, units)| Row { nonce, units }));
            if rows.len() < head.rows as usize {
                first = Some(head);
                continue;
            }
            // The tree of a million rows takes seconds, in which the connection is kept.
            let made = tokio::task::spawn_blocking(move || Table::new(rows)).await;
            let table =
                made.map_err(|e| e.to_string())?.map_err(|e| format!("the broker's table is none: {e}"))?;
            if table.root() != head.root || table.rows().len() != head.rows as usize {
                return Err(
                    "the rows of the broker's table are not those whose root the witnesses signed".into()
                );
            }
            return Ok(Some((head, table)));
        }
        Err("the broker's table has more rows than it may have".into())
    }

    /// A claim of sessions, signed.
    async fn claim(
        &self,
        head: &PeriodHead,
        table: Arc<Table>,
        own: &[ReportedSession],
        slots: Slots,
        operator: &OperatorId,
    ) -> Result<Vec<u8>, String> {
        let secrets: Vec<ClaimSecret> = own.iter().map(|session| ClaimSecret::new(&session.secret)).collect();
        let (context, seed) = (head.claim_context(operator), random::<32>()?);
        let proving = move || prove(&table, &secrets, slots, context, &seed);
        let proved = tokio::task::spawn_blocking(proving).await.map_err(|e| e.to_string())?;
        let (claim, proof) = proved.map_err(|e| e.to_string())?;
        let (of, proved) = ((self.broker.domain.clone(), head.period), (claim.nullifiers, proof));
        let request = ClaimRequest::signed(of, self.certificate.clone(), claim.units, proved, &self.signing);
        Ok(request.to_octets())
    }

    /// Sends a claim, until it is answered. What is paid leaves the file of sessions.
    async fn send(&self, claim: &[u8], settled: &mut Settled) -> Result<(), String> {
        let request = ClaimRequest::parse(claim).map_err(|e| format!("{}: {e}", self.pending().display()))?;
        self.recorder.add(How::Sent, QuestionKind::Claim.names().0, "", &claim_without_proof(claim));
        let path = (QuestionKind::Claim.path(), ClaimAnswer::OCTETS_MAX);
        let octets = self.client.post(path, &self.broker, claim, REQUEST_TIMEOUT).await;
        let octets = octets.map_err(|e| e.to_string())?;
        self.recorder.add(How::Received, QuestionKind::Claim.names().1, "", &octets);
        match ClaimAnswer::parse(&octets) {
            Ok(ClaimAnswer::Paid(payment)) if payment.is_of(claim, &self.trust.broker_key) => {
                info!(period = payment.period, "the broker pays {} MB", payment.units);
                settled.paid += 1;
                settled.units += payment.units;
                self.paid(&request)?;
            }
            Ok(ClaimAnswer::Paid(_)) => return Err("the broker's payment is of another claim".into()),
            // Its sessions stay in the file; another claim of them would be refused alike.
            Ok(ClaimAnswer::Refused(cause)) => {
                settled.refused += 1;
                error!(period = request.period, "the broker does not pay a claim: {cause}");
            }
            Err(e) => return Err(format!("the broker's answer to a claim is none: {e}")),
        }
        remove(&self.pending())
    }

    /// Takes the sessions of a claim out of the file.
    fn paid(&self, claim: &ClaimRequest) -> Result<(), String> {
        let shown: BTreeSet<_> = claim.nullifiers.iter().collect();
        self.sessions.remove(|session| shown.contains(&nullifier(&ClaimSecret::new(&session.secret))))
    }
}

/// The sessions whose rows are in the table as they were reported.
fn claimable(table: &Table, own: Vec<ReportedSession>) -> Vec<ReportedSession> {
    let mut altered = 0;
    let is_own = |session: &ReportedSession| match table.find(&nonce(&ClaimSecret::new(&session.secret))) {
        Some((_, row)) if row.units == session.units => true,
        Some(_) => {
            altered += 1;
            false
        }
        None => false,
    };
    let own = own.into_iter().filter(is_own).collect();
    if altered > 0 {
        error!(
            "{altered} sessions have another usage in the broker's table than was reported; they are not claimed, since their sum could \
             show which they are"
        );
    }
    own
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match whimbrel_files::read(path, whimbrel_files::LIST_OCTETS_MAX) {
        Ok(octets) => Ok(Some(octets)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("{} cannot be read: {e}", path.display())),
    }
}

fn write(path: &Path, octets: &[u8]) -> Result<(), String> {
    write_durably(path, octets).map_err(|e| format!("{} cannot be written: {e}", path.display()))
}

fn remove(path: &Path) -> Result<(), String> {
    std::fs::remove_file(path).map_err(|e| format!("{} cannot be removed: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(n: u8, units: u32) -> ReportedSession {
        ReportedSession { group: [n; 32], session: [n; 32], units, secret: [n; 32] }
    }

    #[test] // chapter 4.4.5: a usage that the broker altered would mark the session in the sum
    fn only_rows_that_equal_the_report_are_claimed() {
        let mut rows: Vec<Row> = [(1, 5), (2, 6), (9, 1)]
            .map(|(n, units)| Row { nonce: nonce(&ClaimSecret::new(&session(n, 0).secret)), units })
            .into();
        rows.sort();
        let table = Table::new(rows).unwrap();
        let own = claimable(&table, vec![session(1, 5), session(2, 7), session(3, 5)]);
        assert_eq!(own, [session(1, 5)], "one was altered, one is not in the table");
    }
}

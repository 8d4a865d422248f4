//! What the operator claims of the broker (LOCA, chapter 4.4.5, "claiming phase").
//!
//! When the broker has closed a settlement period, the operator reads its table, finds the rows of its own sessions, and proves their sum. It
//! claims only rows that equal its own reports: a broker that altered one could else recognise it in the sum. The table must be the
//! one whose root the witnesses signed. A claim is on disk before it is sent, so that after a crash the same one is sent again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::{error, info, warn};
use whimbrel_broker_client::client::Client;
use whimbrel_broker_client::veil::record::Recorder;
use whimbrel_broker_client::veil::record::claim_without_proof;
use whimbrel_broker_client::veil::{Kind, Place};
use whimbrel_broker_client::{hex, random, unhex};
use whimbrel_claims::{ClaimSecret, Row, Slots, Table, nonce, nullifier, prove};
use whimbrel_open::id::OperatorId;
use whimbrel_open::msg::{Certificate, Subject};
use whimbrel_privacy::crypto::SigningKey;
use whimbrel_privacy::ledger::How;
use whimbrel_privacy::log::LogTrust;
use whimbrel_privacy::msg::{ClaimAnswer, ClaimRequest, PeriodHead, TablePart, TableRequest};

use super::{Counts, NAMED_WITHIN, write_durably};

/// The most rounds in which a table is read: those of the longest one.
const PARTS_MAX: usize = PeriodHead::ROWS_MAX as usize / TablePart::ROWS_MAX + 1;

/// What claims need.
pub(super) struct Settlement {
    pub(super) broker: Place,
    pub(super) trust: LogTrust,
    pub(super) certificate: Certificate,
    pub(super) signing: SigningKey,
    pub(super) named: Arc<Client>,
    pub(super) recorder: Recorder,
    pub(super) counts: Arc<Counts>,
    /// The sessions that were reported and are not paid.
    pub(super) sessions: PathBuf,
    /// How often the broker is asked for its next period.
    pub(super) every: Duration,
}

/// A reported session: a line of the file of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Session {
    line: String,
    units: u32,
    secret: ClaimSecret,
}

impl Session {
    /// Of a line: group, session, units, secret.
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split(' ').skip(2);
        let (units, secret) = (parts.next()?.parse().ok()?, unhex(parts.next()?)?);
        let secret = ClaimSecret::new(&secret.try_into().ok()?);
        Some(Self { line: line.to_owned(), units, secret })
    }
}

impl Settlement {
    /// Claims what can be claimed, every so often.
    pub(super) async fn run(self) {
        loop {
            tokio::time::sleep(self.every).await;
            if let Err(why) = self.settle().await {
                warn!("sessions are not claimed yet: {why}");
            }
        }
    }

    /// The claim that was made and not answered.
    fn pending(&self) -> PathBuf {
        self.sessions.with_extension("claim")
    }

    /// The number of the next period.
    fn next_file(&self) -> PathBuf {
        self.sessions.with_extension("period")
    }

    async fn settle(&self) -> Result<(), String> {
        let OperatorOf(operator) = self.operator()?;
        if let Some(claim) = read_if_there(&self.pending())? {
            self.send(&claim).await?;
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
                self.send(&claim).await?;
            }
            period += 1;
            write(&self.next_file(), period.to_string().as_bytes())?;
        }
        Ok(())
    }

    fn operator(&self) -> Result<OperatorOf, String> {
        match self.certificate.subject {
            Subject::Operator(id) => Ok(OperatorOf(id)),
            _ => Err("the certificate is not an operator's".into()),
        }
    }

    /// The sessions that are not paid.
    fn own(&self, head: &PeriodHead) -> Result<Vec<Session>, String> {
        let octets = read_if_there(&self.sessions)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&octets).into_owned();
        let own: Vec<Session> = text.lines().filter_map(Session::parse).collect();
        info!(period = head.period, rows = head.rows, sessions = own.len(), "the broker has closed a period");
        Ok(own)
    }

    /// The table of a period, and its head; `None` if the broker has closed no such period.
    async fn table(&self, period: u32) -> Result<Option<(PeriodHead, Table)>, String> {
        let (mut rows, mut first): (Vec<Row>, Option<PeriodHead>) = (Vec::new(), None);
        for _ in 0..PARTS_MAX {
            let request =
                TableRequest { broker: self.broker.domain.clone(), period, from: rows.len() as u32 };
            let path = (Kind::Table.path(), TablePart::OCTETS_MAX);
            let request = request.to_octets();
            self.recorder.add(How::Sent, Kind::Table.names().0, "", &request);
            let octets = self.named.post(path, &self.broker, &request, NAMED_WITHIN).await;
            let octets = octets.map_err(|e| e.to_string())?;
            if octets.is_empty() {
                return Ok(None);
            }
            self.recorder.add(How::Received, Kind::Table.names().1, "", &octets);
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
            // The tree of a million rows takes seconds, in which UEs attach.
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
        own: &[Session],
        slots: Slots,
        operator: &OperatorId,
    ) -> Result<Vec<u8>, String> {
        let secrets: Vec<ClaimSecret> = own.iter().map(|session| session.secret).collect();
        let (context, seed) = (head.claim_context(operator), random::<32>()?);
        let proving = move || prove(&table, &secrets, slots, context, &seed);
        let proved = tokio::task::spawn_blocking(proving).await.map_err(|e| e.to_string())?;
        let (claim, proof) = proved.map_err(|e| e.to_string())?;
        let (of, proved) = ((self.broker.domain.clone(), head.period), (claim.nullifiers, proof));
        let request = ClaimRequest::signed(of, self.certificate.clone(), claim.units, proved, &self.signing);
        Ok(request.to_octets())
    }

    /// Sends a claim, until it is answered. What is paid leaves the file of sessions.
    async fn send(&self, claim: &[u8]) -> Result<(), String> {
        let request = ClaimRequest::parse(claim).map_err(|e| format!("{}: {e}", self.pending().display()))?;
        self.recorder.add(How::Sent, Kind::Claim.names().0, "", &claim_without_proof(claim));
        let path = (Kind::Claim.path(), ClaimAnswer::OCTETS_MAX);
        let octets = self.named.post(path, &self.broker, claim, NAMED_WITHIN).await;
        let octets = octets.map_err(|e| e.to_string())?;
        self.recorder.add(How::Received, Kind::Claim.names().1, "", &octets);
        match ClaimAnswer::parse(&octets) {
            Ok(ClaimAnswer::Paid(payment)) if payment.is_of(claim, &self.trust.broker_key) => {
                info!(period = payment.period, "the broker pays {} MB", payment.units);
                self.counts.claims_paid.fetch_add(1, Ordering::Relaxed);
                self.paid(&request)?;
            }
            Ok(ClaimAnswer::Paid(_)) => return Err("the broker's payment is of another claim".into()),
            // Its sessions stay in the file; another claim of them would be refused alike.
            Ok(ClaimAnswer::Refused(cause)) => {
                error!(period = request.period, "the broker does not pay a claim: {cause}");
            }
            Err(e) => return Err(format!("the broker's answer to a claim is none: {e}")),
        }
        remove(&self.pending())
    }

    /// Takes the sessions of a claim out of the file.
    fn paid(&self, claim: &ClaimRequest) -> Result<(), String> {
        let octets = read_if_there(&self.sessions)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&octets).into_owned();
        let is_left = |line: &&str| {
            Session::parse(line).is_none_or(|session| !claim.nullifiers.contains(&nullifier(&session.secret)))
        };
        let left: String = text.lines().filter(is_left).map(|line| format!("{line}\n")).collect();
        write(&self.sessions, left.as_bytes())
    }
}

/// The name under which the operator claims.
struct OperatorOf(OperatorId);

/// The sessions whose rows are in the table as they were reported.
fn claimable(table: &Table, own: Vec<Session>) -> Vec<Session> {
    let mut altered = 0;
    let is_own = |session: &Session| match table.find(&nonce(&session.secret)) {
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

/// A line of the file of sessions.
pub(super) fn line((group, session): (&[u8; 32], &[u8; 32]), units: u32, secret: &[u8; 32]) -> String {
    format!("{} {} {units} {}\n", hex(group), hex(session), hex(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(n: u8, units: u32) -> Session {
        Session::parse(line((&[n; 32], &[n; 32]), units, &[n; 32]).trim()).unwrap()
    }

    #[test]
    fn a_line_of_the_file_is_read_back() {
        assert_eq!(session(3, 7).units, 7);
        assert_eq!(session(3, 7).secret, ClaimSecret::new(&[3; 32]));
        assert!(Session::parse("no session").is_none());
        assert!(Session::parse("a b 7 0102").is_none(), "the secret is too short");
    }

    #[test] // chapter 4.4.5: a usage that the broker altered would mark the session in the sum
    fn only_rows_that_equal_the_report_are_claimed() {
        let mut rows: Vec<Row> = [(1, 5), (2, 6), (9, 1)]
            .map(|(n, units)| Row { nonce: nonce(&session(n, 0).secret), units })
            .into();
        rows.sort();
        let table = Table::new(rows).unwrap();
        let own = claimable(&table, vec![session(1, 5), session(2, 7), session(3, 5)]);
        assert_eq!(own, [session(1, 5)], "one was altered, one is not in the table");
    }
}

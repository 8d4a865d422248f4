//! The end of a settlement period in `demo --scenario veil`: the broker closes it, the witness signs the root, the operators claim by
//! `whimbrel-broker settle` while their cores run, and two that collude try to be paid for one session twice.

use std::time::Duration;

use whimbrel_broker_client::client::Client;
use whimbrel_broker_client::veil::{QuestionKind, TlsEndpoint};
use whimbrel_broker_client::{files, random, tls, unhex};
use whimbrel_broker_server::veil::claims::{ClaimsStorage, Paid};
use whimbrel_claims::{ClaimSecret, Row, Slots, Table, prove};
use whimbrel_privacy::crypto::SigningKey;
use whimbrel_privacy::msg::{ClaimAnswer, ClaimRequest, PeriodHead, PeriodWitness, TableRow};

use super::{BROKER, OPERATORS, VeilPlayground, domain, operator_id, veil_store};
use crate::programs::Program;

/// Sessions of a claim: more than an operator has in a run by default.
const SLOTS: u16 = 256;
/// How long the broker may take to answer a claim.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

impl VeilPlayground {
    fn claims_storage(&self) -> Result<ClaimsStorage, String> {
        let store = veil_store(&self.broker_folder().join("broker.db"));
        ClaimsStorage::open(&store).map_err(|e| e.to_string())
    }

    /// Closes the period of all that was reported, and has the witness sign its root.
    pub(crate) fn close_period(&self, witness: &mut PeriodWitness) -> Result<PeriodHead, String> {
        let secret = files::read_secret(&self.broker_folder().join("broker.key"))?;
        let signing = SigningKey::new(&secret);
        let slots = Slots::new(SLOTS).ok_or("no claim has so many slots")?;
        let mut storage = self.claims_storage()?;
        let closed = storage.close_period(&domain(), slots, &signing).map_err(|e| e.to_string())?;
        let head = closed.ok_or("no session was reported")?;
        let cosignature = witness.cosign(&head).map_err(|e| e.to_string())?;
        storage.add_cosignature(head.period, &cosignature).map_err(|e| e.to_string())?;
        Ok(head)
    }

    /// The witness of the periods, which is that of the key log.
    pub(crate) fn period_witness(&self) -> Result<PeriodWitness, String> {
        let Some(of_broker) = &self.of_broker else { return Err("the broker does not run".into()) };
        Ok(PeriodWitness::new(domain(), of_broker.key, SigningKey::new(&self.witness), None))
    }

    /// Each operator claims what it is due, by command. Errors: one sentence, with what a command printed.
    pub(crate) fn claim(&mut self) -> Result<(), String> {
        self.operators.iter_mut().try_for_each(super::Operator::claim)
    }

    /// The units that the operators were paid. Errors: it is not as many units as the users are billed for, or a session is not paid.
    pub(crate) fn paid(&self, units: u64) -> Result<Vec<Paid>, String> {
        let paid = self.claims_storage()?.paid().map_err(|e| e.to_string())?;
        let sum: u64 = paid.iter().map(|p| p.units).sum();
        let unpaid: usize = self.operators.iter().map(super::Operator::unpaid).sum();
        match sum == units && paid.len() == OPERATORS && unpaid == 0 {
            true => Ok(paid),
            false => Err(format!("{sum} units of {units} are paid, {unpaid} sessions are not: {paid:?}")),
        }
    }

    /// The second operator claims a session that the first one has claimed, with its secret. Gives the broker's answer.
    pub(crate) fn collude(&self, secret: &[u8; 32], head: &PeriodHead) -> Result<ClaimAnswer, String> {
        let (id, folder) = (operator_id(1)?, &self.operators[1].folder);
        let certificate = files::read_certificate(&folder.join("operator.cert"))?;
        let key = files::read_secret(&folder.join("operator.key"))?;
        let signing = SigningKey::new(&key);
        let part = self.claims_storage()?.table_part(head.period, 0).map_err(|e| e.to_string())?;
        let rows: Vec<TableRow> = part.ok_or("the period has no table")?.rows;
        let rows = rows.into_iter().map(|(nonce, units)| Row { nonce, units }).collect();
        let table = Table::new(rows).map_err(|e| e.to_string())?;
        let slots = Slots::new(head.slots).ok_or("no claim has so many slots")?;
        let (secrets, context) = ([ClaimSecret::new(secret)], head.claim_context(&id));
        let proved = prove(&table, &secrets, slots, context, &random::<32>()?).map_err(|e| e.to_string())?;
        let (claim, proof) = proved;
        let of = (domain(), head.period);
        let request = ClaimRequest::signed(of, certificate, claim.units, (claim.nullifiers, proof), &signing);
        let client = Client::new(tls::client(&self.folder.join("tls-roots.pem"))?);
        let place = TlsEndpoint { domain: domain(), address: (BROKER, 7443).into() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let path = (QuestionKind::Claim.path(), ClaimAnswer::OCTETS_MAX);
        let octets = request.to_octets();
        let sent = client.post(path, &place, &octets, ANSWER_WITHIN);
        let octets =
            runtime.map_err(|e| e.to_string())?.block_on(async { sent.await.map_err(|e| e.to_string()) })?;
        ClaimAnswer::parse(&octets).map_err(|e| e.to_string())
    }
}

impl super::Operator {
    /// Claims by `whimbrel-broker settle` over the files of its core, which runs.
    fn claim(&mut self) -> Result<(), String> {
        let file = self.folder.join("whimbrel.yaml");
        let mut command = Program::Broker.command()?;
        let output = command.arg("settle").arg("--config").arg(&file).output();
        let output = output.map_err(|e| format!("`whimbrel-broker settle` cannot be started: {e}"))?;
        self.settle_log = [output.stdout, output.stderr].concat();
        if output.status.success() {
            return Ok(());
        }
        Err(format!("operator {}: {}", self.id, String::from_utf8_lossy(&self.settle_log).trim()))
    }

    /// The secrets of sessions that were reported and are not paid, as it keeps them.
    pub(crate) fn claim_secrets(&self) -> Vec<[u8; 32]> {
        let text = std::fs::read_to_string(self.folder.join("whimbrel.claims")).unwrap_or_default();
        let secret = |line: &str| unhex(line.rsplit(' ').next()?)?.try_into().ok();
        text.lines().filter_map(secret).collect()
    }

    fn unpaid(&self) -> usize {
        self.claim_secrets().len()
    }
}

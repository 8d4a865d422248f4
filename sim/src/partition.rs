//! Partitions: a link between two processes of the core passes nothing for a while, and both processes go on.
//!
//! TCP repeats what a link did not pass, so messages between CTA and CPF, and between CTA and CTA replica, arrive late and in order. A link
//! between CPFs is closed and opened again, and what was on it is lost. A partition that outlasts the link liveness ends as it does in the program: the
//! CTA excludes the CPF, or of the pair one goes on alone.

use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_resilience::CtaOrder;
use whimbrel_resilience::cta_replica::Associations;
use whimbrel_resilience::replication::CpfId;

use crate::Sim;
use crate::cta_replica::ReplicaLink;
use crate::queue::InFlight;
use crate::region::RegionMessage;

/// A CPF that does not answer for so long is excluded: 500 ms until the CTA asks it, and 1 s for its answer.
pub(crate) const CPF_EXCLUDED_AFTER: Duration = Duration::from_millis(1500);
/// The membership decides which CTA goes on when the two have not heard one another for so long.
const PAIR_DECIDED_AFTER: Duration = Duration::from_secs(1);

/// The link that a partition cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Between the CTA and a CPF.
    CtaCpf(CpfId),
    /// Between two CPFs.
    CpfCpf(CpfId, CpfId),
    /// Between the CTA and its replica. If it lasts, this one goes on.
    CtaReplica(Survivor),
}

/// Which CTA goes on after a partition of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivor {
    /// The CTA that serves; its replica is discarded.
    Cta,
    /// The replica, which takes over.
    Replica,
}

impl Survivor {
    /// Both members of a pair.
    pub const ALL: [Self; 2] = [Self::Cta, Self::Replica];
}

impl Sim {
    /// From now on this link passes nothing for `time`.
    pub fn cut(&mut self, cut: Cut, time: Duration) {
        self.trace(|| format!("{cut:?} is cut for {time:?}"));
        let (now, until) = (self.now, self.now + time);
        match cut {
            Cut::CtaCpf(cpf) => {
                let Some(cluster) = &mut self.control.cluster else { return };
                cluster.cut(None, Some(cpf), until);
                if time >= CPF_EXCLUDED_AFTER {
                    cluster.under_way += 1;
                    self.send(now + CPF_EXCLUDED_AFTER, InFlight::Link(RegionMessage::Excluded(cpf)));
                }
            }
            Cut::CpfCpf(one, other) => {
                let Some(cluster) = &mut self.control.cluster else { return };
                cluster.cut(Some(one), Some(other), until);
            }
            Cut::CtaReplica(survivor) => {
                self.control.pair.cut_until = until;
                if time >= PAIR_DECIDED_AFTER {
                    let decided = ReplicaLink::Decided(self.control.pair.replicas(), survivor);
                    self.send(now + PAIR_DECIDED_AFTER, InFlight::CtaReplica(decided));
                }
            }
        }
    }

    /// All links pass messages again.
    pub fn end_partitions(&mut self) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.end_cuts();
        }
        self.control.pair.cut_until = Instant::ZERO;
    }

    /// The CTA excludes a CPF that does not answer, if another one does.
    pub(crate) fn exclude(&mut self, cpf: CpfId) {
        let now = self.now;
        let Some(cluster) = &mut self.control.cluster else { return };
        let answers = |other: CpfId| other != cpf && !cluster.is_cut_off(other, now);
        let silent = cluster.is_there(cpf) && cluster.is_cut_off(cpf, now);
        if silent && cluster.rings().members().any(answers) {
            cluster.excludes_silent(cpf, now - CPF_EXCLUDED_AFTER);
            self.link(RegionMessage::Lost(cpf));
        }
    }

    /// The membership has decided which of the two goes on.
    pub(crate) fn pair_decided(&mut self, replica: u64, survivor: Survivor) {
        let pair = &self.control.pair;
        let is_cut = pair.replicas() == replica && pair.has_replica() && pair.cut_until > self.now;
        if self.has_no_cta() || !is_cut {
            return;
        }
        match survivor {
            Survivor::Replica => self.cta_replica_takes_over(),
            Survivor::Cta => self.goes_on_alone(),
        }
    }

    fn goes_on_alone(&mut self) {
        self.trace(|| "the CTA goes on without its replica".into());
        let mut out = whimbrel_resilience::Outbox::default();
        self.control.pair.discard_replica();
        self.control.cta.continue_without_replica(&mut out);
        self.cta_output(out);
        for gnb in self.own_gnbs() {
            self.end_further(gnb);
        }
        self.control.pair.associations = Associations::default();
        self.operator_order(CtaOrder::Endpoints(Vec::new()));
    }
}

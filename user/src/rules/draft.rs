//! A session's rules while they are being changed: by identity instead of by place.

use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_ids::Teid;
use whimbrel_pfcp::ie::{
    ApplyAction, BarId, DestinationInterface, FailedRuleId, FarId, PdrId, QerId, TrafficEndpointId, UrrId,
};

use super::refusal::RuleRefusal;
use super::{Application, Bar, Compared, Far, Index, NONE, Pdr, Qer, SessionRules, Urr};
use crate::limits::{
    APPLICATIONS_PER_SESSION_MAX, QERS_PER_PDR_MAX, RULES_PER_SESSION_MAX, URRS_PER_PDR_MAX,
};

/// A PDR with what it refers to, by identity.
#[derive(Clone, Debug)]
pub(crate) struct PdrDraft {
    pub(crate) pdr: Pdr,
    pub(crate) far_id: FarId,
    pub(crate) qer_ids: Vec<QerId>,
    pub(crate) urr_ids: Vec<UrrId>,
}

/// A session's rules by identity.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// Everything of the session that is no list of rules.
    pub(crate) base: SessionRules,
    pub(crate) pdrs: BTreeMap<PdrId, PdrDraft>,
    pub(crate) fars: BTreeMap<FarId, Far>,
    pub(crate) qers: BTreeMap<QerId, Qer>,
    pub(crate) urrs: BTreeMap<UrrId, Urr>,
    pub(crate) bars: BTreeMap<BarId, Bar>,
    pub(crate) endpoints: BTreeMap<TrafficEndpointId, Teid>,
}

impl Draft {
    /// The rules that stand, opened for change.
    pub(crate) fn open(rules: &SessionRules) -> Self {
        let pdr = |p: &Pdr| {
            let far_id = rules.fars.get(usize::from(p.far)).map_or(FarId(0), |f| f.far_id);
            let qer_ids = p.qers().filter_map(|i| rules.qers.get(i)).map(|q| q.qer_id).collect();
            let urr_ids = p.urrs().filter_map(|i| rules.urrs.get(i)).map(|u| u.urr_id).collect();
            (p.pdr_id, PdrDraft { pdr: p.clone(), far_id, qer_ids, urr_ids })
        };
        Self {
            pdrs: rules.pdrs.iter().map(pdr).collect(),
            fars: rules.fars.iter().map(|f| (f.far_id, f.clone())).collect(),
            qers: rules.qers.iter().map(|q| (q.qer_id, q.clone())).collect(),
            urrs: rules.urrs.iter().map(|u| (u.urr_id, u.clone())).collect(),
            bars: rules.bars.iter().map(|b| (b.bar_id, *b)).collect(),
            endpoints: rules.endpoints.iter().map(|e| (e.id, e.teid)).collect(),
            base: SessionRules {
                pdrs: [].into(),
                fars: [].into(),
                qers: [].into(),
                urrs: [].into(),
                bars: [].into(),
                endpoints: [].into(),
                applications: [].into(),
                index: None,
                ..rules.clone()
            },
        }
    }

    /// Checks the whole and resolves what refers to what. Errors: the first rule that cannot stand.
    pub(crate) fn close(self) -> Result<SessionRules, RuleRefusal> {
        self.check()?;
        let fars: Vec<Far> = self.fars.into_values().collect();
        let qers: Vec<Qer> = self.qers.into_values().collect();
        let urrs: Vec<Urr> = self.urrs.into_values().collect();
        let mut pdrs = Vec::with_capacity(self.pdrs.len());
        for (id, draft) in self.pdrs {
            let PdrDraft { mut pdr, far_id, qer_ids, urr_ids } = draft;
            pdr.far =
                place(fars.iter().map(|f| f.far_id), far_id).ok_or(RuleRefusal::UnknownFar(id, far_id))?;
            let too_many = || RuleRefusal::TooMany(FailedRuleId::Pdr(id));
            pdr.qers = [NONE; QERS_PER_PDR_MAX];
            for (i, q) in qer_ids.into_iter().enumerate() {
                let at = place(qers.iter().map(|q| q.qer_id), q).ok_or(RuleRefusal::UnknownQer(id, q))?;
                *pdr.qers.get_mut(i).ok_or_else(too_many)? = at;
            }
            pdr.urrs = [NONE; URRS_PER_PDR_MAX];
            for (i, u) in urr_ids.into_iter().enumerate() {
                let at = place(urrs.iter().map(|u| u.urr_id), u).ok_or(RuleRefusal::UnknownUrr(id, u))?;
                *pdr.urrs.get_mut(i).ok_or_else(too_many)? = at;
            }
            pdrs.push(pdr);
        }
        // Stable: PDRs of one precedence keep the order of their identities.
        pdrs.sort_by_key(|p| p.precedence);
        let applications = applications(&pdrs)?;
        let relays = relays(&self.base, &pdrs, &fars);
        let endpoints = self.endpoints.into_iter().map(|(id, teid)| super::Endpoint { id, teid });
        Ok(SessionRules {
            index: Index::of(self.base.kind, &pdrs),
            compared: Compared::of(self.base.kind, &pdrs),
            applications,
            pdrs: pdrs.into(),
            fars: fars.into(),
            qers: qers.into(),
            urrs: urrs.into(),
            bars: self.bars.into_values().collect(),
            endpoints: endpoints.collect(),
            relays,
            ..self.base
        })
    }

    fn check(&self) -> Result<(), RuleRefusal> {
        if self.pdrs.is_empty() {
            return Err(RuleRefusal::NoPdr);
        }
        if self.fars.is_empty() {
            return Err(RuleRefusal::NoFar);
        }
        let over = |n: usize, id: Option<FailedRuleId>| match id {
            Some(id) if n > RULES_PER_SESSION_MAX => Err(RuleRefusal::TooMany(id)),
            _ => Ok(()),
        };
        over(self.pdrs.len(), self.pdrs.keys().last().map(|i| FailedRuleId::Pdr(*i)))?;
        over(self.fars.len(), self.fars.keys().last().map(|i| FailedRuleId::Far(*i)))?;
        over(self.qers.len(), self.qers.keys().last().map(|i| FailedRuleId::Qer(*i)))?;
        over(self.urrs.len(), self.urrs.keys().last().map(|i| FailedRuleId::Urr(*i)))
    }
}

/// The local tunnels all of whose rules say no more than: on to that other tunnel. Between gNBs (TS 23.502 §4.9.1.3.2 step 11), or between gNB and
/// anchor in a session without address (an intermediate UPF's, TS 23.501 §5.8.2.4), where no QER gives packets a QoS flow.
fn relays(base: &SessionRules, pdrs: &[Pdr], fars: &[Far]) -> u8 {
    let tunnels = &base.tunnels;
    let intermediate = base.ue_ipv4.is_none() && base.ue_ipv6.is_none();
    let on = |p: &Pdr| {
        let far = fars.get(usize::from(p.far));
        let passes = intermediate && p.qers().next().is_none();
        let onwards = |f: &&Far| {
            let between_gnbs = p.is_uplink() && f.destination == DestinationInterface::Access;
            f.action.has(ApplyAction::FORW) && (between_gnbs || passes)
        };
        p.filters.is_empty()
            && p.application.is_none()
            && !p.deletes_container
            && far.filter(onwards).is_some_and(|f| f.tunnel.is_some())
    };
    let relay = |t: &Teid| {
        let mut of_tunnel = pdrs.iter().filter(|p| p.teid == *t && t.0 != 0).peekable();
        of_tunnel.peek().is_some() && of_tunnel.all(on)
    };
    tunnels.iter().enumerate().filter(|(_, t)| relay(t)).fold(0, |bits, (n, _)| bits | 1 << n)
}

/// The applications that PDRs name, each once. Errors: more than one session may name.
fn applications(pdrs: &[Pdr]) -> Result<Box<[Arc<Application>]>, RuleRefusal> {
    let mut all: Vec<Arc<Application>> = Vec::new();
    for (pdr, application) in pdrs.iter().filter_map(|p| Some((p, p.application.as_ref()?))) {
        if all.iter().any(|a| a.number == application.number) {
            continue;
        }
        if all.len() == APPLICATIONS_PER_SESSION_MAX {
            return Err(RuleRefusal::TooMany(FailedRuleId::Pdr(pdr.pdr_id)));
        }
        all.push(Arc::clone(application));
    }
    Ok(all.into())
}

const _: () = assert!(crate::limits::TUNNELS_PER_SESSION_MAX <= u8::BITS as usize);

fn place<T: PartialEq>(mut ids: impl Iterator<Item = T>, id: T) -> Option<u8> {
    ids.position(|i| i == id).map(|at| at as u8)
}

const _: () = assert!(RULES_PER_SESSION_MAX < NONE as usize);

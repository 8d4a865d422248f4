//! Nsmf_PDUSession_CreateSMContext of another vendor's AMF (TS 29.502 §5.2.2.2, TS 23.502 §4.3.2.2.1 steps 3 to 5).

use std::collections::BTreeMap;

use whimbrel_nas::sm::{self, Pti};

use super::super::{establishment, udm_client};
use super::exchange::{open, refuse};
use super::{release_by_amf, with_amf};
use crate::procedure::{Lane, Procedure, ProcedureEnd, Ue};
use crate::refusal::Refusal;
use crate::services::nsmf::SmContextCreateData;
use crate::services::remote_amf::{SmContextCreation, SmContextError, SmContextExchange};
use crate::state::{AmfSession, ExchangeKind, RemoteAmfContext, Subscription};

pub(super) fn create_sm_context(ue: Ue, exchange: SmContextExchange, creation: &SmContextCreation) {
    let psi = creation.psi;
    let most = usize::from(ue.config().limits.sessions_per_ue);
    let full = ue.with(|p| {
        let known = p.remote_amf.as_ref().is_some_and(|amf| amf.sessions.contains_key(&psi));
        !known && p.remote_amf.as_ref().is_some_and(|amf| amf.sessions.len() >= most)
    });
    if full {
        return refuse(ue, exchange, SmContextError::InsufficientResources, None, None);
    }
    // TS 29.502 §5.2.2.2.1: the identity was in use; the UE has started again.
    if ue.with(|p| p.sessions.contains_key(&psi)) {
        release_by_amf(ue, psi);
    }
    ue.update_batch(|b| b.authenticated = true); // its AMF says so
    ue.with(|p| {
        p.set_remote_subscriber(creation.supi);
        let amf = p.remote_amf.get_or_insert_with(|| {
            RemoteAmfContext {
                amf: creation.amf.clone(),
                connected: true,
                tai: creation.tai,
                subscription_stale: false,
                sessions: BTreeMap::new(),
            }
            .into()
        });
        amf.amf.clone_from(&creation.amf);
        (amf.connected, amf.tai) = (true, creation.tai.or(amf.tai));
        let session = amf.sessions.entry(psi).or_insert_with(|| AmfSession {
            status_uri: Box::default(),
            created: false,
            exchanges: Vec::new(),
        });
        session.status_uri.clone_from(&creation.status_uri);
        session.created = false;
    });
    if !open(ue, psi, exchange, ExchangeKind::Create) {
        return;
    }
    let creation = Box::new(creation.clone());
    let ue = ue.on(Lane::Session(psi));
    ue.start(Lane::Session(psi), Procedure::PduSessionEstablishment, authorised(ue, creation));
}

/// Reads the subscription, and has the session set up by the procedure that replaces this one.
async fn authorised(ue: Ue, creation: Box<SmContextCreation>) {
    let SmContextCreation { supi, psi, s_nssai, dnn, existing, n1, .. } = *creation;
    if ue.with(|p| p.subscription().is_none()) {
        match udm_client::subscription(ue, supi).await {
            Ok(subscription) => {
                ue.with(|p| p.set_subscription(subscription));
            }
            Err(ProcedureEnd::Refused(refusal)) => {
                let pti = sm::Message::decode(&n1).map_or(Pti::UNASSIGNED, |m| m.pti);
                return establishment::reject(ue, psi, pti, refusal);
            }
            Err(ProcedureEnd::Interrupted(_)) => return,
        }
    }
    let default = |s: &Subscription| {
        let dnns = &s.slice(s_nssai)?.dnns;
        dnns.iter().find(|d| d.default).or(dnns.first()).map(|d| d.dnn.clone())
    };
    let dnn = dnn.or_else(|| ue.with(|p| p.subscription().and_then(|s| default(s))));
    let offered = ue.config().amf.slices.contains(&s_nssai);
    let Some(dnn) = dnn.filter(|_| offered) else {
        let pti = sm::Message::decode(&n1).map_or(Pti::UNASSIGNED, |m| m.pti);
        return establishment::reject(ue, psi, pti, Refusal::SliceNotAllowed(s_nssai));
    };
    with_amf(ue, |amf| amf.connected = true);
    let data = SmContextCreateData { psi, s_nssai, dnn, existing, emergency: false };
    ue.smf().create_sm_context(ue, data, &n1);
}

//! Sessions that move with their UE between the SMFs of two AMFs: the UPF stays, and gets the new CP F-SEID from the former SMF (TS
//! 29.244 §7.5.4; TS 23.502 §4.9.1.3.3 steps 7 to 10).

use std::collections::BTreeMap;
use std::net::IpAddr;

use whimbrel_ids::{PduSessionId, Seid};
use whimbrel_nas::ie::SmCause;
use whimbrel_ngap::ie::{Cause, CauseMisc, CauseRadioNetwork};
use whimbrel_pfcp::ie::FSeid;
use whimbrel_pfcp::msg::SessionModificationRequest;

use super::establishment::emit_change;
use super::n4::{self, Downlink};
use super::path_switch::end_without_gnb;
use super::udm_client;
use super::up_connection::{is_active, rest};
use crate::config::Config;
use crate::envelope::UeId;
use crate::event::SessionChange;
use crate::n14::HandedOverSession;
use crate::procedure::{Interrupt, Ue};
use crate::services::nsmf::{AdmittedSession, TakenOverSessions};
use crate::state::{IncomingSession, SmContext, UeContext, UpState};
use crate::upf::{UpfId, UpfStates};

/// The N4 address of each session's UPF, if other SMFs reach it. A session with an intermediate UPF is not handed over to another SMF.
pub(crate) fn upfs(ue: Ue) -> Vec<(PduSessionId, IpAddr)> {
    let addresses: Vec<_> = ue.config().smf.upfs.iter().map(|upf| upf.address).collect();
    ue.with(|p| p.session_upfs(&addresses))
}

impl UeContext {
    /// The N4 address of each session's UPF, given those of all UPFs of its SMF. A session with an intermediate UPF is left out.
    pub fn session_upfs(&self, addresses: &[Option<IpAddr>]) -> Vec<(PduSessionId, IpAddr)> {
        let direct = self.sessions.values().filter(|s| self.serving_intermediate_upf(s.psi).is_none());
        direct.filter_map(|s| Some((s.psi, (*addresses.get(usize::from(s.upf.0))?)?))).collect()
    }
}

/// Hands sessions over to another SMF, each under its CP SEID there. Downlink packets of admitted sessions go to the target gNB from now
/// on, those of the others are buffered; without `admitted`, the UE stays at its gNB, and packets pass as before. Returns the sessions for which the UPF has agreed, with the number of their forwarding rules.
pub(crate) async fn hand_over_sessions(
    ue: Ue,
    taken: &[(PduSessionId, Seid)],
    smf: IpAddr,
    admitted: Option<&[AdmittedSession]>,
) -> Result<Vec<HandedOverSession>, Interrupt> {
    let config = ue.config();
    let mut asked = Vec::with_capacity(taken.len());
    for &(psi, seid) in taken {
        let active = ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.up != UpState::Inactive));
        let mut request = match (admitted, admitted.and_then(|a| a.iter().find(|a| a.psi == psi))) {
            (_, Some(a)) => n4::downlink_update(ue, psi, Downlink::SwitchTo(a.tunnel)),
            (Some(_), None) if active => n4::downlink_update(ue, psi, Downlink::Buffer),
            _ => SessionModificationRequest::default(),
        };
        request.cp_f_seid = Some(FSeid::new(seid, smf));
        let Some(to) = n4::ask_modification(ue, psi, request) else { continue };
        // From now on the session is no longer part of this UE context.
        emit_change(ue, psi, SessionChange::Released);
        if let Some(s) = ue.with(|p| p.sessions.remove(&psi)) {
            asked.push((psi, s, to));
        }
    }
    let mut given = Vec::with_capacity(asked.len());
    for (psi, s, answer) in n4::modifications_answered(ue, asked).await? {
        let at = config.smf.upfs.get(usize::from(s.upf.0)).and_then(|u| u.address);
        match (answer, at, s.up_seid) {
            (Ok(_), Some(upf), Some(up_seid)) => {
                given.push(HandedOverSession { psi, upf, up_seid, forwarding: s.forwarding });
            }
            (_, _, Some(seid)) => n4::delete_at_upf(ue, s.upf, seid),
            (_, _, None) => {}
        }
    }
    given.sort_unstable_by_key(|g| g.psi);
    Ok(given)
}

/// The sessions of an incoming UE: those that can be taken over, and the causes for the others.
pub(crate) fn take_over(
    ue: Ue,
    mut sessions: BTreeMap<PduSessionId, Box<SmContext>>,
    upfs: &[(PduSessionId, IpAddr)],
) -> TakenOverSessions {
    let (config, states, own) = (ue.config(), ue.upfs(), ue.with(|p| (p.id, p.clock)));
    let (mut coming, mut refused) = (Vec::new(), Vec::new());
    sessions.retain(|psi, s| {
        let at = upfs.iter().find(|(named, _)| named == psi).map(|(_, at)| *at);
        let taken = take(s, at, own, &config, &states);
        let ours = taken.is_ok();
        match taken {
            Ok(c) => coming.push(c),
            Err(cause) => refused.push((*psi, cause)),
        }
        ours
    });
    TakenOverSessions { sessions, coming, refused }
}

/// Whether a session can be taken over: slice, data network and UPF must be served here. Returns its SM context without the UPF's data.
fn take(
    s: &mut SmContext,
    at: Option<IpAddr>,
    (ue, clock): (UeId, u64),
    config: &Config,
    states: &UpfStates,
) -> Result<IncomingSession, Cause> {
    if !config.amf.slices.contains(&s.s_nssai) {
        return Err(CauseRadioNetwork::SliceNotSupported.into());
    }
    let known = (0u8..).map(UpfId).zip(&config.smf.upfs).find(|(_, u)| at.is_some() && u.address == at);
    let upf = known.map(|(id, _)| id).filter(|id| states.get(*id).usable);
    let (Some(upf), Some(up_seid), true) = (upf, s.up_seid, config.smf.data_networks.contains_key(&s.dnn))
    else {
        return Err(CauseMisc::NotEnoughUserPlaneProcessingResources.into());
    };
    let cp_seid = ue.seid(s.psi.value(), clock as u16);
    (s.upf, s.cp_seid, s.up_seid, s.qos.pending_change, s.forwarding) = (upf, cp_seid, None, None, None);
    Ok(IncomingSession { psi: s.psi, cp_seid, upf, up_seid })
}

/// The UE has arrived: the admitted sessions become active once they are handed over, the others stay inactive.
pub(crate) fn await_sessions(ue: Ue, admitted: &[AdmittedSession]) {
    ue.with(|p| {
        for s in p.sessions.values_mut() {
            match admitted.iter().find(|a| a.psi == s.psi) {
                Some(a) => s.active_at(a.tunnel),
                None => s.inactive(),
            }
        }
    });
}

/// Takes over the sessions that the former SMF has handed over. One that was released here meanwhile is deleted at the UPF; one that is
/// missing is released, and the UE gets a release command.
pub(crate) fn came(ue: Ue, coming: &[IncomingSession], given: &[HandedOverSession]) {
    for c in coming {
        let stands = ue.with(|p| p.sessions.get(&c.psi).is_some_and(|s| s.cp_seid == c.cp_seid));
        let ours = given.iter().find(|g| (g.psi, g.up_seid) == (c.psi, c.up_seid));
        match (stands, ours) {
            (true, Some(g)) => {
                own(ue, c, g.forwarding);
                emit_change(ue, c.psi, SessionChange::Established);
                udm_client::register_session(ue, c.psi);
                rest(ue, c.psi); // the UE may be idle meanwhile
            }
            (false, Some(_)) => n4::delete_at_upf(ue, c.upf, c.up_seid),
            (true, None) => lost(ue, c),
            (false, None) => {}
        }
    }
}

/// The former SMF does not answer: asks the UPF for each session.
pub(crate) async fn claim(
    ue: Ue,
    coming: &[IncomingSession],
    admitted: &[AdmittedSession],
) -> Result<(), Interrupt> {
    let stands =
        |c: &&IncomingSession| ue.with(|p| p.sessions.get(&c.psi).is_some_and(|s| s.cp_seid == c.cp_seid));
    let here: Vec<IncomingSession> = coming.iter().filter(stands).copied().collect();
    let mut asked = Vec::with_capacity(here.len());
    for c in here {
        own(ue, &c, None);
        let mut request = match admitted.iter().find(|a| a.psi == c.psi) {
            Some(a) if ue.with(|p| p.sessions.get(&c.psi).is_some_and(|s| is_active(s))) => {
                n4::downlink_update(ue, c.psi, Downlink::To(a.tunnel))
            }
            _ => n4::downlink_update(ue, c.psi, Downlink::Buffer),
        };
        // A UPF that knows both as one SMF set lets this one go on, if the former has not handed the session over (TS 29.244 §5.22.3).
        request.cp_f_seid = Some(FSeid::new(c.cp_seid, ue.config().smf.node_id));
        if let Some(to) = n4::ask_modification(ue, c.psi, request) {
            asked.push((c.psi, c, to));
        }
    }
    let answers = n4::modifications_answered(ue, asked).await?;
    for (psi, c, answer) in answers {
        match answer {
            Ok(_) => {
                emit_change(ue, psi, SessionChange::Established);
                udm_client::register_session(ue, psi);
            }
            Err(_) => lost(ue, &c),
        }
    }
    Ok(())
}

/// The UE's context ends before its sessions were handed over: the UPF deletes those that are this SMF's.
pub(crate) fn disown(ue: Ue, coming: &[IncomingSession]) {
    coming.iter().for_each(|c| n4::delete_at_upf(ue, c.upf, c.up_seid));
}

/// A session was not handed over, and the UE gets a release command.
fn lost(ue: Ue, c: &IncomingSession) {
    ue.with(|p| p.sessions.get_mut(&c.psi).iter_mut().for_each(|s| s.up_seid = None));
    super::release_at_gnb(ue, c.psi);
    end_without_gnb(ue, c.psi, SmCause::NetworkFailure);
}

fn own(ue: Ue, c: &IncomingSession, forwarding: Option<u8>) {
    ue.with(|p| {
        if let Some(s) = p.sessions.get_mut(&c.psi) {
            (s.up_seid, s.forwarding) = (Some(c.up_seid), forwarding);
        }
    });
}

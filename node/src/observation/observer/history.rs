//! Which of the core's events go into the histories of UEs and gNBs, which `whimbrel why` uses.

use std::sync::Arc;

use whimbrel_control::config::Config;
use whimbrel_control::event::{SessionChange, SetupRefusal};
use whimbrel_control::{AssociationId, Event, Procedure, Refusal, UeEvent, UeId, UeIdentities};
use whimbrel_ids::{Dnn, GlobalGnbId, Instant, Supi};
use whimbrel_sctp_io::DownReason;
use whimbrel_store::Changes;

use super::{Observer, name_of};
use crate::observation::{ClosedBy, HistoryEvent, Name};

/// The peer of an association.
pub(super) struct AssociationPeer {
    /// `gnb-999/70-1`, or `gnb-at-192.0.2.1:38412` before its NG SETUP REQUEST.
    pub(super) name: Arc<str>,
    /// Its identity, once it has set up NG.
    pub(super) gnb: Option<GlobalGnbId>,
    /// Its address and port; empty after a takeover by this CTA.
    pub(super) address: String,
    /// Why its association ended.
    down: Option<String>,
}

impl AssociationPeer {
    pub(super) fn new(name: String, address: &str) -> Self {
        Self { name: name.into(), gnb: None, address: address.into(), down: None }
    }

    pub(super) fn of_gnb(gnb: GlobalGnbId, address: &str) -> Self {
        Self { gnb: Some(gnb), ..Self::new(format!("gnb-{gnb}"), address) }
    }
}

impl Observer {
    /// The SCTP association of a gNB ended; the CTA's event follows.
    pub fn association_down(&mut self, association: AssociationId, reason: &DownReason) {
        if let Some(peer) = self.gnbs.get_mut(&association) {
            peer.down = Some(ended(reason));
        }
    }

    /// Subscribers' records were changed, each at its time: a UE that is refused after it was refused for what the record says now.
    pub fn subscribers_changed(&self, changes: &Changes, at: impl Fn(Option<Supi>) -> Instant) {
        self.console.histories(|h| match changes {
            Changes::None => {}
            Changes::Some(supis) => {
                supis.iter().for_each(|supi| h.subscriber_changed(at(Some(*supi)), *supi))
            }
            Changes::All => h.subscribers_changed(at(None)),
        });
    }

    /// An event of a UE, except refusals.
    pub(super) fn remember(&self, now: Instant, happened: &UeEvent) {
        let gnb = happened.on.and_then(|a| self.gnbs.get(&a)).map(|p| p.name.clone());
        let (gnb, ue) = (gnb.as_ref(), happened.ue);
        if let Event::Completed { subject, .. } | Event::Refused { subject, .. } = &happened.event
            && let Some(supi) = subject.supi
        {
            self.console.signalling(|s| s.name(supi, ue));
        }
        match &happened.event {
            Event::Completed { procedure, subject, .. } => {
                let name = name(ue, subject);
                self.remember_completed(now, &name, ue, gnb, *procedure);
            }
            Event::Session { subject, psi, dnn, change } => {
                let name = name(ue, subject);
                self.console.histories(|h| match change {
                    SessionChange::Established => {
                        let serves = |d: &Option<Dnn>| d.as_ref().is_none_or(|d| d == dnn);
                        h.close(now, &name, |by| matches!(by, ClosedBy::Session(d) if serves(d)));
                        h.push(now, &name, gnb, HistoryEvent::SessionEstablished(*psi, dnn.clone()));
                    }
                    SessionChange::Released if !h.is_former(&name, ue) => {
                        h.push(now, &name, gnb, HistoryEvent::SessionReleased(*psi, dnn.clone(), ""));
                    }
                    SessionChange::Released | SessionChange::Activated | SessionChange::Deactivated => {}
                });
            }
            Event::Deregistered { subject, why } => {
                self.console.histories(|h| {
                    let known = subject.supi.is_some() || subject.pei.is_some();
                    let name = if known { Some(name(ue, subject)) } else { h.name_of(ue) };
                    if let Some(name) = name.filter(|n| !h.is_former(n, ue)) {
                        h.push(now, &name, gnb, HistoryEvent::Deregistered(*why));
                    }
                });
            }
            _ => {}
        }
    }

    fn remember_completed(
        &self,
        now: Instant,
        name: &Name,
        ue: UeId,
        gnb: Option<&Arc<str>>,
        procedure: Procedure,
    ) {
        self.console.histories(|h| match procedure {
            Procedure::Registration => h.registered(now, name, ue, gnb),
            Procedure::DeregistrationByUe => {
                if !h.is_former(name, ue) {
                    h.push(now, name, gnb, HistoryEvent::DeregisteredByUe);
                }
            }
            Procedure::PduSessionReleaseByUe => h.session_released_by(name, "the UE"),
            Procedure::PduSessionReleaseByNetwork => h.session_released_by(name, "the network"),
            other => {
                h.close(now, name, |by| *by == ClosedBy::Procedure(name_of(other).word()));
                h.seen_at(name, gnb);
            }
        });
    }

    /// Something happened to a gNB.
    pub(super) fn remember_gnb(&self, now: Instant, id: &str, what: HistoryEvent) {
        let name = Name::Gnb(id.into());
        self.console.histories(|h| h.push(now, &name, None, what));
    }

    /// A gNB set up NG.
    pub(super) fn gnb_up(&self, now: Instant, id: &str, called: Option<&str>, address: &str) {
        let name = Name::Gnb(id.into());
        let also: Vec<String> =
            called.into_iter().chain([address]).filter(|a| !a.is_empty()).map(str::to_owned).collect();
        self.console.histories(|h| {
            h.close(now, &name, |by| *by == ClosedBy::Setup);
            h.push(now, &name, None, HistoryEvent::Up(also.join(" at ")));
            h.also_called(&name, also);
        });
    }

    /// An association of a gNB ended. Another one may still serve it.
    pub(super) fn gnb_down(&self, now: Instant, id: &str, peer: Option<AssociationPeer>) {
        if self.gnbs.values().all(|p| &*p.name != id) {
            let down = peer.and_then(|p| p.down).unwrap_or_else(|| "the core ended its association".into());
            self.remember_gnb(now, id, HistoryEvent::Down(down));
        }
    }
}

/// The best name of a UE.
pub(super) fn name(ue: UeId, subject: &UeIdentities) -> Name {
    match (subject.supi, subject.pei) {
        (Some(supi), _) => Name::Ue(supi),
        (None, Some(pei)) => Name::Equipment(pei),
        (None, None) => Name::Unidentified(ue),
    }
}

/// Which later success closes a refusal.
pub(super) fn closed_by(procedure: Procedure, refusal: &Refusal) -> ClosedBy {
    match procedure {
        Procedure::Registration | Procedure::Authentication => ClosedBy::Registration,
        Procedure::PduSessionEstablishment => ClosedBy::Session(match refusal {
            Refusal::DnnNotSubscribed { dnn, .. }
            | Refusal::DnnNotConfigured(dnn)
            | Refusal::PoolEmpty(dnn)
            | Refusal::OutOfLadn(dnn, _) => Some(dnn.clone()),
            _ => None,
        }),
        other => ClosedBy::Procedure(name_of(other).word()),
    }
}

/// The message that a refused UE or its gNB got, with its cause.
pub(super) fn answer(config: &Config, procedure: Procedure, refusal: &Refusal) -> String {
    let mm = || {
        let cause = refusal.mm_cause(config);
        format!("5GMM cause #{} ({cause})", cause.value())
    };
    let sm = || {
        let cause = refusal.sm_cause(config);
        format!("5GSM cause #{} ({cause})", cause.value())
    };
    match (procedure, refusal) {
        // An answer to a UE that does not answer, or to a gNB, carries no cause.
        (_, Refusal::NoAnswer(_) | Refusal::RadioFailure(_) | Refusal::RefusedByGnb { .. }) => String::new(),
        (_, refusal) if refusal.reject_was_sent() => "AUTHENTICATION REJECT".into(),
        (Procedure::Registration, _) => format!("REGISTRATION REJECT with {}", mm()),
        (Procedure::ServiceRequest, _) => format!("SERVICE REJECT with {}", mm()),
        (Procedure::PduSessionEstablishment, Refusal::Congested("slices")) => {
            "DL NAS TRANSPORT with 5GMM cause #69 (Insufficient resources for specific slice)".into()
        }
        (Procedure::PduSessionEstablishment, Refusal::Limit("sessions_per_ue")) => {
            "DL NAS TRANSPORT with 5GMM cause #65 (Maximum number of PDU sessions reached)".into()
        }
        (Procedure::PduSessionEstablishment, refusal) if is_of_amf(refusal) => {
            format!("DL NAS TRANSPORT with {}", mm())
        }
        (Procedure::PduSessionEstablishment, _) => format!("PDU SESSION ESTABLISHMENT REJECT with {}", sm()),
        (Procedure::PduSessionModificationByUe, _) => {
            format!("PDU SESSION MODIFICATION REJECT with {}", sm())
        }
        (Procedure::PduSessionReleaseByUe, _) => format!("PDU SESSION RELEASE REJECT with {}", sm()),
        (Procedure::Handover, _) => "HANDOVER PREPARATION FAILURE".into(),
        (Procedure::PathSwitch, _) => "PATH SWITCH REQUEST FAILURE".into(),
        _ => String::new(),
    }
}

/// Whether it is the AMF that refuses a session for this, and returns the request unread (TS 24.501 §5.4.5.2.5).
fn is_of_amf(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::DnnNotSubscribed { .. }
            | Refusal::DnnNotConfigured(_)
            | Refusal::SliceNotAllowed(_)
            | Refusal::NoSlice { .. }
            | Refusal::Limit(_)
            | Refusal::Congested(_)
            | Refusal::RestrictedServiceArea(_)
    )
}

/// The message that a refused gNB got, with its cause (TS 38.413 §8.7.1.3).
pub(super) fn setup_answer(why: &SetupRefusal) -> String {
    let cause = match why {
        SetupRefusal::Plmn { .. } | SetupRefusal::Tac { .. } => "misc: unknown-PLMN-or-SNPN",
        SetupRefusal::Slice { .. } => "radioNetwork: slice-not-supported",
        SetupRefusal::Limit(_) => "misc: control-processing-overload",
        SetupRefusal::IdentityInUse { .. } => "protocol: message-not-compatible-with-receiver-state",
        SetupRefusal::Disconnected => "misc: om-intervention",
        SetupRefusal::FurtherElsewhere { .. } => {
            return "RAN CONFIGURATION UPDATE FAILURE with cause misc: unspecified".into();
        }
        SetupRefusal::NotListed | SetupRefusal::OutsideNetworks | SetupRefusal::NodeType => {
            "misc: unspecified"
        }
    };
    format!("NG SETUP FAILURE with cause {cause}")
}

/// How an association ended, after its gNB's name.
fn ended(reason: &DownReason) -> String {
    match reason {
        DownReason::Shutdown => "it shut its SCTP association down (SHUTDOWN)".into(),
        DownReason::Aborted => "the core aborted its SCTP association (ABORT)".into(),
        DownReason::AbortedByPeer { cause: Some(cause) } => {
            format!("it aborted its SCTP association (ABORT with error cause {cause})")
        }
        DownReason::AbortedByPeer { cause: None } => "it aborted its SCTP association (ABORT)".into(),
        DownReason::Lost => "it no longer answers on its SCTP association".into(),
        DownReason::NoAnswer => "it did not answer while its SCTP association was set up".into(),
        DownReason::ProtocolViolation => "it violated the SCTP protocol".into(),
        DownReason::OutOfResource => "it used all memory that its SCTP association may have".into(),
    }
}

//! Interface management: TS 38.413 §8.7.

use core::net::IpAddr;
use core::time::Duration;

use whimbrel_ids::{Instant, RanUeNgapId};
use whimbrel_ngap::{
    AmfConfigurationUpdate, AmfConfigurationUpdateAcknowledge, AmfStatusIndication, Cause, CauseMisc,
    CauseRadioNetwork, CpTransportLayerInformation, ErrorIndication, Message, NgReset, NgResetAcknowledge,
    NgSetupFailure, NgSetupResponse, ResetAll, ResetType, TimeToWait, UeAssociatedLogicalNgConnectionItem,
};

use super::handover::{Handover, Via};
use super::{
    Due, Event, Gnb, GnbConfig, NgInterfaceState, Output, UeConnection, Violation, event, violation,
};
use crate::outbox::Outbox;

/// Whether a message belongs on stream 0 (TS 38.412 §7). ERROR INDICATION may be either kind.
pub(super) fn is_non_ue_associated(message: &Message) -> bool {
    match message {
        Message::ErrorIndication(m) => m.amf_ue_ngap_id.is_none() && m.ran_ue_ngap_id.is_none(),
        Message::NgSetupResponse(_)
        | Message::NgSetupFailure(_)
        | Message::RanConfigurationUpdateAcknowledge(_)
        | Message::RanConfigurationUpdateFailure(_)
        | Message::AmfConfigurationUpdate(_)
        | Message::AmfStatusIndication(_)
        | Message::NgReset(_)
        | Message::NgResetAcknowledge(_)
        | Message::OverloadStart(_)
        | Message::OverloadStop(_)
        | Message::Paging(_)
        | Message::DownlinkRanConfigurationTransfer(_)
        | Message::WriteReplaceWarningRequest(_)
        | Message::PwsCancelRequest(_) => true,
        _ => false,
    }
}

impl Gnb {
    pub(super) fn association_up(&mut self, now: Instant, streams: u16, out: &mut Outbox<Output>) {
        // A peer that has set up its association again has lost all contexts (RFC 9260 §5.2.4.1 A).
        self.drop_all(now, Cause::Misc(CauseMisc::Unspecified), out);
        self.streams = streams.max(1);
        self.set_up(now, out);
    }

    fn set_up(&mut self, now: Instant, out: &mut Outbox<Output>) {
        self.interface = NgInterfaceState::SettingUp { until: now + self.config.setup_timeout };
        self.send(0, &self.config.setup_request().into(), out);
    }

    /// All UEs lose their connection: without N2 the gNB cannot serve them. With a further association it continues.
    pub(super) fn association_down(&mut self, now: Instant, out: &mut Outbox<Output>) {
        if std::mem::take(&mut self.further) && self.is_up() {
            return;
        }
        self.interface = NgInterfaceState::Down;
        self.served_guamis.clear();
        self.drop_all(now, Cause::Misc(CauseMisc::Unspecified), out);
    }

    /// The first message over a further association identifies the gNB (TS 38.412 §7).
    pub(super) fn further_association_up(&mut self, out: &mut Outbox<Output>) {
        let octets = Message::from(self.config.further_association()).to_vec();
        out.push(Output::FurtherNgap { stream: 0, octets });
    }

    /// Once the AMF knows that the further association is this gNB's, it may send any message over it; the answer uses the same
    /// association (TS 23.501 §5.21.1.2).
    pub(super) fn further_ngap(
        &mut self,
        now: Instant,
        stream: u16,
        octets: &[u8],
        out: &mut Outbox<Output>,
    ) {
        match Message::decode(octets) {
            Ok(Message::RanConfigurationUpdateAcknowledge(_)) => self.further = self.is_up(),
            Ok(Message::RanConfigurationUpdateFailure(_)) => self.further = false,
            _ if self.further => {
                let mut caused = Outbox::new();
                self.ngap(now, stream, octets, &mut caused);
                for output in caused.drain() {
                    out.push(match output {
                        Output::Ngap { stream, octets } => Output::FurtherNgap { stream, octets },
                        other => other,
                    });
                }
            }
            Ok(other) => violation(None, Violation::Unexpected(other.name()), out),
            Err(refusal) => violation(None, Violation::Refused(refusal), out),
        }
    }

    pub(super) fn tick(&mut self, now: Instant, out: &mut Outbox<Output>) {
        match self.interface {
            NgInterfaceState::SettingUp { until } if until <= now => {
                self.interface = NgInterfaceState::Refused;
                event(Event::SetupTimedOut, out);
            }
            NgInterfaceState::Waiting { until } if until <= now => self.set_up(now, out),
            _ => {}
        }
        while let Some((at, due)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, due));
            match due {
                Due::Context(id) => {
                    self.handover_expired(now, RanUeNgapId(id), out);
                    self.reordering_expired(now, id, out);
                }
                Due::Passing(teid) => {
                    self.tunnels.remove(teid);
                }
            }
        }
    }

    pub(super) fn setup_response(&mut self, m: NgSetupResponse, out: &mut Outbox<Output>) {
        if !matches!(self.interface, NgInterfaceState::SettingUp { .. }) {
            return violation(None, Violation::Unexpected("NgSetupResponse"), out);
        }
        self.interface = NgInterfaceState::Up;
        self.served_guamis = m.served_guami_list.iter().map(|item| item.guami).collect();
        let own = |item: &whimbrel_ngap::PlmnSupportItem| item.plmn_identity == self.config.id.plmn;
        if self.served_guamis.is_empty() || !m.plmn_support_list.iter().any(own) {
            violation(None, Violation::SetupWithoutOwnPlmn, out);
        }
        event(Event::SetUp { amf_name: m.amf_name }, out);
    }

    pub(super) fn setup_failure(&mut self, now: Instant, m: NgSetupFailure, out: &mut Outbox<Output>) {
        if !matches!(self.interface, NgInterfaceState::SettingUp { .. }) {
            return violation(None, Violation::Unexpected("NgSetupFailure"), out);
        }
        self.interface = match m.time_to_wait {
            Some(wait) => NgInterfaceState::Waiting { until: now + time_to_wait(wait) },
            None => NgInterfaceState::Refused,
        };
        event(Event::SetupFailed(m), out);
    }

    pub(super) fn reconfigure(&mut self, config: GnbConfig, out: &mut Outbox<Output>) {
        self.config = config;
        if self.is_up() {
            self.send(0, &self.config.configuration_update().into(), out);
        }
    }

    pub(super) fn amf_configuration_update(&mut self, m: AmfConfigurationUpdate, out: &mut Outbox<Output>) {
        if !m.served_guami_list.is_empty() {
            self.served_guamis = m.served_guami_list.iter().map(|item| item.guami).collect();
        }
        self.send(0, &AmfConfigurationUpdateAcknowledge::new().into(), out);
        let removed = m.amf_tnl_association_to_remove_list.iter();
        for address in removed.filter_map(|item| address_of(&item.amf_tnl_association_address)) {
            out.push(Output::Dissociate(address));
        }
        let added = m.amf_tnl_association_to_add_list.iter().take(1); // one further association
        for address in added.filter_map(|item| address_of(&item.amf_tnl_association_address)) {
            out.push(Output::Associate(address));
        }
    }

    pub(super) fn amf_status_indication(&mut self, m: &AmfStatusIndication) {
        self.served_guamis.retain(|g| !m.unavailable_guami_list.iter().any(|item| item.guami == *g));
    }

    /// ERROR INDICATION (§8.7.5). One with wrong AP IDs ends the connection at both sides (§10.6).
    pub(super) fn error_indication(&mut self, now: Instant, m: &ErrorIndication, out: &mut Outbox<Output>) {
        let named = m.ran_ue_ngap_id.filter(|id| {
            let of_it = |c: &UeConnection| m.amf_ue_ngap_id.is_none() || c.amf_ue_ngap_id == m.amf_ue_ngap_id;
            self.contexts.get(id.0).is_some_and(of_it)
        });
        let ue = named.and_then(|id| self.contexts.get(id.0)).map(|c| c.ue);
        violation(ue, Violation::ErrorIndicated(m.cause.clone()), out);
        let (Some(id), Some(cause)) = (named, &m.cause) else { return };
        let wrong_names =
            [CauseRadioNetwork::UnknownLocalUeNgapId, CauseRadioNetwork::InconsistentRemoteUeNgapId];
        if wrong_names.iter().any(|wrong| *cause == Cause::RadioNetwork(*wrong))
            && let Some(UeConnection { ue, handover, .. }) = self.drop_context(now, id, out)
        {
            let came = matches!(handover, Handover::Switching { .. });
            let cause = cause.clone();
            event(
                match came {
                    true => Event::HandoverFailed { ue, via: Via::Xn, cause },
                    false => Event::ContextReleased(ue, cause),
                },
                out,
            );
        }
    }

    /// NG RESET from here (§8.7.3.2.2).
    pub(super) fn reset_all(&mut self, now: Instant, out: &mut Outbox<Output>) {
        let cause = Cause::Misc(CauseMisc::OmIntervention);
        self.drop_all(now, cause.clone(), out);
        self.send(0, &NgReset::new(cause, ResetType::NgInterface(ResetAll::ResetAll)).into(), out);
    }

    /// NG RESET from the AMF (§8.7.3.2.1).
    pub(super) fn reset_by_amf(&mut self, now: Instant, m: NgReset, out: &mut Outbox<Output>) {
        let mut answer = NgResetAcknowledge::new();
        let ues = match m.reset_type {
            ResetType::NgInterface(_) => self.drop_all(now, m.cause, out),
            ResetType::PartOfNgInterface(items) => {
                let released = items.iter().filter(|item| self.drop_item(now, item, &m.cause, out)).count();
                answer.ue_associated_logical_ng_connection_list = items;
                released
            }
        };
        self.send(0, &answer.into(), out);
        event(Event::ResetByAmf { ues }, out);
    }

    fn drop_item(
        &mut self,
        now: Instant,
        item: &UeAssociatedLogicalNgConnectionItem,
        cause: &Cause,
        out: &mut Outbox<Output>,
    ) -> bool {
        let named =
            |id: &u32| self.contexts.get(*id).is_some_and(|c| c.amf_ue_ngap_id == item.amf_ue_ngap_id);
        let by_amf_id = || self.contexts.ids().find(named).map(RanUeNgapId);
        let Some(id) = item.ran_ue_ngap_id.or_else(by_amf_id) else { return false };
        let Some(context) = self.drop_context(now, id, out) else { return false };
        event(Event::ContextReleased(context.ue, cause.clone()), out);
        true
    }

    fn drop_all(&mut self, now: Instant, cause: Cause, out: &mut Outbox<Output>) -> usize {
        let ids: Vec<u32> = self.contexts.ids().collect();
        for id in &ids {
            if let Some(context) = self.drop_context(now, RanUeNgapId(*id), out) {
                event(Event::ContextReleased(context.ue, cause.clone()), out);
            }
        }
        ids.len()
    }
}

fn address_of(information: &CpTransportLayerInformation) -> Option<IpAddr> {
    let CpTransportLayerInformation::EndpointIpAddress(address) = information else { return None };
    address.v4().map(IpAddr::from).or_else(|| address.v6().map(IpAddr::from))
}

/// TS 38.413 §9.3.1.56.
fn time_to_wait(wait: TimeToWait) -> Duration {
    Duration::from_secs(match wait {
        TimeToWait::V1s => 1,
        TimeToWait::V2s => 2,
        TimeToWait::V5s => 5,
        TimeToWait::V10s => 10,
        TimeToWait::V20s => 20,
        TimeToWait::V60s => 60,
    })
}

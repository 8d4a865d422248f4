//! NAS transport (TS 38.413 §8.6) and paging (§8.5).

use whimbrel_ngap::{
    Cause, DownlinkNasTransport, InitialUeMessage, NasNonDeliveryIndication, Paging, UeContextRequest,
    UePagingIdentity, UplinkNasTransport,
};

use super::{Event, Gnb, Output, ReceivedMessage, Violation, event, violation};
use crate::outbox::Outbox;
use crate::radio::{Connect, DownlinkMessage, UeId};

impl Gnb {
    /// INITIAL UE MESSAGE (§8.6.1). Every connection requests a UE context, as a gNB does that wants AS security at
    /// once.
    pub(super) fn initial_ue_message(&mut self, ue: UeId, connect: Connect, out: &mut Outbox<Output>) {
        if self.overload.as_mut().is_some_and(|o| o.is_barred(connect.cause)) {
            event(Event::Barred(ue), out);
            return out.push(Output::Radio(ue, DownlinkMessage::Rejected));
        }
        let id = if self.is_up() { self.new_context(ue, None) } else { None };
        let Some(context) = id.and_then(|id| self.contexts.get_mut(id.0)) else {
            // No AMF, or no free context: the UE's connection is refused.
            return out.push(Output::Radio(ue, DownlinkMessage::Released));
        };
        context.guami = connect.guami;
        let location = self.config.location();
        let mut m = InitialUeMessage::new(context.ran_ue_ngap_id, connect.nas, location, connect.cause);
        m.five_g_s_tmsi = connect.s_tmsi;
        m.amf_set_id = connect.guami.map(|g| g.amf_id.set());
        m.ue_context_request = Some(UeContextRequest::Requested);
        let stream = context.stream;
        self.send(stream, &m.into(), out);
    }

    /// UPLINK NAS TRANSPORT (§8.6.3).
    pub(super) fn uplink_nas(&mut self, ue: UeId, nas: Vec<u8>, out: &mut Outbox<Output>) {
        let Some(context) = self.of_ue(ue).filter(|c| !c.radio_lost) else {
            return out.push(Output::Radio(ue, DownlinkMessage::Released));
        };
        // Without an AMF UE NGAP ID the AMF has not answered yet, and a second message cannot be sent.
        let Some(amf_ue_ngap_id) = context.amf_ue_ngap_id else { return };
        let mut m = UplinkNasTransport::new(amf_ue_ngap_id, context.ran_ue_ngap_id, nas);
        m.user_location_information = Some(self.config.location());
        self.send(context.stream, &m.into(), out);
    }

    /// DOWNLINK NAS TRANSPORT (§8.6.2).
    pub(super) fn downlink_nas(
        &mut self,
        at: ReceivedMessage,
        m: DownlinkNasTransport,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        context.ambr = m.ue_aggregate_maximum_bit_rate.or(context.ambr.take());
        let (ue, stream) = (context.ue, context.stream);
        if context.radio_lost {
            let cause = Cause::RadioNetwork(context.lost_cause());
            let mut answer = NasNonDeliveryIndication::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id, cause);
            answer.nas_pdu = m.nas_pdu;
            return self.send(stream, &answer.into(), out);
        }
        out.push(Output::Radio(ue, DownlinkMessage::Nas(m.nas_pdu)));
    }

    /// Delivers a NAS message from another NGAP message.
    pub(super) fn deliver(&self, ue: UeId, nas: Option<Vec<u8>>, out: &mut Outbox<Output>) {
        let heard = self.of_ue(ue).is_some_and(|c| !c.radio_lost);
        if let Some(nas) = nas.filter(|_| heard) {
            out.push(Output::Radio(ue, DownlinkMessage::Nas(nas)));
        }
    }

    /// PAGING of the core (§8.5.1).
    pub(super) fn paging(&mut self, m: &Paging, out: &mut Outbox<Output>) {
        if !self.config.serves(&m.tai_list_for_paging) {
            return violation(None, Violation::PagedElsewhere, out);
        }
        self.pagings += 1;
        if let Some(priority) = m.paging_priority {
            event(Event::PagedUrgently(priority), out);
        }
        let UePagingIdentity::FiveGSTmsi(s_tmsi) = m.ue_paging_identity;
        out.push(Output::Page(s_tmsi));
    }
}

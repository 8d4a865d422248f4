//! What of N2, N3 and N4 goes into the capture file, and of N2 and N4 into the UEs' signalling.

use std::sync::Arc;

use whimbrel_control::{AssociationId, UeId, UpfId};
use whimbrel_ids::Instant;
use whimbrel_ngap::ie::UePagingIdentity;
use whimbrel_ngap::{Message, ProcedureCode, peek, to_per};
use whimbrel_pfcp::{Frame, message_type};

use super::ControlLoop;
use crate::observation::{Interface, Names, Signalling};

impl ControlLoop {
    /// Keeps an N2 message of a UE for the console.
    pub(super) fn keep_ngap(&self, now: Instant, name: AssociationId, octets: &[u8], received: bool) {
        let Some(peek) = peek(octets) else { return };
        let cta = self.active.cta();
        let mut names = Names {
            ue: peek.amf_ue_ngap_id.and_then(|id| cta.find_connection(id)),
            amf_ue_ngap_id: peek.amf_ue_ngap_id,
            ran: peek.ran_ue_ngap_id.map(|id| (name, id)),
            begins: peek.procedure_code == ProcedureCode::INITIAL_UE_MESSAGE,
            exchange: None,
        };
        if peek.procedure_code == ProcedureCode::PAGING {
            let Ok(Message::Paging(paging)) = Message::decode(octets) else { return };
            let UePagingIdentity::FiveGSTmsi(id) = paging.ue_paging_identity;
            names.ue = cta.find_tmsi(id.tmsi);
        }
        if names.ue.is_none() && names.amf_ue_ngap_id.is_none() && !names.begins {
            return; // of the gNB
        }
        let peer = self.observer.gnb(name);
        let push = |s: &mut Signalling| s.push(now, (Interface::N2, received), peer, names, octets);
        let unnamed = self.console.signalling(push);
        // The context names its subscriber before the first procedure has ended.
        if let Some(ue) = unnamed
            && let Some(supi) = cta.context(ue).and_then(|context| context.subject().supi)
        {
            self.console.signalling(|s| s.name(supi, ue));
        }
    }

    /// Keeps an N4 message of a session for the console.
    pub(super) fn keep_pfcp(&self, now: Instant, upf: UpfId, octets: &[u8], received: bool) {
        let Ok(Frame { header, .. }) = Frame::parse(octets) else { return };
        let by_upf = match header.message_type {
            message_type::SESSION_REPORT_REQUEST | message_type::SESSION_REPORT_RESPONSE => true,
            message_type::SESSION_ESTABLISHMENT_REQUEST..=message_type::SESSION_DELETION_RESPONSE => false,
            _ => return,
        };
        let names = Names {
            // The receiver's SEID: that of the SMF names the UE.
            ue: header.seid.filter(|_| received).and_then(UeId::from_seid).map(|(ue, _)| ue),
            exchange: Some((upf.0, header.sequence, by_upf)),
            begins: received == by_upf,
            ..Names::default()
        };
        let known = self.active.cta().config().smf.upfs.get(usize::from(upf.0)).map(|u| u.name.as_str());
        let peer: Arc<str> = known.unwrap_or("UPF").into();
        self.console.signalling(|s| s.push(now, (Interface::N4, received), peer, names, octets));
    }

    pub(super) fn capture_ngap(
        &mut self,
        now: Instant,
        name: AssociationId,
        stream: u16,
        octets: &[u8],
        inbound: bool,
    ) {
        let (Some(capture), Some(link)) = (&mut self.capture, self.n2.links.get(name)) else { return };
        let own = self.config.n2.addresses.iter().find(|a| a.is_ipv4() == link.peer.is_ipv4());
        let Some(own) = own.or(self.config.n2.addresses.first()) else { return };
        let own = std::net::SocketAddr::new(*own, self.config.n2.port);
        let (from, to) = if inbound { (link.peer, own) } else { (own, link.peer) };
        // Dissectors read PER only.
        let per = to_per(octets);
        capture.ngap(now, from, to, stream, per.as_deref().unwrap_or(octets));
    }

    /// PFCP with the UPF of this process, which crosses no socket.
    pub(super) fn capture_pfcp(&mut self, now: Instant, octets: &[u8], answer: bool) {
        let (Some(capture), Some(upf)) = (&mut self.capture, &self.upfs.local) else { return };
        let (smf, upf) = upf.ends();
        let (from, to) = if answer { (upf, smf) } else { (smf, upf) };
        capture.udp(now, from, to, octets);
    }

    /// N3, and N4 with external SMFs: for the capture file, and for captures of single UEs.
    pub(super) fn capture_datagrams(&mut self) {
        let Some(upf) = &mut self.upfs.local else { return };
        let needed = self.capture.is_some() || self.console.taps.is_tapping();
        if upf.is_tapped() != needed {
            upf.tap(needed);
        }
        if !needed {
            return;
        }
        for datagram in upf.take_tapped() {
            self.console.taps.push(&datagram);
            if let Some(capture) = &mut self.capture {
                capture.udp(datagram.at, datagram.from, datagram.to, &datagram.octets);
            }
        }
    }
}

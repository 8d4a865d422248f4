//! What a UP function does on its own initiative with its associations: it sets one up (TS 29.244 §6.2.6.3), reports its features (TS 29.244
//! §6.2.7.3), and asks to be left (TS 29.244 §6.2.8.3).

use std::net::SocketAddr;
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::{AssociationReleaseRequest as ReleaseFlags, PackedTimer};
use whimbrel_pfcp::message_type;
use whimbrel_pfcp::msg::{AssociationSetupRequest, AssociationSetupResponse, AssociationUpdateRequest};

use super::{Outbox, UpfC};
use crate::event::Event;

impl UpfC {
    /// Asks an SMF for an association. The request is sent N1 times; after that the caller may ask again.
    pub fn associate(&mut self, now: Instant, smf: SocketAddr, out: &mut Outbox) {
        let request = AssociationSetupRequest {
            announced_pools: Some(self.announced_pools()),
            smf_set_id: None,
            node_id: self.config.node_id.clone(),
            recovery_time_stamp: self.recovery,
            up_function_features: Some(self.features()),
            cp_function_features: None,
            user_plane_ip_resource_information: self.user_plane_ip_resources(),
            alternative_smf_ip_addresses: Vec::new(),
            session_retention_information: None,
        };
        self.requests.send(now, smf, &request.into(), out);
    }

    /// The SMF's answer to it.
    pub(super) fn associated(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        sequence: u32,
        m: AssociationSetupResponse,
        out: &mut Outbox,
    ) {
        let asked = self.requests.answered(peer, sequence, message_type::ASSOCIATION_SETUP_REQUEST);
        if asked.is_none() {
            let message_type = message_type::ASSOCIATION_SETUP_RESPONSE;
            return out.events.push(Event::BadMessage { peer, message_type, cause: None });
        }
        if m.cause.is_accepted() {
            self.join(now, peer, m.node_id, m.recovery_time_stamp, m.cp_function_features, out);
        }
    }

    /// Asks every SMF that answers to lead its UEs elsewhere and to release the association, within `grace`.
    pub fn retire(&mut self, now: Instant, grace: Duration, out: &mut Outbox) {
        let seconds = u32::try_from(grace.as_secs()).unwrap_or(u32::MAX);
        let request = AssociationUpdateRequest {
            node_id: self.config.node_id.clone(),
            up_function_features: None,
            cp_function_features: None,
            pfcp_association_release_request: Some(ReleaseFlags::SARR),
            graceful_release_period: Some(PackedTimer::from_seconds(seconds)),
            user_plane_ip_resource_information: Vec::new(),
            alternative_smf_ip_addresses: Vec::new(),
        };
        let request = request.into();
        for (_, association) in self.associations.iter().filter(|(_, a)| !a.is_silent()) {
            self.requests.send(now, association.peer, &request, out);
        }
    }

    /// An SMF has heard it.
    pub(super) fn update_answered(&mut self, peer: SocketAddr, sequence: u32, out: &mut Outbox) {
        if self.requests.answered(peer, sequence, message_type::ASSOCIATION_UPDATE_REQUEST).is_none() {
            let message_type = message_type::ASSOCIATION_UPDATE_RESPONSE;
            out.events.push(Event::BadMessage { peer, message_type, cause: None });
        }
    }
}

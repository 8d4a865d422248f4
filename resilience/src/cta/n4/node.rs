//! Requests of a UPF: heartbeat, node report, and its association (TS 29.244 §6.2.2, §6.2.6.3, §6.2.7.3, §6.2.8.3, §6.2.9; TS 23.502
//! §4.4.3).

use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::{AssociationReleaseRequest as ReleaseFlags, Cause, NodeId};
use whimbrel_pfcp::msg::{
    AssociationReleaseResponse, AssociationSetupRequest, AssociationSetupResponse, AssociationUpdateRequest,
    AssociationUpdateResponse, HeartbeatResponse, NodeReportResponse,
};
use whimbrel_pfcp::{Frame, Message};

use super::{N4, N4Arrival, N4Association, OutgoingPfcp, UpfChange};

/// The longest grace period of a UPF that asks for its release: its sessions move within seconds.
const GRACE_MAX: Duration = Duration::from_secs(3600);

impl N4 {
    pub(super) fn asked(
        &mut self,
        now: Instant,
        frame: &Frame<'_>,
        out: &mut OutgoingPfcp,
        arrived: &mut Vec<N4Arrival>,
    ) {
        let Ok(message) = Message::parse(frame) else { return };
        let node_id = NodeId::from(self.node_id);
        let response = match message {
            Message::HeartbeatRequest(m) => {
                let answer = HeartbeatResponse { recovery_time_stamp: self.recovery };
                out.push((self.upf, Message::from(answer).to_octets(None, frame.header.sequence)));
                if self.link != N4Association::Down {
                    self.heartbeat_answered(now, m.recovery_time_stamp, out, arrived);
                }
                return;
            }
            // The UPF's own events and metrics report it to the operator. Its sessions stay until their gNB says more: a path that fails
            // takes N2 with it, or only looks failed (TS 23.527 §5.4).
            Message::NodeReportRequest(_) => {
                NodeReportResponse { node_id, cause: Cause::RequestAccepted, offending_ie: None }.into()
            }
            // What it asks a second time, since it was not answered, does not end what it has since (TS 29.244 §6.4).
            Message::AssociationSetupRequest(m) if self.link == N4Association::Up(m.recovery_time_stamp) => {
                match self.answered.iter().find(|(sequence, _)| *sequence == frame.header.sequence) {
                    Some((_, answer)) => return out.push((self.upf, answer.clone())),
                    None => self.set_up_by_upf(now, &m, arrived),
                }
            }
            Message::AssociationSetupRequest(m) => self.set_up_by_upf(now, &m, arrived),
            Message::AssociationUpdateRequest(m) => self.updated_by_upf(now, &m, arrived),
            // Only an SMF releases (TS 29.244 §6.2.8.1).
            Message::AssociationReleaseRequest(_) => {
                AssociationReleaseResponse { node_id, cause: Cause::RequestRejected }.into()
            }
            _ => return,
        };
        let is_set_up = matches!(response, Message::AssociationSetupResponse(_));
        let octets = response.to_octets(None, frame.header.sequence);
        if is_set_up {
            self.answered.push_back((frame.header.sequence, octets.clone()));
        }
        out.push((self.upf, octets));
    }

    /// TS 29.244 §6.2.6.3: the UPF sets the association up. One that stood is replaced, and the UPF has no sessions of it.
    fn set_up_by_upf(
        &mut self,
        now: Instant,
        m: &AssociationSetupRequest,
        arrived: &mut Vec<N4Arrival>,
    ) -> Message {
        if self.link != N4Association::Down {
            self.restarted(now, arrived);
        }
        self.pending.clear(); // our own attempt, if one was under way
        self.due.clear();
        self.judge_retained(m.recovery_time_stamp, false, arrived);
        self.take_pools(m.announced_pools.clone());
        self.associated(now, m.recovery_time_stamp, m.up_function_features, arrived);
        self.announce_again(now);
        let response = AssociationSetupResponse {
            node_id: NodeId::from(self.node_id),
            cause: Cause::RequestAccepted,
            recovery_time_stamp: self.recovery,
            up_function_features: None,
            cp_function_features: Some(self.features()),
            announced_pools: None,
            user_plane_ip_resource_information: Vec::new(),
            pfcpasrsp_flags: None,
        };
        response.into()
    }

    /// TS 29.244 §6.2.7.3: the UPF can do other things than before, or asks for its release (TS 29.244 §6.2.8.3).
    fn updated_by_upf(
        &mut self,
        now: Instant,
        m: &AssociationUpdateRequest,
        arrived: &mut Vec<N4Arrival>,
    ) -> Message {
        let cause = match self.link {
            N4Association::Down => Cause::NoEstablishedPfcpAssociation,
            N4Association::Up(_) | N4Association::Silent(..) => Cause::RequestAccepted,
        };
        if self.link != N4Association::Down {
            if let Some(features) = m.up_function_features {
                self.fit = features.has(self.needed());
            }
            let asks = |f: ReleaseFlags| f.has(ReleaseFlags::SARR);
            if m.pfcp_association_release_request.is_some_and(asks) && self.leaving.is_none() {
                let period = m.graceful_release_period.and_then(|p| p.seconds());
                let grace = period.map_or(GRACE_MAX, |s| Duration::from_secs(s.into()));
                self.leaving = Some(now + grace.min(GRACE_MAX));
                arrived.push(N4Arrival::Upf(UpfChange::Leaving));
            }
        }
        let node_id: NodeId = NodeId::from(self.node_id);
        let response = AssociationUpdateResponse {
            node_id,
            cause,
            up_function_features: None,
            cp_function_features: Some(self.features()),
        };
        response.into()
    }
}

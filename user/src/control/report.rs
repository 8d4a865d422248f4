//! Session reports to SMFs (TS 29.244 §6.3.5).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::{
    Cause, DataServiceInformation, DataStatus, DlDataPacketsSize, FTeid, NodeReportType, RemoteGtpuPeer,
    ReportType, SessionReportResponseFlags,
};
use whimbrel_pfcp::msg::{
    DownlinkDataReport, ErrorIndicationReport, NodeReportRequest, SessionReportRequest,
    SessionReportResponse, UserPlanePathFailureReport, UserPlanePathRecoveryReport,
};
use whimbrel_pfcp::{Message, message_type};

use whimbrel_pfcp::rule::UpdateBarInReportResponse;

use super::replies::ReplyKey;
use super::requests::OutgoingReport;
use super::{Outbox, UpfC};
use crate::event::Event;
use crate::exchange::{Effects, SessionKey, UserPlaneChange, UserPlaneReport};
use crate::rules::upper;
use crate::session_id::SessionId;

impl UpfC {
    pub(super) fn report(&mut self, now: Instant, report: UserPlaneReport, out: &mut Outbox) {
        if self.is_of_the_past(&report) {
            return;
        }
        let (session, request) = match report {
            UserPlaneReport::Counted { session, counted } => return self.keep_counted(session, counted, out),
            UserPlaneReport::Usage { token: Some(token), reports, .. } => {
                return self.figures(now, token, reports, out);
            }
            UserPlaneReport::Usage { session, token: None, reports } => {
                let usage = SessionReportRequest {
                    usage_reports: reports,
                    ..SessionReportRequest::new(ReportType::USAR)
                };
                (session, usage)
            }
            UserPlaneReport::DownlinkData { session, pdr_id, qfi, dscp, octets } => {
                let data = DownlinkDataReport {
                    pdr_ids: vec![pdr_id],
                    downlink_data_service_information: vec![DataServiceInformation {
                        paging_policy_indication: Some(dscp & 0x3f),
                        qfi,
                    }],
                    dl_data_packets_size: Some(DlDataPacketsSize(octets)),
                    data_status: Some(DataStatus::BUFF),
                };
                let request = SessionReportRequest {
                    downlink_data_report: Some(data),
                    ..SessionReportRequest::new(ReportType::DLDR)
                };
                (session, request)
            }
            UserPlaneReport::ErrorIndication { session, teid, peer } => {
                let remote_f_teids = vec![FTeid::given(teid, peer)];
                let request = SessionReportRequest {
                    error_indication_report: Some(ErrorIndicationReport { remote_f_teids }),
                    ..SessionReportRequest::new(ReportType::ERIR)
                };
                (session, request)
            }
            UserPlaneReport::Stray { lead, shard } => {
                if !self.has_session_of(lead) {
                    out.changes.push(UserPlaneChange::NoSession { lead, shard });
                }
                return;
            }
            UserPlaneReport::Arrived { session } => return self.arrived(now, session),
            UserPlaneReport::Path { peer, failed } => return self.report_path(now, peer, failed, out),
            UserPlaneReport::Inactivity { session } => (session, SessionReportRequest::new(ReportType::UPIR)),
        };
        let Some(s) = self.sessions.get(session) else { return };
        let Some(address) = s.cp_address() else { return };
        let address = self.speaks_for(s.association, address);
        let report = OutgoingReport {
            peer: SocketAddr::new(address, self.config.cp_port),
            association: s.association,
            seid: Some(s.cp_f_seid.seid),
            session: Some(session),
            message: request.into(),
        };
        self.send_report(now, &report, out);
    }

    /// Whether a packet that is led so has a session, of which the pipeline is about to hear. Of networks behind UEs it is not known.
    fn has_session_of(&self, lead: SessionKey) -> bool {
        match lead {
            SessionKey::Tunnel(teid) => {
                let session = self.sessions.of_tunnel(&self.config.teids(), teid);
                session.is_some_and(|s| s.rules.is_led_to(lead))
            }
            SessionKey::Ue(dn, ue) => {
                let pools = self.sessions.pools.get(usize::from(dn.0));
                pools.is_some_and(|p| match ue {
                    IpAddr::V4(a) => p.ipv4.is_taken(a.to_bits().into()),
                    IpAddr::V6(a) => p.ipv6.is_taken(upper(a)),
                })
            }
        }
    }

    /// TS 29.244 §6.2.9: reported to every SMF, since each may have sessions there.
    fn report_path(&mut self, now: Instant, peer: IpAddr, failed: bool, out: &mut Outbox) {
        out.events.push(Event::Path { peer, failed });
        let of = |a: IpAddr| match a {
            IpAddr::V4(a) => RemoteGtpuPeer { ipv4: Some(a), ipv6: None },
            IpAddr::V6(a) => RemoteGtpuPeer { ipv4: None, ipv6: Some(a) },
        };
        let remote_gtpu_peers = || vec![of(peer)];
        let request = NodeReportRequest {
            node_id: self.config.node_id.clone(),
            node_report_type: if failed { NodeReportType::UPFR } else { NodeReportType::UPRR },
            user_plane_path_failure_report: failed
                .then(|| UserPlanePathFailureReport { remote_gtpu_peers: remote_gtpu_peers() }),
            user_plane_path_recovery_report: (!failed)
                .then(|| UserPlanePathRecoveryReport { remote_gtpu_peers: remote_gtpu_peers() }),
        };
        let request = Message::from(request);
        let to: Vec<(SocketAddr, u32)> = self.associations.iter().map(|(_, a)| (a.peer, a.id)).collect();
        for (peer, association) in to {
            let message = request.clone();
            let report = OutgoingReport { peer, association, seid: None, session: None, message };
            self.send_report(now, &report, out);
        }
    }

    /// A tunnel that a gNB does not know, and that packets no longer go to: the SMF has led them elsewhere while the
    /// report was under way, and would take it for the tunnel of now.
    fn is_of_the_past(&self, report: &UserPlaneReport) -> bool {
        let &UserPlaneReport::ErrorIndication { session, teid, peer } = report else { return false };
        let session = self.sessions.get(session);
        session.is_some_and(|s| s.rules.remote_tunnels().all(|t| t != (teid, peer)))
    }

    /// TS 29.244 §5.2.4.2 (extended buffering), table 7.5.9.2-1. A BAR that the session does not have is passed over: a
    /// report's answer has no answer that could say so.
    fn update_bar(&mut self, session: SessionId, m: &UpdateBarInReportResponse, out: &mut Outbox) {
        let Some(s) = self.sessions.get(session) else { return };
        let Some(rules) = s.rules.with_bar(m).map(Arc::new) else { return };
        self.sessions.set_rules(session, Arc::clone(&rules));
        let quiet = m.dl_buffering_duration.and_then(|d| d.seconds()).map(|s| Duration::from_secs(s.into()));
        let effects = Effects { quiet, ..Effects::default() };
        out.changes.push(UserPlaneChange::Put { session, rules, effects });
    }

    /// TS 29.244 §6.3.5.3. The request, not the header, says which session is meant. An SMF that does not
    /// know the session has no use for it: it is deleted.
    pub(super) fn report_answered(
        &mut self,
        now: Instant,
        key: ReplyKey,
        m: &SessionReportResponse,
        out: &mut Outbox,
    ) {
        let answered = self.requests.answered(key.peer, key.sequence, message_type::SESSION_REPORT_REQUEST);
        let Some(Some(session)) = answered else {
            let message_type = message_type::SESSION_REPORT_RESPONSE;
            return out.events.push(Event::BadMessage { peer: key.peer, message_type, cause: None });
        };
        if let Some(association) = self.sessions.get(session).map(|s| s.association) {
            self.report_answer_heard(now, association, out);
        }
        // Another SMF of its set may have taken the session over since it was asked.
        if m.cause == Cause::SessionContextNotFound {
            if self.may_speak_of(key, session) {
                self.drop_session(session, out);
            }
            return;
        }
        if let Some(bar) = &m.update_bar {
            self.update_bar(session, bar, out);
        }
        let drop_buffered = m.pfcpsrrsp_flags.is_some_and(|f| f.has(SessionReportResponseFlags::DROBU));
        if let Some(s) = self.sessions.get(session).filter(|_| drop_buffered) {
            let effects = Effects { drop_buffered, ..Effects::default() };
            out.changes.push(UserPlaneChange::Put { session, rules: s.rules.clone(), effects });
        }
    }
}

//! Events that the UPF reports, as sentences of the log.

use tracing::{info, warn};
use whimbrel_pfcp::ie::NodeId;
use whimbrel_user::{AssociationEnd, Event, REPORTS_KEPT_MAX, RestoredSessions};

use crate::observation::Level;

pub(in crate::core) fn log_restored(restored: RestoredSessions) {
    let RestoredSessions { sessions, lost, associations, refusal } = restored;
    if let Some(refusal) = refusal {
        return warn!("the state file is not taken over: {refusal}; the UPF starts without sessions");
    }
    if lost > 0 {
        warn!(
            "{lost} sessions of the state file could not be restored: their records are damaged, or do not fit the configuration"
        );
    }
    if associations > 0 {
        info!("N4: the UPF goes on with {sessions} sessions of {associations} SMFs from its state file");
    }
}

/// An event of N3 or N4, in one sentence, and how much it matters.
pub(super) fn sentence(event: &Event) -> (Level, String) {
    let deleted = |sessions: usize| match sessions {
        0 => String::new(),
        1 => "; one session was deleted".to_string(),
        n => format!("; {n} sessions were deleted"),
    };
    match event {
        Event::AssociationSetUp { node, peer, sessions_deleted } => (
            Level::Info,
            format!(
                "N4: the SMF {} at {peer} set up its association{}",
                named(node),
                deleted(*sessions_deleted)
            ),
        ),
        Event::AssociationEnded { node, sessions_deleted, why } => {
            let why = match why {
                AssociationEnd::Released => "it released it",
                AssociationEnd::Restarted => "it restarted",
                AssociationEnd::Silent => "it did not answer for `n4.path_failure`",
            };
            let deleted = deleted(*sessions_deleted);
            (Level::Info, format!("N4: the association of the SMF {} ended: {why}{deleted}", named(node)))
        }
        Event::AssociationSilent { node } => (
            Level::Info,
            format!("N4: the SMF {} does not answer heartbeat requests; its sessions are kept", named(node)),
        ),
        Event::AssociationContested { node, peer } => (
            Level::Warn,
            format!(
                "N4: a request from {peer} for the association of the SMF {} is refused, for that one lives: two SMFs have one node \
                 identity, or the request is forged (`n4.peers` lists the permitted senders). Further ones from this address are not logged",
                named(node)
            ),
        ),
        Event::AssociationMoved { node, peer } => (
            Level::Info,
            format!(
                "N4: the SMF {} goes on at {peer}, another one of its set; its sessions stay",
                named(node)
            ),
        ),
        Event::PfdsProvisioned { peer, applications } => (
            Level::Info,
            format!("N4: the SMF at {peer} provided or removed the PFDs of {applications} applications"),
        ),
        Event::SessionRefused { peer, refusal, cause } => {
            let cause = *cause as u8;
            (
                Level::Warn,
                format!(
                    "N4: a session request of the SMF at {peer} was refused with PFCP cause {cause}: {refusal}"
                ),
            )
        }
        Event::StateFull { session } => {
            let what = session.map_or("the associations and applications".to_string(), |s| {
                format!("the session with SEID {:#018x}", s.seid().0)
            });
            (
                Level::Warn,
                format!("N4: the state file has no room for {what}: a restart would lose the last change"),
            )
        }
        Event::ReportUnanswered { peer } => (
            Level::Warn,
            format!(
                "N4: a report to the SMF at {peer} is lost: it was not answered, or too many await answers. Further ones to this address \
                 are not logged"
            ),
        ),
        Event::ReportsKept { node, peer } => (
            Level::Warn,
            format!(
                "N4: the SMF {} at {peer} left a report unanswered and has sent nothing since: until it does, {REPORTS_KEPT_MAX} reports are \
                 kept for it, and the others are lost",
                named(node)
            ),
        ),
        Event::ReportsNotKept { node, repeated, lost } => (
            if *lost > 0 { Level::Warn } else { Level::Info },
            format!(
                "N4: of the reports to the SMF {} while it was silent, {repeated} are sent now and {lost} are lost",
                named(node)
            ),
        ),
        // Debug only: every host that reaches the socket could fill the log.
        Event::BadMessage { peer, message_type, cause } => {
            let answer = cause.map_or("no answer".into(), |c| format!("PFCP cause {}", c as u8));
            (
                Level::Debug,
                format!(
                    "N4: a message of type {message_type} from {peer} was malformed or unexpected: {answer}"
                ),
            )
        }
        Event::Path { peer, failed: true } => (
            Level::Warn,
            format!(
                "N3: the path to {peer} is down: no answer to three echo requests, and no G-PDU from there; packets are still sent"
            ),
        ),
        Event::Path { peer, failed: false } => (Level::Info, format!("N3: the path to {peer} is up again")),
        Event::SessionEstablished { .. } | Event::SessionDeleted { .. } => {
            (Level::Debug, format!("N4: {event:?}"))
        }
    }
}

/// A node identity (TS 29.244 §8.2.38) as an operator writes it.
fn named(node: &NodeId) -> String {
    match node {
        NodeId::Ipv4(a) => a.to_string(),
        NodeId::Ipv6(a) => a.to_string(),
        NodeId::Fqdn(name) => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use super::*;

    #[test]
    fn log_lines_of_n3_and_n4_are_sentences_without_debug_structures() {
        let (node, peer) =
            (NodeId::from(IpAddr::from([192, 0, 2, 7])), SocketAddr::from(([192, 0, 2, 7], 8805)));
        let set_up = Event::AssociationSetUp { node: node.clone(), peer, sessions_deleted: 2 };
        let contested = Event::AssociationContested { node: node.clone(), peer };
        let ended = Event::AssociationEnded {
            node: node.clone(),
            sessions_deleted: 1,
            why: AssociationEnd::Restarted,
        };
        let down = Event::Path { peer: peer.ip(), failed: true };
        assert_eq!(
            sentence(&set_up),
            (
                Level::Info,
                "N4: the SMF 192.0.2.7 at 192.0.2.7:8805 set up its association; 2 sessions were deleted"
                    .into()
            )
        );
        assert_eq!(
            sentence(&ended).1,
            "N4: the association of the SMF 192.0.2.7 ended: it restarted; one session was deleted"
        );
        assert_eq!(
            sentence(&down),
            (
                Level::Warn,
                "N3: the path to 192.0.2.7 is down: no answer to three echo requests, and no G-PDU from there; packets are still sent"
                    .into()
            )
        );
        let moved = Event::AssociationMoved { node: node.clone(), peer };
        let reports_kept = Event::ReportsKept { node: node.clone(), peer };
        let reports_lost = Event::ReportsNotKept { node: node.clone(), repeated: 0, lost: 7 };
        let silent = Event::AssociationSilent { node };
        let up = Event::Path { peer: peer.ip(), failed: false };
        let unanswered = Event::ReportUnanswered { peer };
        let of_reports = [unanswered, reports_kept, reports_lost];
        for event in [set_up, contested, ended, down, moved, silent, up].into_iter().chain(of_reports) {
            let (level, text) = sentence(&event);
            assert_ne!(level, Level::Debug);
            assert!(!text.contains(['{', '}', '"']) && !text.contains("event="), "{text}");
        }
    }
}

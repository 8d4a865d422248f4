//! Secondary RAT usage: TS 38.413 §8.15.1.2, TS 23.501 §5.18.

use whimbrel_ids::PduSessionId;
use whimbrel_ngap::transfer::SecondaryRatDataUsageReportTransfer;

use crate::procedure::{Ue, out_of_state};

/// Counts the volume over a secondary RAT by session. The UPF has counted it too: it is a part of the session's usage, not
/// additional.
pub(crate) fn secondary_rat_usage(ue: Ue, psi: PduSessionId, transfer: &[u8]) {
    let report = SecondaryRatDataUsageReportTransfer::decode(transfer).ok();
    let usage = report.and_then(|t| t.secondary_rat_usage_information);
    let (Some(usage), true) = (usage, ue.with(|p| p.sessions.contains_key(&psi))) else {
        return out_of_state(ue);
    };
    // The session's volume includes its flows; without it, the flows are summed.
    let periods = match usage.pdu_session_usage_report {
        Some(whole) => whole.pdu_session_timed_report_list,
        None => {
            let flows = usage.qos_flows_usage_report_list.into_iter();
            flows.flat_map(|f| f.qos_flows_timed_report_list).collect()
        }
    };
    ue.with(|p| {
        let Some(session) = p.sessions.get_mut(&psi) else { return };
        let so_far = session.usage.secondary.get_or_insert_default();
        for period in &periods {
            so_far.0 = so_far.0.saturating_add(period.usage_count_ul);
            so_far.1 = so_far.1.saturating_add(period.usage_count_dl);
        }
    });
}

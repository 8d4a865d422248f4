//! PDU session resource notify: TS 38.413 §8.2.4, TS 23.502 §4.3.3.2 step 1e.

use whimbrel_ids::{PduSessionId, Qfi};
use whimbrel_ngap::ie::NotificationCause;
use whimbrel_ngap::transfer::PduSessionResourceNotifyTransfer;

use super::{pending_change, up_connection};
use crate::procedure::Ue;
use crate::state::DEFAULT_QFI;

/// Flows that the gNB released are removed at UE and UPF; for the others it is stored whether their guarantee is
/// fulfilled. If the gNB released the default flow, the session is deactivated.
pub(crate) fn notified(ue: Ue, psi: PduSessionId, transfer: &[u8]) {
    let Ok(transfer) = PduSessionResourceNotifyTransfer::decode(transfer) else { return };
    ue.with(|p| {
        let Some(s) = p.sessions.get_mut(&psi).map(|s| &mut **s) else { return };
        for item in &transfer.qos_flow_notify_list {
            let of = s.qos.flows.iter_mut().find(|f| f.qfi == item.qos_flow_identifier);
            if let Some(flow) = of {
                let fulfilled = item.notification_cause == NotificationCause::Fulfilled;
                if flow.fulfilled != fulfilled
                    && let Some(policy) = &mut s.policy
                {
                    policy.guarantee_changed(flow.name, fulfilled);
                }
                flow.fulfilled = fulfilled;
            }
        }
    });
    let gone: Vec<Qfi> = transfer.qos_flow_released_list.iter().map(|f| f.qos_flow_identifier).collect();
    if gone.contains(&DEFAULT_QFI) {
        up_connection::released_by_gnb(ue, psi);
    }
    pending_change::without(ue, psi, &gone);
    super::sm_policy::report_due(ue, psi);
}

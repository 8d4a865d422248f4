//! UEs in RRC_INACTIVE: TS 23.501 §5.3.3.2.5, TS 23.502 §4.8.1.1, §4.8.3; TS 38.413 §8.3.5.2.
//!
//! To the core such a UE is connected. Its gNB pages it, and needs the UE's paging parameters from the AMF.

use whimbrel_nas::ie::GprsTimer3;
use whimbrel_ngap::ie::{
    CoreNetworkAssistanceInformationForInactive, MicoModeIndication, RrcInactiveTransitionReportRequest,
    RrcState, UeIdentityIndexValue,
};
use whimbrel_ngap::msg::RrcInactiveTransitionReport;

use super::reach;
use super::user_location::locate;
use crate::procedure::Ue;

/// 5G-S-TMSI modulo 1024 (TS 38.413 §9.3.3.23, TS 38.304 §7.1): its lower bits are the 5G-TMSI's.
const INDEX_MASK: u32 = 0x3ff;

/// Core Network Assistance Information for RRC INACTIVE; `None` if the operator has not enabled it, and for a UE without a
/// registration area.
pub(crate) fn assistance(ue: Ue) -> Option<CoreNetworkAssistanceInformationForInactive> {
    let config = ue.config();
    if !config.amf.access.rrc_inactive {
        return None;
    }
    ue.with(|p| {
        let index = p.amf.tmsi?.0 & INDEX_MASK;
        let area = p.amf.location.registration_area.to_vec();
        if area.is_empty() {
            return None;
        }
        let agreed = p.amf.reach();
        let periodic = agreed.t3512.unwrap_or(config.timers.t3512);
        let timer =
            if periodic.is_zero() { GprsTimer3::DEACTIVATED } else { GprsTimer3::from_duration(periodic) };
        let mut information = CoreNetworkAssistanceInformationForInactive::new(
            UeIdentityIndexValue::IndexLength10(index as u16),
            timer.octet(),
            area,
        );
        information.ue_specific_drx = reach::paging_drx(p);
        information.mico_mode_indication = agreed.mico_active_time.map(|_| MicoModeIndication::True);
        information.nr_paging_edrx_information = reach::paging_edrx(p);
        Some(information)
    })
}

/// Whether the gNB is to report each change of the RRC state (TS 23.502 §4.8.3).
pub(crate) fn report_request(ue: Ue) -> Option<RrcInactiveTransitionReportRequest> {
    let access = &ue.config().amf.access;
    (access.rrc_inactive && access.rrc_reports)
        .then_some(RrcInactiveTransitionReportRequest::SubsequentStateTransitionReport)
}

/// RRC INACTIVE TRANSITION REPORT (TS 38.413 §8.3.5.2).
pub(crate) fn reported(ue: Ue, m: &RrcInactiveTransitionReport) {
    if let Some(place) = &m.user_location_information {
        locate(ue, place);
    }
    if let Some(state) = m.rrc_state {
        entered(ue, state);
    }
}

/// The gNB reports the UE's RRC state.
pub(crate) fn entered(ue: Ue, state: RrcState) {
    ue.with(|p| {
        if let Some(c) = &mut p.amf.connection {
            c.rrc_inactive = state == RrcState::Inactive;
        }
    });
}

#[cfg(test)]
mod tests {
    use whimbrel_nas::ie::RegistrationKind;
    use whimbrel_nas::mm::RegistrationComplete;
    use whimbrel_ngap::Message;
    use whimbrel_ngap::ie::{CauseRadioNetwork, RrcState};
    use whimbrel_ngap::msg::{
        UeContextModificationFailure, UeContextModificationRequest, UeContextModificationResponse,
    };

    use crate::envelope::Batch;
    use crate::ue_harness::{CIPHERED, RAN_ID, UeHarness, n2, registration_request};

    /// A UE registers over a connection whose gNB has its context: the assistance information for that gNB.
    fn registered_again() -> (UeHarness, Batch, Box<UeContextModificationRequest>) {
        let mut config = crate::ue_harness::config();
        config.amf.access.rrc_inactive = true;
        let mut harness = UeHarness::registered_with(config);
        harness.nas(CIPHERED, registration_request(RegistrationKind::MobilityUpdating));
        let batch = harness.nas(CIPHERED, RegistrationComplete::new());
        let request = n2(&batch).into_iter().find_map(|m| match m {
            Message::UeContextModificationRequest(m) => Some(Box::new(m)),
            _ => None,
        });
        (harness, batch, request.expect("its 5G-GUTI is another one"))
    }

    #[test] // TS 38.413 §8.3.4.2; TS 23.502 §4.8.1.1: the gNB takes what it needs, and reports the UE's state with it
    fn a_gnb_accepts_the_assistance_information() {
        let (mut harness, _, request) = registered_again();
        assert!(request.core_network_assistance_information_for_inactive.is_some());
        let mut taken = UeContextModificationResponse::new(request.amf_ue_ngap_id, RAN_ID);
        taken.rrc_state = Some(RrcState::Inactive);
        let batch = harness.ngap(taken);
        assert!(batch.idle && batch.events.is_empty() && batch.outputs.is_empty());
        assert!(harness.context().unwrap().amf.connection.as_ref().unwrap().rrc_inactive);
    }

    #[test] // TS 38.413 §8.3.4.3, §8.3.4.4: a gNB that refuses the change, or says nothing, keeps the UE
    fn a_gnb_refuses_the_assistance_information() {
        for silent in [false, true] {
            let (mut harness, batch, request) = registered_again();
            let cause = CauseRadioNetwork::Unspecified.into();
            let batch = match silent {
                true => harness.expire(&batch),
                false => {
                    harness.ngap(UeContextModificationFailure::new(request.amf_ue_ngap_id, RAN_ID, cause))
                }
            };
            assert!(batch.idle && batch.outputs.is_empty(), "{silent}: {batch:?}");
            assert!(harness.context().unwrap().is_connected());
        }
    }
}

//! What the core tells of a phone so that the radio can serve it better.

use whimbrel_ids::Tai;

use crate::aper::codec::{Alone, Bits, Int, IntExt, List};
use crate::ie::{NgranCgi, NrPagingEdrxInformation, PagingCauseIndicationForVoiceService, PagingDrx};

sequence! {
    /// `CoreNetworkAssistanceInformationForInactive`.
    pub struct CoreNetworkAssistanceInformationForInactive {
        /// `uEIdentityIndexValue`.
        req ue_identity_index_value: UeIdentityIndexValue,
        /// `uESpecificDRX`.
        opt ue_specific_drx: PagingDrx,
        /// `periodicRegistrationUpdateTimer`.
        req periodic_registration_update_timer: u8 as Bits<8>,
        /// `mICOModeIndication`.
        opt mico_mode_indication: MicoModeIndication,
        /// `tAIListForInactive`.
        req tai_list_for_inactive: Vec<Tai> as List<1, 16, Alone>,
        /// `expectedUEBehaviour`.
        opt expected_ue_behaviour: ExpectedUeBehaviour,
        ;
        /// `NR-PagingeDRXInformation`.
        332 ignore opt nr_paging_edrx_information: NrPagingEdrxInformation,
        /// `PagingCauseIndicationForVoiceService`.
        343 ignore opt paging_cause_indication_for_voice_service: PagingCauseIndicationForVoiceService,
    }
}

choice! {
    /// `UEIdentityIndexValue`.
    pub enum UeIdentityIndexValue {
        /// `indexLength10`.
        IndexLength10(u16 as Bits<10>),
    }
}

enumerated! {
    /// `MICOModeIndication`.
    pub enum MicoModeIndication { True "true" } + {}
}

sequence! {
    /// `ExpectedUEBehaviour`.
    pub struct ExpectedUeBehaviour {
        /// `expectedUEActivityBehaviour`.
        opt expected_ue_activity_behaviour: ExpectedUeActivityBehaviour,
        /// `expectedHOInterval`.
        opt expected_ho_interval: ExpectedHoInterval,
        /// `expectedUEMobility`.
        opt expected_ue_mobility: ExpectedUeMobility,
        /// `expectedUEMovingTrajectory`.
        lst expected_ue_moving_trajectory: Vec<ExpectedUeMovingTrajectoryItem> as List<1, 16>,
    }
}

sequence! {
    /// `ExpectedUEActivityBehaviour`.
    pub struct ExpectedUeActivityBehaviour {
        /// `expectedActivityPeriod`.
        opt expected_activity_period: u8 as IntExt<1, 181>,
        /// `expectedIdlePeriod`.
        opt expected_idle_period: u8 as IntExt<1, 181>,
        /// `sourceOfUEActivityBehaviourInformation`.
        opt source_of_ue_activity_behaviour_information: SourceOfUeActivityBehaviourInformation,
    }
}

enumerated! {
    /// `SourceOfUEActivityBehaviourInformation`.
    pub enum SourceOfUeActivityBehaviourInformation {
        SubscriptionInformation "subscription-information", Statistics "statistics",
    } + {}
}

enumerated! {
    /// `ExpectedHOInterval`.
    pub enum ExpectedHoInterval {
        Sec15 "sec15", Sec30 "sec30", Sec60 "sec60", Sec90 "sec90", Sec120 "sec120", Sec180 "sec180",
        LongTime "long-time",
    } + {}
}

enumerated! {
    /// `ExpectedUEMobility`.
    pub enum ExpectedUeMobility { Stationary "stationary", Mobile "mobile" } + {}
}

sequence! {
    /// `ExpectedUEMovingTrajectoryItem`.
    pub struct ExpectedUeMovingTrajectoryItem {
        /// `nGRAN-CGI`.
        req ngran_cgi: NgranCgi,
        /// `timeStayedInCell`.
        opt time_stayed_in_cell: u16 as Int<0, 4095>,
    }
}

sequence! {
    /// `CNAssistedRANTuning`.
    pub struct CnAssistedRanTuning {
        /// `expectedUEBehaviour`.
        opt expected_ue_behaviour: ExpectedUeBehaviour,
    }
}

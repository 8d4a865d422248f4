//! Assistance information of the core about a UE.

use whimbrel_ids::Tai;

use crate::aper::codec::{Alone, Bits, Int, IntExt, List};
#[cfg(any(test, feature = "samples"))]
use crate::aper::sample::Source;
use crate::aper::{Codec, Fault, Reader, Writer};
use crate::ie::{NgranCgi, NrPagingEdrxInformation, PagingCauseIndicationForVoiceService, PagingDrx};

sequence! {
    /// Core Network Assistance Information for RRC INACTIVE (TS 38.413 §9.3.1.15).
    pub struct CoreNetworkAssistanceInformationForInactive {
        /// `uEIdentityIndexValue`.
        req ue_identity_index_value: UeIdentityIndexValue,
        /// `uESpecificDRX`.
        opt ue_specific_drx: PagingDrx,
        /// `periodicRegistrationUpdateTimer`. As GPRS timer 3: unit in the upper three bits, value in the lower
        /// five (TS 24.008 §10.5.7.4a).
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
    /// UE Identity Index Value (TS 38.413 §9.3.3.23).
    pub enum UeIdentityIndexValue {
        /// `indexLength10`.
        IndexLength10(u16 as Bits<10>),
    }
}

enumerated! {
    /// MICO Mode Indication (TS 38.413 §9.3.1.23).
    pub enum MicoModeIndication { True "true" } + {}
}

sequence! {
    /// Expected UE Behaviour (TS 38.413 §9.3.1.93).
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
    /// Expected UE Activity Behaviour. Periods in seconds. TS 38.413 §9.3.1.94.
    pub struct ExpectedUeActivityBehaviour {
        /// `expectedActivityPeriod`.
        opt expected_activity_period: u8 as Period,
        /// `expectedIdlePeriod`.
        opt expected_idle_period: u8 as Period,
        /// `sourceOfUEActivityBehaviourInformation`.
        opt source_of_ue_activity_behaviour_information: SourceOfUeActivityBehaviourInformation,
    }
}

enumerated! {
    /// `SourceOfUEActivityBehaviourInformation` (TS 38.413 §9.4.5).
    pub enum SourceOfUeActivityBehaviourInformation {
        SubscriptionInformation "subscription-information", Statistics "statistics",
    } + {}
}

enumerated! {
    /// `ExpectedHOInterval` (TS 38.413 §9.4.5).
    pub enum ExpectedHoInterval {
        Sec15 "sec15", Sec30 "sec30", Sec60 "sec60", Sec90 "sec90", Sec120 "sec120", Sec180 "sec180",
        LongTime "long-time",
    } + {}
}

enumerated! {
    /// `ExpectedUEMobility` (TS 38.413 §9.4.5).
    pub enum ExpectedUeMobility { Stationary "stationary", Mobile "mobile" } + {}
}

sequence! {
    /// `ExpectedUEMovingTrajectoryItem` (TS 38.413 §9.4.5).
    pub struct ExpectedUeMovingTrajectoryItem {
        /// `nGRAN-CGI`.
        req ngran_cgi: NgranCgi,
        /// `timeStayedInCell`. In seconds; 4095 means that or more.
        opt time_stayed_in_cell: u16 as Int<0, 4095>,
    }
}

sequence! {
    /// CN Assisted RAN Parameters Tuning (TS 38.413 §9.3.1.119).
    pub struct CnAssistedRanTuning {
        /// `expectedUEBehaviour`.
        opt expected_ue_behaviour: ExpectedUeBehaviour,
    }
}

/// The seconds that expected activity and idle periods take (TS 38.413 §9.3.1.94): other values are extensions.
pub(crate) struct Period;

impl Period {
    /// 181 means more than 180 s.
    const fn is_root(v: u8) -> bool {
        matches!(v, 1..=30 | 40 | 50 | 60 | 80 | 100 | 120 | 150 | 180 | 181)
    }
}

impl Codec<u8> for Period {
    fn read(r: &mut Reader<'_>) -> Result<u8, Fault> {
        <IntExt<1, 181>>::read(r)
    }
    fn write(v: &u8, w: &mut Writer<'_>) {
        if Self::is_root(*v) {
            <IntExt<1, 181>>::write(v, w);
        } else {
            w.bit(true);
            w.unconstrained(u64::from(*v));
        }
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> u8 {
        s.number() as u8
    }
}

//! Where a phone is, and reports of it.

use whimbrel_ids::{NrCellId, PlmnId, Tac, Tai};

use crate::aper::codec::{Alone, Bits, IntExt, List};
use crate::ie::{GlobalRanNodeId, TransportLayerAddress};

choice! {
    /// `UserLocationInformation`.
    pub enum UserLocationInformation {
        /// `userLocationInformationEUTRA`.
        UserLocationInformationEutra(UserLocationInformationEutra),
        /// `userLocationInformationNR`.
        UserLocationInformationNr(UserLocationInformationNr),
        /// `userLocationInformationN3IWF-with-PortNumber`.
        UserLocationInformationN3iwfWithPortNumber(UserLocationInformationN3iwfWithPortNumber),
    } other Other
}

sequence! {
    /// `UserLocationInformationEUTRA`.
    pub struct UserLocationInformationEutra {
        /// `eUTRA-CGI`.
        req eutra_cgi: EutraCgi,
        /// `tAI`.
        req tai: Tai,
        /// `timeStamp`.
        opt time_stamp: [u8; 4],
        ;
        /// `PSCellInformation`.
        149 ignore opt ps_cell_information: NgranCgi,
    }
}

sequence! {
    /// `EUTRA-CGI`.
    pub struct EutraCgi {
        /// `pLMNIdentity`.
        req plmn_identity: PlmnId,
        /// `eUTRACellIdentity`.
        req eutra_cell_identity: u32 as Bits<28>,
    }
}

choice! {
    /// `NGRAN-CGI`.
    pub enum NgranCgi {
        /// `nR-CGI`.
        NrCgi(NrCgi),
        /// `eUTRA-CGI`.
        EutraCgi(EutraCgi),
    }
}

sequence! {
    /// `NR-CGI`.
    pub struct NrCgi {
        /// `pLMNIdentity`.
        req plmn_identity: PlmnId,
        /// `nRCellIdentity`.
        req nr_cell_identity: NrCellId,
    }
}

sequence! {
    /// `UserLocationInformationNR`.
    pub struct UserLocationInformationNr {
        /// `nR-CGI`.
        req nr_cgi: NrCgi,
        /// `tAI`.
        req tai: Tai,
        /// `timeStamp`.
        opt time_stamp: [u8; 4],
        ;
        /// `PSCellInformation`.
        149 ignore opt ps_cell_information: NgranCgi,
        /// `NID`.
        263 reject opt nid: u64 as Bits<44>,
        /// `NRNTNTAIInformation`.
        287 ignore opt nr_ntn_tai_information: NrNtnTaiInformation,
    }
}

sequence! {
    /// `NRNTNTAIInformation`.
    pub struct NrNtnTaiInformation {
        /// `servingPLMN`.
        req serving_plmn: PlmnId,
        /// `tACListInNRNTN`.
        req tac_list_in_nr_ntn: Vec<Tac> as List<1, 12>,
        /// `uELocationDerivedTACInNRNTN`.
        opt ue_location_derived_tac_in_nr_ntn: Tac,
    }
}

sequence! {
    /// `UserLocationInformationN3IWF-with-PortNumber`.
    pub struct UserLocationInformationN3iwfWithPortNumber {
        /// `iPAddress`.
        req ip_address: TransportLayerAddress,
        /// `portNumber`.
        req port_number: [u8; 2],
        ;
        /// `TAI`.
        213 ignore opt tai: Tai,
    }
}

sequence! {
    /// `LocationReportingRequestType`.
    pub struct LocationReportingRequestType {
        /// `eventType`.
        req event_type: EventType,
        /// `reportArea`.
        req report_area: ReportArea,
        /// `areaOfInterestList`.
        lst area_of_interest_list: Vec<AreaOfInterestItem> as List<1, 64>,
        /// `locationReportingReferenceIDToBeCancelled`.
        opt location_reporting_reference_id_to_be_cancelled: u8 as IntExt<1, 64>,
        ;
        /// `LocationReportingAdditionalInfo`.
        170 ignore opt location_reporting_additional_info: LocationReportingAdditionalInfo,
    }
}

enumerated! {
    /// `EventType`.
    pub enum EventType {
        Direct "direct", ChangeOfServeCell "change-of-serve-cell",
        UePresenceInAreaOfInterest "ue-presence-in-area-of-interest",
        StopChangeOfServeCell "stop-change-of-serve-cell",
        StopUePresenceInAreaOfInterest "stop-ue-presence-in-area-of-interest",
        CancelLocationReportingForTheUe "cancel-location-reporting-for-the-ue",
    } + {

        ChangeOfServingCellAndUePresenceInTheAreaOfInterest "change-of-serving-cell-and-UE-presence-in-the-Area-of-Interest",
    }
}

enumerated! {
    /// `ReportArea`.
    pub enum ReportArea { Cell "cell" } + {}
}

sequence! {
    /// `AreaOfInterestItem`.
    pub struct AreaOfInterestItem {
        /// `areaOfInterest`.
        req area_of_interest: AreaOfInterest,
        /// `locationReportingReferenceID`.
        req location_reporting_reference_id: u8 as IntExt<1, 64>,
    }
}

sequence! {
    /// `AreaOfInterest`.
    pub struct AreaOfInterest {
        /// `areaOfInterestTAIList`.
        lst area_of_interest_tai_list: Vec<Tai> as List<1, 16, Alone>,
        /// `areaOfInterestCellList`.
        lst area_of_interest_cell_list: Vec<NgranCgi> as List<1, 256, Alone>,
        /// `areaOfInterestRANNodeList`.
        lst area_of_interest_ran_node_list: Vec<GlobalRanNodeId> as List<1, 64, Alone>,
    }
}

enumerated! {
    /// `LocationReportingAdditionalInfo`.
    pub enum LocationReportingAdditionalInfo { IncludePsCell "includePSCell" } + {}
}

sequence! {
    /// `UEPresenceInAreaOfInterestItem`.
    pub struct UePresenceInAreaOfInterestItem {
        /// `locationReportingReferenceID`.
        req location_reporting_reference_id: u8 as IntExt<1, 64>,
        /// `uEPresence`.
        req ue_presence: UePresence,
    }
}

enumerated! {
    /// `UEPresence`.
    pub enum UePresence { In "in", Out "out", Unknown "unknown" } + {}
}

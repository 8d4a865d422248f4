//! Where a UE is, and reports of it.

use whimbrel_ids::{NrCellId, PlmnId, Tac, Tai};

use crate::aper::codec::{Alone, Bits, IntExt, List};
use crate::ie::{GlobalRanNodeId, TransportLayerAddress};

choice! {
    /// User Location Information (TS 38.413 §9.3.1.16).
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
    /// User Location Information of a UE on E-UTRA (TS 38.413 §9.3.1.16).
    pub struct UserLocationInformationEutra {
        /// `eUTRA-CGI`.
        req eutra_cgi: EutraCgi,
        /// `tAI`.
        req tai: Tai,
        /// `timeStamp`. Time Stamp (TS 38.413 §9.3.1.75): seconds since 1900, as the first half of an NTP time
        /// stamp.
        opt time_stamp: [u8; 4],
        ;
        /// `PSCellInformation`.
        149 ignore opt ps_cell_information: NgranCgi,
    }
}

sequence! {
    /// E-UTRA CGI: a cell (TS 38.413 §9.3.1.9).
    pub struct EutraCgi {
        /// `pLMNIdentity`.
        req plmn_identity: PlmnId,
        /// `eUTRACellIdentity`.
        req eutra_cell_identity: u32 as Bits<28>,
    }
}

choice! {
    /// NG-RAN CGI: a cell of NR or E-UTRA (TS 38.413 §9.3.1.73).
    pub enum NgranCgi {
        /// `nR-CGI`.
        NrCgi(NrCgi),
        /// `eUTRA-CGI`.
        EutraCgi(EutraCgi),
    }
}

sequence! {
    /// NR CGI: a cell (TS 38.413 §9.3.1.7).
    pub struct NrCgi {
        /// `pLMNIdentity`.
        req plmn_identity: PlmnId,
        /// `nRCellIdentity`.
        req nr_cell_identity: NrCellId,
    }
}

/// As people write it: the network, then the cell's identity in hexadecimal digits.
impl core::fmt::Display for NrCgi {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}-{:09x}", self.plmn_identity, self.nr_cell_identity.value())
    }
}

impl core::fmt::Display for NgranCgi {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NrCgi(cell) => cell.fmt(f),
            Self::EutraCgi(cell) => write!(f, "{}-{:07x}", cell.plmn_identity, cell.eutra_cell_identity),
            #[allow(unreachable_patterns)]
            _ => f.write_str("a cell"),
        }
    }
}

sequence! {
    /// User Location Information of a UE on NR (TS 38.413 §9.3.1.16).
    pub struct UserLocationInformationNr {
        /// `nR-CGI`.
        req nr_cgi: NrCgi,
        /// `tAI`.
        req tai: Tai,
        /// `timeStamp`. Time Stamp (TS 38.413 §9.3.1.75): seconds since 1900, as the first half of an NTP time
        /// stamp.
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
    /// The TACs of a cell served from the sky (TS 38.413 §9.3.1.16).
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
    /// User Location Information of a UE behind an N3IWF (TS 38.413 §9.3.1.16).
    pub struct UserLocationInformationN3iwfWithPortNumber {
        /// `iPAddress`.
        req ip_address: TransportLayerAddress,
        /// `portNumber`. UDP port, big-endian.
        req port_number: [u8; 2],
        ;
        /// `TAI`.
        213 ignore opt tai: Tai,
    }
}

sequence! {
    /// Location Reporting Request Type (TS 38.413 §9.3.1.65).
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
    /// The event that location reports are asked for (TS 38.413 §9.3.1.65).
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
    /// How fine location reports are (TS 38.413 §9.3.1.65).
    pub enum ReportArea { Cell "cell" } + {}
}

sequence! {
    /// `AreaOfInterestItem` (TS 38.413 §9.4.5).
    pub struct AreaOfInterestItem {
        /// `areaOfInterest`.
        req area_of_interest: AreaOfInterest,
        /// `locationReportingReferenceID`.
        req location_reporting_reference_id: u8 as IntExt<1, 64>,
    }
}

sequence! {
    /// Area of Interest (TS 38.413 §9.3.1.66).
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
    /// `LocationReportingAdditionalInfo` (TS 38.413 §9.4.5).
    pub enum LocationReportingAdditionalInfo { IncludePsCell "includePSCell" } + {}
}

sequence! {
    /// An item of the UE Presence in Area of Interest List (TS 38.413 §9.3.1.67).
    pub struct UePresenceInAreaOfInterestItem {
        /// `locationReportingReferenceID`.
        req location_reporting_reference_id: u8 as IntExt<1, 64>,
        /// `uEPresence`.
        req ue_presence: UePresence,
    }
}

enumerated! {
    /// Whether a UE is in an area of interest (TS 38.413 §9.3.1.67).
    pub enum UePresence { In "in", Out "out", Unknown "unknown" } + {}
}

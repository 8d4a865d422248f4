//! IEs of paging: the UE, the areas and the parameters.

use whimbrel_ids::{STmsi, Tai};

use crate::aper::codec::{Alone, Int, IntExt, List};
use crate::ie::{GlobalRanNodeId, NgranCgi};

sequence! {
    /// `NR-PagingeDRXInformation` (TS 38.413 §9.4.5).
    pub struct NrPagingEdrxInformation {
        /// `nR-paging-eDRX-Cycle`.
        req nr_paging_edrx_cycle: NrPagingEdrxCycle,
        /// `nR-paging-Time-Window`.
        opt nr_paging_time_window: NrPagingTimeWindow,
    }
}

enumerated! {
    /// `NR-Paging-eDRX-Cycle` (TS 38.413 §9.4.5).
    pub enum NrPagingEdrxCycle {
        Hfquarter "hfquarter", Hfhalf "hfhalf", Hf1 "hf1", Hf2 "hf2", Hf4 "hf4", Hf8 "hf8",
        Hf16 "hf16", Hf32 "hf32", Hf64 "hf64", Hf128 "hf128", Hf256 "hf256", Hf512 "hf512",
        Hf1024 "hf1024",
    } + {}
}

enumerated! {
    /// `NR-Paging-Time-Window` (TS 38.413 §9.4.5).
    pub enum NrPagingTimeWindow {
        S1 "s1", S2 "s2", S3 "s3", S4 "s4", S5 "s5", S6 "s6", S7 "s7", S8 "s8", S9 "s9", S10 "s10",
        S11 "s11", S12 "s12", S13 "s13", S14 "s14", S15 "s15", S16 "s16",
    } + {
        S17 "s17", S18 "s18", S19 "s19", S20 "s20", S21 "s21", S22 "s22", S23 "s23", S24 "s24",
        S25 "s25", S26 "s26", S27 "s27", S28 "s28", S29 "s29", S30 "s30", S31 "s31", S32 "s32",
    }
}

enumerated! {
    /// `PagingCauseIndicationForVoiceService` (TS 38.413 §9.4.5).
    pub enum PagingCauseIndicationForVoiceService { Supported "supported" } + {}
}

sequence! {
    /// Information on Recommended Cells and RAN Nodes for Paging (TS 38.413 §9.3.1.100).
    pub struct InfoOnRecommendedCellsAndRanNodesForPaging {
        /// `recommendedCellsForPaging`.
        req recommended_cells_for_paging: Vec<RecommendedCellItem> as Alone<List<1, 16>>,
        /// `recommendRANNodesForPaging`.
        req recommend_ran_nodes_for_paging: Vec<AmfPagingTarget> as Alone<List<1, 16, Alone>>,
    }
}

sequence! {
    /// A cell recommended for paging (TS 38.413 §9.3.1.71).
    pub struct RecommendedCellItem {
        /// `nGRAN-CGI`.
        req ngran_cgi: NgranCgi,
        /// `timeStayedInCell`. In seconds; 4095 means that or more.
        opt time_stayed_in_cell: u16 as Int<0, 4095>,
    }
}

choice! {
    /// `AMFPagingTarget` (TS 38.413 §9.4.5).
    pub enum AmfPagingTarget {
        /// `globalRANNodeID`.
        GlobalRanNodeId(GlobalRanNodeId),
        /// `tAI`.
        Tai(Tai),
    }
}

choice! {
    /// UE Paging Identity (TS 38.413 §9.3.3.18).
    pub enum UePagingIdentity {
        /// `fiveG-S-TMSI`.
        FiveGSTmsi(STmsi),
    }
}

enumerated! {
    /// Paging Priority (TS 38.413 §9.3.1.78).
    pub enum PagingPriority {
        Priolevel1 "priolevel1", Priolevel2 "priolevel2", Priolevel3 "priolevel3",
        Priolevel4 "priolevel4", Priolevel5 "priolevel5", Priolevel6 "priolevel6",
        Priolevel7 "priolevel7", Priolevel8 "priolevel8",
    } + {}
}

enumerated! {
    /// Paging Origin (TS 38.413 §9.3.3.22).
    pub enum PagingOrigin { Non3gpp "non-3gpp" } + {}
}

sequence! {
    /// Assistance Data for Paging (TS 38.413 §9.3.1.69).
    pub struct AssistanceDataForPaging {
        /// `assistanceDataForRecommendedCells`.
        lst assistance_data_for_recommended_cells: Vec<RecommendedCellItem> as Alone<Alone<List<1, 16>>>,
        /// `pagingAttemptInformation`.
        opt paging_attempt_information: PagingAttemptInformation,
    }
}

sequence! {
    /// Paging Attempt Information (TS 38.413 §9.3.1.72).
    pub struct PagingAttemptInformation {
        /// `pagingAttemptCount`.
        req paging_attempt_count: u8 as IntExt<1, 16>,
        /// `intendedNumberOfPagingAttempts`.
        req intended_number_of_paging_attempts: u8 as IntExt<1, 16>,
        /// `nextPagingAreaScope`.
        opt next_paging_area_scope: NextPagingAreaScope,
    }
}

enumerated! {
    /// `NextPagingAreaScope` (TS 38.413 §9.4.5).
    pub enum NextPagingAreaScope { Same "same", Changed "changed" } + {}
}

enumerated! {
    /// `PagingCause` (TS 38.413 §9.4.5).
    pub enum PagingCause { Voice "voice" } + {}
}

//! Elements of public warnings.

use whimbrel_ids::Tai;

use crate::aper::codec::{Alone, Int, List};
use crate::ie::{EutraCgi, NrCgi};

choice! {
    /// Warning Area List (TS 38.413 §9.3.1.37).
    pub enum WarningAreaList {
        /// `eUTRA-CGIListForWarning`.
        EutraCgiListForWarning(Vec<EutraCgi> as List<1, 65535>),
        /// `nR-CGIListForWarning`.
        NrCgiListForWarning(Vec<NrCgi> as List<1, 65535>),
        /// `tAIListForWarning`.
        TaiListForWarning(Vec<Tai> as List<1, 65535>),
        /// `emergencyAreaIDList`.
        EmergencyAreaIdList(Vec<[u8; 3]> as List<1, 65535>),
    }
}

enumerated! {
    /// Concurrent Warning Message Indicator (TS 38.413 §9.3.1.46).
    pub enum ConcurrentWarningMessageInd { True "true" } + {}
}

choice! {
    /// Broadcast Completed Area List (TS 38.413 §9.3.1.43).
    pub enum BroadcastCompletedAreaList {
        /// `cellIDBroadcastEUTRA`.
        CellIdBroadcastEutra(Vec<EutraCgi> as List<1, 65535, Alone>),
        /// `tAIBroadcastEUTRA`.
        TaiBroadcastEutra(Vec<TaiBroadcastEutraItem> as List<1, 65535>),
        /// `emergencyAreaIDBroadcastEUTRA`.
        EmergencyAreaIdBroadcastEutra(Vec<EmergencyAreaIdBroadcastEutraItem> as List<1, 65535>),
        /// `cellIDBroadcastNR`.
        CellIdBroadcastNr(Vec<NrCgi> as List<1, 65535, Alone>),
        /// `tAIBroadcastNR`.
        TaiBroadcastNr(Vec<TaiBroadcastNrItem> as List<1, 65535>),
        /// `emergencyAreaIDBroadcastNR`.
        EmergencyAreaIdBroadcastNr(Vec<EmergencyAreaIdBroadcastNrItem> as List<1, 65535>),
    }
}

sequence! {
    /// `TAIBroadcastEUTRA-Item` (TS 38.413 §9.4.5).
    pub struct TaiBroadcastEutraItem {
        /// `tAI`.
        req tai: Tai,
        /// `completedCellsInTAI-EUTRA`.
        req completed_cells_in_tai_eutra: Vec<EutraCgi> as List<1, 65535, Alone>,
    }
}

sequence! {
    /// `EmergencyAreaIDBroadcastEUTRA-Item` (TS 38.413 §9.4.5).
    pub struct EmergencyAreaIdBroadcastEutraItem {
        /// `emergencyAreaID`.
        req emergency_area_id: [u8; 3],
        /// `completedCellsInEAI-EUTRA`.
        req completed_cells_in_eai_eutra: Vec<EutraCgi> as List<1, 65535, Alone>,
    }
}

sequence! {
    /// `TAIBroadcastNR-Item` (TS 38.413 §9.4.5).
    pub struct TaiBroadcastNrItem {
        /// `tAI`.
        req tai: Tai,
        /// `completedCellsInTAI-NR`.
        req completed_cells_in_tai_nr: Vec<NrCgi> as List<1, 65535, Alone>,
    }
}

sequence! {
    /// `EmergencyAreaIDBroadcastNR-Item` (TS 38.413 §9.4.5).
    pub struct EmergencyAreaIdBroadcastNrItem {
        /// `emergencyAreaID`.
        req emergency_area_id: [u8; 3],
        /// `completedCellsInEAI-NR`.
        req completed_cells_in_eai_nr: Vec<NrCgi> as List<1, 65535, Alone>,
    }
}

enumerated! {
    /// Cancel-All Warning Messages Indicator (TS 38.413 §9.3.1.47).
    pub enum CancelAllWarningMessages { True "true" } + {}
}

choice! {
    /// Broadcast Cancelled Area List (TS 38.413 §9.3.1.44).
    pub enum BroadcastCancelledAreaList {
        /// `cellIDCancelledEUTRA`.
        CellIdCancelledEutra(Vec<CellIdCancelledEutraItem> as List<1, 65535>),
        /// `tAICancelledEUTRA`.
        TaiCancelledEutra(Vec<TaiCancelledEutraItem> as List<1, 65535>),
        /// `emergencyAreaIDCancelledEUTRA`.
        EmergencyAreaIdCancelledEutra(Vec<EmergencyAreaIdCancelledEutraItem> as List<1, 65535>),
        /// `cellIDCancelledNR`.
        CellIdCancelledNr(Vec<CellIdCancelledNrItem> as List<1, 65535>),
        /// `tAICancelledNR`.
        TaiCancelledNr(Vec<TaiCancelledNrItem> as List<1, 65535>),
        /// `emergencyAreaIDCancelledNR`.
        EmergencyAreaIdCancelledNr(Vec<EmergencyAreaIdCancelledNrItem> as List<1, 65535>),
    }
}

sequence! {
    /// `CellIDCancelledEUTRA-Item` (TS 38.413 §9.4.5).
    pub struct CellIdCancelledEutraItem {
        /// `eUTRA-CGI`.
        req eutra_cgi: EutraCgi,
        /// `numberOfBroadcasts`.
        req number_of_broadcasts: u16 as Int<0, 65535>,
    }
}

sequence! {
    /// `TAICancelledEUTRA-Item` (TS 38.413 §9.4.5).
    pub struct TaiCancelledEutraItem {
        /// `tAI`.
        req tai: Tai,
        /// `cancelledCellsInTAI-EUTRA`.
        req cancelled_cells_in_tai_eutra: Vec<CancelledCellsInTaiEutraItem> as List<1, 65535>,
    }
}

sequence! {
    /// `CancelledCellsInTAI-EUTRA-Item` (TS 38.413 §9.4.5).
    pub struct CancelledCellsInTaiEutraItem {
        /// `eUTRA-CGI`.
        req eutra_cgi: EutraCgi,
        /// `numberOfBroadcasts`.
        req number_of_broadcasts: u16 as Int<0, 65535>,
    }
}

sequence! {
    /// `EmergencyAreaIDCancelledEUTRA-Item` (TS 38.413 §9.4.5).
    pub struct EmergencyAreaIdCancelledEutraItem {
        /// `emergencyAreaID`.
        req emergency_area_id: [u8; 3],
        /// `cancelledCellsInEAI-EUTRA`.
        req cancelled_cells_in_eai_eutra: Vec<CancelledCellsInEaiEutraItem> as List<1, 65535>,
    }
}

sequence! {
    /// `CancelledCellsInEAI-EUTRA-Item` (TS 38.413 §9.4.5).
    pub struct CancelledCellsInEaiEutraItem {
        /// `eUTRA-CGI`.
        req eutra_cgi: EutraCgi,
        /// `numberOfBroadcasts`.
        req number_of_broadcasts: u16 as Int<0, 65535>,
    }
}

sequence! {
    /// `CellIDCancelledNR-Item` (TS 38.413 §9.4.5).
    pub struct CellIdCancelledNrItem {
        /// `nR-CGI`.
        req nr_cgi: NrCgi,
        /// `numberOfBroadcasts`.
        req number_of_broadcasts: u16 as Int<0, 65535>,
    }
}

sequence! {
    /// `TAICancelledNR-Item` (TS 38.413 §9.4.5).
    pub struct TaiCancelledNrItem {
        /// `tAI`.
        req tai: Tai,
        /// `cancelledCellsInTAI-NR`.
        req cancelled_cells_in_tai_nr: Vec<CancelledCellsInTaiNrItem> as List<1, 65535>,
    }
}

sequence! {
    /// `CancelledCellsInTAI-NR-Item` (TS 38.413 §9.4.5).
    pub struct CancelledCellsInTaiNrItem {
        /// `nR-CGI`.
        req nr_cgi: NrCgi,
        /// `numberOfBroadcasts`.
        req number_of_broadcasts: u16 as Int<0, 65535>,
    }
}

sequence! {
    /// `EmergencyAreaIDCancelledNR-Item` (TS 38.413 §9.4.5).
    pub struct EmergencyAreaIdCancelledNrItem {
        /// `emergencyAreaID`.
        req emergency_area_id: [u8; 3],
        /// `cancelledCellsInEAI-NR`.
        req cancelled_cells_in_eai_nr: Vec<CancelledCellsInEaiNrItem> as List<1, 65535>,
    }
}

sequence! {
    /// `CancelledCellsInEAI-NR-Item` (TS 38.413 §9.4.5).
    pub struct CancelledCellsInEaiNrItem {
        /// `nR-CGI`.
        req nr_cgi: NrCgi,
        /// `numberOfBroadcasts`.
        req number_of_broadcasts: u16 as Int<0, 65535>,
    }
}

choice! {
    /// `CellIDListForRestart` (TS 38.413 §9.4.5).
    pub enum CellIdListForRestart {
        /// `eUTRA-CGIListforRestart`.
        EutraCgiListforRestart(Vec<EutraCgi> as List<1, 256>),
        /// `nR-CGIListforRestart`.
        NrCgiListforRestart(Vec<NrCgi> as List<1, 16384>),
    }
}

choice! {
    /// `PWSFailedCellIDList` (TS 38.413 §9.4.5).
    pub enum PwsFailedCellIdList {
        /// `eUTRA-CGI-PWSFailedList`.
        EutraCgiPwsFailedList(Vec<EutraCgi> as List<1, 256>),
        /// `nR-CGI-PWSFailedList`.
        NrCgiPwsFailedList(Vec<NrCgi> as List<1, 16384>),
    }
}

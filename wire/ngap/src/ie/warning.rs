//! Public warning.

use whimbrel_ids::Tai;

use crate::aper::codec::{Alone, Int, List};
use crate::ie::{EutraCgi, NrCgi};

choice! {
    /// `WarningAreaList`.
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
    /// `ConcurrentWarningMessageInd`.
    pub enum ConcurrentWarningMessageInd { True "true" } + {}
}

choice! {
    /// `BroadcastCompletedAreaList`.
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
    /// `TAIBroadcastEUTRA-Item`.
    pub struct TaiBroadcastEutraItem {
        /// `tAI`.
        req tai: Tai,
        /// `completedCellsInTAI-EUTRA`.
        req completed_cells_in_tai_eutra: Vec<EutraCgi> as List<1, 65535, Alone>,
    }
}

sequence! {
    /// `EmergencyAreaIDBroadcastEUTRA-Item`.
    pub struct EmergencyAreaIdBroadcastEutraItem {
        /// `emergencyAreaID`.
        req emergency_area_id: [u8; 3],
        /// `completedCellsInEAI-EUTRA`.
        req completed_cells_in_eai_eutra: Vec<EutraCgi> as List<1, 65535, Alone>,
    }
}

sequence! {
    /// `TAIBroadcastNR-Item`.
    pub struct TaiBroadcastNrItem {
        /// `tAI`.
        req tai: Tai,
        /// `completedCellsInTAI-NR`.
        req completed_cells_in_tai_nr: Vec<NrCgi> as List<1, 65535, Alone>,
    }
}

sequence! {
    /// `EmergencyAreaIDBroadcastNR-Item`.
    pub struct EmergencyAreaIdBroadcastNrItem {
        /// `emergencyAreaID`.
        req emergency_area_id: [u8; 3],
        /// `completedCellsInEAI-NR`.
        req completed_cells_in_eai_nr: Vec<NrCgi> as List<1, 65535, Alone>,
    }
}

enumerated! {
    /// `CancelAllWarningMessages`.
    pub enum CancelAllWarningMessages { True "true" } + {}
}

choice! {
    /// `BroadcastCancelledAreaList`.
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
    /// `CellIDCancelledEUTRA-Item`.
    pub struct CellIdCancelledEutraItem {
        /// `eUTRA-CGI`.
        req eutra_cgi: EutraCgi,
        /// `numberOfBroadcasts`.
        req number_of_broadcasts: u16 as Int<0, 65535>,
    }
}

sequence! {
    /// `TAICancelledEUTRA-Item`.
    pub struct TaiCancelledEutraItem {
        /// `tAI`.
        req tai: Tai,
        /// `cancelledCellsInTAI-EUTRA`.
        req cancelled_cells_in_tai_eutra: Vec<CancelledCellsInTaiEutraItem> as List<1, 65535>,
    }
}

sequence! {
    /// `CancelledCellsInTAI-EUTRA-Item`.
    pub struct CancelledCellsInTaiEutraItem {
        /// `eUTRA-CGI`.
        req eutra_cgi: EutraCgi,
        /// `numberOfBroadcasts`.
        req number_of_broadcasts: u16 as Int<0, 65535>,
    }
}

sequence! {
    /// `EmergencyAreaIDCancelledEUTRA-Item`.
    pub struct EmergencyAreaIdCancelledEutraItem {
        /// `emergencyAreaID`.
        req emergency_area_id: [u8; 3],
        /// `cancelledCellsInEAI-EUTRA`.
        req cancelled_cells_in_eai_eutra: Vec<CancelledCellsInEaiEutraItem> as List<1, 65535>,
    }
}

sequence! {
    /// `CancelledCellsInEAI-EUTRA-Item`.
    pub struct CancelledCellsInEaiEutraItem {
        /// `eUTRA-CGI`.
        req eutra_cgi: EutraCgi,
        /// `numberOfBroadcasts`.
        req number_of_broadcasts: u16 as Int<0, 65535>,
    }
}

sequence! {
    /// `CellIDCancelledNR-Item`.
    pub struct CellIdCancelledNrItem {
        /// `nR-CGI`.
        req nr_cgi: NrCgi,
        /// `numberOfBroadcasts`.
        req number_of_broadcasts: u16 as Int<0, 65535>,
    }
}

sequence! {
    /// `TAICancelledNR-Item`.
    pub struct TaiCancelledNrItem {
        /// `tAI`.
        req tai: Tai,
        /// `cancelledCellsInTAI-NR`.
        req cancelled_cells_in_tai_nr: Vec<CancelledCellsInTaiNrItem> as List<1, 65535>,
    }
}

sequence! {
    /// `CancelledCellsInTAI-NR-Item`.
    pub struct CancelledCellsInTaiNrItem {
        /// `nR-CGI`.
        req nr_cgi: NrCgi,
        /// `numberOfBroadcasts`.
        req number_of_broadcasts: u16 as Int<0, 65535>,
    }
}

sequence! {
    /// `EmergencyAreaIDCancelledNR-Item`.
    pub struct EmergencyAreaIdCancelledNrItem {
        /// `emergencyAreaID`.
        req emergency_area_id: [u8; 3],
        /// `cancelledCellsInEAI-NR`.
        req cancelled_cells_in_eai_nr: Vec<CancelledCellsInEaiNrItem> as List<1, 65535>,
    }
}

sequence! {
    /// `CancelledCellsInEAI-NR-Item`.
    pub struct CancelledCellsInEaiNrItem {
        /// `nR-CGI`.
        req nr_cgi: NrCgi,
        /// `numberOfBroadcasts`.
        req number_of_broadcasts: u16 as Int<0, 65535>,
    }
}

choice! {
    /// `CellIDListForRestart`.
    pub enum CellIdListForRestart {
        /// `eUTRA-CGIListforRestart`.
        EutraCgiListforRestart(Vec<EutraCgi> as List<1, 256>),
        /// `nR-CGIListforRestart`.
        NrCgiListforRestart(Vec<NrCgi> as List<1, 16384>),
    }
}

choice! {
    /// `PWSFailedCellIDList`.
    pub enum PwsFailedCellIdList {
        /// `eUTRA-CGI-PWSFailedList`.
        EutraCgiPwsFailedList(Vec<EutraCgi> as List<1, 256>),
        /// `nR-CGI-PWSFailedList`.
        NrCgiPwsFailedList(Vec<NrCgi> as List<1, 16384>),
    }
}

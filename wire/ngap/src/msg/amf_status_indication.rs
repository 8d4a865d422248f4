//! Procedure 1: AMF status indication.

use crate::aper::codec::List;
use crate::ie::UnavailableGuamiItem;

message! {
    /// AMF STATUS INDICATION: TS 38.413 §9.2.6.10.
    pub struct AmfStatusIndication {
        /// `UnavailableGUAMIList`.
        120 reject req unavailable_guami_list: Vec<UnavailableGuamiItem> as List<1, 256>,
    }
}

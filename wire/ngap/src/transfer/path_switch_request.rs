//! Transfers of the path switch (TS 38.413 §9.3.4).

use crate::aper::codec::{Alone, List};
use crate::ie::{
    Cause, DlNguTnlInformationReused, QosFlowAcceptedItem, QosFlowPerTnlInformation, SecurityIndication,
    UpTransportLayerInformation, UpTransportLayerInformationPairItem, UserPlaneSecurityInformation,
};

sequence! {
    /// Path Switch Request Transfer (TS 38.413 §9.3.4.8).
    pub struct PathSwitchRequestTransfer {
        /// `dL-NGU-UP-TNLInformation`.
        req dl_ngu_up_tnl_information: UpTransportLayerInformation,
        /// `dL-NGU-TNLInformationReused`.
        opt dl_ngu_tnl_information_reused: DlNguTnlInformationReused,
        /// `userPlaneSecurityInformation`.
        opt user_plane_security_information: UserPlaneSecurityInformation,
        /// `qosFlowAcceptedList`.
        req qos_flow_accepted_list: Vec<QosFlowAcceptedItem> as List<1, 64>,
        ;
        /// `AdditionalDLQosFlowPerTNLInformation`.
        155 ignore lst additional_dl_qos_flow_per_tnl_information: Vec<QosFlowPerTnlInformation>
            as List<1, 3, Alone>,
        /// `RedundantDL-NGU-TNLInformationReused`.
        191 ignore opt redundant_dl_ngu_tnl_information_reused: DlNguTnlInformationReused,
    }
}

sequence! {
    /// Path Switch Request Acknowledge Transfer (TS 38.413 §9.3.4.9).
    pub struct PathSwitchRequestAcknowledgeTransfer {
        /// `uL-NGU-UP-TNLInformation`.
        opt ul_ngu_up_tnl_information: UpTransportLayerInformation,
        /// `securityIndication`.
        opt security_indication: SecurityIndication,
        ;
        /// `AdditionalNGU-UP-TNLInformation`.
        154 ignore lst additional_ngu_up_tnl_information: Vec<UpTransportLayerInformationPairItem>
            as List<1, 3>,
    }
}

sequence! {
    /// Path Switch Request Setup Failed Transfer (TS 38.413 §9.3.4.15).
    pub struct PathSwitchRequestSetupFailedTransfer {
        /// `cause`.
        req cause: Cause,
    }
}

sequence! {
    /// Path Switch Request Unsuccessful Transfer (TS 38.413 §9.3.4.20).
    pub struct PathSwitchRequestUnsuccessfulTransfer {
        /// `cause`.
        req cause: Cause,
    }
}

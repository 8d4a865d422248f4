//! Procedure 2: cell traffic trace.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};

use crate::ie::{NgranCgi, TransportLayerAddress};

message! {
    /// CELL TRAFFIC TRACE: TS 38.413 §9.2.10.4.
    pub struct CellTrafficTrace {
        /// `AMF-UE-NGAP-ID`.
        10 reject req amf_ue_ngap_id: AmfUeNgapId,
        /// `RAN-UE-NGAP-ID`.
        85 reject req ran_ue_ngap_id: RanUeNgapId,
        /// `NGRANTraceID`. Trace reference and trace recording session reference (TS 32.422 §5.6).
        44 ignore req ngran_trace_id: [u8; 8],
        /// `NGRAN-CGI`. The cell that is traced.
        43 ignore req ngran_cgi: NgranCgi,
        /// `TraceCollectionEntityIPAddress`.
        109 ignore req trace_collection_entity_ip_address: TransportLayerAddress,
    }
}

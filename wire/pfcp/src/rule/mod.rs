//! The rules of a session: groups of information elements (TS 29.244 §7.5.2, §7.5.4).

mod bar;
mod far;
mod pdr;
mod qer;
mod traffic_endpoint;
mod urr;

pub use bar::{CreateBar, RemoveBar, UpdateBar, UpdateBarInReportResponse};
pub use far::{
    CreateFar, DuplicatingParameters, ForwardingParameters, RemoveFar, UpdateDuplicatingParameters,
    UpdateFar, UpdateForwardingParameters,
};
pub use pdr::{CreatePdr, CreatedPdr, EthernetPacketFilter, Pdi, RemovePdr, UpdatePdr};
pub use qer::{CreateQer, RemoveQer, UpdateQer};
pub use traffic_endpoint::{
    CreateTrafficEndpoint, CreatedTrafficEndpoint, RemoveTrafficEndpoint, UpdateTrafficEndpoint,
};
pub use urr::{
    ApplicationDetectionInformation, CreateUrr, EthernetTrafficInformation, QueryUrr, RemoveUrr, UpdateUrr,
    UsageReport,
};

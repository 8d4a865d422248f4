//! The values of information elements (TS 29.244 §8.2). Code points are where the elements are used: in the groups.

mod addresses;
mod cause;
mod ethernet;
mod features;
mod flow;
mod forwarding;
mod framed;
mod identity;
mod node;
mod numbers;
mod pfd;
mod private;
mod report;
mod tunnel;
mod usage;
mod user_id;

pub use addresses::{Choice, UeIpAddress};
pub use cause::{Cause, FailedRuleId, OffendingIe};
pub use ethernet::{
    EthernetFilterProperties, EthernetInactivityTimer, EthernetPduSessionInformation, Ethertype, MacAddress,
    MacAddresses, VlanTag,
};
pub use features::{CpFunctionFeatures, UpFunctionFeatures};
pub use flow::{ApplicationId, SdfFilter};
pub use forwarding::{
    ApplyAction, DestinationInterface, ForwardingPolicy, InterfaceType, OuterHeaderCreation,
    OuterHeaderRemoval, OuterHeaderRemovalDescription, PdnType, SessionEstablishmentFlags,
    SessionModificationFlags, SessionReportRequestFlags, SessionReportResponseFlags, SourceInterface,
    TransportLevelMarking,
};
pub use framed::{FramedIpv6Route, FramedRoute, RouteNetwork};
pub use identity::{NetworkInstance, PredefinedRules, UeIpAddressPoolIdentity};
pub use node::{FSeid, NodeId, SmfSetId};
pub use numbers::*;
pub use pfd::{PfdContents, PfdDomainName};
pub use private::{AnnouncedPool, AnnouncedPools, OnArrival};
pub use report::{
    AlternativeSmfIpAddress, AssociationSetupResponseFlags, CpPfcpEntityIpAddress, DataServiceInformation,
    DataStatus, NodeReportType, RemoteGtpuPeer, ReportType, UserPlaneIpResourceInformation,
};
pub use tunnel::FTeid;
pub use usage::{
    MeasurementInformation, MeasurementMethod, ReportingTriggers, UsageInformation, UsageReportTrigger,
    Volume, VolumeMeasurement,
};
pub use user_id::UserId;

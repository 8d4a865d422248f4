//! The user plane function (TS 23.501 §6.2.3) as two pure machines.
//!
//! [`UpfC`] is the PFCP endpoint: octets of SMFs in, octets and [`UserPlaneChange`]s out. [`UpfU`] is the packet
//! pipeline: changes and packets in, verdicts and [`UserPlaneReport`]s out; the reports go back to [`UpfC`]. The
//! caller owns sockets, threads and the clock, and connects the two by function calls in one process ([`Upf`] does
//! that) or by queues between threads.

#![forbid(unsafe_code)]

mod applications;
mod buffering;
mod config;
mod control;
mod event;
mod exchange;
mod firewall;
mod isolation;
mod limits;
pub mod logger;
mod pipeline;
mod pool;
mod rules;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
mod session_id;
mod smf_f_teids;
mod state;

pub use applications::{
    Application, ApplicationError, Applications, DomainName, DomainNameProtocol, FlowDescription,
    FlowDescriptionError, Pfd,
};
pub use buffering::{Buffering, BufferingError};
pub use config::{
    Config, ConfigError, DataNetwork, DnIndex, FirewallError, GuaranteedRates, Ipv4Net, Ipv6Net,
    PointToPoint, ReservedPools, SliceRate,
};
pub use control::{Input, Outbox, RestoredSessions, UpfC, UpfCReplica};
pub use event::{AssociationEnd, Event};
pub use exchange::{Effects, EndMarker, Query, SessionKey, UsageToken, UserPlaneChange, UserPlaneReport};
pub use firewall::{Firewall, FirewallRule, FirewallRuleError, Nat, Timeouts};
pub use isolation::{CoreEndpoint, HostAddresses, IpNetwork, Isolation};
pub use limits::*;
pub use pipeline::{
    ACTIVE_WITHIN, BurstPacket, Counters, Destination, DestinationFilter, DropReason, FastEntry, FastPath,
    FastPathCounters, FirewallCounters, NetworkUsage, Origin, PACKET_HEADROOM, Packet, PacketVerdict,
    PathUse, SessionCounters, SessionTable, ShardSteering, Stage, StageObserver, UpfU, UsageSurvey,
    fast_state, packet_room,
};
pub use pool::{POOL_RESERVED_FIRST, POOL_RESERVED_FIRST_IPV6};
pub use rules::{RuleRefusal, SessionKind, SessionRules};
pub use session_id::{SessionId, TeidRound, Teids};
pub use state::{FollowedState, ReceivedState, STATE_VERSION, SessionMemory, StateMemory, StateRefusal};

mod one_process;
pub use one_process::{Shards, Upf};

/// For fuzzing the parsers of names.
#[cfg(feature = "samples")]
pub fn read_names(octets: &[u8]) {
    pipeline::read_names(octets);
}

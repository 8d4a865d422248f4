//! A sans-I/O SCTP endpoint: RFC 9260, with UDP encapsulation (RFC 6951) left to the sockets around it.
//!
//! | Supported | |
//! |---|---|
//! | Server and client, many associations, stateless signed cookie | §5.1 |
//! | Duplicate and unexpected INIT, COOKIE ECHO; restart of a peer | §5.2 |
//! | Streams, unordered delivery, fragmentation, bundling | §6 |
//! | SACK with gaps and duplicates, fast retransmit, congestion control | §6.2, §7 |
//! | Multihomed peers, heartbeats, path verification and failover | §5.4, §6.4, §8 |
//! | Packets out of the blue, verification tags | §8.4, §8.5 |
//! | Graceful and abortive close | §9 |
//! | Adaptation layer indication, sent to peers that indicate the same | RFC 5061 §4.2.6 |
//! | Unsent and unacknowledged messages handed back when an association ends | §11.1 |
//! | Acknowledgements that wait for the user, which may be answerable for what is acknowledged | beside it |
//! | Associations that another endpoint continues when this one has ended | beside it |
//!
//! | Not supported | Why |
//! |---|---|
//! | AUTH (RFC 4895), dynamic addresses (RFC 5061), stream reset (RFC 6525) | NG interfaces do not ask for them |
//! | Partial reliability (RFC 3758), interleaving (RFC 8260) | the same; answered as unknown by their high bits |
//! | ECN (RFC 9260 appendix A), path MTU discovery | the MTU is configured |
//! | Host name addresses | RFC 9260 §3.3.2.1.4 deprecates them; refused |
//!
//! ```text
//! Input ──► Endpoint::handle ──► Outbox { events, packets }
//!                 └─ flush: SACK + DATA in as few packets as they fit
//! ```
#![forbid(unsafe_code)]

mod association;
mod config;
mod cookie;
mod endpoint;
mod export;
mod handshake;
mod outbox;
mod packet;
mod path;
mod receive;
mod send;
mod tsns;

pub use association::State;
pub use config::Config;
pub use endpoint::{
    AdoptedAssociation, AssociationStatus, Connect, Counters, Endpoint, Former, Input, Send, UserNotes,
};
pub use export::{Defect, Layout, SavedStore, Store};
pub use outbox::{AssociationId, DownReason, Event, Events, Outbox, Packets, Path, RequestRefusal};

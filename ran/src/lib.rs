//! Emulated UEs and gNBs, and the load generator: a check on the core from the side of its peers.
//!
//! | module | what | pure |
//! | --- | --- | --- |
//! | [`ue`] | one UE: TS 24.501 from the UE's side | yes |
//! | [`gnb`] | one gNB: TS 38.413 and TS 29.281 from the NG-RAN node's side | yes |
//! | [`user_plane`] | the IP stack of a session | yes |
//! | [`cells`] | UEs on gNBs | yes |
//! | [`scenario`], [`player`], [`report`] | what UEs do, when, and what came of it | yes |
//! | [`history`] | what UEs and gNBs hold, by value | yes |
//! | [`fleet`] | subscriptions for many UEs | yes |
//! | [`edge`] | all of it on sockets | no |

pub mod cells;
pub mod edge;
pub mod fleet;
pub mod gnb;
pub mod history;
mod outbox;
pub mod player;
mod radio;
pub mod report;
pub mod scenario;
pub mod trace;
pub mod ue;
pub mod user_plane;

pub use outbox::Outbox;
pub use radio::{Connect, DownlinkMessage, UeId, UplinkMessage};

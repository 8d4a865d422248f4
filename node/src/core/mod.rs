//! The core at work: the pure machines, and the sockets, threads and files that they use.

mod control_loop;
mod control_thread;
mod core_time;
mod early;
mod foresight;
mod last_inputs;
pub mod logger_link;
mod n2;
mod n4;
mod remote_replica;
mod replica;
mod rest_heap;
mod smf_n4;
pub mod stored_ues;
mod subscriber_copy;
mod subscribers;
mod ue_memory;
mod unit_n4;
mod upf;
mod upf_replica;
mod view;

pub use control_thread::{ControlThread, Deployment, Opening, Parts, start};
pub use n2::{inherit_n2, open_n2};
pub use n4::{N4Peers, open_n4};
pub use remote_replica::{Assigned, await_assignment};
pub use smf_n4::open_smf_n4;
pub use subscribers::subscription;
pub use ue_memory::UeMemory;
pub use upf::{Inherited, LocalUpf, config as user_plane_config, kept_seed, open_state, plane_config};
pub use upf_replica::{Awaited, ReadyReplica, await_end_of_upf};

//! The core at work: the pure machines, and the sockets, threads and files that they use.

mod added_ues;
mod control_loop;
mod control_thread;
mod core_time;
mod drain_orders;
mod early;
mod foresight;
mod history_writer;
mod home_link;
mod last_inputs;
pub mod logger_link;
mod n2;
mod n4;
mod recording;
mod remote_replica;
mod replica;
mod replica_thread;
mod smf_n4;
pub mod stored_ues;
mod subscriber_copy;
mod subscribers;
mod unit_n4;
mod upf;
mod upf_replica;
mod upf_report;
mod view;

pub use control_thread::{
    ControlThread, Opening, Parts, start_cluster_cta, start_paired_cta, start_single, start_upf,
};
pub use home_link::HomeLink;
pub use n2::{inherit_n2, open_n2};
pub use n4::{N4Peers, open_n4};
pub use remote_replica::{AssignmentOutcome, await_assignment};
pub use replica_thread::ReplicaThread;
pub use smf_n4::{SmfN4, open_smf_n4};
pub(crate) use subscribers::StoredSubscribers;
pub use subscribers::{check_flow, subscription};
pub use upf::{InheritedUpfState, LocalUpf, kept_seed, open_state, plane_config, user_plane_config};
pub use upf_replica::{ReadyReplica, ReplicaWaitOutcome, await_end_of_upf};

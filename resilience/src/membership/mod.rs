//! Membership: the processes of a cluster, the primary CTA of each home, and the operator's configuration, agreed through etcd.
//!
//! [`Membership`] is one process's side of it, without sockets and clocks: it gives requests for etcd and takes the answers. What stands in
//! etcd are small JSON records (`record.rs`), which `etcdctl get --prefix whimbrel/` shows:
//!
//! - a *member* under a lease: a CTA or CPF that is there, its region and address, whether it drains;
//! - a *home*: the UEs of one CTA's numbers, and which CTA serves them, under which term, replicated by which other;
//! - the *configuration*: regions, backups a UE, heartbeats, CPFs that drain.
//!
//! Etcd is out of the path of every message. It is asked when a process comes or goes, and when a CTA is to serve a home that
//! another served, or to go on without its CTA replica: one compare-and-swap on the home's record, which raises the term. Of two that
//! want it, one gets it.
//!
//! # What a lost lease means, and what not
//!
//! A lease that ran out means that a process did not reach etcd for so long, not that it has failed. Failures are the
//! [`detector`](crate::detector)'s verdict.
//!
//! | listed | heartbeats | new UEs | the UEs that it has |
//! | --- | --- | --- | --- |
//! | yes | answered | yes | served by it |
//! | no | answered | no, while others are listed ([`CpfRoster`]) | go to others, in order |
//! | yes or no | a verdict | no | taken over by others |
//!
//! A process that cannot renew its lease goes on with what it has ([`Event::Doubtful`], [`Event::Expelled`]), and is listed again under the
//! same incarnation when it reaches etcd. It does no harm meanwhile: a CPF's outputs carry the term of their assignment, which its CTA
//! checks; a CTA's outputs leave only when its CTA replica holds what caused them, and to go on alone it needs the swap that it cannot
//! have. So while etcd is away nothing changes as long as no process fails. If a CTA dies then, its UEs wait until etcd is back.
//!
//! An etcd that has forgotten (another cluster, or a lower revision) is not used: terms would begin again ([`Event::Replaced`]).

mod configuration;
mod cpf_roster;
mod machine;
mod port;
mod record;
mod view;

pub use configuration::Configuration;
pub use cpf_roster::{ConnectedCpf, CpfRoster};
pub use machine::{Event, Input, Membership, MembershipCommand, MembershipSettings, Outbox};
pub use port::{EtcdAnswer, EtcdFailure, EtcdReply, EtcdRequest, Kv, WatchedChange};
pub use record::{ClaimAction, ClaimError, CtaHome, CtaInstance, HomeClaim, Member, MemberId};
pub use view::{ListedMember, MembershipChange, MembershipView};

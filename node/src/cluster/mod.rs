//! The processes of a cluster: a CTA's pool of CPFs, and a CPF itself (docs/cluster.md).

mod cpf;
mod discovery;
mod excluded_cpfs;
mod heartbeat;
mod link_liveness;
mod pair_primary;
mod pair_replica;
mod peer_amfs;
mod pool;
mod recent;
mod recovery_times;
pub mod rejected_peers;
mod replay_sandbox;
mod status;
mod ue_queries;
mod upf_links;
mod watchdog;
mod witness;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::Path;

use whimbrel_etcd::EtcdAccess;
use whimbrel_link::{ClusterKey, LinkSettings, Links};
use whimbrel_resilience::link::{Hello, LinkRole};

use crate::config::Cluster;
pub use cpf::{CpfProcess, CpfSettings};
pub use discovery::AtEtcd;
pub use pair_primary::{PairEvent, PairPrimary};
pub use pair_replica::{PairReplica, Promotion, ReplicaEvent};
pub use peer_amfs::PeerAmfs;
pub use pool::{CpfPool, FunctionQuery, PoolEvent, SentToUpf, log_protocol_violation};
pub use replay_sandbox::replay_sandbox;
pub use ue_queries::UeQueryReply;
pub use upf_links::UpfLinks;
pub use watchdog::InputWatchdog;

/// What log lines call the witness of a cluster.
fn witness_name(access: &EtcdAccess) -> &'static str {
    if access.local.is_some() { "the unit's manager" } else { "etcd" }
}

/// Opens the address to which CPFs and the other CTA connect; `None` where UEs are served in this process. Errors: one sentence.
fn open_links(cluster: &Cluster) -> Result<Option<Links>, String> {
    let Some(at) = cluster.listen else { return Ok(None) };
    let mut links = Links::open(settings(at, LinkRole::Cta, cluster.key_file.as_deref())?)
        .map_err(|e| format!("cluster.listen: {e}"))?;
    share_memory(&mut links);
    Ok(Some(links))
}

/// Has links to other functions of a unit go through its shared memory. Returns whether they do.
pub(crate) fn share_memory(links: &mut Links) -> bool {
    let mut shares = false;
    for pool in crate::function::descriptors::pools() {
        match links.share(pool) {
            Ok(()) => shares = true,
            Err(e) => tracing::warn!("links to the other functions go over sockets: {e}"),
        }
    }
    shares
}

/// The settings of links. Errors: what is wrong with the cluster's key, in one sentence.
pub(crate) fn settings(
    listen: SocketAddr,
    role: LinkRole,
    key_file: Option<&Path>,
) -> Result<LinkSettings, String> {
    let mut settings = LinkSettings::new(Hello::own(role).to_octets());
    settings.listen = Some(listen);
    match key_file {
        Some(file) => settings.keys = ClusterKey::read(file).map_err(|e| e.to_string())?,
        None if !listen.ip().is_loopback() => {
            return Err(format!(
                "links at {listen} would carry UEs' keys unprotected: name the file with the cluster's key (`cluster.key_file`, \
                 `--key-file`), without which only loopback addresses are allowed"
            ));
        }
        None => {}
    }
    Ok(settings)
}

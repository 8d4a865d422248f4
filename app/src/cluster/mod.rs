//! The processes of a cluster: an aggregator's pool of control functions, and a control function itself (docs/cluster.md).

mod asks;
mod cpf;
mod heartbeat;
mod pool;
mod taster;
mod watchdog;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::Path;

use whimbrel_link::{Key, Settings as LinkSettings};
use whimbrel_resilience::link::{Hello, Role};

pub(crate) use asks::Wanted;
pub(crate) use cpf::{CpfProcess, Settings};
pub(crate) use pool::{Pool, Said};
pub(crate) use taster::taste;

/// How links are opened. Errors: what is wrong with the cluster's key, in one sentence.
fn settings(listen: SocketAddr, role: Role, key_file: Option<&Path>) -> Result<LinkSettings, String> {
    let mut settings = LinkSettings::new(Hello(role).to_octets());
    settings.listen = Some(listen);
    if let Some(file) = key_file {
        settings.keys = Key::read(file).map_err(|e| e.to_string())?;
    }
    Ok(settings)
}

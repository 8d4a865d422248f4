//! Certificates, keys and authorities of `sbi.tls`, and the keys of `sbi.token_key`, which are read again when their files change. Connections
//! that are open go on; the next ones have the new certificate.

use std::sync::Arc;
use std::time::Duration;

use ring::digest::{Context, SHA256};
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tracing::{info, warn};
use whimbrel_sbi::tls::{self, ClientCertificates, PemIdentity, ReplaceableConfig};
use zeroize::Zeroizing;

use super::offered::OfferedServices;
use super::peer::read;
use super::udm::Consumer;
use crate::clock;
use crate::config::sbi::Sbi;
use crate::log_limiter::LogLimiter;

/// How often the files are looked at.
const POLL: Duration = Duration::from_secs(5);

/// TLS of both sides, where it is configured. Cloned handles share it.
#[derive(Clone)]
pub(super) struct SbiTlsConfig {
    pub(super) client: Option<ReplaceableConfig<ClientConfig>>,
    pub(super) server: Option<ReplaceableConfig<ServerConfig>>,
}

impl SbiTlsConfig {
    /// Reads the files. Errors: one sentence.
    pub(super) fn new(sbi: &Sbi) -> Result<Self, String> {
        let (client, server) = configs(sbi)?;
        Ok(Self { client: client.map(Into::into), server: server.map(Into::into) })
    }

    fn reload(&self, sbi: &Sbi) -> Result<(), String> {
        let (client, server) = configs(sbi)?;
        if let (Some(side), Some(config)) = (&self.client, client) {
            side.replace(config);
        }
        if let (Some(side), Some(config)) = (&self.server, server) {
            side.replace(config);
        }
        Ok(())
    }
}

type SbiTlsSides = (Option<Arc<ClientConfig>>, Option<Arc<ServerConfig>>);

fn configs(sbi: &Sbi) -> Result<SbiTlsSides, String> {
    let of_tls = |e| format!("`sbi.tls`: {e}");
    let roots = sbi.tls.authorities.as_ref().map(|file| read(file, "sbi.tls.authorities")).transpose()?;
    let identity = match (&sbi.tls.certificate, &sbi.tls.key) {
        (Some(certificate), Some(key)) => {
            let certificate = read(certificate, "sbi.tls.certificate")?;
            Some((certificate, Zeroizing::new(read(key, "sbi.tls.key")?)))
        }
        _ => None,
    };
    let identity = identity.as_ref().map(|(certificates, key)| PemIdentity { certificates, key });
    let client = roots.as_ref().map(|roots| tls::client(roots, identity)).transpose().map_err(of_tls)?;
    let clients = roots.as_ref().map(|roots| (roots.as_slice(), ClientCertificates::Required));
    let server = identity.map(|identity| tls::server(identity, clients)).transpose().map_err(of_tls)?;
    Ok((client, server))
}

/// The files of `sbi` that are read again, and the content that is in force.
pub(super) struct SbiFileWatch {
    sbi: Sbi,
    consumer: Consumer,
    tls: SbiTlsConfig,
    /// The content that is in force, that of the last look, and that which could not be used.
    in_force: Option<[u8; 32]>,
    seen: Option<[u8; 32]>,
    refused: Option<[u8; 32]>,
    log: LogLimiter<String>,
}

impl SbiFileWatch {
    pub(super) fn new(sbi: &Sbi, consumer: &Consumer, tls: SbiTlsConfig) -> Self {
        let (sbi, consumer) = (sbi.clone(), consumer.clone());
        let now = digest(&sbi);
        let log = LogLimiter::new("certificates of service-based interfaces");
        Self { sbi, consumer, tls, in_force: now, seen: now, refused: None, log }
    }

    /// Looks at the files, for ever.
    pub(super) async fn run(mut self, offered: Option<Arc<OfferedServices>>) {
        loop {
            tokio::time::sleep(POLL).await;
            self.poll(offered.as_deref());
        }
    }

    /// Takes files that have changed and are the same as at the last look: a certificate may be written before its key. True if they were taken.
    pub(super) fn poll(&mut self, offered: Option<&OfferedServices>) -> bool {
        let now = digest(&self.sbi);
        let is_stable = std::mem::replace(&mut self.seen, now) == now;
        if now.is_none() || !is_stable || now == self.in_force || now == self.refused {
            return false;
        }
        let keys = || offered.map_or(Ok(()), |offered| offered.reload_keys(&self.sbi, &self.consumer));
        match keys().and_then(|()| self.tls.reload(&self.sbi)) {
            Ok(()) => {
                self.in_force = now;
                self.refused = None;
                info!("the certificates and keys of `sbi` were read again; connections that are open go on");
                true
            }
            Err(e) => {
                self.refused = now;
                if self.log.allows(clock::now(), e.clone()) {
                    warn!(
                        "the certificates and keys of `sbi` have changed and cannot be used; those of before stay: {e}"
                    );
                }
                false
            }
        }
    }
}

/// Digest of all files; `None` if one cannot be read, as while it is replaced.
fn digest(sbi: &Sbi) -> Option<[u8; 32]> {
    let files = [&sbi.tls.certificate, &sbi.tls.key, &sbi.tls.authorities, &sbi.token_key];
    let mut context = Context::new(&SHA256);
    for file in files.into_iter().flatten() {
        let octets = Zeroizing::new(read(file, "sbi").ok()?);
        context.update(&(octets.len() as u64).to_be_bytes());
        context.update(&octets);
    }
    context.finish().as_ref().try_into().ok()
}

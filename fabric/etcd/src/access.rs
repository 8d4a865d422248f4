//! How etcd is reached: endpoints, certificates and user.
//!
//! Files are read for each connection, a few times a minute: a renewed file is used without a restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore};
use whimbrel_files::PEM_OCTETS_MAX;

use crate::gateway::{BadEndpoint, GatewayEndpoint};
use crate::local::LocalAccess;

/// Octets of a file with a password and the end of its line.
const PASSWORD_OCTETS_MAX: u64 = 4 << 10;

/// How etcd is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdAccess {
    /// Each `http://HOST:PORT` or `https://HOST:PORT`; of several one is used until it fails.
    pub endpoints: Vec<String>,
    /// The CA certificates that sign etcd's certificate, as PEM: needed with `https`.
    pub ca_file: Option<PathBuf>,
    /// This process's certificate with its chain, and its key, as PEM: where etcd requires one.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The user in etcd, and the file with the password.
    pub user: Option<(String, PathBuf)>,
    /// The manager of a unit, in etcd's place: the other fields have no meaning then.
    pub local: Option<LocalAccess>,
}

impl EtcdAccess {
    /// The endpoints; all files have been read once. Errors: one sentence.
    pub(crate) fn check(&self) -> Result<Vec<GatewayEndpoint>, String> {
        let endpoints: Result<Vec<GatewayEndpoint>, BadEndpoint> =
            self.endpoints.iter().map(|text| text.parse()).collect();
        let endpoints =
            endpoints.and_then(|all| if all.is_empty() { Err(BadEndpoint::None) } else { Ok(all) });
        let endpoints = endpoints.map_err(|e| e.to_string())?;
        if endpoints.iter().any(GatewayEndpoint::is_sealed) {
            self.connector()?;
        }
        self.password()?;
        Ok(endpoints)
    }

    /// The configuration of TLS 1.3. Errors: one sentence.
    pub(crate) fn connector(&self) -> Result<TlsConnector, String> {
        let Some(ca) = &self.ca_file else {
            return Err(
                "https:// to etcd needs the file with the CA certificate that signs etcd's certificate (`--etcd-ca-file`)".into()
            );
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca)? {
            roots.add(certificate).map_err(|e| format!("{}: {e}", ca.display()))?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(|e| e.to_string())?
            .with_root_certificates(roots);
        let config = match &self.certificate {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", key.display());
                let pem = whimbrel_files::read(key, PEM_OCTETS_MAX).map_err(|e| wrong(&e))?;
                let secret = PrivateKeyDer::from_pem_slice(&pem).map_err(|e| match e {
                    pem::Error::NoItemsFound => wrong(&"there is no private key in it"),
                    e => wrong(&e),
                })?;
                config.with_client_auth_cert(certificates(certificate)?, secret).map_err(|e| match e {
                    Error::InconsistentKeys(_) => wrong(&format_args!(
                        "it is not the key of the certificate in {}",
                        certificate.display()
                    )),
                    e => wrong(&e),
                })?
            }
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }

    /// The user and the password, if configured. Errors: one sentence.
    pub(crate) fn password(&self) -> Result<Option<(&str, String)>, String> {
        let Some((user, file)) = &self.user else { return Ok(None) };
        let text = whimbrel_files::read_text(file, PASSWORD_OCTETS_MAX)
            .map_err(|e| format!("{}: {e}", file.display()))?;
        match text.trim_end_matches(['\r', '\n']) {
            "" => Err(format!("{}: there is no password in it", file.display())),
            password => Ok(Some((user, password.into()))),
        }
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let pem = whimbrel_files::read(file, PEM_OCTETS_MAX).map_err(|e| wrong(&e))?;
    let all: Vec<_> =
        CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(|e| wrong(&e))?;
    if all.is_empty() {
        return Err(wrong(&"there is no certificate in it"));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tls_files_are_reported_at_the_start() {
        let https = EtcdAccess { endpoints: vec!["https://127.0.0.1:1".into()], ..EtcdAccess::default() };
        assert!(https.check().unwrap_err().contains("needs the file"));
        let empty = |name: &str| {
            let file =
                std::env::temp_dir().join(format!("whimbrel-etcd-access-{name}-{}", std::process::id()));
            std::fs::write(&file, "\n").unwrap();
            file
        };
        let file = empty("none");
        for access in [
            EtcdAccess { ca_file: Some(file.clone()), ..https.clone() },
            EtcdAccess { ca_file: Some("/nowhere".into()), ..https },
        ] {
            let why = access.check().unwrap_err();
            assert!(why.contains("no certificate in it") || why.starts_with("/nowhere: "), "{why}");
        }
        let user = EtcdAccess {
            endpoints: vec!["http://127.0.0.1:1".into()],
            user: Some(("whimbrel".into(), file.clone())),
            ..EtcdAccess::default()
        };
        assert!(user.check().unwrap_err().contains("no password in it"));
        std::fs::remove_file(file).unwrap();
    }
}

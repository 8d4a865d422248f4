//! TLS of the API where it listens beyond loopback: a certificate that vouches for itself, made beside the store, or one that is put in
//! its place.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::TLS13;
use tracing::info;
use whimbrel_files::{PEM_OCTETS_MAX, read};
use whimbrel_node::api_files::{api_key_file, certificate_file};
use whimbrel_node::clock;
use zeroize::Zeroizing;

/// A certificate of ours is valid for 365 days; a start makes another one when a month is left.
const RENEWED_AFTER: Duration = Duration::from_secs(335 * 86_400);
/// What a certificate of ours begins with, so that one that an authority signed is never replaced.
const OURS: &str = "# made by whimbrel\n";

/// The server's side. Errors: one sentence.
pub(super) fn server(store: &Path, address: IpAddr) -> Result<Arc<ServerConfig>, String> {
    let (certificate, key) = (certificate_file(store), api_key_file(store));
    if is_due(&certificate) {
        make(&certificate, &key, address)?;
        info!("the API's certificate was made: {}", certificate.display());
    }
    let wrong =
        |file: &Path, e: &dyn std::fmt::Display| format!("the API cannot speak TLS: {}: {e}", file.display());
    let pem = read(&certificate, PEM_OCTETS_MAX).map_err(|e| wrong(&certificate, &e))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.map_err(|e| wrong(&certificate, &e))?;
    let pem = Zeroizing::new(read(&key, PEM_OCTETS_MAX).map_err(|e| wrong(&key, &e))?);
    let secret = PrivateKeyDer::from_pem_slice(&pem).map_err(|e| wrong(&key, &e))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| wrong(&certificate, &e))?
        .with_no_client_auth()
        .with_single_cert(chain, secret);
    let mut config = config.map_err(|e| wrong(&certificate, &e))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Whether a certificate has to be made: there is none, or ours is about to expire.
fn is_due(certificate: &Path) -> bool {
    let text = match whimbrel_files::read_text(certificate, PEM_OCTETS_MAX) {
        Ok(text) => text,
        // A file that cannot be read may belong to the operator, and is not replaced.
        Err(e) => return e.kind() == std::io::ErrorKind::NotFound,
    };
    let age = fs::metadata(certificate).and_then(|m| m.modified());
    let age = age.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    text.starts_with(OURS) && age.is_some_and(|age| age > RENEWED_AFTER)
}

fn make(certificate: &Path, key: &Path, address: IpAddr) -> Result<(), String> {
    let host = || fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "localhost".into());
    let name = if address.is_unspecified() { host().trim().into() } else { address.to_string() };
    let made = whimbrel_broker_client::tls::self_signed(&name, clock::now().as_secs())?;
    for (file, text, mode) in
        [(key, made.key, 0o600), (certificate, format!("{OURS}{}", made.certificate), 0o644)]
    {
        let cannot =
            |e: std::io::Error| format!("the API's certificate cannot be made: {}: {e}", file.display());
        match fs::remove_file(file) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(cannot(e)),
            Ok(()) | Err(_) => {}
        }
        let opened = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(file);
        opened.and_then(|mut f| f.write_all(text.as_bytes())).map_err(cannot)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_certificate_is_made_once_and_its_key_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("s.db");
        server(&store, [192, 0, 2, 1].into()).unwrap();
        let before = fs::read(certificate_file(&store)).unwrap();
        let mode = fs::metadata(api_key_file(&store)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        server(&store, [192, 0, 2, 1].into()).unwrap();
        assert_eq!(fs::read(certificate_file(&store)).unwrap(), before);
        fs::write(certificate_file(&store), "an authority's").unwrap();
        assert!(server(&store, [192, 0, 2, 1].into()).is_err(), "it is not replaced");
    }
}

//! TLS 1.2 and 1.3 of both sides (TS 33.501 §13.1, TS 33.210 §6.2), with X.509 certificates in PEM.

use std::sync::{Arc, PoisonError, RwLock};

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use whimbrel_sbi_types::common::NfInstanceId;

use crate::der;

/// The protocol that both ends agree on (RFC 7301): HTTP/2.
const ALPN: &[u8] = b"h2";

/// The versions of TS 33.210 §6.2. Suites of TLS 1.2 are those of ring: ECDHE with AES-GCM or ChaCha20-Poly1305 alone.
const VERSIONS: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];

/// A certificate chain and its private key, as PEM.
#[derive(Clone, Copy)]
pub struct PemIdentity<'a> {
    /// Certificates, the own one first.
    pub certificates: &'a [u8],
    /// Private key: secret.
    pub key: &'a [u8],
}

/// Demand of a server for certificates of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// A client without one is served, and one that has one is checked.
    Optional,
    /// A client without one is refused (TS 33.501 §13.1: mutual authentication).
    Required,
}

/// The configuration of one side, which each new connection takes. It can be replaced meanwhile: connections that are open go on with the
/// one that they have. Cloned handles share it.
#[derive(Debug)]
pub struct ReplaceableConfig<T>(Arc<RwLock<Arc<T>>>);

impl<T> ReplaceableConfig<T> {
    /// The configuration of the next connection.
    pub fn current(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has the next connections take another configuration.
    pub fn replace(&self, config: Arc<T>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
    }
}

impl<T> Clone for ReplaceableConfig<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> From<Arc<T>> for ReplaceableConfig<T> {
    fn from(config: Arc<T>) -> Self {
        Self(Arc::new(RwLock::new(config)))
    }
}

/// The NF instances that a certificate names in its subjectAltName, as `urn:uuid:…` (TS 33.310 §6.1.3c.3). `None` if it names none. A name
/// that begins like one and is none is left out, so that such a certificate is for no instance.
pub fn nf_instances(certificate: &CertificateDer<'_>) -> Option<Vec<NfInstanceId>> {
    /// id-ce-subjectAltName (RFC 5280 §4.2.1.6).
    const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
    /// `extensions` of a TBSCertificate (RFC 5280 §4.1).
    const EXTENSIONS: u8 = 0xa3;
    /// `uniformResourceIdentifier` of a GeneralName.
    const URI: u8 = 0x86;
    let names = || {
        let (certificate, _) = der::value(certificate, der::SEQUENCE)?;
        let (signed, _) = der::value(certificate, der::SEQUENCE)?;
        let (extensions, _) =
            der::value(der::values(signed).find(|(tag, ..)| *tag == EXTENSIONS)?.1, der::SEQUENCE)?;
        let (_, extension) = der::values(extensions).find(|(_, extension)| {
            der::value(extension, der::OBJECT_IDENTIFIER).is_some_and(|(id, _)| id == SUBJECT_ALT_NAME)
        })?;
        let (_, octets) = der::values(extension).find(|(tag, _)| *tag == der::OCTET_STRING)?;
        der::value(octets, der::SEQUENCE).map(|(names, _)| names)
    };
    let uris = der::values(names()?).filter(|(tag, _)| *tag == URI);
    let instances = uris.filter_map(|(_, uri)| {
        let (prefix, id) = uri.split_at_checked(9)?;
        prefix.eq_ignore_ascii_case(b"urn:uuid:").then_some(id)
    });
    let mut instances = instances.peekable();
    instances.peek()?;
    let id = |octets: &[u8]| core::str::from_utf8(octets).ok()?.to_ascii_lowercase().parse().ok();
    Some(instances.filter_map(id).collect())
}

/// A client's side that trusts these authorities, and shows a certificate if it has one. Errors: one sentence.
pub fn client(roots: &[u8], identity: Option<PemIdentity<'_>>) -> Result<Arc<ClientConfig>, String> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(VERSIONS)
        .map_err(|e| e.to_string())?
        .with_root_certificates(authorities(roots)?);
    let mut config = match identity {
        None => config.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = read(identity)?;
            config
                .with_client_auth_cert(chain, key)
                .map_err(|e| format!("certificate and key do not make a TLS client: {e}"))?
        }
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// A server's side. `clients`: the authorities of client certificates, and how they are demanded. Errors: one sentence.
pub fn server(
    identity: PemIdentity<'_>,
    clients: Option<(&[u8], ClientCertificates)>,
) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(default_provider());
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(VERSIONS)
        .map_err(|e| e.to_string())?;
    let config = match clients {
        None => config.with_no_client_auth(),
        Some((roots, demand)) => {
            let roots = Arc::new(authorities(roots)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            let verifier = match demand {
                ClientCertificates::Optional => verifier.allow_unauthenticated(),
                ClientCertificates::Required => verifier,
            };
            config.with_client_cert_verifier(verifier.build().map_err(|e| e.to_string())?)
        }
    };
    let (chain, key) = read(identity)?;
    let config = config.with_single_cert(chain, key);
    let mut config = config.map_err(|e| format!("certificate and key do not make a TLS server: {e}"))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

fn authorities(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(certificates(pem)?);
    if added == 0 {
        return Err("there is no certificate that can be trusted".into());
    }
    Ok(store)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|e| format!("the certificates are not in PEM: {e}"))?;
    if all.is_empty() { Err("there is no certificate in PEM".into()) } else { Ok(all) }
}

type ChainAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read(identity: PemIdentity<'_>) -> Result<ChainAndKey, String> {
    let key = PrivateKeyDer::from_pem_slice(identity.key)
        .map_err(|e| format!("there is no private key in PEM: {e}"))?;
    Ok((certificates(identity.certificates)?, key))
}

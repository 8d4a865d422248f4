//! TLS to PostgreSQL: the server's certificate is always checked, for the name that the URL has.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as RustlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Octets of a file of certificates: a bundle of all public authorities has a quarter of that.
pub(crate) const PEM_OCTETS_MAX: u64 = 1 << 20;

/// Makes TLS connections; none where no authority is configured.
#[derive(Clone)]
pub(crate) struct PostgresTls(TlsConnector);

impl PostgresTls {
    /// With the authorities of a file, or with none. Errors: one sentence.
    pub(crate) fn new(ca_file: Option<&Path>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        if let Some(file) = ca_file {
            let failed = |why: String| format!("store.postgres_ca_file: {}: {why}", file.display());
            let pem = whimbrel_files::read_text(file, PEM_OCTETS_MAX).map_err(|e| failed(e.to_string()))?;
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate = certificate.map_err(|_| failed("is no PEM file of certificates".into()))?;
                roots.add(certificate).map_err(|e| failed(e.to_string()))?;
            }
            if roots.is_empty() {
                return Err(failed("has no certificate".into()));
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| format!("TLS cannot be used: {e}"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for PostgresTls {
    type Stream = PostgresStream<S>;
    type TlsConnect = NamedServer;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<NamedServer> {
        // Asked for each host, a Unix socket too, which has no name and no TLS.
        Ok(NamedServer { connector: self.0.clone(), host: host.to_owned() })
    }
}

/// A server by the name that its certificate must have.
pub(crate) struct NamedServer {
    connector: TlsConnector,
    host: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for NamedServer {
    type Stream = PostgresStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<PostgresStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            self.connector.connect(name, stream).await.map(|s| PostgresStream(Box::new(s)))
        })
    }
}

/// The connection within TLS.
pub(crate) struct PostgresStream<S>(Box<RustlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for PostgresStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for PostgresStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, octets)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for PostgresStream<S> {
    /// Without channel binding: the certificate is checked, and SCRAM-SHA-256 proves the password within TLS.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

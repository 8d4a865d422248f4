//! Why etcd does not answer, as what an operator has to check: the libraries below name the wrong octet, which does not help.

use std::error::Error;
use std::io;
use std::path::Path;

use tokio_rustls::rustls::{self, AlertDescription, CertificateError, InvalidMessage};

use crate::access::EtcdAccess;

/// The outcome of a connection. The text follows `etcd at HOST:PORT:`.
pub(crate) fn sentence(e: &(dyn Error + 'static), is_sealed: bool, access: &EtcdAccess) -> String {
    if let Some(e) = find::<rustls::Error>(e) {
        return of_tls(e, access);
    }
    let ends = find::<io::Error>(e).is_some_and(is_end)
        || find::<hyper::Error>(e).is_some_and(hyper::Error::is_incomplete_message);
    match (ends, is_sealed) {
        (true, false) => "it ends the connection without an answer: if it uses TLS, write https://".into(),
        // An alert of TLS 1.3 comes after the request was sent, and is lost where the kernel answers the request with a reset.
        (true, true) => {
            format!(
                "it ends the connection: either it does not use TLS (then write http://), or it {}",
                wants(access)
            )
        }
        (false, _) => e.to_string(),
    }
}

/// The first error of this type among an error and its sources.
fn find<'a, T: Error + 'static>(e: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(e);
    while let Some(e) = next {
        // The error inside an I/O error is not its source, but takes its place.
        let held = e
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .map(|held| held as &(dyn Error + 'static));
        let found = e.downcast_ref().or_else(|| held.and_then(find));
        if found.is_some() {
            return found;
        }
        next = e.source();
    }
    None
}

fn is_end(e: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(e.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

fn of_tls(e: &rustls::Error, access: &EtcdAccess) -> String {
    use CertificateError as C;
    use rustls::Error as E;
    match e {
        E::InvalidMessage(InvalidMessage::InvalidContentType) => "it does not use TLS: write http://".into(),
        E::PeerIncompatible(_) | E::AlertReceived(AlertDescription::ProtocolVersion) => {
            "it does not support TLS 1.3".into()
        }
        E::AlertReceived(alert) if is_of_certificate(*alert) => {
            format!("it {} ({alert:?})", wants(access))
        }
        E::InvalidCertificate(C::UnknownIssuer) => {
            let ca = access.ca_file.as_deref().unwrap_or(Path::new(""));
            format!("its certificate is not signed by a CA in {}", ca.display())
        }
        E::InvalidCertificate(C::Expired | C::ExpiredContext { .. }) => {
            "its certificate has expired, by this host's clock".into()
        }
        E::InvalidCertificate(C::NotValidYet | C::NotValidYetContext { .. }) => {
            "its certificate is not valid yet, by this host's clock".into()
        }
        E::InvalidCertificate(C::NotValidForNameContext { presented, .. }) => {
            format!("its certificate is not for this address but for {}", presented.join(", "))
        }
        e => e.to_string(),
    }
}

/// Whether an alert is about this process's certificate: it is missing, or not accepted.
fn is_of_certificate(alert: AlertDescription) -> bool {
    use AlertDescription as A;
    matches!(
        alert,
        A::CertificateRequired
            | A::NoCertificate
            | A::BadCertificate
            | A::UnsupportedCertificate
            | A::CertificateRevoked
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::UnknownCA
            | A::AccessDenied
    )
}

/// What etcd requires when it ends a connection over TLS.
fn wants(access: &EtcdAccess) -> String {
    match &access.certificate {
        None => "requires a certificate of this process, and none is configured".into(),
        Some((file, _)) => format!(
            "does not accept {}: it has expired, or no CA in etcd's trusted-ca-file signed it",
            file.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    fn sentence_of(e: rustls::Error) -> String {
        let access = EtcdAccess { ca_file: Some("ca.pem".into()), ..EtcdAccess::default() };
        sentence(&io::Error::new(io::ErrorKind::InvalidData, e), true, &access)
    }

    #[test]
    fn certificate_errors_are_plain_sentences() {
        use CertificateError as C;
        let time = UnixTime::now();
        let expected = ServerName::try_from("127.0.0.1").unwrap();
        let presented = vec!["IpAddress(192.0.2.9)".into()];
        for (wrong, says) in [
            (C::UnknownIssuer, "its certificate is not signed by a CA in ca.pem"),
            (
                C::ExpiredContext { time, not_after: time },
                "its certificate has expired, by this host's clock",
            ),
            (
                C::NotValidYetContext { time, not_before: time },
                "its certificate is not valid yet, by this host's clock",
            ),
            (
                C::NotValidForNameContext { expected, presented },
                "its certificate is not for this address but for IpAddress(192.0.2.9)",
            ),
        ] {
            assert_eq!(sentence_of(rustls::Error::InvalidCertificate(wrong)), says);
        }
    }

    #[test]
    fn an_end_without_a_word_says_what_it_may_be() {
        let end = |kind: io::ErrorKind, is_sealed| {
            sentence(&io::Error::from(kind), is_sealed, &EtcdAccess::default())
        };
        for kind in [io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof] {
            assert!(
                end(kind, true).contains("write http://") && end(kind, true).contains("none is configured")
            );
            assert!(end(kind, false).contains("write https://"));
        }
        assert_eq!(end(io::ErrorKind::ConnectionRefused, true), "connection refused");
    }
}

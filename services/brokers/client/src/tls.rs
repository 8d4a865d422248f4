//! TLS 1.3 between operator and broker, with X.509 certificates of a public or private authority.

use core::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use whimbrel_files::{PEM_OCTETS_MAX, read};
use zeroize::Zeroizing;

/// The protocol that both ends agree on (RFC 7301): HTTP/2.
const ALPN: &[u8] = b"h2";
/// How long a self-signed certificate is valid.
const SELF_SIGNED_DAYS: u64 = 365;

/// A server's side with the certificate chain and the private key of two PEM files. Errors: one sentence.
pub fn server(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, String> {
    let pem = Zeroizing::new(
        read(key, PEM_OCTETS_MAX).map_err(|e| format!("{} cannot be read: {e}", key.display()))?,
    );
    let secret = PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|e| format!("{} holds no private key in PEM: {e}", key.display()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_single_cert(certificates(certificate)?, secret);
    let mut config = config.map_err(|e| {
        format!("{} and {} do not make a TLS server: {e}", certificate.display(), key.display())
    })?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// A client's side that trusts the certificates of a PEM file. Errors: one sentence.
pub fn client(roots: &Path) -> Result<Arc<ClientConfig>, String> {
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(certificates(roots)?);
    if added == 0 {
        return Err(format!("{} holds no certificate that can be trusted", roots.display()));
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| e.to_string())?
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |e: &dyn core::fmt::Display| format!("{}: {e}", file.display());
    let pem = read(file, PEM_OCTETS_MAX).map_err(|e| wrong(&e))?;
    let all: Vec<_> =
        CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(|e| wrong(&e))?;
    if all.is_empty() { Err(wrong(&"there is no certificate in PEM in it")) } else { Ok(all) }
}

/// A certificate that vouches for itself, and its key, as PEM: for tests, and where both sides exchange it by hand.
#[derive(Debug)]
pub struct SelfSigned {
    /// The certificate as PEM.
    pub certificate: String,
    /// The private key: secret.
    pub key: String,
}

/// Makes a certificate of one name (RFC 5280, ECDSA on P-256), valid from an hour before `now_s`. Errors: one sentence.
pub fn self_signed(name: &str, now_s: u64) -> Result<SelfSigned, String> {
    let failed = |_| "no key of TLS can be made".to_owned();
    let rng = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &rng).map_err(failed)?;
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &rng)
        .map_err(|_| "no key of TLS can be made".to_owned())?;
    let validity = (now_s.saturating_sub(3600), now_s + SELF_SIGNED_DAYS * 86_400);
    let tbs = to_be_signed(name, &crate::random()?, validity, key.public_key().as_ref());
    let signature = key.sign(&rng, &tbs).map_err(failed)?;
    let certificate = der(SEQUENCE, &[&tbs, &algorithm(), &der(BIT_STRING, &[&[0], signature.as_ref()])]);
    Ok(SelfSigned {
        certificate: pem("CERTIFICATE", &certificate),
        key: pem("PRIVATE KEY", document.as_ref()),
    })
}

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// ecdsa-with-SHA256, id-ecPublicKey, prime256v1 (RFC 5480), commonName, subjectAltName (RFC 5280).
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const PRIME256V1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// A value of distinguished encoding rules (X.690 §8.1).
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|p| p.len()).sum();
    let mut out = vec![tag];
    match len {
        0..=0x7f => out.push(len as u8),
        0x80..=0xff => out.extend_from_slice(&[0x81, len as u8]),
        _ => out.extend_from_slice(&[0x82, (len >> 8) as u8, len as u8]),
    }
    parts.iter().for_each(|p| out.extend_from_slice(p));
    out
}

fn algorithm() -> Vec<u8> {
    der(SEQUENCE, &[&der(OBJECT_IDENTIFIER, &[ECDSA_WITH_SHA256])])
}

fn to_be_signed(name: &str, serial: &[u8; 8], validity: (u64, u64), public: &[u8]) -> Vec<u8> {
    let common_name =
        der(SEQUENCE, &[&der(OBJECT_IDENTIFIER, &[COMMON_NAME]), &der(UTF8_STRING, &[b"whimbrel broker"])]);
    let subject = der(SEQUENCE, &[&der(SET, &[&common_name])]);
    let key_type =
        der(SEQUENCE, &[&der(OBJECT_IDENTIFIER, &[EC_PUBLIC_KEY]), &der(OBJECT_IDENTIFIER, &[PRIME256V1])]);
    let names = match name.parse() {
        Ok(IpAddr::V4(address)) => der(0x87, &[&address.octets()]),
        Ok(IpAddr::V6(address)) => der(0x87, &[&address.octets()]),
        Err(_) => der(0x82, &[name.as_bytes()]),
    };
    let names = der(OCTET_STRING, &[&der(SEQUENCE, &[&names])]);
    let extension = der(SEQUENCE, &[&der(OBJECT_IDENTIFIER, &[SUBJECT_ALT_NAME]), &names]);
    der(
        SEQUENCE,
        &[
            &der(0xa0, &[&der(INTEGER, &[&[2]])]),
            // A leading 1 keeps the serial number positive and of one length.
            &der(INTEGER, &[&[1], serial]),
            &algorithm(),
            &subject,
            &der(SEQUENCE, &[&utc_time(validity.0), &utc_time(validity.1)]),
            &subject,
            &der(SEQUENCE, &[&key_type, &der(BIT_STRING, &[&[0], public])]),
            &der(0xa3, &[&der(SEQUENCE, &[&extension])]),
        ],
    )
}

/// A time before 2050 (RFC 5280 §4.1.2.5.1).
fn utc_time(at_s: u64) -> Vec<u8> {
    let (year, month, day) = date(at_s / 86_400);
    let (h, m, s) = (at_s / 3600 % 24, at_s / 60 % 60, at_s % 60);
    der(UTC_TIME, &[format!("{:02}{month:02}{day:02}{h:02}{m:02}{s:02}Z", year % 100).as_bytes()])
}

/// The Gregorian date of a day counted from 1970-01-01.
fn date(day: u64) -> (u64, u64, u64) {
    let is_leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let (mut year, mut left) = (1970, day);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    let days = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while left >= days[month] {
        left -= days[month];
        month += 1;
    }
    (year, month as u64 + 1, left + 1)
}

fn pem(label: &str, octets: &[u8]) -> String {
    let text = STANDARD.encode(octets);
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        out.push_str(core::str::from_utf8(line).unwrap_or_default());
        out.push('\n');
    }
    out + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_the_gregorian_calendar() {
        for (day, expected) in [(0, (1970, 1, 1)), (11_016, (2000, 2, 29)), (20_783, (2026, 11, 26))] {
            assert_eq!(date(day), expected);
        }
    }
}

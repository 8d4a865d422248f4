//! TLS of both sides.

use std::sync::Arc;

use hyper::StatusCode;
use whimbrel_sbi::server::ServerSettings;
use whimbrel_sbi::tls::{ClientCertificates, PemIdentity, ReplaceableConfig};
use whimbrel_sbi::{ClientSettings, SbiClient, SbiRequest, SbiResponse, SbiServer, SendError, tls};
use whimbrel_sbi_types::common::NfInstanceId;

use crate::common::{WITHIN, listener, run};

const CA: &[u8] = include_bytes!("../testdata/ca.pem");
const OTHER_CA: &[u8] = include_bytes!("../testdata/other-ca.pem");
const KEY: &[u8] = include_bytes!("../testdata/leaf-key.pem");
const SERVER: &[u8] = include_bytes!("../testdata/server.pem");
const OTHER_NAME: &[u8] = include_bytes!("../testdata/other-name.pem");
const CLIENT: &[u8] = include_bytes!("../testdata/client.pem");
const FOREIGN: &[u8] = include_bytes!("../testdata/foreign.pem");
const EXPIRED: &[u8] = include_bytes!("../testdata/expired.pem");

fn identity(certificates: &'static [u8]) -> PemIdentity<'static> {
    PemIdentity { certificates, key: KEY }
}

/// A server that answers with the octets of the client's certificate.
fn server(certificate: &'static [u8], clients: Option<(&[u8], ClientCertificates)>) -> SbiServer {
    let tls = Some(tls::server(identity(certificate), clients).unwrap().into());
    let settings = ServerSettings { tls, ..ServerSettings::default() };
    let serve = |request: whimbrel_sbi::ReceivedRequest| async move {
        SbiResponse::json(StatusCode::OK, &request.client_certificate.map_or(0, |c| c.len()))
    };
    SbiServer::start(listener(), settings, serve).unwrap()
}

fn client(roots: &[u8], own: Option<PemIdentity<'_>>) -> SbiClient {
    let tls = Some(tls::client(roots, own).unwrap().into());
    SbiClient::new(ClientSettings { tls, ..ClientSettings::new("AMF") })
}

async fn ask(client: &SbiClient, server: &SbiServer) -> Result<SbiResponse, SendError> {
    client.send(SbiRequest::get(format!("https://{}/", server.address()).parse().unwrap(), WITHIN)).await
}

#[test] // TS 33.501 §13.1: certificates of names, authorities and times that do not fit are refused
fn certificates_that_do_not_fit_are_refused_each_with_its_reason() {
    run(async {
        assert_eq!(ask(&client(CA, None), &server(SERVER, None)).await.unwrap().status, StatusCode::OK);
        let e = ask(&client(CA, None), &server(OTHER_NAME, None)).await.unwrap_err();
        assert!(matches!(e, SendError::TlsName(_)), "{e}");
        let e = ask(&client(CA, None), &server(EXPIRED, None)).await.unwrap_err();
        assert!(matches!(e, SendError::TlsExpired(_)), "{e}");
        let e = ask(&client(CA, None), &server(FOREIGN, None)).await.unwrap_err();
        assert!(matches!(e, SendError::TlsUntrusted(_)), "{e}");
        let e = ask(&client(OTHER_CA, None), &server(SERVER, None)).await.unwrap_err();
        assert!(matches!(e, SendError::TlsUntrusted(_)) && e.is_unprocessed(), "{e}");
        let none = SbiClient::new(ClientSettings::new("AMF"));
        assert!(matches!(ask(&none, &server(SERVER, None)).await, Err(SendError::NoTls(_))));
    });
}

#[test] // TS 33.501 §13.1: mutual authentication
fn client_certificates_are_demanded_checked_and_given_to_the_handler() {
    run(async {
        let octets = |response: SbiResponse| response.read::<usize>().unwrap();
        let optional = server(SERVER, Some((CA, ClientCertificates::Optional)));
        assert_eq!(octets(ask(&client(CA, None), &optional).await.unwrap()), 0);
        assert!(octets(ask(&client(CA, Some(identity(CLIENT))), &optional).await.unwrap()) > 100);
        let required = server(SERVER, Some((CA, ClientCertificates::Required)));
        assert!(octets(ask(&client(CA, Some(identity(CLIENT))), &required).await.unwrap()) > 100);
        for own in [None, Some(identity(FOREIGN))] {
            let e = ask(&client(CA, own), &required).await.unwrap_err();
            // In TLS 1.3 the alert comes behind the handshake, and is lost if the reset of the connection overtakes it.
            let is_alert = matches!(&e, SendError::Tls(_, alert) if alert.contains("alert"));
            assert!(is_alert || matches!(e, SendError::Broken(..) | SendError::Refused(_)), "{e:?}");
            assert_eq!(required.counts().requests, 1);
        }
    });
}

#[test] // TS 33.210 §6.2: TLS 1.2 and 1.3; RFC 9113 §3.2: h2 by ALPN
fn peers_of_tls_1_2_are_served_and_peers_without_h2_are_not() {
    run(async {
        use tokio_rustls::rustls;
        let server = server(SERVER, None);
        let mut roots = rustls::RootCertStore::empty();
        let ca = rustls::pki_types::pem::PemObject::from_pem_slice(CA).unwrap();
        roots.add(ca).unwrap();
        let only = |version: &'static rustls::SupportedProtocolVersion, alpn: &[&[u8]]| {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let mut config = rustls::ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots.clone())
                .with_no_client_auth();
            config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
            SbiClient::new(ClientSettings {
                tls: Some(Arc::new(config).into()),
                ..ClientSettings::new("AMF")
            })
        };
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            assert_eq!(ask(&only(version, &[b"h2"]), &server).await.unwrap().status, StatusCode::OK);
        }
        let e = ask(&only(&rustls::version::TLS13, &[b"http/1.1"]), &server).await.unwrap_err();
        assert!(matches!(e, SendError::NotHttp2(_)), "{e:?}");
        let e = ask(&only(&rustls::version::TLS13, &[]), &server).await.unwrap_err();
        assert!(matches!(e, SendError::NotHttp2(_)), "{e:?}");
    });
}

#[test]
fn wrong_pem_has_a_sentence() {
    assert!(tls::client(b"", None).unwrap_err().contains("no certificate"));
    let swapped = PemIdentity { certificates: SERVER, key: CA };
    assert!(tls::server(swapped, None).unwrap_err().contains("no private key"));
}

#[test] // connections that are open go on; the next one has the new certificate
fn a_certificate_is_replaced_while_a_connection_lives_on() {
    run(async {
        let config = ReplaceableConfig::from(tls::server(identity(SERVER), None).unwrap());
        let settings = ServerSettings { tls: Some(config.clone()), ..ServerSettings::default() };
        let serve = |_| async { SbiResponse::no_content() };
        let server = SbiServer::start(listener(), settings, serve).unwrap();
        let (old, strict) = (client(CA, None), client(OTHER_CA, None));
        assert_eq!(ask(&old, &server).await.unwrap().status, 204);
        let e = ask(&strict, &server).await.unwrap_err();
        assert!(matches!(e, SendError::TlsUntrusted(_)), "{e}");
        config.replace(tls::server(identity(FOREIGN), None).unwrap());
        assert_eq!(ask(&strict, &server).await.unwrap().status, 204);
        let e = ask(&client(CA, None), &server).await.unwrap_err();
        assert!(matches!(e, SendError::TlsUntrusted(_)), "{e}");
        // The first connection lives on.
        assert_eq!(ask(&old, &server).await.unwrap().status, 204);
        assert_eq!((old.connections_opened(), server.counts().connections), (1, 2));
    });
}

#[test] // a client trusts other authorities from the next connection on
fn the_authorities_of_a_client_are_replaced() {
    run(async {
        let server = server(FOREIGN, None);
        let config = ReplaceableConfig::from(tls::client(CA, None).unwrap());
        let client =
            SbiClient::new(ClientSettings { tls: Some(config.clone()), ..ClientSettings::new("AMF") });
        assert!(matches!(ask(&client, &server).await, Err(SendError::TlsUntrusted(_))));
        config.replace(tls::client(OTHER_CA, None).unwrap());
        assert_eq!(ask(&client, &server).await.unwrap().status, StatusCode::OK);
    });
}

#[test] // TS 33.310 §6.1.3c.3: the instance is a URI in the subjectAltName
fn the_instances_that_a_certificate_names_are_read() {
    use tokio_rustls::rustls::pki_types::CertificateDer;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    let of = |pem: &[u8]| tls::nf_instances(&CertificateDer::from_pem_slice(pem).unwrap());
    let id: NfInstanceId = "4947a69a-f61b-4bc1-b9da-47c9c5d14b64".parse().unwrap();
    assert_eq!(of(CLIENT), Some(vec![id]));
    for none in [SERVER, CA, EXPIRED] {
        assert_eq!(of(none), None);
    }
    // A name that begins like one and is none, so that the certificate is for no instance. The signature was checked before.
    let mut octets = CertificateDer::from_pem_slice(CLIENT).unwrap().to_vec();
    let at = octets.windows(9).position(|window| window == b"urn:uuid:").unwrap() + 9;
    octets[at] = b'x';
    assert_eq!(tls::nf_instances(&octets.clone().into()), Some(vec![]));
    // Octets that are cut or changed anywhere.
    for end in 0..octets.len() {
        tls::nf_instances(&octets[..end].to_vec().into());
        let mut changed = octets.clone();
        changed[end] ^= 0xff;
        tls::nf_instances(&changed.into());
    }
}

//! Certificates and keys that are replaced while the core runs.

use std::path::Path;
use std::time::Duration;

use hyper::StatusCode;
use whimbrel_sbi::tls::{self, PemIdentity};
use whimbrel_sbi::{ClientSettings, SbiClient, SbiRequest, SbiResponse, SbiServer, SendError};

use super::reload::{SbiFileWatch, SbiTlsConfig};
use super::{consumer, peer};
use crate::config;

const CA: &[u8] = include_bytes!("../../../fabric/sbi/testdata/ca.pem");
const OTHER_CA: &[u8] = include_bytes!("../../../fabric/sbi/testdata/other-ca.pem");
const KEY: &[u8] = include_bytes!("../../../fabric/sbi/testdata/leaf-key.pem");
const SERVER: &[u8] = include_bytes!("../../../fabric/sbi/testdata/server.pem");
/// Of the other authority.
const FOREIGN: &[u8] = include_bytes!("../../../fabric/sbi/testdata/foreign.pem");
const CLIENT: &[u8] = include_bytes!("../../../fabric/sbi/testdata/client.pem");

const WITHIN: Duration = Duration::from_secs(20);

fn client(roots: &[u8], certificates: &[u8]) -> SbiClient {
    let tls = Some(tls::client(roots, Some(PemIdentity { certificates, key: KEY })).unwrap().into());
    SbiClient::new(ClientSettings { tls, ..ClientSettings::new("AMF") })
}

async fn ask(client: &SbiClient, server: &SbiServer) -> Result<SbiResponse, SendError> {
    client.send(SbiRequest::get(format!("https://{}/", server.address()).parse().unwrap(), WITHIN)).await
}

#[test] // a certificate, its authorities and those of clients change; connections that are open go on
fn files_that_change_are_taken_by_the_next_connections() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let write = |name: &str, octets: &[u8]| std::fs::write(at(name), octets).unwrap();
    write("sbi.pem", SERVER);
    write("sbi.key", KEY);
    write("ca.pem", CA);
    let path = folder.path().display();
    let text = format!(
        "sbi:\n  address: 127.0.0.1:7777\n  tls:\n    certificate: {path}/sbi.pem\n    key: {path}/sbi.key\n    authorities: {path}/ca.pem\n"
    );
    let config = config::parse(&text, Path::new("w.yaml")).unwrap_or_else(|e| panic!("{e}"));
    let sbi = config.sbi.as_ref().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config_of_tls = SbiTlsConfig::new(sbi).unwrap();
        let mut watch = SbiFileWatch::new(sbi, &consumer(&config, sbi), config_of_tls.clone());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = peer::server_settings(&config_of_tls);
        let serve = |_| async { SbiResponse::no_content() };
        let server = SbiServer::start(listener, settings, serve).unwrap();
        let own = peer::client(&config_of_tls);
        let old = client(CA, CLIENT);
        assert_eq!(ask(&old, &server).await.unwrap().status, StatusCode::NO_CONTENT);
        assert!(!watch.poll(None) && !watch.poll(None), "nothing has changed");

        // Half of a change is not taken, nor what cannot be used.
        write("sbi.pem", b"no certificate");
        assert!(!watch.poll(None) && !watch.poll(None) && !watch.poll(None));
        assert_eq!(ask(&client(CA, CLIENT), &server).await.unwrap().status, StatusCode::NO_CONTENT);
        std::fs::remove_file(at("sbi.pem")).unwrap();
        assert!(!watch.poll(None) && !watch.poll(None));

        write("sbi.pem", FOREIGN);
        write("ca.pem", OTHER_CA);
        assert!(!watch.poll(None), "the files are looked at twice");
        assert!(watch.poll(None) && !watch.poll(None));
        let e = ask(&client(CA, FOREIGN), &server).await.unwrap_err();
        assert!(matches!(e, SendError::TlsUntrusted(_)), "the new certificate is of another authority: {e}");
        assert!(
            ask(&client(OTHER_CA, CLIENT), &server).await.is_err(),
            "clients of the old authority are refused"
        );
        assert_eq!(ask(&client(OTHER_CA, FOREIGN), &server).await.unwrap().status, StatusCode::NO_CONTENT);
        // The core's own client has the new authorities and the new certificate.
        assert_eq!(ask(&own, &server).await.unwrap().status, StatusCode::NO_CONTENT);
        // The old connection lives on.
        assert_eq!(ask(&old, &server).await.unwrap().status, StatusCode::NO_CONTENT);
        assert_eq!(old.connections_opened(), 1);
    });
}

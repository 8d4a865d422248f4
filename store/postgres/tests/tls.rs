//! TLS to the server, with certificates that openssl makes.

use std::path::Path;

use super::common::{Home, Server, is_installed, record};
use whimbrel_postgres::PostgresSettings;
use whimbrel_store::{DatabaseFailure, StoreError};

/// Of this test alone: the server listens on loopback.
const PORT: &str = "25432";

/// Makes an authority `NAME.pem`, and a certificate of it for 127.0.0.1, `NAME-server.pem` with its key.
fn certificates(server: &Server, name: &str) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let script = format!(
        "openssl req -x509 {key} -keyout {name}.key -out {name}.pem -subj /CN={name} -days 2 && \
         openssl req {key} -keyout {name}-server.key -out {name}.csr -subj /CN=server && echo subjectAltName=IP:127.0.0.1 >{name}.ext && \
         openssl x509 -req -in {name}.csr -CA {name}.pem -CAkey {name}.key -CAcreateserial -days 2 -extfile {name}.ext -out {name}-server.pem"
    );
    let made = server.as_user(Path::new("/bin/sh")).args(["-c", &script]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn a_server_whose_certificate_is_of_another_authority_or_name_is_refused() {
    if !is_installed() {
        return;
    }
    let mut server = Server::new();
    certificates(&server, "right");
    certificates(&server, "other");
    std::fs::write(
        format!("{}/pg_hba.conf", server.data()),
        "local all all trust\nhostssl all all 127.0.0.1/32 trust\n",
    )
    .unwrap();
    let file = |name: &str| server.path().join(name);
    let (certificate, key) = (file("right-server.pem"), file("right-server.key"));
    let (right, other) = (file("right.pem"), file("other.pem"));
    let settings = [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={PORT}"),
        "ssl=on".to_owned(),
        format!("ssl_cert_file={}", certificate.display()),
        format!("ssl_key_file={}", key.display()),
    ];
    server.start(&settings.each_ref().map(String::as_str));
    let at = |host: &str, ca_file: &Path| PostgresSettings {
        url: format!("postgresql://whimbrel@{host}:{PORT}/postgres"),
        password_file: None,
        ca_file: Some(ca_file.to_owned()),
    };
    let home = Home::new(at("127.0.0.1", &right));
    home.store().add(&record(1)).unwrap();
    assert_eq!(
        server
            .sql("postgres", "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl"),
        "0"
    );
    let mut store = home.store();
    store.catch_up().unwrap();
    assert_eq!(
        server
            .sql("postgres", "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl"),
        "1"
    );
    for wrong in [at("127.0.0.1", &other), at("localhost", &right)] {
        let refused = Home::new(wrong).store().catch_up().unwrap_err();
        let StoreError::Database(DatabaseFailure::Unreachable { why }) = &refused else {
            panic!("{refused}")
        };
        assert!(why.contains("certificate"), "{why}");
    }
}

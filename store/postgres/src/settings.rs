//! Which database, with which login: checked before anything is connected.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use zeroize::Zeroizing;

use crate::tls::PostgresTls;

/// Octets of a password file at most.
const PASSWORD_OCTETS_MAX: u64 = 4 << 10;
/// How long each server of the URL may take to accept a connection, unless the URL says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Where the database is, and how this program logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresSettings {
    /// `postgresql://USER@HOST[:PORT][,HOST…]/DATABASE`.
    pub url: String,
    /// The file with the password, which the URL need not have.
    pub password_file: Option<PathBuf>,
    /// The authorities of the servers' certificates; with it the connection is in TLS.
    pub ca_file: Option<PathBuf>,
}

impl PostgresSettings {
    /// Checks the URL. Errors: one sentence, without the password.
    pub fn check_url(url: &str, has_ca_file: bool) -> Result<(), String> {
        parse(url, has_ca_file).map(drop)
    }

    /// The hosts of the URL, without user and password.
    pub fn hosts(&self) -> String {
        let Ok(config) = parse(&self.url, self.ca_file.is_some()) else { return "?".into() };
        let ports = config.get_ports();
        let named = config.get_hosts().iter().enumerate().map(|(i, host)| {
            let port = ports.get(i).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
                Host::Tcp(name) => format!("{name}:{port}"),
                Host::Unix(folder) => format!("{}:{port}", folder.display()),
            }
        });
        named.collect::<Vec<_>>().join(", ")
    }

    /// The parts of a connection. The password is read each time: it may have been changed. Errors: one sentence.
    pub(crate) fn connection(&self) -> Result<(Config, PostgresTls), String> {
        let mut config = parse(&self.url, self.ca_file.is_some())?;
        if let Some(file) = &self.password_file {
            config.password(password(file)?.as_bytes());
        }
        Ok((config, PostgresTls::new(self.ca_file.as_deref())?))
    }
}

fn password(file: &Path) -> Result<Zeroizing<String>, String> {
    let failed = |why: String| format!("store.postgres_password_file: {}: {why}", file.display());
    let text = whimbrel_files::read_text(file, PASSWORD_OCTETS_MAX).map_err(|e| failed(e.to_string()))?;
    let text = Zeroizing::new(text);
    let line = text.trim_end_matches(['\n', '\r']);
    if line.is_empty() || line.contains('\n') {
        return Err(failed("must have the password on one line".into()));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

fn parse(url: &str, has_ca_file: bool) -> Result<Config, String> {
    if !url.starts_with("postgresql://") && !url.starts_with("postgres://") {
        return Err(
            "is no URL such as postgresql://whimbrel@db1,db2/whimbrel?target_session_attrs=read-write".into(),
        );
    }
    // The crate's sentence names the parameter alone, and not its value.
    let mut config = Config::from_str(url).map_err(|e| format!("is no URL of PostgreSQL: {e}"))?;
    if config.get_hosts().is_empty() {
        return Err("names no host".into());
    }
    if config.get_password().is_some() {
        return Err("has a password, which all readers of the configuration would have: write it into a file, and name that in \
                    store.postgres_password_file"
            .into());
    }
    if config.get_user().is_none() {
        return Err("names no user: postgresql://USER@HOST/DATABASE".into());
    }
    if config.get_dbname().is_none() {
        return Err("names no database: postgresql://USER@HOST/DATABASE".into());
    }
    let beyond = config.get_hosts().iter().find(|host| !is_of_this_host(host));
    match (beyond, has_ca_file) {
        (_, true) => {
            config.ssl_mode(SslMode::Require);
        }
        (Some(_), false) => {
            return Err("names a server beyond loopback, so the connection needs TLS: give store.postgres_ca_file, the authority of the \
                        server's certificate"
                .into());
        }
        (None, false) => {
            config.ssl_mode(SslMode::Disable);
        }
    }
    // Only a server that can be written to is of use: the home's replica is as current as a replica server.
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_application_name().is_none() {
        config.application_name("whimbrel");
    }
    Ok(config)
}

fn is_of_this_host(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        PostgresSettings::check_url(url, false).unwrap_err()
    }

    #[test]
    fn a_url_without_a_part_or_beyond_loopback_without_tls_is_refused_in_one_sentence() {
        assert!(refused("db1").contains("is no URL"));
        assert!(refused("postgresql://u@/d").contains("host"));
        assert!(refused("postgresql://127.0.0.1/d").contains("no user"));
        assert!(refused("postgresql://u@127.0.0.1").contains("no database"));
        assert!(refused("postgresql://u@db1,127.0.0.1/d").contains("store.postgres_ca_file"));
        assert!(refused("postgresql://u:secret@127.0.0.1:x/d").contains("is no URL"));
        assert!(!refused("postgresql://u:secret@127.0.0.1:x/d").contains("secret"));
        assert!(refused("postgresql://u:secret@127.0.0.1/d").contains("store.postgres_password_file"));
        assert_eq!(PostgresSettings::check_url("postgresql://u@db1,db2/d", true), Ok(()));
        assert_eq!(PostgresSettings::check_url("postgresql://u@127.0.0.1:5,localhost/d", false), Ok(()));
    }

    #[test]
    fn hosts_are_named_without_login() {
        let settings = PostgresSettings {
            url: "postgresql://u@127.0.0.1:7,127.0.0.2:8/d".into(),
            password_file: None,
            ca_file: None,
        };
        assert_eq!(settings.hosts(), "127.0.0.1:7, 127.0.0.2:8");
    }
}

//! `whimbrel cpf`: a CPF for a CTA elsewhere.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use tracing::info;
use whimbrel_etcd::Access;
use whimbrel_resilience::region::Region;

use super::Done;
use crate::api::{self, Shared};
use crate::clock;
use crate::cluster::{AtEtcd, CpfProcess, Settings};
use crate::config::{Log, LogFormat, LogLevel};
use crate::console::Console;
use crate::logging;

/// Of a CTA beside it that nobody told otherwise.
const CTA_PORT: u16 = 7380;

#[derive(Args)]
pub(crate) struct Options {
    /// The CTA: `cluster.listen` of the core that it serves; of a pair, both. Without it and etcd: 127.0.0.1:7380.
    #[arg(long, value_name = "ADDRESS")]
    cta: Vec<SocketAddr>,
    /// Etcd, such as https://192.0.2.9:2379: the CTAs are found there, and this CPF is listed.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    etcd: Vec<String>,
    /// The certificates of who vouches for etcd's, as PEM: for https://.
    #[arg(long, value_name = "FILE", requires = "etcd")]
    etcd_ca_file: Option<PathBuf>,
    /// This CPF's certificate, as PEM: where etcd wants to see one.
    #[arg(long, value_name = "FILE", requires = "etcd_certificate_key_file")]
    etcd_certificate_file: Option<PathBuf>,
    /// The certificate's key, as PEM.
    #[arg(long, value_name = "FILE", requires = "etcd_certificate_file")]
    etcd_certificate_key_file: Option<PathBuf>,
    /// The user at etcd, where it has users.
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    etcd_user: Option<String>,
    /// File with the user's password.
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
    /// The cluster's name at etcd: `cluster.name` of the CTAs.
    #[arg(long, value_name = "NAME", default_value = "whimbrel", requires = "etcd")]
    name: String,
    /// Which pair's CTAs are found at etcd: their `cluster.home`.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "etcd")]
    home: u16,
    /// Where other CPFs reach it; port 0 takes any that is free.
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))]
    listen: SocketAddr,
    /// Its region: a geohash of the digits 0 to 3, or larger/own.
    #[arg(long, default_value = "home/site")]
    region: Region,
    /// File with the cluster's key, the same as `cluster.key_file` of the CTA; without it, this host only.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Where it says how it is, over HTTP: /metrics and /api/v1/status. Without it, nowhere.
    #[arg(long, value_name = "ADDRESS")]
    api: Option<SocketAddr>,
}

/// Serves until SIGINT or SIGTERM. All else that it needs to know, its CTA tells.
pub(crate) fn run(options: Options) -> Done {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|e| format!("signals cannot be awaited: {e}"))?;
    }
    let log = Log { level: LogLevel::Info, format: LogFormat::Text, supi: false };
    let _logging = logging::start(log)?;
    let Options { cta: mut ctas, name, home, listen, region, key_file, api, .. } = options;
    let etcd = Access {
        endpoints: options.etcd,
        ca_file: options.etcd_ca_file,
        certificate: options.etcd_certificate_file.zip(options.etcd_certificate_key_file),
        user: options.etcd_user.zip(options.etcd_password_file),
    };
    let at_etcd = (!etcd.endpoints.is_empty()).then_some(AtEtcd { etcd, name, home });
    if ctas.is_empty() && at_etcd.is_none() {
        ctas.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), CTA_PORT));
    }
    is_reached(listen, &ctas)?;
    let console = Console::new(clock::now()).map_err(|e| format!("the system gives no eventfd: {e}"))?;
    let api = api.map(|at| api::start(at, Shared::of_cpf(console.clone(), at))).transpose()?;
    let console = api.is_some().then_some(console);
    let settings = Settings { ctas, at_etcd, listen, region, key_file, console };
    let mut process = CpfProcess::open(settings)?;
    if let Some(api) = &api {
        info!(address = %api.address, "the API listens");
    }
    let version = env!("CARGO_PKG_VERSION");
    info!(version, address = %process.address(), "the CPF starts");
    process.run(&stop);
    info!("the CPF stops");
    Ok(())
}

/// What listens at a loopback address is reached by its own host alone. Errors: one sentence.
fn is_reached(listen: SocketAddr, ctas: &[SocketAddr]) -> Done {
    match ctas.iter().find(|at| listen.ip().is_loopback() && !at.ip().is_loopback()) {
        Some(far) => Err(format!(
            "--listen: the CTA {far} and other CPFs do not reach this one at {listen}: write an address of \
             this host, such as 192.0.2.7:7381 (port 0 takes any that is free)"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_serves_another_hosts_cta_listens_where_that_one_reaches_it() {
        let of = |listen: &str, cta: &str| {
            is_reached(listen.parse().unwrap(), &["127.0.0.1:7380".parse().unwrap(), cta.parse().unwrap()])
        };
        assert!(of("127.0.0.1:0", "192.0.2.1:7380").unwrap_err().contains("192.0.2.1:7380"));
        assert!(of("[::1]:0", "[2001:db8::1]:7380").is_err());
        for listen in ["192.0.2.7:7381", "0.0.0.0:0"] {
            assert_eq!(of(listen, "192.0.2.1:7380"), Ok(()));
        }
        assert_eq!(of("127.0.0.1:0", "127.0.0.2:7380"), Ok(()), "all on one host");
    }
}

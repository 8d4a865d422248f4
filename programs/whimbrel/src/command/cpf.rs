//! `whimbrel cpf`: a CPF for the CTA of a cluster.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use tracing::info;
use whimbrel_api::HandlerContext;
use whimbrel_cli::Done;
use whimbrel_etcd::EtcdAccess;
use whimbrel_ids::SNssai;
use whimbrel_node::clock;
use whimbrel_node::cluster::{AtEtcd, CpfProcess, CpfSettings};
use whimbrel_node::config::{Log, LogFormat, LogLevel, MemoryOptions};
use whimbrel_node::function::{self, FunctionOptions, descriptors};
use whimbrel_node::logging;
use whimbrel_node::observation::Console;
use whimbrel_node::signals;
use whimbrel_resilience::region::Region;

/// Port of a CTA on the same host, by default.
const CTA_PORT: u16 = 7380;

#[derive(Args)]
pub(crate) struct Options {
    /// Address of the CTA (its `cluster.listen`); repeat it for both of a pair. Default without --etcd: 127.0.0.1:7380.
    #[arg(long, value_name = "ADDRESS")]
    cta: Vec<SocketAddr>,
    /// Find the CTAs in etcd, such as https://192.0.2.9:2379, and list this CPF there.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    etcd: Vec<String>,
    /// CA certificates that etcd's certificate is verified with, as PEM; needed for https://.
    #[arg(long, value_name = "FILE", requires = "etcd")]
    etcd_ca_file: Option<PathBuf>,
    /// Client certificate of this CPF, as PEM, if etcd requires one.
    #[arg(long, value_name = "FILE", requires = "etcd_certificate_key_file")]
    etcd_certificate_file: Option<PathBuf>,
    /// Private key of the client certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "etcd_certificate_file")]
    etcd_certificate_key_file: Option<PathBuf>,
    /// User name at etcd, if it has users.
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    etcd_user: Option<String>,
    /// File with that user's password.
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
    /// Name of the cluster at etcd (`cluster.name` of the CTAs).
    #[arg(long, value_name = "NAME", default_value = "whimbrel", requires = "etcd")]
    name: String,
    /// Which pair of CTAs to serve (their `cluster.home`).
    #[arg(long, value_name = "N", default_value_t = 1, requires = "etcd")]
    home: u16,
    /// Address that other CPFs connect to; port 0 takes any free port.
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))]
    listen: SocketAddr,
    /// Region of this CPF: a geohash of the digits 0 to 3, or LARGER/OWN.
    #[arg(long, default_value = "home/site")]
    region: Region,
    /// Serve UEs of this slice only, such as 1-00000a (`cluster.slices` of the CTA); other CPFs then serve none of them.
    #[arg(long, value_name = "S-NSSAI")]
    slice: Option<SNssai>,
    /// File with the cluster's key (`cluster.key_file` of the CTA). Without it, only processes of this host can connect.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Serve /metrics and /api/v1/status of this CPF over HTTP at this address.
    #[arg(long, value_name = "ADDRESS")]
    api: Option<SocketAddr>,
    #[command(flatten)]
    memory: MemoryOptions,
    #[command(flatten)]
    function: FunctionOptions,
}

/// Serves until SIGINT or SIGTERM. The rest of its configuration comes from its CTA.
pub(crate) fn run(options: Options) -> Done {
    let stop = signals::stop_flag()?;
    let log = Log { level: LogLevel::Info, format: LogFormat::Text, supi: false };
    let own = options.function.unit_function()?;
    let name = own.as_ref().map(|own| own.function.to_string());
    let _logging = logging::start_as(log, name.as_deref())?;
    let Options { cta: mut ctas, name, home, listen, region, slice, mut key_file, api, memory, .. } = options;
    let memory = memory.memory();
    let etcd = EtcdAccess {
        endpoints: options.etcd,
        ca_file: options.etcd_ca_file,
        certificate: options.etcd_certificate_file.zip(options.etcd_certificate_key_file),
        user: options.etcd_user.zip(options.etcd_password_file),
        local: None,
    };
    let mut at_etcd = (!etcd.endpoints.is_empty()).then_some(AtEtcd { etcd, name, home });
    if let Some(own) = &own {
        descriptors::join(own)?;
        at_etcd = Some(AtEtcd { etcd: own.access(), name: function::CLUSTER.into(), home: function::HOME });
        key_file = Some(own.directory.key_file());
    }
    whimbrel_node::memory_access::close();
    if ctas.is_empty() && at_etcd.is_none() {
        ctas.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), CTA_PORT));
    }
    check_reachable(listen, &ctas)?;
    let console = Console::new(clock::now()).map_err(|e| format!("the system gives no eventfd: {e}"))?;
    let api =
        api.map(|at| whimbrel_api::start(at, HandlerContext::of_cpf(console.clone(), at))).transpose()?;
    let console = api.is_some().then_some(console);
    let settings = CpfSettings { ctas, at_etcd, listen, region, slice, key_file, memory, console };
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

/// A loopback address is reached from its own host only. Errors: one sentence.
fn check_reachable(listen: SocketAddr, ctas: &[SocketAddr]) -> Done {
    match ctas.iter().find(|at| listen.ip().is_loopback() && !at.ip().is_loopback()) {
        Some(far) => Err(format!(
            "--listen: the CTA {far} and other CPFs cannot reach {listen}: write an address of \
             this host, such as 192.0.2.7:7381 (port 0 takes any free port)"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpf_for_a_cta_on_another_host_must_not_listen_on_loopback() {
        let of = |listen: &str, cta: &str| {
            check_reachable(
                listen.parse().unwrap(),
                &["127.0.0.1:7380".parse().unwrap(), cta.parse().unwrap()],
            )
        };
        assert!(of("127.0.0.1:0", "192.0.2.1:7380").unwrap_err().contains("192.0.2.1:7380"));
        assert!(of("[::1]:0", "[2001:db8::1]:7380").is_err());
        for listen in ["192.0.2.7:7381", "0.0.0.0:0"] {
            assert_eq!(of(listen, "192.0.2.1:7380"), Ok(()));
        }
        assert_eq!(of("127.0.0.1:0", "127.0.0.2:7380"), Ok(()), "all on one host");
    }
}

//! `whimbrel-broker relay`: the two relays between operators and the broker of veiled UEs (docs/veil.md). Two parties run them that do not
//! collude: the first sees the sender, the second the question.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use tracing::info;
use whimbrel_broker_client::veil::TlsEndpoint;
use whimbrel_broker_client::veil::record::Recorder;
use whimbrel_broker_client::{files, hex, tls};
use whimbrel_broker_server::veil::relay::{self, RelayRole};
use whimbrel_cli::{Done, print};
use whimbrel_node::logging;
use whimbrel_node::signals::{termination_signals, wait};
use whimbrel_open::crypto::PrivateKey;
use whimbrel_open::id::Domain;

#[derive(Subcommand)]
pub(crate) enum RelayCommand {
    /// Make the gateway's key in a new file, and print its public half for operators (`veil.relay.gateway_key`).
    Key {
        /// File that the key is written to.
        file: PathBuf,
    },
    /// The first relay: passes sealed requests of operators on to the gateway.
    Pass {
        /// Domain of the gateway.
        #[arg(long, value_name = "DOMAIN")]
        gateway: Domain,
        /// Address and TCP port of the gateway.
        #[arg(long, value_name = "ADDRESS")]
        gateway_address: SocketAddr,
        #[command(flatten)]
        listener: Listener,
    },
    /// The second relay: opens requests and asks the broker.
    Gateway {
        /// File with its key.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// Identifier of the key.
        #[arg(long, value_name = "N", default_value_t = 1)]
        key_id: u8,
        /// Domain of the broker.
        #[arg(long, value_name = "DOMAIN")]
        broker: Domain,
        /// Address and TCP port of the broker.
        #[arg(long, value_name = "ADDRESS")]
        broker_address: SocketAddr,
        #[command(flatten)]
        listener: Listener,
    },
}

/// Where a relay listens, and what it trusts.
#[derive(Args)]
pub(crate) struct Listener {
    /// Address and TCP port: HTTP/2 over TLS 1.3.
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Its TLS certificate, PEM.
    #[arg(long, value_name = "FILE")]
    tls_certificate: PathBuf,
    /// The key of that certificate, PEM.
    #[arg(long, value_name = "FILE")]
    tls_key: PathBuf,
    /// Requests a second from one IPv4 address or IPv6 /64; five times as many at once. Default: 200, and 2000 at the gateway, whose senders
    /// are relays.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: Option<u64>,
    /// Whose TLS certificates of the next hop are trusted, PEM.
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/certs/ca-certificates.crt")]
    tls_roots: PathBuf,
    /// Append all that passes to this file, to see what this relay learns. Not in service.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

pub(crate) fn run(command: RelayCommand) -> Done {
    match command {
        RelayCommand::Key { file } => {
            files::make_key(&file)?;
            let key = PrivateKey::new(*files::read_secret(&file)?);
            print(&format!("{}\n", hex(&key.share().0)))
        }
        RelayCommand::Pass { gateway, gateway_address, listener } => {
            let gateway = TlsEndpoint { domain: gateway, address: gateway_address };
            serve(&listener, RelayRole::Relay { gateway })
        }
        RelayCommand::Gateway { key, key_id, broker, broker_address, listener } => {
            let key = (key_id, PrivateKey::new(*files::read_secret(&key)?));
            let broker = TlsEndpoint { domain: broker, address: broker_address };
            serve(&listener, RelayRole::Gateway { key, broker })
        }
    }
}

fn serve(listener: &Listener, role: RelayRole) -> Done {
    let mut signals = termination_signals()?;
    let _logging = logging::start(whimbrel_node::config::default().log)?;
    let own = tls::server(&listener.tls_certificate, &listener.tls_key)?;
    let roots = tls::client(&listener.tls_roots)?;
    let recorder = listener.record.as_deref().map(Recorder::open).transpose()?.unwrap_or_default();
    let rate = listener.rate.unwrap_or(match role {
        RelayRole::Relay { .. } => relay::PASS_PER_SECOND,
        RelayRole::Gateway { .. } => relay::GATEWAY_PER_SECOND,
    });
    let server = relay::start(listener.listen, own, role, roots, rate, recorder)?;
    info!(address = %server.address, "the relay listens");
    wait(&mut signals, || true);
    info!("the relay stops");
    Ok(())
}

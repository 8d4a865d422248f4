//! `whimbrel reflect`: answers S-BFD probes to this host.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use tracing::info;
use whimbrel_cli::Done;
use whimbrel_node::clock;
use whimbrel_node::config::ReflectorConfig;
use whimbrel_node::config::{Log, LogFormat, LogLevel};
use whimbrel_node::logging;
use whimbrel_node::sbfd::ReflectorThread;
use whimbrel_node::signals;
use whimbrel_resilience::sbfd::SbfdDiscriminator;

/// How often a signal to stop, and drops, are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Args)]
pub(crate) struct Options {
    /// Address and UDP port at which probes are answered; RFC 7881 has port 7784.
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Discriminator of this host, unique in the network; default: its IPv4 address as a number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    discriminator: Option<u32>,
    /// Answer probes that came through routers too (`sbfd.one_link: false` at the initiator).
    #[arg(long)]
    routed: bool,
    /// Answer on an ordinary thread, not under SCHED_FIFO.
    #[arg(long)]
    ordinary: bool,
}

/// Answers until SIGINT or SIGTERM.
pub(crate) fn run(options: &Options) -> Done {
    let stop = signals::stop_flag()?;
    let _logging =
        logging::start_as(Log { level: LogLevel::Info, format: LogFormat::Text, supi: false }, None)?;
    let listen = options.listen;
    let of_address = match listen.ip().to_canonical() {
        IpAddr::V4(address) => Some(u32::from(address)),
        IpAddr::V6(_) => None,
    };
    let discriminator = options.discriminator.or(of_address).and_then(SbfdDiscriminator::new);
    let discriminator = discriminator
        .ok_or("--discriminator: an address that is not IPv4 is no number of 32 bits; write one")?;
    let reflecting =
        ReflectorConfig { listen, discriminator, one_link: !options.routed, real_time: !options.ordinary };
    let mut reflector = ReflectorThread::start(reflecting)?;
    info!(at = %reflector.at(), %discriminator, "ready");
    while !stop.load(Ordering::Acquire) {
        std::thread::sleep(LOOK_EVERY);
        reflector.log_drops(clock::now());
    }
    let figures = reflector.figures().reflecting;
    info!(answered = figures.sent, "the reflector stops");
    Ok(())
}

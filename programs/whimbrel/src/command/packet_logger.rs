//! `whimbrel packet-logger`: in front of two UPFs on two hosts.

use std::sync::atomic::Ordering;

use clap::Args;
use tracing::info;

use crate::cli::ConfigFile;
use whimbrel_api::HandlerContext;
use whimbrel_cli::Done;
use whimbrel_node::clock;
use whimbrel_node::config;
use whimbrel_node::logging;
use whimbrel_node::observation::Console;
use whimbrel_node::packet_logger::PacketLogger;
use whimbrel_node::signals;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    config: ConfigFile,
}

/// Serves until SIGINT or SIGTERM.
pub(crate) fn run(options: &Options) -> Done {
    let (config, _) = config::load(options.config.config_file.as_deref()).map_err(|e| e.to_string())?;
    let stop = signals::stop_flag()?;
    let _logging = logging::start_as(config.log, None)?;
    let console = Console::new(clock::now()).map_err(|e| format!("the system gives no eventfd: {e}"))?;
    let api =
        whimbrel_api::start(config.api.address, HandlerContext::of_cpf(console.clone(), config.api.address))?;
    info!(address = %api.address, "the API listens");
    let mut logger = PacketLogger::open(&config, console)?;
    info!("ready");
    while !stop.load(Ordering::Acquire) {
        logger.turn(clock::now());
    }
    info!("the packet logger stops");
    Ok(())
}

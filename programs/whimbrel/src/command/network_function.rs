//! `whimbrel network-function`: a UDM, PCF or CHF of a unit, which the unit's manager starts.

use clap::Args;
use tracing::info;
use whimbrel_cli::Done;
use whimbrel_ids::SNssai;
use whimbrel_node::config;
use whimbrel_node::function::{FunctionOptions, descriptors};
use whimbrel_node::logging;
use whimbrel_node::network_function::NetworkFunctionProcess;
use whimbrel_node::signals;

use crate::cli::ConfigFile;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    config: ConfigFile,
    /// Serve sessions of this slice only.
    #[arg(long, value_name = "S-NSSAI")]
    slice: Option<SNssai>,
    #[command(flatten)]
    function: FunctionOptions,
}

/// Serves until SIGINT or SIGTERM.
pub(crate) fn run(options: Options) -> Done {
    let stop = signals::stop_flag()?;
    let own = options.function.unit_function()?;
    let own =
        own.ok_or("the manager of a unit starts this command itself: list the function in `unit.functions`")?;
    let (config, _) = config::load(options.config.config_file.as_deref()).map_err(|e| e.to_string())?;
    let _logging = logging::start_as(config.log, Some(&own.function.to_string()))?;
    descriptors::join(&own)?;
    // It has the keys of subscribers.
    whimbrel_node::memory_access::close();
    let mut process = NetworkFunctionProcess::open(&config, &own, options.slice)?;
    info!(version = env!("CARGO_PKG_VERSION"), function = %own.function, "the network function starts");
    process.run(&stop);
    info!("the network function stops");
    Ok(())
}

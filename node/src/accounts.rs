//! The accounts of this core's charging function, as the core, the API and the commands open them.

use whimbrel_charging::ChargingFunction;

use crate::config::Config;

/// Opens the file that the configuration names, or makes it. Errors: one sentence.
pub fn open(config: &Config) -> Result<ChargingFunction, String> {
    ChargingFunction::open(&config.charging_file(), config.chf.policy.clone()).map_err(|e| e.to_string())
}

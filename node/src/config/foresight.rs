//! Prediction of handovers (Synergy §III-C): whether, by which predictor, and its exclusions.

use std::path::PathBuf;

use whimbrel_ids::Supi;
use whimbrel_prediction::TrainedNetwork;

use super::Config;
use super::open::PublicKey;
use super::section::{Pass, Section};
use super::value::{Value, plain_values};

plain_values! {
    Supi: "a SUPI, such as imsi-999700000000001";
}

/// Octets of a predictor's file: one for ten thousand cells has a tenth.
pub const MODEL_OCTETS_MAX: u64 = 256 << 20;

/// The section `foresight` of the configuration.
#[derive(Clone, Debug)]
pub struct Foresight {
    pub enabled: bool,
    pub model: Option<PathBuf>,
    pub keys: Vec<PublicKey>,
    pub early_containers: bool,
    pub excluded: Vec<Supi>,
}

impl Foresight {
    /// The trained predictor, if one is configured. Errors: one sentence.
    pub fn network(&self) -> Result<Option<TrainedNetwork>, String> {
        let Some(path) = &self.model else { return Ok(None) };
        let file = whimbrel_files::read(path, MODEL_OCTETS_MAX)
            .map_err(|e| format!("`foresight.model` {} cannot be read: {e}", path.display()))?;
        let keys: Vec<[u8; 32]> = self.keys.iter().map(|key| key.0.octets()).collect();
        let network = TrainedNetwork::from_file(&file, &keys);
        network.map(Some).map_err(|e| format!("`foresight.model` {}: {e}", path.display()))
    }
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Foresight {
    let doc = "Prediction of handovers: the core learns where UEs go, and prepares a handover that is about to come (docs/foresight.md).";
    root.section("foresight", doc, |s| Foresight {
        enabled: s.value("enabled", false, "Predict handovers."),
        model: s.optional(
            "model",
            "/etc/whimbrel/foresight.model",
            "A trained predictor, as `whimbrel foresight train` writes it. Without it the core learns the usual ways itself.",
        ),
        keys: s.list(
            "keys",
            vec![],
            "Public keys whose signatures on predictors are trusted, each of 64 hexadecimal digits, quoted.",
        ),
        early_containers: s.value(
            "early_containers",
            false,
            "Ask gNBs for their container of a predicted handover, so that the target gNB is prepared too. gNBs need an extension for that; \
             others drop the question.",
        ),
        excluded: s.list("excluded", vec![], "Subscribers whose handovers are not predicted, by SUPI."),
    })
}

/// Reports contradictions with other keys.
pub(super) fn check(config: &Config, pass: &mut Pass) {
    let foresight = &config.foresight;
    if foresight.model.is_some() && foresight.keys.is_empty() {
        let what = "no key is trusted that could have signed the predictor";
        pass.refuse("foresight.keys", what, "list the public key that `whimbrel foresight train` printed");
    }
}

//! Files of the NRF, beside the store: the key that signs access tokens, its public key, and the state for the next start.

use std::io::ErrorKind;
use std::path::PathBuf;

use whimbrel_files::PEM_OCTETS_MAX;
use whimbrel_nrf::registry::{SUBSCRIPTIONS_MAX, TOTAL_OCTETS_MAX};
use whimbrel_sbi::token::TokenSigner;
use zeroize::Zeroizing;

use crate::config::Config;
use crate::function::directory::replace;

/// Octets of the state: all profiles, and subscriptions of two kilooctets.
const STATE_OCTETS_MAX: u64 = (TOTAL_OCTETS_MAX + SUBSCRIPTIONS_MAX * 2048) as u64;

/// Paths of the NRF's files.
#[derive(Clone)]
pub(super) struct NrfFiles {
    token_key: PathBuf,
    pub(super) public_key: PathBuf,
    state: PathBuf,
}

impl NrfFiles {
    pub(super) fn new(config: &Config) -> Self {
        let (token_key, public_key) = (config.nrf_token_key(), config.nrf_public_key());
        Self { token_key, public_key, state: config.nrf_state() }
    }

    /// The key that signs tokens, which is made if there is none; its public key is written beside it. Errors: one sentence.
    pub(super) fn signer(&self) -> Result<TokenSigner, String> {
        let path = &self.token_key;
        let failed = |what: &str, e: &dyn std::fmt::Display| {
            format!("the key of the NRF's access tokens, {}, cannot be {what}: {e}", path.display())
        };
        let pem = match whimbrel_files::read(path, PEM_OCTETS_MAX).map(Zeroizing::new) {
            Ok(pem) => pem,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let pem =
                    Zeroizing::new(TokenSigner::new_key().map_err(|e| failed("made", &e))?.into_bytes());
                replace(path, &pem).map_err(|e| failed("written", &e))?;
                pem
            }
            Err(e) => return Err(failed("read", &e)),
        };
        let signer = TokenSigner::new(&pem).map_err(|e| failed("read", &e))?;
        replace(&self.public_key, signer.public_key().as_bytes()).map_err(|e| failed("published", &e))?;
        Ok(signer)
    }

    /// The state of the last run; `None` if there is none. Errors: one sentence.
    pub(super) fn read_state(&self) -> Result<Option<String>, String> {
        match whimbrel_files::read_text(&self.state, STATE_OCTETS_MAX) {
            Ok(state) => Ok(Some(state)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(format!("{} cannot be read: {e}", self.state.display())),
        }
    }

    /// Writes the state for the next start. Errors: one sentence.
    pub(super) fn write_state(&self, state: &str) -> Result<(), String> {
        replace(&self.state, state.as_bytes())
            .map_err(|e| format!("{} cannot be written: {e}", self.state.display()))
    }
}

//! Access tokens of the NRF, kept until they expire: TS 29.510 §5.4.2.2, TS 33.501 §13.4.1.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::Method;
use whimbrel_sbi_types::nnrf::{AccessToken, AccessTokenReq, AccessTokenRsp, GrantType, NfType, Scope};

use super::{NrfError, NrfShared};
use crate::message::FORM;

/// Tokens that are kept: one for each service of each type of producer.
const TOKENS_MAX: usize = 128;
/// Life of a token that names none.
const LIFE_DEFAULT: Duration = Duration::from_secs(60);
/// A token is replaced when less than this is left of it, or a tenth of a short life: a request with it has to arrive.
const RENEWED_BEFORE: Duration = Duration::from_secs(30);

struct CachedToken {
    token: AccessToken,
    renew_at: Instant,
    expires_at: Instant,
}

#[derive(Default)]
pub(super) struct TokenCache {
    tokens: Mutex<BTreeMap<(NfType, String), CachedToken>>,
    /// Held while a token is asked for, so that a burst asks once.
    asking: tokio::sync::Mutex<()>,
}

impl TokenCache {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(NfType, String), CachedToken>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all tokens: one was refused.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn get(&self, key: &(NfType, String), until: impl Fn(&CachedToken) -> Instant) -> Option<AccessToken> {
        let tokens = self.lock();
        tokens.get(key).filter(|token| Instant::now() < until(token)).map(|token| token.token.clone())
    }

    fn put(&self, key: (NfType, String), response: AccessTokenRsp) -> AccessToken {
        let life = response.expires_in.map_or(LIFE_DEFAULT, |seconds| Duration::from_secs(seconds.into()));
        let now = Instant::now();
        let mut tokens = self.lock();
        if tokens.len() >= TOKENS_MAX
            && !tokens.contains_key(&key)
            && let Some(first) =
                tokens.iter().min_by_key(|(_, token)| token.expires_at).map(|(key, _)| key.clone())
        {
            tokens.remove(&first);
        }
        let token = response.access_token;
        let renew_at = now + life.saturating_sub(RENEWED_BEFORE.min(life / 10));
        tokens.insert(key, CachedToken { token: token.clone(), renew_at, expires_at: now + life });
        token
    }
}

impl NrfShared {
    /// A token from the cache, or a new one. An NRF that does not answer costs a token only when it has expired.
    pub(super) async fn token(&self, producers: &NfType, scope: &str) -> Result<AccessToken, NrfError> {
        let key = (producers.clone(), scope.to_owned());
        if let Some(token) = self.tokens.get(&key, |token| token.renew_at) {
            return Ok(token);
        }
        let _asking = self.tokens.asking.lock().await;
        if let Some(token) = self.tokens.get(&key, |token| token.renew_at) {
            return Ok(token);
        }
        match self.request_token(producers, scope).await {
            Ok(response) => Ok(self.tokens.put(key, response)),
            Err(e @ NrfError::Refused(_)) => Err(e),
            Err(e) => self.tokens.get(&key, |token| token.expires_at).ok_or(e),
        }
    }

    async fn request_token(&self, producers: &NfType, scope: &str) -> Result<AccessTokenRsp, NrfError> {
        let request = AccessTokenReq {
            grant_type: GrantType::ClientCredentials,
            nf_instance_id: self.nf_instance_id.clone(),
            nf_type: Some(self.nf_type.clone()),
            target_nf_type: Some(producers.clone()),
            scope: Scope::new(scope).map_err(|_| NrfError::Unwritable)?,
            target_nf_instance_id: None,
            requester_plmn: None,
            target_plmn: None,
        };
        let request = self.request(Method::POST).body(FORM, request.to_form().into());
        let response = self.send(request, "/oauth2/token", None).await?;
        Ok(response.read()?)
    }
}

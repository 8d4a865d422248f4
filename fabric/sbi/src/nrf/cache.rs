//! Answers of discoveries, kept while they are valid and longer while the NRF is down.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use whimbrel_sbi_types::common::NfInstanceId;
use whimbrel_sbi_types::nnrf::{NfProfile, SearchResult};

use super::NrfError;

/// Queries whose answers are kept: types of producer, slices, data networks and routing indicators of an operator; past them, those of
/// subscribers, of which the one that was used least recently is dropped.
const QUERIES_MAX: usize = 1024;
/// Validity of an answer that names none.
const VALIDITY_DEFAULT: Duration = Duration::from_secs(60);
/// Longest validity: an NRF must not be without influence for days.
const VALIDITY_MAX: Duration = Duration::from_secs(86_400);
/// Validity of an answer without an instance: the next one to start is to be found soon.
const VALIDITY_OF_NONE: Duration = Duration::from_secs(2);
/// Wait after the NRF did not answer, in which what is known is used without asking: a request of each UE would wait for its own timeout.
const DOWN_FOR: Duration = Duration::from_secs(2);

/// Instances of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// Profiles of the instances.
    pub instances: Arc<[NfProfile]>,
    /// The validity is over, and the NRF does not answer.
    pub is_stale: bool,
}

#[derive(Clone)]
struct CachedAnswer {
    instances: Arc<[NfProfile]>,
    fresh_until: Instant,
}

#[derive(Default)]
struct CachedQuery {
    used: u64,
    answer: Option<CachedAnswer>,
    /// The NRF did not answer: it is asked again from then on.
    ask_from: Option<Instant>,
    /// Held while the NRF is asked, so that a burst asks once.
    asking: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct CachedQueries {
    uses: u64,
    queries: BTreeMap<String, CachedQuery>,
}

#[derive(Default)]
pub(super) struct DiscoveryCache(Mutex<CachedQueries>);

impl DiscoveryCache {
    fn lock(&self) -> MutexGuard<'_, CachedQueries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer from the cache, or that of `fetch`.
    pub(super) async fn get(
        &self,
        query: &str,
        fetch: impl Future<Output = Result<SearchResult, NrfError>>,
    ) -> Result<Discovered, NrfError> {
        let asking = match self.known(query) {
            Ok(known) => return Ok(known),
            Err(asking) => asking,
        };
        let _asking = asking.lock().await;
        // Another request may have been answered while this one waited.
        if let Ok(known) = self.known(query) {
            return Ok(known);
        }
        let fetched = fetch.await;
        let mut all = self.lock();
        let entry = all.queries.entry(query.to_owned()).or_default();
        let now = Instant::now();
        match fetched {
            Ok(result) => {
                let validity = match result.validity_period {
                    _ if result.nf_instances.is_empty() => VALIDITY_OF_NONE,
                    None => VALIDITY_DEFAULT,
                    Some(seconds) => Duration::from_secs(seconds.into()).min(VALIDITY_MAX),
                };
                let instances: Arc<[NfProfile]> = result.nf_instances.into_vec().into();
                entry.answer =
                    Some(CachedAnswer { instances: instances.clone(), fresh_until: now + validity });
                entry.ask_from = None;
                Ok(Discovered { instances, is_stale: false })
            }
            // The NRF knows better than the cache.
            Err(e @ NrfError::Refused(_)) => Err(e),
            Err(e) => match &entry.answer {
                Some(answer) => {
                    entry.ask_from = Some(now + DOWN_FOR);
                    Ok(Discovered { instances: answer.instances.clone(), is_stale: true })
                }
                None => Err(e),
            },
        }
    }

    /// The answer that may be used now; the error is the lock under which the NRF is asked.
    fn known(&self, query: &str) -> Result<Discovered, Arc<tokio::sync::Mutex<()>>> {
        let mut all = self.lock();
        let CachedQueries { uses, queries } = &mut *all;
        *uses += 1;
        if queries.len() >= QUERIES_MAX
            && !queries.contains_key(query)
            && let Some(oldest) =
                queries.iter().min_by_key(|(_, entry)| entry.used).map(|(query, _)| query.clone())
        {
            queries.remove(&oldest);
        }
        let entry = queries.entry(query.to_owned()).or_default();
        entry.used = *uses;
        let now = Instant::now();
        match &entry.answer {
            Some(answer) if now < answer.fresh_until => {
                Ok(Discovered { instances: answer.instances.clone(), is_stale: false })
            }
            Some(answer) if entry.ask_from.is_some_and(|from| now < from) => {
                Ok(Discovered { instances: answer.instances.clone(), is_stale: true })
            }
            _ => Err(entry.asking.clone()),
        }
    }

    fn change(&self, mut change: impl FnMut(&[NfProfile]) -> Option<Vec<NfProfile>>) {
        let mut all = self.lock();
        for answer in all.queries.values_mut().filter_map(|entry| entry.answer.as_mut()) {
            if let Some(instances) = change(&answer.instances) {
                answer.instances = instances.into();
            }
        }
    }

    /// An instance is gone.
    pub(super) fn remove(&self, id: &NfInstanceId) {
        self.change(|instances| {
            let is_there = instances.iter().any(|profile| profile.nf_instance_id == *id);
            is_there.then(|| instances.iter().filter(|p| p.nf_instance_id != *id).cloned().collect())
        });
    }

    /// An instance has changed. One that is new may fit any query: answers without it are asked for again.
    pub(super) fn replace(&self, profile: &NfProfile) {
        let mut is_known = false;
        self.change(|instances| {
            let is_there = instances.iter().any(|p| p.nf_instance_id == profile.nf_instance_id);
            is_known |= is_there;
            let changed = |p: &NfProfile| {
                if p.nf_instance_id == profile.nf_instance_id { profile.clone() } else { p.clone() }
            };
            is_there.then(|| instances.iter().map(changed).collect())
        });
        if !is_known {
            self.expire();
        }
    }

    /// The NRF is asked again; where it does not answer, what is known goes on.
    pub(super) fn expire(&self) {
        let now = Instant::now();
        for answer in self.lock().queries.values_mut().filter_map(|entry| entry.answer.as_mut()) {
            answer.fresh_until = now;
        }
    }
}

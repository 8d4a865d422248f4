//! Sessions of users, and one-time links that begin one. In memory: a restart of the core ends all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whimbrel_ids::Instant;

use super::{Digest, UserRole};

/// However much it is used, a session ends after this time.
pub(super) const AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Sessions at once; the one unused for the longest time ends first.
const SESSIONS_MAX: usize = 256;
/// How long a one-time link may wait.
pub(super) const LINK_AGE_MAX: Duration = Duration::from_secs(600);
const LINKS_MAX: usize = 16;

/// A session of a logged-in user.
#[derive(Clone, Debug)]
pub(super) struct ConsoleSession {
    pub(super) user: String,
    /// The role of a session that a one-time link began; a user's is looked up at each request.
    pub(super) role: Option<UserRole>,
    pub(super) csrf: String,
    begun: Instant,
    used: Instant,
}

impl ConsoleSession {
    pub(super) fn new(user: &str, role: Option<UserRole>, csrf: String, now: Instant) -> Self {
        Self { user: user.into(), role, csrf, begun: now, used: now }
    }

    fn is_alive(&self, now: Instant, idle: Duration) -> bool {
        now.since(self.used) < idle && now.since(self.begun) < AGE_MAX
    }
}

/// All sessions, by the digest of their cookie.
pub(super) struct UserSessions {
    all: BTreeMap<Digest, ConsoleSession>,
    /// Without a request for this long, a session ends.
    idle: Duration,
}

impl UserSessions {
    pub(super) fn new(idle: Duration) -> Self {
        Self { all: BTreeMap::new(), idle }
    }

    pub(super) fn begin(&mut self, now: Instant, id: Digest, session: ConsoleSession) {
        self.all.retain(|_, s| s.is_alive(now, self.idle));
        if self.all.len() >= SESSIONS_MAX
            && let Some(idlest) = self.all.iter().min_by_key(|(_, s)| s.used).map(|(id, _)| *id)
        {
            self.all.remove(&idlest);
        }
        self.all.insert(id, session);
    }

    /// A session that is alive; this counts as a use of it.
    pub(super) fn find(&mut self, now: Instant, id: &Digest) -> Option<&ConsoleSession> {
        let session = self.all.get_mut(id).filter(|s| s.is_alive(now, self.idle))?;
        session.used = now;
        Some(session)
    }

    pub(super) fn is_alive(&self, now: Instant, id: &Digest) -> bool {
        self.all.get(id).is_some_and(|s| s.is_alive(now, self.idle))
    }

    pub(super) fn end(&mut self, id: &Digest) {
        self.all.remove(id);
    }

    /// Ends the sessions of a user, but not those that are named.
    pub(super) fn end_all_of(&mut self, user: &str, but: &BTreeSet<Digest>) {
        self.all.retain(|id, s| s.user != user || but.contains(id));
    }
}

/// One-time links by the digest of their secret, with the time of their end.
#[derive(Default)]
pub(super) struct OneTimeLinks(BTreeMap<Digest, Instant>);

impl OneTimeLinks {
    pub(super) fn add(&mut self, now: Instant, link: Digest) {
        self.0.retain(|_, until| *until > now);
        if self.0.len() >= LINKS_MAX
            && let Some(oldest) = self.0.iter().min_by_key(|(_, until)| **until).map(|(link, _)| *link)
        {
            self.0.remove(&oldest);
        }
        self.0.insert(link, now + LINK_AGE_MAX);
    }

    /// Whether there is such a link; there is none afterwards.
    pub(super) fn take(&mut self, now: Instant, link: &Digest) -> bool {
        self.0.remove(link).is_some_and(|until| until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: u64) -> Instant {
        Instant(hours * 3_600_000_000)
    }

    #[test]
    fn a_session_ends_when_it_is_idle_or_old() {
        let mut sessions = UserSessions::new(Duration::from_secs(12 * 3600));
        let new = |hours| ConsoleSession::new("anna", None, String::new(), at(hours));
        sessions.begin(at(0), [1; 32], new(0));
        assert!(sessions.find(at(11), &[1; 32]).is_some() && sessions.find(at(22), &[1; 32]).is_some());
        assert!(sessions.find(at(34), &[1; 32]).is_none());
        sessions.begin(at(40), [2; 32], new(40));
        for hour in 40..40 + 7 * 24 {
            assert!(sessions.find(at(hour), &[2; 32]).is_some(), "{hour}");
        }
        assert!(sessions.find(at(40 + 7 * 24), &[2; 32]).is_none());
    }

    #[test]
    fn sessions_are_bounded_and_end_with_their_user() {
        let mut sessions = UserSessions::new(Duration::from_secs(12 * 3600));
        for i in 0..=SESSIONS_MAX as u64 {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&i.to_be_bytes());
            sessions.begin(
                Instant(i),
                id,
                ConsoleSession::new("anna", Some(UserRole::Viewer), String::new(), Instant(i)),
            );
        }
        assert_eq!(sessions.all.len(), SESSIONS_MAX);
        assert!(!sessions.is_alive(Instant(999), &[0; 32]), "the one unused for the longest time ended");
        let kept = *sessions.all.keys().next().unwrap();
        sessions.end_all_of("anna", &BTreeSet::from([kept]));
        assert_eq!(sessions.all.len(), 1);
    }

    #[test]
    fn a_link_works_once_and_for_ten_minutes() {
        let mut links = OneTimeLinks::default();
        links.add(at(0), [1; 32]);
        links.add(at(0), [2; 32]);
        assert!(links.take(at(0), &[1; 32]) && !links.take(at(0), &[1; 32]));
        assert!(!links.take(at(0) + LINK_AGE_MAX, &[2; 32]));
    }
}

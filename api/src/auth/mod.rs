//! Access to the API: users with passwords, API tokens, and the commands of this host.
//!
//! - A **user** logs in with a password (Argon2id) and gets a session: a cookie that scripts of the page cannot read, and a CSRF token that
//!   each change has to repeat in a header.
//! - An **API token** is for programs; it has scopes and is shown once.
//! - **Commands of this host**, such as `whimbrel ue list`, come over a Unix socket, where the kernel says which user runs them: root and the
//!   core's own user may do everything and need no set-up.
//! - A **one-time link**, which `whimbrel console` prints, begins a session without a password. It makes the first user.
//!
//! Of passwords and tokens only digests are kept, as sealed documents of the store.

mod accounts;
pub(super) mod handlers;
mod password;
mod rate;
mod sessions;
mod throttle;
mod totp;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::header::{AUTHORIZATION, COOKIE};
use hyper::{HeaderMap, Method};
use ring::digest::{SHA256, digest};
use rustix::rand::{GetRandomFlags, getrandom};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::warn;
use whimbrel_ids::Instant;
use whimbrel_node::clock;
use whimbrel_node::config::{Api, SecondFactor, StoreConfig};
use whimbrel_node::local_socket::Uid;

use self::accounts::{Accounts, AccountsWriter, AllAccounts, ConsoleUser};
use self::rate::Rates;
use self::sessions::{OneTimeLinks, UserSessions};
use self::throttle::Throttle;
pub(super) use self::throttle::source_of;
use self::totp::Totp;
use super::problem::ProblemDetails;

/// The session's cookie in clear, on a loopback address.
const COOKIE_NAME: &str = "whimbrel_session";
/// The session's cookie over TLS: browsers take a cookie of this prefix only from this host itself, over TLS and for all its paths
/// (RFC 6265bis §4.1.3.2), so that no neighbour of its domain can set another one in its place.
const TLS_COOKIE_NAME: &str = "__Host-whimbrel_session";
/// The header in which a change that a page makes repeats its session's CSRF token.
const CSRF_HEADER: &str = "x-csrf-token";

/// Tests send this over the network and are taken for commands of this host.
#[cfg(test)]
pub(super) const TEST_TOKEN: &str = "the token of the tests";

/// The caller that this host's commands are.
const LOCAL: &str = "local";

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scope {
    /// Read the metrics (`/metrics`).
    Metrics,
    /// Read the state of the core: UEs, gNBs, sessions, events, subscribers without their keys.
    Read,
    /// Read deciphered NAS messages.
    Nas,
    /// Give orders to UEs, gNBs and the core.
    Operate,
    /// Add, edit, import and remove subscribers.
    Subscribers,
    /// Manage users and API tokens, and read the audit log.
    Admin,
}

impl Scope {
    pub(super) const ALL: [Self; 6] =
        [Self::Metrics, Self::Read, Self::Nas, Self::Operate, Self::Subscribers, Self::Admin];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Read => "read",
            Self::Nas => "nas",
            Self::Operate => "operate",
            Self::Subscribers => "subscribers",
            Self::Admin => "admin",
        }
    }
}

/// A set of scopes that a user has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UserRole {
    /// Sees everything but deciphered NAS messages and the audit log; changes nothing.
    Viewer,
    /// Gives orders and manages subscribers.
    Operator,
    /// Manages users and API tokens, too.
    Admin,
}

impl UserRole {
    pub(super) fn scopes(self) -> &'static [Scope] {
        match self {
            Self::Viewer => &[Scope::Metrics, Scope::Read],
            Self::Operator => &[Scope::Metrics, Scope::Read, Scope::Nas, Scope::Operate, Scope::Subscribers],
            Self::Admin => &Scope::ALL,
        }
    }
}

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// Name of the user or the API token; `local` for this host's commands.
    pub(super) name: String,
    pub(super) scopes: Vec<Scope>,
    /// The session, where the caller has one.
    session: Option<Digest>,
    /// The token, where it sent one.
    token: Option<Digest>,
}

impl Caller {
    /// A command of this host.
    fn local() -> Self {
        Self { name: LOCAL.into(), scopes: Scope::ALL.to_vec(), session: None, token: None }
    }

    /// Whether it is a command of this host.
    pub(super) fn is_local(&self) -> bool {
        self.session.is_none() && self.name == LOCAL
    }

    pub(super) fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }
}

/// The digest under which a token or a session is kept.
type Digest = [u8; 32];

fn digest_of(text: &str) -> Digest {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    out
}

/// Compares in a time that does not depend on where two digests differ.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// A secret of 256 bits in hexadecimal digits.
fn secret() -> Result<String, ProblemDetails> {
    Ok(hex(&random::<32>()?))
}

fn random<const N: usize>() -> Result<[u8; N], ProblemDetails> {
    let mut out = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut out[filled..], GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => {
                return Err(ProblemDetails::unavailable(format!("the system gives no random octets: {e}")));
            }
        }
    }
    Ok(out)
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|o| format!("{o:02x}")).collect()
}

/// Users, tokens, sessions.
pub(super) struct Auth {
    accounts: Mutex<Accounts>,
    /// One change of users and tokens at a time.
    writer: Arc<Mutex<AccountsWriter>>,
    sessions: Mutex<UserSessions>,
    /// Sessions that a change of their own user leaves alive, while it is made.
    changing: Mutex<BTreeSet<Digest>>,
    links: Mutex<OneTimeLinks>,
    throttle: Mutex<Throttle>,
    rates: Mutex<Rates>,
    /// Second factors that users have begun to set up, with the time of their end.
    pending: Mutex<BTreeMap<String, (Totp, Instant)>>,
    /// One password at a time is hashed: each takes 19 MiB.
    hashing: tokio::sync::Semaphore,
    /// Former passwords that a new one must differ from.
    history: usize,
    /// Value of `api.second_factor`: off, optional or required.
    second_factor: SecondFactor,
    /// The name of the session's cookie.
    cookie_name: &'static str,
}

impl Auth {
    /// With the users and tokens of a store.
    pub(super) fn new(store: &StoreConfig, api: &Api, is_tls: bool) -> Self {
        Self {
            accounts: Mutex::new(Accounts::new(store.clone())),
            writer: Arc::new(Mutex::new(AccountsWriter::new(store.clone()))),
            sessions: Mutex::new(UserSessions::new(api.session_idle)),
            changing: Mutex::default(),
            links: Mutex::default(),
            throttle: Mutex::new(Throttle::new(api.login_failures)),
            rates: Mutex::default(),
            pending: Mutex::default(),
            hashing: tokio::sync::Semaphore::new(1),
            history: api.password_history.into(),
            second_factor: api.second_factor,
            cookie_name: if is_tls { TLS_COOKIE_NAME } else { COOKIE_NAME },
        }
    }

    fn accounts(&self) -> Result<MutexGuard<'_, Accounts>, ProblemDetails> {
        let mut accounts = locked(&self.accounts);
        for changed in accounts.load().map_err(ProblemDetails::unavailable)? {
            // By a request, or at another home.
            locked(&self.sessions).end_all_of(&changed, &locked(&self.changing));
        }
        Ok(accounts)
    }

    /// Changes users and tokens as [`AccountsWriter::change`] does, on a thread of the pool.
    /// The sessions of changed users end, but not that of the caller.
    async fn change<R: Send + 'static>(
        &self,
        caller: &Caller,
        change: impl FnOnce(&mut AllAccounts) -> Result<R, ProblemDetails> + Send + 'static,
    ) -> Result<R, ProblemDetails> {
        let writer = self.writer.clone();
        locked(&self.changing).extend(caller.session);
        let changed = tokio::task::spawn_blocking(move || locked(&writer).change(change)).await;
        // What has changed is in force before the answer is given.
        let read = self.accounts().map(drop);
        if let Some(session) = &caller.session {
            locked(&self.changing).remove(session);
        }
        let done = changed.map_err(|_| ProblemDetails::internal("the change ended early"))??;
        read.map(|()| done)
    }

    /// Moves users and tokens of the file of a former release to the store, if there is one. Until that succeeds they log in all the same.
    pub(super) fn import_former(&self) {
        let mut writer = locked(&self.writer);
        if writer.has_former_file()
            && let Err(e) = writer.change(|_| Ok(()))
        {
            warn!("users of the console that a former release made are not in the store yet: {}", e.detail);
        }
    }

    /// Whether there is no user yet.
    pub(super) fn is_without_users(&self) -> bool {
        self.accounts().is_ok_and(|a| a.users().is_empty())
    }

    /// The user that the body of a login names, if there is one of that name: what else is typed there may be a password.
    pub(super) fn user_in_login(&self, body: &[u8]) -> Option<String> {
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        let Named { name } = serde_json::from_slice(body).ok()?;
        Some(self.accounts().ok()?.user(&name)?.name.clone())
    }

    /// The sender of a request. `None`: it has no login. Errors: what it names is not, or no longer, valid.
    pub(super) fn caller(
        &self,
        peer: RequestPeer,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Option<Caller>, ProblemDetails> {
        let now = clock::now();
        if let Some(authorization) = headers.get(AUTHORIZATION) {
            let token = authorization.to_str().ok().and_then(|v| v.strip_prefix("Bearer "));
            let token =
                token.ok_or_else(|| ProblemDetails::unauthorized("send `Authorization: Bearer TOKEN`"))?;
            return self.of_token(token.trim()).map(Some);
        }
        if let RequestPeer::Local(_) = peer {
            return Ok(Some(Caller::local()));
        }
        let Some(cookie) = cookie(headers, self.cookie_name) else { return Ok(None) };
        let session = digest_of(cookie);
        // A change at another home may have ended the session.
        drop(self.accounts());
        let mut sessions = locked(&self.sessions);
        let Some(found) = sessions.find(now, &session) else {
            return Err(ProblemDetails::unauthorized("the session has ended: log in again"));
        };
        let safe = matches!(*method, Method::GET | Method::HEAD);
        let csrf = headers.get(CSRF_HEADER).map(hyper::header::HeaderValue::as_bytes).unwrap_or_default();
        if !safe && !is_same(csrf, found.csrf.as_bytes()) {
            return Err(ProblemDetails::forbidden(
                "the request does not repeat its session's CSRF token (X-CSRF-Token)",
            ));
        }
        let (name, role) = (found.user.clone(), found.role);
        drop(sessions);
        let scopes = self.scopes_of(&name, role)?;
        Ok(Some(Caller { name, scopes, session: Some(session), token: None }))
    }

    /// Scopes that the user of a session has at this moment: a changed role applies at once.
    fn scopes_of(&self, name: &str, role: Option<UserRole>) -> Result<Vec<Scope>, ProblemDetails> {
        if let Some(role) = role {
            return Ok(role.scopes().to_vec());
        }
        let accounts = self.accounts()?;
        let user =
            accounts.user(name).ok_or_else(|| ProblemDetails::unauthorized("this user was removed"))?;
        Ok(if self.must_enrol(user) { Vec::new() } else { user.role.scopes().to_vec() })
    }

    /// True if the configuration requires a second factor and the user has not set one up.
    fn must_enrol(&self, user: &ConsoleUser) -> bool {
        self.second_factor == SecondFactor::Required && user.totp.is_none()
    }

    fn of_token(&self, token: &str) -> Result<Caller, ProblemDetails> {
        let digest = digest_of(token);
        #[cfg(test)]
        if token == TEST_TOKEN {
            return Ok(Caller::local());
        }
        let accounts = self.accounts()?;
        let found = accounts.tokens().iter().find(|t| is_same(t.digest.as_bytes(), hex(&digest).as_bytes()));
        match found {
            Some(token) => {
                let name = format!("token:{}", token.name);
                Ok(Caller { name, scopes: token.scopes.clone(), session: None, token: Some(digest) })
            }
            None => Err(ProblemDetails::unauthorized("this token is not, or no longer, valid")),
        }
    }

    /// Counts a request of a caller. Commands on this host are not counted: their users may command the core
    /// anyway.
    pub(super) fn count(&self, caller: &Caller) -> Result<(), ProblemDetails> {
        if caller.is_local() {
            return Ok(());
        }
        locked(&self.rates).count(clock::now(), &caller.name).map_err(|wait| {
            ProblemDetails::too_many(format!(
                "{} sends too many requests: the next one is taken in {} ms",
                caller.name,
                wait.as_millis()
            ))
        })
    }

    /// Changes the role of a user, and leaves its sessions.
    #[cfg(test)]
    pub(super) fn change_role(&self, name: &str, role: UserRole) {
        let changed = locked(&self.writer).change(|all| {
            all.users.iter_mut().filter(|u| u.name == name).for_each(|u| u.role = role);
            Ok(())
        });
        changed.unwrap();
    }

    /// Bounds the requests of each caller.
    #[cfg(test)]
    pub(super) fn set_rate(&self, per_second: u64, burst: u64) {
        locked(&self.rates).set(per_second, burst);
    }

    /// Whether the caller may go on: long answers ask now and then. Does not count as a use of the session.
    pub(super) fn is_still_valid(&self, caller: &Caller) -> bool {
        let Caller { session, token, .. } = caller;
        drop(self.accounts());
        session.is_none_or(|session| locked(&self.sessions).is_alive(clock::now(), &session))
            && token.is_none_or(|token| self.has_token(&token))
    }

    /// True if the token has not been revoked.
    fn has_token(&self, token: &Digest) -> bool {
        let digits = hex(token);
        self.accounts().is_ok_and(|a| a.tokens().iter().any(|t| t.digest == digits))
    }
}

fn cookie<'h>(headers: &'h HeaderMap, cookie_name: &str) -> Option<&'h str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(';'));
    all.filter_map(|pair| pair.trim().split_once('=')).find(|(name, _)| *name == cookie_name).map(|(_, v)| v)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestPeer {
    /// Over the network, loopback included: any user of this host may send from there.
    Network(SocketAddr),
    /// Over the socket of commands, from a user that may command the core.
    Local(Uid),
}

impl RequestPeer {
    /// The sender without the port.
    pub(super) fn host(&self) -> String {
        match self {
            Self::Network(address) => address.ip().to_string(),
            Self::Local(uid) => uid.to_string(),
        }
    }

    /// The sender's address; a loopback address for a command of this host.
    pub(super) fn ip(&self) -> IpAddr {
        match self {
            Self::Network(address) => address.ip(),
            Self::Local(_) => Ipv4Addr::LOCALHOST.into(),
        }
    }
}

impl fmt::Display for RequestPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(address) => address.fmt(f),
            Self::Local(uid) => uid.fmt(f),
        }
    }
}

fn seconds_left(until: Instant, now: Instant) -> u64 {
    until.since(now).as_secs() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, "a=b; whimbrel_session=xyz; c=d".parse().unwrap());
        assert_eq!(cookie(&headers, COOKIE_NAME), Some("xyz"));
        assert_eq!(cookie(&headers, TLS_COOKIE_NAME), None, "any host of the domain could have set it");
        headers.insert(COOKIE, "not_whimbrel_session=xyz".parse().unwrap());
        assert_eq!(cookie(&headers, COOKIE_NAME), None);
    }

    #[test]
    fn a_role_has_the_scopes_of_those_below_it() {
        let has = |role: UserRole, of: UserRole| of.scopes().iter().all(|s| role.scopes().contains(s));
        assert!(has(UserRole::Admin, UserRole::Operator) && has(UserRole::Operator, UserRole::Viewer));
        assert!(!has(UserRole::Viewer, UserRole::Operator) && !has(UserRole::Operator, UserRole::Admin));
    }
}

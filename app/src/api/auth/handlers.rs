//! Login, logout, one-time links, users, API tokens.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{HeaderValue, SET_COOKIE};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::accounts::{TOKENS_MAX, Token, USERS_MAX, User};
use super::password::{Hashed, Password};
use super::sessions::{AGE_MAX, LINK_AGE_MAX, Session};
use super::{COOKIE_NAME, Caller, Role, Scope, digest_of, hex, locked, seconds_left, secret};
use crate::api::Shared;
use crate::api::handlers::Answer;
use crate::api::problem::Problem;
use crate::api::routes::{Reply, Request};
use crate::clock;

/// The user of a session that a one-time link began.
const LINK_USER: &str = "one-time-link";

/// A login: by name and password, or by a one-time link.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    name: Option<String>,
    password: Option<Password>,
    link: Option<String>,
}

/// The user of a session, or the token of a program.
#[derive(Serialize)]
struct Me {
    name: String,
    scopes: Vec<Scope>,
    /// What each change has to repeat in `X-CSRF-Token`; only where a session is used.
    csrf: Option<String>,
    /// Whether there is no user yet.
    without_users: bool,
}

fn body<T: for<'de> Deserialize<'de>>(request: &Request) -> Result<T, Problem> {
    serde_json::from_slice(&request.body).map_err(|e| Problem::bad_request(format!("the body is wrong: {e}")))
}

fn caller(request: &Request) -> Result<&Caller, Problem> {
    request.caller.as_ref().ok_or_else(|| Problem::unauthorized("log in first"))
}

/// The name of a user or a token: it stands in the audit log, in cookies' places and in paths.
fn checked_name(name: &str) -> Result<String, Problem> {
    let fits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-' | b'@');
    let reserved = ["local", LINK_USER].contains(&name);
    if (1..=64).contains(&name.len()) && name.bytes().all(fits) && !reserved {
        return Ok(name.into());
    }
    Err(Problem::unprocessable("a name has 1 to 64 letters, digits, dots, hyphens, underscores or at signs"))
}

/// Hashes or compares a password on a thread of the pool, one at a time.
async fn hashing<R: Send + 'static>(
    shared: &Arc<Shared>,
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Problem> {
    let _turn =
        shared.auth.hashing.acquire().await.map_err(|_| Problem::unavailable("the API is stopping"))?;
    tokio::task::spawn_blocking(work).await.map_err(|_| Problem::internal("a password could not be hashed"))
}

/// GET: the caller's name and scopes.
pub(in crate::api) async fn me(shared: Arc<Shared>, request: Request) -> Answer {
    let caller = caller(&request)?;
    let csrf = caller
        .session
        .and_then(|id| locked(&shared.auth.sessions).find(clock::now(), &id).map(|s| s.csrf.clone()));
    let without_users = shared.auth.is_without_users();
    Reply::json(&Me { name: caller.name.clone(), scopes: caller.scopes.clone(), csrf, without_users })
}

/// POST: log in.
pub(in crate::api) async fn login(shared: Arc<Shared>, request: Request) -> Answer {
    let login: Login = body(&request)?;
    let address = request.peer.host();
    match login {
        Login { name: Some(name), password: Some(password), link: None } => {
            by_password(&shared, &request, name, password, address).await
        }
        Login { name: None, password: None, link: Some(link) } => {
            let keys = [format!("address {address}")];
            wait_over(&shared, &keys)?;
            if !locked(&shared.auth.links).take(clock::now(), &digest_of(&link)) {
                locked(&shared.auth.throttle).failed(clock::now(), &keys);
                return Err(Problem::unauthorized(
                    "this link was used before or is older than ten minutes: run `whimbrel console` again",
                ));
            }
            begin(&shared, &request, LINK_USER, Role::Admin)
        }
        _ => Err(Problem::bad_request("send `name` and `password`, or `link`")),
    }
}

fn wait_over(shared: &Shared, keys: &[String]) -> Result<(), Problem> {
    let now = clock::now();
    match locked(&shared.auth.throttle).wait(now, keys) {
        Some(until) => Err(Problem::too_many(format!(
            "too many failed logins: try again in {} s",
            seconds_left(until, now)
        ))),
        None => Ok(()),
    }
}

async fn by_password(
    shared: &Arc<Shared>,
    request: &Request,
    name: String,
    password: Password,
    address: String,
) -> Answer {
    let keys = [format!("user {}", name.chars().take(64).collect::<String>()), format!("address {address}")];
    wait_over(shared, &keys)?;
    // Counted before the password is looked at: logins at the same time do not slip through.
    locked(&shared.auth.throttle).failed(clock::now(), &keys);
    let user = shared.auth.accounts()?.user(&name).cloned();
    let hashed = user.as_ref().map_or_else(Hashed::of_unknown_user, |u| u.password.clone());
    let fits = hashing(shared, move || hashed.fits(&password)).await?;
    match user.filter(|_| fits) {
        Some(user) => {
            locked(&shared.auth.throttle).succeeded(&keys);
            begin(shared, request, &user.name, user.role)
        }
        None => {
            warn!(from = address, "a login to the console failed");
            Err(Problem::unauthorized("the name or the password is wrong"))
        }
    }
}

/// Begins a session.
fn begin(shared: &Shared, request: &Request, user: &str, role: Role) -> Answer {
    let (cookie, csrf, now) = (secret()?, secret()?, clock::now());
    let session = Session::new(user, role, csrf.clone(), now);
    locked(&shared.auth.sessions).begin(now, digest_of(&cookie), session);
    info!(user, from = request.peer.host(), "a user logged in to the console");
    let without_users = shared.auth.is_without_users();
    let me = Me { name: user.into(), scopes: role.scopes().to_vec(), csrf: Some(csrf), without_users };
    Ok(Reply::json(&me)?.header(SET_COOKIE, set_cookie(shared, &cookie, AGE_MAX.as_secs())?))
}

fn set_cookie(shared: &Shared, value: &str, age_s: u64) -> Result<HeaderValue, Problem> {
    let secure = if shared.is_tls() { "; Secure" } else { "" };
    let text = format!("{COOKIE_NAME}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age_s}{secure}");
    HeaderValue::try_from(text).map_err(|e| Problem::internal(e.to_string()))
}

/// DELETE: log out.
pub(in crate::api) async fn logout(shared: Arc<Shared>, request: Request) -> Answer {
    if let Some(session) = caller(&request)?.session {
        locked(&shared.auth.sessions).end(&session);
    }
    Ok(Reply::empty().header(SET_COOKIE, set_cookie(&shared, "", 0)?))
}

/// A change of one's own password.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPassword {
    old: Password,
    new: Password,
}

/// PUT: change one's own password. Other sessions of the user end.
pub(in crate::api) async fn change_password(shared: Arc<Shared>, request: Request) -> Answer {
    let caller = caller(&request)?.clone();
    let NewPassword { old, new } = body(&request)?;
    let keys = [format!("user {}", caller.name)];
    wait_over(&shared, &keys)?;
    let user = shared.auth.accounts()?.user(&caller.name).cloned();
    let user = user.ok_or_else(|| Problem::conflict("only users have a password"))?;
    let hashed = hashing(&shared, move || user.password.fits(&old).then(|| Hashed::of(&new))).await?;
    let Some(hashed) = hashed else {
        locked(&shared.auth.throttle).failed(clock::now(), &keys);
        return Err(Problem::forbidden("the old password is wrong"));
    };
    set_password(&shared, &caller.name, hashed?)?;
    locked(&shared.auth.sessions).end_all_of(&caller.name, caller.session);
    Ok(Reply::empty())
}

fn set_password(shared: &Shared, name: &str, password: Hashed) -> Result<(), Problem> {
    let change = |users: &mut Vec<User>, _: &mut Vec<Token>| {
        if let Some(user) = users.iter_mut().find(|u| u.name == name) {
            user.password = password;
        }
    };
    shared.auth.accounts()?.change(change).map_err(Problem::unavailable)
}

/// A one-time link.
#[derive(Serialize)]
struct Link {
    /// Path and fragment, behind the address of the API.
    path: String,
    expires_s: u64,
}

/// POST: make a one-time link. Only for this host's commands: the kernel says that root or the core's own user runs them.
pub(in crate::api) async fn link(shared: Arc<Shared>, request: Request) -> Answer {
    if caller(&request)?.name != "local" {
        return Err(Problem::forbidden("only `whimbrel console` on the core's host makes one-time links"));
    }
    let link = secret()?;
    locked(&shared.auth.links).add(clock::now(), digest_of(&link));
    let made = Link { path: format!("/#/link/{link}"), expires_s: LINK_AGE_MAX.as_secs() };
    Ok(Reply::json(&made)?.with(StatusCode::CREATED))
}

/// A user as the API shows it.
#[derive(Serialize)]
struct UserView<'a> {
    name: &'a str,
    role: Role,
    created: &'a str,
}

pub(in crate::api) async fn users(shared: Arc<Shared>, _: Request) -> Answer {
    let accounts = shared.auth.accounts()?;
    let shown: Vec<_> = accounts
        .users()
        .iter()
        .map(|u| UserView { name: &u.name, role: u.role, created: &u.created })
        .collect();
    Reply::json(&shown)
}

/// A user to make.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewUser {
    name: String,
    role: Role,
    password: Password,
}

pub(in crate::api) async fn add_user(shared: Arc<Shared>, request: Request) -> Answer {
    let NewUser { name, role, password } = body(&request)?;
    let name = checked_name(&name)?;
    let password = hashing(&shared, move || Hashed::of(&password)).await??;
    let user = User { name, role, password, created: clock::rfc3339(clock::now()) };
    let shown = Reply::json(&UserView { name: &user.name, role, created: &user.created })?;
    let mut accounts = shared.auth.accounts()?;
    if accounts.user(&user.name).is_some() {
        return Err(Problem::conflict(format!("there is a user {} already", user.name)));
    }
    if accounts.users().len() >= USERS_MAX {
        return Err(Problem::conflict(format!(
            "there are {USERS_MAX} users, which is the limit: remove one"
        )));
    }
    if accounts.users().is_empty() && role != Role::Admin {
        return Err(Problem::unprocessable("the first user must be an admin"));
    }
    accounts.change(|users, _| users.push(user)).map_err(Problem::unavailable)?;
    Ok(shown.with(StatusCode::CREATED))
}

/// What changes of a user.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserChange {
    role: Option<Role>,
    password: Option<Password>,
}

pub(in crate::api) async fn edit_user(shared: Arc<Shared>, request: Request) -> Answer {
    let UserChange { role, password } = body(&request)?;
    let name = request.param(0).to_owned();
    let hashed = match password {
        Some(password) => Some(hashing(&shared, move || Hashed::of(&password)).await??),
        None => None,
    };
    let mut accounts = shared.auth.accounts()?;
    let user = accounts.user(&name).cloned().ok_or_else(|| no_user(&name))?;
    let role = role.unwrap_or(user.role);
    if role != Role::Admin {
        another_admin(accounts.users(), &name)?;
    }
    let changed = User { role, password: hashed.unwrap_or(user.password), ..user };
    let shown = Reply::json(&UserView { name: &changed.name, role, created: &changed.created })?;
    accounts
        .change(|users, _| users.iter_mut().filter(|u| u.name == name).for_each(|u| *u = changed.clone()))
        .map_err(Problem::unavailable)?;
    drop(accounts);
    locked(&shared.auth.sessions).end_all_of(&name, None);
    Ok(shown)
}

pub(in crate::api) async fn remove_user(shared: Arc<Shared>, request: Request) -> Answer {
    let name = request.param(0).to_owned();
    let mut accounts = shared.auth.accounts()?;
    accounts.user(&name).ok_or_else(|| no_user(&name))?;
    another_admin(accounts.users(), &name)?;
    accounts.change(|users, _| users.retain(|u| u.name != name)).map_err(Problem::unavailable)?;
    drop(accounts);
    locked(&shared.auth.sessions).end_all_of(&name, None);
    Ok(Reply::empty())
}

fn no_user(name: &str) -> Problem {
    Problem::not_found(format!("there is no user {name}"))
}

/// Without an admin, only `whimbrel console` leads to another one.
fn another_admin(users: &[User], name: &str) -> Result<(), Problem> {
    let is_admin = users.iter().any(|u| u.name == name && u.role == Role::Admin);
    if is_admin && !users.iter().any(|u| u.name != name && u.role == Role::Admin) {
        return Err(Problem::conflict(format!("{name} is the only admin: make another one first")));
    }
    Ok(())
}

/// An API token as the API shows it.
#[derive(Serialize)]
struct TokenView<'a> {
    name: &'a str,
    scopes: &'a [Scope],
    by: &'a str,
    created: &'a str,
    /// The token itself: shown once, when it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
}

impl<'a> From<&'a Token> for TokenView<'a> {
    fn from(t: &'a Token) -> Self {
        Self { name: &t.name, scopes: &t.scopes, by: &t.by, created: &t.created, token: None }
    }
}

pub(in crate::api) async fn tokens(shared: Arc<Shared>, _: Request) -> Answer {
    let accounts = shared.auth.accounts()?;
    Reply::json(&accounts.tokens().iter().map(TokenView::from).collect::<Vec<_>>())
}

/// An API token to make.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewToken {
    name: String,
    scopes: Vec<Scope>,
}

pub(in crate::api) async fn add_token(shared: Arc<Shared>, request: Request) -> Answer {
    let NewToken { name, mut scopes } = body(&request)?;
    let name = checked_name(&name)?;
    scopes.sort_unstable();
    scopes.dedup();
    if scopes.is_empty() {
        let all: Vec<&str> = Scope::ALL.iter().map(|s| s.word()).collect();
        return Err(Problem::unprocessable(format!("name at least one scope of {}", all.join(", "))));
    }
    let secret = format!("whimbrel_{}", secret()?);
    let (digest, created) = (hex(&digest_of(&secret)), clock::rfc3339(clock::now()));
    let token = Token { name, scopes, digest, by: caller(&request)?.name.clone(), created };
    let shown = Reply::json(&TokenView { token: Some(&secret), ..TokenView::from(&token) })?;
    let mut accounts = shared.auth.accounts()?;
    if accounts.tokens().iter().any(|t| t.name == token.name) {
        return Err(Problem::conflict(format!("there is a token {} already", token.name)));
    }
    if accounts.tokens().len() >= TOKENS_MAX {
        return Err(Problem::conflict(format!(
            "there are {TOKENS_MAX} tokens, which is the limit: remove one"
        )));
    }
    accounts.change(|_, tokens| tokens.push(token)).map_err(Problem::unavailable)?;
    Ok(shown.with(StatusCode::CREATED))
}

pub(in crate::api) async fn remove_token(shared: Arc<Shared>, request: Request) -> Answer {
    let name = request.param(0);
    let mut accounts = shared.auth.accounts()?;
    if !accounts.tokens().iter().any(|t| t.name == name) {
        return Err(Problem::not_found(format!("there is no token {name}")));
    }
    accounts.change(|_, tokens| tokens.retain(|t| t.name != name)).map_err(Problem::unavailable)?;
    Ok(Reply::empty())
}

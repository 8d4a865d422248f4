//! Login, logout, one-time links, users, API tokens.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::header::{HeaderValue, SET_COOKIE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use whimbrel_store::{Text, TextForm};

use super::accounts::{AllAccounts, ApiToken, ConsoleUser, TOKENS_MAX, USERS_MAX};
use super::password::{ChosenPassword, Password, PasswordHash};
use super::sessions::{AGE_MAX, ConsoleSession, LINK_AGE_MAX};
use super::throttle::{LoginName, SourcePrefix};
use super::totp::Totp;
use super::{Caller, Scope, UserRole, digest_of, hex, locked, seconds_left, secret, source_of};
use crate::HandlerContext;
use crate::input::{JsonBody, PathParts};
use crate::problem::ProblemDetails;
use crate::routes::{Created, Empty, HandlerResult, Json, RoutedRequest, TypedReply};
use whimbrel_node::clock;
use whimbrel_node::config::SecondFactor;

/// The user of a session that a one-time link began.
const LINK_USER: &str = "one-time-link";

/// A login: `name` and `password`, with `code` where the user has a second factor; or `link`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Login {
    /// Name of the user.
    name: Option<String>,
    /// Password of the user.
    password: Option<Password>,
    /// The present code of the second factor, where the user has one: six digits.
    code: Option<String>,
    /// Secret of a one-time link.
    link: Option<String>,
}

/// The user of a session, or the token of a program.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Me {
    /// Name of the user or of the token.
    name: String,
    /// Scopes of the caller.
    scopes: Vec<Scope>,
    /// The text that each change has to repeat in `X-CSRF-Token`; only where a session is used.
    csrf: Option<String>,
    /// True if there is no user yet.
    without_users: bool,
    /// True if the user has to set up a second factor before any other request is served.
    must_enrol: bool,
    /// True if the user has set up a second factor.
    second_factor: bool,
}

fn caller(request: &RoutedRequest) -> Result<&Caller, ProblemDetails> {
    request.caller.as_ref().ok_or_else(|| ProblemDetails::unauthorized("log in first"))
}

/// The name of a user or a token: it stands in the audit log, in cookies' places and in paths.
pub(crate) struct AccountName(String);

impl std::str::FromStr for AccountName {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let fits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-' | b'@');
        let reserved = ["local", LINK_USER].contains(&name);
        if (1..=64).contains(&name.len()) && name.bytes().all(fits) && !reserved {
            return Ok(Self(name.into()));
        }
        Err("a name has 1 to 64 letters, digits, dots, hyphens, underscores or at signs")
    }
}

impl TextForm for AccountName {
    const PATTERN: &'static str = "^[0-9A-Za-z._@-]{1,64}$";
}

/// A user or a token that the path names.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct AccountPath {
    /// Name of the user or of the token.
    name: String,
}

/// Hashes or compares a password on a thread of the pool, one at a time.
async fn hashing<R: Send + 'static>(
    shared: &Arc<HandlerContext>,
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, ProblemDetails> {
    let _turn = shared
        .auth
        .hashing
        .acquire()
        .await
        .map_err(|_| ProblemDetails::unavailable("the API is stopping"))?;
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| ProblemDetails::internal("a password could not be hashed"))
}

/// GET: the caller's name and scopes.
pub(crate) async fn me(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult<Json<Me>> {
    let caller = caller(&request)?;
    let csrf = caller
        .session
        .and_then(|id| locked(&shared.auth.sessions).find(clock::now(), &id).map(|s| s.csrf.clone()));
    let accounts = shared.auth.accounts()?;
    let user = caller.session.and_then(|_| accounts.user(&caller.name));
    TypedReply::json(&Me {
        name: caller.name.clone(),
        scopes: caller.scopes.clone(),
        csrf,
        without_users: accounts.users().is_empty(),
        must_enrol: user.is_some_and(|user| shared.auth.must_enrol(user)),
        second_factor: user.is_some_and(|user| user.totp.is_some()),
    })
}

/// POST: log in.
pub(crate) async fn login(
    shared: Arc<HandlerContext>,
    request: RoutedRequest,
    JsonBody(login): JsonBody<Login>,
) -> HandlerResult<Json<Me>> {
    match login {
        Login { name: Some(name), password: Some(password), code, link: None } => {
            by_password(&shared, &request, (name, password, code)).await
        }
        Login { name: None, password: None, code: None, link: Some(link) } => {
            // Links do not wait with their source: a secret of 256 bits is not guessed, and `whimbrel console` is the way in where the users
            // of a source have to wait.
            if !locked(&shared.auth.links).take(clock::now(), &digest_of(&link)) {
                return Err(ProblemDetails::unauthorized(
                    "this link was used before or is older than ten minutes: run `whimbrel console` again",
                ));
            }
            // Only root and the user that runs the core can create a link, so it counts as both factors.
            begin(&shared, &request, LINK_USER, None, shared.auth.is_without_users())
        }
        _ => Err(ProblemDetails::bad_request("send `name` and `password`, or `link`")),
    }
}

fn wait_over(shared: &HandlerContext, name: &LoginName, source: SourcePrefix) -> Result<(), ProblemDetails> {
    let now = clock::now();
    match locked(&shared.auth.throttle).wait(now, name, source) {
        Some(until) => Err(ProblemDetails::too_many(format!(
            "too many failed logins: try again in {} s",
            seconds_left(until, now)
        ))),
        None => Ok(()),
    }
}

async fn by_password(
    shared: &Arc<HandlerContext>,
    request: &RoutedRequest,
    (name, password, code): (String, Password, Option<String>),
) -> HandlerResult<Json<Me>> {
    let source = source_of(request.peer.ip());
    let user = shared.auth.accounts()?.user(&name).cloned();
    let login = LoginName::of(&name, user.is_some());
    wait_over(shared, &login, source)?;
    // Counted before the password is looked at: logins at the same time do not slip through.
    locked(&shared.auth.throttle).failed(clock::now(), &login, source);
    let hashed = user.map_or_else(PasswordHash::of_unknown_user, |u| u.password);
    let compared = hashed.clone();
    let fits = hashing(shared, move || compared.fits(&password)).await?;
    let refused = || {
        warn!(from = request.peer.host(), "a login to the console failed");
        ProblemDetails::unauthorized("the name or the password is wrong")
    };
    // The user may have been changed or removed while the password was hashed: what counts is what the user is now.
    let user = shared.auth.accounts()?.user(&name).filter(|u| fits && u.password == hashed).cloned();
    let user = user.ok_or_else(refused)?;
    if let (Some(totp), true) = (&user.totp, shared.auth.second_factor != SecondFactor::Off) {
        let Some(code) = code else {
            // The password is right: the console asks for the code next.
            locked(&shared.auth.throttle).not_failed(&login, source);
            return Err(ProblemDetails::unauthorized("send the code of your second factor as `code`, too")
                .needing("code"));
        };
        use_code(shared, request, &name, totp, code).await?;
    }
    locked(&shared.auth.throttle).succeeded(&login, source);
    // Begun while the accounts are locked: a change of this user ends this session, too.
    let accounts = shared.auth.accounts()?;
    let user = accounts.user(&name).filter(|u| u.password == hashed).cloned().ok_or_else(refused)?;
    let answer = begin(shared, request, &user.name, Some(&user), accounts.users().is_empty());
    drop(accounts);
    answer
}

/// Uses a code of a second factor, which works once at all homes.
async fn use_code(
    shared: &Arc<HandlerContext>,
    request: &RoutedRequest,
    name: &str,
    totp: &Totp,
    code: String,
) -> Result<(), ProblemDetails> {
    let refused = || {
        ProblemDetails::unauthorized("the code is wrong, or was used before: wait for the next one")
            .needing("code")
    };
    let Some(used) = totp.after(&code, SystemTime::now()) else {
        warn!(
            from = request.peer.host(),
            user = name,
            "a login to the console failed: the second factor is wrong"
        );
        return Err(refused());
    };
    // Used before it is written: it works once, whatever becomes of that.
    if !shared.auth.accounts()?.use_code(name, &used) {
        return Err(refused());
    }
    let (of, written) = (name.to_owned(), used);
    let change = move |all: &mut AllAccounts| match all.user_mut(&of).and_then(|user| user.totp.as_mut()) {
        Some(totp) => match totp.after(&code, SystemTime::now()) {
            Some(used) => {
                *totp = used;
                Ok(Ok(()))
            }
            None => Ok(Err(refused())),
        },
        None => Ok(Ok(())),
    };
    match shared.auth.change(&Caller::local(), change).await {
        Ok(done) => {
            shared.auth.accounts()?.code_is_written(name, &written);
            done
        }
        Err(e) => {
            // A full disk must not lock an operator out, nor may a database that is away.
            warn!("a code that was used is remembered until the core stops, and not beyond: {}", e.detail);
            Ok(())
        }
    }
}

/// Begins a session: of a user, or of a one-time link.
fn begin(
    shared: &HandlerContext,
    request: &RoutedRequest,
    name: &str,
    user: Option<&ConsoleUser>,
    without_users: bool,
) -> HandlerResult<Json<Me>> {
    let (cookie, csrf, now) = (secret()?, secret()?, clock::now());
    let link_role = user.is_none().then_some(UserRole::Admin);
    let session = ConsoleSession::new(name, link_role, csrf.clone(), now);
    locked(&shared.auth.sessions).begin(now, digest_of(&cookie), session);
    info!(user = name, from = request.peer.host(), "a user logged in to the console");
    let must_enrol = user.is_some_and(|user| shared.auth.must_enrol(user));
    let role = link_role.or(user.map(|user| user.role)).filter(|_| !must_enrol);
    let scopes = role.map(|role| role.scopes().to_vec()).unwrap_or_default();
    let second_factor = user.is_some_and(|user| user.totp.is_some());
    let me = Me { name: name.into(), scopes, csrf: Some(csrf), without_users, must_enrol, second_factor };
    Ok(TypedReply::json(&me)?.header(SET_COOKIE, set_cookie(shared, &cookie, AGE_MAX.as_secs())?))
}

pub(crate) fn set_cookie(
    shared: &HandlerContext,
    value: &str,
    age_s: u64,
) -> Result<HeaderValue, ProblemDetails> {
    let secure = if shared.is_tls() { "; Secure" } else { "" };
    let text = format!(
        "{}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age_s}{secure}",
        shared.auth.cookie_name
    );
    HeaderValue::try_from(text).map_err(|e| ProblemDetails::internal(e.to_string()))
}

/// DELETE: log out.
pub(crate) async fn logout(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult<Empty> {
    if let Some(session) = caller(&request)?.session {
        locked(&shared.auth.sessions).end(&session);
    }
    Ok(TypedReply::empty().header(SET_COOKIE, set_cookie(&shared, "", 0)?))
}

/// A change of one's own password.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPassword {
    /// The password until now.
    old: Password,
    /// The password from now on.
    new: ChosenPassword,
}

/// PUT: change one's own password. Other sessions of the user end.
pub(crate) async fn change_password(
    shared: Arc<HandlerContext>,
    request: RoutedRequest,
    JsonBody(NewPassword { old, new }): JsonBody<NewPassword>,
) -> HandlerResult<Empty> {
    let caller = caller(&request)?.clone();
    let (login, source) = (LoginName::of(&caller.name, true), source_of(request.peer.ip()));
    wait_over(&shared, &login, source)?;
    let user = own_user(&shared, &caller)?;
    let (before, history) = (user.password.clone(), shared.auth.history);
    let hashed =
        hashing(&shared, move || user.password.fits(&old).then(|| new_password(&user, &new, history)))
            .await?;
    let Some(hashed) = hashed else {
        locked(&shared.auth.throttle).failed(clock::now(), &login, source);
        return Err(ProblemDetails::forbidden("the old password is wrong"));
    };
    let hashed = hashed?;
    let name = caller.name.clone();
    let change = move |all: &mut AllAccounts| {
        // An admin may have set another one while this one was hashed.
        let user = all.user_mut(&name).filter(|u| u.password == before);
        let user = user
            .ok_or_else(|| ProblemDetails::conflict("your password was changed meanwhile: log in again"))?;
        user.set_password(hashed, history);
        Ok(())
    };
    shared.auth.change(&caller, change).await?;
    Ok(TypedReply::empty())
}

/// The user of a session.
fn own_user(shared: &HandlerContext, caller: &Caller) -> Result<ConsoleUser, ProblemDetails> {
    let user = match caller.session {
        Some(_) => shared.auth.accounts()?.user(&caller.name).cloned(),
        None => None,
    };
    user.ok_or_else(|| ProblemDetails::conflict("only users have a password and a second factor"))
}

/// Hashes a new password of a user. Errors: it was used before, is too short or too long.
fn new_password(user: &ConsoleUser, password: &str, history: usize) -> Result<PasswordHash, ProblemDetails> {
    let hashed = PasswordHash::of(password)?;
    let former = user.former.iter().take(history);
    if history > 0 && std::iter::once(&user.password).chain(former).any(|former| former.fits(password)) {
        return Err(ProblemDetails::unprocessable(format!(
            "this password was used before: take one that differs from the last {history} and from the present one"
        )));
    }
    Ok(hashed)
}

/// The second factor of one's own that is being set up: a password proves that its user does it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Enrolment {
    /// Password of the user.
    password: Password,
}

/// The secret of a new second factor for the user's authenticator app; it is shown once.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SecondFactor")]
pub(crate) struct EnrolmentView {
    /// The secret in base 32.
    secret: String,
    /// The same as an otpauth URI.
    uri: String,
}

/// How long a user may take to set up a second factor.
const ENROLMENT_WITHIN: Duration = Duration::from_secs(600);

/// POST: begin to set up a second factor of one's own.
pub(crate) async fn begin_enrolment(
    shared: Arc<HandlerContext>,
    request: RoutedRequest,
    JsonBody(Enrolment { password }): JsonBody<Enrolment>,
) -> HandlerResult<Created<EnrolmentView>> {
    let caller = caller(&request)?.clone();
    if shared.auth.second_factor == SecondFactor::Off {
        return Err(ProblemDetails::conflict(
            "second factors are off: `api.second_factor` in the configuration",
        ));
    }
    let (login, source) = (LoginName::of(&caller.name, true), source_of(request.peer.ip()));
    wait_over(&shared, &login, source)?;
    let user = own_user(&shared, &caller)?;
    if user.totp.is_some() {
        return Err(ProblemDetails::conflict(
            "you have a second factor: an admin, or `whimbrel console --reset-second-factor` on the core's host, removes it",
        ));
    }
    if !hashing(&shared, move || user.password.fits(&password)).await? {
        locked(&shared.auth.throttle).failed(clock::now(), &login, source);
        return Err(ProblemDetails::forbidden("the password is wrong"));
    }
    let (totp, now) = (Totp::new()?, clock::now());
    let shown =
        TypedReply::json(&EnrolmentView { secret: totp.secret().into(), uri: totp.uri(&caller.name) })?;
    let mut pending = locked(&shared.auth.pending);
    // There are no more of them than users.
    pending.retain(|_, (_, until)| *until > now);
    pending.insert(caller.name, (totp, now + ENROLMENT_WITHIN));
    Ok(shown.created())
}

/// The first code of a new second factor.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FirstCode {
    /// The code that the app shows.
    code: String,
}

/// PUT: end setting up a second factor, by its first code.
pub(crate) async fn end_enrolment(
    shared: Arc<HandlerContext>,
    request: RoutedRequest,
    JsonBody(FirstCode { code }): JsonBody<FirstCode>,
) -> HandlerResult<Empty> {
    let caller = caller(&request)?.clone();
    own_user(&shared, &caller)?;
    let now = clock::now();
    let pending = locked(&shared.auth.pending).get(&caller.name).filter(|(_, until)| *until > now).cloned();
    let (totp, _) = pending.ok_or_else(|| {
        ProblemDetails::conflict("begin again: a second factor is set up within ten minutes")
    })?;
    let used = totp.after(&code, SystemTime::now()).ok_or_else(|| {
        ProblemDetails::unprocessable(
            "the code is wrong: check the clock of your telephone, and send the present code",
        )
    })?;
    let name = caller.name.clone();
    let change = move |all: &mut AllAccounts| {
        all.user_mut(&name).ok_or_else(|| no_user(&name))?.totp = Some(used);
        Ok(())
    };
    // Sessions that began with the password alone end.
    shared.auth.change(&caller, change).await?;
    locked(&shared.auth.pending).remove(&caller.name);
    Ok(TypedReply::empty())
}

/// DELETE: remove a user's second factor, whose telephone was lost. The user's sessions end.
pub(crate) async fn reset_second_factor(
    shared: Arc<HandlerContext>,
    request: RoutedRequest,
    PathParts(AccountPath { name }): PathParts<AccountPath>,
) -> HandlerResult<Empty> {
    let change = move |all: &mut AllAccounts| {
        all.user_mut(&name).ok_or_else(|| no_user(&name))?.totp = None;
        Ok(())
    };
    shared.auth.change(caller(&request)?, change).await?;
    Ok(TypedReply::empty())
}

/// A one-time link.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Link")]
pub(crate) struct OneTimeLink {
    /// Path and fragment, behind the address of the API.
    path: String,
    /// Seconds in which it can be used.
    expires_s: u64,
}

/// POST: make a one-time link. Only for this host's commands: the kernel says that root or the core's own user runs them.
pub(crate) async fn link(
    shared: Arc<HandlerContext>,
    request: RoutedRequest,
) -> HandlerResult<Created<OneTimeLink>> {
    if caller(&request)?.name != "local" {
        return Err(ProblemDetails::forbidden(
            "only `whimbrel console` on the core's host makes one-time links",
        ));
    }
    let link = secret()?;
    locked(&shared.auth.links).add(clock::now(), digest_of(&link));
    let made = OneTimeLink { path: format!("/#/link/{link}"), expires_s: LINK_AGE_MAX.as_secs() };
    Ok(TypedReply::json(&made)?.created())
}

/// A user as the API shows it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "User")]
pub(crate) struct UserView {
    /// Name of the user.
    name: String,
    /// Role of the user.
    role: UserRole,
    /// When the user was made, RFC 3339.
    created: String,
    /// True if the user has a second factor.
    second_factor: bool,
}

impl From<&ConsoleUser> for UserView {
    fn from(u: &ConsoleUser) -> Self {
        Self {
            name: u.name.clone(),
            role: u.role,
            created: u.created.clone(),
            second_factor: u.totp.is_some(),
        }
    }
}

pub(crate) async fn users(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
) -> HandlerResult<Json<Vec<UserView>>> {
    let accounts = shared.auth.accounts()?;
    TypedReply::json(&accounts.users().iter().map(UserView::from).collect::<Vec<_>>())
}

/// A user to make.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewUser {
    /// Name of the user.
    name: Text<AccountName>,
    /// Role of the user.
    role: UserRole,
    /// Password of the user.
    password: ChosenPassword,
}

pub(crate) async fn add_user(
    shared: Arc<HandlerContext>,
    request: RoutedRequest,
    JsonBody(NewUser { name, role, password }): JsonBody<NewUser>,
) -> HandlerResult<Created<UserView>> {
    let name = name.0.0;
    let password = hashing(&shared, move || PasswordHash::of(&password)).await??;
    let created = clock::rfc3339(clock::now());
    let user = ConsoleUser { name, role, password, former: Vec::new(), totp: None, created };
    let shown = TypedReply::json(&UserView::from(&user))?;
    let change = move |all: &mut AllAccounts| {
        if all.user(&user.name).is_some() {
            return Err(ProblemDetails::conflict(format!("there is a user {} already", user.name)));
        }
        if all.users.len() >= USERS_MAX {
            return Err(ProblemDetails::conflict(format!(
                "there are {USERS_MAX} users, which is the limit: remove one"
            )));
        }
        if all.users.is_empty() && role != UserRole::Admin {
            return Err(ProblemDetails::unprocessable("the first user must be an admin"));
        }
        all.users.push(user);
        Ok(())
    };
    shared.auth.change(caller(&request)?, change).await?;
    Ok(shown.created())
}

/// A change of a user.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserChange {
    /// The role from now on.
    role: Option<UserRole>,
    /// The password from now on.
    password: Option<ChosenPassword>,
}

pub(crate) async fn edit_user(
    shared: Arc<HandlerContext>,
    request: RoutedRequest,
    PathParts(AccountPath { name }): PathParts<AccountPath>,
    JsonBody(UserChange { role, password }): JsonBody<UserChange>,
) -> HandlerResult<Json<UserView>> {
    let history = shared.auth.history;
    let before = shared.auth.accounts()?.user(&name).cloned().ok_or_else(|| no_user(&name))?;
    let hashed = match password {
        Some(password) => Some(hashing(&shared, move || new_password(&before, &password, history)).await??),
        None => None,
    };
    let change = move |all: &mut AllAccounts| {
        let role = role.unwrap_or(all.user(&name).ok_or_else(|| no_user(&name))?.role);
        if role != UserRole::Admin {
            another_admin(&all.users, &name)?;
        }
        let user = all.user_mut(&name).ok_or_else(|| no_user(&name))?;
        user.role = role;
        if let Some(hashed) = hashed {
            user.set_password(hashed, history);
        }
        Ok(UserView::from(&*user))
    };
    TypedReply::json(&shared.auth.change(caller(&request)?, change).await?)
}

pub(crate) async fn remove_user(
    shared: Arc<HandlerContext>,
    request: RoutedRequest,
    PathParts(AccountPath { name }): PathParts<AccountPath>,
) -> HandlerResult<Empty> {
    let change = move |all: &mut AllAccounts| {
        all.user(&name).ok_or_else(|| no_user(&name))?;
        another_admin(&all.users, &name)?;
        all.users.retain(|u| u.name != name);
        Ok(())
    };
    shared.auth.change(caller(&request)?, change).await?;
    Ok(TypedReply::empty())
}

fn no_user(name: &str) -> ProblemDetails {
    ProblemDetails::not_found(format!("there is no user {name}"))
}

/// Without an admin, only `whimbrel console` leads to another one.
fn another_admin(users: &[ConsoleUser], name: &str) -> Result<(), ProblemDetails> {
    let is_admin = users.iter().any(|u| u.name == name && u.role == UserRole::Admin);
    if is_admin && !users.iter().any(|u| u.name != name && u.role == UserRole::Admin) {
        return Err(ProblemDetails::conflict(format!("{name} is the only admin: make another one first")));
    }
    Ok(())
}

/// An API token as the API shows it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Token")]
pub(crate) struct TokenView {
    /// Name of the token.
    name: String,
    /// Scopes of its bearer.
    scopes: Vec<Scope>,
    /// The user that made it.
    by: String,
    /// When it was made, RFC 3339.
    created: String,
    /// The token itself: shown once, when it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    token: Option<String>,
}

impl From<&ApiToken> for TokenView {
    fn from(t: &ApiToken) -> Self {
        let ApiToken { name, scopes, by, created, .. } = t.clone();
        Self { name, scopes, by, created, token: None }
    }
}

pub(crate) async fn tokens(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
) -> HandlerResult<Json<Vec<TokenView>>> {
    let accounts = shared.auth.accounts()?;
    TypedReply::json(&accounts.tokens().iter().map(TokenView::from).collect::<Vec<_>>())
}

/// An API token to make.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewToken {
    /// Name of the token.
    name: Text<AccountName>,
    /// Scopes of its bearer.
    #[schemars(length(min = 1))]
    scopes: Vec<Scope>,
}

pub(crate) async fn add_token(
    shared: Arc<HandlerContext>,
    request: RoutedRequest,
    JsonBody(NewToken { name, mut scopes }): JsonBody<NewToken>,
) -> HandlerResult<Created<TokenView>> {
    let name = name.0.0;
    scopes.sort_unstable();
    scopes.dedup();
    if scopes.is_empty() {
        let all: Vec<&str> = Scope::ALL.iter().map(|s| s.word()).collect();
        return Err(ProblemDetails::unprocessable(format!("name at least one scope of {}", all.join(", "))));
    }
    let secret = format!("whimbrel_{}", secret()?);
    let (digest, created) = (hex(&digest_of(&secret)), clock::rfc3339(clock::now()));
    let token = ApiToken { name, scopes, digest, by: caller(&request)?.name.clone(), created };
    let shown = TypedReply::json(&TokenView { token: Some(secret), ..TokenView::from(&token) })?;
    let change = move |all: &mut AllAccounts| {
        if all.tokens.iter().any(|t| t.name == token.name) {
            return Err(ProblemDetails::conflict(format!("there is a token {} already", token.name)));
        }
        if all.tokens.len() >= TOKENS_MAX {
            return Err(ProblemDetails::conflict(format!(
                "there are {TOKENS_MAX} tokens, which is the limit: remove one"
            )));
        }
        all.tokens.push(token);
        Ok(())
    };
    shared.auth.change(caller(&request)?, change).await?;
    Ok(shown.created())
}

pub(crate) async fn remove_token(
    shared: Arc<HandlerContext>,
    request: RoutedRequest,
    PathParts(AccountPath { name }): PathParts<AccountPath>,
) -> HandlerResult<Empty> {
    let change = move |all: &mut AllAccounts| {
        let before = all.tokens.len();
        all.tokens.retain(|t| t.name != name);
        if all.tokens.len() == before {
            return Err(ProblemDetails::not_found(format!("there is no token {name}")));
        }
        Ok(())
    };
    shared.auth.change(caller(&request)?, change).await?;
    Ok(TypedReply::empty())
}

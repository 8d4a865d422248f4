//! Which token the operator broadcasts: one after the other, each with a channel of its own (chapter 4.4.2, steps i and iii).
//!
//! The next token's session group is opened while the one before is broadcast, so that a UE waits for
//! neither. A token is broadcast for [`RotationConfig::broadcast_s`]; its group takes the requests of UEs
//! that heard it until the time that the broker gave. What the channel cannot carry is sent by no other way:
//! without an open group nothing is broadcast.

use whimbrel_broker_common::crypto::Seed;
use whimbrel_ids::Instant;

use crate::channel::Failure;
use crate::crypto::VEIL;
use crate::msg::{GroupError, HomeQuestion};
use crate::operator::{Group, Question};
use crate::token::TokenHash;
use crate::wallet::{Wallet, WalletError};

/// How tokens follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationConfig {
    /// How long a token is broadcast, in seconds.
    pub broadcast_s: u64,
    /// How long before the end of a group its token is broadcast no more, in seconds: what an attach takes, with the channel's round trip.
    pub attach_s: u64,
    /// After how long without an answer a request is sent again, in seconds.
    pub retry_s: u64,
}

impl RotationConfig {
    /// 20 s, in which the chapter's smallest session group is claimed (4.6.2.3); T3510 of the UE is 15 s.
    pub const DEFAULT: Self = Self { broadcast_s: 20, attach_s: 15, retry_s: 3 };
}

/// What comes to the machine.
#[derive(Debug)]
pub enum Input<'a> {
    /// Time has passed.
    Tick,
    /// The broker's answer for a token.
    Answered(TokenHash, &'a [u8]),
    /// The token's channel gave no answer.
    Failed(TokenHash, Failure),
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The wallet has changed: store it before anything that follows is done.
    Store,
    /// Open a fresh channel for a token.
    Open(TokenHash),
    /// Send a request through the token's channel.
    Ask(TokenHash, Vec<u8>),
    /// Close the token's channel.
    Close(TokenHash),
    /// Broadcast a token, or none.
    Broadcast(Option<TokenHash>),
    /// The broker opened no group for a token, which is gone.
    NotOpened(GroupError),
    /// The broker's answer is not taken; the token is asked for again.
    BadAnswer(WalletError),
    /// No token has rested: fill the wallet.
    NoToken,
}

/// A token whose group is opening.
#[derive(Debug)]
struct Opening {
    token: TokenHash,
    request: Vec<u8>,
    again: Instant,
}

/// The tokens of one operator at one broker.
#[derive(Debug)]
pub struct Rotation {
    config: RotationConfig,
    /// The wallet. Fill it here.
    pub wallet: Wallet,
    opening: Option<Opening>,
    /// Open, and not broadcast yet.
    next: Option<Group>,
    current: Option<(Group, Instant)>,
    former: Vec<Group>,
    /// Whether the lack of tokens was reported.
    dry: bool,
}

const SECOND: core::time::Duration = core::time::Duration::from_secs(1);

impl Rotation {
    /// Begins with a wallet. Tokens that were being spent when it was stored are the first to be opened, by the same requests.
    pub const fn new(config: RotationConfig, wallet: Wallet) -> Self {
        Self { config, wallet, opening: None, next: None, current: None, former: Vec::new(), dry: false }
    }

    /// The token that is broadcast.
    pub fn broadcast(&self) -> Option<TokenHash> {
        self.current.as_ref().map(|(group, _)| group.hash())
    }

    /// Signs a question in the group whose token the UE heard: the one that is broadcast, or one before it that is still open.
    pub fn sign(&self, question: &Question, now: Instant) -> Option<(TokenHash, Vec<u8>)> {
        let current = self.current.iter().map(|(group, _)| group);
        let open = current.chain(&self.former).filter(|group| now.as_secs() <= group.until());
        open.filter_map(|group| Some((group.hash(), question.sign(group)?))).next()
    }

    /// Signs a question for an ordinary UE, which heard no token, in the group of the token that is broadcast.
    pub fn sign_home(&self, question: &HomeQuestion, now: Instant) -> Option<(TokenHash, Vec<u8>)> {
        let current = self.current.iter().map(|(group, _)| group);
        let open = current.filter(|group| now.as_secs() <= group.until());
        open.map(|group| (group.hash(), group.sign_home(question))).next()
    }

    /// All groups that are open, or about to be broadcast.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        let current = self.current.iter().map(|(group, _)| group);
        self.former.iter().chain(current).chain(&self.next)
    }

    /// Goes on with a group that a former process has opened: UEs that heard its token attach until its end.
    pub fn resume(&mut self, group: Group) {
        self.former.push(group);
    }

    /// An open group.
    pub fn group(&self, token: TokenHash) -> Option<&Group> {
        let current = self.current.iter().map(|(group, _)| group);
        current.chain(&self.former).find(|group| group.hash() == token)
    }

    /// Takes an input. `seed` has entropy that no other call has.
    pub fn handle(&mut self, now: Instant, input: Input<'_>, seed: &Seed, out: &mut Vec<Output>) {
        match input {
            Input::Tick => {}
            Input::Answered(token, octets) => self.answered(now, token, octets, out),
            Input::Failed(token, _) => self.failed(now, token, out),
        }
        self.end_groups(now, out);
        self.broadcast_next(now, out);
        self.open_next(now, seed, out);
    }

    /// When the machine wants a tick.
    pub fn next_deadline(&self) -> Option<Instant> {
        let half = SECOND * self.config.broadcast_s as u32 / 2;
        let idle = self.opening.is_none() && self.next.is_none() && !self.dry;
        let opens = self.current.iter().filter(|_| idle).map(|(_, since)| *since + half);
        let opening = self.opening.iter().map(|opening| opening.again);
        let current = self.current.iter().map(|(group, since)| self.ends(group, *since));
        let former = self.former.iter().map(|group| second(group.until() + 1));
        opens.chain(opening).chain(current).chain(former).min()
    }

    /// When a token is broadcast no more.
    fn ends(&self, group: &Group, since: Instant) -> Instant {
        // Another token takes its place in time; without one it is broadcast until its group ends.
        let last = second(group.until().saturating_sub(self.config.attach_s));
        if self.next.is_some() { last.min(since + SECOND * self.config.broadcast_s as u32) } else { last }
    }

    fn answered(&mut self, now: Instant, token: TokenHash, octets: &[u8], out: &mut Vec<Output>) {
        if self.opening.as_ref().is_none_or(|opening| opening.token != token) {
            return;
        }
        match self.wallet.finish_spending(token, octets) {
            Ok(group) => {
                self.opening = None;
                self.next = Some(group);
                out.push(Output::Store);
            }
            Err(WalletError::NotOpened(cause)) => {
                self.opening = None;
                out.extend([Output::Store, Output::Close(token), Output::NotOpened(cause)]);
            }
            Err(error) => {
                out.push(Output::BadAnswer(error));
                self.failed(now, token, out);
            }
        }
    }

    /// Asks again after a while, through a fresh channel.
    fn failed(&mut self, now: Instant, token: TokenHash, out: &mut Vec<Output>) {
        if let Some(opening) = self.opening.as_mut().filter(|opening| opening.token == token) {
            opening.again = now + SECOND * self.config.retry_s as u32;
            out.push(Output::Close(token));
        }
    }

    fn end_groups(&mut self, now: Instant, out: &mut Vec<Output>) {
        if let Some((group, _)) = self
            .current
            .take_if(|(group, _)| now >= second(group.until().saturating_sub(self.config.attach_s)))
        {
            self.former.push(group);
            out.push(Output::Broadcast(None));
        }
        self.former.retain(|group| {
            let open = now.as_secs() <= group.until();
            if !open {
                out.push(Output::Close(group.hash()));
            }
            open
        });
        // A group that opened late may be over before it is broadcast.
        if let Some(group) =
            self.next.take_if(|group| now >= second(group.until().saturating_sub(self.config.attach_s)))
        {
            out.push(Output::Close(group.hash()));
        }
    }

    fn broadcast_next(&mut self, now: Instant, out: &mut Vec<Output>) {
        let due = self.current.as_ref().is_none_or(|(group, since)| now >= self.ends(group, *since));
        if !due {
            return;
        }
        let Some(next) = self.next.take() else { return };
        if let Some((former, _)) = self.current.take() {
            self.former.push(former);
        }
        // One line for the change: what was to be broadcast no more is replaced.
        out.retain(|output| *output != Output::Broadcast(None));
        out.push(Output::Broadcast(Some(next.hash())));
        self.current = Some((next, now));
    }

    fn open_next(&mut self, now: Instant, seed: &Seed, out: &mut Vec<Output>) {
        if let Some(opening) = self.opening.as_mut().filter(|opening| now >= opening.again) {
            opening.again = now + SECOND * self.config.retry_s as u32;
            let (token, request) = (opening.token, opening.request.clone());
            out.extend([Output::Close(token), Output::Open(token), Output::Ask(token, request)]);
        }
        // The next one opens in the second half of a broadcast: the broker sees groups open as they come into use, and not two at once.
        let half = SECOND * self.config.broadcast_s as u32 / 2;
        let early = self.current.as_ref().is_some_and(|(_, since)| now.since(*since) < half);
        if self.opening.is_some() || self.next.is_some() || early {
            return;
        }
        let begun = self.wallet.pending_requests().into_iter().next();
        let seed = Seed::new(*VEIL.draw(seed, "rotation"));
        let Some((token, request)) = begun.or_else(|| self.wallet.begin_spending(now, &seed)) else {
            if !core::mem::replace(&mut self.dry, true) {
                out.push(Output::NoToken);
            }
            return;
        };
        self.dry = false;
        out.extend([Output::Store, Output::Open(token), Output::Ask(token, request.clone())]);
        self.opening = Some(Opening { token, request, again: now + SECOND * self.config.retry_s as u32 });
    }
}

fn second(s: u64) -> Instant {
    Instant(s.saturating_mul(1_000_000))
}

//! The wallet of an operator: tokens of one broker, filled in fixed batches and spent one at a time.
//!
//! The wallet is plain data ([`Wallet::to_octets`], [`Wallet::parse`]). Each method that gives octets to send changes the wallet
//! first: store it, then send. What a crash loses is then at worst an answer, and the same request is made again in the same octets:
//! the token of a session group that was opening opens that group, and no other request is ever made of it.
//!
//! The broker knows when a batch was asked for, and when a token is spent; so a token rests for
//! [`WalletConfig::age_min_s`], tokens are drawn at random from all that have rested, and the wallet is
//! filled before it is empty.

use std::collections::BTreeMap;

use whimbrel_broker_common::certificate::{Certificate, Validity};
use whimbrel_broker_common::crypto::Seed;
use whimbrel_broker_common::id::Domain;
use whimbrel_ids::{DecodeError, DecodeErrorKind, Instant, Reader};
use zeroize::Zeroizing;

use crate::crypto::{SigningKey, VEIL, hash};
use crate::log::{KeyEntry, LogError, LogProof, LogTrust, SeenHead};
use crate::msg::{
    GroupAnswer, GroupError, GroupRequest, IssueError, MessageField, MessageType, TokenAnswer, TokenRequest,
    emit_part, read_flag, read_part, whole,
};
use crate::operator::Group;
use crate::token::{BATCH, Token, TokenHash};
use crate::voprf::{Blind, Element, OUTPUT_OCTETS, Output, finalize_batch};

/// The most tokens in a wallet: a day's at one every 20 s is 4,320.
pub const TOKENS_MAX: usize = 8_192;

/// The most epochs whose keys a wallet keeps: the current one, the next, and those of tokens not yet spent.
pub const KEYS_MAX: usize = 8;

/// How a wallet fills and spends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalletConfig {
    /// How long a token rests before it is spent, in seconds.
    pub age_min_s: u64,
    /// Fill when fewer tokens than this are left that are not being spent.
    pub low_water: usize,
}

impl WalletConfig {
    /// An hour, in which every operator of a broker fills several times if it spends one token every 20 s, and what is spent in two
    /// hours.
    pub const DEFAULT: Self = Self { age_min_s: 3_600, low_water: 360 };
}

/// Why a wallet does not take an answer, or has nothing to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalletError {
    /// The octets are no answer.
    Malformed(DecodeError),
    /// The broker issues none.
    NotIssued(IssueError),
    /// The broker opens no session group.
    NotOpened(GroupError),
    /// The answer is to another request.
    RequestMismatch,
    /// The batch was not evaluated under the key in the log.
    NotUnderLoggedKey,
    /// The key in the log is not believed.
    Log(LogError),
    /// Nothing was asked that this could answer.
    NoPendingRequest,
}

impl core::fmt::Display for WalletError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Malformed(e) => return write!(f, "{e}"),
            Self::NotIssued(e) => return write!(f, "{e}"),
            Self::NotOpened(e) => return write!(f, "{e}"),
            Self::Log(e) => return write!(f, "{e}"),
            Self::RequestMismatch => "the broker's answer is to another request",
            Self::NotUnderLoggedKey => "the tokens are not under the key that stands in the broker's log",
            Self::NoPendingRequest => "nothing was asked that this could answer",
        })
    }
}

impl core::error::Error for WalletError {}

impl From<DecodeError> for WalletError {
    fn from(e: DecodeError) -> Self {
        Self::Malformed(e)
    }
}

/// A batch that was asked for.
#[derive(Clone, Debug)]
struct Filling {
    epoch: u32,
    seed: Seed,
}

/// What the nth token of a batch is made of.
fn derive_token(seed: &Seed, n: usize) -> (SigningKey, Zeroizing<[u8; 32]>, Blind) {
    let secret = VEIL.draw(seed, &format!("token key {n}"));
    let blind = (0..=u8::MAX).find_map(|again| Blind::new(&VEIL.draw(seed, &format!("blind {n} {again}"))));
    (SigningKey::new(&secret), secret, blind.expect("one of 256 draws is not zero"))
}

impl Filling {
    fn tokens(&self) -> Vec<(Token, Zeroizing<[u8; 32]>, Blind)> {
        let token = |n| {
            let (key, secret, blind) = derive_token(&self.seed, n);
            (Token { epoch: self.epoch, key: key.verifying_key() }, secret, blind)
        };
        (0..BATCH).map(token).collect()
    }

    fn blinded(&self, issuer: &Element) -> Option<Box<[Element; BATCH]>> {
        let blind = |(token, _, blind): &(Token, _, Blind)| blind.blind(&token.input(issuer));
        let all: Option<Vec<_>> = self.tokens().iter().map(blind).collect();
        Some(Box::new(all?.try_into().expect("as many as there are tokens")))
    }
}

#[derive(Clone, Debug)]
struct WalletToken {
    token: Token,
    secret: Zeroizing<[u8; 32]>,
    output: Output,
    obtained_s: u64,
    /// Once it is being spent: the nonce of the one request that is ever made of it.
    request_nonce: Option<[u8; 16]>,
}

/// Tokens of one broker.
#[derive(Clone, Debug)]
pub struct Wallet {
    broker: Domain,
    config: WalletConfig,
    seen: SeenHead,
    keys: BTreeMap<u32, KeyEntry>,
    filling: Option<Filling>,
    tokens: Vec<WalletToken>,
}

impl Wallet {
    /// An empty one.
    pub const fn new(broker: Domain, config: WalletConfig) -> Self {
        let keys = BTreeMap::new();
        Self { broker, config, seen: SeenHead::NONE, keys, filling: None, tokens: Vec::new() }
    }

    /// Tokens that are not being spent, and those that are.
    pub fn token_counts(&self) -> (usize, usize) {
        let spending = self.tokens.iter().filter(|held| held.request_nonce.is_some()).count();
        (self.tokens.len() - spending, spending)
    }

    /// How much of the broker's log has been seen: what the broker is asked to extend.
    pub const fn seen(&self) -> &SeenHead {
        &self.seen
    }

    /// Takes an issuing key from the broker's log. Errors: [`LogError`]; then nothing changes.
    pub fn add_issuing_key(&mut self, proof: &LogProof, trust: &LogTrust) -> Result<(), LogError> {
        let entry = self.seen.advance(proof, trust)?;
        self.keys.insert(entry.epoch, entry);
        let held = |epoch: &u32| self.tokens.iter().any(|held| held.token.epoch == *epoch);
        while self.keys.len() > KEYS_MAX {
            let Some(unused) = self.keys.keys().copied().find(|epoch| !held(epoch)) else { break };
            self.keys.remove(&unused);
        }
        Ok(())
    }

    /// Whether it is time to fill.
    pub fn should_fill(&self) -> bool {
        self.filling.is_none()
            && self.token_counts().0 < self.config.low_water
            && self.tokens.len() + BATCH <= TOKENS_MAX
    }

    /// Begins to fill with tokens of the newest epoch that is valid. `false` if it fills already, or no key is known.
    pub fn begin_filling(&mut self, now: Instant, seed: Seed) -> bool {
        let valid = self.keys.values().rev().find(|entry| entry.is_valid(now));
        let (Some(entry), None) = (valid, &self.filling) else { return false };
        self.filling = Some(Filling { epoch: entry.epoch, seed });
        true
    }

    /// The request of the batch that is being filled, signed by the operator: each time the same octets.
    pub fn filling_request(&self, certificate: &Certificate, key: &SigningKey) -> Option<Vec<u8>> {
        let filling = self.filling.as_ref()?;
        let issuer = &self.keys.get(&filling.epoch)?.key;
        let blinded = filling.blinded(issuer)?;
        let (broker, certificate) = (self.broker.clone(), certificate.clone());
        Some(TokenRequest::signed(broker, certificate, filling.epoch, blinded, key).to_octets())
    }

    /// Takes the broker's answer to `request`. Errors: [`WalletError`]; the batch stays asked for, unless the broker refused it.
    pub fn finish_filling(&mut self, request: &[u8], answer: &[u8], now: Instant) -> Result<(), WalletError> {
        let (asked, evaluated, proof) = match TokenAnswer::parse(answer)? {
            TokenAnswer::Issued { request, evaluated, proof } => (request, evaluated, proof),
            TokenAnswer::Refused(cause) => {
                self.filling = None;
                return Err(WalletError::NotIssued(cause));
            }
        };
        let filling = self.filling.as_ref().ok_or(WalletError::NoPendingRequest)?;
        if asked != hash(&[request]) {
            return Err(WalletError::RequestMismatch);
        }
        let issuer = &self.keys.get(&filling.epoch).ok_or(WalletError::NoPendingRequest)?.key;
        let tokens = filling.tokens();
        let inputs: Vec<_> = tokens.iter().map(|(token, ..)| token.input(issuer)).collect();
        let blinds: Vec<_> = tokens.iter().map(|(.., blind)| blind.clone()).collect();
        let blinded = filling.blinded(issuer).ok_or(WalletError::NoPendingRequest)?;
        let outputs = finalize_batch(issuer, &inputs, &blinds, &blinded[..], &evaluated[..], &proof)
            .ok_or(WalletError::NotUnderLoggedKey)?;
        let held = |((token, secret, _), output)| WalletToken {
            token,
            secret,
            output,
            obtained_s: now.as_secs(),
            request_nonce: None,
        };
        self.tokens.extend(tokens.into_iter().zip(outputs).map(held));
        self.filling = None;
        Ok(())
    }

    /// Begins to spend a token that has rested, drawn by `seed` from all that have. Gives its hash and the request, each time the same
    /// for this token. `None` if no token has rested.
    pub fn begin_spending(&mut self, now: Instant, seed: &Seed) -> Option<(TokenHash, Vec<u8>)> {
        let rested = |held: &WalletToken| {
            let valid = self.keys.get(&held.token.epoch).is_some_and(|entry| entry.is_valid(now));
            let age = now.as_secs().saturating_sub(held.obtained_s);
            valid && held.request_nonce.is_none() && age >= self.config.age_min_s
        };
        let rested: Vec<_> = (0..self.tokens.len()).filter(|&n| rested(&self.tokens[n])).collect();
        let drawn = u64::from_be_bytes(*VEIL.draw(seed, "which token"));
        let at = *rested.get((drawn % (rested.len().max(1) as u64)) as usize)?;
        self.tokens[at].request_nonce = Some(*VEIL.draw(seed, "nonce"));
        self.request(&self.tokens[at])
    }

    fn request(&self, held: &WalletToken) -> Option<(TokenHash, Vec<u8>)> {
        let issuer = &self.keys.get(&held.token.epoch)?.key;
        let request = GroupRequest::new(self.broker.clone(), held.token, held.request_nonce?, &held.output);
        Some((held.token.hash(issuer), request.to_octets()))
    }

    /// The requests of tokens that are being spent and have not been answered: after a start, send them again.
    pub fn pending_requests(&self) -> Vec<(TokenHash, Vec<u8>)> {
        self.tokens.iter().filter_map(|held| self.request(held)).collect()
    }

    /// Takes the broker's answer for a token that is being spent. The token leaves the wallet, opened or
    /// refused. Errors: [`WalletError`]; an answer that is not the broker's changes nothing.
    pub fn finish_spending(&mut self, token: TokenHash, answer: &[u8]) -> Result<Group, WalletError> {
        let answer = GroupAnswer::parse(answer)?;
        let is_token = |held: &WalletToken| {
            let entry = self.keys.get(&held.token.epoch);
            entry.is_some_and(|entry| held.token.hash(&entry.key) == token)
        };
        let at = self.tokens.iter().position(is_token).ok_or(WalletError::NoPendingRequest)?;
        let held = &self.tokens[at];
        let nonce = held.request_nonce.ok_or(WalletError::NoPendingRequest)?;
        if let GroupAnswer::Refused(cause) = answer {
            self.tokens.swap_remove(at);
            return Err(WalletError::NotOpened(cause));
        }
        let until = answer.is_open(&token, &nonce, &held.output).ok_or(WalletError::RequestMismatch)?;
        let held = self.tokens.swap_remove(at);
        Ok(Group { hash: token, signing: SigningKey::new(&held.secret), until })
    }

    /// Drops the tokens of epochs that are over. Gives their number.
    pub fn drop_expired(&mut self, now: Instant) -> usize {
        let before = self.tokens.len();
        let keys = &self.keys;
        let over = |entry: &KeyEntry| now.as_secs() > entry.validity.until;
        self.tokens.retain(|held| keys.get(&held.token.epoch).is_some_and(|entry| !over(entry)));
        if self.filling.as_ref().is_some_and(|f| keys.get(&f.epoch).is_none_or(over)) {
            self.filling = None;
        }
        before - self.tokens.len()
    }

    /// Its octets, with all secrets: to be stored where only the operator reads.
    pub fn to_octets(&self) -> Zeroizing<Vec<u8>> {
        // Room for all, so that no growth leaves secrets in freed memory.
        let room = 512 + KEYS_MAX * (2 + KeyEntry::OCTETS_MAX) + self.tokens.len() * Self::TOKEN_OCTETS;
        let mut out = Zeroizing::new(Vec::with_capacity(room));
        out.extend_from_slice(&MessageType::Wallet.begin());
        self.broker.emit(&mut out);
        out.extend_from_slice(&self.config.age_min_s.to_be_bytes());
        out.extend_from_slice(&(self.config.low_water as u32).to_be_bytes());
        out.extend_from_slice(&self.seen.size.to_be_bytes());
        out.extend_from_slice(&self.seen.root);
        out.push(self.keys.len() as u8);
        self.keys.values().for_each(|entry| emit_part(&entry.to_octets(), &mut out));
        match &self.filling {
            None => out.push(0),
            Some(filling) => {
                out.push(1);
                out.extend_from_slice(&filling.epoch.to_be_bytes());
                out.extend_from_slice(filling.seed.octets());
            }
        }
        out.extend_from_slice(&(self.tokens.len() as u32).to_be_bytes());
        for held in &self.tokens {
            out.extend_from_slice(&held.token.epoch.to_be_bytes());
            out.extend_from_slice(&held.secret[..]);
            out.extend_from_slice(held.output.octets());
            out.extend_from_slice(&held.obtained_s.to_be_bytes());
            out.push(u8::from(held.request_nonce.is_some()));
            out.extend_from_slice(&held.request_nonce.unwrap_or_default());
        }
        out
    }

    const TOKEN_OCTETS: usize = 4 + 32 + OUTPUT_OCTETS + 8 + 1 + 16;

    /// Reads it back. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        const IE: &str = "wallet";
        whole(octets, |r| {
            MessageType::Wallet.read(r)?;
            let broker = Domain::read(r)?;
            let config = WalletConfig { age_min_s: r.u64(IE)?, low_water: r.u32(IE)? as usize };
            let seen = SeenHead { size: r.u64(IE)?, root: r.array(IE)? };
            let too_many = r.error(DecodeErrorKind::TooMany, "keys");
            let count = usize::from(r.u8(IE)?);
            // A key of held tokens is kept above the bound, one for each epoch of a wallet that was not used for long.
            if count > crate::log::EPOCHS_MAX as usize {
                return Err(too_many);
            }
            let mut keys = BTreeMap::new();
            for _ in 0..count {
                let wrong = r.error(DecodeErrorKind::InvalidValue, "keys");
                let entry = KeyEntry::parse(read_part(r, KeyEntry::OCTETS_MAX, "key entry")?)?;
                if keys.last_key_value().is_some_and(|(last, _)| *last >= entry.epoch) {
                    return Err(wrong);
                }
                keys.insert(entry.epoch, entry);
            }
            let filling = match read_flag(r, "filling")? {
                false => None,
                true => Some(Filling { epoch: r.u32(IE)?, seed: Seed::new(r.array(IE)?) }),
            };
            let too_many = r.error(DecodeErrorKind::TooMany, "tokens");
            let count = r.u32(IE)? as usize;
            if count > TOKENS_MAX {
                return Err(too_many);
            }
            let mut tokens = Vec::with_capacity(count.min(r.remaining() / Self::TOKEN_OCTETS));
            for _ in 0..count {
                tokens.push(Self::read_token(r)?);
            }
            Ok(Self { broker, config, seen, keys, filling, tokens })
        })
    }

    fn read_token(r: &mut Reader<'_>) -> Result<WalletToken, DecodeError> {
        const IE: &str = "token";
        let epoch = r.u32(IE)?;
        let secret = Zeroizing::new(r.array(IE)?);
        let output = Output::new(r.array(IE)?);
        let obtained_s = r.u64(IE)?;
        let spends = read_flag(r, "spending")?;
        let wrong = r.error(DecodeErrorKind::InvalidValue, "nonce");
        let nonce = r.array::<16>(IE)?;
        if !spends && nonce != [0; 16] {
            return Err(wrong);
        }
        let token = Token { epoch, key: SigningKey::new(&secret).verifying_key() };
        Ok(WalletToken { token, secret, output, obtained_s, request_nonce: spends.then_some(nonce) })
    }

    /// The validity of an epoch whose key is known.
    pub fn epoch_validity(&self, epoch: u32) -> Option<Validity> {
        self.keys.get(&epoch).map(|entry| entry.validity)
    }
}

//! The broker cannot tell whose a token is: a game over its transcripts, judged by statistics.
//!
//! Two operators have tokens issued under their names and spend them in an order that a coin decides. A linker has all that the broker has,
//! the issuing key too, and guesses whose each token is that opens a group. If blinding hides the token, each linker is right as
//! often as a coin. Wallets whose blinds are weak play the same game, and some linker is right far more often.

use whimbrel_ids::Instant;
use whimbrel_privacy::broker::BrokerEvent;
use whimbrel_privacy::crypto::hash;
use whimbrel_privacy::msg::{GroupRequest, TokenRequest};
use whimbrel_privacy::token::{BATCH, Token};
use whimbrel_privacy::voprf::{Blind, Element};

use crate::world::*;

/// Tokens of the game, two batches of each operator.
const TOKENS: usize = 4 * BATCH;

/// How a wallet that is broken blinds its tokens.
#[derive(Clone, Copy, Debug)]
enum Blinding {
    /// Not at all: the blind is one.
    Not,
    /// By a number that can be tried.
    Small,
    /// By a number that follows from the token, which is known once it is spent.
    OfToken,
}

/// What the broker has of a batch.
struct Issued {
    operator: usize,
    blinded: Vec<[u8; 32]>,
}

/// What the broker has of a spent token, and whose it was.
struct Spent {
    token: Token,
    operator: usize,
}

fn coin(what: &str, n: usize) -> usize {
    usize::from(hash(&[what.as_bytes(), &(n as u64).to_be_bytes()])[0] & 1)
}

fn small(n: u8) -> Blind {
    let mut octets = [0; 64];
    octets[0] = n;
    Blind::new(&octets).unwrap()
}

fn of_token(token: &Token) -> Blind {
    let half = hash(&[b"blind", &token.key.octets()]);
    Blind::new(&[half, half].concat().try_into().unwrap()).unwrap()
}

fn blind_of(blinding: Blinding, token: &Token, n: usize) -> Blind {
    match blinding {
        Blinding::Not => small(1),
        Blinding::Small => small(2 + (n % 7) as u8),
        Blinding::OfToken => of_token(token),
    }
}

/// Plays the game with true wallets, messages and broker.
fn wallets() -> (Vec<Issued>, Vec<Spent>) {
    let mut broker = broker();
    let mut wallets = [wallet(), wallet()];
    let mut issued = Vec::new();
    for batch in 0..4 {
        let operator = batch % 2;
        let octets = fill(&mut wallets[operator], &mut broker, operator as u64 + 1, NOW, batch as u64);
        let request = TokenRequest::parse(&octets).unwrap();
        let blinded = request.blinded.iter().map(|element| *element.octets()).collect();
        issued.push(Issued { operator, blinded });
    }
    let now: Instant = at(AGE_S);
    let spent = order(|n, operator| {
        let (token, octets) = wallets[operator].begin_spending(now, &seed("spend", n as u64)).unwrap();
        let output = broker.open_group(&octets, now);
        assert!(matches!(output.event, BrokerEvent::Opened(opened) if opened == token));
        Spent { token: GroupRequest::parse(&octets).unwrap().token, operator }
    });
    (issued, spent)
}

/// Plays it with tokens that are blinded weakly.
fn weak(blinding: Blinding) -> (Vec<Issued>, Vec<Spent>) {
    let issuer = *issuer(0).1.public();
    let token = |n: usize| Token { epoch: 0, key: key(&format!("token {n}")).verifying_key() };
    let blinded =
        |n: usize| *blind_of(blinding, &token(n), n).blind(&token(n).input(&issuer)).unwrap().octets();
    let batch = |batch: usize| Issued {
        operator: batch % 2,
        blinded: (batch * BATCH..(batch + 1) * BATCH).map(blinded).collect(),
    };
    let issued = (0..4).map(batch).collect();
    let mut left: [Vec<usize>; 2] = [0, 1].map(|o| (0..TOKENS).filter(|n| n / BATCH % 2 == o).collect());
    let spent = order(|_, operator| {
        let own = &mut left[operator];
        let at = own.len() / 2;
        Spent { token: token(own.swap_remove(at)), operator }
    });
    (issued, spent)
}

/// All tokens, in an order that a coin decides.
fn order(mut spend: impl FnMut(usize, usize) -> Spent) -> Vec<Spent> {
    let mut left = [TOKENS / 2; 2];
    let one = |n| {
        let toss = coin("order", n);
        let operator = if left[toss] > 0 { toss } else { 1 - toss };
        left[operator] -= 1;
        spend(n, operator)
    };
    (0..TOKENS).map(one).collect()
}

/// Whose a token is, if the linker has an opinion.
type Linker = fn(&Element, &[Issued], &Token) -> Option<usize>;

fn owner_of(issued: &[Issued], element: &[u8; 32]) -> Option<usize> {
    issued.iter().find(|batch| batch.blinded.contains(element)).map(|batch| batch.operator)
}

/// Tries the blinds one by one.
fn by_trial(issuer: &Element, issued: &[Issued], token: &Token) -> Option<usize> {
    let input = token.input(issuer);
    let mut tries = (1..=10).map(small);
    tries.find_map(|blind| owner_of(issued, blind.blind(&input).unwrap().octets()))
}

/// Derives the blind from the token.
fn by_derivation(issuer: &Element, issued: &[Issued], token: &Token) -> Option<usize> {
    owner_of(issued, of_token(token).blind(&token.input(issuer)).unwrap().octets())
}

/// Takes the blinded element whose bits differ least from the token's element.
fn by_nearness(issuer: &Element, issued: &[Issued], token: &Token) -> Option<usize> {
    let own = *small(1).blind(&token.input(issuer)).unwrap().octets();
    let distance = |one: &[u8; 32]| one.iter().zip(own).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
    let all = issued.iter().flat_map(|batch| batch.blinded.iter().map(|one| (distance(one), batch.operator)));
    all.min().map(|(_, operator)| operator)
}

/// Takes the blinded element that sorts next to the token's key.
fn by_order(_: &Element, issued: &[Issued], token: &Token) -> Option<usize> {
    let own = token.key.octets();
    let all = issued.iter().flat_map(|batch| batch.blinded.iter().map(|one| (*one, batch.operator)));
    all.filter(|(one, _)| *one >= own).min().map(|(_, operator)| operator)
}

/// By how many standard deviations each linker is right more often than a coin.
fn deviations((issued, spent): &(Vec<Issued>, Vec<Spent>)) -> Vec<f64> {
    let issuer = *issuer(0).1.public();
    let linkers: [Linker; 4] = [by_trial, by_derivation, by_nearness, by_order];
    let right = |linker: &Linker| {
        let guess = |(n, one): (usize, &Spent)| {
            linker(&issuer, issued, &one.token).unwrap_or_else(|| coin("guess", n)) == one.operator
        };
        spent.iter().enumerate().filter(|(n, one)| guess((*n, one))).count()
    };
    let n = spent.len() as f64;
    linkers.iter().map(|linker| (right(linker) as f64 - n / 2.0) / (n.sqrt() / 2.0)).collect()
}

#[test]
fn no_linker_does_better_than_a_coin_on_the_wallets_transcripts() {
    let deviations = deviations(&wallets());
    // Four standard deviations: by chance once in some 16,000 games, and this game is always the same.
    assert!(deviations.iter().all(|z| z.abs() < 4.0), "{deviations:?}");
}

#[test]
fn the_game_finds_each_weak_blinding() {
    for blinding in [Blinding::Not, Blinding::Small, Blinding::OfToken] {
        let deviations = deviations(&weak(blinding));
        assert!(deviations.iter().any(|z| *z > 10.0), "{blinding:?}: {deviations:?}");
    }
}

//! Blind tokens that are issued and redeemed in a second of one core, beside the chapter's RSA tokens and beside the `voprf` crate,
//! which has the same function over other code.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use clap::Args;
use serde_json::json;
use voprf::{BlindedElement, EvaluationElement, Ristretto255, VoprfClient, VoprfServer};
use whimbrel_open::crypto::SigningKey as AuthorityKey;
use whimbrel_open::id::{Nid, OperatorId};
use whimbrel_open::msg::{Certificate, Subject, Trust, Validity};
use whimbrel_privacy::broker::{Broker, BrokerConfig, BrokerEvent, Policy};
use whimbrel_privacy::crypto::SigningKey;
use whimbrel_privacy::log::KeyEntry;
use whimbrel_privacy::msg::{GroupRequest, TokenRequest};
use whimbrel_privacy::token::{BATCH, Token};
use whimbrel_privacy::voprf::{Blind, Element, IssuerKey, finalize_batch};

use super::finish;
use crate::measure::core_time;
use crate::plot::{Axis, Plot, Series};

/// Tokens a second and core of the chapter, issued and redeemed.
const CHAPTER: [f64; 2] = [522.0, 17_202.0];
/// What is to be reached.
const GOAL: [f64; 2] = [10_000.0, 20_000.0];
/// Seed of the issuing key, here and of the other code.
const ISSUER: [u8; 32] = [7; 32];

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Batches of 64 tokens.
    #[arg(long, default_value_t = 300)]
    batches: usize,
}

impl Options {
    pub(super) fn quick(&mut self) {
        self.batches = 1;
    }
}

fn failed(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}

fn domain() -> whimbrel_open::id::Domain {
    "b.example".parse().expect("a domain")
}

fn time() -> whimbrel_ids::Instant {
    whimbrel_ids::Instant(1_800_000_000_000_000)
}

/// A broker with one operator and one issuing key, and the operator's certificate.
fn broker() -> io::Result<(Broker, Certificate, SigningKey, Element)> {
    let authority = AuthorityKey::new(&[1; 32]);
    let operator = OperatorId { plmn: whimbrel_ids::PlmnId::TEST, nid: Nid::new(1) };
    let validity = Validity { from: 0, until: u64::MAX };
    let operator_key = AuthorityKey::new(&[2; 32]).verifying_key();
    let certificate = Certificate::issue(&authority, Subject::Operator(operator), operator_key, validity, 1);
    let policy = Policy {
        operators: [operator].into(),
        batches_max: u32::MAX,
        group_s: 60,
        validity_s: 3_600,
        slice_octets: 10_000_000,
        poll_s: 2,
        classes: Vec::new(),
    };
    let trust = Trust::new(vec![authority.verifying_key()]).ok_or_else(|| failed("no authority"))?;
    let config = BrokerConfig {
        domain: domain(),
        network: whimbrel_ids::PlmnId::TEST,
        signing: SigningKey::new(&[3; 32]),
        trust,
        policy,
    };
    let mut broker = Broker::new(config, (1, whimbrel_open::crypto::PrivateKey::new([4; 32])));
    let key = IssuerKey::derive(&ISSUER, b"").ok_or_else(|| failed("no issuing key"))?;
    let public = *key.public();
    let entry = KeyEntry { broker: domain(), epoch: 0, key: public, validity };
    broker.add_issuer(entry, key).ok_or_else(|| failed("the entry is of another key"))?;
    Ok((broker, certificate, SigningKey::new(&[2; 32]), public))
}

/// The nth token and its blind.
fn token(n: u64) -> io::Result<(Token, Blind)> {
    let secret = whimbrel_privacy::crypto::hash(&[b"token", &n.to_be_bytes()]);
    let key = SigningKey::new(&secret).verifying_key();
    let mut octets = [9; 64];
    octets[..32].copy_from_slice(&secret);
    let blind = Blind::new(&octets).ok_or_else(|| failed("a blind of zero"))?;
    Ok((Token { epoch: 0, key }, blind))
}

struct Batch {
    tokens: Vec<Token>,
    blinds: Vec<Blind>,
    blinded: Box<[Element; BATCH]>,
}

fn batch(n: usize, issuer: &Element) -> io::Result<Batch> {
    let members = (0..BATCH).map(|i| token((n * BATCH + i) as u64)).collect::<io::Result<Vec<_>>>()?;
    let (tokens, blinds): (Vec<_>, Vec<_>) = members.into_iter().unzip();
    let blinded: Option<Vec<_>> =
        tokens.iter().zip(&blinds).map(|(token, blind)| blind.blind(&token.input(issuer))).collect();
    let blinded =
        blinded.and_then(|all| all.try_into().ok()).ok_or_else(|| failed("a token without element"))?;
    Ok(Batch { tokens, blinds, blinded: Box::new(blinded) })
}

/// Tokens a second of processor time: issued, unblinded by the operator, redeemed; the whole requests, from octets to octets.
struct Rates {
    issued: f64,
    unblinded: f64,
    redeemed: f64,
}

fn ours(batches: usize) -> io::Result<Rates> {
    let (mut broker, certificate, signing, issuer) = broker()?;
    let all = (0..batches).map(|n| batch(n, &issuer)).collect::<io::Result<Vec<_>>>()?;
    let requests: Vec<_> = all
        .iter()
        .map(|b| {
            TokenRequest::signed(domain(), certificate.clone(), 0, b.blinded.clone(), &signing).to_octets()
        })
        .collect();
    let begin = core_time();
    let answers: Vec<_> = requests.iter().map(|octets| broker.issue(octets, time())).collect();
    let issuing = core_time() - begin;
    let mut redeeming = Vec::with_capacity(batches * BATCH);
    let begin = core_time();
    for (batch, answer) in all.iter().zip(&answers) {
        let BrokerEvent::Issued(_) = answer.event else { return Err(failed("not issued")) };
        let whimbrel_privacy::msg::TokenAnswer::Issued { evaluated, proof, .. } =
            whimbrel_privacy::msg::TokenAnswer::parse(&answer.octets).map_err(|e| failed(&e.to_string()))?
        else {
            return Err(failed("not issued"));
        };
        let inputs: Vec<_> = batch.tokens.iter().map(|token| token.input(&issuer)).collect();
        let outputs =
            finalize_batch(&issuer, &inputs, &batch.blinds, &batch.blinded[..], &evaluated[..], &proof)
                .ok_or_else(|| failed("the proof does not hold"))?;
        redeeming.extend(batch.tokens.iter().copied().zip(outputs));
    }
    let unblinding = core_time() - begin;
    let requests: Vec<_> = redeeming
        .iter()
        .map(|(token, output)| GroupRequest::new(domain(), *token, [5; 16], output).to_octets())
        .collect();
    let begin = core_time();
    for octets in &requests {
        if !matches!(broker.open_group(octets, time()).event, BrokerEvent::Opened(_)) {
            return Err(failed("not redeemed"));
        }
    }
    let redeemed = core_time() - begin;
    let rate = |time: std::time::Duration| ((batches * BATCH) as f64 / time.as_secs_f64().max(1e-9)).round();
    Ok(Rates { issued: rate(issuing), unblinded: rate(unblinding), redeemed: rate(redeemed) })
}

/// A random source for the other code, which takes its proof's scalar from one. Measurements need no secrets.
struct Counted(u64);

impl rand_core::RngCore for Counted {
    fn next_u32(&mut self) -> u32 {
        self.next_u64() as u32
    }

    fn next_u64(&mut self) -> u64 {
        self.0 += 1;
        let digest = whimbrel_privacy::crypto::hash(&[&self.0.to_be_bytes()]);
        u64::from_be_bytes([
            digest[0], digest[1], digest[2], digest[3], digest[4], digest[5], digest[6], digest[7],
        ])
    }

    fn fill_bytes(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_be_bytes()[..chunk.len()]);
        }
    }
}

impl rand_core::CryptoRng for Counted {}

/// The function alone by the `voprf` crate: issued and redeemed a second of processor time, with a set of spent tokens as ours has.
fn theirs(batches: usize) -> io::Result<[f64; 2]> {
    let wrong = |e: voprf::Error| failed(&e.to_string());
    let server = VoprfServer::<Ristretto255>::new_from_seed(&ISSUER, b"").map_err(wrong)?;
    let mut random = Counted(0);
    let (_, _, _, issuer) = broker()?;
    let inputs = (0..BATCH).map(|n| Ok(token(n as u64)?.0.input(&issuer))).collect::<io::Result<Vec<_>>>()?;
    let blind = |input: &Vec<u8>| VoprfClient::<Ristretto255>::blind(input, &mut random);
    let blinded = inputs.iter().map(blind).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let octets: Vec<_> = blinded.iter().map(|one| one.message.serialize()).collect();
    let begin = core_time();
    for _ in 0..batches {
        let read = octets.iter().map(|o| BlindedElement::<Ristretto255>::deserialize(o));
        let read = read.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        let prepared: Vec<_> = server.batch_blind_evaluate_prepare(read.iter()).collect();
        let done = server.batch_blind_evaluate_finish(&mut random, read.iter(), &prepared).map_err(wrong)?;
        let written: Vec<_> = done.messages.map(|m: EvaluationElement<Ristretto255>| m.serialize()).collect();
        std::hint::black_box((written, done.proof.serialize()));
    }
    let issuing = core_time() - begin;
    let mut spent = BTreeMap::new();
    let begin = core_time();
    for n in 0..batches {
        for input in &inputs {
            spent.insert((n, server.evaluate(input).map_err(wrong)?), ());
        }
    }
    let redeeming = core_time() - begin;
    Ok([issuing, redeeming].map(|time| ((batches * BATCH) as f64 / time.as_secs_f64().max(1e-9)).round()))
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    let Rates { issued, unblinded, redeemed } = ours(options.batches)?;
    let [their_issued, their_redeemed] = theirs(options.batches)?;
    println!("tokens a second of one core (chapter 4.6.2.1: RSA blind signatures, 2.6 GHz)");
    println!("{:12} {:>9} {:>9} {:>9} {:>12}", "", "chapter", "ours", "goal", "voprf crate");
    let line = |what, at: usize, ours: f64, theirs: f64| {
        println!("{what:12} {:>9} {ours:>9} {:>9} {theirs:>12}", CHAPTER[at], GOAL[at]);
    };
    line("issued", 0, issued, their_issued);
    line("redeemed", 1, redeemed, their_redeemed);
    println!("unblinded by the operator: {unblinded}");
    println!(
        "ours are whole requests, from octets to octets: signature, quota, spent tokens; the crate's the function alone"
    );
    let bars = |of: [f64; 2]| of.into_iter().enumerate().map(|(i, v)| (i as f64, v)).collect();
    let plot = Plot {
        title: "Blind tokens",
        x: "",
        y: "tokens a second of one core",
        log_y: true,
        axis: Axis::Names(["issued", "redeemed"].map(String::from).to_vec()),
        series: vec![
            Series { name: "chapter".into(), points: bars(CHAPTER) },
            Series { name: "ours".into(), points: bars([issued, redeemed]) },
            Series { name: "voprf crate".into(), points: bars([their_issued, their_redeemed]) },
            Series { name: "goal".into(), points: bars(GOAL) },
        ],
    };
    plot.write(plots, "loca-tokens")?;
    finish(
        "tokens",
        &json!({
            "tokens": options.batches * BATCH,
            "issued_per_s": issued, "redeemed_per_s": redeemed, "unblinded_per_s": unblinded,
            "chapter_per_s": CHAPTER, "goal_per_s": GOAL, "voprf_crate_per_s": [their_issued, their_redeemed],
        }),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // RFC 9497 §3.3.2: two implementations that share no code but the group's understand each other
    fn ours_and_the_voprf_crate_understand_each_other() {
        let own = IssuerKey::derive(&ISSUER, b"info").unwrap();
        let other = VoprfServer::<Ristretto255>::new_from_seed(&ISSUER, b"info").unwrap();
        let public = other.get_public_key();
        assert_eq!(own.public().octets(), &public.compress().to_bytes());
        let inputs: Vec<_> = (0..5).map(|n| token(n).unwrap().0.input(own.public())).collect();
        // Their client, our issuer.
        let mut random = Counted(1);
        let blinded: Vec<_> =
            inputs.iter().map(|i| VoprfClient::<Ristretto255>::blind(i, &mut random).unwrap()).collect();
        let read: Vec<_> = blinded
            .iter()
            .map(|b| Element::from_octets(b.message.serialize().as_slice().try_into().unwrap()).unwrap())
            .collect();
        let (evaluated, proof) = own.evaluate_blinded(&read);
        let messages: Vec<_> =
            evaluated.iter().map(|e| EvaluationElement::<Ristretto255>::deserialize(e).unwrap()).collect();
        let proof = voprf::Proof::<Ristretto255>::deserialize(&proof.to_octets()).unwrap();
        let states: Vec<_> = blinded.into_iter().map(|b| b.state).collect();
        let outputs = VoprfClient::batch_finalize(&inputs, &states, &messages, &proof, public).unwrap();
        for (output, input) in outputs.zip(&inputs) {
            let output = output.unwrap();
            assert_eq!(own.evaluate(input).unwrap().octets()[..], output[..]);
            assert_eq!(other.evaluate(input).unwrap(), output);
        }
        // Our operator, their issuer.
        let blinds: Vec<_> = (0..5).map(|n| token(n).unwrap().1).collect();
        let blinded: Vec<_> = blinds.iter().zip(&inputs).map(|(b, i)| b.blind(i).unwrap()).collect();
        let read: Vec<_> = blinded
            .iter()
            .map(|e| BlindedElement::<Ristretto255>::deserialize(e.octets()).unwrap())
            .collect();
        let prepared: Vec<_> = other.batch_blind_evaluate_prepare(read.iter()).collect();
        let done = other.batch_blind_evaluate_finish(&mut random, read.iter(), &prepared).unwrap();
        let proof = done.proof.serialize().as_slice().try_into().unwrap();
        let proof = whimbrel_privacy::voprf::Proof::from_octets(&proof).unwrap();
        let evaluated: Vec<_> = done
            .messages
            .map(|m: EvaluationElement<Ristretto255>| {
                Element::from_octets(m.serialize().as_slice().try_into().unwrap()).unwrap()
            })
            .collect();
        let outputs = finalize_batch(own.public(), &inputs, &blinds, &blinded, &evaluated, &proof).unwrap();
        for (output, input) in outputs.iter().zip(&inputs) {
            assert_eq!(own.evaluate(input).as_ref(), Some(output));
        }
    }
}

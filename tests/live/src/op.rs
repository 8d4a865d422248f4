//! What the fuzzer does, one small thing after the other. Each says by itself, by numbers and seeds alone, what is to be
//! done: so that a run can be written down, cut down and done again.

use serde::{Deserialize, Serialize};

use crate::rng::Rng;

/// A genuine procedure of a UE of the fuzzer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Act {
    Register,
    Periodic,
    Session,
    ReleaseSession,
    Service,
    Deregister,
    SwitchOff,
    Idle,
    Ping,
    XnHandover,
    N2Handover,
    /// To another cell without handover.
    Camp,
}

const ACTS: [Act; 12] = [
    Act::Register,
    Act::Periodic,
    Act::Session,
    Act::ReleaseSession,
    Act::Service,
    Act::Deregister,
    Act::SwitchOff,
    Act::Idle,
    Act::Ping,
    Act::XnHandover,
    Act::N2Handover,
    Act::Camp,
];

/// Things that are done, on the average, before UEs and gNBs are new ones. Long enough to break much, short enough that not
/// all UEs stay refused for good.
const RENEW_AFTER: usize = 400;

/// A thing that the run does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "op")]
pub(crate) enum Op {
    /// A UE does something in earnest.
    Ue { ue: u16, act: Act },
    /// The UE's next protected message is altered before it is protected.
    AlterNas { ue: u16, seed: u64 },
    /// The UE says something that its state does not ask for, protected where protection stands.
    SayNas { ue: u16, seed: u64 },
    /// The gNB's next message is altered.
    AlterNgap { gnb: u8, seed: u64 },
    /// The gNB's next message is lost.
    Lose { gnb: u8 },
    /// The gNB's next message is sent twice.
    Twice { gnb: u8 },
    /// The gNB's next message waits until the one after it.
    Hold { gnb: u8 },
    /// Some message of NGAP, with names of UEs of this gNB, of others, or unknown.
    Ngap { gnb: u8, seed: u64 },
    /// A message of a handover, at any step and in any order, with names of UEs of this gNB or of others.
    Handover { gnb: u8, seed: u64 },
    /// The gNBs and UEs are new ones: what they had come to is forgotten on their side.
    Renew,
    /// An INITIAL UE MESSAGE by hand: some NAS message in clear or as if protected, some names.
    UnknownUe { gnb: u8, seed: u64 },
    /// Something that a gNB of the fuzzer sent before, from this one.
    Again { gnb: u8, seed: u64 },
    /// SCTP misused: another payload protocol, another stream, nothing within, or far too much.
    Transport { gnb: u8, seed: u64 },
    /// The association ends and is set up again.
    Restart { gnb: u8, gracefully: bool },
    /// Packets of SCTP, altered or made up, from an address of its own.
    Sctp { seed: u64 },
    /// The gNB's next GTP-U datagram is altered.
    AlterGtpu { gnb: u8, seed: u64 },
    /// A GTP-U datagram by hand.
    Gtpu { gnb: u8, seed: u64 },
    /// A packet from the data network towards UEs.
    Downlink { seed: u64 },
    /// A message of PFCP from an SMF of the fuzzer.
    Pfcp { seed: u64 },
    /// A request to the API, or what looks like one.
    Http { seed: u64 },
    /// A request to the console's port.
    Console { seed: u64 },
    /// A connection to the manager of a unit.
    Unit { seed: u64 },
    /// A request to a broker, or what looks like one.
    Broker { seed: u64 },
    /// Time in which nothing is done.
    Pause { ms: u16 },
}

/// Which conversations are fuzzed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    N2,
    N3,
    N4,
    Api,
    Console,
    Unit,
    Broker,
}

impl Part {
    pub(crate) const ALL: [Self; 7] =
        [Self::N2, Self::N3, Self::N4, Self::Api, Self::Console, Self::Broker, Self::Unit];
    /// Those that are fuzzed at once: all but the manager of a unit, for which the program runs in another form.
    pub(crate) const TOGETHER: [Self; 6] =
        [Self::N2, Self::N3, Self::N4, Self::Api, Self::Console, Self::Broker];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::N2 => "n2",
            Self::N3 => "n3",
            Self::N4 => "n4",
            Self::Api => "api",
            Self::Console => "console",
            Self::Unit => "unit",
            Self::Broker => "broker",
        }
    }

    /// The next thing to do.
    pub(crate) fn draw(self, rng: &mut Rng, ues: u16, gnbs: u8) -> Op {
        let ue = rng.below(usize::from(ues)) as u16;
        let gnb = rng.below(usize::from(gnbs)) as u8;
        let seed = rng.number() >> 16;
        let act = ACTS[rng.below(ACTS.len())];
        let earnest = |rng: &mut Rng| match rng.below(3) {
            // Most of what there is to break stands behind a registration and a session.
            0 => Op::Ue { ue, act: Act::Register },
            1 => Op::Ue { ue, act: Act::Session },
            _ => Op::Ue { ue, act },
        };
        if rng.once_in(40) {
            let long = if rng.once_in(10) { 2500 } else { 60 };
            return Op::Pause { ms: [1, 5, 20, long][rng.below(4)] };
        }
        match self {
            Self::N2 if rng.once_in(RENEW_AFTER) => Op::Renew,
            Self::N2 => match rng.below(36) {
                0..=8 => earnest(rng),
                9..=11 => Op::AlterNas { ue, seed },
                12..=15 => Op::SayNas { ue, seed },
                16..=18 => Op::AlterNgap { gnb, seed },
                19 => Op::Lose { gnb },
                20 => Op::Twice { gnb },
                21 => Op::Hold { gnb },
                22..=24 => Op::Ngap { gnb, seed },
                25 | 26 => Op::UnknownUe { gnb, seed },
                27 => Op::Again { gnb, seed },
                28 => Op::Sctp { seed },
                29..=31 => Op::Handover { gnb, seed },
                32..=34 => Op::Ue { ue, act: [Act::XnHandover, Act::N2Handover][rng.below(2)] },
                _ if rng.once_in(6) => Op::Restart { gnb, gracefully: seed & 1 == 0 },
                _ => Op::Transport { gnb, seed },
            },
            Self::N3 => match rng.below(16) {
                0..=1 => earnest(rng),
                2..=3 => Op::Ue { ue, act: Act::Ping },
                4..=6 => Op::AlterGtpu { gnb, seed },
                7..=12 => Op::Gtpu { gnb, seed },
                _ => Op::Downlink { seed },
            },
            Self::N4 => Op::Pfcp { seed },
            Self::Api => Op::Http { seed },
            Self::Console => Op::Console { seed },
            Self::Unit => Op::Unit { seed },
            Self::Broker => Op::Broker { seed },
        }
    }
}

/// A thing that was done, and in whose name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) part: Part,
    #[serde(flatten)]
    pub(crate) op: Op,
}

/// A case that can be done again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Case {
    /// What went wrong.
    pub(crate) finding: String,
    /// Of the run that found it.
    pub(crate) seed: u64,
    /// What was done, in order.
    pub(crate) ops: Vec<Done>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_was_written() {
        let mut rng = Rng::new(1);
        let draw = |rng: &mut Rng, i: usize| {
            let part = Part::ALL[i % Part::ALL.len()];
            Done { part, op: part.draw(rng, 8, 2) }
        };
        let ops: Vec<Done> = (0..400).map(|i| draw(&mut rng, i)).collect();
        let text =
            serde_json::to_string(&Case { finding: "none".into(), seed: 1, ops: ops.clone() }).expect("JSON");
        assert_eq!(serde_json::from_str::<Case>(&text).expect("a case").ops, ops);
    }

    #[test]
    fn one_seed_gives_one_run() {
        let run = |seed| {
            let mut rng = Rng::new(seed);
            (0..100).map(|_| Part::N2.draw(&mut rng, 8, 2)).collect::<Vec<_>>()
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }
}

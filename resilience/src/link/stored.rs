//! What messages look like in octets, stored for the version that links have: they do not change unnoticed.
//!
//! Each kind of message has a line, which is what stands in front of a flat form where there is one; forms have versions of their own. What a
//! CTA's successor is given is stored beside [`crate::cta_replica`].

use std::fmt::Write;
use std::net::SocketAddr;

use serde::Serialize;
use serde::de::DeserializeOwned;
use whimbrel_control::{AssociationId, Checkpoint, UeId, UeSummary};
use whimbrel_ids::SNssai;

use super::hello::LINK_VERSION;
use super::octets::{CommandHead, PeerHead, ReportHead};
use super::pair::{CtaReplicaHead, PrimaryHead};
use super::{CpfEntry, CpfTable, HeartbeatKey, LinkRole, UeQuery};
use crate::CodeVersion;
use crate::detector::Incarnation;
use crate::membership::CtaInstance;
use crate::replication::CpfId;

/// The version of links, and its messages.
const STORED: &str = include_str!("testdata/messages.txt");
/// UEs as an operator may want to see them.
const UES: &str = include_str!("../../../control/src/flat/testdata/checkpoint.hex");

const UE: UeId = UeId { slot: 0x00ff_fffe, generation: 3 };

fn at(last: u8) -> SocketAddr {
    ([192, 0, 2, last], 7380).into()
}

fn to_cpf() -> Vec<CommandHead> {
    let supi = "imsi-999700000000001".parse().ok();
    let (life, id, heartbeats) = (1 << 60, CpfId(300), HeartbeatKey([7; 32]));
    vec![
        CommandHead::Run,
        CommandHead::RunAfterTrial(UE),
        CommandHead::Serve { ue: UE, term: 7, backups: vec![CpfId(2), CpfId(3)] },
        CommandHead::Outdated { ue: UE, clock: 1 << 40, up_to_date: vec![CpfId(4)] },
        CommandHead::Released(1 << 40),
        CommandHead::Forget { ue: UE, term: 7 },
        CommandHead::Configure,
        CommandHead::Welcome { life, id, heartbeats, keep: true },
        CommandHead::CtaReplica(Some(at(2))),
        CommandHead::Taken(300),
        CommandHead::Resumed { taken: 7, heartbeats },
        CommandHead::Forgotten,
        CommandHead::Peers(vec![(CpfId(1), at(7)), (CpfId(2), ([0; 16], 1).into())]),
        CommandHead::ListUes { ask: 1, which: UeQuery::Page(supi, 100) },
        CommandHead::ListUes { ask: 2, which: UeQuery::Subscriber(supi.expect("a SUPI")) },
        CommandHead::Hold { ue: UE, term: 7 },
        CommandHead::Store { all: true },
    ]
}

fn to_cta() -> Vec<ReportHead> {
    let octet =
        |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("digits");
    let states = UES.lines().map(|line| line.as_bytes().chunks(2).map(octet).collect::<Vec<u8>>());
    let ues = states.map(|octets| Checkpoint::from_octets(&octets).and_then(|c| c.context()));
    let mut ues: Vec<UeSummary> = ues.map(|p| UeSummary::of(&p.expect("it is read"))).collect();
    // Those that show most.
    ues.sort_by_key(|p| std::cmp::Reverse((p.sessions.len(), p.connection.is_some(), p.seen.is_some())));
    ues.truncate(2);
    vec![
        ReportHead::Join {
            region: "north/harbour".into(),
            address: at(7),
            slice: Some(SNssai::new(1, Some(7))),
        },
        ReportHead::Resume { life: 1 << 60, id: CpfId(9), has: 300 },
        ReportHead::Taken(1 << 40),
        ReportHead::Listed(CpfId(20318)),
        ReportHead::Leave,
        ReportHead::Ran { ue: UE, term: 1, clock: 9, from: Some(AssociationId(4)) },
        ReportHead::CheckpointHeld { ue: UE, term: 7, clock: 300 },
        ReportHead::Poisoned { ue: UE, term: 3, inputs: (8, 9) },
        ReportHead::UeList { ask: 3, ues },
        ReportHead::CheckpointUnusable { ue: UE, term: 3 },
        ReportHead::Stored { term: 7 },
        ReportHead::AllStored,
    ]
}

fn to_peer() -> Vec<PeerHead> {
    vec![
        PeerHead::State { ue: UE, term: 3, clock: 10 },
        PeerHead::Delta { term: 3 },
        PeerHead::Fetch { ue: UE, clock: 1 << 40 },
    ]
}

fn to_cta_replica() -> Vec<CtaReplicaHead> {
    let member = CpfEntry {
        id: CpfId(3),
        address: at(7),
        region: "home/site".into(),
        code: CodeVersion(7),
        draining: true,
        listed: Some(CpfId(9)),
        slice: None,
    };
    vec![
        CtaReplicaHead::Begin {
            octets: 1 << 40,
            heartbeats: HeartbeatKey([9; 32]),
            endpoints: vec![at(1).ip()],
        },
        CtaReplicaHead::Piece,
        CtaReplicaHead::Record,
        CtaReplicaHead::Cpfs(CpfTable { life: 1 << 60, newest: 9, members: vec![member] }),
        CtaReplicaHead::Subscribers,
    ]
}

fn to_primary_cta() -> Vec<PrimaryHead> {
    let place = CtaInstance { cta: 2, incarnation: Incarnation(7) };
    vec![
        PrimaryHead::Follow { place, address: at(2), endpoints: vec![at(2).ip()], smf: at(2).ip() },
        PrimaryHead::Pieces(9),
        PrimaryHead::Held(1 << 50),
    ]
}

/// A line for each; each kind has to be there.
fn written<T: Serialize + DeserializeOwned>(to: &str, messages: &[T]) -> String {
    let octets: Vec<Vec<u8>> =
        messages.iter().map(|m| postcard::to_allocvec(m).expect("it can be written")).collect();
    let mut kinds: Vec<u8> = octets.iter().map(|o| o[0]).collect();
    kinds.dedup();
    assert_eq!(kinds, (0..kinds.len() as u8).collect::<Vec<_>>(), "{to}: one of each kind, in their order");
    let next = [&[kinds.len() as u8][..], &[0; 64]].concat();
    assert!(postcard::take_from_bytes::<T>(&next).is_err(), "{to}: a kind of message is not in this test");
    let mut lines = String::new();
    for octets in octets {
        let hex: String = octets.iter().map(|o| format!("{o:02x}")).collect();
        writeln!(lines, "{to} {hex}").expect("a string takes it");
    }
    lines
}

#[test] // ARCHITECTURE.md, "Versions"
fn messages_do_not_change_without_the_version_of_links() {
    let today = [
        format!("version {LINK_VERSION}\n"),
        written(
            "hello",
            &[
                (LinkRole::Cta, CodeVersion(7)),
                (LinkRole::Cpf, CodeVersion(7)),
                (LinkRole::Upf, CodeVersion(7)),
                (LinkRole::Function, CodeVersion(7)),
            ],
        ),
        written("cpf", &to_cpf()),
        written("cta", &to_cta()),
        written("peer", &to_peer()),
        written("cta_replica", &to_cta_replica()),
        written("primary_cta", &to_primary_cta()),
    ]
    .concat();
    assert!(
        today == STORED,
        "the messages of links have changed: raise LINK_VERSION (now {LINK_VERSION}), say so in the changelog, and store them as \
         testdata/messages.txt:\n{today}"
    );
}

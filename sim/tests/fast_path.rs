//! The rules that the SMF asks for are those that the UPF is fast with: they are plain, and a fast path may have them.

#[path = "../../user/tests/common/mod.rs"]
mod upf;

use std::net::Ipv4Addr;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::common::*;
use whimbrel_nas::ie::PduSessionType;
use whimbrel_pfcp::{Frame, Message};
use whimbrel_ran::gnb::Via;
use whimbrel_ran::ue::{SessionRequest, UeCommand};
use whimbrel_sim::{GnbIndex, Sim, UpfState};
use whimbrel_user::{DestinationFilter, DnIndex, FastEntry, FastPath, FastPathCounters};

fn session(pdu_session_type: PduSessionType) -> UeCommand {
    UeCommand::EstablishSession(SessionRequest { dnn: None, s_nssai: None, pdu_session_type })
}

#[test] // what tests and measurements of the UPF ask for in the SMF's name
fn the_upfs_tests_ask_for_what_the_smf_asks_for() {
    for (n, kind, v4, v6) in [
        (1, PduSessionType::Ipv4, true, false),
        (2, PduSessionType::Ipv6, false, true),
        (3, PduSessionType::Ipv4v6, true, true),
    ] {
        let (mut net, ue) = one_ue(n);
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        net.set_upf(UpfState::ByHand);
        net.command(ue, session(kind));
        net.settle(SECOND / 10);
        let requests = net.take_pfcp();
        let [octets] = requests.as_slice() else { panic!("{} requests", requests.len()) };
        let frame = Frame::parse(octets).expect("a request of ours");
        let Ok(Message::SessionEstablishmentRequest(asked)) = Message::parse(&frame) else {
            panic!("{frame:?}")
        };
        let mut tests = upf::smf_establishment(asked.cp_f_seid.seid.0, v4, v6);
        (tests.node_id, tests.cp_f_seid) = (asked.node_id.clone(), asked.cp_f_seid);
        assert_eq!(*asked, tests);
    }
}

/// Memory that a fast path would read, and no fast path.
struct Memory {
    entries: Vec<FastEntry>,
    ues: Vec<AtomicU64>,
    prefixes: Vec<AtomicU64>,
    suspects: [AtomicU64; DestinationFilter::WORDS],
}

impl FastPath for Memory {
    fn entries(&self) -> &[FastEntry] {
        &self.entries
    }

    fn ipv4(&self, _: DnIndex, ue: Ipv4Addr) -> Option<&AtomicU64> {
        self.ues.get(usize::from(ue.octets()[3]))
    }

    fn prefix(&self, _: DnIndex, ue: u64) -> Option<&AtomicU64> {
        self.prefixes.get(usize::from(ue as u8))
    }

    fn hops(&mut self, _: DnIndex, _: Ipv4Addr) -> Option<(u16, u16, u16)> {
        Some((0, 0, 0))
    }

    fn leads(&self, _: (u16, u16)) -> bool {
        true
    }

    fn suspects(&self) -> &[AtomicU64; DestinationFilter::WORDS] {
        &self.suspects
    }

    fn counted(&self) -> FastPathCounters {
        FastPathCounters::default()
    }

    fn settles_in(&self) -> Duration {
        Duration::ZERO
    }
}

/// Sessions that are plain, and those of them that are offloaded.
fn plain_and_lent(net: &mut Sim) -> (u64, u64) {
    let now = net.now();
    let upf = net.upf().u.only().expect("one pipeline");
    for _ in 0..2 {
        upf.offload_ready(now, true);
    }
    (upf.plain(), upf.offloaded())
}

#[test] // idle, back, and at another gNB
fn a_session_of_the_smf_is_plain_and_lent_wherever_its_ue_goes() {
    let (mut net, ue) = one_ue(4);
    let memory = Memory {
        entries: (0..16).map(|_| FastEntry::default()).collect(),
        ues: (0..256).map(|_| AtomicU64::default()).collect(),
        prefixes: (0..256).map(|_| AtomicU64::default()).collect(),
        suspects: [const { AtomicU64::new(0) }; DestinationFilter::WORDS],
    };
    net.upf().u.only().expect("one pipeline").attach_fast_path(Box::new(memory));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, session(PduSessionType::Ipv4));
    net.settle(SECOND);
    let psi = net.ue_ref(ue).sessions().next().expect("the session").id;
    assert_eq!(plain_and_lent(&mut net), (1, 1));
    net.check_path(ue, psi);
    assert_eq!(plain_and_lent(&mut net), (1, 1), "packets leave it so");

    go_idle(&mut net, ue);
    assert_eq!(plain_and_lent(&mut net), (1, 0), "its packets would wait");
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert_eq!(plain_and_lent(&mut net), (1, 1));
    net.check_path(ue, psi);

    let second = net.add_gnb(gnb_config(2));
    net.settle(SECOND);
    for via in [Via::Xn, Via::N2] {
        let to = if net.gnb_of(ue) == second { GnbIndex(0) } else { second };
        net.hand_over(ue, to, via);
        net.settle(SECOND);
        assert_eq!(net.gnb_of(ue), to);
        assert_eq!(plain_and_lent(&mut net), (1, 1));
        net.check_path(ue, psi);
    }
    no_violations(&net);
}

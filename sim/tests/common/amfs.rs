//! Two AMFs of one network, and a UE with two sessions.

use whimbrel_control::UeContext;
use whimbrel_control::config::Config;
use whimbrel_control::smf::UpState;
use whimbrel_ran::gnb::GnbConfig;
use whimbrel_ran::ue::{MmState, UeCommand};
use whimbrel_sim::{CpfLoss, CtaLoss, GnbIndex, LostNode, Sim, UeIndex, two_amf_configs, ue_config};

use super::by_hand::psi;
use super::stage::session;
use super::*;

pub(crate) const HERE: GnbIndex = GnbIndex(0);
pub(crate) const THERE: GnbIndex = GnbIndex(1);
pub(crate) const UE: UeIndex = UeIndex(0);

/// A UE with two sessions at the gNB of one core; another core has a gNB in another tracking area.
pub(crate) fn scene(seed: u64) -> Sim {
    let (home, peer_amf) = two_amf_configs();
    let net = Sim::builder(seed).config(home).recorded().build();
    with(net, peer_amf)
}

/// The same, where this is the one core and that the other's configuration.
pub(crate) fn with(net: Sim, peer_amf: Config) -> Sim {
    let mut net = net;
    let there = match peer_amf.amf.tacs == net.cta().config().amf.tacs {
        true => gnb_config(2),
        false => GnbConfig { supported_tas: vec![area(2)], ..gnb_config(2) },
    };
    net.add_peer_amf(peer_amf);
    net.add_gnb(gnb_config(1));
    net.add_gnb_of_peer_amf(there);
    net.add_ue(HERE, ue_config(1));
    net.settle(SECOND / 10);
    net.command(UE, UeCommand::Register);
    net.settle(SECOND);
    for _ in 0..2 {
        net.command(UE, session());
        net.settle(SECOND);
    }
    assert_eq!(at_home(&net).map(|p| p.sessions.len()), Some(2));
    net
}

/// The UE's record at the core of the simulation, if it is registered there.
pub(crate) fn at_home(net: &Sim) -> Option<&UeContext> {
    net.contexts().find(|p| p.amf.registered)
}

pub(crate) fn peer_amf(net: &Sim) -> Option<&UeContext> {
    net.peer_amf().contexts().find(|p| p.amf.registered)
}

/// All that is here is where the UE is, with its sessions.
pub(crate) fn served_by(net: &Sim, ue: Option<&UeContext>, other: Option<&UeContext>, gnb: GnbIndex) {
    let ue = ue.expect("it is registered");
    assert!(other.is_none(), "and nowhere else");
    assert_eq!(net.gnb_of(UE), gnb);
    assert_eq!(net.ue_ref(UE).state(), MmState::Registered);
    assert!(
        ue.is_connected() && ue.amf.mobility.target.is_none() && ue.amf.mobility.forwarding_source.is_none()
    );
    assert_eq!(ue.amf.tmsi, net.ue_ref(UE).s_tmsi().map(|t| t.tmsi), "the UE's 5G-GUTI is of this AMF");
    assert_eq!(ue.sessions.len(), 2);
    assert!(ue.sessions.values().all(|s| s.up == UpState::Active && s.forwarding.is_none()));
    assert!([1, 2].iter().all(|&n| net.ue_ref(UE).has_user_plane(psi(n))));
    net.check_user_plane();
}

/// Whatever has happened, the UE is served where it is, or can be.
pub(crate) fn comes_to_rest(net: &mut Sim, what: &str) {
    net.settle(SECOND * 40);
    net.restore_n14();
    net.command(UE, UeCommand::Register);
    net.settle(SECOND * 40);
    let gnb = net.gnb_of(UE);
    let (here, other) = match gnb {
        HERE => (at_home(net), peer_amf(net)),
        _ => (peer_amf(net), at_home(net)),
    };
    let ue = here.unwrap_or_else(|| panic!("{what}: it is not registered where it is"));
    assert_eq!(net.ue_ref(UE).state(), MmState::Registered, "{what}");
    assert_eq!(ue.amf.tmsi, net.ue_ref(UE).s_tmsi().map(|t| t.tmsi), "{what}");
    let sessions: Vec<_> = net.ue_ref(UE).sessions().map(|s| s.id).collect();
    assert_eq!(ue.sessions.keys().copied().collect::<Vec<_>>(), sessions, "{what}");
    assert!(!other.is_some_and(UeContext::is_connected), "{what}: the other AMF has no connection of it");
    net.check_user_plane();
    let unauthenticated = net.cta().occupancy().1 + net.peer_amf().occupancy().1;
    assert_eq!(unauthenticated, 0, "{what}: nothing is left of it");
}

/// A home of several processes loses one of them at each input and each message of what the UE does. `goes_well` looks at it without a loss, `on` at
/// one whose CPF was lost.
pub(crate) fn with_each_loss(
    home: impl Fn() -> Sim,
    does: impl Fn(&mut Sim),
    goes_well: impl Fn(&mut Sim),
    on: impl Fn(&mut Sim, &str),
) {
    let mut net = home();
    does(&mut net);
    goes_well(&mut net);
    no_violations(&net);
    let sessions = net.ue_ref(UE).sessions().count();
    each_loss(home, does, |net, what, of| {
        is_in_one_place(net, what);
        assert_eq!(net.ue_ref(UE).sessions().count(), sessions, "{what}");
        match of {
            LostNode::Cta => comes_to_rest(net, what),
            LostNode::Cpf => on(net, what),
        }
    });
}

/// The same, with a look at the home after each.
pub(crate) fn each_loss(
    home: impl Fn() -> Sim,
    does: impl Fn(&mut Sim),
    look: impl Fn(&mut Sim, &str, LostNode),
) {
    let mut net = home();
    let (input, message) = (net.inputs_taken() + 1, net.links_taken() + 1);
    does(&mut net);
    let (inputs, messages) = (input..=net.inputs_taken(), message..=net.links_taken());
    for how in CtaLoss::ALL {
        for input in inputs.clone() {
            let mut net = home();
            net.lose_cta_at(input, how);
            does(&mut net);
            look(&mut net, &format!("{how:?} at input {input}"), LostNode::Cta);
        }
    }
    for how in CpfLoss::ALL {
        for message in messages.clone() {
            let mut net = home();
            net.lose_cpf_at(message, how);
            does(&mut net);
            net.settle(SECOND * 3);
            look(&mut net, &format!("{how:?} at message {message}"), LostNode::Cpf);
        }
    }
}

/// What a handover or a registration that came to nothing leaves behind is over by then.
const PATIENCE: Duration = Duration::from_secs(120);

/// One of the cores has the UE, the other one nothing of it, and all hold the same of one another.
pub(crate) fn is_in_one_place(net: &mut Sim, what: &str) {
    if !net.settle_until(PATIENCE, |net| net.agree().is_ok()) {
        panic!("{what}: {:?}", net.agree());
    }
}

//! Figure 11 between two CTAs: what N14 carries, with and without a replica of the UE at the target (Neutrino §4.3). Two cores in virtual time, one UE after the
//! other.

use std::time::Duration;

use serde_json::{Value, json};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ran::gnb::{Event, GnbConfig, SupportedTa, Via};
use whimbrel_ran::ue::{SessionRequest, UeCommand};
use whimbrel_sim::{GnbIndex, Sim, UeIndex, gnb_config, two_amf_configs, ue_config};

use super::clock::timed;

/// A handover and the registration that follows it are over by then.
const OVER: Duration = Duration::from_secs(6);
const HERE: GnbIndex = GnbIndex(0);
const THERE: GnbIndex = GnbIndex(1);

/// Medians of one form.
struct Form {
    name: &'static str,
    octets: usize,
    messages: u64,
    /// Processor time of the two cores, their gNBs and the UE, in microseconds.
    worked_us: f64,
    /// What was sent ahead, for each UE.
    ahead: usize,
    completed: u64,
}

/// Hands these UEs over from one core to the other, in both forms, and prints what that took.
pub(super) fn between_ctas(ues: u32) -> Value {
    let [default, fast] = [measure("default", ues, false), measure("fast", ues, true)];
    println!(
        "\nbetween two CTAs, by N14 (TS 23.502 §4.9.1.3), {ues} UEs with a session; medians of a handover with what follows it"
    );
    println!("{:>9}{:>10}{:>10}{:>14}{:>22}", "", "octets", "messages", "processor us", "octets ahead a UE");
    for form in [&default, &fast] {
        let Form { name, octets, messages, worked_us, ahead, .. } = form;
        println!("{name:>9}{octets:>10}{messages:>10}{worked_us:>14.0}{ahead:>22}");
    }
    println!(
        "fast: of {ues} handovers {} carried the replica's clock and what had changed in place of the state; {:.2} times fewer octets",
        fast.completed,
        default.octets as f64 / fast.octets.max(1) as f64
    );
    let row = |form: &Form| {
        json!({
            "form": form.name, "octets": form.octets, "messages": form.messages, "worked_us": form.worked_us.round(), "octets_ahead": form.ahead,
            "completed": form.completed,
        })
    };
    json!([row(&default), row(&fast)])
}

fn measure(name: &'static str, ues: u32, fast: bool) -> Form {
    let (home, peer_amf) = two_amf_configs();
    let areas = |tac, config: GnbConfig| {
        let ta = &config.supported_tas[0];
        let supported_tas = vec![SupportedTa { tac, plmns: ta.plmns.clone() }];
        GnbConfig { supported_tas, fastwire: false, ..config }
    };
    let (here, there) = (home.amf.tacs[0], peer_amf.amf.tacs[0]);
    let mut net = Sim::builder(11).config(home).build();
    net.add_peer_amf(peer_amf);
    net.add_gnb(areas(here, gnb_config(1)));
    net.add_gnb_of_peer_amf(areas(there, gnb_config(2)));
    let ues: Vec<UeIndex> = (0..ues).map(|n| net.add_ue(HERE, ue_config(n))).collect();
    net.settle(Duration::from_secs(1));
    if fast {
        net.exchange_replicas(ues.len());
    }
    let (mut octets, mut messages, mut worked, mut ahead) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for &ue in &ues {
        net.command(ue, UeCommand::Register);
        net.settle(Duration::from_secs(1));
        let pdu_session_type = PduSessionType::Ipv4;
        let session = SessionRequest { dnn: None, s_nssai: None, pdu_session_type };
        net.command(ue, UeCommand::EstablishSession(session));
        net.settle(Duration::from_secs(1));
        let before = net.n14_octets();
        net.replicate_to_peer_amfs();
        net.settle(Duration::from_secs(1));
        ahead += net.n14_octets() - before;
        let from = (net.n14_octets(), net.n14_messages());
        let ((), took) = timed(|| {
            net.hand_over(ue, THERE, Via::N2);
            net.settle(OVER);
        });
        let arrived = net.events.gnbs.iter().any(|(_, e)| matches!(e, Event::HandedOver { .. }));
        assert!(arrived, "the UE is handed over");
        net.events.gnbs.clear();
        octets.push(net.n14_octets() - from.0);
        messages.push(net.n14_messages() - from.1);
        worked.push(took);
    }
    let completed = net.replicas_of_peer_amfs().iter().map(|c| c.completed).sum();
    let (octets, messages, ahead) = (median(octets), median(messages), ahead / ues.len().max(1));
    Form { name, octets, messages, worked_us: median(worked) as f64 / 1000.0, ahead, completed }
}

fn median<T: Ord + Copy>(mut of: Vec<T>) -> T {
    of.sort();
    of[of.len() / 2]
}

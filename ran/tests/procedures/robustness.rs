//! Nothing that a core sends may bring a UE or a gNB down.

use proptest::prelude::*;
use whimbrel_ran::gnb;
use whimbrel_ran::ue::{Input, UeCommand};
use whimbrel_ran::{DownlinkMessage, UplinkMessage};

use crate::fake_core::{Net, UE};

/// What a UE and a gNB get from a core in a whole life, to be spoilt.
fn recorded() -> Vec<(bool, Vec<u8>)> {
    let mut net = Net::new();
    net.core.knobs.keep_connection = true;
    net.record = Some(Vec::new());
    net.command(UeCommand::Register);
    net.command(crate::session::internet());
    net.core(|core, out| core.update_configuration(out));
    net.core(|core, out| core.page(out));
    net.core(|core, out| core.deregister(false, out));
    net.record.take().unwrap()
}

fn spoil(octets: &mut Vec<u8>, cuts: &[(u16, u8)], length: Option<u16>) {
    for (at, octet) in cuts {
        let len = octets.len().max(1);
        if let Some(o) = octets.get_mut(usize::from(*at) % len) {
            *o ^= octet;
        }
    }
    if let Some(length) = length {
        octets.truncate(usize::from(length));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn spoilt_messages_are_survived(
        which: prop::sample::Index,
        cuts in prop::collection::vec((any::<u16>(), any::<u8>()), 0..4),
        length in prop::option::of(0u16..400),
        registered: bool,
    ) {
        let recorded = recorded();
        let (nas, mut octets) = recorded[which.index(recorded.len())].clone();
        spoil(&mut octets, &cuts, length);
        let mut net = if registered { Net::registered() } else { Net::new() };
        net.ue.faults_mut().ignore = Vec::new();
        if nas {
            net.ue(Input::Radio(DownlinkMessage::Nas(octets)));
        } else {
            net.core.knobs.silent = true;
            net.gnb(gnb::Input::Ngap { stream: 1, octets: &octets });
            net.gnb(gnb::Input::Radio(UE, UplinkMessage::Gone));
        }
    }

    #[test]
    fn garbage_is_survived(octets in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut net = Net::new();
        net.core.knobs.silent = true;
        net.gnb(gnb::Input::Ngap { stream: 0, octets: &octets });
        net.ue(Input::Radio(DownlinkMessage::Nas(octets.clone())));
        net.gtpu(&octets);
    }
}

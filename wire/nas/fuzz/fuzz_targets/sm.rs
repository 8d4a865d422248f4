//! Any octets as a 5GSM message: what is read is written and read again, the elements that are read in a step of
//! their own included.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_nas::ie::{ExtendedPco, Ipcp, PcoDirection, QosFlowDescriptions, QosRules};
use whimbrel_nas::sm;

fuzz_target!(|octets: &[u8]| {
    let Ok(message) = sm::Message::decode(octets) else { return };
    let again = message.to_octets();
    assert_eq!(sm::Message::decode(&again).as_ref(), Ok(&message));
    match &message.body {
        sm::Body::EstablishmentRequest(m) => pco(m.extended_pco.as_ref()),
        sm::Body::EstablishmentAccept(m) => {
            rules(&m.qos_rules);
            m.qos_flow_descriptions.iter().for_each(flows);
            pco(m.extended_pco.as_ref());
        }
        sm::Body::ModificationRequest(m) => {
            m.qos_rules.iter().for_each(rules);
            m.qos_flow_descriptions.iter().for_each(flows);
            pco(m.extended_pco.as_ref());
        }
        _ => {}
    }
});

fn rules(rules: &QosRules) {
    if let Ok(read) = rules.rules() {
        assert_eq!(QosRules::new(&read).expect("rules that were read fit").rules(), Ok(read));
    }
}

fn flows(flows: &QosFlowDescriptions) {
    if let Ok(read) = flows.flows() {
        assert_eq!(QosFlowDescriptions::new(&read).expect("flows that were read fit").flows(), Ok(read));
    }
}

fn pco(pco: Option<&ExtendedPco>) {
    for direction in [PcoDirection::FromUe, PcoDirection::ToUe] {
        let containers: Vec<_> = pco.iter().flat_map(|p| p.containers(direction)).collect();
        let built = ExtendedPco::new(direction, &containers).expect("containers that were read fit");
        assert!(built.containers(direction).eq(containers.iter().cloned()));
        containers.iter().for_each(|c| drop(Ipcp::parse(&c.contents)));
    }
}

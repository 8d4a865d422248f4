//! The parts of the configuration in the types of the crates that they configure.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use whimbrel_control::config as control;
use whimbrel_control::refusal::RefusalKind;
use whimbrel_security::{HomeNetworkKeys, HomeNetworkPrivateKey};

use super::{
    Config, DataNetworkConfig, HomeNetworkKey, LadnLeaving, ListedUpf, Protection, RefusalAnswer, Scheme,
    Timers,
};
use crate::clock;

/// Version of the configuration that a start puts in force; a reload would count on.
const FIRST_VERSION: u32 = 1;

impl Config {
    /// The configuration of the control plane.
    pub fn control(&self) -> control::Config {
        let amf = &self.amf;
        control::Config {
            version: FIRST_VERSION,
            amf: control::Amf {
                name: amf.name.clone(),
                plmn: amf.plmn,
                amf_id: amf.amf_id,
                tacs: amf.tacs.clone(),
                areas: control::RegistrationAreas {
                    registration: amf.registration_areas.iter().map(|a| a.0.clone()).collect(),
                },
                slices: amf.slices.clone(),
                relative_capacity: amf.relative_capacity,
                integrity: amf.integrity.clone(),
                ciphering: amf.ciphering.clone(),
                network_name: control::NetworkName {
                    full: amf.network_name_full.clone(),
                    short: amf.network_name_short.clone(),
                },
                peer_amfs: self.peer_amfs.amfs.iter().map(super::peer_amfs::PeerAmfConfig::control).collect(),
                signs: self.handover.signs || self.foresight.enabled,
                prediction: control::Prediction {
                    early_containers: self.foresight.early_containers,
                    excluded_dnns: self
                        .data_networks
                        .iter()
                        .filter(|n| !n.predicted)
                        .map(|n| n.dnn.clone())
                        .collect(),
                    excluded_supis: self.foresight.excluded.clone(),
                },
                gnbs: self.n2.gnbs.iter().filter_map(super::interfaces::N2Gnb::control).collect(),
                uses_remote_smf: self.uses_remote_smf(),
                ims_vops: amf.ims_vops,
                local_time: amf.time_zone.local_time(clock::now()).unwrap_or_default(),
                access: self.access.control(),
            },
            smf: control::Smf {
                data_networks: self.data_networks.iter().map(|n| (n.dnn.clone(), data_network(n))).collect(),
                node_id: self.n4.node_id,
                upfs: self.upfs().iter().map(ListedUpf::control).collect(),
                set_id: self.smf_set_id(),
                handover_downlink: self.handover.downlink,
                marking: self.markings.clone(),
                buffering: self.downlink_data,
                pcf: self.pcf_failure_handling(),
            },
            timers: timers(&self.timers),
            refusals: refusals(&self.refusals),
            limits: control::Limits {
                ues: self.limits.ues,
                ran_nodes: self.limits.ran_nodes,
                sessions_per_ue: self.limits.sessions_per_ue,
                unauthenticated_ues: self.limits.unauthenticated_ues,
                unauthenticated_ues_per_gnb: self.limits.unauthenticated_ues_per_gnb,
                first_messages_per_s: self.limits.first_messages_per_s,
                ran_nodes_waiting: self.limits.ran_nodes_waiting,
                pagings_per_s: self.limits.pagings_per_s,
            },
            overload: self.overload,
            open: self.open.as_ref().map(super::open::Open::control),
            veil: self.veil.as_ref().map(super::veil::VeilOperatorConfig::control),
            udm: self.udm_function(),
        }
    }

    /// The UPFs of this core's sessions: those of the file, or the one of this program.
    pub fn upfs(&self) -> Vec<ListedUpf> {
        let all = if self.upfs.is_empty() { vec![ListedUpf::here()] } else { self.upfs.clone() };
        all.into_iter().map(|upf| upf.predicting(self.foresight.enabled)).collect()
    }

    /// The keys that reveal SUCIs. A key that is none was refused when the file was read.
    pub fn home_network_keys(&self) -> HomeNetworkKeys {
        home_network_keys(&self.home_network_keys)
    }
}

/// Keys that were read.
pub(super) fn home_network_keys(read: &[HomeNetworkKey]) -> HomeNetworkKeys {
    let mut keys = HomeNetworkKeys::new();
    for key in read {
        if let Some(private) = private_key(key.scheme, key.private_key) {
            keys.insert(key.id, private);
        }
    }
    keys
}

/// A private key of its octets; `None` if they are no key of the scheme.
pub fn private_key(scheme: Scheme, octets: [u8; 32]) -> Option<HomeNetworkPrivateKey> {
    match scheme {
        Scheme::A => Some(HomeNetworkPrivateKey::profile_a(octets)),
        Scheme::B => HomeNetworkPrivateKey::profile_b(&octets).ok(),
    }
}

fn data_network(network: &DataNetworkConfig) -> control::DataNetwork {
    control::DataNetwork {
        ipv4: network.ipv4_pool.is_some(),
        ipv6: network.ipv6_pool.is_some(),
        ethernet: network.ethernet,
        unstructured: network.unstructured,
        always_on: network.always_on,
        ladn: (!network.ladn.is_empty()).then(|| control::Ladn {
            tacs: network.ladn.iter().copied().collect(),
            release: network.ladn_leaving == LadnLeaving::Release,
        }),
        flows: network.flows.clone(),
        treatments: network.treatments.clone(),
        dns_v4: fours(&network.dns),
        dns_v6: sixes(&network.dns),
        p_cscf_v4: fours(&network.p_cscf),
        p_cscf_v6: sixes(&network.p_cscf),
        mtu: network.mtu,
        up_security: up_security(network),
        charging: network.charging.map(|charging| charging.control()),
    }
}

/// The security indication of a data network's sessions, if one is configured.
fn up_security(network: &DataNetworkConfig) -> Option<control::UpSecurity> {
    let policy = |p| match p {
        Protection::Unset => None,
        Protection::Required => Some(control::UpProtection::Required),
        Protection::Preferred => Some(control::UpProtection::Preferred),
        Protection::NotNeeded => Some(control::UpProtection::NotNeeded),
    };
    let (integrity, confidentiality) = (policy(network.up_integrity), policy(network.up_confidentiality));
    let preferred = control::UpProtection::Preferred;
    (integrity.is_some() || confidentiality.is_some()).then(|| control::UpSecurity {
        integrity: integrity.unwrap_or(preferred),
        confidentiality: confidentiality.unwrap_or(preferred),
    })
}

/// The IPv4 addresses of a list.
pub fn fours(list: &[IpAddr]) -> Vec<Ipv4Addr> {
    list.iter().filter_map(|a| if let IpAddr::V4(a) = a { Some(*a) } else { None }).collect()
}

/// The IPv6 addresses of a list.
pub fn sixes(list: &[IpAddr]) -> Vec<Ipv6Addr> {
    list.iter().filter_map(|a| if let IpAddr::V6(a) = a { Some(*a) } else { None }).collect()
}

fn timers(t: &Timers) -> control::Timers {
    control::Timers {
        t3512: t.t3512,
        t3502: t.t3502,
        t3522: t.t3522,
        t3550: t.t3550,
        t3555: t.t3555,
        t3560: t.t3560,
        t3570: t.t3570,
        t3592: t.t3592,
        t3591: t.t3591,
        pdu_session_address_lifetime: t.pdu_session_address_lifetime,
        reflective_qos: t.reflective_qos,
        implicit_deregistration: t.implicit_deregistration,
        guard: t.guard,
        gnb_answer: t.gnb_answer,
        connection_idle: t.connection_idle,
        follow_on: t.follow_on,
        session_inactivity: t.session_inactivity,
        ..control::Timers::default()
    }
}

fn refusals(answers: &[(RefusalKind, RefusalAnswer)]) -> BTreeMap<RefusalKind, control::RefusalAnswer> {
    answers
        .iter()
        .map(|(kind, a)| (*kind, control::RefusalAnswer { cause: a.cause, back_off: a.back_off }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_control_plane_except_uncodable_ones() {
        let control = super::super::default().control();
        let own = control::Timers::default();
        assert_eq!(control.timers.t3550, own.t3550);
        assert_eq!(control.timers.t3592, own.t3592);
        assert_eq!(control.timers.guard, own.guard);
        assert_eq!(control.timers.gnb_answer, own.gnb_answer);
        assert_eq!(control.timers.connection_idle, own.connection_idle);
        assert_eq!(control.timers.follow_on, own.follow_on);
        assert_eq!(control.timers.session_inactivity, own.session_inactivity);
        assert_eq!(control.limits.ues, control::Limits::default().ues);
        let dnn = "internet".parse().unwrap();
        let network = &control.smf.data_networks[&dnn];
        assert!(network.ipv4 && network.ipv6 && network.dns_v4.len() == 2 && network.dns_v6.len() == 1);
    }

    #[test]
    fn refusal_causes_reach_their_kind() {
        let text = "refusals:\n  congestion:\n    cause: 22\n    back_off: 12min\n";
        let config = super::super::parse(text, std::path::Path::new("w.yaml")).unwrap().control();
        let answer = config.refusals[&RefusalKind::Congestion];
        assert_eq!(answer.cause, Some(22));
        assert_eq!(answer.back_off, Some(std::time::Duration::from_secs(720)));
        assert_eq!(config.refusals.len(), 1);
    }
}

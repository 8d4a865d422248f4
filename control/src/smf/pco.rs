//! Protocol configuration options: parameters that a UE requests for its session (TS 24.008 §10.5.6.3).

use whimbrel_nas::ie::{Container, ExtendedPco, Ipcp, PcoDirection, PduSessionType, container_id};

use crate::config::DataNetwork;

/// Bound on addresses of one kind, so that the accept fits its message whatever is configured.
const SERVERS_MAX: usize = 4;

/// Answers the known containers and ignores the others. `None` if there is no answer.
pub(super) fn answer(
    asked: Option<&ExtendedPco>,
    network: &DataNetwork,
    session_type: PduSessionType,
) -> Option<ExtendedPco> {
    let (v4, v6) = super::families(session_type);
    let mut answered: Vec<u16> = Vec::new();
    let mut out: Vec<Container> = Vec::new();
    for container in asked?.containers(PcoDirection::FromUe) {
        if answered.contains(&container.id) {
            continue; // each container is answered once
        }
        answered.push(container.id);
        match container.id {
            container_id::DNS_SERVER_IPV4 if v4 => {
                out.extend(network.dns_v4.iter().take(SERVERS_MAX).map(|&a| Container::dns_ipv4(a)));
            }
            container_id::DNS_SERVER_IPV6 if v6 => {
                out.extend(network.dns_v6.iter().take(SERVERS_MAX).map(|&a| Container::dns_ipv6(a)));
            }
            container_id::P_CSCF_IPV4 if v4 => {
                out.extend(network.p_cscf_v4.iter().take(SERVERS_MAX).map(|&a| Container::p_cscf_ipv4(a)));
            }
            container_id::P_CSCF_IPV6 if v6 => {
                out.extend(network.p_cscf_v6.iter().take(SERVERS_MAX).map(|&a| Container::p_cscf_ipv6(a)));
            }
            container_id::IPV4_LINK_MTU if v4 => out.push(Container::ipv4_link_mtu(network.mtu)),
            container_id::IPCP if v4 => out.extend(ipcp(&container, network)),
            _ => {}
        }
    }
    if out.is_empty() { None } else { ExtendedPco::new(PcoDirection::ToUe, &out) }
}

/// IPCP, which UEs still use: they propose 0.0.0.0 as DNS servers and get the addresses in a Configure-Nak (RFC 1877).
fn ipcp(container: &Container, network: &DataNetwork) -> Option<Container> {
    let asked = Ipcp::parse(&container.contents)?;
    let mut servers = network.dns_v4.iter().copied();
    asked.nak_with_dns(servers.next(), servers.next()).map(|nak| Container::ipcp(&nak))
}

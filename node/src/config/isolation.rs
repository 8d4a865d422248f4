//! Destinations that UEs cannot reach: `n6.ue_to_host`, `n6.ue_to_ue`, `n6.allow`, `n6.deny`; and the networks of gNBs: `n3.gnb_networks`.

use std::net::{IpAddr, SocketAddr};

use whimbrel_user::{CoreEndpoint, FirewallRule, IpNetwork, Isolation};

use super::section::Section;
use super::value::Value;
use super::{Config, N6};

/// IP protocol numbers (IANA).
const TCP: u8 = 6;
const UDP: u8 = 17;
const ESP: u8 = 50;
const SCTP: u8 = 132;
/// Items of `allow` and of `deny`: an operator's servers and networks, generously; a packet is compared with each in less than a microsecond.
const ITEMS_MAX: usize = 256;
/// Where gNBs send to, whatever `n3.port` is (TS 29.281 §4.4.2.3).
const GTPU_PORT: u16 = 2152;
/// Ports of DNS, and of DNS over TLS (RFC 7858).
const DNS_PORTS: &str = "53,853";
/// Ports of SIP (RFC 3261 §19.1.2).
const SIP_PORTS: &str = "5060,5061";

/// A network, or one address, of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkOrAddress(pub IpNetwork);

impl Value for NetworkOrAddress {
    fn read(text: &str) -> Result<Self, String> {
        let expected = || "an address or a network in CIDR form, such as 192.0.2.0/24".to_owned();
        let (address, length) = match text.trim().split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address.parse().map_err(|_| expected())?;
        let whole = IpNetwork::host(address);
        let prefix = match length {
            None => whole.prefix,
            Some(length) => length.parse().ok().filter(|l| *l <= whole.prefix).ok_or_else(expected)?,
        };
        Ok(Self(IpNetwork { address, prefix }))
    }

    fn show(&self) -> String {
        match self.0.single() {
            Some(address) => address.to_string(),
            None => format!("{}/{}", self.0.address, self.0.prefix),
        }
    }
}

/// Reads the keys of the section `n6`.
pub(super) fn read(s: &mut Section<'_, '_>) -> (bool, bool, Vec<FirewallRule>, Vec<NetworkOrAddress>) {
    let ue_to_host = s.value(
        "ue_to_host",
        false,
        "UEs can reach services of this host, but never those of the core (N2, N3, N4, API, cluster). false: only the DNS and SIP \
         servers of their sessions (`dns`, `p_cscf`), and ping to the first address of a pool. See docs/firewall.md.",
    );
    let ue_to_ue = s.value("ue_to_ue", false, "UEs can reach other UEs, of any data network.");
    let allow: Vec<FirewallRule> = s.list(
        "allow",
        vec![],
        "Exceptions, as firewall rules, such as `permit in 6 from any to 10.45.0.1 80` for a web server on this host.",
    );
    let deny = s.list(
        "deny",
        vec![],
        "Further networks and addresses that UEs cannot reach: management networks, the cluster's other hosts, the public address of a router \
         that forwards to this host.",
    );
    for (key, given) in [("allow", allow.len()), ("deny", deny.len())] {
        if given > ITEMS_MAX {
            let what = format!("the list has {given} items, and packets are compared with each");
            s.refuse(key, what, format!("keep at most {ITEMS_MAX}, as networks instead of addresses"));
        }
    }
    if let Some(rule) = allow.iter().find(|r| !r.permits_from_ue()) {
        let what = format!("`{rule}` permits nothing to UEs");
        s.refuse("allow", what, "write `permit in …`; list denied networks in `deny`");
    }
    (ue_to_host, ue_to_ue, allow, deny)
}

/// The isolation rules of the UPF.
pub fn of(c: &Config) -> Isolation {
    let N6 { ue_to_host, ue_to_ue, allow, deny, .. } = &c.n6;
    let networks = |all: &[NetworkOrAddress]| all.iter().map(|n| n.0).collect();
    let mut allow = allow.clone();
    for network in &c.data_networks {
        for server in &network.dns {
            allow.extend([TCP, UDP].map(|protocol| permit(protocol, *server, DNS_PORTS)));
        }
        for proxy in &network.p_cscf {
            let signalling = [TCP, UDP].map(|protocol| permit(protocol, *proxy, SIP_PORTS));
            allow.extend(signalling.into_iter().chain([permit(ESP, *proxy, "")]));
        }
    }
    Isolation {
        ue_to_host: *ue_to_host,
        ue_to_ue: *ue_to_ue,
        allow,
        deny: networks(deny),
        core: endpoints(c),
        gnb_networks: networks(&c.n3.gnb_networks),
    }
}

fn permit(protocol: u8, to: IpAddr, ports: &str) -> FirewallRule {
    let rule = format!("permit in {protocol} from any to {to} {ports}");
    rule.parse().unwrap_or_else(|_| unreachable!("{rule} is a rule"))
}

/// Where the core listens, and other network functions that the configuration names.
fn endpoints(c: &Config) -> Vec<CoreEndpoint> {
    let at = |protocol| move |a: SocketAddr| CoreEndpoint { address: a.ip(), protocol, port: a.port() };
    let n2 = c.n2.addresses.iter().flat_map(|a| {
        [at(SCTP)(SocketAddr::new(*a, c.n2.port)), at(UDP)(SocketAddr::new(*a, c.n2.udp_port))]
    });
    let n3 = [c.n3.port, GTPU_PORT].map(|port| SocketAddr::new(c.n3.address, port));
    let n4 = [SocketAddr::new(c.n4.node_id, whimbrel_user::Config::PFCP_PORT)];
    let n4 = n4.into_iter().chain(c.n4.listen).chain(c.n4.smfs.iter().copied());
    let upfs = c.upfs.iter().filter_map(|u| u.address);
    // A cluster's heartbeats go to the port of its links.
    let links = c.cluster.listen.into_iter().flat_map(|a| [at(TCP)(a), at(UDP)(a)]);
    let neighbours = c.peer_amfs.amfs.iter().flat_map(|n| n.addresses.iter().copied());
    let etcd = c.cluster.pair.iter().flat_map(|p| &p.etcd.endpoints).filter_map(|e| of_url(e));
    let tcp = [c.api.address].into_iter().chain(c.peer_amfs.listen).chain(neighbours).chain(etcd);
    n2.chain(n3.into_iter().chain(n4).chain(upfs).map(at(UDP))).chain(links).chain(tcp.map(at(TCP))).collect()
}

/// The address in `http://ADDRESS:PORT`; a name is not looked up.
fn of_url(url: &str) -> Option<SocketAddr> {
    let (_, rest) = url.split_once("://")?;
    rest.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn isolation(text: &str) -> Result<Isolation, String> {
        crate::config::parse(text, Path::new("w.yaml")).map(|c| of(&c)).map_err(|e| e.to_string())
    }

    #[test]
    fn by_default_ues_reach_neither_the_host_nor_each_other() {
        let i = isolation("").unwrap();
        assert!(!i.ue_to_host && !i.ue_to_ue && i.deny.is_empty() && i.gnb_networks.is_empty());
        assert!(i.allow.iter().all(|r| r.to_string().ends_with(DNS_PORTS)), "{:?}", i.allow);
    }

    #[test] // every address on which the configuration has something listen
    fn every_address_and_port_of_the_core_is_known_from_the_configuration() {
        let text = "n2: { addresses: [192.0.2.1, 192.0.2.2] }\nn3: { address: 192.0.2.3 }\n\
                    n4: { node_id: 192.0.2.4, listen: \"192.0.2.4:8806\", smfs: [\"192.0.2.5:8805\"] }\n\
                    upfs: [{ name: here }, { name: east, address: \"192.0.2.6:8805\" }]\n\
                    api: { address: \"192.0.2.7:8080\" }\n\
                    peer_amfs: { listen: \"192.0.2.8:7390\", key_file: k }\n\
                    cluster: { listen: \"192.0.2.9:7380\", key_file: k }\n";
        let i = isolation(text).unwrap_or_else(|e| panic!("{e}"));
        for (address, protocol, port) in [
            ("192.0.2.1", SCTP, 38412),
            ("192.0.2.2", SCTP, 38412),
            ("192.0.2.2", UDP, 9899),
            ("192.0.2.3", UDP, 2152),
            ("192.0.2.4", UDP, 8805),
            ("192.0.2.4", UDP, 8806),
            ("192.0.2.5", UDP, 8805),
            ("192.0.2.6", UDP, 8805),
            ("192.0.2.7", TCP, 8080),
            ("192.0.2.8", TCP, 7390),
            ("192.0.2.9", TCP, 7380),
            ("192.0.2.9", UDP, 7380),
        ] {
            let endpoint = CoreEndpoint { address: address.parse().unwrap(), protocol, port };
            assert!(i.core.contains(&endpoint), "{endpoint:?}");
        }
        assert_eq!(of_url("https://192.0.2.9:2379/"), Some("192.0.2.9:2379".parse().unwrap()));
        assert_eq!(of_url("https://[2001:db8::9]:2379"), Some("[2001:db8::9]:2379".parse().unwrap()));
        assert_eq!(of_url("https://etcd.example:2379"), None);
    }

    #[test]
    fn servers_of_sessions_and_allowed_destinations_are_reachable() {
        let text = "n6:\n  ue_to_ue: true\n  allow: permit in 6 from any to 10.45.0.1 80\n  deny: [10.0.0.0/8, 198.51.100.1]\n\
                    n3:\n  address: 192.0.2.3\n  gnb_networks: [192.0.2.64/27, \"2001:db8:9::/48\"]\n\
                    data_networks:\n  - dnn: ims\n    dns: 10.45.0.1\n    p_cscf: 198.51.100.9\n";
        let i = isolation(text).unwrap_or_else(|e| panic!("{e}"));
        let rules: Vec<String> = i.allow.iter().map(ToString::to_string).collect();
        assert_eq!(
            rules,
            [
                "permit in 6 from any to 10.45.0.1 80",
                "permit in 6 from any to 10.45.0.1 53,853",
                "permit in 17 from any to 10.45.0.1 53,853",
                "permit in 6 from any to 198.51.100.9 5060,5061",
                "permit in 17 from any to 198.51.100.9 5060,5061",
                "permit in 50 from any to 198.51.100.9",
            ]
        );
        assert_eq!((i.ue_to_ue, i.deny.len(), i.gnb_networks.len()), (true, 2, 2));
        assert_eq!(i.deny[1].single(), Some("198.51.100.1".parse().unwrap()));
    }

    #[test]
    fn a_rule_that_permits_nothing_is_refused_with_a_fix() {
        let wrong = isolation("n6:\n  allow: deny in ip from any to 10.0.0.0/8\n").unwrap_err();
        assert!(wrong.contains("permits nothing to UEs") && wrong.contains("`deny`"), "{wrong}");
        let wrong = isolation("n6:\n  deny: 10.0.0.0/33\n").unwrap_err();
        assert!(wrong.contains("in CIDR form"), "{wrong}");
    }
}

//! The data networks (DNN) that UEs may ask for, and the addresses they get there (TS 23.501 §5.6, §5.8.2.2).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use whimbrel_control::policy::{FlowName, FlowPolicy, Treatment};
use whimbrel_ids::{Dnn, SNssai, Tac};
use whimbrel_user::Firewall;
use whimbrel_user_io::RouterLink;

use super::charging::ChargingConfig;
use super::section::Section;
use super::value::{NetworkPrefix, Value, words};

/// One data network.
#[derive(Clone, Debug)]
pub struct DataNetworkConfig {
    pub dnn: Dnn,
    pub ipv4_pool: Option<NetworkPrefix<Ipv4Addr>>,
    pub ipv6_pool: Option<NetworkPrefix<Ipv6Addr>>,
    pub dns: Vec<IpAddr>,
    pub p_cscf: Vec<IpAddr>,
    pub mtu: u16,
    pub n6_link: Option<RouterLink>,
    pub up_integrity: Protection,
    pub up_confidentiality: Protection,
    pub ethernet: bool,
    pub ethernet_bridge: Option<String>,
    pub unstructured: bool,
    pub unstructured_server: Option<SocketAddr>,
    pub reserved_pools: Vec<ReservedPool>,
    pub always_on: bool,
    pub ladn: Vec<Tac>,
    pub ladn_leaving: LadnLeaving,
    pub predicted: bool,
    pub charging: Option<ChargingConfig>,
    pub firewall: Option<Firewall>,
    pub flows: Vec<FlowPolicy>,
    pub treatments: BTreeMap<FlowName, Treatment>,
}

/// Pools of one slice.
#[derive(Clone, Debug)]
pub struct ReservedPool {
    pub slice: SNssai,
    pub ipv4_pool: Option<NetworkPrefix<Ipv4Addr>>,
    pub ipv6_pool: Option<NetworkPrefix<Ipv6Addr>>,
}

/// User plane security policy sent to gNBs (TS 23.501 §5.10.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// None is sent: gNBs decide.
    Unset,
    /// No session without protection.
    Required,
    /// Protected if possible.
    Preferred,
    /// User packets are not protected.
    NotNeeded,
}

words! { Protection {
    Protection::Unset = "unset",
    Protection::Required = "required",
    Protection::Preferred = "preferred",
    Protection::NotNeeded = "not-needed",
} }

/// Treatment of a session whose UE leaves the area of its LADN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LadnLeaving {
    /// Its packets wait.
    Wait,
    /// The session is released.
    Release,
}

words! { LadnLeaving {
    LadnLeaving::Wait = "wait",
    LadnLeaving::Release = "release",
} }

/// A pool, or the word `none`.
struct OptionalPool<A>(Option<NetworkPrefix<A>>);

impl<A: super::value::Address> Value for OptionalPool<A> {
    fn read(text: &str) -> Result<Self, String> {
        if text.trim() == "none" {
            return Ok(Self(None));
        }
        NetworkPrefix::read(text).map(|p| Self(Some(p))).map_err(|e| format!("{e}, or none"))
    }

    fn show(&self) -> String {
        self.0.map_or("none".into(), |p| p.show())
    }
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Vec<DataNetworkConfig> {
    let doc = "Data networks (DNN). One named `ims` carries voice. Add further ones as items of the list:";
    root.sections("data_networks", 1, doc, |s, i| {
        let nth = u8::try_from(i).unwrap_or(u8::MAX);
        let name = if i == 0 { "internet".to_string() } else { format!("dn{}", i + 1) };
        let (second, group) = (45u8.saturating_add(nth), 0x45u16.saturating_add(nth.into()));
        let ipv4 = NetworkPrefix { address: Ipv4Addr::new(10, second, 0, 0), length: 16 };
        let ipv6 = NetworkPrefix { address: Ipv6Addr::new(0xfd00, 0x9997, group, 0, 0, 0, 0, 0), length: 48 };
        let mut network = DataNetworkConfig {
            dnn: match name.parse() {
                Ok(default) => s.value("dnn", default, "DNN, the name that UEs request (TS 23.003 §9)."),
                Err(_) => unreachable!("the default names are valid"),
            },
            ipv4_pool: s
                .value(
                    "ipv4_pool",
                    OptionalPool(Some(ipv4)),
                    "IPv4 addresses of UEs; the first is the core's own. `none`: no IPv4. The default of each further data \
                     network is the next /16.",
                )
                .0,
            ipv6_pool: s
                .value(
                    "ipv6_pool",
                    OptionalPool(Some(ipv6)),
                    "IPv6 prefix, from which each session gets a /64 (TS 23.501 §5.8.2.2). `none`: no IPv6. The default is a unique \
                     local prefix (RFC 4193).",
                )
                .0,
            dns: s.list(
                "dns",
                vec![
                    IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)),
                    IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8)),
                    IpAddr::V6(Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111)),
                ],
                "DNS servers sent to UEs, in order (TS 24.008 §10.5.6.3).",
            ),
            p_cscf: s.list("p_cscf", vec![], "P-CSCF addresses of the IMS, sent to UEs that request them (TS 24.229 §9.2.1)."),
            mtu: s.value(
                "mtu",
                1400,
                "MTU of sessions in octets, sent to UEs (TS 23.060 Annex C): 1500 on N3 less the tunnel's \
                 headers, with room for IPv6 and IPsec below it.",
            ),
            n6_link: super::router_link::read(s),
            up_integrity: s.value(
                "up_integrity",
                Protection::Unset,
                "Integrity of user packets over the air: required, preferred or not-needed (TS 23.501 §5.10.3). unset: \
                 gNBs decide.",
            ),
            up_confidentiality: s.value(
                "up_confidentiality",
                Protection::Unset,
                "Ciphering of user packets over the air, likewise. If only one of the two is set, the other is \
                 preferred.",
            ),
            ethernet: s.value(
                "ethernet",
                false,
                "Allow Ethernet sessions (TS 23.501 §5.6.10.2). Their frames go through a TAP device of this host, \
                 named like the TUN device with an e appended: whimbrel0e.",
            ),
            ethernet_bridge: s.optional(
                "ethernet_bridge",
                "br0",
                "Bridge of this host to which the TAP device is added.",
            ),
            unstructured: s.value(
                "unstructured",
                false,
                "Allow unstructured sessions (TS 23.501 §5.6.10.3), each over UDP from an IPv6 prefix of its own.",
            ),
            unstructured_server: s.optional(
                "unstructured_server",
                "[2001:db8::1]:7000",
                "Server of unstructured sessions. The core's end of the tunnel uses the same port number.",
            ),
            reserved_pools: s.sections(
                "reserved_pools",
                0,
                "Pools for the sessions of one slice, instead of the pools above:",
                |s, _| reserved_pool(s),
            ),
            always_on: s.value(
                "always_on",
                false,
                "Accept always-on sessions if UEs request them (TS 23.501 §5.6.13).",
            ),
            ladn: s.list(
                "ladn",
                vec![],
                "Tracking areas of a local area data network (TS 23.501 §5.6.5), outside of which it is not available. Empty: \
                 it is available everywhere.",
            ),
            ladn_leaving: s.value(
                "ladn_leaving",
                LadnLeaving::Wait,
                "When a UE leaves those areas, its sessions wait until it returns, or are released: wait or release.",
            ),
            predicted: s.value(
                "predicted",
                true,
                "Predict handovers of UEs with a session of it, if `foresight.enabled` is set.",
            ),
            charging: super::charging::read(s),
            firewall: super::firewall::read(s),
            flows: Vec::new(),
            treatments: BTreeMap::new(),
        };
        (network.flows, network.treatments) = super::flow::read(s);
        check(s, &network);
        network
    })
}

fn reserved_pool(s: &mut Section<'_, '_>) -> ReservedPool {
    let pool = ReservedPool {
        slice: s.value("slice", SNssai::sst(1), "The slice."),
        ipv4_pool: s.optional("ipv4_pool", "10.99.0.0/16", "Its IPv4 pool."),
        ipv6_pool: s.optional("ipv6_pool", "fd00:9997:99::/48", "Its IPv6 pool."),
    };
    check_pools(s, pool.ipv4_pool, pool.ipv6_pool);
    pool
}

fn check(s: &mut Section<'_, '_>, network: &DataNetworkConfig) {
    let dnn = &network.dnn;
    let addressed = network.ipv4_pool.is_some() || network.ipv6_pool.is_some();
    if !addressed && !network.ethernet && !network.unstructured {
        let what = format!(
            "the data network `{dnn}` has neither an IPv4 nor an IPv6 pool, so no session is possible"
        );
        s.refuse("ipv4_pool", what, "give it `ipv4_pool` or `ipv6_pool`");
    }
    check_pools(s, network.ipv4_pool, network.ipv6_pool);
    if network.unstructured
        && !(matches!(network.unstructured_server, Some(SocketAddr::V6(_))) && network.ipv6_pool.is_some())
    {
        let what = format!("unstructured sessions of `{dnn}` have no tunnel");
        s.refuse(
            "unstructured",
            what,
            "give `unstructured_server` an IPv6 address and port, and keep an `ipv6_pool`",
        );
    }
    // RFC 791 §3.1 and RFC 8200 §5 give the lower bound, an N3 of jumbo frames the upper.
    let least = if network.ipv6_pool.is_some() { 1280 } else { 576 };
    let what = format!("an MTU of {} octets does not carry IP here", network.mtu);
    s.bound("mtu", (least..=8900).contains(&network.mtu), what, format!("{least} to 8900"));
}

pub(super) fn check_pools(
    s: &mut Section<'_, '_>,
    ipv4_pool: Option<NetworkPrefix<Ipv4Addr>>,
    ipv6_pool: Option<NetworkPrefix<Ipv6Addr>>,
) {
    let length = ipv4_pool.map_or(8, |pool| pool.length);
    let what = format!("/{length} is not a valid size of a pool");
    s.bound("ipv4_pool", (8..=29).contains(&length), what, "a prefix of /8 to /29");
    let length = ipv6_pool.map_or(32, |pool| pool.length);
    let what = format!("/{length} cannot be split into a /64 for each session");
    s.bound("ipv6_pool", (32..=63).contains(&length), what, "a prefix of /32 to /63");
}

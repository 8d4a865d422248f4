//! The operator's configuration, checked once at start and immutable afterwards.
//!
//! A change makes a new version; an envelope names the version under which it runs, so that a replay gives the same
//! result. Every default carries its clause or its reason.

mod access;
mod areas;
mod open;
mod veil;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{AmfId, Dnn, FiveQi, Guami, Instant, PlmnId, SNssai, Supi, Tac, Tai};
use whimbrel_security::{CipheringAlgorithm, IntegrityAlgorithm};

use crate::n14::PeerAmfId;
use crate::policy::{FlowName, FlowPolicy, Treatment, dscp_of};
use crate::refusal::RefusalKind;
use crate::services::nchf::RatingGroup;
use crate::upf::UpfId;

pub use access::{AccessPolicies, AuthenticationPolicy, Congestion, Emergency, EquipmentPrefix};
pub use areas::RegistrationAreas;
pub use open::Open;
pub use veil::VeilPolicy;

/// The whole configuration of the control plane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Version of this configuration; envelopes name it.
    pub version: u32,
    /// The AMF's part.
    pub amf: Amf,
    /// The SMF's part.
    pub smf: Smf,
    /// Durations of the network-side timers.
    pub timers: Timers,
    /// The causes that a refused UE gets.
    pub refusals: BTreeMap<RefusalKind, RefusalAnswer>,
    /// Bounds on what peers can make us hold.
    pub limits: Limits,
    /// When gNBs get OVERLOAD START.
    pub overload: OverloadRule,
    /// Users of brokers, if they are served.
    pub open: Option<Open>,
    /// Veiled UEs, if they are served.
    pub veil: Option<VeilPolicy>,
    /// The UDM that answers requests about subscribers.
    pub udm: UdmFunction,
}

/// Where the UDM is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UdmFunction {
    /// In the CTA, on the subscriber store: it answers in the same turn.
    #[default]
    Embedded,
    /// Another vendor's, over HTTP/2: its answers are later inputs.
    Remote,
}

/// The AMF: its identity and service area (TS 23.501 §5.9.4, §5.15).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Amf {
    /// AMF name, shown to gNBs in NG SETUP RESPONSE.
    pub name: String,
    /// The network that this AMF serves.
    pub plmn: PlmnId,
    /// Region, set and pointer.
    pub amf_id: AmfId,
    /// Tracking areas served; a gNB must broadcast at least one of them.
    pub tacs: Vec<Tac>,
    /// How they are joined.
    pub areas: RegistrationAreas,
    /// Slices that this network offers.
    pub slices: Vec<SNssai>,
    /// Relative capacity among the AMFs of a set (TS 38.413 §9.3.1.32).
    pub relative_capacity: u8,
    /// Integrity algorithms in order of preference (TS 33.501 §6.7.1.1). NIA0 is refused by the loader.
    pub integrity: Vec<IntegrityAlgorithm>,
    /// Ciphering algorithms in order of preference; NEA0 only where the operator names it.
    pub ciphering: Vec<CipheringAlgorithm>,
    /// Full and short network name (TS 24.501 §8.2.19), sent in CONFIGURATION UPDATE COMMAND.
    pub network_name: NetworkName,
    /// Voice over PS supported over 3GPP access (TS 24.501 §9.11.3.5).
    pub ims_vops: bool,
    /// Local time, as UEs get it.
    pub local_time: LocalTime,
    /// Policies of access.
    pub access: AccessPolicies,
    /// Emit events about the movement of connected UEs ([`Sign`](crate::event::Sign)).
    pub signs: bool,
    /// Other AMFs of this network, by [`PeerAmfId`].
    pub peer_amfs: Vec<PeerAmf>,
    /// Whose handovers are predicted, and how they are prepared.
    pub prediction: Prediction,
    /// The gNBs that may set up, and from where; empty: any gNB may, and one that is up keeps its identity while it answers.
    pub gnbs: Vec<AllowedGnb>,
    /// The SMF is another vendor's.
    pub uses_remote_smf: bool,
}

/// Local time of the network. The edge gives a new version of the configuration when the offset changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalTime {
    /// Offset from UTC in quarters of an hour, daylight saving time included (TS 24.008 §10.5.3.8).
    pub quarters: i8,
    /// Hours of daylight saving time in it (TS 24.008 §10.5.3.12); `None`: the rules of the zone are not known, and UEs get no such element.
    pub daylight_saving_hours: Option<u8>,
    /// When the offset last changed.
    pub since: Instant,
}

impl LocalTime {
    /// True if UEs are to get the other one instead.
    pub fn differs_from(&self, other: &Self) -> bool {
        let sent = |t: &Self| (t.quarters, t.daylight_saving_hours);
        sent(self) != sent(other)
    }
}

/// A gNB that may set up NG, and the networks that it may connect from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedGnb {
    /// PLMN of its Global gNB ID.
    pub plmn: PlmnId,
    /// gNB ID of any length: an operator does not use one number twice.
    pub gnb_id: u32,
    /// Networks that the gNB may connect from.
    pub networks: Vec<IpPrefix>,
}

/// A network in CIDR form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpPrefix {
    /// An address of it.
    pub address: IpAddr,
    /// Length of the prefix in bits.
    pub length: u8,
}

impl IpPrefix {
    /// The network of one address.
    pub fn of_address(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self { address, length: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// The network that an address is counted under: an IPv4 address itself, and of an IPv6 address the /64 prefix, within which one host
    /// can take any address.
    pub fn of_source(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self { address: address.into(), length: 32 },
            IpAddr::V6(address) => {
                let prefix = u128::from(address) & !u128::from(u64::MAX);
                Self { address: Ipv6Addr::from(prefix).into(), length: 64 }
            }
        }
    }

    /// True if the prefix covers the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, bits: u32| {
            let rest = bits.saturating_sub(u32::from(self.length));
            (a ^ b).checked_shr(rest).unwrap_or(0) == 0
        };
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(u32::from(a).into(), u32::from(b).into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.into(), b.into(), 128),
            _ => false,
        }
    }
}

/// Prediction of handovers (Synergy §III-C).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// Ask gNBs for the container of a predicted handover, so that its target is prepared too. gNBs need an extension of ours for that.
    pub early_containers: bool,
    /// UEs with a session of one of these data networks are not predicted.
    pub excluded_dnns: Vec<Dnn>,
    /// These subscribers are not predicted.
    pub excluded_supis: Vec<Supi>,
}

/// Another AMF of this network, to which connected UEs are handed over (TS 23.502 §4.9.1.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerAmf {
    /// Its name, for people.
    pub name: String,
    /// Its region, set and pointer.
    pub amf_id: AmfId,
    /// The tracking areas that it serves.
    pub tacs: Vec<Tac>,
}

impl Amf {
    /// The AMF's globally unique name.
    pub fn guami(&self) -> Guami {
        Guami { plmn: self.plmn, amf_id: self.amf_id }
    }

    /// Whether a tracking area is served.
    pub fn serves(&self, tai: Tai) -> bool {
        tai.plmn == self.plmn && self.tacs.contains(&tai.tac)
    }

    /// True for an AMF of the same set as this one (TS 23.501 §5.19): any of a set can serve a UE of the set.
    pub fn is_of_set(&self, amf_id: AmfId) -> bool {
        (amf_id.region, amf_id.set()) == (self.amf_id.region, self.amf_id.set())
    }

    /// The peer AMF of this identifier.
    pub fn peer_amf(&self, amf_id: AmfId) -> Option<PeerAmfId> {
        let at = self.peer_amfs.iter().position(|n| n.amf_id == amf_id)?;
        u8::try_from(at).ok().map(PeerAmfId)
    }

    /// The peer AMFs of this one's set.
    pub fn others_of_set(&self) -> impl Iterator<Item = PeerAmfId> {
        self.peers_of_set(self.amf_id)
    }

    /// The peer AMFs of the set of this identifier.
    pub fn peers_of_set(&self, of: AmfId) -> impl Iterator<Item = PeerAmfId> {
        let is = move |id: AmfId| (id.region, id.set()) == (of.region, of.set());
        (0u8..).map(PeerAmfId).zip(&self.peer_amfs).filter(move |(_, n)| is(n.amf_id)).map(|(id, _)| id)
    }

    /// The other AMFs that serve a tracking area.
    pub fn peer_amfs_of(&self, tai: Tai) -> impl Iterator<Item = PeerAmfId> {
        let peers = (0u8..).map(PeerAmfId).zip(&self.peer_amfs);
        peers.filter(move |(_, n)| tai.plmn == self.plmn && n.tacs.contains(&tai.tac)).map(|(id, _)| id)
    }
}

/// The network's name as UEs show it (TS 24.008 §10.5.3.5a).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NetworkName {
    /// Full name; empty: not sent.
    pub full: String,
    /// Short name; empty: not sent.
    pub short: String,
}

/// The SMF: which data networks there are and what a session gets (TS 23.501 §5.6).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Smf {
    /// Data networks by name.
    pub data_networks: BTreeMap<Dnn, DataNetwork>,
    /// The SMF's N4 address, its node ID towards UPFs (TS 29.244 §8.2.38).
    pub node_id: IpAddr,
    /// The UPFs, by [`UpfId`](crate::UpfId): one at least, and at most [`UPFS_MAX`](crate::UPFS_MAX).
    pub upfs: Vec<Upf>,
    /// The name of the SMF set, if AMFs of a set share UPFs (TS 23.003 §28.14): its SMFs may go on with each other's sessions.
    pub set_id: Option<String>,
    /// What becomes of packets for a UE that is between two gNBs.
    pub handover_downlink: HandoverDownlink,
    /// Outer DSCP of packets to gNBs, by 5QI, where it differs from [`dscp_of`](crate::policy::dscp_of).
    pub marking: BTreeMap<FiveQi, u8>,
    /// How UPFs keep packets for idle UEs.
    pub buffering: Buffering,
    /// Treatment of sessions while the PCF does not answer. `None`: there is no PCF, and sessions have the policy of their data network.
    pub pcf: Option<FailureHandling>,
}

impl Smf {
    /// The DSCP of packets to gNBs.
    pub fn dscp(&self, five_qi: FiveQi) -> u8 {
        self.marking.get(&five_qi).copied().unwrap_or_else(|| dscp_of(five_qi))
    }

    /// The form that the rules of a UPF need.
    pub(crate) fn rule_form(&self, upf: UpfId) -> RuleForm {
        self.upfs.get(usize::from(upf.0)).map_or_else(RuleForm::default, |upf| RuleForm {
            interface_types: upf.interface_types,
            n3_ip_version: upf.n3_ip_version,
        })
    }
}

/// Buffering at UPFs for idle UEs (BAR, TS 29.244 §5.2.4). `None`: as the UPF has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffering {
    /// Delay between the first packet and its report, in units of 50 ms (TS 29.244 §8.2.28): UEs that come by themselves meanwhile are not
    /// paged.
    pub notification_delay: u8,
    /// Packets of one session.
    pub packets: Option<u8>,
    /// The same for a UE in MICO mode or with eDRX (TS 23.502 §4.2.3.3 step 2).
    pub extended_packets: Option<u8>,
}

/// Where downlink packets wait from HANDOVER COMMAND to HANDOVER NOTIFY (TS 23.502 §4.9.1.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandoverDownlink {
    /// In the UPF (L25GC §3.3). It has more room than a gNB, and each packet crosses N3 once. Only packets that the source has
    /// already go through forwarding tunnels, if the gNBs support them.
    #[default]
    Buffer,
    /// At the source gNB, which forwards them if the target accepts.
    Forward,
}

/// What a UPF serves, and its priority and weight among UPFs that serve the same (TS 23.501 §6.3.3.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upf {
    /// Its name, for people.
    pub name: String,
    /// Slices that it serves; empty: all.
    pub slices: Vec<SNssai>,
    /// Data networks that it serves; empty: all.
    pub dnns: Vec<Dnn>,
    /// Tracking areas that it serves; empty: all.
    pub tacs: Vec<Tac>,
    /// Priority: the usable UPFs of the lowest value are selected.
    pub priority: u16,
    /// Its share of the sessions among UPFs of one priority.
    pub weight: u16,
    /// UEs with sessions at which it counts as fully loaded, whatever it reports; `None`: its reports alone count.
    pub capacity: Option<u32>,
    /// Its N4 address, by which other SMFs know it too. `None`: it is this program's own UPF.
    pub address: Option<IpAddr>,
    /// It supports rules that take effect when the UE's first packet arrives (`OnArrival`, a private PFCP IE).
    pub predicts: bool,
    /// Pools of UE addresses that the SMF allocates for it (TS 23.501 §5.8.2.2.1); empty: the UPF does.
    pub ue_pools: Vec<UePool>,
    /// Rules name the 3GPP interface of packets, such as N3 (TS 29.244 §8.2.118).
    pub interface_types: bool,
    /// IP versions of its tunnels.
    pub n3_ip_version: N3IpVersion,
}

/// IP versions of a UPF's tunnels on N3 and N9, as its rules have them: in F-TEIDs that it is to choose (TS 29.244 §8.2.3), and in the outer headers that it is
/// to remove (TS 29.244 §8.2.64).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum N3IpVersion {
    /// IPv4 tunnels alone.
    Ipv4,
    /// IPv6 tunnels alone.
    Ipv6,
    /// Whichever of both it has.
    #[default]
    Both,
}

/// In what UPFs of other makes need other rules than ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleForm {
    /// Rules name 3GPP interfaces ([`Upf::interface_types`]).
    pub(crate) interface_types: bool,
    /// IP versions of tunnels ([`Upf::n3_ip_version`]).
    pub(crate) n3_ip_version: N3IpVersion,
}

/// Addresses for the UEs of one data network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UePool {
    /// The data network.
    pub dnn: Dnn,
    /// IPv4 network and its prefix length.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// IPv6 network, of which each session gets a /64, and its prefix length.
    pub ipv6: Option<(Ipv6Addr, u8)>,
}

impl Default for Upf {
    /// One that serves everything.
    fn default() -> Self {
        Self {
            name: "upf".into(),
            slices: Vec::new(),
            dnns: Vec::new(),
            tacs: Vec::new(),
            priority: 0,
            weight: 100,
            capacity: None,
            address: None,
            predicts: false,
            ue_pools: Vec::new(),
            interface_types: false,
            n3_ip_version: N3IpVersion::Both,
        }
    }
}

/// One data network (DNN).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataNetwork {
    /// Whether IPv4 sessions can be had.
    pub ipv4: bool,
    /// Whether IPv6 sessions can be had.
    pub ipv6: bool,
    /// Whether Ethernet sessions can be had.
    pub ethernet: bool,
    /// Whether unstructured sessions can be had.
    pub unstructured: bool,
    /// Sessions are always-on for UEs that ask for it (TS 23.501 §5.6.13).
    pub always_on: bool,
    /// Set if it is a local area data network (TS 23.501 §5.6.5).
    pub ladn: Option<Ladn>,
    /// QoS flows beside the default one.
    pub flows: Vec<FlowPolicy>,
    /// Treatment of flows, by name.
    pub treatments: BTreeMap<FlowName, Treatment>,
    /// DNS servers for UEs.
    pub dns_v4: Vec<Ipv4Addr>,
    /// DNS servers for UEs.
    pub dns_v6: Vec<Ipv6Addr>,
    /// P-CSCF addresses for IMS (TS 24.008 §10.5.6.3.1).
    pub p_cscf_v4: Vec<Ipv4Addr>,
    /// P-CSCF addresses for IMS.
    pub p_cscf_v6: Vec<Ipv6Addr>,
    /// Link MTU for UEs, in octets: what is left of N3's MTU within the tunnel.
    pub mtu: u16,
    /// The user plane security policy for gNBs; `None`: they decide (TS 33.501 §6.6.1).
    pub up_security: Option<UpSecurity>,
    /// Charging of its sessions; `None`: they are not charged.
    pub charging: Option<ChargingPolicy>,
}

/// Charging of a data network's sessions by the CHF (TS 32.255 §5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargingPolicy {
    /// The rating group of all traffic.
    pub rating_group: RatingGroup,
    /// Treatment of sessions while no CHF answers.
    pub failure_handling: FailureHandling,
}

/// Treatment of sessions while a CHF or a PCF does not answer (TS 32.291 §6.1.6.3.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureHandling {
    /// No session begins, and one whose quota is used up is released.
    #[default]
    Terminate,
    /// Sessions begin and go on without a quota, or with the policy of their data network.
    Continue,
}

/// A local area data network: available in its service area only (TS 23.501 §5.6.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ladn {
    /// Its service area.
    pub tacs: BTreeSet<Tac>,
    /// Release the sessions of UEs that leave it; else their packets wait until they return.
    pub release: bool,
}

/// User plane security enforcement information (TS 23.501 §5.10.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UpSecurity {
    /// Integrity protection of user packets.
    pub integrity: UpProtection,
    /// Confidentiality protection of user packets.
    pub confidentiality: UpProtection,
}

/// Whether one kind of protection applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UpProtection {
    /// No session without it.
    Required,
    /// Where the gNB can.
    Preferred,
    /// Protection is never used.
    NotNeeded,
}

/// Durations of the network's NAS timers (TS 24.501 Table 10.2.2, Table 10.3.2) and guards.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Timers {
    /// Periodic registration: sent to the UE.
    pub t3512: Duration,
    /// Pause after five failed registrations: sent to the UE.
    pub t3502: Duration,
    /// Paging sent again.
    pub t3513: Duration,
    /// DEREGISTRATION REQUEST sent again.
    pub t3522: Duration,
    /// REGISTRATION ACCEPT sent again.
    pub t3550: Duration,
    /// CONFIGURATION UPDATE COMMAND sent again.
    pub t3555: Duration,
    /// AUTHENTICATION REQUEST and SECURITY MODE COMMAND sent again.
    pub t3560: Duration,
    /// IDENTITY REQUEST sent again.
    pub t3570: Duration,
    /// PDU SESSION RELEASE COMMAND sent again.
    pub t3592: Duration,
    /// PDU SESSION MODIFICATION COMMAND sent again.
    pub t3591: Duration,
    /// How long a session of SSC mode 3 stays beside its successor (TS 23.501 §5.6.9.2.3).
    pub pdu_session_address_lifetime: Duration,
    /// How long a UE keeps a rule that it learnt by reflective QoS from the last packet on (T3583; TS 24.501 §6.2.5.1.4.4).
    pub reflective_qos: Duration,
    /// Implicit deregistration after the mobile reachable timer (TS 24.501 §5.3.7).
    pub implicit_deregistration: Duration,
    /// Guard time for answers of other network functions, after which the procedure fails; and for answers of gNBs without which the
    /// procedure goes on (UE CONTEXT RELEASE COMPLETE, setups at the source of a handover).
    pub guard: Duration,
    /// Guard time for a gNB's answer, after which the UE's procedure fails (TS 38.413 §8.3.1, §8.3.4, §8.4.2).
    pub gnb_answer: Duration,
    /// How long a gNB may take to set up the resources of a session (TS 38.413 §8.2.1).
    pub session_setup: Duration,
    /// Inactivity timer of an N2 connection without a procedure and without an active session (TS 24.501 §5.3.1.3).
    pub connection_idle: Duration,
    /// The same after a follow-on request (TS 24.501 §5.5.1.2.4).
    pub follow_on: Duration,
    /// User plane inactivity timer: a session without packets for so long is deactivated, and the UE's connection is released with its
    /// last active session (TS 23.502 §4.3.7). Zero: only gNBs decide.
    pub session_inactivity: Duration,
    /// How long a connection stays after a reject or an accept upon which the UE registers again: it may do so on this connection
    /// (TS 24.501 §5.3.1.3). Zero: released at once.
    pub release_delay: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            // TS 24.501 Table 10.2.1 says 54 min, which GPRS timer 3 cannot code.
            t3512: Duration::from_secs(60 * 60),
            t3502: Duration::from_secs(12 * 60), // TS 24.501 Table 10.2.1
            t3513: Duration::from_secs(2), // left to the network (TS 24.501 Table 10.2.2); longer than any paging cycle
            t3522: Duration::from_secs(6), // TS 24.501 Table 10.2.2
            t3550: Duration::from_secs(6),
            t3555: Duration::from_secs(6),
            t3560: Duration::from_secs(6),
            t3570: Duration::from_secs(6),
            t3592: Duration::from_secs(16), // TS 24.501 Table 10.3.2
            t3591: Duration::from_secs(16),
            // Left to the SMF; what a UE has under way in the former session (downloads, calls) is mostly over by then.
            pdu_session_address_lifetime: Duration::from_secs(120),
            // Left to the SMF; longer than flows pause, and shorter than their far ends' addresses get other owners.
            reflective_qos: Duration::from_secs(60),
            implicit_deregistration: Duration::from_secs(4 * 60), // TS 24.501 §5.3.7: T3512 + 4 min
            guard: Duration::from_secs(5), // longer than PFCP repeats a request: three times, a second apart
            // The UE aborts a registration or a service request after 15 s (T3510, T3517: TS 24.501 Table 10.2.1), and the source a
            // handover preparation after a few seconds (TNGRELOCprep: TS 38.413 §9.5). The network's guard is longer, since a slow gNB
            // may already have done what was asked.
            gnb_answer: Duration::from_secs(20),
            // Four of the UE's five periods of T3580, 16 s each (TS 24.501 Table 10.3.1, §6.4.1.6 a). Until the fifth expires the UE awaits
            // its session, and gets the reject.
            session_setup: Duration::from_secs(64),
            connection_idle: Duration::from_secs(10), // TS 24.501 §5.3.1.3 leaves it to the network
            follow_on: Duration::from_secs(10),       // not at once, says TS 24.501 §5.5.1.2.4
            session_inactivity: Duration::ZERO, // gNBs see the radio, and mostly have a timer of their own
            // A UE that does not wait for the release sends its request within some ten milliseconds, on a busy host within a few times
            // that. A UE that waits for the release (T3540, 10 s) waits no longer than this.
            release_delay: Duration::from_millis(200),
        }
    }
}

/// The operator's cause and back-off for a class of refusals, instead of the defaults.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct RefusalAnswer {
    /// 5GMM or 5GSM cause value instead of the default.
    pub cause: Option<u8>,
    /// T3346 (5GMM congestion) or the session back-off timer.
    pub back_off: Option<Duration>,
}

/// Bounds on state that peers can create. Each has a counter.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// UEs at once, registered or on the way (slots are 24 bits of the AMF-UE-NGAP-ID).
    pub ues: u32,
    /// gNB associations at once.
    pub ran_nodes: u32,
    /// PDU sessions of one UE (TS 24.501 §9.4: identities 1 to 15).
    pub sessions_per_ue: u8,
    /// UEs not yet authenticated at once: bounds a flood of first messages.
    pub unauthenticated_ues: u32,
    /// Of these, those of one gNB: one gNB's flood leaves room for the UEs of others.
    pub unauthenticated_ues_per_gnb: u32,
    /// First messages of UEs that one gNB may bring in a second, and at once.
    pub first_messages_per_s: u32,
    /// Associations at once on which no gNB has set up.
    pub ran_nodes_waiting: u32,
    /// UEs paged in a second, each by all gNBs of its area; excess PAGING is not sent, and is repeated when T3513
    /// expires.
    pub pagings_per_s: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ues: 1 << 20,
            ran_nodes: 1024,
            sessions_per_ue: 8,
            unauthenticated_ues: 65_536,
            unauthenticated_ues_per_gnb: 16_384,
            // More than one processor core registers in a second: a bound on floods, not a policy.
            first_messages_per_s: 10_000,
            // All gNBs of a site that lost its link come back at once.
            ran_nodes_waiting: 256,
            // A cell pages some hundred UEs in a second (TS 38.304 §7.1).
            pagings_per_s: 10_000,
        }
    }
}

/// When OVERLOAD START and STOP are sent (TS 23.501 §5.19.5.2 leaves it to the operator). Between the thresholds nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverloadRule {
    /// Overload starts at this percentage of `limits.ues` or `limits.unauthenticated_ues`.
    pub start_percent: u8,
    /// It may end below this percentage of both.
    pub stop_percent: u8,
    /// It starts when messages wait this long in `start_samples` samples in a row.
    pub start_delay: Duration,
    /// Samples (one each half second) in a row with a delay of `start_delay`. A single late one is a stall of the host, which gNBs
    /// cannot relieve.
    pub start_samples: u8,
    /// It may end when messages wait less than this.
    pub stop_delay: Duration,
    /// It ends after this time below the lower thresholds.
    pub hold: Duration,
    /// The share of new connections that gNBs are to reject, in percent (TS 38.413 §9.2.6.14).
    pub reduction_percent: u8,
}

impl Default for OverloadRule {
    fn default() -> Self {
        Self {
            start_percent: 90,
            stop_percent: 75,
            // A tenth of the 6 s after which NAS messages are repeated (T3560 and others).
            start_delay: Duration::from_millis(500),
            // 1.5 seconds: longer than a stall of the host.
            start_samples: 3,
            stop_delay: Duration::from_millis(100),
            hold: Duration::from_secs(10),
            reduction_percent: 50,
        }
    }
}

//! The subscribers of the simulation and the configurations that it runs with.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use whimbrel_control::config::{
    AccessPolicies, Amf, Config, DataNetwork, Limits, LocalTime, NetworkName, Smf, Timers, Upf,
};
use whimbrel_control::udm::{
    Ambr, Arp, AuthMethod, AuthenticationSubscription, SessionTypes, SubscribedDnn, SubscribedSlice,
    Subscribers, Subscription, UdmError,
};
use whimbrel_ids::{AmfId, FiveQi, Pei, PlmnId, SNssai, Supi, Tac};
use whimbrel_ran::ue::{Profile, SuciSource, UeConfig};
use whimbrel_security::{
    AkaFunctions, AuthenticationManagementField, CipheringAlgorithm, IntegrityAlgorithm, K, Milenage, Opc,
    SqnOffset, Topc, Tuak, UsimSqn,
};

/// Subscribers in memory. Every SUPI under the test network is subscribed with the key that [`key_of`] gives it, unless
/// it is barred or unknown.
#[derive(Debug, Default)]
pub struct SimSubscribers {
    offsets: BTreeMap<Supi, SqnOffset>,
    /// SUPIs that are not subscribers.
    pub unknown: Vec<Supi>,
    /// SUPIs that are barred.
    pub barred: Vec<Supi>,
    /// SUPIs that are authenticated by EAP-AKA'.
    pub eap_aka_prime: Vec<Supi>,
    /// SUPIs whose USIMs have TUAK, with [`tuak_of`].
    pub tuak: Vec<Supi>,
    /// Those of single subscribers.
    own: BTreeMap<Supi, Arc<Subscription>>,
    shared: Option<Arc<Subscription>>,
}

impl SimSubscribers {
    /// Sets the subscription of all subscribers.
    pub fn subscribe(&mut self, subscription: Subscription) {
        self.shared = Some(Arc::new(subscription));
    }

    /// Sets the subscription of one subscriber.
    pub fn subscribe_one(&mut self, supi: Supi, subscription: Subscription) {
        self.own.insert(supi, Arc::new(subscription));
    }

    fn check(&self, supi: Supi) -> Result<(), UdmError> {
        if self.barred.contains(&supi) {
            return Err(UdmError::Barred);
        }
        if self.unknown.contains(&supi) { Err(UdmError::UserNotFound) } else { Ok(()) }
    }
}

impl Subscribers for SimSubscribers {
    fn authentication(&mut self, supi: Supi) -> Result<AuthenticationSubscription, UdmError> {
        self.check(supi)?;
        let (k, opc) = key_of(supi);
        Ok(AuthenticationSubscription {
            functions: functions(supi, k, opc, self.tuak.contains(&supi)),
            method: if self.eap_aka_prime.contains(&supi) {
                AuthMethod::EapAkaPrime
            } else {
                AuthMethod::FiveGAka
            },
            amf: AuthenticationManagementField::FIVE_G,
            sqn_offset: self.offsets.get(&supi).copied().unwrap_or_default(),
        })
    }

    fn subscription(&mut self, supi: Supi) -> Result<Arc<Subscription>, UdmError> {
        self.check(supi)?;
        if let Some(own) = self.own.get(&supi) {
            return Ok(own.clone());
        }
        Ok(self.shared.get_or_insert_with(|| Arc::new(default_subscription())).clone())
    }

    fn save_sqn_offset(&mut self, supi: Supi, offset: SqnOffset) -> Result<(), UdmError> {
        self.offsets.insert(supi, offset);
        Ok(())
    }
}

/// Each UE's own key.
fn key_of(supi: Supi) -> (K, Opc) {
    let mut k = [0x46; 16];
    for (octet, digit) in k.iter_mut().zip(supi.digits()) {
        *octet ^= digit << 4 | digit;
    }
    let opc = k.map(|o| o.rotate_left(3) ^ 0xcd);
    (K::new(k), Opc::new(opc))
}

fn functions(supi: Supi, k: K, opc: Opc, tuak: bool) -> AkaFunctions {
    if tuak { tuak_of(supi).into() } else { Milenage::new(&k, opc).into() }
}

/// The TUAK functions of a UE.
pub fn tuak_of(supi: Supi) -> Tuak {
    let (k, opc) = key_of(supi);
    let mut topc = [0x17; 32];
    topc[..16].copy_from_slice(opc.octets());
    Tuak::new(k.into(), Topc::new(topc))
}

/// One slice, `internet` and `ims`, both address families.
fn default_subscription() -> Subscription {
    let ambr = Ambr { ul_kbps: 1_000_000, dl_kbps: 1_000_000 };
    let dnn = |name: &str, default| SubscribedDnn {
        dnn: name.parse().expect("a DNN"),
        default,
        session_types: SessionTypes::IP,
        ssc_mode: whimbrel_nas::ie::SscMode::One,
        five_qi: FiveQi(if default { 9 } else { 5 }),
        arp: Arp { priority: 8, may_preempt: false, preemptable: true },
        session_ambr: ambr,
        static_ipv4: None,
        static_ipv6: None,
        up_security: None,
        flows: Vec::new(),
        framed_routes: Vec::new(),
    };
    let dnns = vec![dnn("internet", true), dnn("ims", false)];
    let slice = SubscribedSlice { s_nssai: SNssai::sst(1), default: true, dnns };
    Subscription {
        ue_ambr: ambr,
        slices: vec![slice],
        rfsp: None,
        restrictions: Default::default(),
        priority: Default::default(),
    }
}

/// The embedded defaults: 999/70, TAC 1, SST 1.
pub fn default_config() -> Config {
    let network = DataNetwork {
        ipv4: true,
        ipv6: true,
        dns_v4: vec![Ipv4Addr::new(10, 45, 0, 1)],
        dns_v6: vec!["fd00:45::1".parse().expect("an address")],
        mtu: 1400,
        ..DataNetwork::default()
    };
    let data_networks = ["internet", "ims"].map(|n| (n.parse().expect("a DNN"), network.clone()));
    Config {
        version: 1,
        amf: Amf {
            name: "whimbrel-amf".to_owned(),
            plmn: PlmnId::TEST,
            amf_id: AmfId::new(2, 1, 0).expect("within its bits"),
            tacs: vec![Tac::new(1).expect("24 bits")],
            areas: Default::default(),
            slices: vec![SNssai::sst(1)],
            relative_capacity: 255,
            integrity: vec![IntegrityAlgorithm::Nia2, IntegrityAlgorithm::Nia1, IntegrityAlgorithm::Nia3],
            ciphering: vec![CipheringAlgorithm::Nea2, CipheringAlgorithm::Nea1, CipheringAlgorithm::Nea3],
            network_name: NetworkName { full: "Whimbrel".to_owned(), short: "Whimbrel".to_owned() },
            peer_amfs: Vec::new(),
            signs: false,
            prediction: Default::default(),
            gnbs: Vec::new(),
            uses_remote_smf: false,
            ims_vops: true,
            local_time: LocalTime { quarters: 4, ..LocalTime::default() },
            access: AccessPolicies::default(),
        },
        smf: Smf {
            data_networks: data_networks.into(),
            node_id: Ipv4Addr::LOCALHOST.into(),
            upfs: vec![Upf::default()],
            set_id: None,
            handover_downlink: Default::default(),
            marking: Default::default(),
            buffering: Default::default(),
            pcf: None,
        },
        overload: Default::default(),
        open: None,
        veil: None,
        udm: Default::default(),
        timers: Timers::default(),
        refusals: BTreeMap::new(),
        limits: Limits::default(),
    }
}

/// The UPF of [`default_config`].
pub fn upf_config(seed: u64) -> whimbrel_user::Config {
    nth_upf_config(0, seed)
}

/// The address of the `n`th UPF.
pub(crate) fn nth_upf_address(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 8 + n)
}

/// The `n`th UPF, with addresses of its own.
pub(crate) fn nth_upf_config(n: u8, seed: u64) -> whimbrel_user::Config {
    use whimbrel_user::{Config, DataNetwork, Ipv4Net, Ipv6Net, Isolation, PointToPoint};
    let network = |name: &str, n: u8| DataNetwork {
        dnn: name.parse().expect("a DNN"),
        ipv4_pools: vec![Ipv4Net { address: Ipv4Addr::new(10, n, 0, 0), prefix: 16 }],
        ipv6_pools: vec![Ipv6Net { address: format!("fd00:{n}::").parse().expect("a prefix"), prefix: 48 }],
        dns_ipv6: Vec::new(),
        mtu: 1400,
        ethernet: true,
        unstructured: Some(PointToPoint {
            peer: "[fd00:a5::1]:7000".parse().expect("an address"),
            port: 7000,
        }),
        reserved: Vec::new(),
        firewall: None,
    };
    let address = nth_upf_address(n);
    Config {
        node_id: std::net::IpAddr::V4(address).into(),
        n4: address.into(),
        n3_ipv4: Some(address),
        n3_ipv6: None,
        data_networks: vec![network("internet", 45 + 2 * n), network("ims", 46 + 2 * n)],
        sessions_max: 1 << 16,
        heartbeat_interval: None,
        path_failure: Config::PATH_FAILURE,
        echo_interval: None,
        guaranteed: None,
        slices: Vec::new(),
        shards: 1,
        applications: Default::default(),
        buffering: Default::default(),
        flows_first: Config::FLOWS_FIRST,
        isolation: Isolation::default(),
        flows_second: Config::FLOWS_SECOND,
        smf_f_teids: false,
        cp_port: 8805,
        seed,
    }
}

/// The `n`th UE: its SUPI, equipment and key.
pub fn ue_config(n: u32) -> UeConfig {
    let digits = format!("99970{n:010}");
    let supi = Supi::from_digits(digits.bytes().map(|b| b - b'0')).expect("15 digits");
    let imeisv = format!("35609204{n:06}01");
    let (k, opc) = key_of(supi);
    UeConfig {
        profile: Arc::new(Profile::new(PlmnId::TEST, vec![SNssai::sst(1)])),
        supi,
        pei: Pei::from_digits(imeisv.bytes().map(|b| b - b'0')).expect("16 digits"),
        k,
        opc,
        sqn: UsimSqn::default(),
        suci: SuciSource::Null,
    }
}

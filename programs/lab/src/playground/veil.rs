//! Two operators, a broker and the two relays between them, for `demo --scenario veil`: all are processes in the network namespace of the
//! playground, with certificates made for them. Each party records what it receives, sends and stores.

mod settlement;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use whimbrel_broker_client::veil::record::{self, RecordedMessage};
use whimbrel_broker_client::{files, hex, now, random, tls};
use whimbrel_broker_server::storage::UsimKeys;
use whimbrel_broker_server::veil::storage::{BilledSession, NamedHomeUser, NamedUser, VeilStorage};
use whimbrel_ids::{GlobalGnbId, PlmnId, SNssai, Supi, Tac};
use whimbrel_node::client::{Client, path_part};
use whimbrel_node::config::broker::veil_store;
use whimbrel_node::observation::Metric;
use whimbrel_open::crypto::{PrivateKey, Seed};
use whimbrel_open::id::{Domain, Nid, OperatorId, UserId};
use whimbrel_open::msg::{EpochKey, Subject, Validity};
use whimbrel_privacy::broker::{Counters, HomeUser, User};
use whimbrel_privacy::crypto::{SigningKey, VerifyingKey};
use whimbrel_privacy::log::Witness;
use whimbrel_privacy::token::TokenHash;
use whimbrel_privacy::user::UserSim;
use whimbrel_ran::edge::GnbPlace;
use whimbrel_ran::fleet::{self, ProvisionedUe};
use whimbrel_ran::gnb::GnbConfig;
use whimbrel_ran::ue::{Profile, SuciSource, UeConfig, VeilCard};
use whimbrel_security::suci::{msin_of_supi, supi_of_msin};
use whimbrel_security::{HomeNetworkPrivateKey, HomeNetworkPublicKey, Sqn, UsimSqn};

use super::open::{Process, certify};
use super::{READY_WITHIN, first_supi, seed};
use crate::programs::Program;

/// Number of operators.
pub(crate) const OPERATORS: usize = 2;
/// The domain of the broker.
pub(crate) const DOMAIN: &str = "veil.example";
/// CPFs of each operator.
const CPFS: usize = 2;
/// The IMSIs of ordinary UEs begin so: the broker's PLMN, and digits that are not found by chance.
const FIRST_IMSI: &str = "9997248213";
/// The identifier of the broker's key of SUCIs.
const SUCI_KEY_ID: u8 = 1;
/// UEs of which it is asked why they are not registered, or are.
const WHY_MAX: usize = 4;
/// Counters of a SIM between two rounds: more than the attaches of one.
const COUNTERS_PER_ROUND: u64 = 1_000;
const HOUR_S: u64 = 3_600;

/// An operator's core.
pub(crate) struct Operator {
    process: Process,
    cpfs: Vec<Process>,
    folder: PathBuf,
    pub(crate) id: OperatorId,
    pub(crate) key: [u8; 32],
    pub(crate) amf: Ipv4Addr,
    pub(crate) gateway: Ipv4Addr,
    nth: u8,
    gnbs: u8,
    client: Client,
    /// Output of `whimbrel-broker settle`.
    settle_log: Vec<u8>,
}

impl Operator {
    /// The operator's gNBs, with their addresses.
    pub(crate) fn gnb_places(&self) -> Vec<GnbPlace> {
        let place = |n: u8| {
            let address = IpAddr::V4(Ipv4Addr::new(127, 0, 1 + self.nth, n));
            let id = self.gnb_id(n);
            let tac = Tac::new(1).expect("24 bits hold it");
            GnbPlace {
                config: GnbConfig::new(id, tac, vec![SNssai::sst(1)], address),
                address,
                amfs: Vec::new(),
            }
        };
        (1..=self.gnbs).map(place).collect()
    }

    fn gnb_id(&self, n: u8) -> GlobalGnbId {
        // Numbers that are not found by chance.
        let number = 0x0a5_0000 | u32::from(self.nth) << 12 | u32::from(n) << 4 | 7;
        GlobalGnbId::new(self.id.plmn, number, 28).expect("28 bits hold it")
    }

    /// Where it writes the token that is broadcast.
    fn token_file(&self) -> PathBuf {
        self.folder.join("token")
    }

    /// The token that it broadcasts.
    pub(crate) fn token(&self) -> Option<TokenHash> {
        token_in(&self.token_file())
    }

    /// What gNBs get from O&M: a look at the file of the core.
    pub(crate) fn token_source(&self) -> PathBuf {
        self.token_file()
    }

    /// What the core's API shows of its UEs, with its metrics and its events.
    pub(crate) fn shown(&self) -> Vec<(&'static str, Vec<u8>)> {
        let get = |path: &str| self.client.get::<Value>(path).map(|v| v.to_string().into_bytes());
        let of = [("UEs", "/api/v1/ues"), ("refusals", "/api/v1/refusals"), ("status", "/api/v1/status")];
        let mut shown: Vec<_> =
            of.into_iter().filter_map(|(what, path)| Some((what, get(path).ok()?))).collect();
        shown.extend(self.client.metrics().ok().map(|text| ("metrics", text.into_bytes())));
        let ues = self.client.get::<Value>("/api/v1/ues").unwrap_or_default();
        let names = ues["ues"].as_array().into_iter().flatten().filter_map(|ue| ue["supi"].as_str());
        let why = names.take(WHY_MAX).map(|supi| format!("/api/v1/why/{}", path_part(supi)));
        shown.extend(why.filter_map(|path| Some(("why", get(&path).ok()?))));
        shown
    }

    /// UEs that are left.
    pub(crate) fn left(&self) -> Result<u64, String> {
        Ok(self.client.get::<Value>("/api/v1/ues")?["total"].as_u64().unwrap_or(0))
    }

    /// A value of its metrics.
    pub(crate) fn reading(&self, series: &str) -> Result<f64, String> {
        self.client.reading(series)
    }

    /// Kills a CPF that serves UEs, as `kill -9` does, when one does. Errors: none does.
    pub(crate) fn lose_cpf(&mut self) -> Result<(), String> {
        let begin = Instant::now();
        while begin.elapsed() < READY_WITHIN {
            for n in 0..self.cpfs.len() {
                let serves = Client::new(cpf_api(self.nth, n))
                    .reading(Metric::CpfUes.name())
                    .is_ok_and(|ues| ues > 0.0);
                if let Some(cpf) = self.cpfs.get_mut(n).filter(|_| serves) {
                    cpf.kill();
                    return Ok(());
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err("no CPF serves UEs".into())
    }

    /// What it has on disk: name and octets.
    pub(crate) fn stored(&self) -> Vec<(&'static str, Vec<u8>)> {
        let files = [
            ("subscriber store", "whimbrel.db"),
            ("subscriber store", "whimbrel.db-wal"),
            ("wallet file", "whimbrel.wallet"),
            ("stored UEs", "whimbrel.ues"),
            ("session groups", "whimbrel.groups"),
            ("claims", "whimbrel.claims"),
        ];
        let mut all: Vec<_> = files
            .into_iter()
            .filter_map(|(what, name)| Some((what, fs::read(self.folder.join(name)).ok()?)))
            .collect();
        all.push(("log", self.process.logged().into_bytes()));
        all.extend(self.cpfs.iter().map(|cpf| ("log", cpf.logged().into_bytes())));
        all.push(("log", self.settle_log.clone()));
        all
    }

    /// What passed on N2, N3 and N4.
    pub(crate) fn capture(&self) -> Result<Vec<u8>, String> {
        let path = self.folder.join("capture.pcap");
        fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// What passed between it and the broker.
    pub(crate) fn record(&self) -> Result<Vec<RecordedMessage>, String> {
        record::read(&self.folder.join("record"))
    }
}

/// The token in a file that the core writes; `None` while there is none.
pub(crate) fn token_in(file: &Path) -> Option<TokenHash> {
    let text = fs::read_to_string(file).ok()?;
    whimbrel_broker_client::unhex(text.trim())?.try_into().ok().map(TokenHash)
}

/// The class of a user's UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// It attaches veiled.
    Veiled,
    /// An ordinary UE, which the broker authenticates and the operator does not know.
    Ordinary,
}

/// A user of the broker.
pub(crate) struct VeilUser {
    pub(crate) id: UserId,
    pub(crate) name: String,
    pub(crate) class: Class,
    key: [u8; 32],
    subscription: ProvisionedUe,
}

impl VeilUser {
    /// The IMSI of its USIM.
    pub(crate) fn supi(&self) -> Supi {
        self.subscription.supi
    }

    /// The digits of the IMSI behind the PLMN, as a SUCI of the null scheme has them.
    pub(crate) fn msin(&self) -> Option<Vec<u8>> {
        msin_of_supi(network().ok()?, self.supi())
    }

    /// K of its USIM.
    pub(crate) fn k(&self) -> [u8; 16] {
        self.subscription.k
    }

    /// The public half of its key.
    pub(crate) fn public(&self) -> [u8; 32] {
        SigningKey::new(&self.key).verifying_key().octets()
    }
}

/// What the UEs need of the broker.
struct OfBroker {
    key: VerifyingKey,
    epoch: EpochKey,
}

/// The keys of the agency, and where copies go.
#[derive(Clone)]
pub(crate) struct AgencyKeys {
    pub(crate) signing: SigningKey,
    pub(crate) private: PrivateKey,
    pub(crate) collector: SocketAddr,
}

/// Operators, broker and users of the demonstration.
pub(crate) struct VeilPlayground {
    folder: PathBuf,
    pub(crate) operators: Vec<Operator>,
    pub(crate) users: Vec<VeilUser>,
    broker: Option<Process>,
    relays: Vec<Process>,
    of_broker: Option<OfBroker>,
    /// The key of the witness.
    witness: [u8; 32],
    /// To which ordinary UEs conceal their SUPI.
    pub(crate) agency: AgencyKeys,
    suci_key: Option<(Arc<HomeNetworkPublicKey>, HomeNetworkPrivateKey)>,
    broker_client: Client,
}

const BROKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 20);
const RELAY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 30);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 31);
const AGENCY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 40);

fn network() -> Result<PlmnId, String> {
    "999/72".parse().map_err(|e| format!("{e}"))
}

fn domain() -> Domain {
    DOMAIN.parse().expect("a domain")
}

fn operator_id(nth: u8) -> Result<OperatorId, String> {
    // The broker's PLMN, which all broadcast, and a number that no other value has.
    Ok(OperatorId { plmn: network()?, nid: Nid::new(0x00a_0b0c_0d01 + u64::from(nth)) })
}

impl VeilPlayground {
    /// Makes keys, certificates and users, and starts all processes. `direct`: the operators reach the broker without relays. Errors: one
    /// sentence, with what a process logged.
    pub(crate) fn start(
        (veiled, ordinary): (u32, u32),
        gnbs_per_operator: u8,
        direct: bool,
    ) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("whimbrel-veil-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|e| format!("{} cannot be made: {e}", folder.display()))?;
        let broker_client = Client::new(SocketAddr::from((BROKER, 8071)));
        let witness = random::<32>()?;
        let mut playground = Self {
            folder,
            operators: Vec::new(),
            users: Vec::new(),
            broker: None,
            relays: Vec::new(),
            of_broker: None,
            witness,
            agency: AgencyKeys {
                signing: SigningKey::new(&random()?),
                private: PrivateKey::new(random()?),
                collector: SocketAddr::from((AGENCY, 7655)),
            },
            suci_key: None,
            broker_client,
        };
        let authority = whimbrel_open::crypto::SigningKey::new(&random::<32>()?);
        playground.make_users(veiled, ordinary)?;
        let roots = playground.make_tls()?;
        files::write_public(&playground.folder.join("tls-roots.pem"), &roots)?;
        playground.start_broker(&authority, &witness)?;
        let gateway_key = playground.start_relays()?;
        for nth in 0..OPERATORS {
            let certified = (&authority, SigningKey::new(&witness).verifying_key());
            let operator =
                playground.operator(nth as u8, gnbs_per_operator, certified, &gateway_key, direct)?;
            playground.operators.push(operator);
        }
        for operator in &mut playground.operators {
            let Operator { process, client, .. } = operator;
            let ready = |s: Value| s["ready"].as_bool().unwrap_or(true);
            process.until("is not ready", || client.get::<Value>("/api/v1/status").is_ok_and(ready))?;
        }
        for operator in &mut playground.operators {
            for n in 0..CPFS {
                let at = format!("127.0.0.1:{}", cluster_port(operator.nth));
                let name = format!("operator-{}-cpf-{}", operator.nth + 1, n + 1);
                let api = cpf_api(operator.nth, n).to_string();
                let arguments = ["cpf", "--cta", &at, "--api", &api];
                operator.cpfs.push(Process::start(name, Program::Core, &arguments, &playground.folder)?);
            }
        }
        playground.until_tokens()?;
        Ok(playground)
    }

    fn make_users(&mut self, veiled: u32, ordinary: u32) -> Result<(), String> {
        let first = |n: u32| Supi::from_str(&format!("{FIRST_IMSI}{n:05}")).map_err(|e| format!("{e:?}"));
        for (class, first, count) in
            [(Class::Veiled, first_supi(), veiled), (Class::Ordinary, first(1)?, ordinary)]
        {
            for subscription in fleet::subscriptions(&seed()?, first, count) {
                let name = format!("subscriber-{:04} of {DOMAIN}", self.users.len() + 1);
                self.users.push(VeilUser {
                    id: UserId(random()?),
                    name,
                    class,
                    key: random()?,
                    subscription,
                });
            }
        }
        Ok(())
    }

    /// TLS certificates of the broker and the relays; gives all.
    fn make_tls(&self) -> Result<String, String> {
        let mut roots = String::new();
        for name in [DOMAIN, "relay.example", "gateway.example"] {
            let made = tls::self_signed(name, now().as_secs())?;
            files::write_public(&self.folder.join(format!("{name}.pem")), &made.certificate)?;
            files::write_private(&self.folder.join(format!("{name}.key")), &made.key)?;
            roots += &made.certificate;
        }
        Ok(roots)
    }

    fn start_broker(
        &mut self,
        authority: &whimbrel_open::crypto::SigningKey,
        witness: &[u8; 32],
    ) -> Result<(), String> {
        let folder = self.folder.join("broker");
        fs::create_dir_all(&folder).map_err(|e| format!("{} cannot be made: {e}", folder.display()))?;
        let open_key = files::make_key(&folder.join("broker.key"))?;
        let secret = files::read_secret(&folder.join("broker.key"))?;
        let signing = SigningKey::new(&secret);
        certify(authority, Subject::Broker(domain()), &open_key, &folder.join("broker.cert"))?;
        let mut storage =
            VeilStorage::open(&veil_store(&folder.join("broker.db"))).map_err(|e| e.to_string())?;
        for user in &self.users {
            let (revoked, class, prepaid, intercept) = (false, 0, false, false);
            if user.class == Class::Ordinary {
                let keys = UsimKeys { k: user.subscription.k, opc: user.subscription.opc };
                let (functions, sqn) = (keys.functions(), Sqn::ZERO);
                let of_broker =
                    HomeUser { user: user.id, functions, revoked, class, prepaid, intercept, sqn };
                let (name, supi) = (user.name.clone(), user.supi());
                let named = NamedHomeUser { name, supi, keys, user: of_broker };
                storage.add_home_user(&named).map_err(|e| e.to_string())?;
                continue;
            }
            let (key, counters) = (SigningKey::new(&user.key).verifying_key(), Counters::default());
            let of_broker = User { key, revoked, class, prepaid, intercept, counters };
            let named = NamedUser { name: user.name.clone(), id: user.id, user: of_broker };
            storage.add_user(&named).map_err(|e| e.to_string())?;
        }
        let from = now().as_secs().saturating_sub(HOUR_S);
        let validity = Validity { from, until: from + 7 * 24 * HOUR_S };
        let head = storage.begin_issuing(&domain(), validity, &signing).map_err(|e| e.to_string())?;
        let log = storage.log(&domain()).map_err(|e| e.to_string())?;
        let mut witness = Witness::new(domain(), signing.verifying_key(), SigningKey::new(witness));
        let cosignature = witness.cosign(&head, log.entries()).map_err(|e| e.to_string())?;
        storage.add_cosignature(head.size, &cosignature).map_err(|e| e.to_string())?;
        let state = storage.load(now()).map_err(|e| e.to_string())?;
        let Some((id, private)) = state.epochs.last() else { return Err("the database has no key".into()) };
        let epoch = EpochKey { id: *id, public: private.share() };
        self.of_broker = Some(OfBroker { key: signing.verifying_key(), epoch });
        let operators: Result<Vec<String>, String> =
            (0..OPERATORS).map(|nth| Ok(format!("\"{}\"", operator_id(nth as u8)?))).collect();
        let suci_key = random::<32>()?;
        let private = HomeNetworkPrivateKey::profile_a(suci_key);
        self.suci_key = Some((Arc::new(private.public_key()), private));
        let (dir, tls) = (folder.display(), self.folder.display());
        let yaml = format!(
            "domain: {DOMAIN}\nkey_file: {dir}/broker.key\ncertificate: {dir}/broker.cert\nstore: {dir}/broker.db\n\
             listen: \"{BROKER}:7443\"\nadmin: {{ address: \"{BROKER}:8071\" }}\n\
             tls: {{ certificate: {tls}/{DOMAIN}.pem, key: {tls}/{DOMAIN}.key }}\n\
             authorities: [\"{}\"]\n\
             veil:\n  plmn: {}\n  operators: [{}]\n  record: {dir}/record\n\
             \x20 home_network_keys: [{{ id: {SUCI_KEY_ID}, scheme: A, private_key: \"{}\" }}]\n\
             \x20 agencies: [\"{}\"]\n",
            hex(&authority.verifying_key().octets()),
            network()?,
            operators?.join(", "),
            hex(&suci_key),
            hex(&self.agency.signing.verifying_key().octets()),
        );
        let file = folder.join("broker.yaml");
        files::write_private(&file, &yaml)?;
        let arguments = ["run", "--config", &file.display().to_string()];
        let mut process = Process::start("broker".into(), Program::Broker, &arguments, &self.folder)?;
        let ready = self.broker_client.clone();
        process.until("does not serve", move || ready.reading("whimbrel_broker_users").is_ok())?;
        self.broker = Some(process);
        Ok(())
    }

    /// Starts gateway and relay; gives the gateway's public key.
    fn start_relays(&mut self) -> Result<String, String> {
        let key = self.folder.join("gateway.secret");
        files::make_key(&key)?;
        let secret = whimbrel_open::crypto::PrivateKey::new(*files::read_secret(&key)?);
        let dir = self.folder.display().to_string();
        let (listen_gateway, listen_relay) = (format!("{GATEWAY}:7443"), format!("{RELAY}:7443"));
        let own = |name: &str| {
            [
                ("--tls-certificate", format!("{dir}/{name}.pem")),
                ("--tls-key", format!("{dir}/{name}.key")),
                ("--tls-roots", format!("{dir}/tls-roots.pem")),
                ("--record", format!("{dir}/{name}.record")),
            ]
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .collect::<Vec<_>>()
        };
        let (key, broker) = (key.display().to_string(), format!("{BROKER}:7443"));
        let gateway = [
            "relay",
            "gateway",
            "--key",
            &key,
            "--broker",
            DOMAIN,
            "--broker-address",
            &broker,
            "--listen",
            &listen_gateway,
        ];
        let relay = [
            "relay",
            "pass",
            "--gateway",
            "gateway.example",
            "--gateway-address",
            &listen_gateway,
            "--listen",
            &listen_relay,
        ];
        for (name, arguments, listen) in
            [("gateway", &gateway[..], &listen_gateway), ("relay", &relay[..], &listen_relay)]
        {
            let more = own(&format!("{name}.example"));
            let arguments: Vec<&str> =
                arguments.iter().copied().chain(more.iter().map(String::as_str)).collect();
            let mut process = Process::start(name.into(), Program::Broker, &arguments, &self.folder)?;
            process.until("does not listen", || std::net::TcpStream::connect(listen).is_ok())?;
            self.relays.push(process);
        }
        Ok(hex(&secret.share().0))
    }

    fn operator(
        &self,
        nth: u8,
        gnbs: u8,
        (authority, witness): (&whimbrel_open::crypto::SigningKey, VerifyingKey),
        gateway_key: &str,
        direct: bool,
    ) -> Result<Operator, String> {
        let name = format!("operator-{}", nth + 1);
        let id = operator_id(nth)?;
        let folder = self.folder.join(&name);
        fs::create_dir_all(&folder).map_err(|e| format!("{} cannot be made: {e}", folder.display()))?;
        let key = files::make_key(&folder.join("operator.key"))?;
        certify(authority, Subject::Operator(id), &key, &folder.join("operator.cert"))?;
        let (host, pool) = (Ipv4Addr::new(127, 0, 0, 5 + nth), 45 + nth);
        let li = Ipv4Addr::new(127, 0, 0, 50 + nth);
        let gateway = Ipv4Addr::new(10, pool, 0, 1);
        let api = SocketAddr::from((Ipv4Addr::LOCALHOST, 8070 + 100 * u16::from(nth)));
        let Some(of_broker) = &self.of_broker else { return Err("the broker does not run".into()) };
        let (dir, all) = (folder.display(), self.folder.display());
        let channel = match direct {
            true => "direct\n  allow_direct: true".to_owned(),
            false => format!(
                "relay\n  relay: {{ domain: relay.example, address: \"{RELAY}:7443\", gateway_key: \"{gateway_key}\" }}"
            ),
        };
        let yaml = format!(
            "plmn: {}\n\
             security: {{ ciphering: [NEA0] }}\n\
             store: {{ path: {dir}/whimbrel.db, key_file: {dir}/whimbrel.key, keep_ues: always }}\n\
             cluster: {{ listen: \"127.0.0.1:{}\" }}\n\
             n2: {{ addresses: [{host}] }}\n\
             n3: {{ address: {host} }}\n\
             n4: {{ node_id: {host} }}\n\
             n6:\n  device: op{nth}n\n  nat: false\n  forwarding: false\n  allow:\n\
             \x20   - permit in 17 from any to {gateway} 53\n\
             \x20   - permit in 6 from any to {gateway} 80\n\
             data_networks: [{{ dnn: internet, dns: [{gateway}], ipv4_pool: 10.{pool}.0.0/16, ipv6_pool: none }}]\n\
             api: {{ address: \"{api}\" }}\n\
             veil:\n\
             \x20 broker: {DOMAIN}\n\
             \x20 address: \"{BROKER}:7443\"\n\
             \x20 broker_key: \"{}\"\n\
             \x20 witnesses: [\"{}\"]\n\
             \x20 key_file: {dir}/operator.key\n\
             \x20 certificate: {dir}/operator.cert\n\
             \x20 tls_roots: {all}/tls-roots.pem\n\
             \x20 source: {host}\n\
             \x20 token_age: 0s\n\
             \x20 low_water: 64\n\
             \x20 broadcast: 2s\n\
             \x20 report_delay: 1s\n\
             \x20 questions_per_gnb: 10000\n\
             \x20 ordinary_ues: true\n\
             \x20 broadcast_file: {dir}/token\n\
             \x20 record: {dir}/record\n\
             \x20 agencies: [{{ key: \"{}\", sealed_to: \"{}\", collector: \"{}\" }}]\n\
             \x20 orders_every: 100ms\n\
             \x20 li_function: {li}\n\
             \x20 channel: {channel}\n",
            id.plmn,
            cluster_port(nth),
            hex(&of_broker.key.octets()),
            hex(&witness.octets()),
            hex(&self.agency.signing.verifying_key().octets()),
            hex(&self.agency.private.share().0),
            self.agency.collector,
        );
        let file = folder.join("whimbrel.yaml");
        files::write_public(&file, &yaml)?;
        let (file, capture) = (file.display().to_string(), folder.join("capture.pcap").display().to_string());
        let arguments = ["run", "--strict", "--config", &file, "--capture", &capture];
        let process = Process::start(name, Program::Core, &arguments, &self.folder)?;
        let client = Client::new(api).by_store(&folder.join("whimbrel.db"));
        let key = key.verifying_key().octets();
        Ok(Operator {
            process,
            cpfs: Vec::new(),
            folder,
            id,
            key,
            amf: host,
            gateway,
            nth,
            gnbs,
            client,
            settle_log: Vec::new(),
        })
    }

    /// Waits until each operator has its CPFs and broadcasts a token.
    fn until_tokens(&mut self) -> Result<(), String> {
        let begin = Instant::now();
        let joined = |o: &Operator| o.process.logged().matches("a CPF joined").count() >= CPFS;
        while !self.operators.iter().all(|o| o.token().is_some() && joined(o)) {
            if begin.elapsed() > READY_WITHIN {
                return Err(format!("no token is broadcast: {}", self.logged()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The users that are at an operator in a round: all are at each in turn. The order is another in each round.
    pub(crate) fn users_at(&self, operator: usize, round: usize) -> Vec<usize> {
        let mut here: Vec<usize> =
            (0..self.users.len()).filter(|n| (n + round) % OPERATORS == operator).collect();
        here.sort_by_key(|n| (n * 7 + round * 13 + n * round) % 31);
        here
    }

    /// Whose SUCI it is.
    pub(crate) fn user_of_suci(&self, output: &[u8]) -> Option<usize> {
        let (_, private) = self.suci_key.as_ref()?;
        let supi = supi_of_msin(network().ok()?, &private.deconceal(output).ok()?).ok()?;
        self.users.iter().position(|user| user.class == Class::Ordinary && user.supi() == supi)
    }

    /// The UEs of these users.
    pub(crate) fn ues(&self, users: &[usize], round: usize) -> Result<Vec<UeConfig>, String> {
        let profile = Arc::new(Profile::new(network()?, vec![SNssai::sst(1)]));
        users.iter().map(|n| self.ue(&self.users[*n], &profile, round)).collect()
    }

    fn ue(&self, user: &VeilUser, profile: &Arc<Profile>, round: usize) -> Result<UeConfig, String> {
        let Some(of_broker) = &self.of_broker else { return Err("the broker does not run".into()) };
        let sim = UserSim {
            user: user.id,
            broker: domain(),
            network: network()?,
            broker_key: of_broker.key,
            epoch: of_broker.epoch,
            signing: SigningKey::new(&user.key),
            counter: COUNTERS_PER_ROUND * round as u64,
        };
        let (k, opc) = user.subscription.key();
        let suci = match (user.class, &self.suci_key) {
            (Class::Veiled, _) => SuciSource::Veil(Box::new(VeilCard::new(sim, Seed::new(user.key)))),
            (Class::Ordinary, Some((key, _))) => {
                // Another in each round, as a UE draws it.
                let seed = whimbrel_privacy::crypto::hash(&[&user.key, &round.to_be_bytes()]);
                SuciSource::Concealed { key: key.clone(), key_id: SUCI_KEY_ID, seed }
            }
            (Class::Ordinary, None) => return Err("the broker does not run".into()),
        };
        Ok(UeConfig {
            profile: profile.clone(),
            supi: user.subscription.supi,
            pei: user.subscription.pei,
            k,
            opc,
            sqn: UsimSqn::default(),
            suci,
        })
    }

    fn broker_folder(&self) -> PathBuf {
        self.folder.join("broker")
    }

    /// The broker's database, as its commands use it.
    pub(crate) fn broker_storage(&self) -> Result<VeilStorage, String> {
        VeilStorage::open(&veil_store(&self.broker_folder().join("broker.db"))).map_err(|e| e.to_string())
    }

    /// What each user is billed for.
    pub(crate) fn billed(&self) -> Result<Vec<BilledSession>, String> {
        self.broker_storage()?.billed().map_err(|e| e.to_string())
    }

    /// A value of the broker's metrics.
    pub(crate) fn broker_reading(&self, series: &str) -> Result<u64, String> {
        Ok(self.broker_client.reading(series)? as u64)
    }

    /// What the broker received, sent and stored.
    pub(crate) fn broker_record(&self) -> Result<Vec<RecordedMessage>, String> {
        record::read(&self.broker_folder().join("record"))
    }

    /// What a relay received and sent.
    pub(crate) fn relay_record(&self, name: &str) -> Result<Vec<RecordedMessage>, String> {
        record::read(&self.folder.join(format!("{name}.example.record")))
    }

    /// What the broker has logged.
    pub(crate) fn broker_log(&self) -> String {
        self.broker.as_ref().map(Process::logged).unwrap_or_default()
    }

    fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        let operators =
            self.operators.iter_mut().flat_map(|o| [&mut o.process].into_iter().chain(&mut o.cpfs));
        operators.chain(self.broker.as_mut()).chain(&mut self.relays)
    }

    /// What all processes logged, for the report of a failure.
    pub(crate) fn logged(&mut self) -> String {
        self.processes().map(|p| format!("--- {}\n{}\n", p.name(), p.logged())).collect()
    }

    /// Stops the operators, so that their captures are whole. Errors: one did not end in order.
    pub(crate) fn stop_operators(&mut self) -> Result<(), String> {
        self.operators.iter_mut().try_for_each(|o| o.process.stop())
    }

    /// Stops the rest. Errors: one did not end in order.
    pub(crate) fn stop(&mut self) -> Result<(), String> {
        self.broker.as_mut().map_or(Ok(()), Process::stop)?;
        self.relays.iter_mut().try_for_each(Process::stop)
    }
}

fn cpf_api(operator: u8, nth: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 8_300 + 10 * u16::from(operator) + nth as u16))
}

const fn cluster_port(nth: u8) -> u16 {
    7_380 + nth as u16
}

impl Drop for VeilPlayground {
    fn drop(&mut self) {
        self.processes().for_each(Process::kill);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

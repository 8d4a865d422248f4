//! Three operators and two brokers of their own, for `demo --scenario open`: cores and brokers are processes, in the network namespace of
//! the playground, with certificates of an authority made for them and TLS between operators and brokers. One UE in five is an ordinary
//! one with a USIM of its broker, the others use SAP.
//! `billing` has what shows that brokers find an operator that overstates.

mod billing;

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use whimbrel_broker_client::{files, hex, now, random, tls};
use whimbrel_broker_server::storage::{NamedHomeUser, NamedUser, Sqlite, Storage, UsimKeys};
use whimbrel_ids::{GlobalGnbId, PlmnId, SNssai, Supi, Tac};
use whimbrel_node::client::Client;
use whimbrel_open::broker::{HomeUser, User};
use whimbrel_open::crypto::{Seed, SigningKey};
use whimbrel_open::id::{Domain, OperatorId, UserId};
use whimbrel_open::msg::{Certificate, EpochKey, Qos, Subject, Validity};
use whimbrel_open::user::UserSim;
use whimbrel_ran::edge::GnbPlace;
use whimbrel_ran::fleet::{self, ProvisionedUe};
use whimbrel_ran::gnb::GnbConfig;
use whimbrel_ran::ue::{Profile, SapCard, SuciSource, UeConfig};
use whimbrel_security::{HomeNetworkPrivateKey, HomeNetworkPublicKey, Sqn, UsimSqn};

use super::{READY_WITHIN, STOPPED_WITHIN, first_supi, seed};
use crate::programs::Program;

/// The operators, and the brokers.
pub(crate) const OPERATORS: usize = 3;
pub(crate) const BROKERS: usize = 2;
/// Every so many-th UE is an ordinary one.
const ORDINARY_EVERY: usize = 5;
/// Counters of a SIM between two rounds: more than the attaches of one.
const COUNTERS_PER_ROUND: u64 = 1_000;

/// A process and what it logs.
pub(super) struct Process {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    pub(super) fn start(
        name: String,
        program: Program,
        arguments: &[&str],
        folder: &Path,
    ) -> Result<Self, String> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let mut command = program.command()?;
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let child = command.spawn().map_err(|e| format!("{name} cannot be started: {e}"))?;
        Ok(Self { name, log, child })
    }

    /// Its name, for the report of a failure.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Kills it, as `kill -9` does.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(super) fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default().trim().to_owned()
    }

    /// Waits until `is` holds. Errors: one sentence, with what the process logged.
    pub(super) fn until(&mut self, what: &str, is: impl Fn() -> bool) -> Result<(), String> {
        let begin = Instant::now();
        while !is() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("{} ended ({status}): {}", self.name, self.logged()));
            }
            if begin.elapsed() > READY_WITHIN {
                return Err(format!("{} {what}: {}", self.name, self.logged()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Stops it as an operator would. Errors: it did not end in order.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let begin = Instant::now();
        while begin.elapsed() < STOPPED_WITHIN {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => {
                    return Err(format!("{} ended with {status}: {}", self.name, self.logged()));
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(e) => return Err(format!("{} cannot be waited for: {e}", self.name)),
            }
        }
        Err(format!("{} does not stop: {}", self.name, self.logged()))
    }
}

/// An operator's core.
pub(crate) struct Operator {
    process: Process,
    /// Configuration file of the core.
    file: PathBuf,
    /// The operator as brokers know it.
    pub(crate) id: OperatorId,
    /// Where it takes N2.
    pub(crate) amf: IpAddr,
    /// Its end of the data network.
    pub(crate) gateway: Ipv4Addr,
    nth: u8,
    gnbs: u8,
    pub(crate) client: Client,
}

impl Operator {
    fn until_ready(&mut self) -> Result<(), String> {
        let Self { process, client, .. } = self;
        let is_ready = |s: Value| s["ready"].as_bool().unwrap_or(true);
        process.until("is not ready", || client.get::<Value>("/api/v1/status").is_ok_and(is_ready))
    }

    /// The operator's gNBs, with their addresses.
    pub(crate) fn gnb_places(&self) -> Vec<GnbPlace> {
        let place = |n: u8| {
            let address = IpAddr::V4(Ipv4Addr::new(127, 0, 1 + self.nth, n));
            let id = GlobalGnbId::new(self.id.plmn, u32::from(n), 28).expect("28 bits hold it");
            let tac = Tac::new(1).expect("24 bits hold it");
            GnbPlace {
                config: GnbConfig::new(id, tac, vec![SNssai::sst(1)], address),
                address,
                amfs: Vec::new(),
            }
        };
        (1..=self.gnbs).map(place).collect()
    }
}

/// A broker as a process.
pub(crate) struct Broker {
    process: Process,
    /// Configuration file of the broker.
    file: PathBuf,
    domain: Domain,
    address: SocketAddr,
    client: Client,
    key: SigningKey,
    epoch: EpochKey,
    /// The home network of its ordinary UEs, and the key that conceals their SUPIs.
    home: PlmnId,
    home_key: Arc<HomeNetworkPublicKey>,
}

/// A user of a broker.
struct OpenUser {
    id: UserId,
    key: [u8; 32],
    broker: usize,
    /// Whether it has a USIM (class 2) in place of a key pair (class 3).
    ordinary: bool,
    subscription: ProvisionedUe,
}

/// Operators, brokers and users of the demonstration.
pub(crate) struct OpenPlayground {
    folder: PathBuf,
    pub(crate) operators: Vec<Operator>,
    pub(crate) brokers: Vec<Broker>,
    users: Vec<OpenUser>,
}

impl OpenPlayground {
    /// Makes keys, certificates and users, and starts brokers and cores. Errors: one sentence, with what a process logged.
    pub(crate) fn start(ues: u32, gnbs_per_operator: u8) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("whimbrel-open-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|e| format!("{} cannot be made: {e}", folder.display()))?;
        let mut playground = Self { folder, operators: Vec::new(), brokers: Vec::new(), users: Vec::new() };
        let authority = SigningKey::new(&random::<32>()?);
        playground.make_users(ues)?;
        let mut roots = String::new();
        for nth in 0..BROKERS {
            let (broker, certificate) = playground.broker(nth, &authority)?;
            playground.brokers.push(broker);
            roots += &certificate;
        }
        files::write_public(&playground.folder.join("tls-roots.pem"), &roots)?;
        for nth in 0..OPERATORS {
            let operator = playground.operator(nth as u8, gnbs_per_operator, &authority)?;
            playground.operators.push(operator);
        }
        playground.operators.iter_mut().try_for_each(Operator::until_ready)?;
        Ok(playground)
    }

    /// How many of the users are ordinary ones.
    pub(crate) fn ordinary(&self) -> usize {
        self.users.iter().filter(|u| u.ordinary).count()
    }

    fn make_users(&mut self, ues: u32) -> Result<(), String> {
        for (n, subscription) in fleet::subscriptions(&seed()?, first_supi(), ues).into_iter().enumerate() {
            self.users.push(OpenUser {
                id: UserId(random()?),
                key: random()?,
                broker: n % BROKERS,
                ordinary: n % ORDINARY_EVERY == 0,
                subscription,
            });
        }
        Ok(())
    }

    /// Starts a broker with its users. Gives its TLS certificate too.
    fn broker(&self, nth: usize, authority: &SigningKey) -> Result<(Broker, String), String> {
        let name = format!("broker-{}", nth + 1);
        let domain: Domain = format!("broker{}.example", nth + 1).parse().map_err(|e| format!("{e}"))?;
        let folder = self.folder.join(&name);
        fs::create_dir_all(&folder).map_err(|e| format!("{} cannot be made: {e}", folder.display()))?;
        let key = files::make_key(&folder.join("broker.key"))?;
        certify(authority, Subject::Broker(domain.clone()), &key, &folder.join("broker.cert"))?;
        let made = tls::self_signed(domain.as_str(), now().as_secs())?;
        files::write_public(&folder.join("tls.pem"), &made.certificate)?;
        files::write_private(&folder.join("tls.key"), &made.key)?;
        let mut storage = Sqlite::open(&folder.join("broker.db")).map_err(|e| e.to_string())?;
        let state = storage.load(now()).map_err(|e| e.to_string())?;
        let Some(epoch) = state.epochs.last() else { return Err("the database has no epoch key".into()) };
        let epoch = EpochKey { id: epoch.id, public: epoch.key.share() };
        let home = home_plmn(nth)?;
        let own = || self.users.iter().filter(|u| u.broker == nth).enumerate();
        let users: Vec<NamedUser> = own().filter(|(_, u)| !u.ordinary).map(|(i, u)| named(i, u)).collect();
        storage.add_users(&users).map_err(|e| e.to_string())?;
        for (i, user) in own().filter(|(_, u)| u.ordinary) {
            storage.add_home_user(&named_home(i, user, home)?).map_err(|e| e.to_string())?;
        }
        let home_key = random::<32>()?;
        files::write_private(&folder.join("suci-1.key"), &hex(&home_key))?;
        let home_key = Arc::new(HomeNetworkPrivateKey::profile_a(home_key).public_key());
        drop(storage);
        let host = Ipv4Addr::new(127, 0, 0, 20 + nth as u8);
        let address = SocketAddr::from((host, whimbrel_broker_client::PORT));
        let admin = SocketAddr::from((host, 8071));
        let dir = folder.display();
        let yaml = format!(
            "domain: {domain}\nkey_file: {dir}/broker.key\ncertificate: {dir}/broker.cert\nstore: {dir}/broker.db\n\
             listen: \"{address}\"\nadmin: {{ address: \"{admin}\" }}\n\
             tls: {{ certificate: {dir}/tls.pem, key: {dir}/tls.key }}\n\
             home: {{ plmn: {home}, home_network_keys: [{{ id: 1, scheme: A, private_key_file: {dir}/suci-1.key }}] }}\n\
             authorities: [\"{}\"]\n\
              policy: {{ reputation_floor: 15 }}\n",
            hex(&authority.verifying_key().octets())
        );
        let file = folder.join("broker.yaml");
        files::write_public(&file, &yaml)?;
        let arguments = ["run", "--config", &file.display().to_string()];
        let mut process = Process::start(name, Program::Broker, &arguments, &self.folder)?;
        let client = Client::new(admin);
        let ready = client.clone();
        process.until("does not serve", move || ready.reading("whimbrel_broker_users").is_ok())?;
        Ok((Broker { process, file, domain, address, client, key, epoch, home, home_key }, made.certificate))
    }

    /// Starts an operator's core.
    fn operator(&self, nth: u8, gnbs: u8, authority: &SigningKey) -> Result<Operator, String> {
        let name = format!("operator-{}", nth + 1);
        let plmn: PlmnId = format!("999/{}", 70 + nth).parse().map_err(|e| format!("{e}"))?;
        let id = OperatorId { plmn, nid: None };
        let folder = self.folder.join(&name);
        fs::create_dir_all(&folder).map_err(|e| format!("{} cannot be made: {e}", folder.display()))?;
        let key = files::make_key(&folder.join("operator.key"))?;
        certify(authority, Subject::Operator(id), &key, &folder.join("operator.cert"))?;
        let (host, pool) = (Ipv4Addr::new(127, 0, 0, 5 + nth), 45 + nth);
        let gateway = Ipv4Addr::new(10, pool, 0, 1);
        let api = SocketAddr::from((Ipv4Addr::LOCALHOST, 8070 + 100 * u16::from(nth)));
        let (dir, roots) = (folder.display(), self.folder.join("tls-roots.pem"));
        let addresses: Vec<String> = self
            .brokers
            .iter()
            .map(|b| format!("{{ broker: {}, address: \"{}\" }}", b.domain, b.address))
            .collect();
        let homes: Vec<String> =
            self.brokers.iter().map(|b| format!("{{ plmn: {}, broker: {} }}", b.home, b.domain)).collect();
        let yaml = format!(
            "plmn: {plmn}\n\
             store: {{ path: {dir}/whimbrel.db, key_file: {dir}/whimbrel.key }}\n\
             n2: {{ addresses: [{host}] }}\n\
             n3: {{ address: {host} }}\n\
             n4: {{ node_id: {host} }}\n\
             n6:\n  device: op{nth}n\n  nat: false\n  forwarding: false\n  allow:\n\
             \x20   - permit in 17 from any to {gateway} 53\n\
             \x20   - permit in 6 from any to {gateway} 80\n\
             data_networks: [{{ dnn: internet, dns: [{gateway}], ipv4_pool: 10.{pool}.0.0/16, ipv6_pool: none }}]\n\
             api: {{ address: \"{api}\" }}\n\
             open:\n\
             \x20 key_file: {dir}/operator.key\n\
             \x20 certificate: {dir}/operator.cert\n\
             \x20 authorities: [\"{}\"]\n\
             \x20 addresses: [{}]\n\
             \x20 homes: [{}]\n\
             \x20 tls_roots: {}\n\
             \x20 report_cycle: 1s\n\
             \x20 questions_per_gnb: 10000\n",
            hex(&authority.verifying_key().octets()),
            addresses.join(", "),
            homes.join(", "),
            roots.display()
        );
        let file = folder.join("whimbrel.yaml");
        files::write_public(&file, &yaml)?;
        let arguments = ["run", "--strict", "--config", &file.display().to_string()];
        let process = Process::start(name, Program::Core, &arguments, &self.folder)?;
        let client = Client::new(api).by_store(&folder.join("whimbrel.db"));
        Ok(Operator { process, file, id, amf: host.into(), gateway, nth, gnbs, client })
    }

    /// The UEs that are at an operator in a round: all are at each operator once in [`OPERATORS`] rounds.
    pub(crate) fn ues(&self, operator: usize, round: usize) -> Vec<UeConfig> {
        self.ues_of_round(operator, round, round)
    }

    /// The same UEs in a later round, which their SIMs count on from.
    pub(crate) fn ues_of_round(&self, operator: usize, round: usize, later: usize) -> Vec<UeConfig> {
        let plmn = self.operators[operator].id.plmn;
        let profile = Arc::new(Profile::new(plmn, vec![SNssai::sst(1)]));
        let here = self.users.iter().enumerate().filter(|(n, _)| (n + round) % OPERATORS == operator);
        here.map(|(_, user)| self.ue(user, &profile, later)).collect()
    }

    fn ue(&self, user: &OpenUser, profile: &Arc<Profile>, round: usize) -> UeConfig {
        let broker = &self.brokers[user.broker];
        if user.ordinary {
            return ordinary_ue(user, profile, broker);
        }
        let sim = UserSim {
            user: user.id,
            broker: broker.domain.clone(),
            broker_key: broker.key.verifying_key(),
            epoch: broker.epoch,
            signing: SigningKey::new(&user.key),
            counter: COUNTERS_PER_ROUND * round as u64,
            ticket: None,
        };
        let (k, opc) = user.subscription.key();
        UeConfig {
            profile: profile.clone(),
            supi: user.subscription.supi,
            pei: user.subscription.pei,
            k,
            opc,
            sqn: UsimSqn::default(),
            suci: SuciSource::Sap(Box::new(SapCard { sim, seed: Seed::new(user.key) })),
        }
    }

    /// What each broker granted.
    pub(crate) fn grants(&self) -> Result<Vec<(String, u64)>, String> {
        let grants =
            |b: &Broker| Ok((b.domain.to_string(), b.client.reading("whimbrel_broker_grants_total")? as u64));
        self.brokers.iter().map(grants).collect()
    }

    /// What all processes logged, for the report of a failure.
    pub(crate) fn logged(&self) -> String {
        let processes =
            self.operators.iter().map(|o| &o.process).chain(self.brokers.iter().map(|b| &b.process));
        processes.map(|p| format!("--- {}\n{}\n", p.name, p.logged())).collect()
    }

    /// Stops all. Errors: one did not end in order.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        let operators = self.operators.iter_mut().map(|o| &mut o.process);
        let mut all = operators.chain(self.brokers.iter_mut().map(|b| &mut b.process));
        all.try_for_each(Process::stop)
    }
}

impl Drop for OpenPlayground {
    fn drop(&mut self) {
        let operators = self.operators.iter_mut().map(|o| &mut o.process);
        for process in operators.chain(self.brokers.iter_mut().map(|b| &mut b.process)) {
            process.kill();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Writes a certificate of the authority.
pub(super) fn certify(
    authority: &SigningKey,
    subject: Subject,
    key: &SigningKey,
    file: &Path,
) -> Result<(), String> {
    let validity = Validity { from: now().as_secs().saturating_sub(60), until: now().as_secs() + 86_400 };
    let serial = u64::from_be_bytes(random()?);
    let certificate = Certificate::issue(authority, subject, key.verifying_key(), validity, serial);
    files::write_public(file, &files::certificate_text(&certificate))
}

const QOS: Qos = Qos { ul_kbps: 10_000, dl_kbps: 50_000, five_qi: 9 };

/// The home network of the ordinary UEs of a broker: no operator's.
fn home_plmn(broker: usize) -> Result<PlmnId, String> {
    format!("999/{}", 91 + broker).parse().map_err(|e| format!("{e}"))
}

/// The IMSI of an ordinary UE: that of the subscription, in its home network.
fn home_supi(user: &OpenUser, home: PlmnId) -> Option<Supi> {
    Supi::from_digits(home.digits().chain(user.subscription.supi.digits().skip(5)))
}

fn ordinary_ue(user: &OpenUser, profile: &Profile, broker: &Broker) -> UeConfig {
    let (k, opc) = user.subscription.key();
    let profile = Arc::new(Profile { home_plmn: broker.home, ..profile.clone() });
    UeConfig {
        profile,
        supi: home_supi(user, broker.home).expect("15 digits"),
        pei: user.subscription.pei,
        k,
        opc,
        sqn: UsimSqn::default(),
        suci: SuciSource::Concealed { key: broker.home_key.clone(), key_id: 1, seed: user.key },
    }
}

fn named_home(nth: usize, user: &OpenUser, home: PlmnId) -> Result<NamedHomeUser, String> {
    let keys = UsimKeys { k: user.subscription.k, opc: user.subscription.opc };
    let supi = home_supi(user, home).ok_or("the IMSI has too many digits")?;
    let of_broker = HomeUser {
        user: user.id,
        functions: keys.functions(),
        revoked: false,
        qos: QOS,
        intercept: false,
        filters: Vec::new(),
        sqn: Sqn::ZERO,
    };
    Ok(NamedHomeUser { name: format!("user-{}", nth + 1), supi, keys, user: of_broker })
}

fn named(nth: usize, user: &OpenUser) -> NamedUser {
    let user_of_broker = User {
        key: SigningKey::new(&user.key).verifying_key(),
        revoked: false,
        qos: QOS,
        intercept: false,
        filters: Vec::new(),
        counter: 0,
        ticket: 0,
    };
    NamedUser { name: format!("user-{}", nth + 1), id: user.id, user: user_of_broker }
}

//! Two sites for `demo --scenario sites`: each has an AMF set of homes, which are `whimbrel run`, and UPFs, which are `whimbrel upf`. All homes have the
//! subscribers of one PostgreSQL database with a synchronous replica server. One home is a pair of CTAs with CPFs of their own, between which three members of etcd decide. All
//! are processes in the network namespace of the demonstration.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use whimbrel_ids::{GlobalGnbId, PlmnId, SNssai, Tac};
use whimbrel_node::client::Client;
use whimbrel_ran::edge::GnbPlace;
use whimbrel_ran::fleet::{self, ProvisionedUe};
use whimbrel_ran::gnb::GnbConfig;
use whimbrel_ran::ue::{Profile, SuciSource, UeConfig};
use whimbrel_security::UsimSqn;

use super::{READY_WITHIN, STOPPED_WITHIN, first_supi, hex, seed};
use crate::programs::Program;

/// The server of the data network that UEs send to.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
pub(crate) const SITES: u8 = 2;
/// gNBs of a site.
const GNBS: u8 = 2;
/// How long a drained home may take to be without UEs.
const DRAINED_WITHIN: Duration = Duration::from_secs(60);
/// How long gNBs may take to be connected again: an association with a CTA that was a replica until then ends after 30 s.
const GNBS_WITHIN: Duration = Duration::from_secs(60);
/// The home that is a pair of CTAs: the first of the second site.
pub(crate) const PAIR: HomeId = HomeId { site: 1, home: 0 };
/// CPFs of the pair.
const CPFS: u8 = 2;
/// Members of etcd.
const ETCDS: u8 = 3;
/// States of UEs that two homes of a site exchange.
const REPLICAS: u32 = 100_000;

/// How large the sites are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SitesWish {
    pub(crate) ues: u32,
    /// Homes of a site that run from the start, and one that may be added.
    pub(crate) homes: u8,
    pub(crate) upfs: u8,
    /// Homes send each other the states of their UEs ahead.
    pub(crate) replicas: bool,
    /// The second UPF of a site has the address pool of the first.
    pub(crate) overlapping_pools: bool,
}

/// One home, by its site and AMF pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HomeId {
    pub(crate) site: u8,
    pub(crate) home: u8,
}

impl HomeId {
    pub(crate) fn name(self) -> String {
        format!("site{}-home{}", self.site + 1, self.home + 1)
    }

    fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(127, 1, self.site, self.home + 1)
    }

    /// The addresses of its CTAs.
    fn addresses(self) -> impl Iterator<Item = Ipv4Addr> {
        let second = (self == PAIR).then_some(Ipv4Addr::new(127, 1, self.site, 100));
        std::iter::once(self.address()).chain(second)
    }

    fn api(self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 8100 + 10 * u16::from(self.site) + u16::from(self.home)))
    }
}

/// A process that is started again after its death, with one log of all its lives.
struct Running {
    name: String,
    child: Child,
}

/// The sites' processes.
pub(crate) struct Sites {
    folder: PathBuf,
    wish: SitesWish,
    subscriptions: Vec<ProvisionedUe>,
    homes: Vec<(HomeId, Running)>,
    /// The CTA of [`PAIR`] that is the replica, and the CPFs.
    of_pair: Vec<Running>,
    cpfs_started: u32,
    /// The primary CTA of the pair is the second one.
    second_serves: bool,
    etcd: Vec<Running>,
    upfs: Vec<Running>,
    postgres: Vec<Running>,
    /// The server that takes changes.
    primary: &'static str,
}

const FIRST: &str = "first";
const REPLICA: &str = "replica";

impl Sites {
    /// Starts all. Errors: one sentence.
    pub(crate) fn start(wish: SitesWish) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("whimbrel-sites-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|e| format!("{} cannot be made: {e}", folder.display()))?;
        let subscriptions = fleet::subscriptions(&seed()?, first_supi(), wish.ues);
        let made = Self {
            folder,
            wish,
            subscriptions,
            homes: Vec::new(),
            of_pair: Vec::new(),
            cpfs_started: 0,
            second_serves: false,
            etcd: Vec::new(),
            upfs: Vec::new(),
            postgres: Vec::new(),
            primary: FIRST,
        };
        made.begin()
    }

    fn begin(mut self) -> Result<Self, String> {
        command("ip", &["address", "replace", &format!("{SERVER}/32"), "dev", "lo"])?;
        for key in ["peer-amfs.key", "all.key", "cluster.key"] {
            let file = self.folder.join(key);
            whimbrel_broker_client::files::write_private(&file, &hex(&seed()?))?;
        }
        self.start_database()?;
        for member in 0..ETCDS {
            self.start_etcd(member)?;
        }
        wait(READY_WITHIN, || self.etcd_leader().is_some()).map_err(|()| "etcd does not elect a leader")?;
        for site in 0..SITES {
            for upf in 0..self.wish.upfs {
                self.start_upf(site, upf)?;
            }
        }
        for site in 0..SITES {
            for home in 0..self.wish.homes {
                self.start_home(HomeId { site, home })?;
            }
        }
        self.import()?;
        let change = format!("change {} of PostgreSQL", self.sql("SELECT generation FROM whimbrel.state")?);
        for (id, _) in &self.homes {
            let has_all =
                || self.operator(*id, &["why", "postgres"]).is_ok_and(|says| says.contains(&change));
            wait(READY_WITHIN, has_all).map_err(|()| format!("{} has not all subscribers", id.name()))?;
        }
        self.await_peers()?;
        Ok(self)
    }

    fn import(&self) -> Result<(), String> {
        let mut csv = String::from("supi,k,opc\n");
        for s in &self.subscriptions {
            let _ = writeln!(csv, "{},{},{}", s.supi, hex(&s.k), hex(&s.opc));
        }
        let file = self.folder.join("ues.csv");
        fs::write(&file, csv).map_err(|e| format!("{}: {e}", file.display()))?;
        let first = HomeId { site: 0, home: 0 };
        self.operator(first, &["subscriber", "import", &file.display().to_string()]).map(drop)
    }

    /// Runs a command of the operator at a home, and returns its output. Errors: its sentence.
    pub(crate) fn operator(&self, home: HomeId, arguments: &[&str]) -> Result<String, String> {
        let mut command = Program::Core.command()?;
        let name = if home == PAIR { Self::cta_name(self.second_serves) } else { home.name() };
        command.args(arguments).arg("--config").arg(self.file(&name, "yaml"));
        let output = command.output().map_err(|e| e.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("{}: {}", home.name(), String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.folder.join(format!("{name}.{kind}"))
    }

    fn upf_address(site: u8, upf: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, 2, site, upf + 1)
    }

    /// Homes that run or may be added.
    fn all_homes(&self) -> impl Iterator<Item = HomeId> {
        let homes = self.wish.homes + 1;
        (0..SITES).flat_map(move |site| (0..homes).map(move |home| HomeId { site, home }))
    }

    fn start_upf(&mut self, site: u8, upf: u8) -> Result<(), String> {
        let (name, address) = (format!("site{}-upf{}", site + 1, upf + 1), Self::upf_address(site, upf));
        let nth = site * self.wish.upfs + upf;
        let pool = if self.wish.overlapping_pools { 0 } else { nth };
        let addresses = self.all_homes().flat_map(HomeId::addresses);
        let smfs: Vec<String> = addresses.map(|address| format!("\"{address}:8805\"")).collect();
        let yaml = format!(
            "n3: {{ address: {address} }}\n\
             n4: {{ listen: \"{address}:8805\", smfs: [{}] }}\n\
             n6: {{ device: upf{nth}d, nat: false, ue_to_host: true }}\n\
             data_networks: [{{ dnn: internet, ipv4_pool: 10.{}.0.0/16, ipv6_pool: none }}]\n\
             api: {{ address: \"127.0.0.1:{}\" }}\n\
             store: {{ path: {} }}\n",
            smfs.join(", "),
            50 + pool,
            8200 + u16::from(nth),
            self.file(&name, "db").display(),
        );
        let running = self.spawn(&name, "upf", &yaml)?;
        self.upfs.push(running);
        self.until_ready(&name)
    }

    /// Starts a home, for the first time or again. Errors: one sentence.
    pub(crate) fn start_home(&mut self, home: HomeId) -> Result<(), String> {
        if home == PAIR {
            return self.start_pair();
        }
        let (name, address) = (home.name(), home.address());
        let running = self.spawn(&name, "run", &self.home_yaml(home, &name, address, home.api()))?;
        self.homes.retain(|(id, _)| *id != home);
        self.homes.push((home, running));
        self.until(home, "is not ready", |status| status["ready"].as_bool().unwrap_or(true))
    }

    fn start_pair(&mut self) -> Result<(), String> {
        self.second_serves = false;
        let first = self.start_cta(false)?;
        self.homes.push((PAIR, first));
        self.until(PAIR, "is not the primary CTA", |status| is_up(status, "cta"))?;
        self.start_replica()?;
        for _ in 0..CPFS {
            self.start_cpf()?;
        }
        self.until(PAIR, "has too few CPFs", |status| is_up(status, "cpfs"))
    }

    fn start_cpf(&mut self) -> Result<(), String> {
        self.cpfs_started += 1;
        let mut command = Program::Core.command()?;
        command.arg("cpf").args(PAIR.addresses().flat_map(|cta| ["--cta".into(), format!("{cta}:7380")]));
        command.args(["--listen", &format!("{}:0", PAIR.address()), "--key-file"]);
        command.arg(self.file("cluster", "key"));
        let running = self.spawn_command(&format!("cpf{}", self.cpfs_started), command)?;
        self.of_pair.push(running);
        Ok(())
    }

    fn start_cta(&self, second: bool) -> Result<Running, String> {
        let address = PAIR.addresses().nth(usize::from(second)).ok_or("the pair has two addresses")?;
        let name = Self::cta_name(second);
        let yaml = self.home_yaml(PAIR, &name, address, Self::cta_api(second));
        self.spawn(&name, "run", &yaml)
    }

    fn cta_name(second: bool) -> String {
        if second { format!("{}-second", PAIR.name()) } else { PAIR.name() }
    }

    fn cta_api(second: bool) -> SocketAddr {
        if second { SocketAddr::from(([127, 0, 0, 1], 8190)) } else { PAIR.api() }
    }

    /// Starts the CTA that does not serve, as the replica.
    fn start_replica(&mut self) -> Result<(), String> {
        let replica = self.start_cta(!self.second_serves)?;
        self.of_pair.push(replica);
        self.until(PAIR, "has no CTA replica", |status| is_up(status, "cta_replica"))
    }

    fn home_yaml(&self, home: HomeId, name: &str, address: Ipv4Addr, api: SocketAddr) -> String {
        let folder = self.folder.display();
        let mut upfs = String::new();
        for site in 0..SITES {
            for upf in 0..self.wish.upfs {
                // UPFs of the own site are preferred. Those of the other one serve the UEs that come from there.
                let (at, nth) = (Self::upf_address(site, upf), site + 1);
                let priority = if site == home.site { 1 } else { 2 };
                let _ = writeln!(
                    upfs,
                    "  - {{ name: site{nth}-upf{}, address: \"{at}:8805\", priority: {priority} }}",
                    upf + 1
                );
            }
        }
        let mut peers = String::new();
        for peer in self.all_homes().filter(|peer| *peer != home) {
            let addresses: Vec<String> = peer.addresses().map(|at| format!("\"{at}:7390\"")).collect();
            let tacs =
                if peer.site == home.site { String::new() } else { format!(", tacs: [{}]", peer.site + 1) };
            let replicas = if self.wish.replicas && peer.site == home.site { REPLICAS } else { 0 };
            let _ = writeln!(
                peers,
                "    - {{ name: {}, set: {}, pointer: {}, addresses: [{}], replicas: {replicas}{tacs} }}",
                peer.name(),
                peer.site + 1,
                peer.home,
                addresses.join(", ")
            );
        }
        let socket = |server: &str| format!("{folder}/{server}").replace('/', "%2F");
        // Both CTAs of the pair have its name, and keep the states of UEs for each other.
        let (kept, cluster) = match home == PAIR {
            false => ("  keep_ues: always\n", String::new()),
            true => ("", self.cluster_yaml(address)),
        };
        format!(
            "tacs: [{tac}]\n\
             amf: {{ name: {}, set: {tac}, pointer: {} }}\n\
             n2: {{ addresses: [{address}] }}\n\
             n3: {{ address: {address} }}\n\
             n4: {{ node_id: {address} }}\n\
             upfs:\n{upfs}\
             peer_amfs:\n  listen: \"{address}:7390\"\n  key_file: {folder}/peer-amfs.key\n  amfs:\n{peers}\
             api: {{ address: \"{}\" }}\n\
             overload: {{ start_delay_ms: 10000 }}\n\
             store:\n  path: {folder}/{name}.db\n  key_file: {folder}/all.key\n{kept}\
             \x20 postgres: \"postgresql://whimbrel@{},{}/whimbrel\"\n{cluster}",
            home.name(),
            home.home,
            api,
            socket(FIRST),
            socket(REPLICA),
            tac = home.site + 1,
        )
    }

    fn cluster_yaml(&self, address: Ipv4Addr) -> String {
        let etcd: Vec<String> =
            (0..ETCDS).map(|nth| format!("\"http://{}:2379\"", Self::etcd_address(nth))).collect();
        // A busy host makes false alarms, which are harmless.
        format!(
            "cluster:\n  listen: \"{address}:7380\"\n  key_file: {}\n  etcd: [{}]\n  cta: {}\n\
             \x20 heartbeat_interval: 40ms\n  heartbeat_misses: 4\n",
            self.file("cluster", "key").display(),
            etcd.join(", "),
            if address == PAIR.address() { 1 } else { 2 },
        )
    }

    fn spawn(&self, name: &str, what: &str, yaml: &str) -> Result<Running, String> {
        let file = self.file(name, "yaml");
        fs::write(&file, yaml).map_err(|e| format!("{}: {e}", file.display()))?;
        let mut command = Program::Core.command()?;
        command.args([what, "--strict", "--config"]).arg(&file);
        self.spawn_command(name, command)
    }

    fn spawn_command(&self, name: &str, mut command: Command) -> Result<Running, String> {
        let log = self.file(name, "log");
        let file = OpenOptions::new().create(true).append(true).open(&log);
        let file = file.map_err(|e| format!("{}: {e}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let child = command.spawn().map_err(|e| format!("{name} cannot be started: {e}"))?;
        Ok(Running { name: name.to_owned(), child })
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.file(name, "log")).unwrap_or_default()
    }

    fn until_ready(&self, name: &str) -> Result<(), String> {
        wait(READY_WITHIN, || self.log(name).contains(" ready"))
            .map_err(|()| format!("{name} is not ready:\n{}", self.log(name)))
    }

    /// The API of a home.
    pub(crate) fn client(&self, home: HomeId) -> Client {
        match home == PAIR {
            true => {
                let second = self.second_serves;
                Client::new(Self::cta_api(second)).by_store(&self.file(&Self::cta_name(second), "db"))
            }
            false => Client::new(home.api()).by_store(&self.file(&home.name(), "db")),
        }
    }

    fn until(&self, home: HomeId, what: &str, is: impl Fn(&Value) -> bool) -> Result<(), String> {
        let client = self.client(home);
        let holds = || client.get::<Value>("/api/v1/status").is_ok_and(|status| is(&status));
        wait(READY_WITHIN, holds)
            .map_err(|()| format!("{} {what}:\n{}", home.name(), last_lines(&self.log(&home.name()))))
    }

    /// The homes that run.
    pub(crate) fn running(&self) -> Vec<HomeId> {
        let mut running: Vec<HomeId> = self.homes.iter().map(|(id, _)| *id).collect();
        running.sort();
        running
    }

    /// Waits until each home has a link with each other one that runs. Errors: one sentence.
    pub(crate) fn await_peers(&self) -> Result<(), String> {
        let others = self.homes.len().saturating_sub(1);
        for (id, _) in &self.homes {
            let connected = || self.metric(*id, "whimbrel_peer_amfs") >= others as f64;
            wait(READY_WITHIN, connected).map_err(|()| {
                let has = self.metric(*id, "whimbrel_peer_amfs");
                format!("{} is connected to {has} peer AMFs, and not to {others}", id.name())
            })?;
        }
        Ok(())
    }

    /// One of a home's metrics, summed over its labels; 0 if it does not answer.
    pub(crate) fn metric(&self, home: HomeId, name: &str) -> f64 {
        metric(&self.client(home), name)
    }

    /// Kills a home, as `kill -9` does.
    pub(crate) fn kill_home(&mut self, home: HomeId) {
        if home == PAIR {
            self.of_pair.drain(..).for_each(|mut running| kill(&mut running.child));
        }
        for (_, mut running) in self.homes.extract_if(.., |(id, _)| *id == home) {
            kill(&mut running.child);
        }
    }

    /// Drains a home, stops it, starts it again and has it serve new UEs, as an upgrade does. Errors: one sentence.
    pub(crate) fn upgrade_home(&mut self, home: HomeId) -> Result<(), String> {
        let drained = Instant::now();
        self.operator(home, &["drain"])?;
        if drained.elapsed() > DRAINED_WITHIN {
            return Err(format!("{} took {} s to drain", home.name(), drained.elapsed().as_secs()));
        }
        if home == PAIR {
            self.upgrade_pair()?;
        } else {
            let stopped: Vec<_> = self.homes.extract_if(.., |(id, _)| *id == home).collect();
            stopped.into_iter().try_for_each(|(_, running)| stop(running))?;
            self.start_home(home)?;
        }
        self.operator(home, &["drain", "--cancel"])?;
        self.await_gnbs(home)
    }

    /// Cuts the homes of the two sites from each other, or heals that. Errors: one sentence.
    pub(crate) fn cut(&self, cut: bool) -> Result<(), String> {
        if !cut {
            return command("nft", &["delete", "table", "inet", "sites"]);
        }
        let drop = |from: u8, to: u8| format!("ip saddr 127.1.{from}.0/24 ip daddr 127.1.{to}.0/24 drop\n");
        let chain = format!("type filter hook output priority 0\n{}{}", drop(0, 1), drop(1, 0));
        let rules = &format!("table inet sites {{\nchain out {{\n{chain}}}\n}}\n");
        command("nft", &[rules])
    }

    /// The process of a home.
    #[cfg(any(test, feature = "bench"))]
    pub(crate) fn pid(&self, home: HomeId) -> Option<u32> {
        self.homes.iter().find(|(id, _)| *id == home).map(|(_, running)| running.child.id())
    }

    /// Keeps all processes on one processor, with the threads that they have. Errors: one sentence.
    #[cfg(any(test, feature = "bench"))]
    pub(crate) fn keep_on(&self, cpu: u32) -> Result<(), String> {
        let homes = self.homes.iter().map(|(_, running)| running);
        let homes = homes.chain(&self.of_pair).chain(&self.etcd);
        for running in homes.chain(&self.upfs).chain(&self.postgres) {
            command("taskset", &["-acp", &cpu.to_string(), &running.child.id().to_string()])?;
        }
        Ok(())
    }

    /// A gNB for each of these homes, which is its only AMF.
    #[cfg(any(test, feature = "bench"))]
    pub(crate) fn gnbs_of_homes(&self, homes: &[HomeId]) -> Vec<GnbPlace> {
        let place = |(nth, home): (u8, &HomeId)| {
            let address = IpAddr::V4(Ipv4Addr::new(127, 3, 9, nth + 1));
            let id = GlobalGnbId::new(PlmnId::TEST, 100 + u32::from(nth), 28).expect("28 bits hold it");
            let tac = Tac::new(u32::from(home.site) + 1).expect("24 bits hold it");
            let config = GnbConfig::new(id, tac, vec![SNssai::sst(1)], address);
            GnbPlace { config, address, amfs: vec![home.address().into()] }
        };
        (0u8..).zip(homes).map(place).collect()
    }

    // Etcd, and the pair of CTAs between which it decides.

    fn etcd_address(nth: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, 4, 0, nth + 1)
    }

    fn start_etcd(&mut self, nth: u8) -> Result<(), String> {
        let name = format!("etcd{nth}");
        let url = |nth: u8, port: u16| format!("http://{}:{port}", Self::etcd_address(nth));
        let members: Vec<String> = (0..ETCDS).map(|nth| format!("etcd{nth}={}", url(nth, 2380))).collect();
        let mut command = Command::new("etcd");
        command.args(["--name", &name, "--initial-cluster", &members.join(","), "--data-dir"]);
        command.arg(self.file(&name, "data"));
        for (option, port) in [
            ("--listen-client-urls", 2379),
            ("--advertise-client-urls", 2379),
            ("--listen-peer-urls", 2380),
            ("--initial-advertise-peer-urls", 2380),
        ] {
            command.args([option, &url(nth, port)]);
        }
        let running = self.spawn_command(&name, command);
        self.etcd.push(running.map_err(|e| format!("{e}: install etcd (etcd-server on Debian)"))?);
        Ok(())
    }

    /// The number of the member of etcd that is the leader.
    fn etcd_leader(&self) -> Option<u8> {
        let is_leader = |nth: &u8| {
            let status = etcd_status(SocketAddr::from((Self::etcd_address(*nth), 2379)));
            status.is_some_and(|s| s["leader"] == s["header"]["member_id"] && s["leader"].is_string())
        };
        (0..ETCDS).find(is_leader)
    }

    /// The other CTA of the pair serves. Returns the one that has served.
    fn exchange_ctas(&mut self) -> Result<Running, String> {
        let replica = Self::cta_name(!self.second_serves);
        let serves = self.of_pair.extract_if(.., |running| running.name == replica).next();
        let served = self.homes.extract_if(.., |(id, _)| *id == PAIR).next();
        self.homes.push((PAIR, serves.ok_or("the pair has no replica")?));
        self.second_serves = !self.second_serves;
        served.map(|(_, served)| served).ok_or_else(|| "the pair has no primary".into())
    }

    /// The gNBs of a home's site are connected to it.
    fn await_gnbs(&self, home: HomeId) -> Result<(), String> {
        let has_gnbs = || self.metric(home, "whimbrel_gnbs") >= f64::from(GNBS);
        wait(GNBS_WITHIN, has_gnbs).map_err(|()| format!("gNBs do not connect to {} again", home.name()))
    }

    /// The replica is stopped and started again, then the primary, which hands over to it, and the CPFs one after the other (docs/cluster.md, Upgrading). The first
    /// CTA serves in the end, to which gNBs connect.
    fn upgrade_pair(&mut self) -> Result<(), String> {
        let replica = Self::cta_name(!self.second_serves);
        let stopped: Vec<_> = self.of_pair.extract_if(.., |running| running.name == replica).collect();
        stopped.into_iter().try_for_each(stop)?;
        self.until(PAIR, "does not miss its replica", |status| !is_up(status, "cta_replica"))?;
        self.start_replica()?;
        self.hand_over()?;
        self.hand_over()?;
        let cpfs: Vec<_> =
            self.of_pair.extract_if(.., |running| !running.name.starts_with(&PAIR.name())).collect();
        for cpf in cpfs {
            self.start_cpf()?;
            stop(cpf)?;
        }
        Ok(())
    }

    /// The primary is stopped in order, so that the replica serves, and started again as the replica.
    fn hand_over(&mut self) -> Result<(), String> {
        stop(self.exchange_ctas()?)?;
        self.until(PAIR, "does not take over", |status| is_up(status, "cta"))?;
        self.start_replica()
    }

    /// Kills the leader of etcd, and then the primary CTA of the pair: the other one takes over by what the other members decide. All are started again after a
    /// while, and the first CTA serves again, to which gNBs connect. Errors: one sentence.
    pub(crate) fn etcd_leader_lost(&mut self, lasts: Duration) -> Result<(), String> {
        let leader = self.etcd_leader().ok_or("etcd has no leader")?;
        let name = format!("etcd{leader}");
        self.etcd.extract_if(.., |member| member.name == name).for_each(|mut member| kill(&mut member.child));
        wait(READY_WITHIN, || self.etcd_leader().is_some())
            .map_err(|()| "etcd does not elect another leader")?;
        kill(&mut self.exchange_ctas()?.child);
        self.until(PAIR, "does not take over", |status| is_up(status, "cta"))?;
        self.start_replica()?;
        std::thread::sleep(lasts);
        self.start_etcd(leader)?;
        if self.second_serves {
            self.hand_over()?;
        }
        self.await_gnbs(PAIR)
    }

    // PostgreSQL.

    fn start_database(&mut self) -> Result<(), String> {
        let first = self.folder.join(FIRST);
        let data = |server: &Path| server.join("data").display().to_string();
        for server in [FIRST, REPLICA] {
            fs::create_dir_all(self.folder.join(server)).map_err(|e| e.to_string())?;
        }
        let log = self.file("postgres", "log");
        self.postgres_tool(
            "initdb",
            &["-D", &data(&first), "-U", "whimbrel", "-A", "trust", "--locale=C", "-E", "UTF8"],
        )?;
        self.start_server(FIRST)?;
        self.postgres_tool("createdb", &["-h", &first.display().to_string(), "-U", "whimbrel", "whimbrel"])?;
        let replica = self.folder.join(REPLICA);
        let from = first.display().to_string();
        self.postgres_tool(
            "pg_basebackup",
            &["-D", &data(&replica), "-R", "-c", "fast", "-h", &from, "-U", "whimbrel"],
        )?;
        self.start_server(REPLICA)?;
        // PostgreSQL's word for a replica server is none of ours.
        self.sql(concat!("ALTER SYSTEM SET synchronous_", "stand", "by_names = '*'"))?;
        self.sql("SELECT pg_reload_conf()")?;
        let synchronous = || {
            let state = self.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'");
            state.is_ok_and(|count| count == "1")
        };
        wait(READY_WITHIN, synchronous).map_err(|()| {
            format!(
                "the replica is not synchronous: {}",
                last_lines(&fs::read_to_string(log).unwrap_or_default())
            )
        })
    }

    fn start_server(&mut self, server: &'static str) -> Result<(), String> {
        let folder = self.folder.join(server);
        let _none = fs::remove_file(folder.join("data/postmaster.pid"));
        let mut command = as_other_user(&postgres_program("postgres")?);
        command.args(["-D", &folder.join("data").display().to_string(), "-k", &folder.display().to_string()]);
        command.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60"]);
        let running = self.spawn_command(server, command)?;
        self.postgres.push(running);
        let at = folder.display().to_string();
        wait(READY_WITHIN, || self.postgres_tool("pg_isready", &["-q", "-h", &at]).is_ok())
            .map_err(|()| format!("PostgreSQL does not start: {}", last_lines(&self.log(server))))
    }

    fn postgres_tool(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let output = as_other_user(&postgres_program(program)?).args(arguments).output();
        let output = output.map_err(|e| format!("{program}: {e}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// One value of a query at the server that takes changes.
    pub(crate) fn sql(&self, query: &str) -> Result<String, String> {
        let at = self.folder.join(self.primary).display().to_string();
        self.postgres_tool("psql", &["-XAtq", "-h", &at, "-U", "whimbrel", "-d", "whimbrel", "-c", query])
    }

    /// Kills both servers for a while, and starts them again. Errors: one sentence.
    pub(crate) fn postgres_away(&mut self, away: Duration) -> Result<(), String> {
        for mut server in self.postgres.drain(..) {
            kill(&mut server.child);
        }
        std::thread::sleep(away);
        let other = if self.primary == FIRST { REPLICA } else { FIRST };
        self.start_server(self.primary)?;
        // A server that was the primary before a promotion stays away.
        if self.primary == FIRST {
            self.start_server(other)?;
        }
        Ok(())
    }

    /// The replica server has become the primary, and has none of its own.
    pub(crate) fn is_promoted(&self) -> bool {
        self.primary == REPLICA
    }

    /// Kills the primary, and promotes its replica. Errors: one sentence.
    pub(crate) fn promote(&mut self) -> Result<(), String> {
        for mut server in self.postgres.extract_if(.., |server| server.name == FIRST) {
            kill(&mut server.child);
        }
        self.primary = REPLICA;
        self.sql("SELECT pg_promote()").map(drop)
    }

    // The radio network.

    /// The gNBs of both sites, each with all AMFs of its site.
    pub(crate) fn gnb_places(&self) -> Vec<GnbPlace> {
        let place = |site: u8, gnb: u8| {
            let address = IpAddr::V4(Ipv4Addr::new(127, 3, site, gnb + 1));
            let id = GlobalGnbId::new(PlmnId::TEST, u32::from(site * GNBS + gnb) + 1, 28)
                .expect("28 bits hold it");
            let tac = Tac::new(u32::from(site) + 1).expect("24 bits hold it");
            let config = GnbConfig::new(id, tac, vec![SNssai::sst(1)], address);
            let amfs =
                self.all_homes().filter(|home| home.site == site).map(|home| home.address().into()).collect();
            GnbPlace { config, address, amfs }
        };
        (0..SITES).flat_map(|site| (0..GNBS).map(move |gnb| place(site, gnb))).collect()
    }

    /// The configurations of all UEs.
    pub(crate) fn ues(&self) -> Vec<UeConfig> {
        let profile = Arc::new(Profile::new(PlmnId::TEST, vec![SNssai::sst(1)]));
        let ue = |s: &ProvisionedUe| {
            let ((k, opc), profile) = (s.key(), profile.clone());
            let (sqn, suci) = (UsimSqn::default(), SuciSource::Null);
            UeConfig { profile, supi: s.supi, pei: s.pei, k, opc, sqn, suci }
        };
        self.subscriptions.iter().map(ue).collect()
    }

    /// The last warnings and errors of all processes.
    pub(crate) fn logged(&self) -> String {
        let mut all = String::new();
        let homes = self.homes.iter().map(|(_, running)| running);
        for running in homes.chain(&self.of_pair).chain(&self.upfs) {
            let log = self.log(&running.name);
            let lines: Vec<&str> =
                log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).collect();
            let _ = writeln!(all, "{}:", running.name);
            for line in lines.iter().rev().take(8).rev() {
                let _ = writeln!(all, "  {line}");
            }
        }
        all
    }

    /// Keeps the logs in this folder.
    pub(crate) fn keep_logs(&self, to: &Path) {
        let _ = fs::create_dir_all(to);
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_kept = path.extension().is_some_and(|e| e == "log" || e == "yaml");
            if let (true, Some(name)) = (is_kept, path.file_name()) {
                let _ = fs::copy(&path, to.join(name));
            }
        }
    }
}

impl Drop for Sites {
    fn drop(&mut self) {
        let homes = self.homes.iter_mut().map(|(_, running)| running);
        let all = homes.chain(&mut self.of_pair).chain(&mut self.etcd);
        for running in all.chain(&mut self.upfs).chain(&mut self.postgres) {
            kill(&mut running.child);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Stops a process in order.
fn stop(mut running: Running) -> Result<(), String> {
    let _ = Command::new("kill").args(["-TERM", &running.child.id().to_string()]).status();
    let ended = wait(STOPPED_WITHIN, || matches!(running.child.try_wait(), Ok(Some(_))));
    kill(&mut running.child);
    ended.map_err(|()| format!("{} does not stop", running.name))
}

fn metric(client: &Client, name: &str) -> f64 {
    let text = client.metrics().unwrap_or_default();
    let is = |line: &&str| line.split([' ', '{']).next() == Some(name);
    text.lines().filter(is).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// True for a part of a core that works.
fn is_up(status: &Value, part: &str) -> bool {
    let parts = status["components"].as_array().into_iter().flatten();
    parts.into_iter().any(|of| of["name"] == part && of["condition"] == "up")
}

/// The status of a member of etcd.
fn etcd_status(member: SocketAddr) -> Option<Value> {
    let mut stream = TcpStream::connect_timeout(&member, Duration::from_millis(200)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    let request = b"POST /v3/maintenance/status HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    stream.write_all(request).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

fn kill(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

fn wait(within: Duration, mut is: impl FnMut() -> bool) -> Result<(), ()> {
    let begun = Instant::now();
    while !is() {
        if begun.elapsed() > within {
            return Err(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn command(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// PostgreSQL's server refuses to run as root.
fn as_other_user(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-user=65534", "--map-group=65534"]).arg(program);
    command
}

/// Debian has PostgreSQL's programs in a folder of each version.
fn postgres_program(name: &str) -> Result<PathBuf, String> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found =
        versions.map(|version| version.path().join("bin").join(name)).filter(|file| file.is_file()).max();
    found.ok_or_else(|| "PostgreSQL's server is not installed: install the package postgresql".into())
}

//! A temporary core and radio network for `demo` and `bench`, in a network namespace of their own, with a
//! configuration, subscribers and servers that are removed afterwards. The host is not changed, with root or without.

#[cfg(any(test, feature = "bench"))]
mod measured;
pub(crate) mod open;
pub(crate) mod seams;
mod servers;
pub(crate) mod sites;
pub(crate) mod veil;

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use whimbrel_ids::{GlobalGnbId, PlmnId, SNssai, Supi, Tac};
use whimbrel_node::client::Client;
use whimbrel_ran::edge::GnbPlace;
use whimbrel_ran::fleet::{self, ProvisionedUe};
use whimbrel_ran::gnb::GnbConfig;
use whimbrel_ran::ue::{Profile, SuciSource, UeConfig};
use whimbrel_security::{HomeNetworkPrivateKey, UsimSqn};
use whimbrel_store::{Format, OnExisting, Store};

use crate::programs::Program;

pub(crate) use servers::{Gaps, Longest, NAME, Servers};

/// The core's address in the data network, where the playground's DNS and web servers listen.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 1);
/// The core's address on N2 and N3.
const CORE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 5);
const API: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8070);
/// Time limit for the core's start, which takes 0.1 s.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Time limit for the core's stop.
const STOPPED_WITHIN: Duration = Duration::from_secs(10);
/// The environment variable that is set in a process that runs in its own namespace.
const INSIDE: &str = "WHIMBREL_PLAYGROUND";

/// Runs this command again in namespaces of its own and returns its exit status, or returns `None` if this process is
/// there already.
///
/// Without root it becomes root of a user namespace, where the host permits that. Errors: one sentence.
pub(crate) fn isolate() -> Result<Option<ExitStatus>, String> {
    if std::env::var_os(INSIDE).is_some() {
        loopback_up()?;
        return Ok(None);
    }
    let me = std::env::current_exe().map_err(|e| format!("this program cannot be found: {e}"))?;
    let mut command = Command::new("unshare");
    command.arg("--net");
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "without root: all of it in a user namespace; a core for other machines' gNBs needs CAP_NET_RAW and CAP_NET_ADMIN"
        );
        command.args(["--user", "--map-root-user"]);
    }
    command.arg(me).args(std::env::args_os().skip(1)).env(INSIDE, "1");
    match command.status() {
        Ok(status) => Ok(Some(status)),
        Err(e) => Err(format!(
            "a network namespace cannot be made, so that the demonstration would touch the host: `unshare` says: {e}"
        )),
    }
}

fn loopback_up() -> Result<(), String> {
    let output = Command::new("ip").args(["link", "set", "lo", "up"]).output();
    match output {
        Ok(o) if o.status.success() => Ok(()),
        Ok(o) => Err(format!(
            "the loopback device of the namespace cannot be set up: {}",
            String::from_utf8_lossy(&o.stderr).trim()
        )),
        Err(e) => Err(format!("`ip` cannot be run ({e}): install the package iproute2")),
    }
}

/// The parts of a playground.
pub(crate) struct Wish {
    /// UEs with a subscription.
    pub(crate) ues: u32,
    /// Number of gNBs.
    pub(crate) gnbs: u8,
    /// Additional configuration, as YAML.
    pub(crate) configuration: String,
    /// The file to capture the core's messages to.
    pub(crate) capture: Option<PathBuf>,
    /// The processor that the core alone runs on.
    pub(crate) core_cpu: Option<u32>,
    /// The protection scheme of the UEs' SUCIs.
    pub(crate) suci: SuciScheme,
    /// The slices of all subscriptions; the first is the default.
    pub(crate) slices: Vec<SNssai>,
    /// One CPF, as a process of its own on the core's processor, is started for each region in this list. The configuration has
    /// the address that they connect to and the regions of the gNBs.
    pub(crate) cpfs: Vec<&'static str>,
    /// The core is a unit: [`Playground::unit_directory`].
    pub(crate) unit: bool,
    /// Registered, idle UEs that are added like those that register first.
    pub(crate) added_ues: u32,
    /// Octets of private writable memory that the kernel gives the core (RLIMIT_DATA).
    pub(crate) data_limit: Option<u64>,
    /// The core writes its UEs all the time, not only when it is stopped in order.
    pub(crate) keeps_ues: bool,
}

/// The protection scheme of the UEs' SUCIs (TS 33.501 Annex C).
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SuciScheme {
    /// The null scheme: SUPIs in clear.
    Null,
    /// Profile A, with X25519.
    A,
    /// Profile B, with secp256r1.
    B,
}

impl std::fmt::Display for SuciScheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::A => "profile A",
            Self::B => "profile B",
        })
    }
}

impl SuciScheme {
    /// The home network's key of the playground; any 32 octets of this form are one under both profiles.
    fn private_key(self) -> Option<HomeNetworkPrivateKey> {
        match self {
            Self::Null => None,
            Self::A => Some(HomeNetworkPrivateKey::profile_a(PRIVATE_KEY)),
            Self::B => HomeNetworkPrivateKey::profile_b(&PRIVATE_KEY).ok(),
        }
    }

    fn yaml(self) -> String {
        match self {
            Self::Null => String::new(),
            Self::A | Self::B => format!(
                "home_network_keys: [{{ id: 1, scheme: {self:?}, private_key: \"{}\" }}]\n",
                hex(&PRIVATE_KEY)
            ),
        }
    }
}

/// Not a secret: it conceals the identities of emulated UEs only.
const PRIVATE_KEY: [u8; 32] = [0x42; 32];

/// A running core with its subscribers.
pub(crate) struct Playground {
    folder: PathBuf,
    core: Child,
    /// The program that the core was upgraded to, which it is started again with.
    upgraded_to: Option<PathBuf>,
    /// The CPFs that are processes of their own.
    cpfs: Vec<Child>,
    /// How many CPFs have been started.
    begun: usize,
    /// CPFs that are started from now on show their metrics.
    cpf_metrics: bool,
    /// The processor that core and CPFs run on.
    cpu: Option<u32>,
    client: Client,
    subscriptions: Vec<ProvisionedUe>,
    gnbs: u8,
    suci: SuciScheme,
    slices: Vec<SNssai>,
    /// The core is a unit.
    unit: bool,
}

impl Playground {
    /// Makes the subscribers and starts the core. Errors: one sentence, with the core's log.
    pub(crate) fn start(wish: &Wish) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("whimbrel-playground-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|e| format!("{} cannot be made: {e}", folder.display()))?;
        let subscriptions = fleet::subscriptions(&seed()?, first_supi(), wish.ues);
        provision(&folder, &subscriptions, &wish.slices)?;
        let configuration = folder.join("whimbrel.yaml");
        let slices: Vec<String> = wish.slices.iter().map(|s| format!("\"{s}\"")).collect();
        let more = format!("slices: [{}]\n{}{}", slices.join(", "), wish.suci.yaml(), wish.configuration);
        let unit = match wish.unit {
            true => format!("unit: {{ directory: {} }}\n", unit_of(&folder).display()),
            false => String::new(),
        };
        fs::write(&configuration, yaml(&folder, wish, &(more + &unit)))
            .map_err(|e| format!("{} cannot be written: {e}", configuration.display()))?;
        let core = spawn(&folder, &configuration, wish, None)?;
        let client = Client::new(API).by_store(&folder.join("whimbrel.db"));
        let mut playground = Self {
            folder,
            core,
            upgraded_to: None,
            cpfs: Vec::new(),
            begun: 0,
            cpf_metrics: false,
            cpu: wish.core_cpu,
            client,
            subscriptions,
            gnbs: wish.gnbs,
            suci: wish.suci,
            slices: wish.slices.clone(),
            unit: wish.unit,
        };
        playground.await_ready()?;
        for (nth, region) in wish.cpfs.iter().enumerate() {
            let process = playground.spawn_cpf(nth, region)?;
            playground.cpfs.push(process);
        }
        playground.await_cpfs()?;
        Ok(playground)
    }

    fn spawn_cpf(&mut self, nth: usize, region: &str) -> Result<Child, String> {
        self.begun += 1;
        let log = fs::File::create(self.folder.join(format!("cpf-{}.log", self.begun)))
            .map_err(|e| format!("the log of a CPF: {e}"))?;
        let mut command = Program::Core.command_on(self.cpu)?;
        command.args(["cpf", "--region", region]);
        if self.cpf_metrics {
            command.args(["--api", &cpf_api(nth).to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn().map_err(|e| format!("a CPF cannot be started: {e}"))
    }

    /// Waits until all CPFs that were started have joined.
    fn await_cpfs(&self) -> Result<(), String> {
        self.until("CPFs do not connect", |p| Ok(p.log().matches("a CPF joined").count() >= p.begun))
    }

    fn until(&self, wrong: &str, is: impl Fn(&Self) -> Result<bool, String>) -> Result<(), String> {
        let begin = Instant::now();
        while !is(self)? {
            if begin.elapsed() > READY_WITHIN {
                return Err(format!("{wrong}: {}", self.log()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn await_ready(&mut self) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            if let Ok(Some(status)) = self.core.try_wait() {
                return Err(format!("the core ended at its start ({status}): {}", self.log()));
            }
            if let Ok(status) = self.client.get::<Value>("/api/v1/status")
                && status["ready"].as_bool().unwrap_or(true)
            {
                return Ok(());
            }
            if begin.elapsed() > READY_WITHIN {
                return Err(format!("the core is not ready after {READY_WITHIN:?}: {}", self.log()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The runtime directory of the core's unit.
    pub(crate) fn unit_directory(&self) -> PathBuf {
        unit_of(&self.folder)
    }

    /// The functions of the core's unit, as `whimbrel unit` prints them. Errors: one sentence.
    pub(crate) fn unit_text(&self) -> Result<String, String> {
        let mut command = Program::Core.command()?;
        let output = command.args(["unit", "--config"]).arg(self.folder.join("whimbrel.yaml")).output();
        let output = output.map_err(|e| format!("`whimbrel unit` cannot be run: {e}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// Kills the core's process (of a unit: the manager) as `kill -9` does and starts another one. Errors: one sentence.
    pub(crate) fn lose_core(&mut self, wish: &Wish) -> Result<(), String> {
        let cannot = |e| format!("the core cannot be killed: {e}");
        self.core.kill().map_err(cannot)?;
        self.core.wait().map_err(cannot)?;
        self.core = self.spawn_again(wish)?;
        Ok(())
    }

    /// Kills the manager of the core's unit and these functions of it at once, and starts another manager. Errors: one sentence.
    pub(crate) fn lose_functions(&mut self, wish: &Wish, functions: &[Pid]) -> Result<(), String> {
        let cannot = |e: &dyn std::fmt::Display| format!("the core cannot be killed: {e}");
        for pid in [Pid::from_child(&self.core)].iter().chain(functions) {
            kill_process(*pid, Signal::KILL).map_err(|e| cannot(&e))?;
        }
        self.core.wait().map_err(|e| cannot(&e))?;
        self.core = self.spawn_again(wish)?;
        Ok(())
    }

    fn spawn_again(&self, wish: &Wish) -> Result<Child, String> {
        spawn(&self.folder, &self.folder.join("whimbrel.yaml"), wish, self.upgraded_to.as_deref())
    }

    /// The core was upgraded to another program, as by a package: it is started again with that one from now on.
    pub(crate) fn is_upgraded_to(&mut self, program: &Path) {
        self.upgraded_to = Some(program.to_owned());
    }

    /// The core is started with the other program from now on: with this one, or with the one that it was started with first.
    pub(crate) fn changes_program(&mut self, other: PathBuf) {
        self.upgraded_to = if self.upgraded_to.is_none() { Some(other) } else { None };
    }

    /// The process id of the core.
    pub(crate) fn core_pid(&self) -> u32 {
        self.core.id()
    }

    /// Stops the core in order, as `systemctl restart` does, and starts it again. Returns when it had stopped. Errors: one sentence.
    pub(crate) fn restart_core(&mut self, wish: &Wish) -> Result<Instant, String> {
        let cannot = |e| format!("the core cannot be stopped: {e}");
        let pid = Pid::from_child(&self.core);
        kill_process(pid, Signal::TERM).map_err(|e| format!("the core cannot be stopped: {e}"))?;
        let status = self.core.wait().map_err(cannot)?;
        if !status.success() {
            return Err(format!("the core ended with {status}: {}", self.log()));
        }
        let stopped = Instant::now();
        self.core = self.spawn_again(wish)?;
        Ok(stopped)
    }

    /// The core's log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("core.log")).unwrap_or_default().trim().to_owned()
    }

    /// The core's API.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The core's N2 address.
    pub(crate) fn amf(&self) -> IpAddr {
        CORE.into()
    }

    /// The gNBs, each on a loopback address of its own.
    pub(crate) fn gnb_places(&self) -> Vec<GnbPlace> {
        (1..=self.gnbs)
            .map(|n| {
                let address = IpAddr::V4(Ipv4Addr::new(127, 0, 1, n));
                let id = GlobalGnbId::new(PlmnId::TEST, u32::from(n), 28).expect("28 bits hold it");
                let tac = Tac::new(1).expect("24 bits hold it");
                GnbPlace {
                    config: GnbConfig::new(id, tac, self.slices.clone(), address),
                    address,
                    amfs: Vec::new(),
                }
            })
            .collect()
    }

    /// The UEs; their SUCIs are computed here, not when they register.
    pub(crate) fn ues(&self) -> Vec<UeConfig> {
        let mut profile = Profile::new(PlmnId::TEST, self.slices.clone());
        profile.follow_on_request = true;
        let profile = Arc::new(profile);
        let key = self.suci.private_key().map(|k| Arc::new(k.public_key()));
        let ue = |s: &ProvisionedUe| {
            let (k, opc) = s.key();
            let mut config = UeConfig {
                profile: profile.clone(),
                supi: s.supi,
                pei: s.pei,
                k,
                opc,
                sqn: UsimSqn::default(),
                suci: match &key {
                    None => SuciSource::Null,
                    Some(key) => SuciSource::Concealed { key: key.clone(), key_id: 1, seed: seed_of(s) },
                },
            };
            config.precompute_suci();
            config
        };
        self.subscriptions.iter().map(ue).collect()
    }

    /// Stops the core with SIGTERM. Errors: it exited with a failure or did not exit.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        let _ = Command::new("kill").args(["-TERM", &self.core.id().to_string()]).status();
        let begin = Instant::now();
        while begin.elapsed() < STOPPED_WITHIN {
            match self.core.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("the core ended with {status}: {}", self.log())),
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(e) => return Err(format!("the core cannot be waited for: {e}")),
            }
        }
        Err(format!("the core does not stop: {}", self.log()))
    }
}

impl Drop for Playground {
    fn drop(&mut self) {
        // The other processes of a unit survive a killed manager; SIGTERM makes the manager end them.
        if self.unit && matches!(self.core.try_wait(), Ok(None)) {
            let _ = Command::new("kill").args(["-TERM", &self.core.id().to_string()]).status();
            let until = Instant::now() + STOPPED_WITHIN;
            while matches!(self.core.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        for process in self.cpfs.iter_mut().chain([&mut self.core]) {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn seed() -> Result<[u8; 32], String> {
    let mut seed = [0; 32];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| format!("the system gives no random octets: {e}"))?;
    Ok(seed)
}

/// Each UE's own ephemeral keys.
fn seed_of(s: &ProvisionedUe) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..16].copy_from_slice(&s.k);
    seed[16..].copy_from_slice(&s.opc);
    seed
}

fn first_supi() -> Supi {
    "999700000000001".parse().expect("15 digits are a SUPI")
}

fn provision(folder: &Path, subscriptions: &[ProvisionedUe], slices: &[SNssai]) -> Result<(), String> {
    let slice = |(i, s): (usize, &SNssai)| serde_json::json!({"s_nssai": s.to_string(), "default": i == 0});
    let slices: Vec<Value> = slices.iter().enumerate().map(slice).collect();
    let subscription = serde_json::json!({"slices": slices}).to_string().replace('"', "\"\"");
    let mut csv = String::from("supi,k,opc,subscription\n");
    for s in subscriptions {
        let _ = writeln!(csv, "{},{},{},\"{subscription}\"", s.supi, hex(&s.k), hex(&s.opc));
    }
    let open = Store::open(&folder.join("whimbrel.db"), &folder.join("whimbrel.key"));
    let mut store = open.map_err(|e| e.to_string())?;
    store.import(csv.as_bytes(), Format::Csv, OnExisting::Refuse, &mut |_| {}).map_err(|e| e.to_string())?;
    Ok(())
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut s, o| {
        let _ = write!(s, "{o:02x}");
        s
    })
}

fn yaml(folder: &Path, wish: &Wish, more: &str) -> String {
    let folder = folder.display();
    let keep_ues = match wish {
        // Added UEs are of one run.
        Wish { added_ues: 1.., .. } => "never",
        Wish { keeps_ues: true, .. } => "always",
        _ => "on-stop",
    };
    format!(
        "store: {{ path: {folder}/whimbrel.db, key_file: {folder}/whimbrel.key, keep_ues: {keep_ues} }}\n\
         n2: {{ addresses: [{CORE}] }}\n\
         n3: {{ address: {CORE} }}\n\
         n6:\n  nat: false\n  forwarding: false\n  allow:\n\
         \x20   - permit in 17 from any to {GATEWAY} 53,5001\n\
         \x20   - permit in 6 from any to {GATEWAY} 80\n\
         api: {{ address: \"{API}\" }}\n\
         {more}"
    )
}

fn spawn(folder: &Path, configuration: &Path, wish: &Wish, program: Option<&Path>) -> Result<Child, String> {
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("core.log"));
    let log = log.map_err(|e| format!("the core's log: {e}"))?;
    let mut command = program
        .map_or_else(|| Program::Core.command_on(wish.core_cpu), |program| Ok(Command::new(program)))?;
    command.arg("run").arg(if wish.unit { "--unit" } else { "--strict" }).arg("--config").arg(configuration);
    if let Some(capture) = &wish.capture {
        command.arg("--capture").arg(capture);
    }
    if wish.added_ues > 0 {
        command.args(["--added-ues", &wish.added_ues.to_string()]);
    }
    if wish.data_limit.is_some() {
        // Memory that the allocator reserves is not to count before it is used.
        command.envs([("MIMALLOC_ARENA_EAGER_COMMIT", "0"), ("MIMALLOC_EAGER_COMMIT", "0")]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let core = command.spawn().map_err(|e| format!("the core cannot be started: {e}"))?;
    if let Some(octets) = wish.data_limit {
        let limit = Rlimit { current: Some(octets), maximum: Some(octets) };
        prlimit(Some(Pid::from_child(&core)), Resource::Data, limit)
            .map_err(|e| format!("the memory of the core cannot be limited: {e}"))?;
    }
    Ok(core)
}

/// Where the CPF in that place shows its metrics, if it does.
fn cpf_api(nth: usize) -> SocketAddr {
    SocketAddr::new(API.ip(), API.port() + 1 + nth as u16)
}

fn unit_of(folder: &Path) -> PathBuf {
    folder.join("unit")
}

//! The processes of one case: which part of the core is killed, and what protects it.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::demo::survive::await_complete;
use crate::playground::{GATEWAY, Playground, SuciScheme, Wish};
use crate::programs::Program;
use whimbrel_node::unit;

/// gNBs; the UE is handed over from each to the other.
pub(super) const GNBS: u8 = 2;
/// The data network's bottleneck, as in the paper (§5.5): in front of the UPF, so that no packet is lost by it.
const BOTTLENECK: &str = "tbf rate 30mbit burst 16k limit 1m";
/// TUN devices of the program, and of a UPF that is a process beside the core.
const DEVICE: &str = "whimbrel0";
const DEVICE_BESIDE: &str = "beside0";
/// N3 and N4 of a UPF beside the core.
const UPF: &str = "127.0.0.6";
/// Where a packet logger and its UPFs reach each other.
const LOGGER: &str = "127.0.0.8:7390";
const REGION: &str = "load/home";
/// How long a process may take to be ready, and the parts of a core to be complete.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// What is killed, and what protects the UE from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The CPF that serves the UE; another one has its checkpoint, the CTA its log.
    Cpf,
    /// The primary CTA, which has a replica.
    Cta,
    /// The UPF, which has a replica on the same host.
    Upf,
    /// One of two UPFs behind a packet logger.
    LoggedUpf,
    /// The CPF that serves the UE, of a core without replicas: the UE attaches again at the other CPF.
    CpfAlone,
    /// A UPF without a replica: it is started again, and the SMF establishes its sessions again.
    UpfAlone,
    /// Nothing, of a core of one process.
    Nothing,
}

impl Failure {
    /// Those of figures 15 and 16.
    pub(super) const ALL: [Self; 6] =
        [Self::Cpf, Self::Cta, Self::Upf, Self::LoggedUpf, Self::CpfAlone, Self::UpfAlone];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cpf => "CPF, with a replica",
            Self::Cta => "CTA, with a replica",
            Self::Upf => "UPF, with a replica",
            Self::LoggedUpf => "UPF, behind a packet logger",
            Self::CpfAlone => "3GPP: CPF, UE attaches again",
            Self::UpfAlone => "3GPP: UPF, SMF restores session",
            Self::Nothing => "no failure",
        }
    }

    /// Whether it is one that is to cost no packet.
    pub(super) fn is_protected(self) -> bool {
        matches!(self, Self::Cpf | Self::Cta | Self::Upf | Self::LoggedUpf)
    }

    fn in_unit(self) -> bool {
        matches!(self, Self::Cpf | Self::Cta | Self::Upf)
    }

    fn upf_beside(self) -> bool {
        matches!(self, Self::LoggedUpf | Self::UpfAlone)
    }

    fn device(self) -> &'static str {
        if self.upf_beside() { DEVICE_BESIDE } else { DEVICE }
    }

    /// What the core's configuration has beside what each playground's has.
    fn configuration(self, more: &str) -> String {
        let network = format!("data_networks: [{{ dnn: internet, dns: [{GATEWAY}] }}]\n{more}");
        match self {
            Self::Cpf | Self::Cta | Self::Upf | Self::Nothing => network,
            Self::CpfAlone => {
                format!(
                    "{network}cluster: {{ listen: \"127.0.0.1:7380\", region: {REGION}, replicas: 0 }}\noverload: {{ start_delay_ms: 10000 }}\n"
                )
            }
            Self::LoggedUpf | Self::UpfAlone => {
                format!(
                    "{network}n4: {{ node_id: 127.0.0.5 }}\nupfs: [{{ name: beside, address: \"{UPF}:8805\" }}]\n"
                )
            }
        }
    }
}

/// The processes of a case.
pub(super) struct World {
    failure: Failure,
    pub(super) playground: Playground,
    beside: Option<Beside>,
    /// Which of two CPFs, or of two UPFs behind a logger, serves the UE.
    serving: usize,
}

impl World {
    /// Starts the core. `more`: further configuration. Errors: one sentence, with logs.
    pub(super) fn start(failure: Failure, more: &str) -> Result<Self, String> {
        let beside =
            failure.upf_beside().then(|| Beside::start(failure == Failure::LoggedUpf)).transpose()?;
        let wish = Wish {
            ues: 1,
            gnbs: GNBS,
            configuration: failure.configuration(more),
            capture: None,
            core_cpu: None,
            suci: SuciScheme::Null,
            slices: vec![whimbrel_ids::SNssai::sst(1)],
            cpfs: if failure == Failure::CpfAlone { vec![REGION] } else { Vec::new() },
            unit: failure.in_unit(),
            added_ues: 0,
            data_limit: None,
            keeps_ues: false,
        };
        let playground = Playground::start(&wish)?;
        let world = Self { failure, playground, beside, serving: 0 };
        if failure.in_unit() {
            await_complete(&world.playground, None)?;
        }
        world.subscribe()?;
        world.limit_rate()?;
        Ok(world)
    }

    fn supi(&self) -> String {
        self.playground.ues().first().map(|ue| ue.supi.to_string()).unwrap_or_default()
    }

    /// Gives the subscriber a static address: TCP's connections go on only if a UE that attaches again has the same one.
    fn subscribe(&self) -> Result<(), String> {
        let address = if self.failure.upf_beside() { "10.46.0.77" } else { "10.45.0.77" };
        let dnn = json!({ "dnn": "internet", "default": true, "ipv4": address });
        let slice = json!({ "s_nssai": "1", "default": true, "dnns": [dnn] });
        let change = json!({ "subscription": { "slices": [slice] } });
        let path = format!("/api/v1/subscribers/{}", self.supi());
        self.playground.client().send::<Value>("PATCH", &path, Some(&change)).map(drop)
    }

    /// The logs of all processes.
    pub(super) fn log(&self) -> String {
        self.playground.log() + &self.beside.as_ref().map_or_else(String::new, Beside::log)
    }

    /// Makes the core complete, once the UE has its session. Errors: one sentence.
    pub(super) fn complete(&mut self) -> Result<(), String> {
        match self.failure {
            Failure::Cpf | Failure::Cta | Failure::Upf => await_complete(&self.playground, None),
            Failure::CpfAlone => self.playground.add_cpf(REGION),
            Failure::LoggedUpf | Failure::UpfAlone | Failure::Nothing => Ok(()),
        }
    }

    /// The process that is to be killed next. Errors: it does not run.
    pub(super) fn victim(&self) -> Result<i32, String> {
        let function = |is: &dyn Fn(&unit::FunctionStatus) -> bool| {
            let status = unit::status(&self.playground.unit_directory())?;
            status
                .functions
                .iter()
                .find(|f| is(f))
                .and_then(|f| f.pid)
                .ok_or_else(|| "the unit is not complete".to_owned())
        };
        let beside = |nth: usize| self.beside.as_ref().and_then(|b| b.upfs.get(nth)).map(Child::id);
        let pid = match self.failure {
            Failure::Cpf => {
                let ue = self.playground.client().get::<Value>(&format!("/api/v1/ues/{}", self.supi()))?;
                let serving = format!("cpf-{}", ue["cpf"].as_u64().ok_or("no CPF serves the UE")?);
                return function(&|f| f.name == serving);
            }
            Failure::Cta => return function(&|f| f.state == "primary"),
            Failure::Upf => return function(&|f| f.name == "upf"),
            Failure::CpfAlone => self.playground.pids().get(1 + self.serving).copied(),
            Failure::LoggedUpf | Failure::UpfAlone => beside(self.serving),
            Failure::Nothing => None,
        };
        pid.map(u32::cast_signed).ok_or_else(|| "a process is missing".into())
    }

    /// Kills a process, and starts another one where nothing else does it. Returns when it was killed. Errors: one sentence.
    pub(super) fn strike(&mut self, victim: i32) -> Result<Instant, String> {
        let pid = Pid::from_raw(victim).ok_or("a process is missing")?;
        let at = Instant::now();
        kill_process(pid, Signal::KILL).map_err(|e| format!("a process cannot be killed: {e}"))?;
        if self.failure == Failure::UpfAlone {
            self.beside.as_mut().map_or(Ok(()), |b| b.restart(0))?;
            self.limit_rate()?;
        }
        Ok(at)
    }

    /// Waits until what was killed is replaced. Errors: one sentence.
    pub(super) fn repair(&mut self, victim: i32) -> Result<(), String> {
        match self.failure {
            Failure::Cpf | Failure::Cta | Failure::Upf => await_complete(&self.playground, Some(victim)),
            Failure::CpfAlone => {
                self.playground.end_cpf(self.serving)?;
                self.playground.replace_cpf(self.serving, REGION)?;
                self.serving = 1 - self.serving;
                Ok(())
            }
            Failure::LoggedUpf => {
                let killed = self.serving;
                self.serving = 1 - self.serving;
                self.beside.as_mut().map_or(Ok(()), |b| b.restart(killed).and_then(|()| b.await_replica()))
            }
            Failure::UpfAlone | Failure::Nothing => Ok(()),
        }
    }

    /// Makes the bottleneck, as soon as there is a TUN device. Errors: it cannot be made.
    fn limit_rate(&self) -> Result<(), String> {
        let device = self.failure.device();
        let script = format!(
            "tc qdisc replace dev {device} root {BOTTLENECK} && ip link set dev {device} gso_max_segs 1"
        );
        let until = Instant::now() + READY_WITHIN;
        loop {
            let output = Command::new("sh").args(["-c", &script]).output();
            let output = output.map_err(|e| format!("`tc` cannot be run: {e}"))?;
            if output.status.success() {
                return Ok(());
            }
            if Instant::now() > until {
                let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(format!("the rate of {device} cannot be limited: {why}\n{}", self.log()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// UPFs that are processes beside the core; two of them behind a packet logger.
struct Beside {
    folder: PathBuf,
    logger: Option<Child>,
    upfs: Vec<Child>,
    /// How often the logger has had a replica.
    replicas: usize,
}

impl Beside {
    /// Errors: one sentence, with logs.
    fn start(logged: bool) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("whimbrel-beside-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|e| format!("{} cannot be made: {e}", folder.display()))?;
        let mut beside = Self { folder, logger: None, upfs: Vec::new(), replicas: 0 };
        if logged {
            beside.logger = Some(beside.spawn("packet-logger", "logger", 8073)?);
            beside.until("the packet logger is not ready", |b| b.log_of("logger").contains(" ready"))?;
            for nth in 0..2 {
                let upf = beside.spawn_upf(nth)?;
                beside.upfs.push(upf);
                if nth == 0 {
                    beside.until("a UPF is not ready", |b| b.log_of("upf-0").contains(" ready"))?;
                }
            }
            beside.await_replica()?;
        } else {
            let upf = beside.spawn_upf(0)?;
            beside.upfs.push(upf);
            beside.until("the UPF is not ready", |b| b.log_of("upf-0").contains(" ready"))?;
        }
        Ok(beside)
    }

    fn spawn_upf(&self, nth: usize) -> Result<Child, String> {
        self.spawn("upf", &format!("upf-{nth}"), 8071 + nth as u16)
    }

    fn spawn(&self, command: &str, name: &str, api: u16) -> Result<Child, String> {
        let logger = match self.logger.is_some() || command == "packet-logger" {
            true => format!("packet_logger: {{ address: \"{LOGGER}\" }}\n"),
            false => String::new(),
        };
        let smfs = if logger.is_empty() { ", smfs: [\"127.0.0.5:8805\"]" } else { "" };
        let folder = self.folder.display();
        let text = format!(
            "n3: {{ address: {UPF} }}\nn4: {{ listen: \"{UPF}:8805\", node_id: {UPF}{smfs} }}\n\
             n6: {{ device: beside, nat: false, forwarding: false, ue_to_host: true }}\n\
             data_networks: [{{ dnn: internet, ipv4_pool: 10.46.0.0/16, ipv6_pool: none }}]\n{logger}\
             api: {{ address: \"127.0.0.1:{api}\" }}\nstore: {{ path: {folder}/{name}.db }}\n"
        );
        let cannot = |e: std::io::Error| format!("{name} cannot be started: {e}");
        let configuration = self.folder.join(format!("{name}.yaml"));
        fs::write(&configuration, text).map_err(cannot)?;
        let log = self.folder.join(format!("{name}.log"));
        let log = fs::OpenOptions::new().create(true).append(true).open(log).map_err(cannot)?;
        let mut program = Program::Core.command()?;
        program.arg(command).arg("--config").arg(&configuration);
        program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().map_err(cannot)
    }

    /// Starts a UPF in the place of one that was killed. Errors: one sentence.
    fn restart(&mut self, nth: usize) -> Result<(), String> {
        if let Some(killed) = self.upfs.get_mut(nth) {
            // Its addresses are free once it has ended.
            killed.wait().map_err(|e| format!("a UPF cannot be waited for: {e}"))?;
        }
        let started = self.spawn_upf(nth)?;
        if let Some(upf) = self.upfs.get_mut(nth) {
            *upf = started;
        }
        Ok(())
    }

    /// Waits until the UPF that started last is the replica of the other one. Errors: one sentence, with logs.
    fn await_replica(&mut self) -> Result<(), String> {
        self.replicas += 1;
        self.until("the UPF has no replica", |b| {
            b.log_of("logger").matches("has the whole state").count() >= b.replicas
        })
    }

    fn until(&self, wrong: &str, is: impl Fn(&Self) -> bool) -> Result<(), String> {
        let begin = Instant::now();
        while !is(self) {
            if begin.elapsed() > READY_WITHIN {
                return Err(format!("{wrong}: {}", self.log()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn log_of(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(format!("{name}.log"))).unwrap_or_default()
    }

    fn log(&self) -> String {
        ["logger", "upf-0", "upf-1"].iter().map(|name| self.log_of(name)).collect()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        for process in self.upfs.iter_mut().chain(&mut self.logger) {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

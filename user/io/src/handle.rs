//! The user plane as the rest of the program sees it.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
#[cfg(feature = "measure")]
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use whimbrel_user::{
    COUNTED_EVERY, Counters, HostAddresses, REPORTS_MAX, SessionCounters, SessionId, ShardSteering, UpfU,
    UserPlaneChange, UserPlaneReport, packet_room,
};

use crate::beats::Beats;
use crate::channel::Receiver;
use crate::config::{Config, FramesDevice};
use crate::error::{Notice, Obstacle, StartError};
use crate::harvest::{Harvest, HarvestCounters};
use crate::host::addresses::{self, AddressWatch};
use crate::host::upkeep::{DeviceQueues, HostReport, Upkeep, check_pools};
use crate::host::{Nat, Sysctls, set_up, set_up_frames};
use crate::ports::af_xdp::xdp_fast_path::FastPathMemory;
use crate::ports::af_xdp::{AfXdp, Front, Rings};
use crate::ports::descriptors::Descriptors;
use crate::ports::logged::{LoggedPort, LoggerEnd};
#[cfg(feature = "measure")]
use crate::ports::memory::{MemoryOuterEnd, ports};
#[cfg(feature = "measure")]
use crate::ports::pcap::{Pcap, Replay};
use crate::ports::{Ports, system::System};
use crate::state::StateFile;
use crate::tap::TappedDatagram;
use crate::thread::{self, IoCounters, ThreadRequest, ThreadsState};

/// How long the packet thread may take to answer a question.
const ANSWER_WITHIN: Duration = Duration::from_millis(200);

/// The queue to the packet thread is full; here is the change back.
#[derive(Debug)]
pub struct QueueFull(pub UserPlaneChange);

/// A running user plane. Dropping it stops the packet threads and takes back what was set on the host.
pub struct Handle {
    shared: Arc<ThreadsState>,
    steering: ShardSteering,
    reports: Receiver<UserPlaneReport>,
    threads: Vec<JoinHandle<()>>,
    /// What is shared with a fast path, if there is one.
    fast: Option<Arc<FastPathMemory>>,
    /// Sends the host's addresses to the packet threads.
    watch: Option<AddressWatch>,
    host: HostSetup,
}

/// What was set on the host, in the order in which it is taken back.
#[derive(Default)]
pub(crate) struct HostSetup {
    /// Keeps up what was set; ended before that is taken back.
    upkeep: Option<Upkeep>,
    /// Of the devices that are to be kept up.
    queues: Vec<DeviceQueues>,
    nat: Option<Nat>,
    /// Rules of that table.
    nat_rules: usize,
    sysctls: Option<Sysctls>,
    changes: Vec<String>,
    notices: Vec<Notice>,
    rings: Option<Rings>,
    /// Which it takes packets for, until the packet threads know them.
    addresses: Option<HostAddresses>,
    obstacle: Option<Obstacle>,
}

pub(crate) fn start(mut config: Config, given: Option<Descriptors>) -> Result<Handle, StartError> {
    config.user.check()?;
    let (devices, networks) = (config.devices.len(), config.user.data_networks.len());
    if devices != networks {
        return Err(StartError::Devices { devices, networks });
    }
    check_pools(&config)?;
    let sysctls = Sysctls::new(config.journal.clone());
    let (mut fronts, obstacle) = Front::open(&config).map_err(StartError::AfXdp)?;
    if !fronts.is_empty() {
        config.user.shards = fronts.len() as u8; // queues may be fewer than the threads that were asked for
    }
    let (systems, unsteered) = System::open(&config, given)?;
    let queues = System::device_queues(&systems).map_err(StartError::System)?;
    let mut host = HostSetup { obstacle, queues, ..HostSetup::default() };
    if !config.busy_poll.is_zero() {
        let refused = fronts.iter_mut().filter_map(|front| front.poll_busily(config.busy_poll).err()).last();
        host.notices.extend(refused.map(Notice::BusyPoll));
    }
    host.notices.extend(unsteered.map(Notice::Steering));
    host.set_up_devices(&config)?;
    host.set_up(&config, sysctls);
    host.addresses = Some(addresses::now().map_err(StartError::HostAddresses)?);
    let Some(front) = fronts.first() else { return spawn(config, systems, host) };
    host.rings = front.n3().cloned();
    for (dn, rings) in front.n6() {
        let dnn = &config.user.data_networks[usize::from(dn.0)].dnn;
        host.changes.push(format!("{dnn} is reached by {rings}"));
    }
    let both = fronts.drain(..).zip(systems);
    spawn(config, both.map(|(front, system)| AfXdp::new(front, system)).collect(), host)
}

/// A packet thread on the packets of a packet logger, which takes none before [`Handle::begin`]. The host is left as it is: its sockets and devices are the
/// logger's.
pub(crate) fn start_behind_logger(mut config: Config, end: LoggerEnd) -> Result<Handle, StartError> {
    config.user.check()?;
    (config.keeps_state, config.user.shards) = (true, 1);
    let n3 = [config.user.n3_ipv4.map(IpAddr::V4), config.user.n3_ipv6.map(IpAddr::V6)];
    let ports = LoggedPort::new(end, n3).map_err(StartError::System)?;
    spawn(config, vec![ports], HostSetup::default())
}

/// The sockets and devices of a user plane without one, on a host that is set up for it: for a packet logger.
pub(crate) fn open_front(mut config: Config) -> Result<(System, HostSetup, HostAddresses), StartError> {
    config.user.check()?;
    config.user.shards = 1;
    check_pools(&config)?;
    let sysctls = Sysctls::new(config.journal.clone());
    let (mut systems, _) = System::open(&config, None)?;
    let queues = System::device_queues(&systems).map_err(StartError::System)?;
    let mut host = HostSetup { queues, ..HostSetup::default() };
    host.set_up_devices(&config)?;
    host.set_up(&config, sysctls);
    let known = addresses::now().map_err(StartError::HostAddresses)?;
    Ok((systems.remove(0), host, known))
}

#[cfg(feature = "measure")]
pub(crate) fn start_on_capture(
    mut config: Config,
    from: &Path,
    to: &Path,
) -> Result<(Handle, Replay), StartError> {
    config.user.shards = 1;
    let (ports, replay) = Pcap::open(&config, from, to).map_err(StartError::System)?;
    Ok((spawn(config, vec![ports], HostSetup::default())?, replay))
}

#[cfg(feature = "measure")]
pub(crate) fn start_in_memory(config: Config) -> Result<(Handle, MemoryOuterEnd), StartError> {
    let (inner, outer) = ports(config.user.shards.into()).map_err(StartError::System)?;
    Ok((spawn(config, inner, HostSetup::default())?, outer))
}

/// Packet threads on the sockets and devices of another process, which has them still: they stand ready and take no packet before
/// [`Handle::begin`]. Nothing is set up on the host. `None`: packets come by AF_XDP, of which one process has the interface.
pub(crate) fn stand_by(mut config: Config, given: Descriptors) -> Result<Option<Handle>, StartError> {
    config.user.check()?;
    config.keeps_state = true;
    let (needs, obstacle) = Front::is_needed(&config);
    if needs {
        return Ok(None);
    }
    let (systems, _) = System::open(&config, Some(given))?;
    let known = addresses::now().map_err(StartError::HostAddresses)?;
    let queues = System::device_queues(&systems).map_err(StartError::System)?;
    let host = HostSetup { obstacle, queues, addresses: Some(known), ..HostSetup::default() };
    spawn(config, systems, host).map(Some)
}

impl HostSetup {
    /// What was set, in words for the log.
    pub(crate) fn changes(&self) -> &[String] {
        &self.changes
    }

    /// What was asked for and could not be had.
    pub(crate) fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// TUN and TAP devices.
    fn set_up_devices(&mut self, config: &Config) -> Result<(), StartError> {
        for (d, dn) in config.devices.iter().zip(&config.user.data_networks) {
            let of = |error| StartError::Link { device: d.device.clone(), error };
            self.changes.extend(set_up(&d.device, dn).map_err(of)?);
        }
        for frames in config.devices.iter().filter_map(|d| d.frames.as_ref()) {
            let FramesDevice { device, bridge } = frames.clone();
            let of = |error| StartError::Frames { device, bridge, error };
            self.changes.extend(set_up_frames(frames, most_of(config)).map_err(of)?);
        }
        Ok(())
    }

    /// Forwarding and address translation, where asked for. What is refused becomes a notice.
    fn set_up(&mut self, config: &Config, mut sysctls: Sysctls) {
        if config.forwarding {
            let any = |f: fn(&whimbrel_user::DataNetwork) -> bool| config.user.data_networks.iter().any(f);
            match sysctls
                .forward(any(|d| d.all_ipv4_pools().count() > 0), any(|d| d.all_ipv6_pools().count() > 0))
            {
                Ok(done) => self.changes.extend(done),
                Err(e) => self.notices.push(Notice::Forwarding(e)),
            }
        }
        self.sysctls = Some(sysctls);
        let all = config.devices.iter().zip(&config.user.data_networks);
        let nat: Vec<_> = all.filter(|(d, _)| d.nat).map(|(d, dn)| (d.device.as_str(), dn)).collect();
        if !nat.is_empty() {
            match Nat::set_up(&nat) {
                Ok((table, done)) => {
                    (self.nat, self.nat_rules) = (Some(table), done.len());
                    self.changes.extend(done);
                }
                Err(e) => self.notices.push(Notice::Nat(e)),
            }
        }
        let rules = self.nat.as_ref().map(|_| self.nat_rules);
        match Upkeep::start(config, std::mem::take(&mut self.queues), rules) {
            Ok(upkeep) => self.upkeep = Some(upkeep),
            Err(e) => self.notices.push(Notice::Upkeep(e)),
        }
    }

    /// Problems on the host that exist now, and what was put back since the last call.
    pub(crate) fn report(&self) -> HostReport {
        self.upkeep.as_ref().map(Upkeep::report).unwrap_or_default()
    }
}

/// The largest MTU of the data networks.
fn most_of(config: &Config) -> u16 {
    config.user.data_networks.iter().map(|d| d.mtu).max().unwrap_or(1500)
}

/// Starts a thread for each pipeline, on its ports.
pub(crate) fn spawn<P: Ports>(config: Config, ports: Vec<P>, host: HostSetup) -> Result<Handle, StartError> {
    let fast = ports.first().and_then(Ports::fast_path);
    let pipelines = UpfU::shards(&config.user)?;
    pipelines[0].hold_errors((config.clock)() + config.restored_within);
    let room = packet_room(most_of(&config));
    let (shared, ends, reports) = ThreadsState::new(pipelines.len(), room).map_err(StartError::System)?;
    reports.sleep();
    shared.waits.store(config.keeps_state, Ordering::Release);
    let mut handle = Handle {
        shared: Arc::new(shared),
        steering: pipelines[0].steering(),
        reports,
        threads: Vec::new(),
        fast,
        watch: None,
        host,
    };
    let addresses = handle.host.addresses.take();
    for (n, ((mut upf, ports), ends)) in pipelines.into_iter().zip(ports).zip(ends).enumerate() {
        if config.keeps_state {
            upf.keep_counted(COUNTED_EVERY);
        }
        addresses.iter().for_each(|known| upf.set_host_addresses(Arc::new(known.clone())));
        let own = config.n3_addresses().collect();
        let held = config.held.as_ref().map(|file| StateFile::map_for_held_packets(file, &config.user));
        let held = held.transpose().map_err(StartError::System)?;
        let held = held.map(|file| (file, config.user.clone()));
        let (shared, clock) = (Arc::clone(&handle.shared), Arc::clone(&config.clock));
        let thread = std::thread::Builder::new()
            .name(if n == 0 { "upf-u".into() } else { format!("upf-u-{n}") })
            .spawn(move || thread::run((&shared, ends), (upf, held), ports, &clock, room, own))
            .map_err(StartError::System)?;
        handle.threads.push(thread);
    }
    if config.harvest != Harvest::Off {
        handle.set_harvest(config.harvest);
    }
    if let Some(known) = addresses {
        let shared = Arc::clone(&handle.shared);
        let send = move |host: Arc<HostAddresses>| {
            for thread in &shared.threads {
                // Full for a burst's time at most: a packet thread empties its queue before each burst.
                let mut request = ThreadRequest::HostAddresses(Arc::clone(&host));
                while let Err(full) = thread.requests.send(request)
                    && !shared.stop.load(Ordering::Acquire)
                {
                    std::thread::yield_now();
                    request = full;
                }
            }
        };
        handle.watch =
            Some(AddressWatch::start(known, !config.keeps_state, send).map_err(StartError::System)?);
    }
    Ok(handle)
}

impl Handle {
    /// Packet threads: as many as were asked for, or as AF_XDP has queues.
    pub fn threads(&self) -> u8 {
        self.threads.len() as u8
    }

    /// Lets packets come, where a state is kept: the changes that restore its sessions have been applied before. Until then they wait in the
    /// kernel's queues.
    pub fn begin(&self) {
        self.shared.waits.store(false, Ordering::SeqCst);
        self.wake();
        self.watch.iter().for_each(AddressWatch::begin);
    }

    /// The host takes packets for these addresses, which UEs do not reach. Only where packets come from a packet logger: its host's.
    pub fn set_host_addresses(&self, addresses: HostAddresses) {
        let host = Arc::new(addresses);
        for thread in &self.shared.threads {
            // Full for a burst's time at most: a packet thread empties its queue before each burst.
            while thread.requests.send(ThreadRequest::HostAddresses(Arc::clone(&host))).is_err()
                && self.is_running()
            {
                std::thread::yield_now();
            }
        }
    }

    /// From now on the packet threads show there that they live.
    pub fn show_beats(&self, beats: Beats) {
        beats.begin();
        // A second call has other memory, which nothing watches.
        let _ = self.shared.beats.set(beats);
        self.wake();
    }

    /// Sets the host up as it is asked to, behind [`UserPlane::stand_by`](crate::UserPlane::stand_by): the user plane before this one may have taken its
    /// settings back. Errors: as with [`UserPlane::start`](crate::UserPlane::start); packets pass all the same.
    pub fn set_up_host(&mut self, config: &Config) -> Result<(), StartError> {
        self.host.set_up_devices(config)?;
        self.host.set_up(config, Sysctls::new(config.journal.clone()));
        Ok(())
    }

    /// Hands a change to the packet thread that has the session, which applies it before its next burst; a fast path releases the session before this
    /// returns, so no packet is decided on by the old rules any more.
    pub fn apply(&self, change: UserPlaneChange) -> Result<(), QueueFull> {
        if let (Some(fast), UserPlaneChange::Put { session, .. } | UserPlaneChange::Remove { session, .. }) =
            (&self.fast, &change)
        {
            fast.recall(session.index);
        }
        let thread = &self.shared.threads[self.steering.of_change(&change)];
        thread.requests.send(ThreadRequest::Change(change)).map_err(|r| match r {
            ThreadRequest::Change(change) => QueueFull(change),
            ThreadRequest::SessionCounters(..)
            | ThreadRequest::PathUsed(..)
            | ThreadRequest::HostAddresses(..)
            | ThreadRequest::Harvest(..) => {
                unreachable!("what comes back is what was given")
            }
        })
    }

    /// Reports for UPF-C since the last call.
    pub fn take_reports(&self) -> Vec<UserPlaneReport> {
        self.reports.sleep();
        self.reports.take(REPORTS_MAX).collect()
    }

    /// Becomes readable when there are reports.
    pub fn reports(&self) -> BorrowedFd<'_> {
        self.reports.as_fd()
    }

    /// The pipeline's counters, at most some 20 ms old.
    pub fn counters(&self) -> Counters {
        self.published().fold(Counters::default(), |sum, counters| sum + &counters.0)
    }

    /// The sockets' and devices' counters, at most some 20 ms old.
    pub fn io_counters(&self) -> IoCounters {
        self.published().fold(IoCounters::default(), |sum, counters| sum + counters.1)
    }

    /// What background work was done, at most some 20 ms ago while packets flow; nothing where it is off.
    pub fn harvest_counters(&self) -> HarvestCounters {
        let mut sum = HarvestCounters::default();
        self.published().for_each(|counters| sum.add(&counters.2));
        sum
    }

    /// From now on background work may cost so much.
    pub fn set_harvest(&self, harvest: Harvest) {
        for thread in &self.shared.threads {
            // Full for a burst's time at most: a packet thread empties its queue before each burst.
            while thread.requests.send(ThreadRequest::Harvest(harvest)).is_err() && self.is_running() {
                std::thread::yield_now();
            }
        }
    }

    /// The last reported counters of each thread.
    fn published(&self) -> impl Iterator<Item = MutexGuard<'_, (Counters, IoCounters, HarvestCounters)>> {
        let all = self.shared.threads.iter();
        all.map(|t| t.counters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What one session sent and received; `None` if there is no such session, or the thread does not answer.
    pub fn session_counters(&self, id: SessionId) -> Option<SessionCounters> {
        let (answer, answered) = mpsc::sync_channel(1);
        let thread = &self.shared.threads[self.steering.of_session(id)];
        thread.requests.send(ThreadRequest::SessionCounters(id, answer)).ok()?;
        answered.recv_timeout(ANSWER_WITHIN).ok().flatten()
    }

    /// Starts or ends copying the datagrams that N3 receives and sends.
    pub fn tap(&self, on: bool) {
        self.shared.tap.set(on);
        self.wake(); // a fast path is to let its packets come up, or not to
    }

    /// Copies since the last call.
    pub fn take_tapped(&self) -> Vec<TappedDatagram> {
        self.shared.tap.take()
    }

    /// Becomes readable when there are copies.
    pub fn tapped(&self) -> BorrowedFd<'_> {
        self.shared.tap.as_fd()
    }

    /// Datagrams that were not copied because too many copies waited.
    pub fn tapped_lost(&self) -> u64 {
        self.shared.tap.lost()
    }

    fn wake(&self) {
        self.shared.threads.iter().for_each(|t| t.requests.wake());
    }

    /// Whether the packet threads run. They end only when stopped, or by a defect of this program.
    pub fn is_running(&self) -> bool {
        !self.threads.is_empty() && self.threads.iter().all(|t| !t.is_finished())
    }

    /// What was set on the host, in words for the log. All of it is taken back when the handle is dropped.
    pub fn host_changes(&self) -> &[String] {
        &self.host.changes
    }

    /// What was asked for and could not be had.
    pub fn notices(&self) -> &[Notice] {
        &self.host.notices
    }

    /// Problems on the host that exist now, and what was put back since the last call.
    pub fn host_report(&self) -> HostReport {
        self.host.report()
    }

    /// How N3's packets come by AF_XDP; `None`: they come by UDP sockets.
    pub fn rings(&self) -> Option<&Rings> {
        self.host.rings.as_ref()
    }

    /// Why N3's packets do not come by AF_XDP, where it was tried.
    pub fn obstacle(&self) -> Option<&Obstacle> {
        self.host.obstacle.as_ref()
    }

    /// Stops the packet threads and takes back what was set on the host; waits until it is done.
    ///
    /// Errors: `Other` if a thread ended by a panic.
    pub fn stop(mut self) -> io::Result<()> {
        self.join()
    }

    fn join(&mut self) -> io::Result<()> {
        self.shared.stop.store(true, Ordering::Release);
        self.watch = None;
        // Its duplicates would keep the devices.
        (self.host.upkeep, self.host.queues) = (None, Vec::new());
        self.wake();
        let ends = self.threads.drain(..).map(JoinHandle::join);
        match ends.filter(Result::is_err).count() {
            0 => Ok(()),
            _ => Err(io::Error::other("a packet thread panicked")),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The devices go with the thread; then `host` drops: address translation, then settings.
        self.join().ok();
    }
}

//! The UPF of the city's eastern half: a process of its own, and the way to it, which takes a hop's time.

use std::collections::VecDeque;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::playground::GATEWAY;
use crate::programs::Program;

/// Its address on N3, N4 and N9.
const UPF: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);
/// Where the SMF reaches it if the way takes time.
const WAY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 7);
/// The addresses of its UEs.
const POOL: &str = "10.46.0.0/16";
const PFCP: u16 = 8805;
const PFCP_OCTETS_MAX: usize = 65_536;
/// The longest wait for a datagram.
const LOOK: Duration = Duration::from_millis(20);

pub(super) struct East {
    process: Child,
    folder: PathBuf,
    way: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl East {
    /// Errors: one sentence.
    pub(super) fn start(hop_delay: Duration) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("whimbrel-east-{}", std::process::id()));
        let cannot = |e: std::io::Error| format!("the second UPF cannot be started: {e}");
        fs::create_dir_all(&folder).map_err(cannot)?;
        let configuration = folder.join("upf.yaml");
        let text = format!(
            "n3: {{ address: {UPF} }}\n\
             n4: {{ listen: \"{UPF}:{PFCP}\" }}\n\
             n6:\n  device: east\n  nat: false\n  forwarding: false\n  allow: [\"permit in 17 from any to {GATEWAY} 53,5001\"]\n\
             data_networks: [{{ dnn: internet, ipv4_pool: {POOL}, ipv6_pool: none }}]\n\
             api: {{ address: \"127.0.0.1:8071\" }}\n\
             store: {{ path: {}/east.db }}\n",
            folder.display()
        );
        fs::write(&configuration, text).map_err(cannot)?;
        let log = fs::File::create(folder.join("upf.log")).map_err(cannot)?;
        let mut command = Program::Core.command()?;
        command.args(["upf", "--strict", "--config"]).arg(&configuration);
        let process =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().map_err(cannot)?;
        let way = (!hop_delay.is_zero()).then(|| way(hop_delay)).transpose()?;
        Ok(Self { process, folder, way })
    }

    /// Its item in the core's list of UPFs.
    pub(super) fn configuration(&self, tac: u32, predicts: bool) -> String {
        let at = if self.way.is_some() { WAY } else { UPF };
        format!("{{ name: east, address: \"{at}:{PFCP}\", tacs: [{tac}], predicts: {predicts} }}")
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("upf.log")).unwrap_or_default()
    }
}

impl Drop for East {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some((stop, thread)) = self.way.take() {
            stop.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Passes PFCP datagrams between the SMF and the UPF, each after the delay.
fn way(delay: Duration) -> Result<(Arc<AtomicBool>, JoinHandle<()>), String> {
    let at = SocketAddr::new(IpAddr::V4(WAY), PFCP);
    let failed = |e: std::io::Error| format!("the way to the second UPF cannot be made: {e}");
    let socket = UdpSocket::bind(at).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || pass(&socket, delay, &stopped));
    Ok((stop, thread))
}

fn pass(socket: &UdpSocket, delay: Duration, stop: &AtomicBool) {
    let upf = SocketAddr::new(IpAddr::V4(UPF), PFCP);
    let mut smf = None;
    let mut on_the_way: VecDeque<(Instant, SocketAddr, Vec<u8>)> = VecDeque::new();
    let mut octets = vec![0; PFCP_OCTETS_MAX];
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        while on_the_way.front().is_some_and(|(at, ..)| *at <= now)
            && let Some((_, to, datagram)) = on_the_way.pop_front()
        {
            let _lost = socket.send_to(&datagram, to);
        }
        let wait = on_the_way.front().map_or(LOOK, |(at, ..)| at.saturating_duration_since(now).min(LOOK));
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
        while let Ok((n, from)) = socket.recv_from(&mut octets) {
            let to = match from.ip() == upf.ip() {
                true => smf,
                false => {
                    smf = Some(from);
                    Some(upf)
                }
            };
            let arrives = Instant::now() + delay;
            on_the_way.extend(to.map(|to| (arrives, to, octets[..n].to_vec())));
        }
    }
}

//! A network function as a process of its own: this program, started again with its part.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::event::{PollFd, PollFlags, poll};
use whimbrel_control::Prf;
use whimbrel_control::udm::{Directory, NfType};
use whimbrel_link::{LinkId, Links};
use whimbrel_node::clock;
use whimbrel_node::core::subscription;
use whimbrel_node::network_function::{NetworkFunctionProcess, producer};
use whimbrel_node::observation::{Console, ConsoleCommand};
use whimbrel_node::sbi::NetworkFunctions;
use whimbrel_resilience::link::{ToCpf, ToCta};
use whimbrel_resilience::{CpfOutbox, Cta, ReplicatedCpf};
use whimbrel_security::HomeNetworkKeys;
use whimbrel_shm::{Area, Made, Pool};
use whimbrel_sim::{SimSubscribers, default_config, upf_config};

use super::super::fabric::pin;
use super::EPOCH;
use super::ends::{Came, End, settings};
use super::functions;
use super::upf::UpfNode;

/// Which function a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    /// A CPF, over a link.
    Cpf,
    /// A UPF, over a link.
    Upf,
    /// A UPF, over UDP.
    UpfOverUdp,
    /// A UDM, over a link.
    Udm,
    /// A PCF, over a link.
    Pcf,
    /// A CHF, over a link.
    Chf,
    /// UDM, PCF and CHF, offered over HTTP/2.
    Http,
}

/// What the experiment starts a function with.
#[derive(Args, Clone)]
pub(crate) struct FunctionOptions {
    #[arg(long, value_enum)]
    part: Part,
    /// The processor that it runs on.
    #[arg(long)]
    processor: usize,
    /// Microseconds for which it looks for the next message before it sleeps.
    #[arg(long)]
    spin_us: u64,
    /// The folder of the store.
    #[arg(long)]
    folder: PathBuf,
    /// Its area of the pool.
    #[arg(long, default_value_t = 0)]
    area: usize,
    /// The descriptors of the pool's areas, of each its memory and its bell, which it inherits.
    #[arg(long, value_delimiter = ',')]
    pool: Vec<RawFd>,
}

/// A function that was started. It ends with this value.
pub(super) struct Started {
    child: Child,
    /// Where it is reached.
    pub(super) at: SocketAddr,
}

impl Drop for Started {
    fn drop(&mut self) {
        // One that has ended already is no error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a function on a processor, with an area of a pool if there is one.
pub(super) fn start(
    part: Part,
    processor: usize,
    spin: Duration,
    pool: Option<(&Made, usize)>,
    folder: &Path,
) -> io::Result<Started> {
    let part = part.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["l25gc", "function", "--part", &part, "--processor", &processor.to_string()]);
    command.args(["--spin-us", &spin.as_micros().to_string()]);
    command.arg("--folder").arg(folder);
    // Duplicates without CLOEXEC, which are closed here as soon as the process has started.
    let mut inherited = Vec::new();
    if let Some((made, area)) = pool {
        for descriptor in made.areas.iter().flat_map(|area| [&area.memory, &area.bell]) {
            inherited.push(rustix::io::dup(descriptor)?);
        }
        let numbers: Vec<String> = inherited.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
        command.args(["--area", &area.to_string(), "--pool", &numbers.join(",")]);
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    drop(inherited);
    let mut started = Started { child, at: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)) };
    let mut line = String::new();
    let stdout = started.child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    BufReader::new(stdout).read_line(&mut line)?;
    started.at = line.trim().parse().map_err(io::Error::other)?;
    Ok(started)
}

/// The process, until the one that started it closes the link.
pub(crate) fn run(options: &FunctionOptions) -> io::Result<()> {
    pin(options.processor);
    if options.part == Part::UpfOverUdp {
        return upf_over_udp();
    }
    if options.part == Part::Http {
        return offer(&options.folder);
    }
    let mut settings = settings();
    settings.listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let mut links = Links::open(settings).map_err(io::Error::other)?;
    if let Some(pool) = inherited(options)? {
        links.share(pool)?;
    }
    let at = links.local_addr().ok_or(io::ErrorKind::AddrNotAvailable)?;
    if let Some(nf) = kind(options.part) {
        return answer(nf, links, at, &options.folder);
    }
    say(at)?;
    let end = End::new(links, Duration::from_micros(options.spin_us));
    match options.part {
        Part::Cpf => cpf(end),
        _ => upf(end),
    }
}

fn kind(part: Part) -> Option<NfType> {
    match part {
        Part::Udm => Some(NfType::Udm),
        Part::Pcf => Some(NfType::Pcf),
        Part::Chf => Some(NfType::Chf),
        Part::Cpf | Part::Upf | Part::UpfOverUdp | Part::Http => None,
    }
}

/// A network function as the program runs it.
fn answer(nf: NfType, links: Links, at: SocketAddr, folder: &Path) -> io::Result<()> {
    let wake = functions::wake()?;
    let config = functions::read_config(folder, "")?;
    let producer = producer(&config, nf, wake.clone()).map_err(io::Error::other)?;
    say(at)?;
    // Until the one that started it ends it.
    NetworkFunctionProcess::over(nf, None, producer, links, wake).run(&AtomicBool::new(false));
    Ok(())
}

/// A core that offers its UDM, PCF and CHF, as the program does.
fn offer(folder: &Path) -> io::Result<()> {
    let at = functions::free_address()?;
    let config =
        functions::read_config(folder, &format!("address: \"{at}\", chf: embedded, offer: [udm, pcf, chf]"))?;
    let console = Console::new(clock::now())?;
    let _offered =
        NetworkFunctions::start(&config, console.clone(), subscription).map_err(io::Error::other)?;
    let control = Arc::new(default_config());
    let directory = Directory::new(control.amf.plmn, HomeNetworkKeys::new());
    let entropy = (Prf::new(&[7; 16]), 0);
    let mut cta = Cta::new(control, directory, SimSubscribers::default(), entropy, (), EPOCH);
    say(at)?;
    loop {
        let mut wake = [PollFd::from_borrowed_fd(console.commands.wake_fd(), PollFlags::IN)];
        // An interrupted wait is a short one.
        let _ = poll(&mut wake, None);
        let _ = rustix::io::read(console.commands.wake_fd(), &mut [0; 8]);
        while let Some(command) = console.commands.take() {
            if let ConsoleCommand::GenerateAuthData(identity, resynchronisation, reply) = command {
                // The request may have ended meanwhile.
                let _ = reply.send(cta.generate_auth_data(clock::now(), identity, resynchronisation));
            }
        }
    }
}

fn say(at: SocketAddr) -> io::Result<()> {
    let mut stdout = io::stdout();
    writeln!(stdout, "{at}")?;
    stdout.flush()
}

/// The pool whose descriptors were inherited.
fn inherited(options: &FunctionOptions) -> io::Result<Option<Pool>> {
    let take = |number: &RawFd| {
        // SAFETY: the process that started this one opened the descriptor for it, and nothing else here knows the number.
        unsafe { OwnedFd::from_raw_fd(*number) }
    };
    let mut descriptors = options.pool.iter().map(take);
    let mut areas = Vec::new();
    while let (Some(memory), Some(bell)) = (descriptors.next(), descriptors.next()) {
        areas.push(Area { memory, bell });
    }
    if areas.is_empty() {
        return Ok(None);
    }
    Made { areas }.open(options.area).map(Some).map_err(io::Error::other)
}

/// Takes frames and sends what comes of each, as the loop of a CPF's process does.
fn serve(mut end: End, mut each: impl FnMut(&mut Links, LinkId, &[u8]) -> io::Result<()>) -> io::Result<()> {
    loop {
        let came = end.receive(&mut each)?;
        end.links.flush();
        match came {
            Came::Ended => return Ok(()),
            Came::Something => end.busy(),
            Came::Nothing => end.wait(None),
        }
    }
}

fn cpf(end: End) -> io::Result<()> {
    let mut member = ReplicatedCpf::new(Arc::new(default_config()));
    let (mut out, mut frame) = (CpfOutbox::default(), Vec::new());
    serve(end, |links, link, octets| {
        let ToCpf::Command(command) = ToCpf::read(octets).map_err(io::Error::other)? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        member.handle(command, &mut out);
        for report in out.up.drain(..) {
            frame.clear();
            ToCta::Report(report).write(&mut frame);
            links.send(link, &frame);
        }
        Ok(())
    })
}

fn upf(end: End) -> io::Result<()> {
    let mut upf = UpfNode::new(upf_config(7))?;
    serve(end, |links, link, octets| {
        upf.handle(octets, |answer| links.send(link, answer));
        Ok(())
    })
}

fn upf_over_udp() -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    say(socket.local_addr()?)?;
    let mut upf = UpfNode::new(upf_config(7))?;
    let mut octets = [0; 65_536];
    loop {
        let (length, from) = socket.recv_from(&mut octets)?;
        let mut failed = None;
        upf.handle(&octets[..length], |answer| failed = socket.send_to(answer, from).err().or(failed.take()));
        if let Some(e) = failed {
            return Err(e);
        }
    }
}

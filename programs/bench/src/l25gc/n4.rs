//! N4 between an SMF and a UPF on one host: a session's establishment, the update of its FAR, and the report of a downlink packet (figure 7), as PFCP
//! over UDP and as PFCP through shared memory. UPF-C is the program's; each exchange begins and ends with a message as a value.

use std::hint::black_box;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use whimbrel_control::smf::{Downlink, Marks, Tunnel, modification};
use whimbrel_ids::{Instant, Seid, Teid};
use whimbrel_link::Spin;
use whimbrel_pfcp::ie::{Cause, PdrId};
use whimbrel_pfcp::msg::SessionReportResponse;
use whimbrel_pfcp::{Frame, Message, SEQUENCE_MAX};
use whimbrel_user::{Input, Ipv4Net, Outbox, SessionId, UpfC, UserPlaneReport};

use super::fabric::{Ends, SPIN, pin, processors};
use super::{finish, round};
use crate::measure::median;
use crate::plot::{Axis, Plot, Series};
use crate::upf::smf;

/// What the paper's exchanges take less through shared memory, percent: from and to.
const PAPER: [f64; 2] = [21.0, 39.0];
/// What is exchanged.
const OPERATIONS: [&str; 3] = ["establishment", "update FAR", "report"];
/// What is compared.
const CHANNELS: [&str; 4] = ["UDP, each sleeps", "UDP, as the program", "shared memory", "function call"];
/// Exchanges of one channel before the next one's turn: what disturbs the machine disturbs all alike.
const TURN: usize = 50;
/// How often each message is read and written alone.
const SERIALIZED: usize = 200;
/// The longest PFCP message that is exchanged here.
const OCTETS_MAX: usize = 2048;
/// How long an end that sleeps may miss that it is to stop.
const STOPPED_WITHIN: Duration = Duration::from_millis(20);
/// How long an answer may take on a machine that has other work.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// The gNB's end of a downlink tunnel.
const GNB: Tunnel = Tunnel { teid: Teid(7), address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9)) };

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Exchanges by each channel, of each kind.
    #[arg(long, default_value_t = 5_000)]
    exchanges: usize,
}

impl Options {
    pub(super) fn quick(&mut self) {
        self.exchanges = 20;
    }
}

/// An exchange of octets: a request goes, its answer comes.
type Exchange<'a> = Box<dyn FnMut(&[u8], &mut Vec<u8>) -> io::Result<()> + 'a>;

fn invalid<E>(_: E) -> io::Error {
    io::ErrorKind::InvalidData.into()
}

fn read(octets: &[u8]) -> io::Result<Message> {
    Message::parse(&Frame::parse(octets).map_err(invalid)?).map_err(invalid)
}

/// A UPF-C with the association of the SMF.
struct Upf {
    upf: UpfC,
    out: Outbox,
}

impl Upf {
    fn new(options: &Options) -> io::Result<Self> {
        let mut config = smf::config();
        config.sessions_max = options.exchanges as u32 + 16;
        config.data_networks.truncate(1);
        config.data_networks[0].ipv4_pools = vec![Ipv4Net { address: Ipv4Addr::new(10, 0, 0, 0), prefix: 8 }];
        let upf = UpfC::new(config, smf::START).map_err(|e| io::Error::other(e.to_string()))?;
        let mut upf = Self { upf, out: Outbox::default() };
        upf.answer(&Message::from(smf::association(1)).to_octets(None, 1), &mut Vec::new());
        Ok(upf)
    }

    /// Handles a request of the SMF.
    fn answer(&mut self, request: &[u8], answer: &mut Vec<u8>) {
        self.upf.handle(smf::START, Input::Pfcp { peer: smf::SMF, octets: request }, &mut self.out);
        self.leave(answer);
    }

    fn leave(&mut self, octets: &mut Vec<u8>) {
        if let Some((_, sent)) = self.out.datagrams.pop() {
            octets.extend_from_slice(&sent);
        }
        // What UPF-U would be given, and the log.
        self.out.changes.clear();
        self.out.events.clear();
    }
}

/// What the other function answers: the UPF a request on a session, the SMF a report.
fn answer(upf: &mut Upf, request: &[u8], out: &mut Vec<u8>) {
    let Ok(frame) = Frame::parse(request) else { return };
    match Message::parse(&frame) {
        Ok(Message::SessionReportRequest(report)) => {
            black_box(&report);
            let response = SessionReportResponse::new(Cause::RequestAccepted);
            out.extend(Message::from(response).to_octets(Some(Seid(1)), frame.header.sequence));
        }
        _ => upf.answer(request, out),
    }
}

/// How an end of UDP waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// In the kernel, for each message.
    Asleep,
    /// As the program's loops do: it looks for a while first.
    Soon,
}

/// An end of UDP.
struct Udp {
    socket: UdpSocket,
    waits: Waits,
    spin: Spin,
    begun: Clock,
}

impl Udp {
    fn pair(waits: Waits) -> io::Result<[Self; 2]> {
        let sockets = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
        let [near, far] = [sockets[0].local_addr()?, sockets[1].local_addr()?];
        let [a, b] = sockets;
        a.connect(far)?;
        b.connect(near)?;
        let begun = Clock::now();
        let end = |socket: UdpSocket| -> io::Result<Self> {
            socket.set_nonblocking(true)?;
            Ok(Self { socket, waits, spin: Spin::new(SPIN), begun })
        };
        Ok([end(a)?, end(b)?])
    }

    /// Receives; nothing, after a while without a message.
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.socket.recv(into) {
                Ok(octets) => {
                    self.spin.came(self.now());
                    return Ok(octets);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            let now = self.now();
            if self.waits == Waits::Soon && self.spin.looks_again(now) {
                std::hint::spin_loop();
                continue;
            }
            let timeout = Timespec { tv_sec: 0, tv_nsec: STOPPED_WITHIN.subsec_nanos().into() };
            if poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout))? == 0 {
                return Ok(0);
            }
        }
    }

    fn now(&self) -> Instant {
        Instant(1) + self.begun.elapsed()
    }

    fn exchange(&mut self, request: &[u8], answer: &mut Vec<u8>) -> io::Result<()> {
        self.socket.send(request)?;
        self.spin.came(self.now());
        let (mut octets, begun) = ([0; OCTETS_MAX], Clock::now());
        loop {
            match self.receive(&mut octets)? {
                0 if begun.elapsed() > ANSWERED_WITHIN => return Err(io::ErrorKind::TimedOut.into()),
                0 => {} // the other end has no processor
                came => {
                    answer.extend_from_slice(octets.get(..came).unwrap_or_default());
                    return Ok(());
                }
            }
        }
    }

    fn serve(mut self, mut upf: Upf, stop: &AtomicBool) -> io::Result<()> {
        pin(processors()[1]);
        let (mut octets, mut out) = ([0; OCTETS_MAX], Vec::new());
        while !stop.load(Ordering::Acquire) {
            let came = self.receive(&mut octets)?;
            out.clear();
            answer(&mut upf, octets.get(..came).unwrap_or_default(), &mut out);
            if !out.is_empty() {
                self.socket.send(&out)?;
            }
        }
        Ok(())
    }
}

/// One way between SMF and UPF, with the session that is changed and reported.
struct Channel<'a> {
    exchange: Exchange<'a>,
    sequence: u32,
    sessions: u64,
    session: Seid,
    /// The UPF of which a report comes.
    reporting: Upf,
    reported: SessionId,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl<'a> Channel<'a> {
    fn new(options: &Options, exchange: Exchange<'a>) -> io::Result<Self> {
        let mut reporting = Upf::new(options)?;
        let mut octets = Vec::new();
        let request = Message::from(smf::smf_establishment(1, true, false)).to_octets(Some(Seid(0)), 2);
        reporting.answer(&request, &mut octets);
        let reported = established(&octets)?;
        let reported = SessionId::from_seid(reported).ok_or(io::ErrorKind::InvalidData)?;
        let (sequence, sessions, session) = (1, 0, Seid(0));
        let (request, answer) = (Vec::new(), Vec::new());
        let mut channel =
            Self { exchange, sequence, sessions, session, reporting, reported, request, answer };
        channel.session = channel.establish()?;
        Ok(channel)
    }

    /// Sends a request and reads its answer.
    fn ask(&mut self, seid: Seid, request: Message) -> io::Result<Message> {
        self.sequence = if self.sequence == SEQUENCE_MAX { 1 } else { self.sequence + 1 };
        self.answer.clear();
        self.request = request.to_octets(Some(seid), self.sequence);
        (self.exchange)(&self.request, &mut self.answer)?;
        read(&self.answer)
    }

    fn establish(&mut self) -> io::Result<Seid> {
        self.sessions += 1;
        let request = smf::smf_establishment(self.sessions, true, false);
        match self.ask(Seid(0), request.into())? {
            Message::SessionEstablishmentResponse(m) if m.cause == Cause::RequestAccepted => {
                m.up_f_seid.map(|f| f.seid).ok_or(io::ErrorKind::InvalidData.into())
            }
            other => Err(io::Error::other(format!("the session is not established: {other:?}"))),
        }
    }

    fn update(&mut self) -> io::Result<()> {
        let request = modification(Downlink::To(GNB), &Marks::default());
        match self.ask(self.session, request.into())? {
            Message::SessionModificationResponse(m) if m.cause == Cause::RequestAccepted => Ok(()),
            other => Err(io::Error::other(format!("the FAR is not updated: {other:?}"))),
        }
    }

    fn report(&mut self) -> io::Result<()> {
        let data = UserPlaneReport::DownlinkData {
            session: self.reported,
            pdr_id: PdrId(2),
            qfi: None,
            dscp: 0,
            octets: 100,
        };
        let upf = &mut self.reporting;
        upf.upf.handle(smf::START, Input::Report(data), &mut upf.out);
        self.request.clear();
        upf.leave(&mut self.request);
        self.answer.clear();
        (self.exchange)(&self.request, &mut self.answer)?;
        upf.answer(&self.answer, &mut Vec::new());
        Ok(())
    }

    fn run(&mut self, operation: usize) -> io::Result<()> {
        match operation {
            0 => self.establish().map(drop),
            1 => self.update(),
            _ => self.report(),
        }
    }
}

/// Median microseconds of reading and writing a message: what a form without serialization could save at most.
fn serialization(octets: &[u8]) -> io::Result<f64> {
    let mut samples = Vec::with_capacity(SERIALIZED);
    for _ in 0..SERIALIZED {
        let begun = Clock::now();
        let message = read(black_box(octets))?;
        black_box(message.to_octets(Some(Seid(1)), 1));
        samples.push(begun.elapsed().as_nanos() as f64 / 1000.0);
    }
    Ok(median(samples))
}

fn established(answer: &[u8]) -> io::Result<Seid> {
    match read(answer)? {
        Message::SessionEstablishmentResponse(m) => {
            m.up_f_seid.map(|f| f.seid).ok_or(io::ErrorKind::InvalidData.into())
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Microseconds of each operation by each channel, and of reading and writing its two messages.
type Measured = ([[f64; CHANNELS.len()]; OPERATIONS.len()], [f64; OPERATIONS.len()]);

/// Measures the medians of the ways.
fn measure(options: &Options) -> io::Result<Measured> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let outcome = (|| {
            let stop = &stop;
            let udp = |waits| -> io::Result<Udp> {
                let [near, far] = Udp::pair(waits)?;
                let upf = Upf::new(options)?;
                threads.spawn(move || far.serve(upf, stop));
                Ok(near)
            };
            let (mut asleep, mut soon) = (udp(Waits::Asleep)?, udp(Waits::Soon)?);
            let mut shared = Ends::shared()?;
            let mut far = Upf::new(options)?;
            shared.serve(threads, stop, move |request, out| answer(&mut far, request, out));
            let near = &mut shared.near;
            let mut called = Upf::new(options)?;
            let exchanges: [Exchange<'_>; CHANNELS.len()] = [
                Box::new(move |request, out| asleep.exchange(request, out)),
                Box::new(move |request, out| soon.exchange(request, out)),
                Box::new(|request, out| near.exchange(request, |came| out.extend_from_slice(came))),
                Box::new(move |request, out| {
                    answer(&mut called, request, out);
                    Ok(())
                }),
            ];
            let channels = exchanges.into_iter().map(|e| Channel::new(options, e));
            let mut channels = channels.collect::<io::Result<Vec<_>>>()?;
            let mut samples = [const { [const { Vec::new() }; CHANNELS.len()] }; OPERATIONS.len()];
            for _ in 0..options.exchanges.div_ceil(TURN) {
                for (operation, samples) in samples.iter_mut().enumerate() {
                    for (channel, samples) in channels.iter_mut().zip(samples) {
                        for _ in 0..TURN.min(options.exchanges) {
                            let begun = Clock::now();
                            channel.run(operation)?;
                            samples.push(begun.elapsed().as_nanos() as f64 / 1000.0);
                        }
                    }
                }
            }
            let mut alone = [0.0; OPERATIONS.len()];
            for (operation, us) in alone.iter_mut().enumerate() {
                let called = &mut channels[CHANNELS.len() - 1];
                called.run(operation)?;
                *us = serialization(&called.request)? + serialization(&called.answer)?;
            }
            drop(channels);
            Ok((samples.map(|of| of.map(median)), alone))
        })();
        stop.store(true, Ordering::Release);
        outcome
    })
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    println!(
        "paper: N4 through shared memory takes {} to {} % less than PFCP over UDP (figure 7), between processes of which each sleeps until a message comes",
        PAPER[0], PAPER[1]
    );
    println!(
        "here:  microseconds of a request with its answer, from message to message at both ends, UPF-C's work included, median of {}; SMF and UPF have a\n       processor each where there are two",
        options.exchanges
    );
    pin(processors()[0]);
    let (rows, alone) = measure(options)?;
    println!("\n{:16}{}{:>22}", "", CHANNELS.map(|c| format!("{c:>22}")).concat(), "less than each UDP");
    let less = rows.map(|[asleep, soon, shared, _]| [asleep, soon].map(|udp| 100.0 * (1.0 - shared / udp)));
    for ((name, us), [asleep, soon]) in OPERATIONS.iter().zip(&rows).zip(less) {
        let cells = us.map(|us| format!("{us:>22.2}")).concat();
        println!("{name:16}{cells}{:>22}", format!("{asleep:.0} %, {soon:.0} %"));
    }
    println!(
        "reading and writing PFCP is {} of them: a form without serialization could save no more",
        alone.map(|us| format!("{us:.2}")).join(", ")
    );
    let names = OPERATIONS.map(String::from).to_vec();
    let series = CHANNELS.iter().enumerate().map(|(n, channel)| Series {
        name: (*channel).into(),
        points: rows.iter().enumerate().map(|(x, us)| (x as f64, us[n])).collect(),
    });
    Plot {
        title: "N4 between SMF and UPF on one host",
        x: "",
        y: "microseconds",
        log_y: true,
        axis: Axis::Names(names),
        series: series.collect(),
    }
    .write(plots, "l25gc-n4")?;
    let of = |us: &[f64; CHANNELS.len()], less: [f64; 2]| {
        json!({
            "udp_asleep_us": round(us[0]), "udp_us": round(us[1]), "shared_us": round(us[2]), "call_us": round(us[3]),
            "less_percent": less.map(round),
        })
    };
    let figures =
        OPERATIONS.iter().zip(&rows).zip(less).map(|((name, us), less)| ((*name).into(), of(us, less)));
    let operations: serde_json::Map<String, serde_json::Value> = figures.collect();
    finish(
        "n4",
        &json!({ "operations": operations, "serialization_us": alone.map(round), "paper_less_percent": PAPER }),
    );
    Ok(())
}

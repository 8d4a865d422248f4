//! What a message between two network functions takes: a request with its answer, written, carried, and read at both ends. The paper exchanges
//! `PostSmContextsRequest` between two functions of one node in several forms (figure 6), and compares selected messages with HTTP (figure 9).
//!
//! Both ends wait alike, and each channel is measured in each way to wait: looking for the next message without ever sleeping, and sleeping until
//! woken, on two processors and on one.

use std::cell::RefCell;
use std::future::Future;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant as Clock};

use clap::Args;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use whimbrel_sbi_types::{from_slice, to_vec};

use super::fabric::{End, Ends, Waits, pin as pin_to, processors};
use super::forms::{
    AmfRegistration, Body, Builder, Form, GenerateAuthData, N1N2MessageTransfer, PostSmContexts, SmPolicies,
    UeAuthentications, UpdateSmContexts, of_flat, of_flatbuffer, of_protobuf, to_flat, to_flatbuffer,
    to_protobuf,
};
use super::{finish, round};
use crate::measure::{median, nanoseconds};
use crate::plot::{Axis, Plot, Series};

/// The mean of figure 9, times as fast as HTTP.
const PAPER: f64 = 13.0;
/// What is compared, the paper's baseline first.
const CHANNELS: [&str; 6] = [
    "HTTP/2, JSON",
    "HTTP/2, protobuf",
    "TCP, FlatBuffers",
    "shared memory",
    "shared mem., copied",
    "function call",
];
/// Read in place.
const IN_PLACE: usize = 3;
/// Read into the bodies that JSON gives, with its checks.
const COPIED: usize = 4;
/// Exchanges of one channel before the next one's turn: what disturbs the machine disturbs all alike.
const TURN: usize = 50;
/// The first exchanges of a turn are not measured: the other end may just have been woken for it.
const FIRST: usize = 5;

/// How both ends of a channel wait for a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// They look for it again and again: sockets and epoll are asked with a timeout of zero, rings are read.
    Spinning,
    /// They sleep in a system call until they are woken.
    Sleeping,
    /// The same, and both share a processor, which is not idle then when one wakes the other.
    Sharing,
}

impl Mode {
    const ALL: [Self; 3] = [Self::Spinning, Self::Sleeping, Self::Sharing];

    const fn name(self) -> &'static str {
        match self {
            Self::Spinning => "spinning",
            Self::Sleeping => "sleeping",
            Self::Sharing => "sleeping on one processor",
        }
    }

    /// The aim: times as fast as HTTP/2 with JSON in the mean.
    const fn goal(self) -> f64 {
        match self {
            Self::Spinning => 13.0,
            Self::Sleeping | Self::Sharing => 7.0,
        }
    }

    const fn waits(self) -> Waits {
        match self {
            Self::Spinning => Waits::Never,
            Self::Sleeping | Self::Sharing => Waits::AtOnce,
        }
    }

    /// The processor of the far end; the near end has the first.
    fn processor(self) -> usize {
        let [first, second] = processors();
        if self == Self::Sharing { first } else { second }
    }
}

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Exchanges by each channel, of each message and in each way to wait.
    #[arg(long, default_value_t = 5_000)]
    exchanges: usize,
}

impl Options {
    pub(super) fn quick(&mut self) {
        self.exchanges = 20;
    }
}

/// A request with its answer.
type Exchange<'a> = Box<dyn FnMut() -> io::Result<()> + 'a>;
/// Median microseconds and p95 of an exchange by each channel.
type Row = [[f64; 2]; CHANNELS.len()];

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    println!(
        "paper: shared memory is 13 times as fast as HTTP in the mean of selected messages (figure 9); all of figure 6's forms but shared memory\n       take serialization, copies, and the kernel's sockets"
    );
    println!(
        "here:  bodies of Release 17; microseconds of a request with its answer, from a value to a value at both ends, median and p95 of {};\n       both ends of a channel wait alike, each function with a processor of its own where there are two, and sleeping also on one",
        options.exchanges
    );
    pin_to(processors()[0]);
    let (mut us, mut times_as_fast) = (serde_json::Map::new(), serde_json::Map::new());
    let mut forms = Value::Null;
    for mode in Mode::ALL {
        let (operations, rows): (Vec<_>, Vec<_>) = [
            measure::<PostSmContexts>(mode, options)?,
            measure::<UpdateSmContexts>(mode, options)?,
            measure::<N1N2MessageTransfer>(mode, options)?,
            measure::<UeAuthentications>(mode, options)?,
            measure::<GenerateAuthData>(mode, options)?,
            measure::<AmfRegistration>(mode, options)?,
            measure::<SmPolicies>(mode, options)?,
        ]
        .into_iter()
        .unzip();
        let mean = print(mode, &operations, &rows);
        if mode == Mode::Spinning {
            forms = forms_of_figure_6(&rows[0]);
        }
        let series = CHANNELS.iter().enumerate().map(|(n, channel)| Series {
            name: (*channel).into(),
            points: rows.iter().enumerate().map(|(x, row)| (x as f64, row[n][0])).collect(),
        });
        Plot {
            title: &format!("A request with its answer between two network functions, both {}", mode.name()),
            x: "",
            y: "microseconds",
            log_y: true,
            axis: Axis::Names(operations.iter().copied().map(String::from).collect()),
            series: series.collect(),
        }
        .write(plots, &format!("l25gc-messages-{}", mode.name().replace(' ', "-")))?;
        let figures = operations.iter().zip(&rows).map(|(name, row)| {
            let row =
                CHANNELS.iter().zip(row).map(|(channel, us)| ((*channel).to_owned(), json!(us.map(round))));
            ((*name).to_owned(), row.collect::<serde_json::Map<_, _>>().into())
        });
        us.insert(mode.name().into(), figures.collect::<serde_json::Map<_, _>>().into());
        times_as_fast.insert(
            mode.name().into(),
            json!({ "mean": round(mean[0]), "copied": round(mean[1]), "aim": mode.goal() }),
        );
    }
    finish(
        "messages",
        &json!({
            "p50_p95_us": us, "figure_6_us": forms, "times_as_fast_as_http_json": times_as_fast, "paper": PAPER,
        }),
    );
    Ok(())
}

/// The table of a way to wait. Returns how many times as fast as HTTP/2 with JSON shared memory is in the mean: read in place, and copied.
fn print(mode: Mode, names: &[&str], rows: &[Row]) -> [f64; 2] {
    println!("\nours, both ends {}:", mode.name());
    println!("{:20}{}{:>20}", "", CHANNELS.map(|c| format!("{c:>21}")).concat(), "HTTP/2 JSON /");
    let units = CHANNELS.map(|_| format!("{:>12}{:>9}", "median", "p95")).concat();
    println!("{:20}{units}{:>10}{:>10}", "", "sh. mem.", "copied");
    let times = |row: &Row| [IN_PLACE, COPIED].map(|n| row[0][0] / row[n][0]);
    for (name, row) in names.iter().zip(rows) {
        let us = row.map(|[p50, p95]| format!("{p50:>12.2}{p95:>9.2}")).concat();
        println!("{name:20}{us}{}", times(row).map(|times| format!("{times:>10.1}")).concat());
    }
    let mean = [0, 1].map(|n| rows.iter().map(|row| times(row)[n]).sum::<f64>() / rows.len() as f64);
    println!(
        "figure 9, times as fast as HTTP/2 with JSON in the mean: {:.1}, copied {:.1}   (aim: {:.0}; paper, which draws each message: {PAPER:.0})",
        mean[0],
        mean[1],
        mode.goal()
    );
    mean
}

/// Figure 6: what of an exchange of `PostSmContexts` is writing and reading its form at both ends, and what the rest, which is the protocol.
fn forms_of_figure_6(row: &Row) -> Value {
    type Asked = <PostSmContexts as Form>::Request;
    type Answered = <PostSmContexts as Form>::Answer;
    let (request, answer) = (PostSmContexts::sample().request(), PostSmContexts::sample().answer());
    let builders = RefCell::new([Builder::new(), Builder::new()]);
    let flats = RefCell::new([Vec::new(), Vec::new()]);
    let write_flatbuffers = || {
        let [asked, answered] = &mut *builders.borrow_mut();
        to_flatbuffer(black_box(request), asked);
        to_flatbuffer(black_box(answer), answered);
    };
    let write_flats = || {
        let [asked, answered] = &mut *flats.borrow_mut();
        to_flat(black_box(request), asked);
        to_flat(black_box(answer), answered);
    };
    write_flatbuffers();
    write_flats();
    let json = [to_vec(request), to_vec(answer)];
    let protobuf = [to_protobuf(request), to_protobuf(answer)];
    let flatbuffers = builders.borrow().each_ref().map(|builder| builder.finished_data().to_vec());
    let flat = flats.borrow().clone();
    let read_flats = |is_copied| {
        let [asked, answered] = black_box(&flat);
        read_flat::<Asked>(asked, is_copied);
        read_flat::<Answered>(answered, is_copied);
    };
    let took = nanoseconds(&mut [
        &mut || _ = black_box([to_vec(black_box(request)), to_vec(black_box(answer))]),
        &mut || {
            let [asked, answered] = black_box(&json);
            _ = black_box((from_slice::<Asked>(asked), from_slice::<Answered>(answered)));
        },
        &mut || _ = black_box([to_protobuf(black_box(request)), to_protobuf(black_box(answer))]),
        &mut || {
            let [asked, answered] = black_box(&protobuf);
            black_box((of_protobuf::<Asked>(&**asked), of_protobuf::<Answered>(&**answered)));
        },
        &mut || write_flatbuffers(),
        &mut || {
            let [asked, answered] = black_box(&flatbuffers);
            black_box((of_flatbuffer::<Asked>(asked), of_flatbuffer::<Answered>(answered)));
        },
        &mut || write_flats(),
        &mut || read_flats(false),
        &mut || write_flats(),
        &mut || read_flats(true),
    ]);
    println!("\nfigure 6, {} (the paper draws it, and its text gives no number):", PostSmContexts::NAME);
    println!("{:20}{:>10}{:>16}{:>18}{:>11}", "", "octets", "serialization", "deserialization", "protocol");
    let mut figures = serde_json::Map::new();
    let octets = [&json, &protobuf, &flatbuffers, &flat, &flat].map(|forms| forms.concat().len());
    for (n, octets) in octets.into_iter().enumerate() {
        let [write, read] = [took[2 * n] / 1000.0, took[2 * n + 1] / 1000.0];
        let (channel, protocol) = (CHANNELS[n], row[n][0] - write - read);
        println!("{channel:20}{octets:>10}{write:>16.2}{read:>18.2}{protocol:>11.2}");
        figures.insert(channel.into(), json!([round(write), round(read), round(protocol)]));
    }
    figures.into()
}

/// The channel whose turn it is. Of far ends that spin, the other ones sleep.
struct Turns {
    of: AtomicUsize,
    stop: AtomicBool,
}

impl Turns {
    /// At a far end: sleeps while it is the turn of others. False at the end.
    fn wait(&self, mode: Mode, far: usize) -> bool {
        let is_stopped = || self.stop.load(Ordering::Acquire);
        while mode == Mode::Spinning && FAR[self.of.load(Ordering::Acquire)] != Some(far) && !is_stopped() {
            std::thread::park();
        }
        !is_stopped()
    }
}

/// The far ends, by the channels that lead to them.
const FAR: [Option<usize>; CHANNELS.len()] =
    [Some(HTTP), Some(HTTP), Some(SOCKET), Some(SHARED), Some(SHARED), None];
const HTTP: usize = 0;
const SOCKET: usize = 1;
const SHARED: usize = 2;

/// Measures an operation by each channel.
fn measure<F: Form>(mode: Mode, options: &Options) -> io::Result<(&'static str, Row)> {
    let turns = Turns { of: AtomicUsize::new(0), stop: AtomicBool::new(false) };
    let row = std::thread::scope(|threads| {
        let mut far = Vec::new();
        let outcome = exchanges::<F>(mode, options, threads, &turns, &mut far);
        turns.stop.store(true, Ordering::Release);
        far.iter().for_each(|far| far.thread().unpark());
        outcome
    });
    Ok((F::NAME, row?))
}

fn exchanges<'scope, F: Form>(
    mode: Mode,
    options: &Options,
    threads: &'scope Scope<'scope, '_>,
    turns: &'scope Turns,
    far: &mut Vec<ScopedJoinHandle<'scope, io::Result<()>>>,
) -> io::Result<Row> {
    let (http_far, http_at) = spawn_http::<F>(threads, move || turns.wait(mode, HTTP), mode)?;
    far.push(http_far);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut socket = Framed::new(TcpStream::connect(listener.local_addr()?)?, mode)?;
    let socket_far = Framed::new(listener.accept()?.0, mode)?;
    far.push(threads.spawn(move || serve_socket::<F>(socket_far, mode, turns)));
    let Ends { near: shared, far: Some(mut shared_far) } = Ends::shared()? else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    far.push(threads.spawn(move || {
        pin_to(mode.processor());
        let mut out = Vec::new();
        while turns.wait(mode, SHARED) {
            shared_far.answer(&mut out, mode.waits(), |octets, out| {
                read_flat::<F::Request>(octets, turns.of.load(Ordering::Relaxed) == COPIED);
                to_flat(F::sample().answer(), out);
            })?;
        }
        Ok(())
    }));

    let runtime = runtime()?;
    let (mut json, mut protobuf) = (runtime.block_on(http(http_at))?, runtime.block_on(http(http_at))?);
    let sample = F::sample();
    let request = sample.request();
    let shared = RefCell::new((shared, Vec::new()));
    let mut exchanges: [Exchange<'_>; CHANNELS.len()] = [
        Box::new(|| runtime.block_on(waiting(mode, ask_json(&mut json, &sample)))),
        Box::new(|| runtime.block_on(waiting(mode, ask_protobuf(&mut protobuf, &sample)))),
        Box::new({
            let mut builder = Builder::new();
            move || {
                to_flatbuffer(request, &mut builder);
                socket.write(builder.finished_data())?;
                let answer = of_flatbuffer::<F::Answer>(socket.read(|| true)?);
                black_box(answer).ok_or(io::ErrorKind::InvalidData.into()).map(drop)
            }
        }),
        Box::new(|| ask_shared::<_, F::Answer>(&shared, mode, request, false)),
        Box::new(|| ask_shared::<_, F::Answer>(&shared, mode, request, true)),
        Box::new(|| {
            black_box(call::<F>(black_box(request)));
            Ok(())
        }),
    ];
    let mut samples = [const { Vec::new() }; CHANNELS.len()];
    for _ in 0..options.exchanges.div_ceil(TURN) {
        for (n, (exchange, samples)) in exchanges.iter_mut().zip(&mut samples).enumerate() {
            turns.of.store(n, Ordering::Release);
            if let Some(n) = FAR[n] {
                far[n].thread().unpark();
            }
            for _ in 0..FIRST {
                exchange()?;
            }
            for _ in 0..TURN.min(options.exchanges) {
                let begun = Clock::now();
                exchange()?;
                samples.push(begun.elapsed().as_nanos() as f64 / 1000.0);
            }
        }
    }
    Ok(samples.map(|mut samples| {
        samples.sort_by(f64::total_cmp);
        let p95 = samples.get(samples.len() * 95 / 100).copied().unwrap_or(f64::NAN);
        [median(samples), p95]
    }))
}

/// Reads what came in shared memory; true if it is a body.
fn read_flat<B: Body>(octets: &[u8], is_copied: bool) -> bool {
    let view = black_box(of_flat::<B>(octets));
    if is_copied { black_box(view.and_then(B::of_view)).is_some() } else { view.is_some() }
}

fn ask_shared<Q: Body, A: Body>(
    shared: &RefCell<(End, Vec<u8>)>,
    mode: Mode,
    request: &Q,
    is_copied: bool,
) -> io::Result<()> {
    let (near, out) = &mut *shared.borrow_mut();
    to_flat(request, out);
    let is_read = near.trip(out, mode.waits(), |octets| read_flat::<A>(octets, is_copied))?;
    if is_read { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// The other function, called: nothing is copied.
#[inline(never)]
fn call<F: Form>(request: &F::Request) -> &'static F::Answer {
    black_box(request);
    F::sample().answer()
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Waits for an answer. An end that spins lets the runtime ask for events between two looks at the answer: so the runtime always has something
/// to do, and never sleeps.
async fn waiting<T>(mode: Mode, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    if mode != Mode::Spinning {
        return future.await;
    }
    loop {
        let look = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context)));
        match look.await {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => tokio::task::yield_now().await,
        }
    }
}

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/protobuf";

/// The other function, as a server of HTTP/2: on a thread of its own, as long as it is to go on.
fn spawn_http<'scope, F: Form>(
    threads: &'scope Scope<'scope, '_>,
    goes_on: impl Fn() -> bool + Send + 'scope,
    mode: Mode,
) -> io::Result<(ScopedJoinHandle<'scope, io::Result<()>>, SocketAddr)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    let thread = threads.spawn(move || -> io::Result<()> {
        pin_to(mode.processor());
        runtime()?.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::spawn(accept::<F>(listener));
            while goes_on() {
                match mode {
                    Mode::Spinning => tokio::task::yield_now().await,
                    Mode::Sleeping | Mode::Sharing => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
            Ok(())
        })
    });
    Ok((thread, at))
}

async fn accept<F: Form>(listener: tokio::net::TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), hyper::service::service_fn(answer::<F>));
        tokio::spawn(connection);
    }
}

async fn answer<F: Form>(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let is_json = request.headers().get("content-type").is_some_and(|kind| kind == JSON);
    let body = request.into_body().collect().await?.to_bytes();
    let (answer, kind) = match is_json {
        true => {
            let _ = black_box(from_slice::<F::Request>(&body));
            (to_vec(F::sample().answer()), JSON)
        }
        false => {
            black_box(of_protobuf::<F::Request>(body));
            (to_protobuf(F::sample().answer()), PROTOBUF)
        }
    };
    let mut response = Response::new(Full::new(answer.into()));
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static(kind));
    Ok(response)
}

/// A connection of HTTP/2.
async fn http(at: SocketAddr) -> io::Result<SendRequest<Full<Bytes>>> {
    let stream = tokio::net::TcpStream::connect(at).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn ask<F: Form>(to: &mut SendRequest<Full<Bytes>>, kind: &str, body: Vec<u8>) -> io::Result<Bytes> {
    let request = Request::builder()
        .method(F::METHOD)
        .uri(F::URI)
        .header("content-type", kind)
        .header("accept", kind)
        .body(Full::new(body.into()))
        .map_err(io::Error::other)?;
    to.ready().await.map_err(io::Error::other)?;
    let response = to.send_request(request).await.map_err(io::Error::other)?;
    Ok(response.into_body().collect().await.map_err(io::Error::other)?.to_bytes())
}

async fn ask_json<F: Form>(to: &mut SendRequest<Full<Bytes>>, form: &F) -> io::Result<()> {
    let answer = ask::<F>(to, JSON, to_vec(form.request())).await?;
    black_box(from_slice::<F::Answer>(&answer).map_err(io::Error::other)?);
    Ok(())
}

async fn ask_protobuf<F: Form>(to: &mut SendRequest<Full<Bytes>>, form: &F) -> io::Result<()> {
    let answer = ask::<F>(to, PROTOBUF, to_protobuf(form.request())).await?;
    black_box(of_protobuf::<F::Answer>(answer).ok_or(io::ErrorKind::InvalidData)?);
    Ok(())
}

/// A socket of TCP with frames behind their lengths, one in each direction at a time.
struct Framed {
    stream: TcpStream,
    out: Vec<u8>,
    came: Vec<u8>,
}

impl Framed {
    /// The longest frame.
    const FRAME_MAX: usize = 1 << 16;

    fn new(stream: TcpStream, mode: Mode) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(mode == Mode::Spinning)?;
        Ok(Self { stream, out: Vec::new(), came: vec![0; 4 + Self::FRAME_MAX] })
    }

    fn write(&mut self, octets: &[u8]) -> io::Result<()> {
        self.out.clear();
        self.out.extend_from_slice(&(octets.len() as u32).to_ne_bytes());
        self.out.extend_from_slice(octets);
        self.stream.write_all(&self.out)
    }

    /// The next frame, unless `goes_on` says that there will be none.
    fn read(&mut self, goes_on: impl Fn() -> bool) -> io::Result<&[u8]> {
        let (mut n, mut length) = (0, None);
        while length.is_none_or(|length| n < length) {
            match self.stream.read(&mut self.came[n..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => n += more,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && goes_on() => std::hint::spin_loop(),
                Err(e) => return Err(e),
            }
            length = self.came[..n].first_chunk().map(|length| 4 + u32::from_ne_bytes(*length) as usize);
            if length.is_some_and(|length| length > self.came.len()) {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok(&self.came[4..n])
    }
}

/// The other function, at a socket of TCP, until its peer closes it.
fn serve_socket<F: Form>(mut socket: Framed, mode: Mode, turns: &Turns) -> io::Result<()> {
    pin_to(mode.processor());
    let mut builder = Builder::new();
    while let Ok(octets) = socket.read(|| turns.wait(mode, SOCKET)) {
        black_box(of_flatbuffer::<F::Request>(octets));
        to_flatbuffer(F::sample().answer(), &mut builder);
        socket.write(builder.finished_data())?;
    }
    Ok(())
}

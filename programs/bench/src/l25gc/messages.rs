//! What a message between two network functions takes: a request with its answer, written, carried, and read at both ends. The paper exchanges
//! `PostSmContextsRequest` between two functions of one node in several forms (figure 6), and compares selected messages with HTTP (figure 9).

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock};

use clap::Args;
use flatbuffers::FlatBufferBuilder;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use serde_json::json;

use super::fabric::{End, Ends, pin, processors};
use super::forms::{Answer, Form, N1N2MessageTransfer, PostSmContexts, UeAuthentications, UpdateSmContexts};
use super::{finish, round};
use crate::measure::{median, nanoseconds};
use crate::plot::{Axis, Plot, Series};

/// The mean of figure 9, times as fast as HTTP, and what is to be reached.
const PAPER: f64 = 13.0;
const GOAL: f64 = 40.0;
/// What is compared, the paper's baseline first.
const CHANNELS: [&str; 5] =
    ["HTTP/2, JSON", "HTTP/2, protobuf", "TCP, FlatBuffers", "shared memory", "function call"];
/// Exchanges of one channel before the next one's turn: what disturbs the machine disturbs all alike.
const TURN: usize = 50;

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Exchanges by each channel, of each message.
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

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    println!(
        "paper: shared memory is 13 times as fast as HTTP in the mean of selected messages (figure 9); all of figure 6's forms but shared memory\n       take serialization, copies, and the kernel's sockets"
    );
    println!(
        "here:  microseconds of a request with its answer, from a value to a value at both ends, median of {};\n       each function has a processor of its own where there are two",
        options.exchanges
    );
    pin(processors()[0]);
    let rows = [
        measure::<PostSmContexts>(options)?,
        measure::<UpdateSmContexts>(options)?,
        measure::<N1N2MessageTransfer>(options)?,
        measure::<UeAuthentications>(options)?,
    ];
    let names =
        [PostSmContexts::NAME, UpdateSmContexts::NAME, N1N2MessageTransfer::NAME, UeAuthentications::NAME];
    println!("\n{:22}{}", "", CHANNELS.map(|c| format!("{c:>18}")).concat());
    for (name, us) in names.iter().zip(&rows) {
        println!("{name:22}{}", us.map(|us| format!("{us:>18.2}")).concat());
    }
    let forms = forms_of_figure_6(&rows[0]);
    let times = rows.map(|[http, _, _, shared, _]| http / shared);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    println!(
        "\nfigure 9, times as fast as HTTP/2 with JSON (the paper draws each message, and its text gives the mean):"
    );
    for (name, times) in names.iter().zip(&times) {
        println!("{name:22}{times:>8.1}");
    }
    println!("{:22}{mean:>8.1}   (paper: {PAPER:.0}; aim: {GOAL:.0})", "mean");
    let series = CHANNELS.iter().enumerate().map(|(n, channel)| Series {
        name: (*channel).into(),
        points: rows.iter().enumerate().map(|(x, us)| (x as f64, us[n])).collect(),
    });
    Plot {
        title: "A request with its answer between two network functions",
        x: "",
        y: "microseconds",
        log_y: true,
        axis: Axis::Names(names.map(String::from).to_vec()),
        series: series.collect(),
    }
    .write(plots, "l25gc-messages")?;
    let figures = names.iter().zip(&rows).map(|(name, us)| {
        let us = CHANNELS.iter().zip(us).map(|(channel, us)| ((*channel).to_owned(), json!(round(*us))));
        ((*name).to_owned(), us.collect::<serde_json::Map<_, _>>().into())
    });
    let us: serde_json::Map<_, _> = figures.collect();
    finish(
        "messages",
        &json!({ "us": us, "figure_6_us": forms, "times_as_fast_as_http_json": round(mean), "paper": PAPER, "aim": GOAL }),
    );
    Ok(())
}

/// Figure 6: what of an exchange of `PostSmContexts` is writing and reading its form at both ends, and what the rest, which is the protocol.
fn forms_of_figure_6(us: &[f64; 5]) -> serde_json::Value {
    let (request, answer) = (PostSmContexts::sample(), Answer::sample());
    let json =
        (serde_json::to_vec(&request).unwrap_or_default(), serde_json::to_vec(&answer).unwrap_or_default());
    let protobuf = (request.encode_to_vec(), answer.encode_to_vec());
    let (mut flat, mut builders) =
        ((Vec::new(), Vec::new()), (FlatBufferBuilder::new(), FlatBufferBuilder::new()));
    request.write_flat(&mut flat.0);
    answer.write_flat(&mut flat.1);
    request.write_flatbuffer(&mut builders.0);
    answer.write_flatbuffer(&mut builders.1);
    let flatbuffers = (builders.0.finished_data(), builders.1.finished_data());
    let (mut out, mut builder) = (Vec::new(), FlatBufferBuilder::new());
    let took = nanoseconds(&mut [
        &mut || {
            _ = black_box((serde_json::to_vec(black_box(&request)), serde_json::to_vec(black_box(&answer))))
        },
        &mut || {
            black_box(serde_json::from_slice::<PostSmContexts>(black_box(&json.0)).is_ok());
            black_box(serde_json::from_slice::<Answer>(black_box(&json.1)).is_ok());
        },
        &mut || _ = black_box((black_box(&request).encode_to_vec(), black_box(&answer).encode_to_vec())),
        &mut || {
            black_box(PostSmContexts::decode(black_box(protobuf.0.as_slice())).is_ok());
            black_box(Answer::decode(black_box(protobuf.1.as_slice())).is_ok());
        },
        &mut || {
            builder.reset();
            black_box(&request).write_flatbuffer(&mut builder);
            builder.reset();
            black_box(&answer).write_flatbuffer(&mut builder);
        },
        &mut || {
            _ = black_box((
                PostSmContexts::read_flatbuffer(flatbuffers.0),
                Answer::read_flatbuffer(flatbuffers.1),
            ))
        },
        &mut || {
            out.clear();
            black_box(&request).write_flat(&mut out);
            out.clear();
            black_box(&answer).write_flat(&mut out);
        },
        &mut || _ = black_box((PostSmContexts::read_flat(&flat.0), Answer::read_flat(&flat.1))),
    ]);
    println!("\nfigure 6, {} (the paper draws it, and its text gives no number):", PostSmContexts::NAME);
    println!("{:22}{:>16}{:>16}{:>16}", "", "serialization", "deserialization", "protocol");
    let mut figures = serde_json::Map::new();
    for ((channel, us), took) in CHANNELS.iter().zip(us).zip(took.chunks(2)) {
        let [write, read] = [took[0] / 1000.0, took[1] / 1000.0];
        let protocol = us - write - read;
        println!("{channel:22}{write:>16.2}{read:>16.2}{protocol:>16.2}");
        figures.insert((*channel).into(), json!([round(write), round(read), round(protocol)]));
    }
    figures.into()
}

/// Median microseconds of an exchange by each channel.
fn measure<F: Form>(options: &Options) -> io::Result<[f64; 5]> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let outcome = (|| {
            let (http_at, socket_at) = (serve_http::<F>(threads, &stop)?, serve_socket::<F>(threads)?);
            let runtime = runtime()?;
            let mut shared = Ends::shared()?;
            shared.serve(threads, &stop, |request, answer| {
                black_box(F::read_flat(request));
                Answer::sample().write_flat(answer);
            });
            let (mut json, mut protobuf) =
                (runtime.block_on(http(http_at))?, runtime.block_on(http(http_at))?);
            let mut socket = TcpStream::connect(socket_at)?;
            socket.set_nodelay(true)?;
            let request = F::sample();
            let mut exchanges: [Exchange<'_>; 5] = [
                Box::new(|| runtime.block_on(ask_json(&mut json, &request))),
                Box::new(|| runtime.block_on(ask_protobuf(&mut protobuf, &request))),
                Box::new({
                    let (mut builder, mut came) = (FlatBufferBuilder::new(), Vec::new());
                    let request = request.clone();
                    move || {
                        builder.reset();
                        request.write_flatbuffer(&mut builder);
                        write_framed(&mut socket, builder.finished_data())?;
                        read_framed(&mut socket, &mut came)?;
                        black_box(Answer::read_flatbuffer(&came)).ok_or(io::ErrorKind::InvalidData)?;
                        Ok(())
                    }
                }),
                Box::new({
                    let (request, mut out) = (request.clone(), Vec::new());
                    let near: &mut End = &mut shared.near;
                    move || {
                        out.clear();
                        request.write_flat(&mut out);
                        let sum = near.exchange(&out, Answer::read_flat)?;
                        black_box(sum).ok_or(io::ErrorKind::InvalidData.into()).map(drop)
                    }
                }),
                Box::new(|| {
                    black_box(call(black_box(&request)).sum());
                    Ok(())
                }),
            ];
            let mut samples = [const { Vec::new() }; 5];
            for _ in 0..options.exchanges.div_ceil(TURN) {
                for (exchange, samples) in exchanges.iter_mut().zip(&mut samples) {
                    for _ in 0..TURN.min(options.exchanges) {
                        let begun = Clock::now();
                        exchange()?;
                        samples.push(begun.elapsed().as_nanos() as f64 / 1000.0);
                    }
                }
            }
            drop(exchanges);
            Ok(samples.map(median))
        })();
        stop.store(true, Ordering::Release);
        outcome
    })
}

/// The other function, called.
#[inline(never)]
fn call<F: Form>(request: &F) -> Answer {
    black_box(request.sum());
    Answer::sample()
}

pub(super) fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/protobuf";

/// The other function, as a server of HTTP/2: on a thread of its own, until it is stopped.
pub(super) fn serve_http<'scope, F: Form>(
    threads: &'scope std::thread::Scope<'scope, '_>,
    stop: &'scope AtomicBool,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    threads.spawn(move || -> io::Result<()> {
        pin(processors()[1]);
        runtime()?.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            while !stop.load(Ordering::Acquire) {
                let Ok(Ok((stream, _))) =
                    tokio::time::timeout(Duration::from_millis(20), listener.accept()).await
                else {
                    continue;
                };
                stream.set_nodelay(true)?;
                let service = hyper::service::service_fn(answer::<F>);
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move {
                    let _ = connection.await;
                });
            }
            Ok(())
        })
    });
    Ok(at)
}

async fn answer<F: Form>(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let is_json = request.headers().get("content-type").is_some_and(|kind| kind == JSON);
    let body = request.into_body().collect().await?.to_bytes();
    let (answer, kind) = match is_json {
        true => {
            black_box(serde_json::from_slice::<F>(&body).ok().map(|f| f.sum()));
            (serde_json::to_vec(&Answer::sample()).unwrap_or_default(), JSON)
        }
        false => {
            black_box(F::decode(body).ok().map(|f| f.sum()));
            (prost::Message::encode_to_vec(&Answer::sample()), PROTOBUF)
        }
    };
    let mut response = Response::new(Full::new(answer.into()));
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static(kind));
    Ok(response)
}

/// A connection of HTTP/2.
pub(super) async fn http(at: SocketAddr) -> io::Result<SendRequest<Full<Bytes>>> {
    let stream = tokio::net::TcpStream::connect(at).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn ask(to: &mut SendRequest<Full<Bytes>>, kind: &str, body: Vec<u8>) -> io::Result<Bytes> {
    let request = Request::post("http://127.0.0.2:29502/nsmf-pdusession/v1/sm-contexts")
        .header("content-type", kind)
        .header("accept", kind)
        .body(Full::new(body.into()))
        .map_err(io::Error::other)?;
    to.ready().await.map_err(io::Error::other)?;
    let response = to.send_request(request).await.map_err(io::Error::other)?;
    Ok(response.into_body().collect().await.map_err(io::Error::other)?.to_bytes())
}

pub(super) async fn ask_json<F: Form>(to: &mut SendRequest<Full<Bytes>>, request: &F) -> io::Result<()> {
    let answer = ask(to, JSON, serde_json::to_vec(request)?).await?;
    black_box(serde_json::from_slice::<Answer>(&answer)?.sum());
    Ok(())
}

async fn ask_protobuf<F: Form>(to: &mut SendRequest<Full<Bytes>>, request: &F) -> io::Result<()> {
    let answer = ask(to, PROTOBUF, request.encode_to_vec()).await?;
    black_box(<Answer as prost::Message>::decode(answer).map_err(io::Error::other)?.sum());
    Ok(())
}

fn write_framed(stream: &mut TcpStream, octets: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(4 + octets.len());
    frame.extend_from_slice(&(octets.len() as u32).to_ne_bytes());
    frame.extend_from_slice(octets);
    stream.write_all(&frame)
}

fn read_framed(stream: &mut TcpStream, into: &mut Vec<u8>) -> io::Result<()> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    into.resize(u32::from_ne_bytes(length) as usize, 0);
    stream.read_exact(into)
}

/// The other function, at a socket of TCP, until its peer closes it.
fn serve_socket<'scope, F: Form>(threads: &'scope std::thread::Scope<'scope, '_>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?;
    threads.spawn(move || -> io::Result<()> {
        pin(processors()[1]);
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let (mut builder, mut came) = (FlatBufferBuilder::new(), Vec::new());
        while read_framed(&mut stream, &mut came).is_ok() {
            black_box(F::read_flatbuffer(&came));
            builder.reset();
            Answer::sample().write_flatbuffer(&mut builder);
            write_framed(&mut stream, builder.finished_data())?;
        }
        Ok(())
    });
    Ok(at)
}

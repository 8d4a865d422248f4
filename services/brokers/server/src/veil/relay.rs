//! The two relays: the first passes sealed requests on to the second, and the second, the gateway, opens them and asks the broker.
//! Neither keeps anything.

use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use whimbrel_broker_client::client::Client;
use whimbrel_broker_client::slots::PeerPrefix;
use whimbrel_broker_client::veil::record::Recorder;
use whimbrel_broker_client::veil::{QuestionKind, RELAY_PATH, TlsEndpoint};
use whimbrel_ids::DecodeError;
use whimbrel_open::crypto::{PrivateKey, Seed};
use whimbrel_privacy::ledger::How;
use whimbrel_privacy::relay::{ANSWER_OCTETS, PADDED_OCTETS, REQUEST_OCTETS, open_request};

use crate::quota::{QuotaExceeded, Quotas};
use crate::server::{self, HttpRefusal, Server, octets_response};

/// Requests a second of one network prefix: an operator's busy hour at the first relay.
pub const PASS_PER_SECOND: u64 = 200;
/// The same at the gateway, where all operators come from the address of the first relay.
pub const GATEWAY_PER_SECOND: u64 = 2_000;
/// How long the next hop may take.
const NEXT_WITHIN: Duration = Duration::from_secs(8);
/// A request that is not complete by then is ended.
const BODY_WITHIN: Duration = Duration::from_secs(5);

/// Which of the two.
pub enum RelayRole {
    /// The first: it sees the sender, and passes the request on to the gateway.
    Relay {
        /// Address of the gateway.
        gateway: TlsEndpoint,
    },
    /// The second: it sees what is asked, and asks the broker.
    Gateway {
        /// Identifier of its key, and the key.
        key: (u8, PrivateKey),
        /// Address of the broker.
        broker: TlsEndpoint,
    },
}

struct Hop {
    role: RelayRole,
    client: Client,
    quotas: Arc<Quotas>,
    recorder: Recorder,
}

/// Starts a relay. `tls` is its own certificate, `roots` what it trusts, `per_second` how many requests it
/// takes from one network prefix. Errors: one sentence.
pub fn start(
    listen: SocketAddr,
    tls: Arc<ServerConfig>,
    role: RelayRole,
    roots: Arc<ClientConfig>,
    per_second: u64,
    recorder: Recorder,
) -> Result<Server, String> {
    // The next hop sees the address at which this one listens.
    let source = Some(listen.ip()).filter(|ip| !ip.is_unspecified());
    let client = Client::new(roots).from_address(source);
    let hop = Arc::new(Hop { role, client, quotas: Quotas::new(per_second), recorder });
    let handler: server::Handler = Arc::new(move |(_, from), request| {
        let hop = hop.clone();
        Box::pin(async move { hop.exchange(from, request).await })
    });
    server::start_with(listen, None, tls, handler, Arc::default())
}

impl Hop {
    async fn exchange(
        &self,
        from: SocketAddr,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, HttpRefusal> {
        if request.uri().path() != RELAY_PATH || request.method() != Method::POST {
            return Err(HttpRefusal(
                StatusCode::NOT_FOUND,
                "a relay takes sealed requests at /veil/v1/relay only",
            ));
        }
        let _turn = self.quotas.begin(PeerPrefix::of(from.ip()), Instant::now()).map_err(|e| match e {
            QuotaExceeded::OfSender => {
                HttpRefusal(StatusCode::TOO_MANY_REQUESTS, "too many requests come from this network")
            }
            QuotaExceeded::OfAll => HttpRefusal(StatusCode::SERVICE_UNAVAILABLE, "the relay has no room now"),
        })?;
        let body = Limited::new(request.into_body(), REQUEST_OCTETS).collect();
        let wrong = || HttpRefusal(StatusCode::BAD_REQUEST, "the body is no sealed request");
        let octets = match tokio::time::timeout(BODY_WITHIN, body).await {
            Ok(Ok(body)) => body.to_bytes().to_vec(),
            Ok(Err(_)) | Err(_) => return Err(wrong()),
        };
        if octets.len() != REQUEST_OCTETS {
            return Err(wrong());
        }
        self.recorder.add(How::Received, "relayed request", &from.to_string(), &octets);
        let answer = match &self.role {
            RelayRole::Relay { gateway } => {
                let answer =
                    self.client.post((RELAY_PATH, ANSWER_OCTETS), gateway, &octets, NEXT_WITHIN).await;
                let lost = |_| HttpRefusal(StatusCode::BAD_GATEWAY, "the gateway gave no answer");
                answer.map_err(lost)?
            }
            RelayRole::Gateway { key, broker } => {
                self.ask(key, broker, &octets).await.map_err(|_| wrong())?
            }
        };
        self.recorder.add(How::Sent, "relayed answer", &from.to_string(), &answer);
        Ok(octets_response(answer))
    }

    /// Opens a request and asks the broker. That there is no answer is sealed too.
    async fn ask(
        &self,
        (id, key): &(u8, PrivateKey),
        broker: &TlsEndpoint,
        octets: &[u8],
    ) -> Result<Vec<u8>, DecodeError> {
        let (resource, request, sealer) = open_request((*id, key), octets)?;
        let path = (QuestionKind::from(resource).path(), PADDED_OCTETS);
        let answer = self.client.post(path, broker, &request, NEXT_WITHIN).await.ok();
        let seed = Seed::new(whimbrel_broker_client::random().unwrap_or_default());
        let sealed = sealer.seal(answer.as_deref(), &seed).or_else(|| sealer.seal(None, &seed));
        Ok(sealed.unwrap_or_default())
    }
}

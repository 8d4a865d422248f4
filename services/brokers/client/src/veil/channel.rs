//! The operator's anonymous channel to its broker (LOCA, chapter 4.4.2, step iii).
//!
//! A circuit belongs to one token: it is opened before the token is broadcast and shares no connection with another. It fails closed: what
//! it cannot carry is sent by no other way.

use core::future::Future;
use core::pin::Pin;
use core::time::Duration;
use std::net::IpAddr;
use std::sync::Arc;

use tokio_rustls::rustls::ClientConfig;
use whimbrel_open::crypto::Seed;
use whimbrel_open::msg::EpochKey;
use whimbrel_privacy::channel::{Failure, Kind, Permitted};
use whimbrel_privacy::relay::{ANSWER_OCTETS, PADDED_OCTETS, Resource, seal_request};

use super::{QuestionKind, RELAY_PATH, TlsEndpoint};
use crate::client::{AskError, Client};

/// What a circuit answers, some time.
pub type FutureAnswer<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Failure>> + Send + 'a>>;

/// The way of one token to the broker.
pub trait Circuit: Send + Sync {
    /// Sends a request and gives the answer. Errors: [`Failure`].
    fn ask<'a>(&'a self, resource: Resource, request: &'a [u8], within: Duration) -> FutureAnswer<'a>;
}

/// A way to make circuits.
pub trait AnonymousChannel: Send + Sync {
    /// How it hides where the operator is.
    fn kind(&self) -> Kind;

    /// A fresh circuit, which shares nothing with others.
    fn open(&self) -> Arc<dyn Circuit>;
}

/// The direct channel: the broker sees the operator's address.
pub struct Direct {
    broker: TlsEndpoint,
    tls: Arc<ClientConfig>,
    source: Option<IpAddr>,
}

impl Direct {
    /// To a broker, from an address of this host. `None` if another kind was permitted.
    pub fn new(
        permitted: Permitted,
        broker: TlsEndpoint,
        tls: Arc<ClientConfig>,
        source: Option<IpAddr>,
    ) -> Option<Self> {
        (permitted.kind() == Kind::Direct).then_some(Self { broker, tls, source })
    }
}

impl AnonymousChannel for Direct {
    fn kind(&self) -> Kind {
        Kind::Direct
    }

    fn open(&self) -> Arc<dyn Circuit> {
        let client = Client::new(self.tls.clone()).from_address(self.source);
        Arc::new(DirectCircuit { broker: self.broker.clone(), client })
    }
}

struct DirectCircuit {
    broker: TlsEndpoint,
    client: Client,
}

impl Circuit for DirectCircuit {
    fn ask<'a>(&'a self, resource: Resource, request: &'a [u8], within: Duration) -> FutureAnswer<'a> {
        Box::pin(async move {
            let to = (QuestionKind::from(resource).path(), PADDED_OCTETS);
            self.client.post(to, &self.broker, request, within).await.map_err(|e| failure(&e))
        })
    }
}

/// Two relays that do not collude: the first sees the operator's address, the second one's requests.
pub struct RelayPair {
    relay: TlsEndpoint,
    gateway: EpochKey,
    tls: Arc<ClientConfig>,
    source: Option<IpAddr>,
}

impl RelayPair {
    /// Through a relay to the gateway with this key, from an address of this host. `None` if another kind was permitted.
    pub fn new(
        permitted: Permitted,
        (relay, gateway): (TlsEndpoint, EpochKey),
        tls: Arc<ClientConfig>,
        source: Option<IpAddr>,
    ) -> Option<Self> {
        (permitted.kind() == Kind::RelayPair).then_some(Self { relay, gateway, tls, source })
    }
}

impl AnonymousChannel for RelayPair {
    fn kind(&self) -> Kind {
        Kind::RelayPair
    }

    fn open(&self) -> Arc<dyn Circuit> {
        let (relay, gateway) = (self.relay.clone(), self.gateway);
        let client = Client::new(self.tls.clone()).from_address(self.source);
        Arc::new(RelayedCircuit { relay, gateway, client })
    }
}

struct RelayedCircuit {
    relay: TlsEndpoint,
    gateway: EpochKey,
    client: Client,
}

impl Circuit for RelayedCircuit {
    fn ask<'a>(&'a self, resource: Resource, request: &'a [u8], within: Duration) -> FutureAnswer<'a> {
        Box::pin(async move {
            let seed = Seed::new(crate::random().map_err(|_| Failure::Closed)?);
            let sealed = seal_request(&self.gateway, resource, request, &seed);
            let (sealed, opener) = sealed.ok_or(Failure::Closed)?;
            let answer = self.client.post((RELAY_PATH, ANSWER_OCTETS), &self.relay, &sealed, within).await;
            let answer = answer.map_err(|e| failure(&e))?;
            // An answer that the gateway did not seal for this request is none.
            opener.open(&answer).map_err(|_| Failure::Closed)?.ok_or(Failure::TimedOut)
        })
    }
}

fn failure(e: &AskError) -> Failure {
    match e {
        AskError::Late(..) => Failure::TimedOut,
        AskError::Unreachable(..)
        | AskError::TlsName(_)
        | AskError::TlsTime(_)
        | AskError::TlsUntrusted(_)
        | AskError::Tls(..)
        | AskError::Http(..)
        | AskError::Broken(..)
        | AskError::TooLong(_) => Failure::Closed,
    }
}

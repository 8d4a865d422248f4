//! A network function of a unit as a process of its own (`unit.functions`): the primary CTA connects to it, and their messages go through the
//! shared memory of the unit. What it answers is what the same function answers in the CTA.
//!
//! It keeps nothing that its successor would lack: subscribers and accounts are in files, and the identity of a policy association says of what it is.

mod chf;
mod pcf;
mod udm;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tracing::{info, warn};
use whimbrel_control::udm::NfType;
use whimbrel_ids::{Instant, SNssai};
use whimbrel_link::{Event, LinkEvents, LinkId, Links, Spin};
use whimbrel_resilience::link::{
    FromFunction, FunctionAnswer, FunctionOrder, FunctionRequest, Hello, LinkRole, ToFunction,
};

use self::chf::ChfProducer;
use self::pcf::PcfProducer;
use self::udm::UdmProducer;
use crate::clock;
use crate::cluster;
use crate::cluster::rejected_peers::RejectedPeers;
use crate::config::Config;
use crate::function::{Function, UnitFunction, descriptors};

/// How long to look for the next message before blocking, as the control thread does.
const SPIN: Duration = Duration::from_micros(50);
/// Between two looks at the store, and at a signal to stop.
const LOOKED_EVERY: Duration = Duration::from_millis(200);
/// Orders that no CTA has confirmed. Of further ones none learns.
const ORDERS_MAX: usize = 1 << 16;

/// A request, by the link that it came over and its number there.
pub type RequestId = (LinkId, u64);

/// The operations of a function.
pub trait Producer {
    /// Answers a request, or does so later by [`Self::turn`].
    fn handle(&mut self, now: Instant, from: RequestId, request: FunctionRequest) -> Option<FunctionAnswer>;

    /// Later answers, and orders, since the last call.
    fn turn(&mut self, now: Instant) -> (Vec<(RequestId, FunctionAnswer)>, Vec<FunctionOrder>);
}

/// Opens what a function answers from. `wake` is written to when a later answer is there. Errors: one sentence.
pub fn producer(config: &Config, nf: NfType, wake: Arc<OwnedFd>) -> Result<Box<dyn Producer>, String> {
    Ok(match nf {
        NfType::Udm => Box::new(UdmProducer::open(config)?),
        NfType::Pcf => Box::new(PcfProducer::open(config)?),
        NfType::Chf => Box::new(ChfProducer::open(config, wake)?),
        NfType::Smf => return Err("`unit.functions`: the SMF has no process of its own".into()),
    })
}

/// The process, on one thread.
pub struct NetworkFunctionProcess {
    nf: NfType,
    slice: Option<SNssai>,
    producer: Box<dyn Producer>,
    links: Links,
    events: LinkEvents,
    callers: Vec<LinkId>,
    rejected: RejectedPeers,
    /// Orders that no CTA has confirmed.
    orders: BTreeMap<u64, FunctionOrder>,
    next_order: u64,
    frame: Vec<u8>,
    /// Written to when an answer comes from another thread.
    wake: Arc<OwnedFd>,
}

impl NetworkFunctionProcess {
    /// Opens its part of the store and takes links of CTAs. `slice`: the slice whose sessions it serves, if it serves one alone. Errors: one sentence.
    pub fn open(config: &Config, own: &UnitFunction, slice: Option<SNssai>) -> Result<Self, String> {
        let Function::Network(nf, _) = own.function else {
            return Err(format!("--function: {} is no network function", own.function));
        };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| format!("the system gives no eventfd: {e}"))?;
        let wake = Arc::new(wake);
        let producer = producer(config, nf, wake.clone())?;
        let at = ([127, 0, 0, 1], 0).into();
        let settings = cluster::settings(at, LinkRole::Function, Some(&own.directory.key_file()))?;
        let cannot = |e: &dyn std::fmt::Display| format!("no link of a CTA can be taken: {e}");
        let mut links = Links::open(settings).map_err(|e| cannot(&e))?;
        cluster::share_memory(&mut links);
        let at = links.local_addr().ok_or_else(|| cannot(&"the system does not say where it listens"))?;
        own.directory.announce_function_link(own.function, at).map_err(|e| cannot(&e))?;
        Ok(Self::over(nf, slice, producer, links, wake))
    }

    /// A function over links that are open.
    pub fn over(
        nf: NfType,
        slice: Option<SNssai>,
        producer: Box<dyn Producer>,
        links: Links,
        wake: Arc<OwnedFd>,
    ) -> Self {
        Self {
            nf,
            slice,
            producer,
            links,
            events: LinkEvents::default(),
            callers: Vec::new(),
            rejected: RejectedPeers::default(),
            orders: BTreeMap::new(),
            next_order: 0,
            frame: Vec::new(),
            wake,
        }
    }

    /// Works until `stop` is set.
    pub fn run(&mut self, stop: &AtomicBool) {
        let mut spin = Spin::new(SPIN);
        while !stop.load(Ordering::Acquire) {
            descriptors::turned();
            let now = clock::now();
            if self.turn(now) {
                spin.came(clock::now());
            } else if spin.looks_again(clock::now()) {
                std::hint::spin_loop();
            } else {
                self.block(clock::now());
            }
        }
    }

    /// One turn. Returns whether anything came.
    fn turn(&mut self, now: Instant) -> bool {
        let mut events = std::mem::take(&mut self.events);
        self.links.drain(now, &mut events);
        for event in events.iter() {
            self.link_event(now, event);
        }
        let busy = !events.is_empty();
        self.events = events;
        let busy = self.take_results(now) || busy;
        self.links.flush();
        busy
    }

    /// Takes later answers and orders. Returns whether there were any.
    fn take_results(&mut self, now: Instant) -> bool {
        let (answers, orders) = self.producer.turn(now);
        let any = !answers.is_empty() || !orders.is_empty();
        for ((link, number), answer) in answers {
            // A CTA that is gone asks once more.
            self.send(link, &FromFunction::Answer { number, answer });
        }
        for order in orders {
            if self.orders.len() >= ORDERS_MAX {
                warn!("no CTA confirms orders, and {ORDERS_MAX} wait: a further one is dropped");
                continue;
            }
            let number = self.next_order;
            self.next_order += 1;
            for link in self.callers.clone() {
                self.send(link, &FromFunction::Order { number, order: order.clone() });
            }
            self.orders.insert(number, order);
        }
        any
    }

    fn link_event(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Up { link, peer, hello, .. } => {
                let why = match Hello::from_octets(hello) {
                    Ok(Hello { role: LinkRole::Cta, .. }) => return self.caller_up(link),
                    Ok(_) => "it is no CTA".to_owned(),
                    Err(e) => e.to_string(),
                };
                warn!(%peer, "a link is refused: {why}");
                self.links.close(link);
            }
            Event::Frame { link, octets } if self.callers.contains(&link) => match ToFunction::read(octets) {
                Ok(ToFunction::Request { number, request }) => {
                    if let Some(answer) = self.producer.handle(now, (link, number), request) {
                        self.send(link, &FromFunction::Answer { number, answer });
                    }
                }
                Ok(ToFunction::Taken(number)) => drop(self.orders.remove(&number)),
                Err(e) => {
                    warn!("the link of a CTA is closed: {e}");
                    self.callers.retain(|caller| *caller != link);
                    self.links.close(link);
                }
            },
            Event::Frame { .. } => {}
            Event::Down { link, reason } => {
                if self.callers.contains(&link) {
                    info!(%reason, "a CTA is gone");
                }
                self.callers.retain(|caller| *caller != link);
            }
            Event::Rejected { peer, reason } => {
                if self.rejected.allows(now, peer, reason.label()) {
                    warn!(%peer, %reason, "an incoming link was rejected; further ones from this address are only counted");
                }
            }
        }
    }

    /// A CTA has connected: it gets the orders that the one before may not have taken.
    fn caller_up(&mut self, link: LinkId) {
        info!("a CTA has connected");
        self.callers.push(link);
        self.send(link, &FromFunction::Serves { function: self.nf, slice: self.slice });
        for (number, order) in self.orders.clone() {
            self.send(link, &FromFunction::Order { number, order });
        }
    }

    fn send(&mut self, link: LinkId, message: &FromFunction) {
        if self.callers.contains(&link) {
            self.frame.clear();
            message.write(&mut self.frame);
            self.links.send(link, &self.frame);
        }
    }

    fn block(&self, now: Instant) {
        let until = self.links.next_deadline().map_or(now + LOOKED_EVERY, |at| at.min(now + LOOKED_EVERY));
        let wait = until.since(now);
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        let mut fds =
            [self.links.fd(), self.wake.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Some(&timeout));
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }
}

#[cfg(test)]
mod tests;

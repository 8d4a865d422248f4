//! The CHF: quotas and records of sessions, with accounts in a file of this host (TS 32.290).

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use whimbrel_charging::NotificationType;
use whimbrel_control::charging::RatingGroup;
use whimbrel_ids::{Instant, PduSessionId};
use whimbrel_resilience::link::{FunctionAnswer, FunctionOrder, FunctionRequest};

use super::{Producer, RequestId};
use crate::config::Config;
use crate::observation::Console;
use crate::sbi::chf::{ChfThread, embedded};

/// A result of the thread of the accounts.
enum Done {
    Answer(RequestId, FunctionAnswer),
    Order(FunctionOrder),
}

/// The thread of the accounts.
pub(super) struct ChfProducer {
    thread: ChfThread,
    requested: BTreeMap<RatingGroup, u64>,
    wake: Arc<OwnedFd>,
    sender: Sender<Done>,
    done: Receiver<Done>,
}

impl ChfProducer {
    /// Opens the accounts. `wake` is written to when there is an answer. Errors: one sentence.
    pub(super) fn open(config: &Config, wake: Arc<OwnedFd>) -> Result<Self, String> {
        let console =
            Console::new(crate::clock::now()).map_err(|e| format!("the system gives no eventfd: {e}"))?;
        let (sender, done) = channel();
        let (orders, woken) = (sender.clone(), wake.clone());
        let thread = ChfThread::start(config, console, move |order| {
            // A session of another SMF, from a time when the CHF was offered: its consumer learns with its next report.
            if order.consumer.is_some() {
                return;
            }
            let Some(psi) = order.pdu_session_id.and_then(PduSessionId::new) else { return };
            let abort = order.order == NotificationType::AbortCharging;
            report(&orders, &woken, Done::Order(FunctionOrder::Charging { supi: order.supi, psi, abort }));
        })?;
        Ok(Self { thread, requested: config.requested_octets(), wake, sender, done })
    }
}

fn report(to: &Sender<Done>, wake: &OwnedFd, done: Done) {
    if to.send(done).is_ok() {
        // A counter at its limit is readable already.
        let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
    }
}

impl Producer for ChfProducer {
    fn handle(&mut self, _now: Instant, from: RequestId, request: FunctionRequest) -> Option<FunctionAnswer> {
        let FunctionRequest::Chf(request) = request else { return None };
        let (to, wake) = (self.sender.clone(), self.wake.clone());
        embedded::ask(self.thread.handle(), &self.requested, request, move |answer| {
            report(&to, &wake, Done::Answer(from, FunctionAnswer::Chf(answer)));
        });
        None
    }

    fn turn(&mut self, _now: Instant) -> (Vec<(RequestId, FunctionAnswer)>, Vec<FunctionOrder>) {
        let (mut answers, mut orders) = (Vec::new(), Vec::new());
        for done in self.done.try_iter() {
            match done {
                Done::Answer(from, answer) => answers.push((from, answer)),
                Done::Order(order) => orders.push(order),
            }
        }
        (answers, orders)
    }
}

//! Orders of agencies (LOCA, chapter 4.4.4; docs/veil.md): the edge asks the broker for them under the token of each session group that has a
//! session, has the UE's machine carry them out, and seals what comes of it to the agency. The LI function is here too: UPFs send it copies of
//! intercepted sessions, and it seals each packet to the agency's collector.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::net::UdpSocket;
use tracing::{error, info, warn};
use whimbrel_broker_client::random;
use whimbrel_broker_client::veil::QuestionKind;
use whimbrel_broker_client::veil::channel::Circuit;
use whimbrel_control::smf::Tunnel;
use whimbrel_gtpu::{Gtpu, PORT, message_type};
use whimbrel_ids::{Instant, Tai, Teid};
use whimbrel_ngap::ie::NgranCgi;
use whimbrel_open::crypto::{Seed, Share};
use whimbrel_privacy::channel::Failure;
use whimbrel_privacy::ledger::How;
use whimbrel_privacy::msg::{Finding, Order, OrderKind, Orders, ReportAnswer, SealedCopy};
use whimbrel_privacy::relay::Resource;
use whimbrel_privacy::token::TokenHash;

use super::{Came, Edge, FILL_AGAIN_AFTER, REPORT_TRIES};
use crate::clock;

/// Sessions that are intercepted at once, at most: what one thread seals.
const INTERCEPTED_MAX: usize = 256;

/// What the control thread is to do for an order.
pub(super) struct OrderedAction {
    /// Hash of the order.
    pub(super) order: [u8; 32],
    /// The session, by the hash of the user's request.
    pub(super) session: [u8; 32],
    pub(super) what: OrderAction,
}

/// What is ordered.
#[derive(Clone, Copy)]
pub(super) enum OrderAction {
    /// Copies go here, or nowhere any more.
    Intercept(Option<Tunnel>),
    /// Where the UE is.
    Locate,
}

/// A session group with sessions.
struct Live {
    sessions: usize,
    circuit: Arc<dyn Circuit>,
    /// An answer is awaited.
    asked: bool,
}

/// An order that was taken, until it has expired.
struct AcceptedOrder {
    order: Order,
    share: Share,
    /// The answer, once there is one: it is sent again while the broker gives the order again.
    answer: Option<Vec<u8>>,
}

/// A session whose packets are copied.
struct InterceptedSession {
    order: [u8; 32],
    session: [u8; 32],
    share: Share,
    collector: SocketAddr,
    copies: u64,
    until_s: u64,
}

/// What the edge has of orders.
#[derive(Default)]
pub(super) struct OrderBook {
    live: BTreeMap<TokenHash, Live>,
    taken: BTreeMap<[u8; 32], AcceptedOrder>,
    intercepted: BTreeMap<Teid, InterceptedSession>,
    last_teid: u32,
    pub(super) next_poll: Option<Instant>,
}

/// Where copies come in, and go out.
pub(super) struct LiFunction {
    copies: UdpSocket,
    out: UdpSocket,
}

impl LiFunction {
    /// Binds the address of the configuration. Errors: one sentence.
    pub(super) fn bind(address: IpAddr) -> Result<(std::net::UdpSocket, std::net::UdpSocket), String> {
        let bind = |port| -> std::io::Result<_> {
            let socket = std::net::UdpSocket::bind((address, port))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let both = || -> std::io::Result<_> { Ok((bind(PORT)?, bind(0)?)) };
        both().map_err(|e| format!("`veil.li_function`: {address} cannot be used: {e}"))
    }

    /// In the thread that serves it.
    pub(super) fn new((copies, out): (std::net::UdpSocket, std::net::UdpSocket)) -> std::io::Result<Self> {
        Ok(Self { copies: UdpSocket::from_std(copies)?, out: UdpSocket::from_std(out)? })
    }

    /// The next datagram; waits for ever where there is no LI function.
    pub(super) async fn receive(this: Option<&Self>, to: &mut [u8]) -> usize {
        let Some(this) = this else { return std::future::pending().await };
        loop {
            if let Ok(octets) = this.copies.recv(to).await {
                return octets;
            }
        }
    }
}

/// TAI and cell as an answer has them. `None` for a cell that is not NR's.
pub(super) fn place(tai: Option<Tai>, cell: Option<&NgranCgi>) -> Option<Finding> {
    let (tai, NgranCgi::NrCgi(cell)) = (tai?, cell?) else { return None };
    let [.., a, b, c, d, e] = (cell.nr_cell_identity.value() << 4).to_be_bytes();
    let place =
        [&tai.plmn.nas_octets()[..], &tai.tac.octets(), &cell.plmn_identity.nas_octets(), &[a, b, c, d, e]];
    place.concat().try_into().ok().map(Finding::Place)
}

impl Edge {
    /// A session has begun in a group: orders for it may come.
    pub(super) fn session_began(&mut self, group: TokenHash) {
        if self.config.agencies.is_empty() {
            return;
        }
        let channel = &self.channel;
        let live = self.orders.live.entry(group).or_insert_with(|| Live {
            sessions: 0,
            circuit: channel.open(),
            asked: false,
        });
        live.sessions += 1;
        let now = clock::now();
        self.orders.next_poll =
            Some(self.orders.next_poll.unwrap_or(now).min(now + self.config.orders_every));
    }

    /// A session has ended.
    pub(super) fn session_ended(&mut self, group: TokenHash, session: &[u8; 32]) {
        if let Some(live) = self.orders.live.get_mut(&group) {
            live.sessions -= 1;
            if live.sessions == 0 {
                self.orders.live.remove(&group);
            }
        }
        self.orders.intercepted.retain(|_, i| i.session != *session);
    }

    /// Asks for orders where it is time, and ends interceptions that have expired.
    pub(super) fn poll_orders(&mut self, now: Instant) {
        let over: Vec<Teid> = {
            let expired = self.orders.intercepted.iter().filter(|(_, i)| now.as_secs() > i.until_s);
            expired.map(|(teid, _)| *teid).collect()
        };
        let over: Vec<InterceptedSession> =
            over.into_iter().filter_map(|teid| self.orders.intercepted.remove(&teid)).collect();
        for i in over {
            info!("an order to intercept a session has expired");
            self.order_machine(OrderedAction {
                order: i.order,
                session: i.session,
                what: OrderAction::Intercept(None),
            });
        }
        self.orders.taken.retain(|_, taken| now.as_secs() <= taken.order.validity.until);
        if self.orders.next_poll.is_none_or(|at| now < at) {
            return;
        }
        self.orders.next_poll = (!self.orders.live.is_empty()).then(|| now + self.config.orders_every);
        let groups: Vec<TokenHash> =
            self.orders.live.iter().filter(|(_, live)| !live.asked).map(|(token, _)| *token).collect();
        for token in groups {
            self.ask_for_orders(token);
        }
    }

    fn ask_for_orders(&mut self, token: TokenHash) {
        let (Some((group, _)), Some(live), Ok(nonce)) =
            (self.held.get(&token), self.orders.live.get_mut(&token), random::<16>())
        else {
            return;
        };
        live.asked = true;
        let octets = group.orders(self.config.broker.domain.clone(), nonce).to_octets();
        let (circuit, came, recorder) = (live.circuit.clone(), self.came.clone(), self.recorder.clone());
        let within = self.config.answer_within;
        tokio::spawn(async move {
            recorder.add(How::Sent, QuestionKind::Orders.names().0, "", &octets);
            let answer = circuit.ask(Resource::Orders, &octets, within).await;
            if let Ok(octets) = &answer {
                recorder.add(How::Received, QuestionKind::Orders.names().1, "", octets);
            }
            let _ = came.send(Came::Orders(token, answer));
        });
    }

    /// The broker has answered whether there are orders.
    pub(super) fn orders_came(&mut self, token: TokenHash, answer: Result<Vec<u8>, Failure>) {
        if let Some(live) = self.orders.live.get_mut(&token) {
            live.asked = false;
        }
        let orders = match answer.map(|octets| Orders::parse(&octets)) {
            Ok(Ok(Orders(orders))) => orders,
            Ok(Err(e)) => return warn!("the broker's answer to a request for orders is malformed: {e}"),
            Err(why) => return warn!("the broker was not asked for orders: {why}"),
        };
        for order in orders {
            let hash = order.hash();
            if let Some(taken) = self.orders.taken.get(&hash) {
                // The broker did not get the answer.
                if let Some(answer) = taken.answer.clone() {
                    self.send_answer(answer);
                }
                continue;
            }
            if let Err(why) = self.take_order(token, hash, order) {
                warn!("an agency's order is not carried out: {why}");
            }
        }
    }

    fn take_order(&mut self, token: TokenHash, hash: [u8; 32], order: Order) -> Result<(), &'static str> {
        let agency = self.config.agencies.iter().find(|agency| agency.key == order.agency);
        let agency = agency.ok_or("the agency is not one of `veil.agencies`")?;
        if !order.is_signed() {
            return Err("the agency's signature is wrong");
        }
        if !order.is_valid(clock::now()) || order.group != token {
            return Err("it has expired, or is for another session group");
        }
        let (share, session) = (agency.share, order.session);
        let what = match order.kind {
            OrderKind::Locate => OrderAction::Locate,
            OrderKind::Intercept => {
                let collector = agency.collector.ok_or("the agency has no `collector`")?;
                let address = self.config.li_function.ok_or("`veil.li_function` is not set")?;
                if self.orders.intercepted.len() >= INTERCEPTED_MAX {
                    return Err("too many sessions are intercepted");
                }
                self.orders.last_teid = self.orders.last_teid.wrapping_add(1).max(1);
                let teid = Teid(self.orders.last_teid);
                let until_s = order.validity.until;
                let of = InterceptedSession { order: hash, session, share, collector, copies: 0, until_s };
                self.orders.intercepted.insert(teid, of);
                OrderAction::Intercept(Some(Tunnel { teid, address }))
            }
        };
        info!("an agency's order to {} a session is carried out", order.kind);
        self.counts.orders.fetch_add(1, Ordering::Relaxed);
        self.orders.taken.insert(hash, AcceptedOrder { order, share, answer: None });
        self.order_machine(OrderedAction { order: hash, session, what });
        Ok(())
    }

    fn order_machine(&self, ordered: OrderedAction) {
        if self.ordered.send(ordered).is_ok() {
            self.console.commands.wake();
        }
    }

    /// What came of an order: it is answered, sealed to the agency.
    pub(super) fn found(&mut self, order: [u8; 32], finding: &Finding) {
        let Ok(seed) = random() else {
            return error!("the system gives no random octets, so an order is not answered");
        };
        let Some(taken) = self.orders.taken.get_mut(&order) else { return };
        if *finding == Finding::NotHere {
            self.orders.intercepted.retain(|_, i| i.order != order);
        }
        let Some((group, _)) = self.held.get(&taken.order.group) else { return };
        let broker = self.config.broker.domain.clone();
        let answer = group.answer(broker, (order, &taken.share), finding, &Seed::new(seed));
        let Some(answer) = answer.map(|answer| answer.to_octets()) else {
            return warn!("an order is not answered: the agency's key in `veil.agencies` has small order");
        };
        taken.answer = Some(answer.clone());
        self.send_answer(answer);
    }

    /// Over a circuit of its own.
    fn send_answer(&self, answer: Vec<u8>) {
        let (circuit, recorder, within) =
            (self.channel.open(), self.recorder.clone(), self.config.answer_within);
        tokio::spawn(async move {
            for _ in 0..REPORT_TRIES {
                recorder.add(How::Sent, QuestionKind::OrderAnswer.names().0, "", &answer);
                if let Ok(octets) = circuit.ask(Resource::OrderAnswer, &answer, within).await {
                    recorder.add(How::Received, QuestionKind::OrderAnswer.names().1, "", &octets);
                    if let Ok(ReportAnswer::Refused(cause)) = ReportAnswer::parse(&octets) {
                        warn!("the broker does not take the answer to an order: {cause}");
                    }
                    return;
                }
                tokio::time::sleep(FILL_AGAIN_AFTER).await;
            }
            warn!("an order was not answered: the broker was not reached");
        });
    }

    /// A copy of a packet has come from a UPF: it goes on to the agency, sealed. What belongs to no order is dropped.
    pub(super) async fn copy(&mut self, octets: &[u8]) {
        let Ok(m) = Gtpu::parse(octets) else { return };
        let Some(li) = self.li.as_ref().filter(|_| m.message_type == message_type::G_PDU) else { return };
        let Some(i) = self.orders.intercepted.get_mut(&m.teid) else { return };
        let Ok(seed) = random() else { return };
        let sealed = SealedCopy::seal(i.order, i.copies, m.payload, &i.share, &Seed::new(seed));
        let Some(sealed) = sealed else { return };
        i.copies += 1;
        if li.out.send_to(&sealed.to_octets(), i.collector).await.is_ok() {
            self.counts.copies.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_ids::{NrCellId, PlmnId, Tac};
    use whimbrel_ngap::ie::NrCgi;

    use super::*;

    #[test] // TS 38.413 §9.3.1.7, §9.3.3.11
    fn a_place_has_the_octets_of_tai_and_nr_cgi() {
        let plmn: PlmnId = "999/70".parse().unwrap();
        let tai = Tai { plmn, tac: Tac::new(0x01_0203).unwrap() };
        let cell = NrCgi { plmn_identity: plmn, nr_cell_identity: NrCellId::new(0x1_2345_6789).unwrap() };
        let found = place(Some(tai), Some(&NgranCgi::NrCgi(cell)));
        let octets = [0x99, 0xf9, 7, 1, 2, 3, 0x99, 0xf9, 7, 0x12, 0x34, 0x56, 0x78, 0x90];
        assert_eq!(found, Some(Finding::Place(octets)));
        assert_eq!(place(Some(tai), None), None);
    }
}

//! How a CTA gives its place up: to its CTA replica when it stops in order, to one that runs other code, or because another one serves already.

use std::net::IpAddr;
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_ids::Instant;
use whimbrel_resilience::Order;
use whimbrel_resilience::membership::CtaInstance;
use whimbrel_sctp_io::Event;

use super::super::n2;
use super::{Control, Parts, StopRequest};
use crate::clock;
use crate::cluster::{PairEvent, PairPrimary, PairReplica, PoolEvent};
use crate::entropy::SystemEntropy;

/// How long gNBs have to leave one that its CTA replica has replaced.
const GNBS_LEAVE_WITHIN: Duration = Duration::from_millis(500);
/// How long the CTA replica has to take over from one that stops in order.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(5);
/// How long one that runs other code has to get all that it takes over, while inputs wait: UEs ask again after seconds.
const GIVEN_WITHIN: Duration = Duration::from_secs(5);

impl Control {
    /// Another one serves: whatever waits here means nothing any more.
    pub(super) fn stand_down(self) -> Result<Parts, String> {
        warn!("another CTA has taken over: this one is its replica from now on");
        let Self { config, console, pair, pool, mut n2, links, .. } = self;
        drop(pool);
        if let Some(n2) = &mut n2 {
            let now = clock::now();
            // What waits is not acknowledged: gNBs say it again to the one that serves.
            links.all().for_each(|link| n2.abort(now, link.sctp));
            n2.hold_acknowledgements(false);
            n2.flush(now);
        }
        let of = config.cluster.pair.as_ref().ok_or("`cluster.etcd` is not configured")?;
        let endpoints = (config.n2.addresses.clone(), config.n4.node_id);
        let standby = PairReplica::open(of, &config.cluster, endpoints, pair, console.clone())?;
        Ok(Parts {
            store: crate::subscribers::open(&config.store)?,
            entropy: SystemEntropy::new()?,
            standby: Some(standby),
            smf_n4: self.smf_n4,
            upf: self.upf,
            pool: None,
            upf_alone: false,
            capture: None,
            config,
            console,
            n2,
            remembered_in: self.remembered_in,
        })
    }

    /// One that stops in order has its CTA replica take over, if it has one: then its UEs do not notice.
    pub(super) fn hand_over(&mut self, stop: &StopRequest) {
        self.give_all(stop);
        if !self.pair.as_ref().is_some_and(PairPrimary::has_cta_replica) {
            return;
        }
        info!("the CTA replica takes over");
        if let Some(pool) = &mut self.pool {
            pool.part();
        }
        let until = clock::now() + HANDED_OVER_WITHIN;
        while !self.replaced && clock::now() < until && !stop.is_at_once() {
            std::thread::sleep(Duration::from_millis(1));
            self.replaced = self.pair.as_mut().is_some_and(PairPrimary::has_handed_over);
        }
        let Some(n2) = self.n2.as_mut().filter(|_| self.replaced) else { return };
        // gNBs hear from that one that they need not stay. Those that do not know it have to be told.
        let until = clock::now() + GNBS_LEAVE_WITHIN;
        while self.links.all().next().is_some() && clock::now() < until && !stop.is_at_once() {
            let now = clock::now();
            n2.drain(now, &mut self.events);
            for event in self.events.iter() {
                if let Event::Down { association, .. } = event {
                    self.links.down(association);
                }
            }
            n2.flush(now);
            std::thread::sleep(Duration::from_millis(1));
        }
        n2::end_associations(n2, stop);
    }

    /// One that runs other code cannot follow inputs. So it gets all that this one holds when no further input comes: what UEs and gNBs say
    /// meanwhile is not acknowledged, what CPFs say is kept there, and both say it to the one that serves next.
    fn give_all(&mut self, stop: &StopRequest) {
        let until = clock::now() + GIVEN_WITHIN;
        let offer = self.pool.as_mut().and_then(|pool| pool.take_offer(clock::now()));
        let Some(offer) = offer else { return };
        info!("the waiting CTA takes over: this one transfers its state");
        self.settle(clock::now());
        if let Some(n2) = &mut self.n2 {
            n2.flush(clock::now());
            // The kernel's SCTP acknowledges by itself: what comes now is lost with it, as with any CTA.
            n2.hold_acknowledgements(true);
        }
        if let (Some(pair), Some(pool)) = (&mut self.pair, &mut self.pool) {
            pair.hastens();
            pair.said(clock::now(), offer, &mut self.active, pool, &mut self.out);
        }
        while clock::now() < until && !self.replaced && !stop.is_at_once() {
            let now = clock::now();
            self.carry_subscribers(now);
            let carried = self.carrying.as_ref().is_none_or(|carrying| carrying.due().is_none());
            let (Some(pair), Some(pool)) = (&mut self.pair, &mut self.pool) else { return };
            if carried && pair.has_cta_replica() {
                return;
            }
            for said in pool.turn(now) {
                match said {
                    PoolEvent::FromReplica(message) => {
                        pair.said(now, message, &mut self.active, pool, &mut self.out)
                    }
                    PoolEvent::CtaReplicaLost => {
                        pair.cta_replica_lost(&mut self.active, pool, &mut self.out);
                        return warn!("the CTA that was to take over is lost");
                    }
                    _ => {} // an input: it comes again
                }
            }
            for turned in pair.turn(now, &mut self.active, pool, &mut self.out) {
                match turned {
                    PairEvent::Order(_) => {} // gNBs and UPFs know that one already
                    PairEvent::Replaced => self.replaced = true,
                }
            }
            pool.flush();
            std::thread::sleep(Duration::from_millis(1));
        }
        warn!("the CTA that was to take over is not ready in time");
    }

    /// A CTA that runs other code waits for this one to stop: gNBs and UPFs are to know it by then. `None`: it does not any more.
    pub(super) fn awaited(&mut self, now: Instant, other: Option<(CtaInstance, Vec<IpAddr>, IpAddr)>) {
        let listed = |place| self.pair.as_ref().is_some_and(|pair| pair.witness().lists(place));
        if let (Some((place, ..)), Some(pool)) = (&other, &mut self.pool)
            && !listed(*place)
        {
            return pool.part(); // it calls again
        }
        let own = self.config.n4.node_id;
        let (endpoints, smf) = other.map_or_else(Default::default, |(_, at, smf)| (at, vec![smf, own]));
        self.carry_out(now, Order::Endpoints(endpoints));
        if !smf.is_empty() {
            self.carry_out(now, Order::SmfAddresses(smf));
        }
    }
}

//! The commands that come from the console: what an operator reads, orders and configures.

use std::sync::Arc;

use tracing::info;
use whimbrel_control::amf::{PeerAmfId, WarningError};
use whimbrel_control::config as control;
use whimbrel_control::smf::served_by_none_but;
use whimbrel_control::{UeId, UeSummary, UpfId};
use whimbrel_ids::{Instant, Supi};
use whimbrel_resilience::link::UeQuery;
use whimbrel_resilience::{CtaOrder, Input, OrderOutcome};
use whimbrel_security::Direction;

use super::ControlLoop;
use super::cpf_processes::CpfProcesses;
use crate::cluster::UeQueryReply;
use crate::config::value::Value as _;
use crate::config::{Config, NetworkTimeZone};
use crate::core::foresight::Foresight;
use crate::core::view;
use crate::observation::{
    ClusterView, ConsoleCommand, RemovalOrder, RemovalView, Target, UpfDrainOrder, UpfDrainView,
};

/// UEs that are counted by CPF on demand: that takes some milliseconds at most.
const COUNTED_UES_MAX: usize = 50_000;

impl ControlLoop {
    pub(super) fn command(&mut self, now: Instant, command: ConsoleCommand) {
        // An answer whose receiver is gone is dropped.
        let _ = match command {
            ConsoleCommand::ListUes(request, reply) => {
                self.query_ues(now, view::page_of(&request), UeQueryReply::Page(request, reply));
                true
            }
            ConsoleCommand::ShowUe(supi, reply) => {
                self.query_ues(now, UeQuery::Subscriber(supi), UeQueryReply::Ue(reply));
                true
            }
            ConsoleCommand::ListGnbs(reply) => {
                let link = |association| self.n2.links.get(association);
                reply.send(view::gnbs(self.active.cta(), link)).is_ok()
            }
            ConsoleCommand::Cluster(reply) => reply.send(self.cluster()).is_ok(),
            ConsoleCommand::Deregister(supi, reply) => {
                let order = whimbrel_control::Command::Deregister;
                reply.send(self.order(now, supi, order, Target::Deregistration)).is_ok()
            }
            ConsoleCommand::NotifyReachable(supi, reply) => {
                let order = whimbrel_control::Command::NotifyReachable;
                reply.send(self.order(now, supi, order, Target::Reachability)).is_ok()
            }
            ConsoleCommand::Locate(supi, wish, reply) => {
                let ue: Option<UeId> = self.active.cta().find(supi);
                if let Some(ue) = ue {
                    let order = whimbrel_control::Command::Locate(wish);
                    self.handle_input(now, Input::Command(ue, order));
                }
                reply.send(ue.is_some()).is_ok()
            }
            ConsoleCommand::Warn(warning, reply) => {
                let of = (warning.message_identifier, warning.serial_number);
                reply.send(self.warn(now, of, CtaOrder::Warn(warning))).is_ok()
            }
            ConsoleCommand::CancelWarning(message_identifier, serial_number, reply) => {
                let order = CtaOrder::CancelWarning { message_identifier, serial_number };
                reply.send(self.warn(now, (message_identifier, serial_number), order)).is_ok()
            }
            ConsoleCommand::ListWarnings(reply) => reply.send(view::warnings(self.active.cta())).is_ok(),
            ConsoleCommand::Overload(order, reply) => {
                if let Some(order) = order {
                    self.execute(now, CtaOrder::Overload(order));
                }
                reply.send(view::overload(self.active.cta())).is_ok()
            }
            ConsoleCommand::Removal(order, reply) => reply.send(self.removal(now, order)).is_ok(),
            ConsoleCommand::UpfDrain(name, order, reply) => {
                reply.send(self.upf_drain(now, &name, order)).is_ok()
            }
            ConsoleCommand::Foresight(reply) => {
                let view = self.foresight.as_ref().map(Foresight::view);
                reply.send(view.unwrap_or_default()).is_ok()
            }
            ConsoleCommand::ResetGnb(gnb, reply) => {
                let is_up = self.execute(now, CtaOrder::ResetGnb(gnb)) == OrderOutcome::Reset(true);
                let begin = || self.console.operations.begin(now, format!("gnb-{gnb}"), Target::Reset(gnb));
                reply.send(is_up.then(begin)).is_ok()
            }
            ConsoleCommand::DisconnectGnb(gnb, reply) => {
                let was_up = self.execute(now, CtaOrder::DisconnectGnb(gnb)) == OrderOutcome::Reset(true);
                reply.send(was_up).is_ok()
            }
            ConsoleCommand::GenerateAuthData(identity, token, reply) => {
                reply.send(self.active.generate_auth_data(now, identity, token)).is_ok()
            }
            ConsoleCommand::DeregisteredByUdm(supi) => {
                self.handle_input(now, Input::DeregisteredByUdm(supi));
                true
            }
            ConsoleCommand::OpenNas(ue, messages, reply) => reply.send(self.open_nas(ue, &messages)).is_ok(),
            ConsoleCommand::Reconfigure(config) => {
                self.reconfigure(now, &config);
                true
            }
            ConsoleCommand::ModifySession(supi, psi, modification, reply) => {
                let reply = UeQueryReply::Modified(psi, modification, reply);
                self.query_ues(now, UeQuery::Subscriber(supi), reply);
                true
            }
        };
    }

    /// Begins or ends the removal of this AMF from its set.
    fn removal(&mut self, now: Instant, order: Option<RemovalOrder>) -> Result<RemovalView, String> {
        let config = self.active.cta().config().clone();
        let name = |peer: PeerAmfId| {
            config.amf.peer_amfs.get(usize::from(peer.0)).map(|p| p.name.as_str()).unwrap_or_default()
        };
        match order {
            Some(RemovalOrder::Begin(wish)) => {
                let others: Vec<PeerAmfId> = config.amf.others_of_set().collect();
                if let Some(wish) = &wish
                    && !others.iter().any(|peer| name(*peer) == wish)
                {
                    return Err(format!("{wish} is no AMF of this one's set in `peer_amfs`"));
                }
                let connected =
                    |peer: &PeerAmfId| self.peer_amfs.as_ref().is_some_and(|all| all.is_connected(*peer));
                let to = others.iter().filter(|peer| wish.as_deref().is_none_or(|wish| name(**peer) == wish));
                let to = to.copied().find(connected).ok_or_else(|| match wish {
                    Some(wish) => format!("{wish} is not connected, so it can take over no UE"),
                    None => "no other AMF of this one's set is connected, so none can take over its UEs"
                        .to_owned(),
                })?;
                self.execute(now, CtaOrder::Remove(Some(to)));
            }
            Some(RemovalOrder::End) => {
                self.execute(now, CtaOrder::Remove(None));
            }
            None => {}
        }
        let progress = self.active.cta().removal();
        Ok(RemovalView {
            successor: progress.map(|p| name(p.to).to_owned()),
            ues_left: progress.map_or_else(|| self.active.cta().registered(), |p| p.left) as u64,
            announced: progress.is_some_and(|p| p.announced),
        })
    }

    /// Begins or ends the drain of a UPF.
    fn upf_drain(&mut self, now: Instant, name: &str, order: Option<UpfDrainOrder>) -> Option<UpfDrainView> {
        let upf = self.upf_named(name)?;
        if let Some(order) = order {
            let until = match order {
                UpfDrainOrder::Begin(within) => Some(now + within),
                UpfDrainOrder::End => None,
            };
            match until {
                Some(_) => info!("the UPF {name} is being drained at the operator's order"),
                None => info!("the UPF {name} gets sessions again at the operator's order"),
            }
            self.execute(now, CtaOrder::DrainUpf(upf, until));
            self.keep_drain_orders();
        }
        let cta = self.active.cta();
        let drain = cta.upf_drains().find(|drain| drain.upf == upf);
        let alone = served_by_none_but(cta.config(), &cta.upf_states(), upf);
        Some(UpfDrainView {
            upf: name.to_owned(),
            ordered_by: drain.map(|d| if d.is_ordered { "operator" } else { "upf" }.to_owned()),
            released_in_s: drain.map(|d| d.until.since(now).as_secs()),
            ues_left: cta.ues_at_upf(upf),
            served_by_none_but: alone
                .map(|(slice, dnn, tac)| format!("slice {slice}, {dnn}, tracking area {}", tac.value())),
        })
    }

    fn upf_named(&self, name: &str) -> Option<UpfId> {
        let upfs = &self.active.cta().config().smf.upfs;
        (0u8..).map(UpfId).zip(upfs).find(|(_, upf)| upf.name == name).map(|(id, _)| id)
    }

    /// Keeps the operator's orders to drain UPFs for the next start.
    pub(super) fn keep_drain_orders(&mut self) {
        let cta = self.active.cta();
        let upfs = &cta.config().smf.upfs;
        let ordered = cta.upf_drains().filter(|drain| drain.is_ordered);
        let standing = ordered.filter_map(|d| Some((upfs.get(usize::from(d.upf.0))?.name.clone(), d.until)));
        let standing = standing.collect();
        if let Some(orders) = &mut self.drain_orders {
            orders.keep(standing);
        }
    }

    /// Goes on with the orders of the former start.
    pub(super) fn restore_drains(&mut self, now: Instant) {
        let kept = self.drain_orders.as_ref().map(|orders| orders.kept().clone()).unwrap_or_default();
        for (name, until) in kept {
            if let Some(upf) = self.upf_named(&name) {
                info!("the UPF {name} is drained, as the operator ordered before the core started");
                self.execute(now, CtaOrder::DrainUpf(upf, Some(until)));
            }
        }
    }

    /// The processes that serve UEs.
    fn cluster(&self) -> ClusterView {
        let pool = self.cpfs.as_ref().map(|cpfs| &cpfs.pool);
        let ctas = pool.zip(self.pair()).map(|(pool, pair)| pair.primary.views(pool)).unwrap_or_default();
        ClusterView {
            deployment: match &self.cpfs {
                None => "single",
                Some(CpfProcesses { pair: None, .. }) => "region",
                Some(CpfProcesses { pair: Some(_), .. }) => "pair",
            },
            ctas,
            cpfs: pool
                .map(|pool| {
                    let cta = self.active.cta();
                    pool.views(cta.ues_of_cpfs(COUNTED_UES_MAX), |cpf| cta.load_of(cpf).ues)
                })
                .unwrap_or_default(),
            replicas: pool
                .map(|pool| pool.replicas(self.active.cta().without_backup() as u64))
                .unwrap_or_default(),
            timeline: self.console.timeline(|t| t.newest_first()),
            ..view::cluster(self.active.cta())
        }
    }

    /// Deciphers NAS messages under the keys that a UE of this process has now.
    fn open_nas(&self, ue: UeId, messages: &[(bool, Vec<u8>)]) -> Vec<Option<Vec<u8>>> {
        let context = self.active.cta().context(ue);
        let open = |(uplink, octets): &(bool, Vec<u8>)| {
            let direction = if *uplink { Direction::Uplink } else { Direction::Downlink };
            context?.amf.security.current.as_deref()?.read_again(direction, octets)
        };
        messages.iter().map(open).collect()
    }

    /// Puts in force what can change while UEs are registered: timers, limits, refusals, data networks, and what gNBs and UEs get.
    fn reconfigure(&mut self, now: Instant, config: &Config) {
        let mut control = config.control();
        self.time_zone = config.amf.time_zone.clone();
        // The links to peer AMFs are those of the start.
        control.amf.peer_amfs.clone_from(&self.active.cta().config().amf.peer_amfs);
        let former = self.active.cta().config().amf.local_time;
        if control.amf.local_time.differs_from(&former) {
            control.amf.local_time.since = now;
        }
        self.put_in_force(now, control);
        info!("a new version of the configuration is in force");
    }

    /// Gives UEs the offset of local time once it has changed.
    pub(super) fn keep_local_time(&mut self, now: Instant) {
        // A database that is gone leaves the offset as it is.
        let Ok(local) = self.time_zone.local_time(now) else { return };
        let in_force = self.active.cta().config();
        if !local.differs_from(&in_force.amf.local_time) {
            return;
        }
        let mut control = control::Config::clone(in_force);
        control.amf.local_time = control::LocalTime { since: now, ..local };
        self.put_in_force(now, control);
        let offset = NetworkTimeZone::Offset(local.quarters).show();
        info!(
            "the offset of local time from UTC is {offset} now: connected UEs get it, the others when they are connected next"
        );
    }

    /// Gives a configuration the next version, and puts it in force for later inputs.
    fn put_in_force(&mut self, now: Instant, mut control: control::Config) {
        self.version = self.version.max(self.active.cta().config().version) + 1;
        control.version = self.version;
        let control = Arc::new(control);
        self.observer.configure(control.clone());
        if let Some(CpfProcesses { pool, .. }) = &mut self.cpfs {
            pool.configure(control.clone());
        }
        self.execute(now, CtaOrder::Configure(control));
    }

    /// Gives an order to a subscriber's UE, if the UE is known. Returns the operation.
    fn order(
        &mut self,
        now: Instant,
        supi: Supi,
        order: whimbrel_control::Command,
        target: fn(UeId) -> Target,
    ) -> Option<u64> {
        let ue: UeId = self.active.cta().find(supi)?;
        let operation = self.console.operations.begin(now, supi.to_string(), target(ue));
        self.handle_input(now, Input::Command(ue, order));
        Some(operation)
    }

    /// Asks for UEs at the CPFs that serve them.
    fn query_ues(&mut self, now: Instant, which: UeQuery, reply: UeQueryReply) {
        match (&mut self.cpfs, self.active.cta().cpf()) {
            (Some(CpfProcesses { pool, .. }), _) => pool.query_ues(which, reply),
            (None, cpf) => {
                let ues = cpf.map(|c| c.show(which)).unwrap_or_default();
                self.answer_query(now, reply, ues);
            }
        }
    }

    /// The UEs of a query have been found.
    pub(super) fn answer_query(&mut self, now: Instant, reply: UeQueryReply, ues: Vec<UeSummary>) {
        // An answer whose receiver is gone is dropped.
        let _ = match reply {
            UeQueryReply::Page(request, reply) => {
                reply.send(view::ues(self.active.cta(), self.active.time(now), &request, ues)).is_ok()
            }
            UeQueryReply::Ue(reply) => {
                let (local, local_id) = (&self.upfs.local, self.upfs.local_id);
                let octets = |upf, seid| {
                    let local = local.as_ref().filter(|_| local_id == Some(upf))?;
                    local.octets(seid)
                };
                reply.send(view::ue(self.active.cta(), self.active.time(now), &ues, octets)).is_ok()
            }
            UeQueryReply::Modified(psi, modification, reply) => {
                let has = |p: &&UeSummary| p.registered && p.sessions.iter().any(|s| s.psi == psi);
                let operation = ues.iter().find(has).map(|p| {
                    let supi = p.supi.map(|s| s.to_string()).unwrap_or_default();
                    let target = Target::Session(p.id, psi, modification);
                    let operation = self.console.operations.begin(now, supi, target);
                    let order = whimbrel_control::Command::ModifySession(psi, modification);
                    self.handle_input(now, Input::Command(p.id, order));
                    operation
                });
                reply.send(operation).is_ok()
            }
        };
    }

    /// Sends a warning message, or cancels it. Returns the operation: the gNBs' answers come in a later turn.
    fn warn(&mut self, now: Instant, of: (u16, u16), order: CtaOrder) -> Result<u64, WarningError> {
        let cancelled = matches!(order, CtaOrder::CancelWarning { .. });
        let OrderOutcome::Warned(outcome) = self.execute(now, order) else {
            return Err(WarningError::Unknown);
        };
        let target = Target::Warning { of, awaited: outcome?, cancelled };
        let subject = format!("warning {} {}", of.0, of.1);
        Ok(self.console.operations.begin(now, subject, target))
    }
}

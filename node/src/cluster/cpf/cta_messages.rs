//! The messages between a CPF and its CTA.

use tracing::{info, warn};
use whimbrel_ids::Instant;
use whimbrel_resilience::cta_replica::LinkEnd;
use whimbrel_resilience::link::{CpfCommand, CpfReport, HeartbeatKey, ToCpf, ToCta};
use whimbrel_resilience::membership::MemberId;
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{CpfOutbox, ReplicatedCpf};

use super::{CpfProcess, MemberPeers, Membership};
use crate::ue_memory::UeMemory;

/// Number of messages from the CTA after which this CPF confirms that it has received them.
const CONFIRMED_EVERY: u64 = 16;

impl CpfProcess {
    pub(super) fn cta_message(&mut self, now: Instant, octets: &[u8]) {
        let message = match ToCpf::read(octets) {
            Ok(message) => message,
            Err(e) => return self.leave_cta(now, &e.to_string()),
        };
        match (message, &mut self.membership) {
            (ToCpf::Welcome { life, id, heartbeats, keep }, None) => {
                self.welcomed(now, life, id, &heartbeats, keep);
            }
            (ToCpf::Resumed { taken, heartbeats }, Some(m)) if m.orphaned.is_some() => {
                let unconfirmed = m.end.resume(taken).map(|frames| {
                    frames.for_each(|frame| self.cta.link.iter().for_each(|l| self.links.send(*l, frame)));
                });
                if unconfirmed.is_none() {
                    return self.leave_cta(now, "it lacks messages that the former one received");
                }
                (m.orphaned, m.listed, self.cta.attempted, self.cta.failing) = (None, None, None, None);
                self.responder.set_identity(Some((MemberId::Cpf(m.id), &heartbeats.0)));
                info!(cpf = m.id.0, "this CPF resumed with another CTA");
            }
            (ToCpf::Forgotten, _) => {
                info!("the CTA does not know this CPF: it joins again");
                self.end_membership(now);
                self.cta.attempt_at = now;
            }
            (ToCpf::Command(_) | ToCpf::ListUes { .. }, Some(m)) if m.orphaned.is_some() => {
                self.leave_cta(now, "it sent an unexpected message");
            }
            (ToCpf::CtaReplica(at), Some(m)) => m.cta_replica = at,
            (ToCpf::Taken(messages), Some(m)) => m.end.confirmed(messages),
            (ToCpf::Peers(peers), Some(m)) => m.peers.set(m.id, peers, &mut self.links),
            // This message is not counted by the link: it comes before the membership is complete.
            (ToCpf::Command(CpfCommand::Configure(config)), Some(m)) if m.member.is_none() => {
                self.sandbox.configure(&config);
                let mut member = ReplicatedCpf::new(config);
                let beside = std::env::temp_dir().join("whimbrel-cpf");
                let opened = UeMemory::open(&self.settings.memory, &beside, member.cpf_mut());
                m.memory = opened.map(|(memory, _, _)| memory);
                m.member = Some(member);
            }
            (ToCpf::Command(message), Some(Membership { member: Some(member), end, .. })) => {
                end.took();
                if let CpfCommand::Configure(config) = &message {
                    self.sandbox.configure(config);
                }
                let run = |out: &mut CpfOutbox| self.watchdog.during(|| member.handle(message, out));
                match &mut self.status {
                    Some(status) => status.count_inputs(&mut self.out, run),
                    None => run(&mut self.out),
                }
            }
            (ToCpf::ListUes { ask, which }, Some(Membership { member: Some(member), .. })) => {
                let ues = member.show(which);
                self.send_to_cta(&ToCta::UeList { ask, ues });
            }
            _ => self.leave_cta(now, "it sent an unexpected message"),
        }
    }

    /// The CTA has accepted this CPF.
    fn welcomed(&mut self, now: Instant, life: u64, id: CpfId, heartbeats: &HeartbeatKey, keep: bool) {
        self.membership = Some(Membership {
            since: now,
            life,
            id,
            member: None,
            memory: None,
            keep,
            cta_replica: None,
            end: LinkEnd::default(),
            confirmed: 0,
            listed: None,
            orphaned: None,
            peers: MemberPeers::default(),
        });
        (self.cta.attempted, self.cta.failing) = (None, None);
        self.responder.set_identity(Some((MemberId::Cpf(id), &heartbeats.0)));
        info!(cpf = id.0, "this CPF has joined a CTA");
    }

    /// Sends the member's outputs.
    pub(super) fn deliver(&mut self, now: Instant) {
        for up in std::mem::take(&mut self.out.up) {
            if let CpfReport::CheckpointUnusable { ue, .. } = &up
                && self.peers.log_checkpoints.allows(now, "unreadable")
            {
                warn!(
                    slot = ue.slot,
                    "a UE cannot be served from its checkpoint here, which is missing or not the announced one; the CTA counts further ones"
                );
            }
            self.send_up(up);
        }
        self.confirm_messages();
        self.announce_listing();
        for trial in self.out.trials.drain(..) {
            self.sandbox.run_trial(self.run, trial);
        }
        self.send_to_peers(now);
    }

    /// Sends a counted message to the CTA. It is kept for the CTA that may take over.
    fn send_up(&mut self, up: CpfReport) {
        self.frame.clear();
        ToCta::Report(up).write(&mut self.frame);
        let Some(m) = &mut self.membership else { return };
        if m.keep {
            m.end.sent(self.frame.clone());
        }
        if let (Some(link), None) = (self.cta.link, m.orphaned) {
            self.links.send(link, &self.frame);
        }
    }

    /// Acknowledges received messages to the CTA from time to time, so that it can drop them.
    fn confirm_messages(&mut self) {
        let Some(m) = self.membership.as_mut().filter(|m| m.keep && m.orphaned.is_none()) else { return };
        let taken = m.end.taken();
        if taken >= m.confirmed + CONFIRMED_EVERY {
            m.confirmed = taken;
            self.send_to_cta(&ToCta::Taken(taken));
        }
    }

    /// Sends the CTA the number under which this CPF is registered in etcd, whose list the rings follow.
    fn announce_listing(&mut self) {
        let Some(number) = self.discovery.as_ref().and_then(|d| d.listed) else { return };
        let Some(m) = self.membership.as_mut().filter(|m| m.orphaned.is_none()) else { return };
        if m.listed.replace(number) != Some(number) {
            self.send_to_cta(&ToCta::Listed(number));
        }
    }

    pub(super) fn send_to_cta(&mut self, message: &ToCta) {
        let Some(link) = self.cta.link else { return };
        self.frame.clear();
        message.write(&mut self.frame);
        self.links.send(link, &self.frame);
    }
}

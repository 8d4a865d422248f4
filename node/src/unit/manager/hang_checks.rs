//! Functions that hang: how the manager finds them, and ends them, so that others go on.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tracing::warn;
use whimbrel_user_io::{Beats, ThreadState};

use super::{CHECKED_EVERY, CONNECTED_WITHIN, Manager};
use crate::function::{Function, descriptors};
use crate::unit::records::Records;
use crate::unit::upf_watch::UpfWatch;

/// How long a CTA may take to become the replica: a copy of a hundred thousand UEs takes seconds.
const USED_WITHIN: Duration = Duration::from_secs(60);
/// How long a CTA that another one has replaced may take to end.
const REPLACED_ENDS_WITHIN: Duration = Duration::from_secs(1);
/// Looks in a row at which no beat of a function may be there: ten of them are due in that time.
const SILENT_MAX: u32 = 10;
/// Looks in a row at which the replica of the UPF, which sends no beats while it waits, may be stopped.
const STOPPED_MAX: u32 = 30;

impl Manager {
    /// Watches the packet threads of the UPF, whichever process has them. Errors: one sentence.
    pub(super) fn watch_upf(&self) -> Result<UpfWatch, String> {
        let cannot = |e: std::io::Error| format!("its threads have no memory to show that they live: {e}");
        let until = Instant::now() + CONNECTED_WITHIN;
        while self.runs(Function::Upf)
            && !self.service.keeps(descriptors::UPF_BEATS)
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        let beats = match self.service.duplicate(descriptors::UPF_BEATS) {
            Some(memory) => Beats::of(memory).map_err(cannot)?,
            None => Beats::create().map_err(cannot)?,
        };
        self.service.keep(descriptors::UPF_BEATS, beats.as_fd().try_clone_to_owned().map_err(cannot)?);
        let frames = self.config.data_networks.iter().filter(|network| network.ethernet).count();
        let wake = self.wake.clone();
        let found = move || {
            // A counter at its limit is readable already.
            let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
        };
        UpfWatch::start(beats, self.service.clone(), frames, found)
    }

    /// A UPF of which a packet thread hangs is killed, and its replica goes on.
    pub(super) fn end_hanging_upf(&self) {
        let hangs = self.upf_watch.as_ref().and_then(UpfWatch::take);
        let process = self.functions.get(&Function::Upf).and_then(|m| m.process.as_ref());
        if let Some(process) = process.filter(|p| hangs == u32::try_from(p.run.pid).ok() && hangs.is_some()) {
            process.signal(Signal::KILL);
        }
    }

    /// A CTA that neither serves nor replicates the one that serves hangs, most likely since it served itself: it is killed, so that there is a
    /// replica again, and because no third CTA may continue its associations. One of other code waits as it should.
    pub(super) fn end_hanging_ctas(&mut self) {
        let Some(home) = self.service.records(Records::serving_ctas).filter(|_| self.upgrade.is_none())
        else {
            return;
        };
        let primary = self.service.code_of(Function::Cta(home.primary.cta));
        for (function, member) in &mut self.functions {
            let (Function::Cta(n), Some(process)) = (function, &member.process) else { continue };
            let cta = self.service.records(|records| records.cta(*n));
            member.served |= cta == Some(home.primary);
            let is_used = cta.is_some() && (cta == Some(home.primary) || cta == home.cta_replica);
            if is_used || self.service.code_of(*function) != primary || primary.is_none() {
                member.unused = None;
                continue;
            }
            let since = *member.unused.get_or_insert_with(Instant::now);
            if since.elapsed() >= if member.served { REPLACED_ENDS_WITHIN } else { USED_WITHIN } {
                warn!(%function, process = process.run.pid, "a CTA neither serves nor becomes the replica: it is killed and started again");
                process.signal(Signal::KILL);
                member.unused = None;
            }
        }
    }

    /// A UPF, a CPF or a network function of which no beat comes hangs: it is killed, and its successor goes on in its place. So is a replica of the UPF that is stopped: it sends no
    /// beats. A CTA that hangs is replaced first. The time in which this manager itself does not look does not count.
    pub(super) fn end_silent_functions(&mut self) {
        if self.looked.elapsed() < CHECKED_EVERY {
            return;
        }
        self.looked = Instant::now();
        for (function, member) in &mut self.functions {
            let (
                Function::Upf | Function::UpfReplica | Function::Cpf(_) | Function::Network(..),
                Some(process),
            ) = (function, &member.process)
            else {
                continue;
            };
            let beats = self.service.beats_of(*function);
            let (is_silent, silent_max) = match function {
                Function::UpfReplica => (is_stopped(process.run.pid), STOPPED_MAX),
                // One of an older program sends none.
                _ => (beats == member.beats && beats > 0, SILENT_MAX),
            };
            member.silent = if is_silent { member.silent + 1 } else { 0 };
            member.beats = beats;
            if member.silent >= silent_max {
                warn!(%function, process = process.run.pid, "a function hangs: it is killed and started again");
                process.signal(Signal::KILL);
                member.silent = 0;
            }
        }
    }
}

/// True if a process is stopped (SIGSTOP).
fn is_stopped(process: i32) -> bool {
    u32::try_from(process).is_ok_and(|process| ThreadState::of(process, process) == ThreadState::Stopped)
}

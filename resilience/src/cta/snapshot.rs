//! The CTA's whole state between two inputs, from which a CTA replica continues.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_control::AssociationId;
use whimbrel_control::amf::{Load, RanNodes, Rate};
use whimbrel_control::config::Config;
use whimbrel_control::udm::{Directory, Registrations, Subscribers};
use whimbrel_ids::Instant;

use super::charging::EndedCharging;
use super::cpfs::{Cpfs, Service};
use super::first::Asks;
use super::n14::ArrivedUes;
use super::path_switches::PathSwitches;
use super::questions::Questions;
use super::ran::{Bounds, PendingReset};
use super::remote_amfs::RemoteUes;
use super::removal::Removal;
use super::restart::RestoringUes;
use super::slots::UeSlots;
use super::upfs::Upfs;
use super::{Cta, Entropy, Inspect};

/// All but subscribers, keys and entropy, which each CTA has of its own, the round in search of late backups, and the counts of reached
/// limits.
#[derive(Serialize, Deserialize)]
pub(crate) struct CtaState {
    config: Arc<Config>,
    cpfs: Box<Cpfs>,
    slots: UeSlots,
    ran: RanNodes,
    streams: BTreeMap<AssociationId, u16>,
    registrations: Registrations,
    upfs: Upfs,
    pagings: Rate,
    load: Load,
    ran_due: Option<Instant>,
    asked: Asks,
    path_switches: PathSwitches,
    resetting: Vec<PendingReset>,
    arrivals: ArrivedUes,
    questions: Questions,
    restoring: RestoringUes,
    ended_charging: EndedCharging,
    remote_ues: RemoteUes,
    removal: Option<Removal>,
}

/// The same, borrowed from a CTA that continues.
#[derive(Serialize)]
pub(crate) struct StateOf<'a> {
    config: &'a Arc<Config>,
    cpfs: &'a Cpfs,
    slots: &'a UeSlots,
    ran: &'a RanNodes,
    streams: &'a BTreeMap<AssociationId, u16>,
    registrations: Registrations,
    upfs: &'a Upfs,
    pagings: Rate,
    load: Load,
    ran_due: Option<Instant>,
    asked: &'a Asks,
    path_switches: &'a PathSwitches,
    resetting: &'a [PendingReset],
    arrivals: &'a ArrivedUes,
    questions: &'a Questions,
    restoring: &'a RestoringUes,
    ended_charging: &'a EndedCharging,
    remote_ues: &'a RemoteUes,
    removal: Option<Removal>,
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// Its state. `None` where the UEs run in this process, outside the CTA.
    pub(crate) fn state(&mut self) -> Option<StateOf<'_>> {
        debug_assert!(self.inbox.is_empty(), "between inputs nothing waits to be run");
        let Service::Region(cpfs) = &mut self.service else { return None };
        let cpfs = cpfs.as_it_travels();
        Some(StateOf {
            config: &self.config,
            cpfs,
            slots: &self.slots,
            ran: &self.ran,
            streams: &self.streams,
            registrations: self.directory.registrations(),
            upfs: &self.upfs,
            pagings: self.bounds.pagings,
            load: self.load,
            ran_due: self.ran_due,
            asked: &self.asked,
            path_switches: &self.path_switches,
            resetting: &self.resetting,
            arrivals: &self.arrivals,
            questions: &self.questions,
            restoring: &self.restoring,
            ended_charging: &self.ended_charging,
            remote_ues: &self.remote_ues,
            removal: self.removal,
        })
    }

    /// A CTA that continues from another's state.
    pub(crate) fn from_state(
        state: CtaState,
        mut directory: Directory,
        subscribers: S,
        entropy: E,
        inspect: I,
    ) -> Self {
        directory.follow_from(state.registrations);
        let mut bounds = Bounds::default();
        bounds.pagings = state.pagings;
        Self {
            config: state.config,
            service: Service::Region(state.cpfs),
            slots: state.slots,
            ran: state.ran,
            streams: state.streams,
            directory,
            subscribers,
            entropy,
            outside: Default::default(),
            upfs: state.upfs,
            inspect,
            inbox: Default::default(),
            arrived: Vec::new(),
            bounds,
            load: state.load,
            ran_due: state.ran_due,
            asked: state.asked,
            path_switches: state.path_switches,
            resetting: state.resetting,
            arrivals: state.arrivals,
            questions: state.questions,
            unstored: None,
            restoring: state.restoring,
            ended_charging: state.ended_charging,
            remote_ues: state.remote_ues,
            removal: state.removal,
        }
    }
}

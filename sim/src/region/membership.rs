//! CPFs that join, leave and are replaced, and UEs that move between them.

use std::collections::BTreeSet;

use whimbrel_control::UeId;
use whimbrel_ids::SNssai;
use whimbrel_resilience::cta_replica::LinkEnd;
use whimbrel_resilience::region::{Canary, CanaryUes, CpfState, Region};
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{CodeVersion, Input};

use crate::Sim;

/// A step of a canary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CanaryStep {
    /// So many CPFs of this code version join, for these UEs.
    Begin(u16, CodeVersion, CanaryUes),
    /// It serves other UEs from now on.
    Serve(CanaryUes),
    /// All UEs are its, and the CPFs of the version before are drained.
    Promote,
    /// Its CPFs are drained.
    RollBack,
}

impl Sim {
    /// A UE is to be served by another CPF.
    pub fn move_context(&mut self, ue: UeId, to: CpfId) {
        self.cta_input(Input::Move(ue, to));
    }

    /// All UEs are to move to another CPF each time that these have taken so many messages.
    pub fn move_contexts_every(&mut self, messages: u64) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.unrest = Some(messages);
        }
    }

    pub(super) fn move_contexts(&mut self) {
        let Some(cluster) = &self.control.cluster else { return };
        let members: Vec<CpfId> = cluster.rings().members().collect();
        let ues: Vec<UeId> = self.contexts().map(|p| p.id).collect();
        for ue in ues {
            let at = members.iter().position(|id| self.cta().served_by(ue) == Some(*id));
            if let Some(to) = at.and_then(|at| members.iter().cycle().nth(at + 1)) {
                self.move_context(ue, *to);
            }
        }
    }

    /// A CPF is drained.
    pub fn drain_cpf(&mut self, cpf: CpfId) {
        let Some(cluster) = &mut self.control.cluster else { return };
        cluster.regions.set_state(cpf, CpfState::Draining);
        let rings = cluster.rings();
        self.cta_input(Input::Rings(rings));
    }

    /// Each time that CPFs have run so many inputs, one is drained and another joins.
    pub fn drain_cpfs_every(&mut self, inputs: u64) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.turnover = Some(inputs);
        }
    }

    /// A drained CPF has no UEs any more, and leaves.
    pub(crate) fn cpf_leaves(&mut self, cpf: CpfId) {
        let Some(cluster) = &mut self.control.cluster else { return };
        cluster.vacant.extend(cluster.regions.region_of(cpf).cloned());
        cluster.regions.leave(cpf);
        cluster.members.remove(&cpf);
        cluster.left.push(cpf);
        self.cta_input(Input::CpfLost(cpf));
    }

    /// Those that were drained and have left.
    pub fn left(&self) -> &[CpfId] {
        self.control.cluster.as_ref().map_or(&[], |c| &c.left)
    }

    /// Another CPF joins the region.
    pub fn add_cpf(&mut self) {
        if let Some(home) = self.control.cluster.as_ref().map(|c| c.region.clone()) {
            self.add_cpf_in(&home);
        }
    }

    /// Each CPF that was lost or has left is replaced, and those that were only taken for dead end.
    pub(crate) fn replace_cpfs(&mut self) {
        let Some(cluster) = &mut self.control.cluster else { return };
        let on_rings: BTreeSet<CpfId> = cluster.rings().members().collect();
        cluster.members.retain(|cpf, _| on_rings.contains(cpf));
        cluster.ends.retain(|cpf, _| on_rings.contains(cpf));
        for place in std::mem::take(&mut cluster.vacant) {
            self.add_cpf_in(&place);
        }
    }

    /// Another CPF joins, which serves the UEs of this slice alone. Its number.
    pub fn add_cpf_of_slice(&mut self, slice: SNssai) -> Option<CpfId> {
        let cluster = self.control.cluster.as_mut()?;
        let id = CpfId(cluster.newest + 1);
        if !cluster.slices.contains(&slice) {
            cluster.slices.push(slice);
        }
        cluster.regions.serves_slice(id, Some(slice));
        self.add_cpf();
        Some(id)
    }

    /// Another CPF joins in this region.
    pub fn add_cpf_in(&mut self, place: &Region) {
        let Some(cluster) = &mut self.control.cluster else { return };
        cluster.newest += 1;
        let id = CpfId(cluster.newest);
        cluster.regions.join(id, place).expect("it is new");
        let cpf = cluster.new_member(self.config.clone());
        cluster.members.insert(id, cpf);
        cluster.ends.insert(id, LinkEnd::default());
        cluster.came.insert(id, self.now);
        let rings = cluster.rings();
        self.cta_input(Input::Rings(rings));
    }

    /// When CPFs have taken so many messages, each is replaced by one that runs this code version.
    pub fn upgrade_cpfs_at(&mut self, message: u64, code: CodeVersion) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.upgrade = Some((message, code));
        }
    }

    /// The new CPFs are on the rings from now on, and the former ones are drained.
    pub(super) fn upgrade_cpfs(&mut self, code: CodeVersion) {
        let Some(cluster) = &mut self.control.cluster else { return };
        let former: Vec<CpfId> = cluster.rings().members().collect();
        for cpf in former {
            cluster.regions.set_state(cpf, CpfState::Draining);
            cluster.newest += 1;
            let id = CpfId(cluster.newest);
            cluster.regions.join(id, &cluster.region).expect("it is new");
            cluster.regions.runs(id, code);
            let cpf = cluster.new_member(self.config.clone()).of_code(code);
            cluster.members.insert(id, cpf);
            cluster.ends.insert(id, LinkEnd::default());
        }
        let rings = cluster.rings();
        self.cta_input(Input::Rings(rings));
    }

    /// When CPFs have taken so many messages, a canary takes this step.
    pub fn canary_at(&mut self, message: u64, step: CanaryStep) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.canary_steps.push((message, step));
        }
    }

    /// A canary takes this step.
    pub fn canary(&mut self, step: CanaryStep) {
        let Some(cluster) = &mut self.control.cluster else { return };
        if let CanaryStep::Begin(cpfs, code, ues) = &step {
            cluster.canary = Some(Canary { code: *code, ues: ues.clone() });
            for _ in 0..*cpfs {
                cluster.newest += 1;
                let id = CpfId(cluster.newest);
                cluster.regions.join(id, &cluster.region).expect("it is new");
                cluster.regions.runs(id, *code);
                let cpf = cluster.new_member(self.config.clone()).of_code(*code);
                cluster.members.insert(id, cpf);
                cluster.ends.insert(id, LinkEnd::default());
                cluster.came.insert(id, self.now);
            }
        }
        let Some(canary) = &mut cluster.canary else { return };
        let (code, promoted, rolled_back) =
            (canary.code, step == CanaryStep::Promote, step == CanaryStep::RollBack);
        canary.ues = match step {
            CanaryStep::Begin(_, _, ues) | CanaryStep::Serve(ues) => ues,
            CanaryStep::Promote => CanaryUes::Percent(100),
            CanaryStep::RollBack => CanaryUes::Percent(0),
        };
        let rings = cluster.rings();
        for cpf in rings.members() {
            let is_its = rings.code_of(cpf) == Some(code);
            if is_its && rolled_back || !is_its && promoted {
                cluster.regions.set_state(cpf, CpfState::Draining);
            }
        }
        let rings = cluster.rings();
        self.cta_input(Input::Rings(rings));
    }
}

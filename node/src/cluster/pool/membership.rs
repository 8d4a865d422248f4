//! Which CPFs are on the rings: the members, what etcd lists, and the configuration in force.

use tracing::{info, warn};
use whimbrel_resilience::membership::{ConnectedCpf, CpfRoster};
use whimbrel_resilience::region::{Regions, Rings};
use whimbrel_resilience::replication::CpfId;

use super::{ClusterState, CpfPool, PoolEvent};
use crate::config::Cluster;

impl CpfPool {
    /// The rings of the CPFs that are there.
    pub fn rings(&self) -> Rings {
        let Cluster { region, areas, replicas, slices, .. } = &self.cluster.in_force;
        let rings = self.cluster.regions.rings_with(region, areas.clone(), (*replicas).into());
        let rings = rings.expect("the configuration names none but its own regions");
        let canary = self.cluster.roll.configuration().and_then(|c| c.canary.clone());
        rings.with_canary(canary).with_slices(slices.clone())
    }

    /// Applies what etcd says of CPFs and of the cluster.
    pub(in crate::cluster) fn apply_etcd(&mut self, etcd: CpfRoster) {
        if etcd == self.cluster.etcd {
            return;
        }
        let before = (self.cluster.regions.clone(), self.rings());
        let ClusterState { file, in_force, etcd: known, roll, rejected, .. } = &mut self.cluster;
        let former = std::mem::replace(known, etcd);
        let mut configuration = roll.configuration().cloned();
        if let Some(new) = known.configuration().filter(|c| former.configuration() != Some(c)) {
            match file.under(new) {
                Ok(cluster) => {
                    info!("the cluster configuration from etcd is in force");
                    self.heartbeats.monitor.set_timing(cluster.heartbeat);
                    (*in_force, configuration) = (cluster, Some(new.clone()));
                }
                Err(why) => {
                    *rejected += 1;
                    warn!(
                        "the cluster configuration from etcd is rejected, and the previous one stays in force: {why}"
                    );
                }
            }
        }
        *roll = known.clone().under(configuration);
        for member in self.members.by_id.values_mut() {
            member.seen |= member.listed.is_some_and(|number| roll.lists(number));
        }
        self.send_members();
        self.update_rings_since(before);
    }

    /// Rebuilds the map of regions from the members.
    pub(super) fn rebuild_map(&mut self) {
        let present: Vec<ConnectedCpf<'_>> = (self.members.by_id.iter())
            .map(|(id, m)| ConnectedCpf {
                id: *id,
                region: &m.region,
                code: m.code,
                slice: m.slice,
                leaves: m.draining,
                listed: m.listed.filter(|_| m.seen),
            })
            .collect();
        let map = self.cluster.roll.map(self.cluster.in_force.regions(), &present);
        self.cluster.regions = map.expect("regions are accepted only when they make a map");
    }

    /// Rebuilds the map. Returns whether the rings have changed.
    pub(super) fn update_rings(&mut self) -> bool {
        self.update_rings_since((self.cluster.regions.clone(), self.rings()))
    }

    /// The same, where the configuration has changed too: the regions and rings before that are given.
    fn update_rings_since(&mut self, (known, before): (Regions, Rings)) -> bool {
        self.rebuild_map();
        let rings = self.rings();
        for (id, member) in &mut self.members.by_id {
            member.served |= rings.serves(*id);
        }
        self.show_condition();
        if rings == before {
            return false;
        }
        let changed =
            |cpf: &&CpfId| known.region_of(**cpf).is_some() && rings.serves(**cpf) != before.serves(**cpf);
        for cpf in self.members.by_id.keys().filter(changed) {
            match rings.serves(*cpf) {
                true => info!(cpf = cpf.0, "a CPF is on the rings"),
                false => warn!(cpf = cpf.0, "a CPF is no longer on the rings: its UEs move to other CPFs"),
            }
        }
        self.pool_events.push(PoolEvent::Rings(rings));
        true
    }
}

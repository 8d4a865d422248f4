//! How a CPF finds its CTAs in etcd, and registers there itself.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::{debug, error, info, warn};
use whimbrel_etcd::{Agent, EtcdAccess, MembershipUpdate};
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::membership::{Event, Member, MemberId, MembershipCommand, MembershipSettings};
use whimbrel_resilience::region::Region;
use whimbrel_resilience::replication::CpfId;

use crate::entropy::SystemEntropy;

/// How long its record outlives its connection to etcd. No UE depends on that.
const LEASE: Duration = Duration::from_secs(10);
/// How long etcd may take to delete the record of a CPF that leaves.
const LEAVING: Duration = Duration::from_secs(1);

/// Where CTAs are found.
#[derive(Clone, Debug)]
pub struct AtEtcd {
    /// Addresses of etcd, and credentials.
    pub etcd: EtcdAccess,
    /// The cluster's name in etcd.
    pub name: String,
    /// The number of the pair of CTAs.
    pub home: u16,
}

/// What the thread that watches etcd has found.
#[derive(Default)]
struct DiscoveredRecords {
    /// The primary CTA, and its replica.
    home: Vec<u16>,
    /// The addresses of all CTAs so far. They are kept: a CTA whose record expired may still be alive.
    ctas: BTreeMap<u16, SocketAddr>,
    /// The number under which this CPF is or was registered.
    listed: Option<CpfId>,
    /// It is registered now.
    is_listed: bool,
    /// Another CPF is registered under this number.
    occupied: bool,
    left: bool,
}

/// A CPF's registration in etcd, and its search for CTAs.
pub(super) struct CtaDiscovery {
    at: AtEtcd,
    region: Region,
    address: SocketAddr,
    entropy: SystemEntropy,
    agent: Agent,
    found: Arc<Mutex<DiscoveredRecords>>,
    /// The number under which it is or was registered.
    pub(super) listed: Option<CpfId>,
}

impl CtaDiscovery {
    /// Registers this CPF with its address, and looks for CTAs. Errors: one sentence.
    pub(super) fn start(at: AtEtcd, region: Region, address: SocketAddr) -> Result<Self, String> {
        let mut entropy = SystemEntropy::new()?;
        let found = Arc::new(Mutex::new(DiscoveredRecords::default()));
        let agent = register(&at, &region, address, &mut entropy, found.clone())?;
        Ok(Self { at, region, address, entropy, agent, found, listed: None })
    }

    fn with_found<R>(&self, what: impl FnOnce(&mut DiscoveredRecords) -> R) -> R {
        what(&mut self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The known addresses of the primary CTA and of its replica.
    pub(super) fn ctas(&self) -> Vec<SocketAddr> {
        self.with_found(|h| h.home.iter().filter_map(|cta| h.ctas.get(cta).copied()).collect())
    }

    /// Whether this CPF is registered in etcd now, as far as is known.
    pub(super) fn is_listed(&self) -> bool {
        self.with_found(|h| h.is_listed)
    }

    /// Takes what was found, and registers under another number if another CPF has this one.
    pub(super) fn turn(&mut self) {
        let (occupied, listed) = self.with_found(|h| (std::mem::take(&mut h.occupied), h.listed));
        self.listed = listed;
        if !occupied {
            return;
        }
        match register(&self.at, &self.region, self.address, &mut self.entropy, self.found.clone()) {
            Ok(agent) => self.agent = agent,
            Err(sentence) => warn!("this CPF is not registered in etcd: {sentence}"),
        }
    }

    /// Shows in etcd that this CPF leaves.
    pub(super) fn drain(&self) {
        self.agent.command(MembershipCommand::Drain(true));
    }

    /// Deletes the record, and waits a little for that.
    pub(super) fn leave(self) {
        let until = std::time::Instant::now() + LEAVING;
        self.agent.command(MembershipCommand::Leave);
        while std::time::Instant::now() < until && !self.with_found(|h| h.left) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Registers the CPF under a random number: the number that a CTA gives it is valid within that CTA's life only.
fn register(
    at: &AtEtcd,
    region: &Region,
    address: SocketAddr,
    entropy: &mut SystemEntropy,
    found: Arc<Mutex<DiscoveredRecords>>,
) -> Result<Agent, String> {
    let number = u16::from_ne_bytes(entropy.octets()).max(1);
    let settings = MembershipSettings {
        cluster: at.name.clone(),
        me: MemberId::Cpf(CpfId(number)),
        member: Member {
            region: region.to_string(),
            address,
            draining: false,
            code_version: CodeVersion::own(),
        },
        lease: LEASE,
    };
    let (home, name) = (at.home, super::witness_name(&at.etcd));
    let on_update = move |update: MembershipUpdate<'_>| {
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(home) = update.view.home(home) {
            found.home =
                [Some(home.primary), home.cta_replica].into_iter().flatten().map(|place| place.cta).collect();
        }
        for (id, listed) in update.view.members() {
            if let MemberId::Cta(cta) = id {
                found.ctas.insert(cta, listed.member.address);
            }
        }
        match update.event {
            Event::Joined(_) | Event::Renewed(_) => found.is_listed = true,
            Event::Doubtful(_) | Event::Expelled(_) | Event::Left => found.is_listed = false,
            _ => {}
        }
        match update.event {
            Event::Joined(_) => {
                info!(number, "this CPF is registered in {name}");
                found.listed = Some(CpfId(number));
            }
            Event::Occupied(_) => {
                debug!(number, "another CPF is registered in etcd under this number: this one draws another");
                found.occupied = true;
            }
            Event::Unreachable(why) if found.ctas.is_empty() => warn!(
                "{name} does not answer: {why}; until it does (`--etcd`), no CTA is known except those of `--cta`"
            ),
            Event::Unreachable(why) => {
                warn!("{name} does not answer: {why}; the CTAs known so far are used");
            }
            Event::Replaced => {
                error!(
                    "{name} has lost its data, or is another one: what it holds now is not used; see docs/cluster.md"
                )
            }
            Event::Left => found.left = true,
            _ => {}
        }
    };
    Agent::start(settings, &at.etcd, on_update).map_err(|e| format!("--etcd: {e}"))
}

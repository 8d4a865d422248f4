//! How a CPF finds its CTAs at etcd, and is listed there itself.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::{debug, error, info, warn};
use whimbrel_etcd::{Access, Agent, MembershipUpdate};
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::membership::{Command, Event, Member, MemberId, Settings};
use whimbrel_resilience::region::Region;
use whimbrel_resilience::replication::CpfId;

use crate::entropy::SystemEntropy;

/// How long it stays listed without being heard by etcd: nobody serves or is taken over because of it.
const LEASE: Duration = Duration::from_secs(10);
/// How long etcd has to take note of one that leaves.
const LEAVING: Duration = Duration::from_secs(1);

/// Where CTAs are found.
#[derive(Clone, Debug)]
pub(crate) struct AtEtcd {
    /// Where etcd is reached.
    pub(crate) etcd: Access,
    /// Name of the cluster there.
    pub(crate) name: String,
    /// Whose CTAs are looked for.
    pub(crate) home: u16,
}

/// What the thread that speaks with etcd has heard.
#[derive(Default)]
struct Heard {
    /// The one that serves, and its CTA replica.
    home: Vec<u16>,
    /// Where CTAs are or were reached. They stay: one that etcd does not hear is no dead one.
    ctas: BTreeMap<u16, SocketAddr>,
    /// It is listed itself under this number, or was.
    listed: Option<CpfId>,
    /// It is just now.
    is_listed: bool,
    /// Another CPF is listed under this number.
    occupied: bool,
    left: bool,
}

/// A CPF's place at etcd.
pub(super) struct CtaDiscovery {
    at: AtEtcd,
    region: Region,
    address: SocketAddr,
    entropy: SystemEntropy,
    agent: Agent,
    heard: Arc<Mutex<Heard>>,
    /// The number under which it is listed, or was.
    pub(super) listed: Option<CpfId>,
}

impl CtaDiscovery {
    /// Has this CPF listed, as reached at this address, and looks for CTAs. Errors: one sentence.
    pub(super) fn start(at: AtEtcd, region: Region, address: SocketAddr) -> Result<Self, String> {
        let mut entropy = SystemEntropy::new()?;
        let heard = Arc::new(Mutex::new(Heard::default()));
        let agent = list(&at, &region, address, &mut entropy, heard.clone())?;
        Ok(Self { at, region, address, entropy, agent, heard, listed: None })
    }

    fn heard<R>(&self, what: impl FnOnce(&mut Heard) -> R) -> R {
        what(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where the CTA that serves is reached, and then its CTA replica, as far as is known.
    pub(super) fn ctas(&self) -> Vec<SocketAddr> {
        self.heard(|h| h.home.iter().filter_map(|cta| h.ctas.get(cta).copied()).collect())
    }

    /// Whether etcd lists it just now, as far as is known.
    pub(super) fn is_listed(&self) -> bool {
        self.heard(|h| h.is_listed)
    }

    /// Takes what was heard; and another number, if another CPF has this one's.
    pub(super) fn turn(&mut self) {
        let (occupied, listed) = self.heard(|h| (std::mem::take(&mut h.occupied), h.listed));
        self.listed = listed;
        if !occupied {
            return;
        }
        match list(&self.at, &self.region, self.address, &mut self.entropy, self.heard.clone()) {
            Ok(agent) => self.agent = agent,
            Err(sentence) => warn!("this CPF is not registered in etcd: {sentence}"),
        }
    }

    /// It is on its way out: those who look at etcd see so.
    pub(super) fn drains(&self) {
        self.agent.command(Command::Drain(true));
    }

    /// Leaves in order. Waits a little for etcd to take note.
    pub(super) fn leave(self) {
        let until = std::time::Instant::now() + LEAVING;
        self.agent.command(Command::Leave);
        while std::time::Instant::now() < until && !self.heard(|h| h.left) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Lists the CPF under a number that is drawn: the one that a CTA gives it is of that CTA's life.
fn list(
    at: &AtEtcd,
    region: &Region,
    address: SocketAddr,
    entropy: &mut SystemEntropy,
    heard: Arc<Mutex<Heard>>,
) -> Result<Agent, String> {
    let number = u16::from_ne_bytes(entropy.octets()).max(1);
    let settings = Settings {
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
    let home = at.home;
    let told = move |told: MembershipUpdate<'_>| {
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(home) = told.view.home(home) {
            heard.home =
                [Some(home.primary), home.cta_replica].into_iter().flatten().map(|place| place.cta).collect();
        }
        for (id, listed) in told.view.members() {
            if let MemberId::Cta(cta) = id {
                heard.ctas.insert(cta, listed.member.address);
            }
        }
        match told.event {
            Event::Joined(_) | Event::Renewed(_) => heard.is_listed = true,
            Event::Doubtful(_) | Event::Expelled(_) | Event::Left => heard.is_listed = false,
            _ => {}
        }
        match told.event {
            Event::Joined(_) => {
                info!(number, "this CPF is registered in etcd");
                heard.listed = Some(CpfId(number));
            }
            Event::Occupied(_) => {
                debug!(number, "another CPF is registered in etcd under this number: this one draws another");
                heard.occupied = true;
            }
            Event::Unreachable(why) if heard.ctas.is_empty() => warn!(
                "etcd does not answer: {why}; until it does (`--etcd`), no CTA is known except those of `--cta`"
            ),
            Event::Unreachable(why) => {
                warn!("etcd does not answer: {why}; the CTAs known so far are used");
            }
            Event::Replaced => {
                error!(
                    "etcd has lost its data, or is another one: what it holds now is not used; see docs/cluster.md"
                )
            }
            Event::Left => heard.left = true,
            _ => {}
        }
    };
    Agent::start(settings, &at.etcd, told).map_err(|e| format!("--etcd: {e}"))
}

//! What processes send to the manager of a unit, and what it answers. The first line of a connection is a [`ManagerRequest`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use whimbrel_ids::Supi;
use whimbrel_resilience::membership::EtcdRequest;

/// The first line of a connection.
#[derive(Debug, Serialize, Deserialize)]
pub struct ManagerRequest {
    /// The unit's token.
    pub token: String,
    #[serde(flatten)]
    pub subject: RequestSubject,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestSubject {
    /// A function agrees with the others, as over etcd: [`whimbrel_etcd::LocalRequest`].
    Request(EtcdRequest),
    /// A function is there. Descriptors go both ways over this connection as long as both ends live.
    Hello(Hello),
    /// An operator asks for the functions: a [`UnitStatus`].
    Status {},
    /// An operator replaces the functions by this program, one after the other. Lines of text until it is done.
    Upgrade { program: PathBuf },
    /// An operator has the control functions restarted one after the other. Lines of text until it is done.
    RestartControl {},
    /// An operator orders something about a canary. Lines of text until it is done.
    Canary(CanaryOrder),
}

/// A function, and the descriptors that come with this line.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    pub function: String,
    /// The code that it runs.
    pub code: String,
    pub descriptors: Descriptors,
    /// True if the process can use shared memory with one area for each process.
    #[serde(default)]
    pub areas: bool,
}

/// The names of the descriptors that come with a line, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptors(pub Vec<String>);

/// The functions of a unit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnitStatus {
    pub manager: i32,
    pub functions: Vec<FunctionStatus>,
    /// Descriptors that are kept for the functions.
    pub descriptors: Vec<String>,
    /// Connections, descriptors and requests that were refused.
    pub refused: u64,
    /// The manager is about to replace itself.
    pub renews: bool,
    /// The canary under way.
    #[serde(default)]
    pub canary: Option<CanaryStatus>,
    /// What became of the last one.
    #[serde(default)]
    pub last_canary: Option<String>,
}

/// A function as `whimbrel unit` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionStatus {
    pub name: String,
    /// `None`: it does not run.
    pub pid: Option<i32>,
    /// primary, replica, running, starting or given-up.
    pub state: String,
    /// The code that it runs, once it has connected to the manager.
    pub code: String,
    /// How often it has ended unasked.
    pub ended: u64,
    pub up_s: u64,
}

/// The UEs of a canary, as an operator names them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// So many of a hundred.
    Percent(u8),
    /// The UEs of this list.
    Ues(Vec<Supi>),
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent} % of UEs"),
            Self::Ues(ues) => write!(f, "{} listed UEs", ues.len()),
        }
    }
}

/// What an operator orders.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CanaryOrder {
    /// Begin one with this program.
    Begin { program: PathBuf, share: Share },
    /// Give it other UEs.
    Share(Share),
    /// Replace all functions by its program.
    Promote {},
    /// The canary is rolled back.
    RollBack {},
}

/// A canary as operators see it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CanaryStatus {
    pub program: PathBuf,
    pub code: String,
    pub share: Share,
    /// Begin of the canary, as RFC 3339 writes it.
    pub since: String,
    pub phase: Phase,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Its CPFs start.
    Starts,
    /// It serves its UEs.
    Serves,
    /// All functions are replaced by its program.
    IsPromoted,
    /// Its UEs move to the other CPFs.
    IsRolledBack,
}

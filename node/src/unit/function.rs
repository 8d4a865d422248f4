//! The functions of a unit, and what each needs of the configuration.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use whimbrel_etcd::{Access, LocalAccess};

use super::directory::Directory;
use crate::config::{Config, PairOf, SharedHost, Upf};

/// Name of the cluster among the manager's records, and number of its pair of CTAs.
pub const CLUSTER: &str = "unit";
pub const HOME: u16 = 1;
/// Lease of a record, which ends when its process does: the time has no meaning.
const LEASE: Duration = Duration::from_secs(60);

/// The variable that has the number of a function's areas. It is no argument, because a program of another version refuses arguments that it does
/// not know.
pub(super) const AREA: &str = "WHIMBREL_UNIT_AREA";

/// A function of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Function {
    /// The UPF of the unit.
    Upf,
    /// The process that becomes the UPF when that one ends.
    UpfReplica,
    /// One of the two CTAs, by its number.
    Cta(u16),
    /// A CPF, by its number within the unit.
    Cpf(u16),
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Upf => f.write_str("upf"),
            Self::UpfReplica => f.write_str("upf-replica"),
            Self::Cta(n) => write!(f, "cta-{n}"),
            Self::Cpf(n) => write!(f, "cpf-{n}"),
        }
    }
}

impl FromStr for Function {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("`{text}` is no function of a unit: write upf, cta-1, cta-2 or cpf-1");
        match text {
            "upf" => return Ok(Self::Upf),
            "upf-replica" => return Ok(Self::UpfReplica),
            _ => {}
        }
        let (kind, n) = text.split_once('-').ok_or_else(unknown)?;
        let n = n.parse().map_err(|_| unknown())?;
        match (kind, n) {
            ("cta", 1 | 2) => Ok(Self::Cta(n)),
            ("cpf", 1..) => Ok(Self::Cpf(n)),
            _ => Err(unknown()),
        }
    }
}

/// What the manager gives the functions that it starts.
#[derive(Args, Clone, Debug, Default)]
pub struct FunctionOptions {
    /// This process is that function of a unit. The manager sets it.
    #[arg(long, hide = true, value_name = "NAME", requires = "unit_directory")]
    function: Option<Function>,
    /// The runtime directory of the unit. The manager sets it.
    #[arg(long, hide = true, value_name = "DIRECTORY", requires = "function")]
    unit_directory: Option<PathBuf>,
}

impl FunctionOptions {
    /// What this process is in a unit, if it is in one. Errors: one sentence.
    pub fn place(&self) -> Result<Option<Place>, String> {
        let (Some(function), Some(directory)) = (self.function, &self.unit_directory) else {
            return Ok(None);
        };
        let directory = Directory::of(directory);
        let token = directory.token()?;
        let area = std::env::var(AREA).ok().and_then(|area| area.parse().ok());
        Ok(Some(Place { function, directory, token, area }))
    }

    /// The arguments from which [`Self::place`] reads this.
    pub(super) fn arguments(function: Function, directory: &Path) -> [String; 4] {
        let directory = directory.display().to_string();
        ["--function".into(), function.to_string(), "--unit-directory".into(), directory]
    }
}

/// A process's place in a unit.
#[derive(Clone, Debug)]
pub struct Place {
    pub function: Function,
    pub directory: Directory,
    pub(super) token: String,
    /// The number of its areas of shared memory; `None`: it has none.
    pub(super) area: Option<usize>,
}

impl Place {
    /// How the manager is reached, in etcd's place.
    pub fn access(&self) -> Access {
        let local = LocalAccess { socket: self.directory.socket(), token: self.token.clone() };
        Access { local: Some(local), ..Access::default() }
    }

    /// The configuration of this function: that of the unit, with the addresses between the functions.
    pub fn configure(&self, mut config: Config) -> Config {
        let upf_at = config.unit_upf();
        match self.function {
            Function::Upf | Function::UpfReplica => {
                config.upfs.clear();
            }
            Function::Cta(number) => {
                config.n4.listen = None;
                config.n4.smfs.clear();
                config.upfs = config.upfs();
                let own = config.upfs.iter().position(|upf| upf.address.is_none());
                let upf = own.and_then(|at| u8::try_from(at).ok());
                for upf in config.upfs.iter_mut().filter(|upf: &&mut Upf| upf.address.is_none()) {
                    upf.address = Some(upf_at);
                }
                if number == 2 && !config.unit.replica_n2_addresses.is_empty() {
                    config.n2.addresses = config.unit.replica_n2_addresses.clone();
                }
                let shares_n2 = config.unit.replica_n2_addresses.is_empty();
                let cluster = &mut config.cluster;
                cluster.listen = Some(SocketAddr::new(IpAddr::from([127, 0, 0, 1]), 0));
                cluster.key_file = Some(self.directory.key_file());
                cluster.pair = Some(PairOf {
                    etcd: self.access(),
                    name: CLUSTER.into(),
                    number,
                    home: HOME,
                    lease: LEASE,
                    host: Some(SharedHost { shares_n2, upf }),
                });
            }
            Function::Cpf(_) => {}
        }
        config.place = Some(self.clone());
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(function: Function, yaml: &str) -> Config {
        let config = crate::config::parse(yaml, Path::new("test")).unwrap();
        let place =
            Place { function, directory: Directory::of(Path::new("/run/u")), token: "t".into(), area: None };
        place.configure(config)
    }

    #[test]
    fn names_are_read_as_they_are_written_and_others_refused() {
        for name in ["upf", "upf-replica", "cta-1", "cta-2", "cpf-1", "cpf-17"] {
            assert_eq!(name.parse::<Function>().unwrap().to_string(), name);
        }
        for name in ["", "cta", "cta-0", "cta-3", "cpf-0", "cpf-x", "smf-1", "upf-1"] {
            assert!(name.parse::<Function>().unwrap_err().contains("is no function"), "{name}");
        }
    }

    #[test]
    fn both_ctas_use_the_unit_s_upf_over_n4_and_the_manager_as_their_witness() {
        for n in [1, 2] {
            let config = configured(Function::Cta(n), "");
            assert_eq!(
                config.upfs.iter().map(|u| u.address).collect::<Vec<_>>(),
                [Some("127.0.0.88:8805".parse().unwrap())]
            );
            assert_eq!(config.n4.listen, None);
            let pair = config.cluster.pair.unwrap();
            assert_eq!((pair.number, pair.host), (n, Some(SharedHost { shares_n2: true, upf: Some(0) })));
            assert_eq!(pair.etcd.local.unwrap().socket, Path::new("/run/u/manager"));
        }
    }

    #[test] // it listened at 127.0.0.88, where any program of the host could send in the SMF's name
    fn the_upf_of_a_unit_listens_where_the_configuration_says_so_and_nowhere_else() {
        for function in [Function::Upf, Function::UpfReplica] {
            assert_eq!(configured(function, "").n4.listen, None);
            let listens = "n4: { listen: \"127.0.0.9:8805\" }";
            assert_eq!(configured(function, listens).n4.listen, Some("127.0.0.9:8805".parse().unwrap()));
        }
        let upf = crate::core::user_plane_config(&configured(Function::Upf, ""), 7);
        assert_eq!(upf.n4, IpAddr::from([127, 0, 0, 88]), "its node identity, by which no datagram is sent");
        assert!(upf.heartbeat_interval.is_some(), "it is another process than the SMF");
    }

    #[test]
    fn the_second_cta_has_an_n2_endpoint_of_its_own_only_where_one_is_configured() {
        let yaml = "n2: { addresses: [127.0.0.5] }\nunit: { replica_n2_addresses: [127.0.0.6] }";
        let of = |n| configured(Function::Cta(n), yaml);
        assert_eq!(of(1).n2.addresses, [IpAddr::from([127, 0, 0, 5])]);
        assert_eq!(of(2).n2.addresses, [IpAddr::from([127, 0, 0, 6])]);
        assert_eq!(of(2).cluster.pair.unwrap().host, Some(SharedHost { shares_n2: false, upf: Some(0) }));
    }
}

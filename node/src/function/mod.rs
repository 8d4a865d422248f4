//! What a process of a unit is, and what it has of its manager: its function, the unit's runtime directory,
//! and the descriptors that outlive it.
//!
//! The manager itself, which starts these processes, is in [`unit`](crate::unit).

mod area_names;
pub mod channel;
pub mod descriptors;
pub mod directory;
pub mod messages;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use whimbrel_control::udm::NfType;
use whimbrel_etcd::{EtcdAccess, LocalAccess};

pub use self::area_names::{AreaName, PoolKind, take_areas};
pub use self::directory::UnitDirectory;

/// Name of the cluster among the manager's records, and number of its pair of CTAs.
pub const CLUSTER: &str = "unit";
pub const HOME: u16 = 1;

/// The variable that has the number of a function's areas. It is no argument, because a program of another version refuses arguments that it does
/// not know.
pub const AREA: &str = "WHIMBREL_UNIT_AREA";

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
    /// A network function with a process of its own (`unit.functions`), by its number among those of its kind.
    Network(NfType, u16),
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Upf => f.write_str("upf"),
            Self::UpfReplica => f.write_str("upf-replica"),
            Self::Cta(n) => write!(f, "cta-{n}"),
            Self::Cpf(n) => write!(f, "cpf-{n}"),
            Self::Network(NfType::Udm, n) => write!(f, "udm-{n}"),
            Self::Network(NfType::Pcf, n) => write!(f, "pcf-{n}"),
            Self::Network(NfType::Chf, n) => write!(f, "chf-{n}"),
            Self::Network(NfType::Smf, n) => write!(f, "smf-{n}"),
        }
    }
}

impl FromStr for Function {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "`{text}` is no function of a unit: write upf, cta-1, cta-2, cpf-1, udm-1, pcf-1 or chf-1"
            )
        };
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
            ("udm", 1..) => Ok(Self::Network(NfType::Udm, n)),
            ("pcf", 1..) => Ok(Self::Network(NfType::Pcf, n)),
            ("chf", 1..) => Ok(Self::Network(NfType::Chf, n)),
            _ => Err(unknown()),
        }
    }
}

/// Options with which the manager starts the functions of a unit.
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
    /// The function of a unit that this process is, if it is in one. Errors: one sentence.
    pub fn unit_function(&self) -> Result<Option<UnitFunction>, String> {
        let (Some(function), Some(directory)) = (self.function, &self.unit_directory) else {
            return Ok(None);
        };
        let directory = UnitDirectory::of(directory);
        let token = directory.token()?;
        let area = std::env::var(AREA).ok().and_then(|area| area.parse().ok());
        Ok(Some(UnitFunction { function, directory, token, area }))
    }

    /// The arguments from which [`Self::unit_function`] reads this.
    pub fn arguments(function: Function, directory: &Path) -> [String; 4] {
        let directory = directory.display().to_string();
        ["--function".into(), function.to_string(), "--unit-directory".into(), directory]
    }
}

/// A function of a unit, as the process knows it that is this function.
#[derive(Clone, Debug)]
pub struct UnitFunction {
    pub function: Function,
    pub directory: UnitDirectory,
    token: String,
    /// The number of its areas of shared memory; `None`: it has none.
    area: Option<usize>,
}

impl UnitFunction {
    /// A function without an area of shared memory.
    pub fn new(function: Function, directory: UnitDirectory, token: String) -> Self {
        Self { function, directory, token, area: None }
    }

    /// How the manager is reached, in etcd's place.
    pub fn access(&self) -> EtcdAccess {
        let local = LocalAccess { socket: self.directory.socket(), token: self.token.clone() };
        EtcdAccess { local: Some(local), ..EtcdAccess::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_others_refused() {
        for name in ["upf", "upf-replica", "cta-1", "cta-2", "cpf-1", "cpf-17", "udm-1", "pcf-2", "chf-1"] {
            assert_eq!(name.parse::<Function>().unwrap().to_string(), name);
        }
        for name in ["", "cta", "cta-0", "cta-3", "cpf-0", "cpf-x", "smf-1", "upf-1", "udm-0", "udm"] {
            assert!(name.parse::<Function>().unwrap_err().contains("is no function"), "{name}");
        }
    }
}

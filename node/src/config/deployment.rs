//! The kind of process that a core runs: [`Deployment`], made once from the configuration and the command line.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Config, ListedUpf, PairOf, SharedHost};
use crate::function::{CLUSTER, Function, HOME, UnitFunction};

/// Lease of a CTA's record in a unit, which ends when its process does: the time has no meaning.
const UNIT_LEASE: Duration = Duration::from_secs(60);

/// A command that starts a process of a core.
#[derive(Clone, Debug)]
pub enum CoreCommand {
    /// `whimbrel run`; `as_unit`: with `--unit`.
    Run { as_unit: bool },
    /// `whimbrel upf`; `state`: the file of `--state`.
    Upf { state: Option<PathBuf> },
}

/// The kind of process that a core runs (docs/cluster.md, docs/unit.md). Another kind of process, such as an AMF
/// without an SMF, would be a further variant, with an arm where the program starts and a constructor of the
/// control loop.
#[derive(Clone, Debug, Default)]
pub enum Deployment {
    /// AMF, SMF and UDM, and a UPF unless `upfs` names others: UEs are served in this process.
    #[default]
    Single,
    /// A CTA whose CPFs are processes of their own (`cluster.listen`).
    ClusterCta,
    /// One of the two CTAs of a cluster, of which one is the replica of the other (`cluster.etcd`).
    PairedCta,
    /// The manager of a unit, which starts the unit's functions as processes.
    UnitManager,
    /// A CTA of a unit.
    UnitCta(UnitFunction),
    /// The UPF of a unit.
    UnitUpf(UnitFunction),
    /// The process that becomes the UPF of a unit when that one ends.
    UnitUpfReplica(UnitFunction),
    /// A UPF for SMFs elsewhere; `state`: the file in which it keeps its sessions.
    UpfOnly { state: Option<PathBuf> },
    /// A UPF behind a packet logger (`packet_logger.address`): the one that serves, or its replica.
    UpfBehindLogger,
}

impl Deployment {
    /// The kind of process that this command starts. `function`: what the manager of a unit has started it as;
    /// `file`: where the configuration is from. Errors: one sentence.
    pub fn of(
        command: CoreCommand,
        function: Option<UnitFunction>,
        config: &Config,
        file: Option<&Path>,
    ) -> Result<Self, String> {
        let serves_own_smf = function.is_some() || matches!(command, CoreCommand::Run { .. });
        if config.n4.smf_f_teids && serves_own_smf {
            let file = file.map_or("whimbrel.yaml".into(), |file| file.display().to_string());
            return Err(format!(
                "{file}: `n4.smf_f_teids` is for a UPF of its own (`whimbrel upf`) whose SMFs are of another make, since the SMF of this core leaves F-TEIDs \
                 to the UPF; take it out"
            ));
        }
        match (command, function) {
            (command, Some(function)) => Self::of_function(&command, function),
            (CoreCommand::Run { as_unit }, None) if as_unit || config.unit.enabled => Ok(Self::UnitManager),
            (CoreCommand::Run { .. }, None) => Ok(match &config.cluster {
                cluster if cluster.pair.is_some() => Self::PairedCta,
                cluster if cluster.listen.is_some() => Self::ClusterCta,
                _ => Self::Single,
            }),
            (CoreCommand::Upf { state }, None) => Self::of_upf(state, config, file),
        }
    }

    /// A function of a unit.
    fn of_function(command: &CoreCommand, own: UnitFunction) -> Result<Self, String> {
        match (command, own.function) {
            (CoreCommand::Run { .. }, Function::Cta(_)) => Ok(Self::UnitCta(own)),
            (CoreCommand::Upf { .. }, Function::Upf) => Ok(Self::UnitUpf(own)),
            (CoreCommand::Upf { .. }, Function::UpfReplica) => Ok(Self::UnitUpfReplica(own)),
            (_, other) => Err(format!(
                "--function: this command is not the function {other} of a unit; `whimbrel run` is cta-1 or cta-2, `whimbrel upf` \
                 is upf or upf-replica, and `whimbrel cpf` is a CPF"
            )),
        }
    }

    /// A UPF that is in no unit.
    fn of_upf(state: Option<PathBuf>, config: &Config, file: Option<&Path>) -> Result<Self, String> {
        match (config.packet_logger.address, state) {
            _ if config.n4.listen.is_none() => {
                let file = file.map_or("whimbrel.yaml".into(), |file| file.display().to_string());
                Err(format!(
                    "{file}: no SMF can reach a UPF alone without `n4.listen`; write the address and port on which it takes \
                     PFCP, such as `n4: {{ listen: \"192.0.2.2:8805\" }}`"
                ))
            }
            (Some(_), Some(_)) => {
                Err("a UPF behind a packet logger leaves its sessions to its replica: leave out `--state`"
                    .into())
            }
            (Some(_), None) => Ok(Self::UpfBehindLogger),
            (None, state) => Ok(Self::UpfOnly { state }),
        }
    }

    /// The function of a unit that this process is.
    pub fn unit_function(&self) -> Option<&UnitFunction> {
        match self {
            Self::UnitCta(own) | Self::UnitUpf(own) | Self::UnitUpfReplica(own) => Some(own),
            Self::Single
            | Self::ClusterCta
            | Self::PairedCta
            | Self::UnitManager
            | Self::UpfOnly { .. }
            | Self::UpfBehindLogger => None,
        }
    }

    /// The file in which the UPF of this process keeps its sessions, if it keeps them in one.
    pub fn upf_state(&self) -> Option<PathBuf> {
        match self {
            Self::UpfOnly { state } => state.clone(),
            Self::UnitUpf(own) | Self::UnitUpfReplica(own) => Some(own.directory.upf_state()),
            Self::Single
            | Self::ClusterCta
            | Self::PairedCta
            | Self::UnitManager
            | Self::UnitCta(_)
            | Self::UpfBehindLogger => None,
        }
    }

    /// True if this process has no SMF of its own: SMFs that are other processes reach its UPF.
    pub fn is_upf_alone(&self) -> bool {
        match self {
            Self::UnitUpf(_) | Self::UnitUpfReplica(_) | Self::UpfOnly { .. } | Self::UpfBehindLogger => true,
            Self::Single | Self::ClusterCta | Self::PairedCta | Self::UnitManager | Self::UnitCta(_) => false,
        }
    }
}

impl Config {
    /// The configuration of a process that is this. Functions of a unit get the addresses between them.
    pub fn deployed_as(mut self, deployment: Deployment) -> Self {
        match &deployment {
            Deployment::UnitCta(own) => self.configure_cta(own),
            Deployment::UnitUpf(_) | Deployment::UnitUpfReplica(_) => self.upfs.clear(),
            Deployment::Single
            | Deployment::ClusterCta
            | Deployment::PairedCta
            | Deployment::UnitManager
            | Deployment::UpfOnly { .. }
            | Deployment::UpfBehindLogger => {}
        }
        self.deployment = deployment;
        self
    }

    /// A CTA of a unit reaches the unit's UPF over N4, and the manager in etcd's place.
    fn configure_cta(&mut self, own: &UnitFunction) {
        let Function::Cta(number) = own.function else { return };
        let upf_at = self.unit_upf();
        self.n4.listen = None;
        self.n4.smfs.clear();
        self.upfs = self.upfs();
        let upf = self.upfs.iter().position(|upf| upf.address.is_none());
        let upf = upf.and_then(|at| u8::try_from(at).ok());
        for upf in self.upfs.iter_mut().filter(|upf: &&mut ListedUpf| upf.address.is_none()) {
            upf.address = Some(upf_at);
        }
        let shares_n2 = self.unit.replica_n2_addresses.is_empty();
        if number == 2 && !shares_n2 {
            self.n2.addresses = self.unit.replica_n2_addresses.clone();
        }
        let cluster = &mut self.cluster;
        cluster.listen = Some(SocketAddr::new(IpAddr::from([127, 0, 0, 1]), 0));
        cluster.key_file = Some(own.directory.key_file());
        cluster.pair = Some(PairOf {
            etcd: own.access(),
            name: CLUSTER.into(),
            number,
            home: HOME,
            lease: UNIT_LEASE,
            host: Some(SharedHost { shares_n2, upf }),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::UnitDirectory;

    const RUN: CoreCommand = CoreCommand::Run { as_unit: false };

    fn parsed(yaml: &str) -> Config {
        crate::config::parse(yaml, Path::new("test")).unwrap()
    }

    fn of_unit(function: Function) -> UnitFunction {
        UnitFunction::new(function, UnitDirectory::of(Path::new("/run/u")), "t".into())
    }

    fn configured(function: Function, yaml: &str) -> Config {
        let command = match function {
            Function::Upf | Function::UpfReplica => CoreCommand::Upf { state: None },
            Function::Cta(_) | Function::Cpf(_) | Function::Network(..) => RUN,
        };
        let config = parsed(yaml);
        let deployment = Deployment::of(command, Some(of_unit(function)), &config, None).unwrap();
        config.deployed_as(deployment)
    }

    #[test]
    fn command_line_and_configuration_make_one_deployment() {
        let upf = |state: Option<&str>| CoreCommand::Upf { state: state.map(PathBuf::from) };
        let listen = "n4: { listen: \"127.0.0.9:8805\" }";
        let logger = &format!("{listen}\npacket_logger: {{ address: \"127.0.0.1:7390\" }}");
        let etcd = "n4: { node_id: 192.0.2.1 }\nupfs: [{ name: east, address: \"192.0.2.2:8805\" }]\n\
                    cluster: { listen: \"127.0.0.1:7380\", etcd: [\"http://127.0.0.1:2379\"], cta: 1 }";
        for (command, yaml, expected) in [
            (RUN, "", "Single"),
            (RUN, listen, "Single"),
            (RUN, "cluster: { listen: \"127.0.0.1:7380\" }", "ClusterCta"),
            (RUN, etcd, "PairedCta"),
            (RUN, "unit: { enabled: true }", "UnitManager"),
            (CoreCommand::Run { as_unit: true }, "", "UnitManager"),
            (upf(None), listen, "UpfOnly { state: None }"),
            (upf(Some("/run/s")), listen, "UpfOnly { state: Some(\"/run/s\") }"),
            (
                upf(None),
                "unit: { enabled: true }\nn4: { listen: \"127.0.0.9:8805\" }",
                "UpfOnly { state: None }",
            ),
            (upf(None), logger, "UpfBehindLogger"),
        ] {
            let deployment = Deployment::of(command.clone(), None, &parsed(yaml), None).unwrap();
            assert_eq!(format!("{deployment:?}"), expected, "{command:?} {yaml}");
        }
        let refused = |command, yaml| Deployment::of(command, None, &parsed(yaml), None).unwrap_err();
        assert!(
            refused(upf(None), "")
                .contains("whimbrel.yaml: no SMF can reach a UPF alone without `n4.listen`")
        );
        assert!(refused(upf(Some("/run/s")), logger).contains("leave out `--state`"));
        let smf_f_teids = "n4: { listen: \"127.0.0.9:8805\", smf_f_teids: true }";
        assert!(Deployment::of(upf(None), None, &parsed(smf_f_teids), None).is_ok());
        assert!(
            refused(RUN, smf_f_teids).contains("whimbrel.yaml: `n4.smf_f_teids` is for a UPF of its own")
        );
    }

    #[test]
    fn a_function_is_run_by_its_own_command_alone() {
        let of = |command, function| Deployment::of(command, Some(of_unit(function)), &parsed(""), None);
        let upf = || CoreCommand::Upf { state: None };
        assert!(matches!(of(RUN, Function::Cta(2)), Ok(Deployment::UnitCta(_))));
        assert!(matches!(of(upf(), Function::Upf), Ok(Deployment::UnitUpf(_))));
        assert!(matches!(of(upf(), Function::UpfReplica), Ok(Deployment::UnitUpfReplica(_))));
        for (command, function) in [(RUN, Function::Upf), (RUN, Function::Cpf(1)), (upf(), Function::Cta(1))]
        {
            let refused = of(command, function).unwrap_err();
            assert!(refused.contains(&format!("not the function {function}")), "{refused}");
        }
    }

    #[test]
    fn a_reloaded_configuration_is_that_of_the_same_deployment() {
        let running = configured(Function::Cta(1), "");
        let reloaded = crate::config::in_place_of(&running, parsed("limits: { ues: 70000 }"));
        assert_eq!(reloaded.config.limits.ues, 70_000);
        assert_eq!(reloaded.kept, [""; 0]);
        assert!(matches!(reloaded.config.deployment, Deployment::UnitCta(_)));
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

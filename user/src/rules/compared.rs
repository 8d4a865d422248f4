//! The fields that a session's filters compare, which separate one flow from another.

use super::{PdiFilter, Pdr, SessionKind};

/// Filters from which on it is quicker to remember what a flow has met: `./x bench upf flows` shows it.
const WORTH_MIN: usize = 8;

/// What PDRs and their filters compare besides addresses and protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    /// Some rule asks for names.
    pub(crate) named: bool,
    /// There are enough filters that an answer is worth to be remembered.
    pub(crate) worth: bool,
    pub(crate) ports: bool,
    pub(crate) tos: bool,
    pub(crate) flow_label: bool,
    pub(crate) spi: bool,
    pub(crate) qfi: bool,
}

impl Compared {
    pub(crate) fn of(kind: SessionKind, pdrs: &[Pdr]) -> Self {
        let applications = || pdrs.iter().filter_map(|p| p.application.as_ref());
        let asked = applications().map(|a| a.filters()).sum::<usize>();
        let filters = || pdrs.iter().flat_map(|p| &p.filters);
        Self {
            named: applications().any(|a| a.is_named()),
            worth: kind == SessionKind::Ip && filters().count() + asked >= WORTH_MIN,
            ports: kind == SessionKind::Ip
                && (filters().any(PdiFilter::compares_ports) || applications().next().is_some()),
            tos: filters().any(PdiFilter::compares_tos),
            flow_label: filters().any(PdiFilter::compares_flow_label),
            spi: filters().any(PdiFilter::compares_spi),
            qfi: pdrs.iter().any(|p| p.qfis != 0),
        }
    }
}

//! An application as packets meet it.

use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_classifier::{Classifier, Pdi, Rank, Rule};

use super::index::{ONE_BY_ONE_MAX, key};
use super::{Flow, PdiFilter};
use crate::applications::{self, DomainName, DomainNameProtocol, Pfd};
use crate::state::{Stored, StoredReader, stored};

/// Names that one flow, or one address, is known by.
const NAMES_AT_ONCE: usize = 4;

/// The descriptions, by number, whose names a packet's flow or far end is known by. No number is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names([u32; NAMES_AT_ONCE]);

impl Names {
    pub(crate) const NONE: Self = Self([0; NAMES_AT_ONCE]);

    pub(crate) fn is_empty(self) -> bool {
        self == Self::NONE
    }

    pub(crate) fn has(self, number: u32) -> bool {
        self.0.contains(&number)
    }

    /// One more, unless it is known by as many as are kept.
    pub(crate) fn insert(&mut self, number: u32) {
        if !self.has(number)
            && let Some(place) = self.0.iter_mut().find(|n| **n == 0)
        {
            *place = number;
        }
    }

    pub(crate) fn with(mut self, other: Self) -> Self {
        other.0.into_iter().filter(|n| *n != 0).for_each(|n| self.insert(n));
        self
    }

    /// Its names as a set, where it has one at most. `None` where there are several.
    pub(crate) fn word(self) -> Option<u32> {
        (self.0[1] == 0).then_some(self.0[0])
    }
}

/// A description with names, and perhaps flows that have to be met as well.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedDescription {
    /// No other description has it, but its own later selves.
    number: u32,
    flows: Box<[PdiFilter]>,
    names: Box<[DomainName]>,
}

/// An application, as some rule of a session names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Application {
    pub(crate) id: Box<str>,
    /// No other application of this UPF has it, nor had this one before its descriptions changed.
    pub(crate) number: u32,
    /// Of descriptions by flows alone.
    flows: Flows,
    named: Box<[NamedDescription]>,
}

/// Flows that are asked one after the other, or, where they are many, as a set.
#[derive(Clone, Debug)]
enum Flows {
    Few(Box<[PdiFilter]>),
    Many(Box<[PdiFilter]>, Arc<Classifier>),
}

impl Flows {
    fn of(filters: Box<[PdiFilter]>) -> Self {
        if filters.len() <= ONE_BY_ONE_MAX {
            return Self::Few(filters);
        }
        // As that of a session's rules, the seed need be no secret.
        let mut set = Classifier::new(0);
        for pdi in filters.iter().flat_map(|f| f.conditions(Pdi::default())) {
            if let Some(rule) = Rule::new(Rank::new(0, set.len() as u32), &pdi) {
                set.insert(rule);
            }
        }
        Self::Many(filters, Arc::new(set))
    }

    fn filters(&self) -> &[PdiFilter] {
        match self {
            Self::Few(filters) | Self::Many(filters, _) => filters,
        }
    }

    fn have(&self, flow: &Flow) -> bool {
        match self {
            Self::Few(filters) => filters.iter().any(|f| f.matches(flow)),
            Self::Many(_, set) => set.lookup(&key(flow)).is_some(),
        }
    }
}

impl PartialEq for Flows {
    fn eq(&self, other: &Self) -> bool {
        self.filters() == other.filters()
    }
}

impl Eq for Flows {}

impl Stored for Flows {
    fn store(&self, to: &mut Vec<u8>) {
        (self.filters().len() as u32).store(to);
        self.filters().iter().for_each(|f| f.store(to));
    }
    fn restore(from: &mut StoredReader<'_>) -> Option<Self> {
        Stored::restore(from).map(Self::of)
    }
}

stored!(NamedDescription { number, flows, names });
stored!(Application { id, number, flows, named });

impl Application {
    /// With numbers that `next` gives. A description that `former` has as well keeps its number, so that flows stay known by it.
    pub(crate) fn new(
        definition: &applications::Application,
        former: Option<&Self>,
        mut next: impl FnMut() -> u32,
    ) -> Self {
        let number = next();
        let filters = |p: &Pfd| p.flows.iter().map(|f| f.filter.clone()).collect::<Vec<_>>();
        let (named, by_flows): (Vec<&Pfd>, Vec<_>) =
            definition.pfds.iter().partition(|p| !p.names.is_empty());
        let named = named.into_iter().map(|p| {
            let (flows, names) = (filters(p).into(), p.names.clone().into());
            let known = former.and_then(|f| f.named.iter().find(|n| n.flows == flows && n.names == names));
            NamedDescription { number: known.map_or_else(&mut next, |n| n.number), flows, names }
        });
        let named = named.collect();
        let flows = by_flows.into_iter().flat_map(filters).collect();
        Self { id: definition.id.clone(), number, flows: Flows::of(flows), named }
    }

    /// One that no packet is of: its descriptions have gone.
    pub(crate) fn nothing(id: &str, number: u32) -> Self {
        Self { id: id.into(), number, flows: Flows::Few([].into()), named: [].into() }
    }

    /// Writes its definition into a record.
    pub(crate) fn store_definition(&self, to: &mut Vec<u8>) {
        self.store(to);
    }

    /// Whether it has names to be listened for.
    pub(crate) fn is_named(&self) -> bool {
        !self.named.is_empty()
    }

    /// How many filters may be asked.
    pub(crate) fn filters(&self) -> usize {
        self.flows.filters().len() + self.named.iter().map(|n| n.flows.len().max(1)).sum::<usize>()
    }

    /// Whether a packet is of it, of a flow known by these names.
    pub(crate) fn has(&self, flow: &Flow, names: Names) -> bool {
        let by_name = |n: &NamedDescription| {
            names.has(n.number) && (n.flows.is_empty() || n.flows.iter().any(|f| f.matches(flow)))
        };
        self.flows.have(flow) || !names.is_empty() && self.named.iter().any(by_name)
    }

    /// The descriptions that a name, in lower case, is one of.
    pub(crate) fn of_name(&self, name: &[u8], protocol: DomainNameProtocol, found: &mut Names) {
        let has = |n: &&NamedDescription| n.names.iter().any(|d| d.is_of(protocol) && d.has(name));
        self.named.iter().filter(has).for_each(|n| found.insert(n.number));
    }
}

/// The applications that rules may name.
#[derive(Debug, Default)]
pub(crate) struct KnownApplications {
    all: BTreeMap<Box<str>, KnownApplication>,
    /// The last number that was given.
    number: u32,
}

/// Sources of an application's definition. An SMF's PFDs replace the configuration's until it removes them.
#[derive(Debug, Default)]
struct KnownApplication {
    configured: Option<Arc<Application>>,
    /// By its association.
    provisioned: Option<(u32, Arc<Application>)>,
}

impl KnownApplication {
    fn present(&self) -> Option<&Arc<Application>> {
        self.provisioned.as_ref().map(|(_, a)| a).or(self.configured.as_ref())
    }
}

impl KnownApplications {
    pub(crate) fn new(configured: &[applications::Application]) -> Self {
        let mut known = Self::default();
        for definition in configured {
            let application = Application::new(definition, None, || known.next());
            known.all.entry(definition.id.clone()).or_default().configured = Some(Arc::new(application));
        }
        known
    }

    fn next(&mut self) -> u32 {
        // Four thousand million changes of descriptions are not had.
        self.number = self.number.wrapping_add(1).max(1);
        self.number
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<Application>> {
        self.all.get(id)?.present().cloned()
    }

    /// The same; where there is none any more, one that no packet is of.
    pub(crate) fn now(&mut self, id: &str) -> Arc<Application> {
        self.get(id).unwrap_or_else(|| Arc::new(Application::nothing(id, self.next())))
    }

    /// What an SMF says of an application from now on.
    pub(crate) fn provision(&mut self, association: u32, definition: &applications::Application) {
        let former = self.get(&definition.id);
        let application = Arc::new(Application::new(definition, former.as_deref(), || self.next()));
        self.all.entry(definition.id.clone()).or_default().provisioned = Some((association, application));
    }

    /// Definitions of applications by SMFs, each with its association.
    pub(crate) fn by_smfs(&self) -> impl Iterator<Item = &(u32, Arc<Application>)> {
        self.all.values().filter_map(|known| known.provisioned.as_ref())
    }

    /// The same, restored.
    pub(crate) fn restore(&mut self, association: u32, mut application: Application) {
        // The operator's definitions have numbers of this process.
        application.number = self.next();
        application.named.iter_mut().for_each(|n| n.number = self.next());
        let id = application.id.clone();
        self.all.entry(id).or_default().provisioned = Some((association, Arc::new(application)));
    }

    /// Removes the PFDs of an application that SMFs have provisioned. Whether there were any.
    pub(crate) fn remove(&mut self, id: &str) -> bool {
        let Some(known) = self.all.get_mut(id) else { return false };
        let had = known.provisioned.take().is_some();
        self.all.retain(|_, known| known.present().is_some());
        had
    }

    /// The applications with PFDs of SMFs: of one association, or of any.
    pub(crate) fn provisioned(&self, by: Option<u32>) -> Vec<Box<str>> {
        let of = |known: &KnownApplication| {
            known.provisioned.as_ref().is_some_and(|(a, _)| by.is_none_or(|by| by == *a))
        };
        self.all.iter().filter(|(_, known)| of(known)).map(|(id, _)| id.clone()).collect()
    }
}

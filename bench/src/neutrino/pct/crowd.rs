//! How long phones wait for the core while so many others want the same of it: what applications feel.

use whimbrel_sim::Rng;

use super::Options;
use super::deployment::Deployment;
use super::load::{Procedure, Times, uniform};
use super::scheme::Scheme;
use super::sweep::ready;

/// For so long phones begin: more a second than the core can do queue up meanwhile.
pub(super) const WINDOW_S: f64 = 0.1;

/// What the phones of a crowd met with.
pub(super) struct Crowd {
    /// How long each waited.
    pub(super) times: Times,
    /// How many could not send a packet through the UPF to the data network afterwards.
    pub(super) cut_off: usize,
}

/// How many phones that many a second are.
pub(super) fn size(options: &Options, per_s: f64) -> u32 {
    if options.quick { options.phones() } else { (per_s * WINDOW_S) as u32 }
}

/// So many phones a second do something, for as long as a crowd does. Of `most` phones where each can do it again, and else of as many as it takes.
pub(super) fn crowd(
    kept: &mut Option<Deployment>,
    (scheme, procedure): (Scheme, Procedure),
    options: &Options,
    (per_s, most): (f64, u32),
) -> Crowd {
    let count = size(options, per_s);
    let again = procedure == Procedure::ServiceRequest;
    if !again {
        *kept = None;
    }
    let phones = if again { most } else { count };
    let region = kept.get_or_insert_with(|| ready(scheme, procedure, phones));
    region.hop_ns = options.hop_ns();
    if again {
        region.release_all();
    }
    let begins = uniform(&mut Rng::new(3), 0..phones, count, per_s);
    region.measure(procedure, &begins, &[]);
    let times = region.progress.times();
    let cut_off = begins.iter().filter(|(_, phone)| !region.reaches_network(*phone)).count();
    Crowd { times, cut_off }
}

//! UEs that all want something of the core within a short time, and what the applications of some of them feel of it.

use whimbrel_sim::Rng;

use super::Options;
use super::apps::App;
use super::deployment::Deployment;
use super::load::{Procedure, uniform};

/// For so long UEs begin: more a second than the core can do queue up meanwhile.
pub(super) const WINDOW_S: f64 = 0.1;

/// How many UEs that many a second are.
pub(super) fn size(options: &Options, per_s: f64) -> u32 {
    if options.quick { options.ues() } else { (per_s * WINDOW_S) as u32 }
}

/// So many of a region's UEs a second do something, for as long as a crowd does. `app`: what runs on a UE from then on, and how many
/// nanoseconds after it begins. Gives what became of the applications.
pub(super) fn crowd(
    region: &mut Deployment,
    procedure: Procedure,
    options: &Options,
    (per_s, seed): (f64, u64),
    app: impl Fn(u32) -> Option<(u64, App)>,
) -> Vec<(u32, App)> {
    region.hop_ns = options.hop_ns();
    let begins = uniform(&mut Rng::new(seed), 0..region.ues(), size(options, per_s), per_s);
    for &(at, ue) in &begins {
        if let Some((after, app)) = app(ue) {
            region.install(ue, at + after, app);
        }
    }
    region.measure(procedure, &begins, &[]);
    region.uninstall().collect()
}

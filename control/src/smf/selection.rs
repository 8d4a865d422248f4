//! Which UPF gets a session: TS 23.501 §6.3.3.3, TS 23.502 §4.3.2.2.1 step 8.
//!
//! Areas, priority and weight of UPFs are configured; availability and load are in each envelope, so that a replay
//! selects the same UPF.

use whimbrel_ids::{Dnn, PduSessionId, SNssai, Tac};

use crate::config::{Config, Upf};
use crate::procedure::Ue;
use crate::refusal::{Refusal, UPF_CONGESTED};
use crate::upf::{UPFS_MAX, UpfId, UpfState, UpfStates};

/// UPFs that have refused, a bit each.
#[derive(Default)]
pub(super) struct TriedUpfs(u16);

impl TriedUpfs {
    pub(super) fn insert(&mut self, upf: UpfId) {
        self.0 |= 1u16.checked_shl(upf.0.into()).unwrap_or(0);
    }

    fn contains(&self, upf: UpfId) -> bool {
        self.0.checked_shr(upf.0.into()).unwrap_or(0) & 1 == 1
    }
}

/// The properties of the session.
struct Wish<'a> {
    slice: SNssai,
    dnn: &'a Dnn,
    tac: Option<Tac>,
    emergency: bool,
}

/// The UPF for a new session. Errors: no UPF serves it; those that do are not connected, or are overloaded.
pub(super) fn choose(ue: Ue, psi: PduSessionId, tried: &TriedUpfs) -> Result<UpfId, Refusal> {
    let config = ue.config();
    let (upfs, states) = (&config.smf.upfs, ue.upfs());
    if let ([_], UpfState { usable: true, reduction: 0, .. }) = (upfs.as_slice(), states.get(UpfId(0)))
        && tried.0 == 0
        && upfs.iter().all(serves_all)
    {
        return Ok(UpfId(0)); // the common case
    }
    let (random, tac) = (ue.random(), ue.amf().ue_state(ue).tai.map(|t| t.tac));
    ue.with(|p| {
        let s = p.sessions.get(&psi).ok_or(Refusal::Protocol("the session ended"))?;
        let wish = Wish { slice: s.s_nssai, dnn: &s.dnn, tac, emergency: s.emergency };
        among(upfs, &states, &wish, tried, random)
    })
}

/// An intermediate UPF for a session in this tracking area (TS 23.502 §4.9.1.2.3 step 2). `None`: no UPF is configured for the area.
/// Errors: those that are cannot be used.
pub(super) fn choose_intermediate(
    ue: Ue,
    psi: PduSessionId,
    tac: Tac,
    tried: &TriedUpfs,
) -> Result<Option<UpfId>, Refusal> {
    let config = ue.config();
    let (upfs, states, random) = (&config.smf.upfs, ue.upfs(), ue.random());
    ue.with(|p| {
        let s = p.sessions.get(&psi).ok_or(Refusal::Protocol("the session ended"))?;
        let wish = Wish { slice: s.s_nssai, dnn: &s.dnn, tac: Some(tac), emergency: s.emergency };
        if !upfs.iter().any(|upf| serves(upf, &wish)) {
            return Ok(None);
        }
        among(upfs, &states, &wish, tried, random).map(Some)
    })
}

fn serves_all(upf: &Upf) -> bool {
    upf.slices.is_empty() && upf.dnns.is_empty() && upf.tacs.is_empty()
}

fn serves(upf: &Upf, wish: &Wish<'_>) -> bool {
    let area = |tac| upf.tacs.contains(&tac);
    (upf.slices.is_empty() || upf.slices.contains(&wish.slice))
        && (upf.dnns.is_empty() || upf.dnns.contains(wish.dnn))
        && (upf.tacs.is_empty() || wish.tac.is_some_and(area))
}

/// A slice, data network and tracking area that this UPF serves and no other usable one does: sessions there could not be set up without it.
pub fn served_by_none_but(config: &Config, states: &UpfStates, upf: UpfId) -> Option<(SNssai, Dnn, Tac)> {
    let upfs = &config.smf.upfs;
    let here = upfs.get(usize::from(upf.0))?;
    let others: Vec<&Upf> = (0u8..)
        .map(UpfId)
        .zip(upfs)
        .filter(|(id, _)| *id != upf && states.get(*id).usable)
        .map(|(_, upf)| upf)
        .collect();
    let dnns = || config.smf.data_networks.keys();
    let places = config.amf.slices.iter().flat_map(|slice| {
        dnns().flat_map(move |dnn| config.amf.tacs.iter().map(move |tac| (*slice, dnn, *tac)))
    });
    let alone = |(slice, dnn, tac): &(SNssai, &Dnn, Tac)| {
        let wish = Wish { slice: *slice, dnn, tac: Some(*tac), emergency: false };
        serves(here, &wish) && !others.iter().any(|upf| serves(upf, &wish))
    };
    places.into_iter().find(alone).map(|(slice, dnn, tac)| (slice, dnn.clone(), tac))
}

/// Among the usable UPFs that serve the session, those with the lowest priority value; among these a random one, by
/// weight and load.
fn among(
    upfs: &[Upf],
    states: &UpfStates,
    wish: &Wish<'_>,
    tried: &TriedUpfs,
    random: [u8; 16],
) -> Result<UpfId, Refusal> {
    let ids = (0u8..).map(UpfId).zip(upfs);
    let there = ids.filter(|(id, upf)| serves(upf, wish) && states.get(*id).usable && !tried.contains(*id));
    // TS 29.244 §6.2.4.3.2: a UPF in overload does not get a random part of the requests, except those with priority.
    let mut spared = false;
    let mut candidates: [Option<(UpfId, &Upf)>; UPFS_MAX] = [None; UPFS_MAX];
    for ((id, upf), (drawn, place)) in there.zip(random.iter().zip(&mut candidates)) {
        let kept_away = u32::from(*drawn) * 100 < u32::from(states.get(id).reduction) * 256;
        if kept_away && !wish.emergency {
            spared = true;
        } else {
            *place = Some((id, upf));
        }
    }
    let candidates = || candidates.iter().flatten();
    let best = candidates().map(|(_, upf)| upf.priority).min();
    let best = || candidates().filter(|(_, upf)| Some(upf.priority) == best);
    let weight = |(id, upf): &(UpfId, &Upf)| {
        // A fully loaded one keeps a small weight, for the case that all are.
        u64::from(upf.weight).max(1) * u64::from(101 - states.get(*id).load.min(100))
    };
    let total: u64 = best().map(weight).sum();
    let Some(drawn) =
        u64::from_be_bytes([8, 9, 10, 11, 12, 13, 14, 15].map(|i: usize| random[i])).checked_rem(total)
    else {
        return Err(Refusal::Upf(spared.then_some(UPF_CONGESTED)));
    };
    let mut passed = 0;
    let chosen = best().find(|c| {
        passed += weight(c);
        drawn < passed
    });
    chosen.map(|(id, _)| *id).ok_or(Refusal::Upf(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prf::Prf;

    fn upf(name: &str) -> Upf {
        Upf { name: name.into(), ..Upf::default() }
    }

    fn dnn(name: &str) -> Dnn {
        name.parse().unwrap()
    }

    fn tac(n: u32) -> Tac {
        Tac::new(n).unwrap()
    }

    /// How often each is selected in a thousand attempts.
    fn chosen(upfs: &[Upf], states: &UpfStates, emergency: bool) -> (Vec<u32>, u32) {
        let internet = dnn("internet");
        let wish = Wish { slice: SNssai::sst(1), dnn: &internet, tac: Some(tac(1)), emergency };
        let (mut counts, mut refused) = (vec![0; upfs.len()], 0);
        for n in 0..1000u128 {
            match among(upfs, states, &wish, &TriedUpfs::default(), Prf::new(&[5; 16]).block(n)) {
                Ok(id) => counts[usize::from(id.0)] += 1,
                Err(_) => refused += 1,
            }
        }
        (counts, refused)
    }

    #[test] // TS 23.501 §6.3.3: by slice, data network and area
    fn a_upf_that_does_not_serve_the_session_is_not_selected() {
        let other = |change: fn(&mut Upf)| {
            let mut other = upf("other");
            change(&mut other);
            chosen(&[other, upf("all")], &UpfStates::ALL_USABLE, false)
        };
        assert_eq!(other(|u| u.slices = vec![SNssai::sst(2)]).0, [0, 1000]);
        assert_eq!(other(|u| u.dnns = vec![dnn("ims")]).0, [0, 1000]);
        assert_eq!(other(|u| u.tacs = vec![tac(2), tac(3)]).0, [0, 1000]);
        let only = Upf { dnns: vec![dnn("ims")], ..upf("ims") };
        assert_eq!(chosen(&[only], &UpfStates::ALL_USABLE, false), (vec![0], 1000));
    }

    #[test] // TS 23.501 §6.3.3: an unavailable one is not selected
    fn a_upf_without_association_is_not_selected() {
        let upfs = [Upf { priority: 0, ..upf("near") }, Upf { priority: 1, ..upf("far") }];
        let mut states = UpfStates::ALL_USABLE;
        assert_eq!(chosen(&upfs, &states, false).0, [1000, 0]);
        states.set(UpfId(0), UpfState::default());
        assert_eq!(chosen(&upfs, &states, false).0, [0, 1000]);
        assert_eq!(chosen(&upfs, &UpfStates::default(), false).1, 1000);
    }

    #[test] // TS 23.501 §6.3.3: by weight, and by load (TS 29.244 §6.2.3)
    fn sessions_are_distributed_by_weight_and_load() {
        let upfs = [Upf { weight: 300, ..upf("big") }, Upf { weight: 100, ..upf("small") }];
        let mut states = UpfStates::ALL_USABLE;
        let (counts, _) = chosen(&upfs, &states, false);
        assert!((700..800).contains(&counts[0]), "{counts:?}");
        // 3 parts of 11 against 1 of 101: the small one takes three quarters.
        states.set(UpfId(0), UpfState { usable: true, load: 90, reduction: 0 });
        let (counts, _) = chosen(&upfs, &states, false);
        assert!((200..300).contains(&counts[0]), "{counts:?}");
        // All are full: they share equally.
        for id in [UpfId(0), UpfId(1)] {
            states.set(id, UpfState { usable: true, load: 100, reduction: 0 });
        }
        assert_eq!(chosen(&upfs, &states, false).1, 0);
    }

    #[test] // TS 29.244 §6.2.4: the requested part of a UPF in overload goes to another UPF, or is refused; emergencies are not reduced
    fn a_upf_in_overload_gets_fewer_sessions() {
        let mut states = UpfStates::ALL_USABLE;
        states.set(UpfId(0), UpfState { usable: true, load: 0, reduction: 40 });
        let (counts, refused) = chosen(&[upf("only")], &states, false);
        assert!((350..450).contains(&refused) && counts[0] + refused == 1000, "{refused}");
        assert_eq!(chosen(&[upf("only")], &states, true), (vec![1000], 0));
        let upfs = [upf("first"), Upf { priority: 9, ..upf("second") }];
        let (counts, refused) = chosen(&upfs, &states, false);
        assert!((350..450).contains(&counts[1]) && refused == 0, "{counts:?}");
    }

    #[test] // before a UPF is drained, the operator learns which sessions no other one can have
    fn a_place_that_one_upf_alone_serves_is_found() {
        let mut config = crate::ue_harness::config();
        (config.amf.slices, config.amf.tacs) = (vec![SNssai::sst(1)], vec![tac(1), tac(2)]);
        let networks = ["ims", "internet"].map(|name| (dnn(name), Default::default()));
        config.smf.data_networks = networks.into_iter().collect();
        config.smf.upfs =
            vec![upf("all"), Upf { tacs: vec![tac(1)], dnns: vec![dnn("internet")], ..upf("near") }];
        let mut states = UpfStates::ALL_USABLE;
        let alone = |config: &Config, states: &UpfStates| served_by_none_but(config, states, UpfId(0));
        assert_eq!(alone(&config, &states), Some((SNssai::sst(1), dnn("ims"), tac(1))));
        config.smf.upfs[1].dnns.clear();
        assert_eq!(alone(&config, &states), Some((SNssai::sst(1), dnn("ims"), tac(2))));
        config.smf.upfs[1].tacs.clear();
        assert_eq!(alone(&config, &states), None);
        assert_eq!(served_by_none_but(&config, &states, UpfId(1)), None);
        states.set(UpfId(1), UpfState::default());
        assert!(alone(&config, &states).is_some(), "the other one cannot be used");
    }

    #[test] // TS 23.502 §4.3.2.2.1 step 10: one that has refused is not asked again
    fn a_upf_that_refused_is_not_asked_again() {
        let internet = dnn("internet");
        let wish = Wish { slice: SNssai::sst(1), dnn: &internet, tac: None, emergency: false };
        let mut tried = TriedUpfs::default();
        tried.insert(UpfId(1));
        for n in 0..100 {
            let random = Prf::new(&[5; 16]).block(n);
            let upfs = [upf("a"), upf("b"), upf("c")];
            let id = among(&upfs, &UpfStates::ALL_USABLE, &wish, &tried, random).unwrap();
            assert_ne!(id, UpfId(1));
        }
    }
}

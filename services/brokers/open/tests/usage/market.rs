//! A market of users and operators, some of them dishonest, in virtual time and from a seed: what the
//! broker's judge makes of their reports. The bench `bricks billing` runs it too.

use std::collections::BTreeMap;

use whimbrel_ids::PlmnId;
use whimbrel_open::id::{Nid, OperatorId, UserId};
use whimbrel_open::usage::{Blame, Comparison, Judge, JudgeRule, Party};

/// Pseudo-random numbers (SplitMix64): the same from the same seed.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Uniform in ± `most`.
    pub(crate) fn noise(&mut self, most: i64) -> i64 {
        self.below(2 * most.unsigned_abs() + 1) as i64 - most
    }
}

/// How honest counters differ, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noise {
    /// Each report by another amount.
    EachReport,
    /// Each user by its own amount, always the same: the worst case.
    EachUser,
}

/// The most that honest counters differ: 0.9 %.
pub(crate) const NOISE_PPM: i64 = 9_000;
/// Octets of a cycle: a UE in use.
const CYCLE_OCTETS: u64 = 10_000_000;
/// Seconds of a cycle.
const CYCLE_S: u64 = 60;

/// A market of users, operators and a broker.
pub(crate) struct Market {
    pub(crate) judge: Judge,
    rng: Rng,
    noise: Noise,
    /// What each operator adds, in millionths.
    operators: Vec<i64>,
    /// What each user takes off, in millionths, and its own noise.
    users: Vec<(i64, i64)>,
    /// Users that take something off at one operator only.
    slander: BTreeMap<usize, usize>,
    pub(crate) now_s: u64,
    /// How often each was blamed.
    pub(crate) blamed_operators: Vec<u32>,
    pub(crate) blamed_users: Vec<u32>,
}

pub(crate) fn operator(n: usize) -> OperatorId {
    OperatorId { plmn: PlmnId::TEST, nid: Nid::new(n as u64) }
}

pub(crate) fn user(n: usize) -> UserId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&(n as u64).to_be_bytes());
    UserId(id)
}

impl Market {
    pub(crate) fn new(seed: u64, noise: Noise, operators: Vec<i64>, shifts_of_users: &[i64]) -> Self {
        let mut rng = Rng(seed);
        let users = shifts_of_users.iter().map(|shift| (*shift, rng.noise(NOISE_PPM))).collect::<Vec<_>>();
        Self {
            judge: Judge::new(JudgeRule::DEFAULT),
            noise,
            blamed_operators: vec![0; operators.len()],
            blamed_users: vec![0; users.len()],
            operators,
            users,
            slander: BTreeMap::new(),
            rng,
            now_s: 1_000_000,
        }
    }

    /// So many operators and users, of which this share is dishonest (in per cent): operators add 5 to 20 %, users take off as much.
    pub(crate) fn with_dishonest(seed: u64, operators: usize, users: usize, percent: u64) -> Self {
        let mut rng = Rng(seed ^ 0x11a5);
        let mut shift = |n: usize| {
            let dishonest = (n as u64 % 10) * 10 < percent;
            if dishonest { 50_000 + rng.below(150_000) as i64 } else { 0 }
        };
        let operator_shifts = (0..operators).map(&mut shift).collect();
        let user_shifts: Vec<i64> = (0..users).map(&mut shift).collect();
        Self::new(seed, Noise::EachReport, operator_shifts, &user_shifts)
    }

    /// A user that takes off a fifth at this operator only.
    pub(crate) fn slander(&mut self, user: usize, operator: usize) {
        self.slander.insert(user, operator);
    }

    /// Further users join, which take off so much.
    pub(crate) fn join(&mut self, shifts: &[i64]) -> usize {
        let first = self.users.len();
        for shift in shifts {
            self.users.push((*shift, self.rng.noise(NOISE_PPM)));
            self.blamed_users.push(0);
        }
        first
    }

    /// An operator goes on under another name.
    pub(crate) fn rename(&mut self, from: usize) -> usize {
        self.operators.push(self.operators[from]);
        self.blamed_operators.push(0);
        self.operators.len() - 1
    }

    /// An operator adds so much from now on.
    pub(crate) fn set_shift(&mut self, operator: usize, ppm: i64) {
        self.operators[operator] = ppm;
    }

    /// One cycle of a user at an operator, and the blames that it leads to.
    pub(crate) fn report(&mut self, u: usize, o: usize) -> Vec<Blame> {
        let (shift, own) = self.users[u];
        let shift = if self.slander.get(&u) == Some(&o) { 200_000 } else { shift };
        let noise = match self.noise {
            Noise::EachReport => self.rng.noise(NOISE_PPM),
            Noise::EachUser => own,
        };
        let true_octets = CYCLE_OCTETS / 2 + self.rng.below(CYCLE_OCTETS);
        let share = |ppm: i64| (i128::from(true_octets) * i128::from(1_000_000 + ppm) / 1_000_000) as u64;
        let (claimed, confirmed) = (share(self.operators[o] + noise), share(-shift));
        let difference = claimed as i64 - confirmed as i64;
        // The rule of the chapter, with a tolerance of 1 %.
        let allowed = (claimed.max(confirmed) / 100) as i64;
        let mismatch_octets = if difference.abs() > allowed { difference } else { 0 };
        let c = Comparison {
            user: user(u),
            operator: operator(o),
            expected: confirmed,
            excess_octets: difference,
            beyond_tolerance_octets: mismatch_octets,
        };
        self.now_s += 1;
        let blames = self.judge.observe(self.now_s, &c);
        for blame in &blames {
            match blame.party {
                Party::Operator(id) => {
                    let n = id.nid.map_or(0, |nid| nid.value() as usize);
                    self.blamed_operators[n] += 1;
                }
                Party::User(id) => {
                    let n = u64::from_be_bytes(id.0[..8].try_into().unwrap_or_default());
                    self.blamed_users[n as usize] += 1;
                }
            }
        }
        blames
    }

    /// True if the broker refuses an operator.
    pub(crate) fn is_shunned(&self, o: usize) -> bool {
        self.judge.reputation(operator(o), self.now_s) < 10
    }

    /// Each user visits an operator that is not shunned, for some cycles, so many times over.
    pub(crate) fn roam(&mut self, visits: usize, cycles: usize) {
        for _ in 0..visits {
            let mut order: Vec<usize> = (0..self.users.len()).collect();
            for n in (1..order.len()).rev() {
                order.swap(n, self.rng.below(n as u64 + 1) as usize);
            }
            for u in order {
                if self.judge.is_suspect(user(u), self.now_s) {
                    continue;
                }
                let o = self.rng.below(self.operators.len() as u64) as usize;
                for _ in 0..cycles {
                    if !self.is_shunned(o) {
                        self.report(u, o);
                    }
                }
            }
            self.now_s += CYCLE_S;
        }
    }

    pub(crate) fn is_dishonest_operator(&self, o: usize) -> bool {
        self.operators[o] > 0
    }

    pub(crate) fn is_dishonest_user(&self, u: usize) -> bool {
        self.users[u].0 > 0
    }

    pub(crate) fn operators(&self) -> usize {
        self.operators.len()
    }

    pub(crate) fn users(&self) -> usize {
        self.users.len()
    }
}

/// Reports per user after which an operator that adds `shift_ppm` is blamed by `users` users, or `None` if it is not within `most`.
pub(crate) fn reports_until_blame(
    seed: u64,
    noise: Noise,
    shift_ppm: i64,
    users: usize,
    most: usize,
) -> Option<usize> {
    let mut market = Market::new(seed, noise, vec![shift_ppm], &vec![0; users]);
    (1..=most).find(|_| (0..users).any(|u| !market.report(u, 0).is_empty()))
}

//! How long something takes, on a machine that does other things too.

use std::time::{Duration, Instant};

/// How long one sample lasts: long for the clock, short for the scheduler.
const SAMPLE: Duration = Duration::from_micros(500);
/// How many samples of each.
const SAMPLES: usize = 31;

/// The median nanoseconds of one call of each. The samples of all alternate, so that what disturbs this machine for a
/// while disturbs them alike.
pub(crate) fn nanoseconds(tasks: &mut [&mut dyn FnMut()]) -> Vec<f64> {
    let calls: Vec<u32> = tasks.iter_mut().map(|task| calls_per_sample(task)).collect();
    let mut samples = vec![Vec::with_capacity(SAMPLES); tasks.len()];
    for _ in 0..SAMPLES {
        for ((task, calls), samples) in tasks.iter_mut().zip(&calls).zip(&mut samples) {
            samples.push(time(task, *calls).as_nanos() as f64 / f64::from(*calls));
        }
    }
    samples.into_iter().map(median).collect()
}

/// Time that this thread has had a core for: others on this machine do not count.
pub(crate) fn core_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0))
}

/// The value in the middle.
pub(crate) fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

fn time(task: &mut dyn FnMut(), calls: u32) -> Duration {
    let begin = Instant::now();
    for _ in 0..calls {
        task();
    }
    begin.elapsed()
}

fn calls_per_sample(task: &mut dyn FnMut()) -> u32 {
    let mut calls = 16;
    while time(task, calls) < SAMPLE && calls < 1 << 24 {
        calls *= 2;
    }
    calls
}

//! Panics that unwind through frames with values to drop, collections, threads, checked arithmetic.
use std::collections::{BTreeMap, HashMap};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

static DROPPED: AtomicU64 = AtomicU64::new(0);

struct Counted(u64);

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(self.0, Ordering::Relaxed);
    }
}

fn deep(values: &[u64], depth: usize) -> u64 {
    let _counted = Counted(depth as u64);
    let boxed: Box<dyn Fn(usize) -> u64> = Box::new(|i| values[i]);
    if depth == 0 { boxed(values[1] as usize) } else { deep(values, depth - 1).wrapping_mul(3) + boxed(depth % values.len()) }
}

fn main() {
    std::panic::set_hook(Box::new(|_| ()));
    let mut results = BTreeMap::new();
    for i in 0..300u64 {
        let values: Vec<u64> = (0..10 + i % 30).map(|k| k * i % 37).collect();
        let result = catch_unwind(|| deep(&values, (i % 17) as usize));
        *results.entry(result.ok()).or_insert(0u64) += i;
    }
    let shared = Arc::new(Mutex::new(HashMap::new()));
    let (sender, receiver) = mpsc::channel();
    let threads: Vec<_> = (0..4u64)
        .map(|t| {
            let (shared, sender) = (shared.clone(), sender.clone());
            std::thread::spawn(move || {
                for i in 0..500u64 {
                    *shared.lock().unwrap().entry(i * (t + 1) % 61).or_insert(0u64) += i;
                    if i % 100 == 99 {
                        sender.send(format!("{t}:{i}")).unwrap();
                    }
                }
                if t == 3 {
                    panic!("thread {t}");
                }
                t
            })
        })
        .collect();
    drop(sender);
    let mut words: Vec<String> = receiver.iter().collect();
    words.sort();
    let joined: Vec<Option<u64>> = threads.into_iter().map(|t| t.join().ok()).collect();
    let map = shared.lock().unwrap();
    let mut sums: Vec<_> = map.iter().collect();
    sums.sort();
    println!("{} {:?} {:?} {}", results.len(), results.iter().next_back(), joined, DROPPED.load(Ordering::Relaxed));
    println!("{} {:?} {:?}", words.len(), sums.first(), sums.last());
}

use std::cell::RefCell;
use std::rc::Rc;

use super::*;

type Trace = Rc<RefCell<Vec<u32>>>;

/// A scavenger that notes `first`, `first + 1`, … and returns to the primary, or to the next scavenger, after each.
fn counter(trace: &Trace, first: u32, steps: u32, next: bool) -> Work {
    let trace = trace.clone();
    Box::new(move |primary| {
        for step in 0..steps {
            trace.borrow_mut().push(first + step);
            if next { primary.next() } else { primary.resume() }
        }
    })
}

#[test]
fn a_scavenger_runs_from_one_stall_to_the_next_and_then_no_more() {
    let trace = Trace::default();
    let mut harvest = Harvest::new(vec![counter(&trace, 10, 2, false)]).expect("stacks");
    assert!(trace.borrow().is_empty());
    for own in 0..5 {
        trace.borrow_mut().push(own);
        harvest.stall();
    }
    assert_eq!(*trace.borrow(), [0, 10, 1, 11, 2, 3, 4]);
    assert_eq!((harvest.unfinished(), harvest.switches()), (0, 3));
}

#[test]
fn a_scavenger_that_stalls_lets_the_next_one_run() {
    let trace = Trace::default();
    let works =
        vec![counter(&trace, 10, 2, true), counter(&trace, 20, 2, true), counter(&trace, 30, 1, false)];
    let mut harvest = Harvest::new(works).expect("stacks");
    for own in 0..4 {
        trace.borrow_mut().push(own);
        harvest.stall();
    }
    assert_eq!(*trace.borrow(), [0, 10, 20, 30, 1, 2, 11, 21, 3]);
    assert_eq!(harvest.unfinished(), 0);
}

#[test]
fn registers_of_either_side_survive_a_switch() {
    let mut harvest = Harvest::new(vec![Box::new(|primary| {
        let (mut a, mut x) = ([1u64; 24], [0.5f64; 24]);
        loop {
            for (a, x) in a.iter_mut().zip(&mut x) {
                (*a, *x) = (a.wrapping_mul(6_364_136_223_846_793_005) + 1, *x * 1.25 % 3.0);
                primary.resume();
            }
        }
    })])
    .expect("stacks");
    let run = |stall: &mut dyn FnMut()| {
        let (mut a, mut x) = ([3u64; 17], [0.75f64; 17]);
        for _ in 0..100 {
            for (a, x) in a.iter_mut().zip(&mut x) {
                (*a, *x) = (a.wrapping_mul(2_862_933_555_777_941_757) + 7, *x * 1.125 % 5.0);
                stall();
            }
        }
        (a, x.map(f64::to_bits))
    };
    assert_eq!(run(&mut || harvest.stall()), run(&mut || ()));
    assert_eq!(harvest.switches(), 1700);
}

#[test]
fn a_panic_ends_its_scavenger_alone() {
    let trace = Trace::default();
    let works: Vec<Work> = vec![
        Box::new(|primary| {
            primary.resume();
            std::panic::resume_unwind(Box::new("given up"));
        }),
        counter(&trace, 10, 1, false),
    ];
    let mut harvest = Harvest::new(works).expect("stacks");
    for _ in 0..4 {
        harvest.stall();
    }
    assert_eq!((harvest.failed(), harvest.unfinished()), (1, 0));
    assert_eq!(*trace.borrow(), [10]);
}

#[test]
fn what_a_suspended_scavenger_holds_stays_mapped_when_the_harvest_is_dropped() {
    let pointer = Rc::new(Cell::new(std::ptr::null::<u64>()));
    let inside = pointer.clone();
    let mut harvest = Harvest::new(vec![Box::new(move |primary| {
        let value = 0x5eed_u64;
        inside.set(&raw const value);
        primary.resume();
        assert_eq!(value, 0x5eed);
    })])
    .expect("stacks");
    harvest.stall();
    drop(harvest);
    // SAFETY: the stack of a suspended scavenger is never unmapped, which is what is tested.
    assert_eq!(unsafe { pointer.get().read_volatile() }, 0x5eed);
}

#[test]
fn no_harvest_without_scavengers() {
    assert!(Harvest::new(Vec::new()).is_none());
}

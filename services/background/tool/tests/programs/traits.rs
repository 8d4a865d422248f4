//! Trait objects, closures, maps, text, threads with channels and locks, variables of a thread, panics that are caught in threads.
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::fmt::Write;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Condvar, Mutex, RwLock, mpsc};

trait Shape { fn area(&self) -> u64; fn name(&self) -> String { format!("{}", self.area()) } }
struct Square(u64);
struct Row(Vec<Box<dyn Shape>>);
impl Shape for Square { fn area(&self) -> u64 { self.0 * self.0 } }
impl Shape for Row { fn area(&self) -> u64 { self.0.iter().map(|s| s.area()).sum() } fn name(&self) -> String { self.0.iter().map(|s| s.name()).collect::<Vec<_>>().join("+") } }

struct Node { value: u64, children: RefCell<Vec<Rc<Node>>>, parent: RefCell<Weak<Node>> }
fn depth(n: &Node) -> u64 { 1 + n.parent.borrow().upgrade().map_or(0, |p| depth(&p)) }
fn sum(n: &Node) -> u64 { n.value * depth(n) + n.children.borrow().iter().map(|c| sum(c)).sum::<u64>() }

thread_local! { static OWN: Cell<u64> = const { Cell::new(0) }; static LIST: RefCell<Vec<u64>> = RefCell::default(); }

enum Op { Push(i64), Add, Mul, Swap, Jump(usize), Until(i64) }
fn machine(ops: &[Op]) -> i64 {
    let (mut stack, mut at, mut left) = (VecDeque::from([1, 2, 3]), 0, 5000);
    while at < ops.len() && left > 0 {
        left -= 1;
        at += 1;
        match ops[at - 1] {
            Op::Push(n) => stack.push_back(n),
            Op::Add => { let (a, b) = (stack.pop_back().unwrap(), stack.pop_back().unwrap()); stack.push_back(a.wrapping_add(b)) }
            Op::Mul => { let (a, b) = (stack.pop_back().unwrap(), stack.pop_back().unwrap()); stack.push_back(a.wrapping_mul(b) % 1_000_003) }
            Op::Swap => { let n = stack.len(); stack.swap(n - 1, n - 2) }
            Op::Jump(to) => at = to,
            Op::Until(limit) => if stack[0] < limit { stack[0] += 1; at = 0 },
        }
    }
    stack.iter().sum()
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let shapes = Row((0..50).map(|n| if n % 5 == 0 { Box::new(Row(vec![Box::new(Square(n)), Box::new(Square(1))])) as Box<dyn Shape> } else { Box::new(Square(n)) }).collect());
    let mut words: HashMap<String, usize> = HashMap::new();
    shapes.name().split('+').for_each(|w| *words.entry(w.chars().rev().collect()).or_default() += w.len());
    let sorted: BTreeMap<_, _> = words.iter().collect();
    let mut text = String::new();
    sorted.iter().for_each(|(k, v)| write!(text, "{k:>4}{v:x}é").unwrap());
    let root = Rc::new(Node { value: 1, children: RefCell::default(), parent: RefCell::default() });
    let mut at = Rc::clone(&root);
    for value in 2..200 {
        let child = Rc::new(Node { value, children: RefCell::default(), parent: RefCell::new(Rc::downgrade(&at)) });
        at.children.borrow_mut().push(Rc::clone(&child));
        if value % 3 != 0 { at = child }
    }
    let mut heap: BinaryHeap<(u64, u64)> = (0..500).map(|n| (n * 7919 % 1009, n)).collect();
    let best: u64 = std::iter::from_fn(|| heap.pop()).take(100).map(|(a, b)| a ^ b).sum();
    let (to, from) = mpsc::channel();
    let lock = Arc::new((Mutex::new(0u64), Condvar::new(), RwLock::new(vec![0u64; 64])));
    let threads: Vec<_> = (0..4u64).map(|k| {
        let (to, lock) = (to.clone(), Arc::clone(&lock));
        std::thread::spawn(move || {
            for n in 0..200 {
                OWN.with(|o| o.set(o.get() + n * k));
                LIST.with(|l| l.borrow_mut().push(n ^ k));
                lock.2.write().unwrap()[(n % 64) as usize] += n * (k + 1);
                to.send(OWN.with(Cell::get) + lock.2.read().unwrap().len() as u64).unwrap();
            }
            *lock.0.lock().unwrap() += LIST.with(|l| l.borrow().iter().sum::<u64>());
            lock.1.notify_all();
            if k == 3 { panic!("thread {k}") }
            k
        })
    }).collect();
    drop(to);
    let received: u64 = from.iter().sum();
    let joined: Vec<_> = threads.into_iter().map(|t| t.join().unwrap_or(99)).collect();
    let caught = (0..40u64).filter(|n| std::panic::catch_unwind(|| [1, 2, 3][(*n % 5) as usize]).is_err()).count();
    let ops = [Op::Push(3), Op::Add, Op::Push(7), Op::Mul, Op::Swap, Op::Until(400), Op::Push(1), Op::Jump(9), Op::Push(2), Op::Add];
    let wide: u128 = (1..60u128).fold(1, |a, n| a.wrapping_mul(n) ^ (a >> 64));
    println!("{} {} {} {best} {received} {joined:?} {} {} {caught} {} {wide:x}", shapes.area(), text.len(), sum(&root), lock.0.lock().unwrap(), lock.2.read().unwrap().iter().sum::<u64>(), machine(&ops));
}

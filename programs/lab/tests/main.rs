//! The tests of this crate, in one program. The demonstrations start the programs `whimbrel` and `whimbrel-broker` beside `whimbrel-lab`: a build
//! of the workspace's tests makes all three.

mod open;
mod sleepers;

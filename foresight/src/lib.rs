//! Prediction of the next serving cell.
//!
//! A UE that drives through a city is served by one cell after the other. A predictor sees what the core sees, the cells and
//! the times of the handovers ([`History`]), and where gNBs report it the position, and ranks the cells that may come next. Traces come from
//! a city that is made from a seed ([`City`], [`Trip`]); [`Evaluation`] counts right and wrong predictions by the time before the handover.

#![forbid(unsafe_code)]

mod baseline;
mod city;
mod evaluate;
mod history;
mod random;
mod trip;

pub use baseline::{AlongHeading, FrequentNeighbour, MarkovOne, MarkovTwo};
pub use city::{Cell, City, Point, Size};
pub use evaluate::{BEFORE_HANDOVER_MS, Evaluation, Predictor};
pub use history::{History, Report};
pub use random::Random;
pub use trip::{Sample, Trip};

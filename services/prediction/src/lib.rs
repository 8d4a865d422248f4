//! Prediction of the next serving cell.
//!
//! A UE that drives through a city is served by one cell after the other. A predictor sees what the core sees, the cells and
//! the times of the handovers ([`History`]), and where gNBs report it the position, and ranks the cells that may come next. A [`Trainer`]
//! makes a [`TrainedNetwork`] from trips, which is kept in a signed file. Trips come from a city that is made from a seed ([`City`], [`Trip`]); [`Evaluation`] counts right and wrong predictions by the time before the handover.

#![forbid(unsafe_code)]

mod adam;
mod baseline;
mod city;
mod dwell;
mod evaluate;
mod file;
mod forecaster;
mod history;
mod layer;
mod network;
mod per_cell;
mod random;
mod train;
mod trip;

pub use baseline::{AlongHeading, FrequentNeighbour, MarkovOne, MarkovTwo};
pub use city::{Cell, City, CitySize, Point};
pub use dwell::Dwell;
pub use evaluate::{BEFORE_HANDOVER_MS, Evaluation, Predictor};
pub use file::{FileError, public_key};
pub use forecaster::{Counters, Forecast, Forecaster, LIFETIME_MS, PREDICTIONS_MAX, SLICE_MS, UES_MAX};
pub use history::{History, PositionReport};
pub use network::{NetworkMemory, Signals, TrainedNetwork};
pub use per_cell::{Attachment, PerCell};
pub use random::Random;
pub use train::{Relations, Trainer};
pub use trip::{Trip, TripSample};

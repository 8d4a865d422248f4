//! Regions and rings: which CPF (CPF) serves a UE, and which others hold its state (Neutrino §4.3).
//!
//! - [`Region`], the unit of a deployment: some gNBs, their CTAs (CTA) and a pool of CPFs. It is a [`Geohash`] cell or
//!   named by the operator, and lies in a larger one: of a cell, the cell four times its size.
//! - [`Regions`], the regions of a cluster and the CPFs in them; what contradicts itself is refused there.
//! - [`Areas`], which gNBs of a CTA are of which region, where they are of several.
//! - [`Rings`], a CTA's view: a region's level-1 ring, of its own CPFs, picks the primary, its level-2 ring, of the larger
//!   region's others, picks the backups.
//! - [`Ring`], the consistent hash under both.
//!
//! Who serves a UE that is already here is said by its [`Ledger`](crate::replication::Ledger): the rings say where a UE
//! begins, who backs it when one that did is lost, and where it belongs when it can be moved.

mod area;
mod geohash;
mod map;
mod name;
mod placement;
mod ring;

pub use area::{AreaError, Areas};
pub use geohash::Geohash;
pub use map::{CpfState, RegionError, Regions};
pub use name::{InvalidRegion, Region};
pub use placement::{Placement, Rings};
pub use ring::{Ring, VIRTUAL_NODES};

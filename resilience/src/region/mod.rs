//! Regions and rings: which CPF is a UE's primary, and which are its backups (Neutrino §4.3).
//!
//! - [`Region`], the unit of a deployment: some gNBs, their CTAs and a pool of CPFs. It is a [`Geohash`] cell or named by the operator, and
//!   is within a larger one: of a cell, the cell four times its size.
//! - [`Regions`], the regions of a cluster and the CPFs in them; what contradicts itself is refused there.
//! - [`GnbRegions`], which gNBs of a CTA are of which region, where they are of several.
//! - [`Rings`], a CTA's view: a region's level-1 ring, of its own CPFs, picks the primary, its level-2 ring, of the larger
//!   region's others, picks the backups.
//! - [`Ring`], the consistent hash under both.
//! - [`Canary`], a new code version that serves some of the UEs; [`UeKind`], what decides which CPFs of a ring a UE is for.
//! - [`CpfLoads`], UEs and recent work of each CPF: no CPF gets new UEs while it has much more than the others.
//!
//! The primary of an existing UE is in its [`UeLog`](crate::replication::UeLog): the rings decide where a UE begins, which CPF replaces a
//! lost backup, and where a UE moves.

mod area;
mod canary;
mod geohash;
mod load;
mod map;
mod name;
mod placement;
mod ring;

pub use area::{AreaError, GnbRegions};
pub use canary::{Canary, CanaryUes, LISTED_MAX, UeKind};
pub use geohash::Geohash;
pub use load::{CpfLoad, CpfLoads};
pub use map::{CpfState, RegionError, Regions};
pub use name::{InvalidRegion, Region};
pub use placement::{Member, Placement, Rings};
pub use ring::{Ring, VIRTUAL_NODES};

//! How values travel between processes of ours (feature `serde`): in the octets of `MESSAGES.md`, where they have any.

use std::collections::BTreeSet;

use whimbrel_ids::{PlmnId, serde_as, serde_as_octets};

use crate::certificate::Trust;
use crate::crypto::VerifyingKey;
use crate::id::{Domain, Nid, OperatorId};

serde_as! {
    Nid as u64: |v| v.value(), Nid::new;
    OperatorId as (PlmnId, Option<Nid>): |v| (v.plmn, v.nid), |(plmn, nid)| Some(OperatorId { plmn, nid });
    VerifyingKey as [u8; 32]: VerifyingKey::octets, VerifyingKey::from_octets;
    Trust as (Vec<VerifyingKey>, BTreeSet<u64>): Trust::parts, Trust::from_parts;
}

serde_as_octets! {
    Domain: Domain::as_str, |v| core::str::from_utf8(v).ok()?.parse().ok();
}

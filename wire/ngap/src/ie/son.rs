//! SON Configuration Transfer (TS 38.413 §9.3.3.6): source and target. Its content is forwarded unread.

use whimbrel_ids::Tai;

use crate::aper::{Aper, Fault, Reader, Writer};
use crate::ie::GlobalRanNodeId;

/// Source and target of a SON configuration transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SonConfigurationTransferEnds {
    /// Target RAN Node ID.
    pub target: GlobalRanNodeId,
    /// A tracking area of the target.
    pub target_tai: Tai,
    /// Source RAN Node ID.
    pub source: GlobalRanNodeId,
    /// A tracking area of the source.
    pub source_tai: Tai,
}

impl SonConfigurationTransferEnds {
    /// Reads the ends; `None` if they cannot be read.
    pub fn read(octets: &[u8]) -> Option<Self> {
        let mut r = Reader::new(octets, 0, "SONConfigurationTransfer");
        let read = |r: &mut Reader<'_>| -> Result<Self, Fault> {
            // Extension marker; xnTNLConfigurationInfo and iE-Extensions, which follow the ends.
            r.bits(3)?;
            let (target, target_tai) = node(r)?;
            let (source, source_tai) = node(r)?;
            Ok(Self { target, target_tai, source, source_tai })
        };
        read(&mut r).ok()
    }

    /// A transfer that asks the target for its Xn addresses (`xn-TNL-configuration-info`).
    pub fn xn_tnl_configuration_request(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        let mut w = Writer::new(&mut out);
        w.bits(0, 3);
        for (id, tai) in [(&self.target, &self.target_tai), (&self.source, &self.source_tai)] {
            w.bits(0, 2);
            id.write(&mut w);
            tai.write(&mut w);
        }
        w.bits(0, 2); // sONInformationRequest of SON Information
        w.bit(false); // the one value of the enumeration
        out
    }
}

/// TargetRANNodeID-SON, SourceRANNodeID: sequences of a node and one of its tracking areas.
fn node(r: &mut Reader<'_>) -> Result<(GlobalRanNodeId, Tai), Fault> {
    let additions = r.bit()?;
    let extensions = r.bit()?;
    let id = GlobalRanNodeId::read(r)?;
    let tai = Tai::read(r)?;
    if extensions {
        crate::container::read_extensions(r, |_, _| Ok(false))?;
    }
    if additions {
        r.skip_additions()?;
    }
    Ok((id, tai))
}

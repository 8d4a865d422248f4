//! The transfer syntaxes that an association may carry.

use whimbrel_fastwire::FIRST_OCTET;

use crate::message::Message;

/// How a message becomes octets between gNB and AMF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransferSyntax {
    /// Aligned PER: the standard's.
    #[default]
    Per,
    /// FlatBuffers with single-value unions ([`fast`](crate::fast)), where both sides have agreed on it.
    Fastwire,
}

impl TransferSyntax {
    /// That of a message: in PER the first octet ends in five zeros, and every fastwire buffer begins with another.
    pub fn of(octets: &[u8]) -> Self {
        match octets.first() {
            Some(&FIRST_OCTET) => Self::Fastwire,
            _ => Self::Per,
        }
    }
}

/// A fastwire message converted to PER; `None` if it is in PER already, or is no message.
pub fn to_per(octets: &[u8]) -> Option<Vec<u8>> {
    let fast = TransferSyntax::of(octets) == TransferSyntax::Fastwire;
    fast.then(|| Message::decode(octets).ok()).flatten().map(|message| message.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::*;

    const BOTH: [TransferSyntax; 2] = [TransferSyntax::Per, TransferSyntax::Fastwire];

    #[test]
    fn octets_tell_in_what_they_are() {
        let mut s = Source::without_fragments(12);
        for _ in 0..2000 {
            let m = Message::sample(&mut s);
            for syntax in BOTH {
                let mut octets = Vec::new();
                m.encode_in(syntax, &mut octets);
                assert_eq!(TransferSyntax::of(&octets), syntax);
                assert_eq!(Message::decode(&octets).as_ref(), Ok(&m));
                assert_eq!(Message::decode_with_notices(&octets), Ok((m.clone(), Vec::new())));
                let per = to_per(&octets);
                assert_eq!(per.is_some(), syntax == TransferSyntax::Fastwire);
                assert!(per.is_none_or(|per| per == m.to_vec()));
            }
        }
    }

    #[test] // TS 38.413 §10.2
    fn what_cannot_be_read_is_answered_as_in_per() {
        let (amf, ran) = (whimbrel_ids::AmfUeNgapId::new(7).unwrap(), whimbrel_ids::RanUeNgapId(9));
        let mut octets = Vec::new();
        Message::from(UplinkNasTransport::new(amf, ran, vec![1; 64]))
            .encode_in(TransferSyntax::Fastwire, &mut octets);
        octets.truncate(octets.len() - 60);
        let refusal = Message::decode(&octets).unwrap_err();
        assert!(matches!(refusal.kind, RefusalKind::TransferSyntax(_)));
        let answer = refusal.error_indication().unwrap();
        assert_eq!(answer.cause, Some(CauseProtocol::TransferSyntaxError.into()));
        assert_eq!((answer.amf_ue_ngap_id, answer.ran_ue_ngap_id), (Some(amf), Some(ran)));
        assert_eq!(answer.criticality_diagnostics.unwrap().procedure_code, Some(46));
        assert_eq!(to_per(&octets), None);
    }
}

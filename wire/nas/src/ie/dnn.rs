//! DNN (TS 24.501 §9.11.2.1B, TS 23.003 §9): labels, each after one octet of length.

use whimbrel_ids::{DecodeError, DecodeErrorKind, Dnn, Reader};

use crate::codec::Ie;

impl Ie for Dnn {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let invalid = r.error(DecodeErrorKind::InvalidValue, "DNN");
        let mut text = String::new();
        while !r.is_empty() {
            let len = r.u8("DNN")?;
            let label = core::str::from_utf8(r.take(usize::from(len), "DNN")?).map_err(|_| invalid)?;
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(label);
        }
        text.parse().map_err(|_| invalid)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for label in self.as_str().split('.') {
            out.push(label.len() as u8); // at most 63: `Dnn` holds no longer label
            out.extend_from_slice(label.as_bytes());
        }
    }
}

//! What makes a key a type: wiped when dropped, compared in constant time, unseen in `Debug` (TS 33.117 §4.2.3.2.2).

/// Declares a key of `$n` octets.
macro_rules! secret {
    ($(#[$doc:meta])* $name:ident, $n:literal) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name([u8; $n]);

        impl $name {
            /// From its octets.
            pub const fn new(octets: [u8; $n]) -> Self {
                Self(octets)
            }

            /// Its octets: secret, so hand them only to what must hold them.
            pub const fn octets(&self) -> &[u8; $n] {
                &self.0
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // One wide store and a barrier: `zeroize()` would go octet by octet, in the path of every message.
                self.0 = [0; $n];
                zeroize::optimization_barrier(self);
            }
        }

        impl zeroize::ZeroizeOnDrop for $name {}

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                bool::from(subtle::ConstantTimeEq::ct_eq(&self.0[..], &other.0[..]))
            }
        }

        impl Eq for $name {}

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(concat!(stringify!($name), "(…)"))
            }
        }
    };
}

pub(crate) use secret;

/// Whether two strings of octets are equal, in time that depends on their lengths alone.
pub(crate) fn ct_eq(a: &[u8], b: &[u8]) -> bool {
    bool::from(subtle::ConstantTimeEq::ct_eq(a, b))
}

#[cfg(test)]
mod tests {
    use crate::milenage::Res;

    #[test]
    fn a_key_is_redacted_and_compares() {
        let k = Res::new([1; 8]);
        assert_eq!(format!("{k:?}"), "Res(…)");
        assert_eq!(k, k.clone());
        assert_ne!(k, Res::new([1, 1, 1, 1, 1, 1, 1, 2]));
    }
}

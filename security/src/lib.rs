//! Authentication, keys, ciphers and identity concealment of TS 33.501

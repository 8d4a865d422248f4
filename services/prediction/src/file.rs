//! A network as a signed file.
//!
//! Numbers are little-endian: magic, version, signals, the number of cells; for each cell its name, its antenna, and its neighbours; the
//! parameters; an Ed25519 signature over all of it (RFC 8032). The signature comes first in reading: nothing unsigned is looked into.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use crate::city::{Cell, Point};
use crate::network::{NEIGHBOURS_MAX, Signals, TrainedNetwork};

const MAGIC: [u8; 8] = *b"foresigh";
/// Changes with the inputs of the network and with its shape.
const VERSION: u16 = 1;
/// A parameter beyond this was not trained, but made up.
const PARAMETER_MAX: f32 = 1e4;

/// Why a file is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileError {
    /// It is no file of this kind, or cut short before its signature.
    NotANetwork,
    /// It was written by another version.
    Version(u16),
    /// None of the keys that are trusted has signed it.
    Signature,
    /// Its parts do not fit together.
    Malformed(&'static str),
}

impl std::fmt::Display for FileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotANetwork => f.write_str("this is no file of a mobility predictor"),
            Self::Version(version) => {
                write!(
                    f,
                    "the predictor is of version {version}; this program reads version {VERSION}: train it again"
                )
            }
            Self::Signature => {
                f.write_str("the predictor is not signed by a trusted key, or was changed after")
            }
            Self::Malformed(what) => write!(f, "the predictor is malformed: {what}"),
        }
    }
}

impl std::error::Error for FileError {}

impl TrainedNetwork {
    /// The network as a file, signed with this Ed25519 seed.
    #[must_use]
    pub fn to_file(&self, seed: &[u8; 32]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        out.push(match self.signals {
            Signals::Cells => 0,
            Signals::Positions => 1,
        });
        out.extend((self.antennas.len() as u16).to_le_bytes());
        for ((name, antenna), neighbours) in self.names.iter().zip(&self.antennas).zip(&self.neighbours) {
            out.extend(name.to_le_bytes());
            out.extend(antenna.x.to_le_bytes());
            out.extend(antenna.y.to_le_bytes());
            out.push(neighbours.len() as u8);
            neighbours.iter().for_each(|n| out.extend(n.cell.0.to_le_bytes()));
        }
        self.parameters.iter().for_each(|p| out.extend(p.to_le_bytes()));
        let signature = SigningKey::from_bytes(seed).sign(&out);
        out.extend(signature.to_bytes());
        out
    }

    /// The network of a file that one of these Ed25519 public keys has signed.
    ///
    /// # Errors
    /// Where the file is cut short, of another version, not signed by any of the keys, or malformed.
    pub fn from_file(file: &[u8], trusted: &[[u8; 32]]) -> Result<Self, FileError> {
        let (signed, signature) = file.split_last_chunk::<64>().ok_or(FileError::NotANetwork)?;
        let mut input = ModelReader(signed);
        if input.array()? != MAGIC {
            return Err(FileError::NotANetwork);
        }
        let version = u16::from_le_bytes(input.array()?);
        if version != VERSION {
            return Err(FileError::Version(version));
        }
        let signature = Signature::from_bytes(signature);
        let keys = trusted.iter().filter_map(|key| VerifyingKey::from_bytes(key).ok());
        if !keys.into_iter().any(|key| key.verify_strict(signed, &signature).is_ok()) {
            return Err(FileError::Signature);
        }
        let signals = match input.array()? {
            [0] => Signals::Cells,
            [1] => Signals::Positions,
            _ => return Err(FileError::Malformed("its signals are unknown")),
        };
        let cells = u16::from_le_bytes(input.array()?);
        let (mut names, mut antennas, mut neighbours) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..cells {
            names.push(u64::from_le_bytes(input.array()?));
            let [x, y] = [input.array()?, input.array()?].map(f64::from_le_bytes);
            if !(x.is_finite() && y.is_finite()) {
                return Err(FileError::Malformed("an antenna is at no place"));
            }
            antennas.push(Point { x, y });
            let [count] = input.array()?;
            if usize::from(count) > NEIGHBOURS_MAX {
                return Err(FileError::Malformed("a cell has too many neighbours"));
            }
            let mut of_cell = Vec::new();
            for _ in 0..count {
                let neighbour = u16::from_le_bytes(input.array()?);
                if neighbour >= cells {
                    return Err(FileError::Malformed("a neighbour is not among its cells"));
                }
                of_cell.push(Cell(neighbour));
            }
            neighbours.push(of_cell);
        }
        let (parameters, rest) = input.0.as_chunks::<4>();
        let mut network = Self::shaped(signals, names, antennas, &neighbours);
        if !rest.is_empty() || parameters.len() != network.parameters.len() {
            return Err(FileError::Malformed("its parameters do not fit its shape"));
        }
        for (to, from) in network.parameters.iter_mut().zip(parameters) {
            *to = f32::from_le_bytes(*from);
            if to.is_nan() || to.abs() > PARAMETER_MAX {
                return Err(FileError::Malformed("a parameter is out of range"));
            }
        }
        Ok(network)
    }
}

/// The public key of an Ed25519 seed, which `from_file` trusts.
#[must_use]
pub fn public_key(seed: &[u8; 32]) -> [u8; 32] {
    SigningKey::from_bytes(seed).verifying_key().to_bytes()
}

struct ModelReader<'a>(&'a [u8]);

impl ModelReader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], FileError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(FileError::Malformed("it is cut short"))?;
        self.0 = rest;
        Ok(*array)
    }
}

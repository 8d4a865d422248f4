//! Where a machine leaves what it wants done, in order.

/// What came of an input, first thing first; the caller drains it and uses it again.
#[derive(Debug)]
pub struct Outbox<T>(Vec<T>);

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Outbox<T> {
    /// Empty.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds at the end.
    pub fn push(&mut self, item: T) {
        self.0.push(item);
    }

    /// Takes everything out, in order; the room stays.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.0.drain(..)
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is there, in order.
    pub fn as_slice(&self) -> &[T] {
        &self.0
    }
}

//! The outputs of a state machine, in order.

/// The outputs of an input; the caller drains and reuses it.
#[derive(Debug)]
pub struct Outbox<T>(Vec<T>);

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Outbox<T> {
    /// An outbox without outputs.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds at the end.
    pub fn push(&mut self, item: T) {
        self.0.push(item);
    }

    /// Drains it in order and keeps the allocation.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.0.drain(..)
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The contents, in order.
    pub fn as_slice(&self) -> &[T] {
        &self.0
    }
}

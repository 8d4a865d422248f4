//! A slab with 32-bit keys that are not reused soon: a slot and its generation.

/// Bits of the slot: 2^20 contexts or tunnels at once, far more than a gNB has UEs.
const SLOT_BITS: u32 = 20;
/// Number of slots.
pub(super) const SLOTS_MAX: usize = (1 << SLOT_BITS) - 1;

#[derive(Debug)]
struct SlabSlot<T> {
    generation: u32,
    item: Option<T>,
}

/// A slab; key zero is never assigned.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<SlabSlot<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Stores the value that `make` returns for its key; `None` if all slots are used.
    pub(super) fn insert(&mut self, make: impl FnOnce(u32) -> T) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < SLOTS_MAX => {
                self.slots.push(SlabSlot { generation: 0, item: None });
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let place = self.slots.get_mut(slot as usize)?;
        let id = place.generation << SLOT_BITS | (slot + 1);
        place.item = Some(make(id));
        Some(id)
    }

    fn place(id: u32) -> (usize, u32) {
        (((id & SLOTS_MAX as u32) as usize).wrapping_sub(1), id >> SLOT_BITS)
    }

    pub(super) fn get(&self, id: u32) -> Option<&T> {
        let (slot, generation) = Self::place(id);
        self.slots.get(slot).filter(|s| s.generation == generation)?.item.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let (slot, generation) = Self::place(id);
        self.slots.get_mut(slot).filter(|s| s.generation == generation)?.item.as_mut()
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<T> {
        let (slot, generation) = Self::place(id);
        let place = self.slots.get_mut(slot).filter(|s| s.generation == generation)?;
        let item = place.item.take()?;
        place.generation = (place.generation + 1) & (u32::MAX >> SLOT_BITS);
        self.free.push(slot as u32);
        Some(item)
    }

    /// The keys in use, in slot order.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        let used = |(slot, s): (usize, &SlabSlot<T>)| {
            s.item.is_some().then_some(s.generation << SLOT_BITS | (slot as u32 + 1))
        };
        self.slots.iter().enumerate().filter_map(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_reused_at_once_and_a_stale_one_finds_nothing() {
        let mut slab = Slab::new();
        let a = slab.insert(|id| id).unwrap();
        assert_eq!(slab.get(a), Some(&a));
        assert_eq!(slab.remove(a), Some(a));
        let b = slab.insert(|id| id).unwrap();
        assert_ne!(a, b);
        assert_eq!(slab.get(a), None);
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.ids().collect::<Vec<_>>(), [b]);
        assert_eq!(slab.get(0), None);
    }
}

//! Room for the connections of one listener, in all and per address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The room.
#[derive(Debug)]
pub struct ConnectionSlots {
    all: Arc<Semaphore>,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One connection's room, given back when dropped.
#[derive(Debug)]
pub struct ConnectionSlot {
    _one_of_all: OwnedSemaphorePermit,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

/// Which room is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSlot {
    /// That of the listener.
    InAll,
    /// That of the address.
    OfAddress,
}

impl ConnectionSlots {
    /// Room for so many connections.
    #[must_use]
    pub fn new(connections_max: usize) -> ConnectionSlots {
        let all = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        ConnectionSlots { all, by_address: Arc::default() }
    }

    /// Takes room for a connection from `address`, which may have so many.
    ///
    /// # Errors
    /// [`NoSlot`]: there is none.
    pub fn take(&self, address: IpAddr, per_address_max: usize) -> Result<ConnectionSlot, NoSlot> {
        let address = address.to_canonical();
        let all = Arc::clone(&self.all);
        let one_of_all = all.try_acquire_owned().map_err(|_| NoSlot::InAll)?;
        let mut by_address = self.by_address.lock().expect("no panic holds the counts");
        let count = by_address.entry(address).or_default();
        if per_address_max <= *count {
            return Err(NoSlot::OfAddress);
        }
        *count += 1;
        drop(by_address);
        let by_address = Arc::clone(&self.by_address);
        Ok(ConnectionSlot { _one_of_all: one_of_all, by_address, address })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut by_address = self.by_address.lock().expect("no panic holds the counts");
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_counted_in_all_and_per_address_and_given_back() {
        let slots = ConnectionSlots::new(3);
        let (one, two) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let first = slots.take(one, 2).unwrap();
        let _second = slots.take(one, 2).unwrap();
        assert_eq!(slots.take(one, 2).err(), Some(NoSlot::OfAddress));
        let _third = slots.take(two, 2).unwrap();
        assert_eq!(slots.take(two, 2).err(), Some(NoSlot::InAll));
        drop(first);
        assert!(slots.take(one, 2).is_ok());
    }
}

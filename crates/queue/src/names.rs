//! Numbers for the names of message groups, as long as one of their messages is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::groups::GroupNumber;

/// Names and numbers of message groups. Numbers are this process's own: nothing logged names one.
#[derive(Debug, Clone, Default)]
pub(crate) struct GroupNames {
    numbers: BTreeMap<Arc<[u8]>, GroupNumber>,
    /// By number: the name, and how many messages have it.
    names: Vec<Option<(Arc<[u8]>, u32)>>,
    free: Vec<u32>,
}

impl GroupNames {
    /// The number of a name, for one more message.
    pub(crate) fn hold(&mut self, name: &Arc<[u8]>) -> GroupNumber {
        if let Some(number) = self.numbers.get(name) {
            if let Some((_, held)) = &mut self.names[number.0 as usize] {
                *held += 1;
            }
            return *number;
        }
        let entry = Some((Arc::clone(name), 1));
        let number = match self.free.pop() {
            Some(number) => {
                self.names[number as usize] = entry;
                number
            }
            None => {
                self.names.push(entry);
                u32::try_from(self.names.len() - 1).expect("fewer groups than 2^32")
            }
        };
        self.numbers.insert(Arc::clone(name), GroupNumber(number));
        GroupNumber(number)
    }

    /// One message less has the name.
    pub(crate) fn let_go(&mut self, number: GroupNumber) {
        let Some(entry) = self.names.get_mut(number.0 as usize) else { return };
        let Some((name, held)) = entry else { return };
        *held -= 1;
        if *held == 0 {
            self.numbers.remove(name);
            *entry = None;
            self.free.push(number.0);
        }
    }

    /// The name of a group that has messages.
    pub(crate) fn name(&self, number: GroupNumber) -> Option<&Arc<[u8]>> {
        self.names.get(number.0 as usize)?.as_ref().map(|(name, _)| name)
    }

    /// How many groups have messages.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number_while_it_has_messages() {
        let mut names = GroupNames::default();
        let (a, b): (Arc<[u8]>, Arc<[u8]>) = ((*b"a").into(), (*b"b").into());
        let first = names.hold(&a);
        assert_eq!(names.hold(&a), first);
        assert_ne!(names.hold(&b), first);
        names.let_go(first);
        assert_eq!(names.name(first), Some(&a));
        names.let_go(first);
        assert_eq!(names.name(first), None);
        assert_eq!(names.len(), 1);
    }
}

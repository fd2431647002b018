//! Lists of numbers for the columns of records.
//!
//! Most columns have the same number in all records. Such a column stores the number once, and a list of records takes
//! a quarter of the memory. This saves time as well: touching new memory costs more than everything else that is done
//! with a list.

use h5logfs_common::fault::Shortage;
use h5logfs_common::memory::Reservation;

/// The numbers of one column of a table. The table knows the length of the column, and passes it to each method.
#[derive(Debug)]
pub(crate) enum Column {
    /// All numbers are equal.
    Same(u64),
    /// Numbers of at most 32 bits.
    Narrow(Vec<u32>),
    /// Numbers of any size.
    Wide(Vec<u64>),
}

impl Column {
    /// The number at a place.
    #[inline]
    pub fn get(&self, place: usize) -> u64 {
        match self {
            Column::Same(number) => *number,
            Column::Narrow(list) => u64::from(list[place]),
            Column::Wide(list) => list[place],
        }
    }

    /// Whether none of the `len` numbers is less than the one before.
    pub fn is_sorted(&self, len: usize) -> bool {
        match self {
            Column::Same(_) => true,
            Column::Narrow(list) => list[..len].is_sorted(),
            Column::Wide(list) => list[..len].is_sorted(),
        }
    }

    /// Appends a number to the `len` that are there. If the column becomes a list, the list gets room for `room`
    /// numbers. Fails where there is no memory.
    #[inline]
    pub fn push(
        &mut self,
        number: u64,
        len: usize,
        room: usize,
        memory: &mut Reservation,
    ) -> Result<(), Shortage> {
        match self {
            Column::Same(same) if *same == number => Ok(()),
            Column::Narrow(list)
                if number <= u64::from(u32::MAX) && list.len() < list.capacity() =>
            {
                list.push(number as u32);
                Ok(())
            }
            _ => self.push_other(number, len, room, memory),
        }
    }

    /// [`Column::push`] where it needs more than one comparison or one store. A function of its own keeps `push` short
    /// enough to inline.
    #[inline(never)]
    fn push_other(
        &mut self,
        number: u64,
        len: usize,
        room: usize,
        memory: &mut Reservation,
    ) -> Result<(), Shortage> {
        match self {
            Column::Same(same) if *same == number || len == 0 => {
                *same = number;
                Ok(())
            }
            Column::Narrow(list) if number <= u64::from(u32::MAX) => {
                memory.push(list, number as u32)
            }
            Column::Wide(list) => memory.push(list, number),
            _ => {
                self.widen(number, len, room, memory)?;
                self.push_other(number, len, room, memory)
            }
        }
    }

    /// Appends the `more` numbers of another column to the `len` that are there.
    pub fn append(
        &mut self,
        len: usize,
        (next, more): (&Column, usize),
        memory: &mut Reservation,
    ) -> Result<(), Shortage> {
        match (&mut *self, next) {
            (Column::Same(same), Column::Same(other)) if same == other => Ok(()),
            (Column::Narrow(list), Column::Narrow(other)) => memory.extend(list, &other[..more]),
            (Column::Wide(list), Column::Wide(other)) => memory.extend(list, &other[..more]),
            _ => (0..more)
                .try_for_each(|place| self.push(next.get(place), len + place, len + more, memory)),
        }
    }

    /// Replaces one of `len` numbers.
    pub fn set(
        &mut self,
        place: usize,
        number: u64,
        len: usize,
        memory: &mut Reservation,
    ) -> Result<(), Shortage> {
        match self {
            Column::Same(same) if *same == number || len == 1 => *same = number,
            Column::Narrow(list) if number <= u64::from(u32::MAX) => list[place] = number as u32,
            Column::Wide(list) => list[place] = number,
            _ => {
                self.widen(number, len, len, memory)?;
                self.set(place, number, len, memory)?;
            }
        }
        Ok(())
    }

    /// Replaces all of `len` numbers.
    pub fn replace(
        &mut self,
        len: usize,
        memory: &mut Reservation,
        new: impl Fn(u64) -> u64,
    ) -> Result<(), Shortage> {
        if let Column::Same(number) = self {
            *number = new(*number);
            return Ok(());
        }
        (0..len).try_for_each(|place| self.set(place, new(self.get(place)), len, memory))
    }

    /// Turns the column into a wider form: a list that can hold `number` after the `len` that are there.
    #[cold]
    fn widen(
        &mut self,
        number: u64,
        len: usize,
        room: usize,
        memory: &mut Reservation,
    ) -> Result<(), Shortage> {
        let room = room.max(len + 1);
        let old = std::mem::replace(self, Column::Same(0));
        *self = match old {
            Column::Same(same) if same.max(number) <= u64::from(u32::MAX) => {
                let mut list = Vec::new();
                memory.make_room(&mut list, room)?;
                list.resize(len, same as u32);
                Column::Narrow(list)
            }
            Column::Same(same) => {
                let mut list = Vec::new();
                memory.make_room(&mut list, room)?;
                list.resize(len, same);
                Column::Wide(list)
            }
            Column::Narrow(narrow) => {
                let mut list = Vec::new();
                memory.make_room(&mut list, room)?;
                list.extend(narrow.iter().map(|number| u64::from(*number)));
                let bytes = narrow.capacity() * size_of::<u32>();
                drop(narrow);
                memory.shrink_to(memory.bytes() - bytes as u64);
                Column::Wide(list)
            }
            wide => wide,
        };
        Ok(())
    }

    /// Bytes of memory.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        match self {
            Column::Same(_) => 0,
            Column::Narrow(list) => list.capacity() * size_of::<u32>(),
            Column::Wide(list) => list.capacity() * size_of::<u64>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use h5logfs_common::task::Task;

    fn number() -> impl Strategy<Value = u64> {
        let edge = u64::from(u32::MAX);
        prop_oneof![4 => Just(7u64), 2 => 0u64..9, 1 => edge - 1..edge + 2, 1 => any::<u64>()]
    }

    proptest! {
        #[test]
        fn it_is_a_list(
            numbers in prop::collection::vec(number(), 0..60),
            changes in prop::collection::vec((any::<prop::sample::Index>(), number()), 0..4),
            (room, xor, cut) in (0usize..100, number(), any::<prop::sample::Index>()),
        ) {
            let mut memory = Task::unlimited().reservation();
            let (mut column, mut list) = (Column::Same(0), Vec::new());
            let (numbers, next) = numbers.split_at(cut.index(numbers.len() + 1));
            for number in numbers {
                column.push(*number, list.len(), room, &mut memory).unwrap();
                list.push(*number);
            }
            let (mut other, mut of_other) = (Column::Same(0), Task::unlimited().reservation());
            for (len, number) in next.iter().enumerate() {
                other.push(*number, len, room, &mut of_other).unwrap();
            }
            column.append(list.len(), (&other, next.len()), &mut memory).unwrap();
            list.extend_from_slice(next);
            for (place, number) in changes {
                if list.is_empty() {
                    break;
                }
                let place = place.index(list.len());
                column.set(place, number, list.len(), &mut memory).unwrap();
                list[place] = number;
            }
            column.replace(list.len(), &mut memory, |number| number ^ xor).unwrap();
            let wanted: Vec<u64> = list.iter().map(|number| number ^ xor).collect();
            let found: Vec<u64> = (0..list.len()).map(|place| column.get(place)).collect();
            prop_assert_eq!(found, wanted);
            prop_assert_eq!(memory.bytes(), column.bytes() as u64);
        }
    }

    #[test]
    fn it_takes_what_its_numbers_need() {
        let mut memory = Task::unlimited().reservation();
        let mut column = Column::Same(0);
        let mut bytes = Vec::new();
        for (len, number) in [9, 9, 10, 1 << 40].into_iter().enumerate() {
            column.push(number, len, 100, &mut memory).unwrap();
            bytes.push(column.bytes());
        }
        assert_eq!(bytes, [0, 0, 400, 800]);
    }
}

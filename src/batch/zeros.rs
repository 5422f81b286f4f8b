//! Memory for numbers that are still to be written: in huge pages where there are many and the system has such.

use std::fmt;
use std::ops::{Deref, DerefMut};

use zerocopy::{AllocError, FromBytes, Immutable, IntoBytes, KnownLayout};

use super::buffer::{Buffer, Owner};

/// Bytes from which on memory comes in huge pages. The C library gives such large blocks back to the system when they are
/// freed, so that each begins with page faults; smaller ones are used again.
const LARGE: usize = 32 << 20;

/// Numbers that are 0 until they are written; they become a [`Buffer`] without a copy.
///
/// Touching 134 MB for the first time takes 70 ms on two cores in pages of 4 KiB, and 24 ms in huge pages of 2 MiB, which
/// Linux gives to those who ask.
pub enum Zeros<T> {
    /// From the C library.
    Vec(Vec<T>),
    /// From the system, for these numbers alone.
    #[cfg(target_os = "linux")]
    Pages(memmap2::MmapMut),
}

/// A type of numbers that are 0 where all of their bytes are.
pub trait Plain: FromBytes + IntoBytes + Immutable + KnownLayout + Send + Sync + 'static {}

impl<T: FromBytes + IntoBytes + Immutable + KnownLayout + Send + Sync + 'static> Plain for T {}

impl<T: Plain> Zeros<T> {
    /// As many zeros.
    ///
    /// # Errors
    /// Where there is no memory for them.
    pub fn new(length: usize) -> Result<Self, AllocError> {
        #[cfg(target_os = "linux")]
        if Self::is_large(length) {
            let bytes = length * size_of::<T>();
            let pages = memmap2::MmapMut::map_anon(bytes).map_err(|_| AllocError)?;
            // A kernel without huge pages gives small ones, which serve as well.
            let _ = pages.advise(memmap2::Advice::HugePage);
            return Ok(Zeros::Pages(pages));
        }
        T::new_vec_zeroed(length).map(Zeros::Vec)
    }

    /// Whether the memory of as many numbers goes back to the system when it is freed, so that it pays to keep it.
    pub fn is_large(length: usize) -> bool {
        let bytes = length.checked_mul(size_of::<T>());
        bytes.is_some_and(|bytes| bytes >= LARGE)
    }
}

impl<T: Plain> Deref for Zeros<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Zeros::Vec(values) => values,
            #[cfg(target_os = "linux")]
            Zeros::Pages(pages) => match <[T]>::ref_from_bytes(pages) {
                Ok(values) => values,
                Err(_) => unreachable!("pages are aligned, and as long as whole numbers are"),
            },
        }
    }
}

impl<T: Plain> DerefMut for Zeros<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Zeros::Vec(values) => values,
            #[cfg(target_os = "linux")]
            Zeros::Pages(pages) => match <[T]>::mut_from_bytes(pages) {
                Ok(values) => values,
                Err(_) => unreachable!("pages are aligned, and as long as whole numbers are"),
            },
        }
    }
}

impl<T: Plain> fmt::Debug for Zeros<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zeros({} x {})", self.len(), std::any::type_name::<T>())
    }
}

impl<T: Plain> Owner<T> for Zeros<T> {
    fn as_slice(&self) -> &[T] {
        self
    }
}

impl<T: Plain> From<Zeros<T>> for Buffer<T> {
    fn from(values: Zeros<T>) -> Self {
        Buffer::new(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_numbers_are_zeros_and_keep_what_is_written() {
        for length in [0, 5, (40 << 20) / 8 + 1] {
            let mut values: Zeros<f64> = Zeros::new(length).unwrap();
            assert_eq!(values.len(), length);
            assert!(values.iter().all(|&value| value == 0.0));
            if let Some(last) = values.last_mut() {
                *last = 2.5;
            }
            let buffer = Buffer::from(values);
            assert_eq!(buffer.clone().last().copied(), (length > 0).then_some(2.5));
        }
        assert!(Zeros::<f64>::new(usize::MAX / 2).is_err());
    }
}

//! The element types of tensors in files, and how their bytes become numbers.

use half::{bf16, f16};

/// The type of a tensor's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    BF16,
    F32,
    F64,
    /// Texts of up to so many characters of four bytes, as numpy keeps them.
    Text(usize),
    /// Something that no column is made of, by the file's name for it.
    Other(String),
}

/// Runs `$body` with `$read` a function from the bytes of one element to its number, for each number type.
macro_rules! each_number {
    ($element:expr, $read:ident => $body:expr, else $other:expr) => {{
        macro_rules! with {
            ($number:ty, $size:literal) => {{
                let $read = |bytes: &[u8]| -> $number {
                    let mut element = [0; $size];
                    element.copy_from_slice(bytes);
                    <$number>::from_le_bytes(element)
                };
                $body
            }};
        }
        match $element {
            Element::Bool => {
                let $read = |bytes: &[u8]| u8::from(bytes[0] != 0);
                $body
            }
            Element::U8 => with!(u8, 1),
            Element::I8 => with!(i8, 1),
            Element::U16 => with!(u16, 2),
            Element::I16 => with!(i16, 2),
            Element::U32 => with!(u32, 4),
            Element::I32 => with!(i32, 4),
            Element::U64 => with!(u64, 8),
            Element::I64 => with!(i64, 8),
            Element::F16 => {
                let $read = |bytes: &[u8]| f16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
                $body
            }
            Element::BF16 => {
                let $read = |bytes: &[u8]| bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
                $body
            }
            Element::F32 => with!(f32, 4),
            Element::F64 => with!(f64, 8),
            Element::Text(_) | Element::Other(_) => $other,
        }
    }};
}

impl Element {
    /// Bytes of one element; `None` where that is not known, or is nothing.
    pub(super) fn size(&self) -> Option<usize> {
        match self {
            Element::Bool | Element::U8 | Element::I8 => Some(1),
            Element::U16 | Element::I16 | Element::F16 | Element::BF16 => Some(2),
            Element::U32 | Element::I32 | Element::F32 => Some(4),
            Element::U64 | Element::I64 | Element::F64 => Some(8),
            Element::Text(letters) => letters.checked_mul(4).filter(|&size| size > 0),
            Element::Other(_) => None,
        }
    }

    pub(super) fn is_number(&self) -> bool {
        !matches!(self, Element::Text(_) | Element::Other(_))
    }

    /// The type in words.
    pub(super) fn name(&self) -> String {
        match self {
            Element::Bool => "bool".to_string(),
            Element::U8 => "u8".to_string(),
            Element::I8 => "i8".to_string(),
            Element::U16 => "u16".to_string(),
            Element::I16 => "i16".to_string(),
            Element::U32 => "u32".to_string(),
            Element::I32 => "i32".to_string(),
            Element::U64 => "u64".to_string(),
            Element::I64 => "i64".to_string(),
            Element::F16 => "f16".to_string(),
            Element::BF16 => "bf16".to_string(),
            Element::F32 => "f32".to_string(),
            Element::F64 => "f64".to_string(),
            Element::Text(_) => "text".to_string(),
            Element::Other(name) => name.clone(),
        }
    }

    /// Adds the numbers that stand in `bytes`, whole elements in little-endian order, to `out`.
    // Widening is exact but for integers beyond 2^53, which no column means to tell apart (groups are read as they are).
    #[allow(clippy::unnecessary_cast)]
    pub(super) fn push_f64(&self, bytes: &[u8], out: &mut Vec<f64>) {
        let size = self.size().unwrap_or(1);
        each_number!(self, read => out.extend(bytes.chunks_exact(size).map(|one| read(one) as f64)), else {});
    }

    /// As `push_f64`, in single precision.
    #[allow(clippy::unnecessary_cast)]
    pub(super) fn push_f32(&self, bytes: &[u8], out: &mut Vec<f32>) {
        let size = self.size().unwrap_or(1);
        each_number!(self, read => out.extend(bytes.chunks_exact(size).map(|one| read(one) as f32)), else {});
    }

    /// Adds whole numbers to `out`, exactly; of a number that is not whole, its value is given back.
    pub(super) fn push_whole(&self, bytes: &[u8], out: &mut Vec<i128>) -> Result<(), f64> {
        let size = self.size().unwrap_or(1);
        let mut wide = Vec::new();
        for one in bytes.chunks_exact(size) {
            let whole = match self {
                Element::U64 => {
                    <[u8; 8]>::try_from(one).map(|one| i128::from(u64::from_le_bytes(one)))
                }
                Element::I64 => {
                    <[u8; 8]>::try_from(one).map(|one| i128::from(i64::from_le_bytes(one)))
                }
                _ => {
                    wide.clear();
                    self.push_f64(one, &mut wide);
                    let value = wide.first().copied().unwrap_or(f64::NAN);
                    // Beyond 2^53 a float no longer tells neighbours apart.
                    if value.fract() != 0.0
                        || value.abs() > 9_007_199_254_740_992.0
                        || value.is_nan()
                    {
                        return Err(value);
                    }
                    Ok(value as i128)
                }
            };
            out.push(whole.unwrap_or_default());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_widen_exactly() {
        let mut wide = Vec::new();
        Element::F16.push_f64(&f16::from_f32(-1.5).to_le_bytes(), &mut wide);
        Element::BF16.push_f64(&bf16::from_f32(3.25).to_le_bytes(), &mut wide);
        Element::I8.push_f64(&[0xff], &mut wide);
        Element::Bool.push_f64(&[2], &mut wide);
        Element::F64.push_f64(&0.1f64.to_le_bytes(), &mut wide);
        assert_eq!(wide, [-1.5, 3.25, -1.0, 1.0, 0.1]);
        let mut whole = Vec::new();
        assert_eq!(
            Element::U64.push_whole(&u64::MAX.to_le_bytes(), &mut whole),
            Ok(())
        );
        assert_eq!(
            Element::F32.push_whole(&7f32.to_le_bytes(), &mut whole),
            Ok(())
        );
        assert_eq!(whole, [i128::from(u64::MAX), 7]);
        assert_eq!(
            Element::F32.push_whole(&0.5f32.to_le_bytes(), &mut whole),
            Err(0.5)
        );
    }
}

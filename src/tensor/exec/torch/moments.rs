//! What reductions have to know of each response's tokens, by libtorch; the host merges and finishes as all executors do.

use tch::{Kind, Tensor};

use super::grid::Grid;
use crate::tensor::exec::moments::{Depth, Moments};
use crate::torch::Result;

/// The parts of the moments of each row that a depth takes, each [B] in f64: [`read`] understands them on the host.
pub(super) fn moments(
    grid: &Grid,
    x: &Tensor,
    selection: Option<&Tensor>,
    depth: Depth,
) -> Result<Vec<Tensor>> {
    let taken = match selection {
        Some(selection) => grid.mask.f_logical_and(&selection.f_ne(0.0)?)?,
        None => grid.mask.shallow_clone(),
    };
    let sum = |x: &Tensor| -> Result<Tensor> {
        let x = x.f_where_scalarother(&taken, 0.0)?;
        Ok(x.f_sum_dim_intlist([1i64].as_slice(), false, Kind::Double)?)
    };
    let (count, total) = (sum(&taken)?, sum(x)?);
    let mut parts = vec![count, total];
    if depth >= Depth::Extremes {
        let bound = |other: f64| x.f_where_scalarother(&taken, other);
        let (least, most) = (bound(f64::INFINITY)?, bound(f64::NEG_INFINITY)?);
        for extreme in [least.f_amin([1i64], false)?, most.f_amax([1i64], false)?] {
            parts.push(extreme.f_to_kind(Kind::Double)?);
        }
    }
    if depth == Depth::Squares {
        let mean = parts[1].f_div(&parts[0])?.f_unsqueeze(1)?;
        parts.push(sum(&x.f_sub(&mean)?.f_square()?)?);
    }
    Ok(parts)
}

/// The moments of each row, from their parts one after another.
pub(super) fn read(parts: &[f64], rows: usize) -> Vec<Moments> {
    let part = |index: usize, row: usize| parts.get(index * rows + row).copied();
    let of = |row: usize| {
        // A count of tokens is far below 2^53.
        let count = part(0, row).unwrap_or(0.0) as usize;
        if count == 0 {
            return Moments::EMPTY;
        }
        Moments {
            count,
            sum: part(1, row).unwrap_or(0.0),
            min: part(2, row).unwrap_or(Moments::EMPTY.min),
            max: part(3, row).unwrap_or(Moments::EMPTY.max),
            squares: part(4, row).unwrap_or(0.0),
        }
    };
    (0..rows).map(of).collect()
}

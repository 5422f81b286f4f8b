//! Discounted sums along rows, in f64.
//!
//! Rows are cut into blocks of 64 tokens. Within a block the sums are a product with a triangular matrix of the discount's
//! powers; the blocks' own sums are scanned in turn by the same function, and added with their powers. No power is above
//! 1, so nothing overflows that the sums do not.

use tch::{Kind, Tensor};

use super::grid::Grid;
use crate::tensor::op::Scan;
use crate::torch::{self, Result};

const BLOCK: i64 = 64;

/// Whether libtorch does a scan: a discount above 1 would overflow in its powers.
pub(super) fn is_for_libtorch(scan: Scan, number: f64) -> bool {
    matches!(scan, Scan::Next | Scan::Prev) || number.abs() <= 1.0
}

/// A scan of the grid's tokens, with its number: a discount, or a fill.
pub(super) fn scan(scan: Scan, number: f64, grid: &Grid, x: &Tensor) -> Result<Tensor> {
    let from_the_end = match scan {
        Scan::Next => return grid.next(x, number),
        Scan::Prev => return grid.prev(x, number),
        Scan::Cumsum => false,
        Scan::SuffixSum => true,
    };
    let x = grid.masked(x, 0.0)?;
    if number == 1.0 {
        return sums(&x, from_the_end);
    }
    // What is not finite would reach tokens in its block that it does not come before: it is scanned by itself.
    let is_finite = x.f_isfinite()?;
    let rest = x.f_where_scalarother(&is_finite.f_logical_not()?, 0.0)?;
    let reached = step(&sums(&rest, from_the_end)?, from_the_end)?;
    let x = x.f_where_scalarother(&is_finite, 0.0)?;
    let x = x.f_to_kind(Kind::Double)?;
    let sums = discounted(&x, number, from_the_end)?;
    Ok(sums.f_add(&rest)?.f_add(&reached.f_mul_scalar(number)?)?)
}

/// Sums up to and with each token, or from it on.
fn sums(x: &Tensor, from_the_end: bool) -> Result<Tensor> {
    if from_the_end {
        return Ok(sums(&x.f_flip([1])?, false)?.f_flip([1])?);
    }
    torch::cumsum(x, Kind::Double)
}

/// The value of the column before, or behind; 0 where there is none.
fn step(x: &Tensor, from_the_end: bool) -> Result<Tensor> {
    let width = x.size()[1] - 1;
    Ok(match from_the_end {
        true => x.f_narrow(1, 1, width)?.f_constant_pad_nd([0, 1])?,
        false => x.f_narrow(1, 0, width)?.f_constant_pad_nd([1, 0])?,
    })
}

/// y_t = x_t + gamma y_(t-1), or y_(t+1), of finite f64s [B, L].
fn discounted(x: &Tensor, gamma: f64, from_the_end: bool) -> Result<Tensor> {
    let (rows, width) = (x.size()[0], x.size()[1]);
    let blocks = (width + BLOCK - 1) / BLOCK;
    let x = x.f_constant_pad_nd([0, blocks * BLOCK - width])?;
    let within =
        x.f_view([rows, blocks, BLOCK])?
            .f_matmul(&powers(gamma, from_the_end, x.device())?)?;
    let sums = if blocks == 1 {
        within
    } else {
        let (whole, distance) = match from_the_end {
            true => (0, (1..=BLOCK).rev().collect::<Vec<_>>()),
            false => (BLOCK - 1, (1..=BLOCK).collect()),
        };
        let of_blocks = within.f_select(2, whole)?;
        let carried = discounted(&of_blocks, gamma.powi(BLOCK as i32), from_the_end)?;
        let carried = step(&carried, from_the_end)?.f_unsqueeze(2)?;
        let distance: Vec<f64> = distance.iter().map(|&n| gamma.powi(n as i32)).collect();
        let distance = Tensor::f_from_slice(&distance)?.f_to_device(x.device())?;
        within.f_add(&carried.f_mul(&distance)?)?
    };
    Ok(sums
        .f_reshape([rows, blocks * BLOCK])?
        .f_narrow(1, 0, width)?)
}

/// The matrix [64, 64] that sums up a block: gamma to the power of how far a token is from the one that it counts for.
fn powers(gamma: f64, from_the_end: bool, device: tch::Device) -> Result<Tensor> {
    let mut powers = vec![0.0; (BLOCK * BLOCK) as usize];
    for (index, power) in powers.iter_mut().enumerate() {
        let (from, to) = (index as i64 / BLOCK, index as i64 % BLOCK);
        let distance = if from_the_end { from - to } else { to - from };
        if distance >= 0 {
            *power = gamma.powi(distance as i32);
        }
    }
    let powers = Tensor::f_from_slice(&powers).map_err(torch::TorchError::from)?;
    Ok(powers.f_view([BLOCK, BLOCK])?.f_to_device(device)?)
}

//! The op table's elementwise rows by libtorch.
//!
//! Tensors of f64 and of f32 meet in f64, as everywhere; so a number that is no f32 is an f64 here.

use tch::{Kind, Tensor};

use crate::tensor::op::{Binary, Kernel, Ternary, Unary};
use crate::torch::Result;

/// A row's function of its arguments; truths are booleans.
pub(super) fn map(kernel: Kernel, args: &[Tensor]) -> Result<Tensor> {
    match (kernel, args) {
        (Kernel::One(op), [x]) => unary(op, x),
        (Kernel::Two(op), [a, b]) => binary(op, a, b),
        (Kernel::Three(Ternary::Clamp), [x, low, high]) => Ok(x.f_maximum(low)?.f_minimum(high)?),
        (Kernel::Three(Ternary::Where), [c, a, b]) => Ok(a.f_where_self(&c.f_ne(0.0)?, b)?),
        _ => unreachable!("an elementwise row has as many arguments as its kernel takes"),
    }
}

fn unary(op: Unary, x: &Tensor) -> Result<Tensor> {
    let result = match op {
        Unary::Neg => x.f_neg(),
        Unary::Abs => x.f_abs(),
        // libtorch's has no NaN.
        Unary::Sign => x.f_sign()?.f_where_self(&x.f_isnan()?.f_logical_not()?, x),
        Unary::Exp => x.f_exp(),
        Unary::Ln => x.f_log(),
        Unary::Log1p => x.f_log1p(),
        Unary::Expm1 => x.f_expm1(),
        Unary::Sqrt => x.f_sqrt(),
        Unary::Square => x.f_mul(x),
        Unary::Sigmoid => x.f_sigmoid(),
        Unary::LogSigmoid => x.f_log_sigmoid(),
        Unary::Tanh => x.f_tanh(),
        Unary::Floor => x.f_floor(),
        Unary::Ceil => x.f_ceil(),
        Unary::Round => x.f_round(),
        Unary::IsFinite => x.f_isfinite(),
        Unary::Not => x.f_eq(0.0),
        Unary::Detach => Ok(x.shallow_clone()),
        Unary::K3 => return k3(x),
    };
    Ok(result?)
}

fn binary(op: Binary, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let result = match op {
        Binary::Add => a.f_add(b),
        Binary::Sub => a.f_sub(b),
        Binary::Mul => a.f_mul(b),
        Binary::Div => a.f_div(b),
        Binary::SafeDiv => a.f_div(b)?.f_where_scalarother(&b.f_ne(0.0)?, 0.0),
        Binary::Rem => a.f_fmod_tensor(b),
        Binary::Pow => a.f_pow(b),
        Binary::Min => a.f_minimum(b),
        Binary::Max => a.f_maximum(b),
        Binary::Less => a.f_lt_tensor(b),
        Binary::LessEqual => a.f_le_tensor(b),
        Binary::Greater => a.f_gt_tensor(b),
        Binary::GreaterEqual => a.f_ge_tensor(b),
        Binary::Equal => a.f_eq_tensor(b),
        Binary::NotEqual => a.f_ne_tensor(b),
        Binary::And => a.f_logical_and(b),
        Binary::Or => a.f_logical_or(b),
    };
    Ok(result?)
}

/// exp(-d) - 1 + d, always in f64. Near 0, where the sum would leave of d^2/2 nothing but rounding, by its series; at 1e-3
/// both are within 1e-12 of it.
fn k3(d: &Tensor) -> Result<Tensor> {
    let d = d.f_to_kind(Kind::Double)?;
    let far = d.f_neg()?.f_expm1()?.f_add(&d)?;
    let mut near = d.f_mul_scalar(-1.0 / 120.0)?;
    for coefficient in [1.0 / 24.0, -1.0 / 6.0, 1.0 / 2.0] {
        near = near.f_add_scalar(coefficient)?.f_mul(&d)?;
    }
    Ok((near.f_mul(&d)?).f_where_self(&d.f_abs()?.f_lt(1e-3)?, &far)?)
}

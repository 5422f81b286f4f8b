//! libtorch, through `tch`: its settings, its errors, and slices in and out. Here alone is C++ of ours, and `unsafe`.
//!
//! libtorch's settings are the process's: [`start`] makes them, and every start makes the same.

mod column;
mod error;

use std::num::NonZeroUsize;

use tch::kind::Element;
use tch::{Device, Tensor};

pub(crate) use column::OnDevice;
pub use column::column;
pub use error::TorchError;

use crate::diagnostic::{Diagnostic, Diagnostics};

/// A result of libtorch.
pub type Result<T> = std::result::Result<T, TorchError>;

// SAFETY: it is defined in settings.cpp with this signature, takes nothing, and lets no exception out.
unsafe extern "C" {
    safe fn advlab_torch_be_deterministic() -> bool;
}

/// Readies libtorch for `device` (`cpu`, `cuda` or `auto`, which is the GPU where there is one): deterministic algorithms,
/// float32 products in full, and the number of threads that `threads` says. Results on the CPU are the same bits in every
/// repeat with the same number of threads.
///
/// # Errors
/// [`Diagnostics`] for another name, and for `cuda` where there is none.
pub fn start(device: &str, threads: NonZeroUsize) -> std::result::Result<Device, Diagnostics> {
    let device = match device {
        "cpu" => Device::Cpu,
        "auto" => Device::cuda_if_available(),
        "cuda" if tch::Cuda::is_available() => Device::Cuda(0),
        "cuda" => {
            let message = "there is no GPU that libtorch can use for `device = \"cuda\"`";
            let help = "`cpu` and `auto` work without one; a libtorch for the CPU sees no GPU";
            return Err(Diagnostic::error(message).with_help(help).into());
        }
        other => {
            let message = format!("`{other}` is no device");
            let problem = Diagnostic::error(message).expected("`auto`, `cpu` or `cuda`");
            return Err(problem.into());
        }
    };
    if !advlab_torch_be_deterministic() {
        let message = "libtorch refuses deterministic algorithms";
        return Err(Diagnostic::error(message).into());
    }
    tch::set_num_threads(i32::try_from(threads.get()).unwrap_or(i32::MAX));
    Ok(device)
}

/// An int64 tensor `[values.len()]` on a device.
pub(crate) fn indices(values: &[i64], device: Device) -> Result<Tensor> {
    Ok(Tensor::f_from_slice(values)?.f_to_device(device)?)
}

/// A float32 tensor `[values.len()]` on a device.
pub(crate) fn floats(values: &[f32], device: Device) -> Result<Tensor> {
    Ok(Tensor::f_from_slice(values)?.f_to_device(device)?)
}

/// A float64 tensor of a shape on a device.
pub(crate) fn doubles(values: &[f64], shape: &[i64], device: Device) -> Result<Tensor> {
    let values = Tensor::f_from_slice(values)?.f_view(shape)?;
    Ok(values.f_to_device(device)?)
}

/// The values of a tensor of any shape, kind and device, row by row.
pub(crate) fn to_vec<T: Element>(tensor: &Tensor) -> Result<Vec<T>> {
    let host = tensor.f_to_device(Device::Cpu)?.f_to_kind(T::KIND)?;
    let host = host.f_contiguous()?;
    let mut values = vec![T::ZERO; host.numel()];
    host.f_copy_data(&mut values, host.numel())?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        let start = |device| start(device, NonZeroUsize::MIN);
        assert_eq!(start("cpu").unwrap(), Device::Cpu);
        let unknown = start("tpu").unwrap_err();
        assert_eq!(unknown[0].message, "`tpu` is no device");
        assert_eq!(start("cuda").is_ok(), tch::Cuda::is_available());
        if let Err(missing) = start("cuda") {
            assert!(missing[0].message.starts_with("there is no GPU"));
        }
    }

    #[test]
    fn values_go_in_and_out_whatever_their_strides() {
        let floats = floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], Device::Cpu).unwrap();
        let turned = floats.f_view([2, 3]).unwrap().f_tr().unwrap();
        assert_eq!(
            to_vec::<f32>(&turned).unwrap(),
            [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]
        );
        let indices = indices(&[7, -1], Device::Cpu).unwrap();
        assert_eq!(to_vec::<f32>(&indices).unwrap(), [7.0, -1.0]);
    }
}

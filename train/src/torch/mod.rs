//! libtorch, through `tch`: its settings, its errors, and slices in and out. Here alone is C++ of ours, and `unsafe`.
//!
//! libtorch's settings are the process's: [`start`] makes them, and every start makes the same.

mod error;
mod worker;

use std::num::NonZeroUsize;
use std::sync::OnceLock;

use tch::kind::Element;
use tch::{Device, Kind, Tensor};

pub use error::TorchError;
pub use worker::Worker;

use advlab::diagnostic::{Diagnostic, Diagnostics};

/// The version of the libtorch that this was built with.
pub const VERSION: &str = env!("ADVLAB_TORCH_VERSION");

/// A result of libtorch.
pub type Result<T> = std::result::Result<T, TorchError>;

// SAFETY: they are defined in settings.cpp with these signatures, take numbers alone, and let no exception out.
unsafe extern "C" {
    safe fn advlab_torch_be_deterministic() -> bool;
    safe fn advlab_torch_refuse_nondeterministic(refuse: bool);
    safe fn advlab_torch_device_memory(device: i8) -> i64;
}

/// Readies libtorch for `device` (`cpu`, `cuda` or `auto`, which is the GPU if there is one): deterministic algorithms,
/// float32 products in full, and the number of threads that `threads` says. Results on the CPU are the same bits in every
/// repeat with the same number of threads.
///
/// # Errors
/// [`Diagnostics`] for another name, and for `cuda` if there is none.
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
    settle().map_err(|error| Diagnostic::error(error.to_string()))?;
    tch::set_num_threads(i32::try_from(threads.get()).unwrap_or(i32::MAX));
    Ok(device)
}

/// Deterministic algorithms and float32 products in full, from here on and in the whole process.
pub(crate) fn settle() -> Result<()> {
    static IS_SETTLED: OnceLock<bool> = OnceLock::new();
    match IS_SETTLED.get_or_init(|| advlab_torch_be_deterministic()) {
        true => Ok(()),
        false => Err(TorchError::Refused(
            "there are no deterministic algorithms".to_string(),
        )),
    }
}

/// The most bytes that tensors have had at once on a GPU; none for the CPU.
pub fn peak_memory(device: Device) -> Option<u64> {
    let Device::Cuda(index) = device else {
        return None;
    };
    let bytes = advlab_torch_device_memory(i8::try_from(index).ok()?);
    u64::try_from(bytes).ok()
}

/// The running sums of each row of a matrix.
///
/// On a GPU libtorch refuses every such sum of floating point numbers where algorithms are to be deterministic, though its
/// kernel for several rows adds each row in one fixed order; that for a single row does not.
pub(crate) fn cumsum(rows: &Tensor, kind: Kind) -> Result<Tensor> {
    let (count, _) = rows.size2()?;
    if rows.device() == Device::Cpu {
        return Ok(rows.f_cumsum(1, kind)?);
    }
    let several = match count {
        1 => rows.f_expand([2, -1], false)?,
        _ => rows.shallow_clone(),
    };
    advlab_torch_refuse_nondeterministic(false);
    let sums = several.f_cumsum(1, kind);
    advlab_torch_refuse_nondeterministic(true);
    Ok(sums?.f_narrow(0, 0, count)?)
}

/// Room for so many values in the host's memory.
pub(crate) fn room<T>(count: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    let reserved = values.try_reserve_exact(count);
    reserved.map_err(|error| TorchError::OutOfMemory(error.to_string()))?;
    Ok(values)
}

/// An int64 tensor `[values.len()]` on a device.
pub(crate) fn indices(values: &[i64], device: Device) -> Result<Tensor> {
    Ok(Tensor::f_from_slice(values)?.f_to_device(device)?)
}

/// A float32 tensor `[values.len()]` on a device.
pub(crate) fn floats(values: &[f32], device: Device) -> Result<Tensor> {
    Ok(Tensor::f_from_slice(values)?.f_to_device(device)?)
}

/// The values of a tensor of any shape, kind and device, row by row.
pub(crate) fn to_vec<T: Element>(tensor: &Tensor) -> Result<Vec<T>> {
    let host = tensor.f_to_device(Device::Cpu)?.f_to_kind(T::KIND)?;
    let host = host.f_contiguous()?;
    let mut values = room(host.numel())?;
    values.resize(host.numel(), T::ZERO);
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
    fn memory_is_counted_on_a_gpu_alone() {
        assert_eq!(peak_memory(Device::Cpu), None);
        assert_eq!(
            peak_memory(Device::Cuda(0)).is_some(),
            tch::Cuda::is_available()
        );
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

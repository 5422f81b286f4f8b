//! libtorch, through `tch`: its settings, its errors, and conversions between slices and tensors. In this crate, only this
//! module has C++ and `unsafe` code.

use std::num::NonZeroUsize;
use std::sync::OnceLock;

use tch::kind::Element;
use tch::{Device, Kind, TchError, Tensor};
use thiserror::Error;

use crate::config;
use crate::error::Result;
use advlab::diagnostic::{Diagnostic, Diagnostics};

/// The version of libtorch with which advlab was built.
pub const VERSION: &str = env!("ADVLAB_TORCH_VERSION");

/// The result of a call to libtorch.
pub(crate) type TorchResult<T> = std::result::Result<T, TorchError>;

/// The reason why libtorch refused a computation: the first line of its message, without the C++ stack trace that follows.
#[derive(Debug, Error)]
#[error("libtorch: {0}")]
pub(crate) struct TorchError(String);

impl From<TchError> for TorchError {
    fn from(error: TchError) -> Self {
        let text = match error {
            TchError::Torch(text) => text,
            other => other.to_string(),
        };
        let line = text.lines().map(str::trim).find(|line| !line.is_empty());
        TorchError(line.unwrap_or("libtorch gives no reason").to_string())
    }
}

impl From<TorchError> for Diagnostics {
    fn from(error: TorchError) -> Self {
        let problem = Diagnostic::error(error.to_string());
        // The GPU reports "CUDA out of memory. ...", and the CPU "... can't allocate memory: you tried to allocate ...".
        let memory = ["out of memory", "can't allocate memory"];
        if memory.iter().any(|text| error.0.contains(text)) {
            return problem
                .with_help("a lower `tokens_per_forward` needs less memory; in sampling, so does a lower `rows_per_batch` or `max_new_tokens`; the model itself needs 4 bytes per weight, and 16 bytes in training")
                .into();
        }
        problem.into()
    }
}

// SAFETY: these functions are defined in settings.cpp with these signatures, take only numbers and booleans, and throw no
// exceptions.
unsafe extern "C" {
    safe fn advlab_torch_be_deterministic() -> bool;
    safe fn advlab_torch_refuse_nondeterministic(refuse: bool);
    safe fn advlab_torch_device_memory(device: i8) -> i64;
}

/// Prepares libtorch for a device: deterministic algorithms, float32 products at full precision, and `threads` threads. On the
/// CPU, repeats with the same number of threads give the same bits. The number of threads applies to the current thread, the
/// other settings to the whole process.
///
/// # Errors
/// [`Diagnostics`] if `device` is `Cuda` and there is no GPU, or if libtorch has no deterministic algorithms.
pub fn start(device: config::Device, threads: NonZeroUsize) -> Result<Device> {
    let device = match device {
        config::Device::Cpu => Device::Cpu,
        config::Device::Auto => Device::cuda_if_available(),
        config::Device::Cuda if tch::Cuda::is_available() => Device::Cuda(0),
        config::Device::Cuda => {
            let message = "there is no GPU that libtorch can use for `device = \"cuda\"`";
            let help = "`cpu` and `auto` work without a GPU; a libtorch that is built for the CPU finds no GPU";
            return Err(Diagnostic::error(message).with_help(help).into());
        }
    };
    static IS_DETERMINISTIC: OnceLock<bool> = OnceLock::new();
    if !IS_DETERMINISTIC.get_or_init(|| advlab_torch_be_deterministic()) {
        let message = "libtorch has no deterministic algorithms";
        return Err(Diagnostic::error(message).into());
    }
    use_threads(threads);
    Ok(device)
}

/// Sets the number of threads for calls from the current thread.
pub(crate) fn use_threads(threads: NonZeroUsize) {
    tch::set_num_threads(i32::try_from(threads.get()).unwrap_or(i32::MAX));
}

/// Returns the largest number of bytes that tensors have occupied on a GPU so far; `None` for the CPU.
pub(crate) fn peak_memory(device: Device) -> Option<u64> {
    let Device::Cuda(index) = device else {
        return None;
    };
    let bytes = advlab_torch_device_memory(i8::try_from(index).ok()?);
    u64::try_from(bytes).ok()
}

/// Returns the running sums of each row of a matrix.
///
/// With deterministic algorithms, libtorch refuses every such floating-point sum on a GPU, although its kernel for several rows
/// adds each row in a fixed order. Only the kernel for a single row has no fixed order, so a single row is summed together with a
/// copy of itself.
pub(crate) fn cumsum(rows: &Tensor, kind: Kind) -> TorchResult<Tensor> {
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

/// Returns an int64 tensor `[values.len()]` on a device.
pub(crate) fn indices(values: &[i64], device: Device) -> TorchResult<Tensor> {
    Ok(Tensor::f_from_slice(values)?.f_to_device(device)?)
}

/// Returns a float32 tensor `[values.len()]` on a device.
pub(crate) fn floats(values: &[f32], device: Device) -> TorchResult<Tensor> {
    Ok(Tensor::f_from_slice(values)?.f_to_device(device)?)
}

/// Returns the values of a tensor of any shape, kind and device, row by row.
pub(crate) fn to_vec<T: Element>(tensor: &Tensor) -> TorchResult<Vec<T>> {
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
        assert_eq!(start(config::Device::Cpu).unwrap(), Device::Cpu);
        let on_gpu = start(config::Device::Cuda);
        assert_eq!(on_gpu.is_ok(), tch::Cuda::is_available());
        if let Err(missing) = on_gpu {
            assert!(missing[0].message.starts_with("there is no GPU"));
        }
    }

    #[test]
    fn memory_is_counted_on_a_gpu_alone() {
        assert_eq!(peak_memory(Device::Cpu), None);
        let has_gpu = tch::Cuda::is_available();
        assert_eq!(peak_memory(Device::Cuda(0)).is_some(), has_gpu);
    }

    #[test]
    fn values_go_in_and_out_whatever_their_strides() {
        let floats = floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], Device::Cpu).unwrap();
        let turned = floats.f_view([2, 3]).unwrap().f_tr().unwrap();
        let expected = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
        assert_eq!(to_vec::<f32>(&turned).unwrap(), expected);
        let indices = indices(&[7, -1], Device::Cpu).unwrap();
        assert_eq!(to_vec::<f32>(&indices).unwrap(), [7.0, -1.0]);
    }

    fn refused(text: &str) -> TorchError {
        TorchError::from(TchError::Torch(text.to_string()))
    }

    #[test]
    fn of_a_message_only_the_first_line_is_kept() {
        let error = refused("\nsizes differ\nException raised from f at g.cpp:1\nframe #0: h");
        assert_eq!(error.to_string(), "libtorch: sizes differ");
        let ones = |size: i64| Tensor::f_ones([size], (Kind::Float, Device::Cpu)).unwrap();
        let text = TorchError::from(ones(2).f_add(&ones(3)).unwrap_err()).to_string();
        let is_one_line = text.lines().count() == 1;
        assert!(
            is_one_line && text.contains("must match the size"),
            "{text}"
        );
    }

    #[test]
    fn out_of_memory_says_what_to_lower() {
        // The tensor has 2^60 bytes, which is more than any machine of today can address.
        let much = Tensor::f_zeros([1 << 58], (Kind::Float, Device::Cpu));
        let found = TorchError::from(much.unwrap_err());
        let device = refused("CUDA out of memory. Tried to allocate 20.00 GiB.\nException raised");
        for error in [found, device] {
            let help = Diagnostics::from(error)[0].help.clone();
            assert!(help.is_some_and(|help| help.contains("`tokens_per_forward`")));
        }
    }
}

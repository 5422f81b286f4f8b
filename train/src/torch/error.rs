//! What libtorch says when it refuses, in few words.

use tch::TchError;
use thiserror::Error;

use advlab::diagnostic::{Diagnostic, Diagnostics};

/// Why a computation of libtorch did not come about.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TorchError {
    /// The memory of the device, or of the machine, does not suffice; with libtorch's own line.
    #[error("there is not enough memory: {0}")]
    OutOfMemory(String),
    /// Anything else, such as shapes that do not fit each other.
    #[error("libtorch: {0}")]
    Refused(String),
}

/// libtorch's texts begin with a line that says it all; the stack of its C++ follows.
fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("it does not say why").to_string()
}

impl From<TchError> for TorchError {
    fn from(error: TchError) -> Self {
        let line = match error {
            TchError::Torch(text) => first_line(&text),
            other => first_line(&other.to_string()),
        };
        // "CUDA out of memory. ..." of the device, "... can't allocate memory: you tried to allocate ..." of the machine.
        if line.contains("out of memory") || line.contains("can't allocate memory") {
            TorchError::OutOfMemory(line)
        } else {
            TorchError::Refused(line)
        }
    }
}

impl From<TorchError> for Diagnostics {
    fn from(error: TorchError) -> Self {
        let problem = Diagnostic::error(error.to_string());
        match error {
            TorchError::OutOfMemory(_) => problem
                .with_help("a lower `tokens_per_forward` needs less at a time, and in sampling a lower `rows_per_batch` or `max_new_tokens`; the model itself needs 4 bytes a weight, and 16 while it learns")
                .into(),
            TorchError::Refused(_) => problem.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind, Tensor};

    use super::*;

    fn refused(text: &str) -> TorchError {
        TorchError::from(TchError::Torch(text.to_string()))
    }

    #[test]
    fn the_first_line_alone_is_kept() {
        let error = refused("\nsizes differ\nException raised from f at g.cpp:1\nframe #0: h");
        assert_eq!(error.to_string(), "libtorch: sizes differ");
    }

    #[test]
    fn what_libtorch_itself_says_of_shapes_is_one_line() {
        let ones = |size: i64| Tensor::f_ones([size], (Kind::Float, Device::Cpu)).unwrap();
        let error = TorchError::from(ones(2).f_add(&ones(3)).unwrap_err());
        let text = error.to_string();
        assert!(matches!(error, TorchError::Refused(_)), "{text}");
        assert!(
            text.contains("must match the size") && text.lines().count() == 1,
            "{text}"
        );
    }

    #[test]
    fn out_of_memory_says_what_to_lower() {
        // 2^60 bytes: more than an address has bits for on the machines that there are.
        let much = Tensor::f_zeros([1 << 58], (Kind::Float, Device::Cpu));
        let found = TorchError::from(much.unwrap_err());
        let device = refused("CUDA out of memory. Tried to allocate 20.00 GiB.\nException raised");
        let host = crate::torch::room::<f32>(1 << 58).unwrap_err();
        for error in [found, device, host] {
            assert!(matches!(error, TorchError::OutOfMemory(_)), "{error:?}");
            let help = Diagnostics::from(error)[0].help.clone();
            assert!(help.is_some_and(|help| help.contains("`tokens_per_forward`")));
        }
    }
}

// The settings of libtorch that tch does not reach.

#include <torch/headeronly/version.h>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR != 11
#error "advlab's feature `torch` needs libtorch 2.11; README, section A language model, has three ways to get it"
#endif

#include <ATen/Context.h>

// The same bits in every repeat, and float32 products in float32. False where libtorch refuses.
extern "C" bool advlab_torch_be_deterministic() noexcept {
    try {
        auto& context = at::globalContext();
        context.setDeterministicAlgorithms(/*enabled=*/true, /*warn_only=*/false);
        // Filling what is about to be written costs time, and nothing here reads memory before it is written.
        context.setDeterministicFillUninitializedMemory(false);
        context.setBenchmarkCuDNN(false);
        context.setAllowTF32CuBLAS(false);
        context.setAllowTF32CuDNN(false);
        return true;
    } catch (...) {
        return false;
    }
}

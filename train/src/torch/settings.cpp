// Settings of libtorch that tch does not expose.

#include <torch/headeronly/version.h>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR != 11
#error "advlab's feature `torch` needs libtorch 2.11; README, section A language model, has three ways to get it"
#endif

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstdint>
#include <cstdlib>

// Makes every repeat give the same bits, and computes float32 products in float32. Returns false if libtorch refuses.
extern "C" bool advlab_torch_be_deterministic() noexcept {
    try {
        // Without this variable cuBLAS is not deterministic, and libtorch refuses its products. cuBLAS reads it at the first
        // product.
        setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
        auto& context = at::globalContext();
        context.setDeterministicAlgorithms(/*enabled=*/true, /*warn_only=*/false);
        // New memory is not filled, because filling costs time and nothing here reads memory before it is written.
        context.setDeterministicFillUninitializedMemory(false);
        context.setBenchmarkCuDNN(false);
        context.setAllowTF32CuBLAS(false);
        context.setAllowTF32CuDNN(false);
        return true;
    } catch (...) {
        return false;
    }
}

// Sets whether libtorch refuses operations that may give different bits in a repeat.
extern "C" void advlab_torch_refuse_nondeterministic(bool refuse) noexcept {
    at::globalContext().setDeterministicAlgorithms(refuse, /*warn_only=*/false);
}

// Returns the largest number of bytes that tensors have occupied so far on the GPU with this index; -1 if libtorch has no GPU.
extern "C" std::int64_t advlab_torch_device_memory(std::int8_t device) noexcept {
    try {
        auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(c10::kCUDA));
        if (allocator == nullptr || !allocator->initialized()) {
            return -1;
        }
        const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
        return allocator->getDeviceStats(device).allocated_bytes[all].peak;
    } catch (...) {
        return -1;
    }
}

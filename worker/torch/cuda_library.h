// LibTorch's library for CUDA, which this program is not linked with: it is loaded at run
// time, so that one program runs on hosts with and without GPUs. Thread-safe.
#ifndef LOCKSTEP_WORKER_TORCH_CUDA_LIBRARY_H_
#define LOCKSTEP_WORKER_TORCH_CUDA_LIBRARY_H_

#include <string>

#include "absl/status/status.h"

namespace lockstep {

// Afterwards LibTorch knows the device type CUDA; it stays loaded. Called before anything else
// of LibTorch that looks for devices, as manual_seed() and backward do: it looks once. `library` is searched as
// dlopen() does; it must be of the LibTorch that this program is linked with: "torch/lib" of the
// Python package torch of that version has it.
// Errors: FailedPrecondition: it is not there or not such a library, it came too late, or there is
//   no GPU; with what to do.
absl::Status LoadTorchCuda(const std::string& library = "libtorch_cuda.so");

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TORCH_CUDA_LIBRARY_H_

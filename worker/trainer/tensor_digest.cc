#include "worker/trainer/tensor_digest.h"

#include <cstddef>
#include <span>

#include "absl/strings/str_format.h"
#include "common/base/digest.h"

namespace lockstep {

std::string DigestOf(const std::vector<NamedTensor>& tensors) {
  Digester digester;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor values = tensor.detach().cpu().contiguous();
    digester.Add(name).Add(std::span(static_cast<const std::byte*>(values.const_data_ptr()),
                                     values.nbytes()));
  }
  return absl::StrFormat("%016x", digester.Finish());
}

}  // namespace lockstep

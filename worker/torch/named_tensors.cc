#include "worker/torch/named_tensors.h"

#include "torch/csrc/jit/api/module.h"
#include "torch/nn/module.h"

namespace lockstep {
namespace {

class NnTensors final : public NamedTensors {
 public:
  explicit NnTensors(torch::nn::Module* module) : module_(module) {}

  std::vector<NamedTensor> Parameters() const override {
    return List(module_->named_parameters());
  }
  std::vector<NamedTensor> Buffers() const override { return List(module_->named_buffers()); }

 private:
  static std::vector<NamedTensor> List(
      const torch::OrderedDict<std::string, at::Tensor>& registered) {
    std::vector<NamedTensor> tensors;
    for (const auto& item : registered) tensors.push_back({item.key(), item.value()});
    return tensors;
  }

  torch::nn::Module* const module_;
};

class JitTensors final : public NamedTensors {
 public:
  explicit JitTensors(const torch::jit::Module& module) : module_(module) {}

  std::vector<NamedTensor> Parameters() const override {
    std::vector<NamedTensor> tensors;
    for (const auto& item : module_.named_parameters()) tensors.push_back({item.name, item.value});
    return tensors;
  }
  std::vector<NamedTensor> Buffers() const override {
    std::vector<NamedTensor> tensors;
    for (const auto& item : module_.named_buffers()) tensors.push_back({item.name, item.value});
    return tensors;
  }

 private:
  const torch::jit::Module module_;
};

}  // namespace

std::unique_ptr<NamedTensors> TensorsOf(torch::nn::Module& module) {
  return std::make_unique<NnTensors>(&module);
}

std::unique_ptr<NamedTensors> TensorsOf(torch::jit::Module& module) {
  return std::make_unique<JitTensors>(module);
}

}  // namespace lockstep

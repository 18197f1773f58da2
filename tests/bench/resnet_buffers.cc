#include "tests/bench/resnet_buffers.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "torch/torch.h"

namespace lockstep {
namespace {

using torch::nn::Module;

std::shared_ptr<Module> AddTo(Module& parent, const std::string& name) {
  return parent.register_module(name, std::make_shared<Module>());
}

void AddBatchNorm(Module& parent, const std::string& name, std::int64_t channels) {
  parent.register_module(
      name, torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(channels).affine(false)));
}

}  // namespace

std::shared_ptr<Module> MakeResnetBuffers() {
  auto root = std::make_shared<Module>("resnet50");
  root->register_parameter("weight", torch::zeros({16}));
  AddBatchNorm(*root, "bn1", 64);
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t width = 64 << stage;
    const auto layer = AddTo(*root, absl::StrCat("layer", stage + 1));
    for (int i = 0; i < blocks[stage]; ++i) {
      const auto block = AddTo(*layer, absl::StrCat(i));
      AddBatchNorm(*block, "bn1", width);
      AddBatchNorm(*block, "bn2", width);
      AddBatchNorm(*block, "bn3", 4 * width);
      if (i == 0) AddBatchNorm(*AddTo(*block, "downsample"), "1", 4 * width);
    }
  }
  return root;
}

}  // namespace lockstep

#include "worker/trainer/classifier.h"

#include <utility>

#include "ATen/ops/zeros.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "common/base/status_macros.h"
#include "torch/csrc/jit/api/module.h"
#include "torch/csrc/jit/serialization/import.h"
#include "torch/utils.h"
#include "worker/torch/guard.h"
#include "worker/trainer/mnist.h"
#include "worker/trainer/models.h"

namespace lockstep {
namespace {

class BuiltInClassifier final : public Classifier {
 public:
  explicit BuiltInClassifier(torch::nn::Sequential net) : net_(std::move(net)) {}

  at::Tensor Forward(const at::Tensor& images) override { return net_->forward(images); }
  void SetTraining(bool training) override { net_->train(training); }
  std::unique_ptr<NamedTensors> Tensors() override { return TensorsOf(*net_); }
  void MoveTo(c10::Device device) override { net_->to(device); }
  absl::StatusOr<std::unique_ptr<Session>> Join(const SessionOptions& options,
                                                const OptimizerConfig& optimizer) override {
    return Session::Join(options, *net_, optimizer);
  }

 private:
  torch::nn::Sequential net_;
};

class ScriptClassifier final : public Classifier {
 public:
  explicit ScriptClassifier(torch::jit::Module module) : module_(std::move(module)) {}

  at::Tensor Forward(const at::Tensor& images) override {
    return module_.forward({images}).toTensor();
  }
  void SetTraining(bool training) override { module_.train(training); }
  std::unique_ptr<NamedTensors> Tensors() override { return TensorsOf(module_); }
  void MoveTo(c10::Device device) override { module_.to(device); }
  absl::StatusOr<std::unique_ptr<Session>> Join(const SessionOptions& options,
                                                const OptimizerConfig& optimizer) override {
    return Session::Join(options, module_, optimizer);
  }

 private:
  torch::jit::Module module_;
};

// One forward in evaluation mode, which leaves buffers as they are.
absl::Status CheckFits(const std::string& path, Classifier& classifier) {
  const auto refuse = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("the module in '", path, "' ", what, "; expected float32[n, 1, 28, 28] in and "
                     "float32[n, 10] out"));
  };
  try {
    const c10::AutoGradMode no_grad(false);
    classifier.SetTraining(false);
    const at::Tensor scores = classifier.Forward(at::zeros({2, 1, kImageSide, kImageSide}));
    classifier.SetTraining(true);
    if (scores.scalar_type() != at::kFloat || scores.dim() != 2 || scores.size(0) != 2 ||
        scores.size(1) != kDigits) {
      return refuse(absl::StrCat("gives ", c10::toString(scores.scalar_type()), " of ",
                                 scores.dim(), " dimensions"));
    }
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return refuse(absl::StrCat("failed on a batch of two images (", FirstLine(error), ")"));
  }
}

absl::StatusOr<std::unique_ptr<Classifier>> LoadScript(const std::string& path) {
  torch::jit::Module module;
  try {
    module = torch::jit::load(path, at::kCPU);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot load '", path, "' as a TorchScript module (", FirstLine(error),
                     "); save it by torch.jit.script(model).save(path)"));
  }
  auto classifier = std::make_unique<ScriptClassifier>(std::move(module));
  LOCKSTEP_RETURN_IF_ERROR(CheckFits(path, *classifier));
  return classifier;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Classifier>> MakeClassifier(const std::string& model,
                                                           std::uint64_t seed) {
  if (absl::EndsWith(model, ".pt")) return LoadScript(model);
  return GuardTorch("making the model", [&]() -> absl::StatusOr<std::unique_ptr<Classifier>> {
    torch::manual_seed(seed);
    if (model == "conv") return std::make_unique<BuiltInClassifier>(ConvNet());
    if (model == "resnet") return std::make_unique<BuiltInClassifier>(ResNet());
    if (model == "mlp") return std::make_unique<BuiltInClassifier>(Mlp());
    return absl::InvalidArgumentError(
        absl::StrCat("there is no model '", model,
                     "'; allowed are conv, resnet, mlp, or the path of a TorchScript file that "
                     "ends in .pt"));
  });
}

}  // namespace lockstep

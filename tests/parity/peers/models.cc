#include "tests/parity/peers/models.h"

#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torch/script.h"
#include "torch/torch.h"

namespace lockstep {
namespace {

const at::Tensor& Input(const Inputs& inputs, const std::string& name) { return inputs.at(name); }

struct BatchNormNet : torch::nn::Module {
  BatchNormNet() {
    register_module("fc1", fc1);
    register_module("bn", bn);
    register_module("fc2", fc2);
  }
  at::Tensor forward(const at::Tensor& x) { return fc2(torch::relu(bn(fc1(x)))); }

  torch::nn::Linear fc1{6, 8};
  torch::nn::BatchNorm1d bn{8};
  torch::nn::Linear fc2{8, 3};
};

class BatchNormModel final : public PeerModel {
 public:
  BatchNormModel(const Inputs& inputs, int rank)
      : x_(Input(inputs, absl::StrCat("batchnorm/rank", rank, "/x"))),
        y_(Input(inputs, absl::StrCat("batchnorm/rank", rank, "/y"))) {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net_.named_parameters()) {
      parameter.value().copy_(Input(inputs, absl::StrCat("batchnorm/", parameter.key())));
    }
  }

  absl::StatusOr<std::unique_ptr<Session>> Join(const SessionOptions& options,
                                                const OptimizerConfig& optimizer) override {
    return Session::Join(options, net_, optimizer);
  }
  at::Tensor Loss(std::int64_t batch) override {
    return (net_.forward(x_[batch]) - y_[batch]).pow(2).mean();
  }
  void SetTraining(bool training) override { net_.train(training); }
  std::map<std::string, at::Tensor> Parameters() override {
    return AsMap(net_.named_parameters());
  }
  std::map<std::string, at::Tensor> Buffers() override { return AsMap(net_.named_buffers()); }

 private:
  static std::map<std::string, at::Tensor> AsMap(
      const torch::OrderedDict<std::string, at::Tensor>& named) {
    std::map<std::string, at::Tensor> map;
    for (const auto& item : named) map.emplace(item.key(), item.value());
    return map;
  }

  BatchNormNet net_;
  const at::Tensor x_;  // [batches, rows, 6]
  const at::Tensor y_;  // [batches, rows, 3]
};

// A TorchScript module, because the buffers of a torch::nn one cannot be
// reassigned in C++.
class ProbeModel final : public PeerModel {
 public:
  ProbeModel(const nlohmann::json& script, const Inputs& inputs, int rank)
      : probe_(script.at("probe").get<std::string>()),
        x_(Input(inputs, absl::StrCat("probe/rank", rank, "/x"))) {
    module_.register_parameter("weight",
                               Input(inputs, "probe/weight").clone().requires_grad_(true),
                               /*is_buffer=*/false);
    const auto buffers = script.at("buffers").get<std::string>();
    if (buffers != "none") {
      module_.register_buffer("marker", buffers == "differing"
                                            ? torch::full({2 + rank}, 10.0 * (rank + 1))
                                            : torch::ones({2}));
    }
  }

  absl::StatusOr<std::unique_ptr<Session>> Join(const SessionOptions& options,
                                                const OptimizerConfig& optimizer) override {
    return Session::Join(options, module_, optimizer);
  }
  at::Tensor Loss(std::int64_t batch) override {
    const at::Tensor y = x_[batch].matmul(module_.attr("weight").toTensor()).unsqueeze(1);
    if (!module_.hasattr(probe_)) return y.mean();
    const at::Tensor probe = module_.attr(probe_).toTensor();
    seen_ = probe.detach().clone();
    return (y * probe).mean();
  }
  void SetTraining(bool training) override { module_.train(training); }
  std::map<std::string, at::Tensor> Parameters() override {
    return {{"weight", module_.attr("weight").toTensor()}};
  }
  std::map<std::string, at::Tensor> Buffers() override {
    std::map<std::string, at::Tensor> map;
    for (const auto& item : module_.named_buffers()) map.emplace(item.name, item.value);
    return map;
  }
  at::Tensor Seen() const override { return seen_; }
  void Reassign(const std::string& name, const at::Tensor& value) override {
    module_.setattr(name, value);
  }
  void Register(const std::string& name, const at::Tensor& value) override {
    module_.register_buffer(name, value);
  }

 private:
  torch::jit::Module module_{"Probe"};
  const std::string probe_;
  const at::Tensor x_;  // [batches, rows, 3]
  at::Tensor seen_;
};

}  // namespace

void PeerModel::Reassign(const std::string&, const at::Tensor&) {
  throw std::logic_error("only the probe model's buffers are reassigned");
}
void PeerModel::Register(const std::string&, const at::Tensor&) {
  throw std::logic_error("only the probe model gets further buffers");
}

std::unique_ptr<PeerModel> MakePeerModel(const nlohmann::json& script, const Inputs& inputs,
                                         int rank) {
  if (script.at("model") == "batchnorm") return std::make_unique<BatchNormModel>(inputs, rank);
  return std::make_unique<ProbeModel>(script, inputs, rank);
}

}  // namespace lockstep

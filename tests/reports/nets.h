// Small nets for the tests of this folder, the same at each construction.
#ifndef LOCKSTEP_TESTS_REPORTS_NETS_H_
#define LOCKSTEP_TESTS_REPORTS_NETS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/status_macros.h"
#include "torch/torch.h"
#include "worker/session/session.h"

namespace lockstep {

using NamedBuffers = std::vector<std::pair<std::string, at::Tensor>>;

// One parameter of two elements, and whatever buffers a test wants.
class BufferNet : public torch::nn::Module {
 public:
  explicit BufferNet(const NamedBuffers& buffers) {
    weight_ = register_parameter("weight", torch::ones({2}));
    for (const auto& [name, tensor] : buffers) register_buffer(name, tensor);
  }

  at::Tensor buffer(const std::string& name) const { return named_buffers()[name]; }
  // Other values in other memory under the same name: what `self.buf = ...` does in
  // Python, as far as a torch::nn::Module can.
  void Reassign(const std::string& name, const at::Tensor& tensor) {
    buffer(name).set_data(tensor);
  }
  void Fill(const std::string& name, double value) {
    const torch::NoGradGuard no_grad;
    buffer(name).fill_(value);
  }

  const at::Tensor& weight() const { return weight_; }
  at::Tensor Loss() const { return weight_.sum(); }

 private:
  at::Tensor weight_;
};

// A linear layer of 3 to 2 and batch norm behind it.
struct BatchNormNet : torch::nn::Module {
  explicit BatchNormNet(const torch::nn::BatchNorm1dOptions& options = 2) {
    torch::manual_seed(7);
    linear = register_module("linear",
                             torch::nn::Linear(torch::nn::LinearOptions(3, 2).bias(false)));
    norm = register_module("norm", torch::nn::BatchNorm1d(options));
  }
  at::Tensor forward(const at::Tensor& x) { return norm->forward(linear->forward(x)); }

  torch::nn::Linear linear = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};

// Four rows of three, other ones for each `seed`.
inline at::Tensor SomeInput(std::int64_t seed) {
  return ((torch::arange(12) * 7 + seed * 5) % 11).to(torch::kFloat).reshape({4, 3}) - 5;
}

// One net of each rank: `make(rank)`, or the same for all.
template <typename Net>
std::vector<std::shared_ptr<Net>> OnRanks(int ranks,
                                          const std::function<std::shared_ptr<Net>(int)>& make) {
  std::vector<std::shared_ptr<Net>> nets;
  for (int rank = 0; rank < ranks; ++rank) nets.push_back(make(rank));
  return nets;
}

inline std::vector<std::shared_ptr<BufferNet>> BufferNets(
    int ranks, const std::function<NamedBuffers(int rank)>& buffers) {
  return OnRanks<BufferNet>(
      ranks, [&](int rank) { return std::make_shared<BufferNet>(buffers(rank)); });
}

inline std::vector<std::shared_ptr<BatchNormNet>> BatchNormNets(int ranks) {
  return OnRanks<BatchNormNet>(ranks, [](int) { return std::make_shared<BatchNormNet>(); });
}

// A training step with a batch of one sample.
inline absl::Status TrainStep(Session& session, BufferNet& net) {
  LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
  net.Loss().backward();
  return session.Step({});
}

inline absl::Status TrainStep(Session& session, BatchNormNet& net, const at::Tensor& x) {
  LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
  net.forward(x).square().sum().backward();
  return session.Step({.samples = x.size(0)});
}

// Whether all parameters and buffers, by all names, have equal values.
inline bool HoldTheSame(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto equal = [](const auto& left, const auto& right) {
    if (left.size() != right.size()) return false;
    for (const auto& item : left) {
      if (!right.contains(item.key()) || !torch::equal(item.value(), right[item.key()])) {
        return false;
      }
    }
    return true;
  };
  return equal(a.named_parameters(), b.named_parameters()) &&
         equal(a.named_buffers(), b.named_buffers());
}

inline bool BuffersAreEqual(const torch::nn::Module& a, const torch::nn::Module& b) {
  for (const auto& item : a.named_buffers()) {
    if (!torch::equal(item.value(), b.named_buffers()[item.key()])) return false;
  }
  return true;
}

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_REPORTS_NETS_H_

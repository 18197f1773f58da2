#include "worker/trainer/classifier.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/csrc/jit/api/module.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Path(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

// A TorchScript file whose module computes `body` from x.
std::string SaveScript(const std::string& name, const std::string& body) {
  torch::jit::Module module("m");
  module.register_parameter("weight", at::zeros({784, 10}).requires_grad_(), false);
  module.define("def forward(self, x):\n    return " + body + "\n");
  module.save(Path(name));
  return Path(name);
}

TEST(MakeClassifier, BuiltInModelsGiveTenScoresForEachImage) {
  for (const std::string model : {"conv", "resnet", "mlp"}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto classifier, MakeClassifier(model, 1));
    EXPECT_EQ(classifier->Forward(at::zeros({3, 1, 28, 28})).sizes(),
              (std::vector<std::int64_t>{3, 10}));
    EXPECT_GE(classifier->Tensors()->Buffers().size(), 6u) << model << " has batch norm";
  }
}

TEST(MakeClassifier, ATorchScriptModuleTrains) {
  const std::string path = SaveScript("good.pt", "torch.matmul(x.flatten(1), self.weight)");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto classifier, MakeClassifier(path, 1));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto session, classifier->Join({}, Sgd{.lr = 1}));
  classifier->Forward(at::ones({2, 1, 28, 28})).sum().backward();
  LOCKSTEP_ASSERT_OK(session->Step({.samples = 2}));
  EXPECT_EQ(classifier->Tensors()->Parameters()[0].tensor[0][0].item<float>(), -2);
}

TEST(MakeClassifier, AFileThatIsNoSuitableModuleIsRefusedWithTheReason) {
  std::ofstream(Path("text.pt")) << "not a module";
  for (const auto& [path, reason] : std::vector<std::pair<std::string, std::string>>{
           {Path("missing.pt"), "TorchScript"},
           {Path("text.pt"), "TorchScript"},
           {SaveScript("narrow.pt", "torch.matmul(x.flatten(1), self.weight[:, 0:3])"),
            "float32[n, 10]"},
           {SaveScript("throws.pt", "torch.matmul(x, self.weight)"), "failed on a batch"},
           {SaveScript("number.pt", "3"), "failed on a batch"},
       }) {
    EXPECT_THAT(MakeClassifier(path, 1),
                StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(path),
                                                                   HasSubstr(reason))));
  }
}

}  // namespace
}  // namespace lockstep

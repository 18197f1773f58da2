// The example of README.md, as it stands there: it compiles, trains and is the
// same text.
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/torch.h"
// clang-format off
// Between the marks: README.md.
// [include]
#include "worker/session/session.h"
// [end]

namespace {

absl::Status Train(torch::nn::Sequential model, std::int64_t steps, const std::string& coordinator) {
  torch::nn::CrossEntropyLoss criterion;
  const torch::Tensor images = torch::randn({6, 4});
  const torch::Tensor labels = torch::arange(6).remainder(3);
// [code]
lockstep::SessionOptions options = {.coordinator = "10.0.0.1:7070", .job = "resnet", .worker = "worker-0"};
// [end]
  options.coordinator = coordinator;
// [code]
auto session = lockstep::Session::Join(options, *model, lockstep::AdamW{.lr = 3e-4});   // absl::StatusOr
while (session.ok() && (*session)->step() < steps) {
  if (!(*session)->BeforeForward().ok()) break;           // buffers are synchronised here, if due
  torch::Tensor loss = criterion(model->forward(images), labels);
  lockstep::StepOptions step = {.samples = images.size(0)};
  if (!(*session)->BeforeBackward(step).ok()) break;      // optional: over a network gradients travel meanwhile
  loss.backward();
  if (!(*session)->Step(step).ok()) break;
}
// [end]
  if (!session.ok()) return session.status();
  EXPECT_EQ((*session)->step(), steps);
  return absl::OkStatus();
}
// clang-format on

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The lines between marks, one part behind the other.
std::string MarkedLines(const std::string& path) {
  std::ifstream file(path);
  std::string lines;
  bool marked = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "// [include]" || line == "// [code]" || line == "// [end]") {
      marked = line != "// [end]";
    } else if (marked) {
      lines += line + "\n";
      if (line.rfind("#include", 0) == 0) lines += "\n";
    }
  }
  return lines;
}

TEST(ReadmeExample, TrainsAlone) {
  const torch::nn::Sequential model(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3));
  EXPECT_EQ(Train(model, 3, ""), absl::OkStatus());
}

TEST(ReadmeExample, IsTheTextOfTheReadme) {
  const std::string example = MarkedLines("worker/session/example_test.cc");
  EXPECT_THAT(example, testing::HasSubstr("Session::Join"));
  EXPECT_THAT(ReadAll("README.md"), testing::HasSubstr("```cpp\n" + example + "```\n"));
}

}  // namespace

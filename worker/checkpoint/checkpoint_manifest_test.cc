#include "worker/checkpoint/checkpoint_manifest.h"

#include <functional>
#include <string>

#include "absl/strings/str_replace.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/sample_checkpoint.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

CheckpointManifest Sample(int world_size = 3) {
  Prng prng(5);
  CheckpointManifest manifest = RandomCheckpoint(prng, world_size, 12).manifest;
  for (int rank = 0; rank < world_size; ++rank) {
    manifest.files.push_back({ShardFile(rank, world_size), {100 + rank, std::string(32, 'a')}});
  }
  manifest.files.push_back({kReplicatedFile, {50, std::string(32, '0')}});
  return manifest;
}

void SetOptimizer(CheckpointManifest& manifest, OptimizerConfig optimizer) {
  manifest.optimizer = std::move(optimizer);
  manifest.model.optimizer = Describe(manifest.optimizer);
}

TEST(CheckpointManifest, ComesBackFromItsText) {
  const OptimizerConfig kOptimizers[] = {
      Sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-300, .nesterov = true},
      Adam{.beta2 = 0.1 + 0.2}, AdamW{.groups = {{"**.bias", 3, 0.0}, {"layer1.\"ü", 0.5}}},
      Adagrad{.lr_decay = 1e-5, .initial_accumulator_value = 0.25}};
  for (const OptimizerConfig& optimizer : kOptimizers) {
    CheckpointManifest manifest = Sample();
    SetOptimizer(manifest, optimizer);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string text, ManifestToText(manifest));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const CheckpointManifest read, ManifestFromText(text));
    EXPECT_EQ(read.id, manifest.id);
    EXPECT_EQ(read.samples, manifest.samples);
    EXPECT_EQ(read.policy_revision, manifest.policy_revision);
    EXPECT_EQ(read.policy, manifest.policy);
    EXPECT_EQ(read.learning_rate, manifest.learning_rate);
    EXPECT_EQ(Describe(read.optimizer), Describe(optimizer));
    EXPECT_EQ(read.optimizer_steps, manifest.optimizer_steps);
    EXPECT_EQ(read.model, manifest.model);
    EXPECT_EQ(read.plan, manifest.plan);
    EXPECT_EQ(read.slots, manifest.slots);
    EXPECT_EQ(read.files, manifest.files);
    EXPECT_EQ(*ManifestToText(read), text);
  }
}

TEST(CheckpointManifest, WhatDoesNotBelongTogetherIsRefused) {
  const struct {
    std::function<void(CheckpointManifest&)> change;
    const char* why;
  } kCases[] = {
      {[](auto& m) { m.id.job = ""; }, "the job"},
      {[](auto& m) { m.id.job = "a\nb"; }, "the job"},
      {[](auto& m) { m.id.step = -1; }, "the step is -1"},
      {[](auto& m) { m.id.epoch = -1; }, "the epoch is -1"},
      {[](auto& m) { m.samples = -1; }, "samples"},
      {[](auto& m) { m.policy = "\xff"; }, "the policy"},
      {[](auto& m) { m.learning_rate = -1; }, "lr"},
      {[](auto& m) { m.optimizer = Sgd{}; }, "the model's optimizer"},
      {[](auto& m) { SetOptimizer(m, AdamW{.beta1 = 2}); }, "beta1"},
      {[](auto& m) { m.model.parameters[0].tensor.name = ""; }, "has no name"},
      {[](auto& m) { m.model.parameters[0].trainable = false; }, "expected a trainable one"},
      {[](auto& m) { m.model.parameters[6].trainable = true; }, "not in the plan"},
      {[](auto& m) { m.model.parameters[0].tensor.shape.push_back(2); }, "elements; expected"},
      {[](auto& m) { m.plan.shards[0].end -= 16; }, "the shard of rank 1"},
      {[](auto& m) { m.plan.shards.push_back({m.plan.flat_elements, m.plan.flat_elements}); },
       "the number of files"},
      {[](auto& m) { m.slots[0].name = ""; }, "slot"},
      {[](auto& m) { m.slots[0].name = m.slots[1].name; }, "once"},
      {[](auto& m) { m.slots[0].begin = -1; }, "the begin of state slot"},
      {[](auto& m) { m.slots[0].begin = m.plan.flat_elements + 1; }, "the begin of state slot"},
      {[](auto& m) { m.files.pop_back(); }, "the number of files"},
      {[](auto& m) { std::swap(m.files[0], m.files[1]); }, "a file's name"},
      {[](auto& m) { m.files[0].name = "../x"; }, "a file's name"},
      {[](auto& m) { m.files[0].sum.bytes = -1; }, "the size is -1"},
      {[](auto& m) { m.files[3].sum.checksum = std::string(32, 'A'); }, "the checksum"},
      {[](auto& m) { m.files[3].sum.checksum = "ab"; }, "the checksum"},
  };
  LOCKSTEP_ASSERT_OK(Validate(Sample()));
  for (const auto& c : kCases) {
    CheckpointManifest manifest = Sample();
    c.change(manifest);
    EXPECT_THAT(Validate(manifest),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.why)));
    EXPECT_THAT(ManifestToText(manifest), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(CheckpointManifest, AParameterInTheBlockOfAnotherTypeIsRefused) {
  CheckpointManifest manifest = Sample();
  for (ParameterSpec& parameter : manifest.model.parameters) {
    if (!parameter.trainable || parameter.tensor.elements() == 0) continue;
    parameter.tensor.dtype = parameter.tensor.dtype == DType::kFloat32 ? DType::kFloat16
                                                                       : DType::kFloat32;
    break;
  }
  EXPECT_THAT(Validate(manifest),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("in the block of")));
}

TEST(CheckpointManifest, EveryChangedBitAndEveryCutIsFound) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string text, ManifestToText(Sample(1)));
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] ^= static_cast<char>(1 << i % 8);
    ASSERT_THAT(ManifestFromText(changed), StatusIs(absl::StatusCode::kDataLoss)) << i;
    ASSERT_THAT(ManifestFromText(text.substr(0, i)), StatusIs(absl::StatusCode::kDataLoss)) << i;
  }
}

// With a right checksum, as if somebody had made it.
std::string Resummed(std::string text) {
  const std::size_t tail = text.rfind(",\n\"checksum\"");
  text.resize(tail);
  return text + ",\n\"checksum\":\"" + Checksum().Add(std::as_bytes(std::span(text))).Finish() +
         "\"}\n";
}

TEST(CheckpointManifest, WrongMembersAreRefusedAlsoWithARightChecksum) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string text, ManifestToText(Sample()));
  LOCKSTEP_EXPECT_OK(ManifestFromText(Resummed(text)));
  const struct {
    const char* from;
    const char* to;
    const char* why;
  } kCases[] = {
      {"\"job\":\"job\"", "\"job\":7", "manifest.job is 7; expected a text"},
      {"\"job\":\"job\"", "\"job\":\"\"", "the job"},
      {"\"epoch\":7,", "", "no member 'epoch'"},
      {"\"step\":12", "\"step\":12.5", "manifest.step is 12.5; expected an integer"},
      {"\"step\":12", "\"step\":12,\"step\":13", "'step' twice"},
      {"\"step\":12", "\"step\":99999999999999999999", "expected an integer"},
      {"\"AdamW\"", "\"Lion\"", "expected SGD"},
      {"\"beta1\":0.9", "\"beta1\":true", "manifest.optimizer.beta1"},
      {"\"beta1\":0.9", "\"beta1\":1.9", "beta1"},
      {"\"trainable\":true", "\"trainable\":1", "expected true or false"},
      {"\"shape\":", "\"shape\":[\"\"],\"was\":", "expected integers only"},
      {"\"shape\":", "\"shape\":[-3],\"was\":", "negative"},
      {"\"dtype\":\"", "\"dtype\":\"x", "expected the name of an element type"},
      {"\"blocks\":[", "\"blocks\":[3,", "manifest.plan.blocks[0] is 3; expected an object"},
      {"\"shards\":[", "\"shards\":{},\"other\":[", "expected an array"},
  };
  for (const auto& c : kCases) {
    const std::string changed = Resummed(absl::StrReplaceAll(text, {{c.from, c.to}}));
    ASSERT_NE(changed, text) << c.from;
    EXPECT_THAT(ManifestFromText(changed),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(c.why)))
        << c.from;
  }
  EXPECT_THAT(ManifestFromText(Resummed(
                  absl::StrReplaceAll(text, {{"\"format\":1", "\"format\":2"}}))),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has format 2")));
}

TEST(CheckpointManifest, TextThatNobodyWroteIsRefusedOrValid) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string text, ManifestToText(Sample()));
  Prng prng(3);
  for (int i = 0; i < 3000; ++i) {
    std::string changed = text;
    for (std::int64_t n = prng.Between(1, 3); n > 0; --n) {
      const std::size_t at = prng.Below(text.size() - 64);
      if (prng.Below(2) == 0) {
        changed[at] = "0123456789[]{},:\"- e."[prng.Below(21)];
      } else {
        changed.erase(at, prng.Below(20));
      }
    }
    const auto read = ManifestFromText(Resummed(changed));
    if (read.ok()) {
      ASSERT_THAT(Validate(*read), IsOk());
    } else {
      ASSERT_THAT(read.status().code(), testing::AnyOf(absl::StatusCode::kDataLoss,
                                                       absl::StatusCode::kFailedPrecondition));
    }
  }
}

}  // namespace
}  // namespace lockstep

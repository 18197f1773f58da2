#include "worker/checkpoint/safetensors.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string HeadOf(absl::string_view json) {
  std::string head;
  for (int i = 0; i < 8; ++i) head.push_back(static_cast<char>(json.size() >> (8 * i) & 0xff));
  return absl::StrCat(head, json);
}

absl::StatusOr<SafetensorsHeader> Parse(absl::string_view json, std::int64_t data_bytes) {
  const std::string head = HeadOf(json);
  return ParseSafetensors(head, static_cast<std::int64_t>(head.size()) + data_bytes);
}

TEST(Safetensors, AFileOfTheFormatsDocumentationIsUnderstood) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const SafetensorsHeader header,
      Parse(R"({"__metadata__":{"made":"by hand"},)"
            R"("b":{"dtype":"F16","shape":[1,3],"data_offsets":[8,14]},)"
            R"("a":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}   )",
            14));
  EXPECT_EQ(header.metadata, (SafetensorsMetadata{{"made", "by hand"}}));
  ASSERT_EQ(header.entries.size(), 2u);
  EXPECT_EQ(header.entries[0].tensor, (TensorSpec{"a", DType::kInt64, {}}));
  EXPECT_EQ(header.entries[1].tensor, (TensorSpec{"b", DType::kFloat16, {1, 3}}));
  EXPECT_EQ(header.entries[1].begin, header.entries[0].begin + 8);
  EXPECT_EQ(header.Find("b"), &header.entries[1]);
  EXPECT_EQ(header.Find("c"), nullptr);
}

TEST(Safetensors, EveryTypeIsWrittenAndReadOrRefusedByName) {
  int written = 0;
  for (std::int64_t number = 1; DTypeFromNumber(number); ++number) {
    const TensorSpec tensor = {"name", *DTypeFromNumber(number), {3, 5}};
    const auto layout = LayOutSafetensors({}, {tensor});
    if (SafetensorsName(tensor.dtype).empty()) {
      EXPECT_THAT(layout, StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr(std::string(DTypeName(tensor.dtype)))));
      continue;
    }
    ++written;
    LOCKSTEP_ASSERT_OK(layout);
    const auto head_bytes = static_cast<std::int64_t>(layout->head.size());
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header,
                                  ParseSafetensors(layout->head, head_bytes + tensor.bytes()));
    ASSERT_EQ(header.entries.size(), 1u);
    EXPECT_EQ(header.entries[0].tensor, tensor);
    EXPECT_EQ(header.entries[0].begin, head_bytes);
  }
  EXPECT_EQ(written, 17);
}

TEST(Safetensors, TensorsAreAlignedToTheirTypes) {
  const std::vector<TensorSpec> tensors = {{"byte", DType::kUint8, {3}},
                                           {"double", DType::kFloat64, {1}},
                                           {"none", DType::kFloat32, {0, 1'000'000'000'000}},
                                           {"half", DType::kFloat16, {5}},
                                           {"float", DType::kFloat32, {1}}};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const SafetensorsLayout layout,
                                LayOutSafetensors({{"k", "v"}}, tensors));
  EXPECT_EQ(layout.order, (std::vector<std::size_t>{1, 2, 4, 3, 0}));
  const auto head_bytes = static_cast<std::int64_t>(layout.head.size());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header,
                                ParseSafetensors(layout.head, head_bytes + 3 + 8 + 10 + 4));
  ASSERT_EQ(header.entries.size(), tensors.size());
  for (const SafetensorsEntry& entry : header.entries) {
    EXPECT_EQ(entry.begin % ElementBytes(entry.tensor.dtype), 0) << entry.tensor.name;
  }
}

TEST(Safetensors, WhatTheFormatCannotHoldIsNotWritten) {
  const auto refused = [](const std::vector<TensorSpec>& tensors, const std::string& why) {
    EXPECT_THAT(LayOutSafetensors({}, tensors),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  refused({{"__metadata__", DType::kInt8, {}}}, "__metadata__");
  refused({{"a\xff", DType::kInt8, {}}}, "UTF-8");
  refused({{"a", DType::kInt8, {-1}}}, "none negative");
  refused({{"a", DType::kInt8, {}}, {"a", DType::kInt8, {}}}, "two tensors");
  refused({{"a", DType::kInt8, {INT64_MAX}}, {"b", DType::kInt8, {1}}}, "63 bits");
  EXPECT_THAT(LayOutSafetensors({{"k", "\xff"}}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("UTF-8")));
}

TEST(Safetensors, WhatIsNotOfTheFormatIsRefusedWithWhatWasExpected) {
  const struct {
    const char* json;
    std::int64_t data_bytes;
    const char* why;
  } kCases[] = {
      {"", 0, "does not begin with '{'"},
      {" {}", 0, "does not begin with '{'"},
      {"{", 0, "expected JSON"},
      {"{}x", 0, "expected JSON"},
      {R"({"a":1e999})", 0, "expected JSON"},
      {"{\"\xff\":1}", 0, "expected JSON"},
      {"{}", 1, "its tensors end at byte"},
      {R"({"a":1})", 0, "expected an object"},
      {R"({"a":{}})", 0, "no member 'dtype'"},
      {R"({"a":{"dtype":"F99","shape":[],"data_offsets":[0,0]}})", 0, "unknown type 'F99'"},
      {R"({"a":{"dtype":3,"shape":[],"data_offsets":[0,0]}})", 0, "expected a text"},
      {R"({"a":{"dtype":"U8","shape":{},"data_offsets":[0,0]}})", 0, "expected an array"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})", 0, "has a dimension"},
      {R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, "has a dimension"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1,
       "has a dimension"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "wrong data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "wrong data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1, "wrong data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1, "wrong data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,2]}})", 2, "with 2 bytes; expected 4"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "with 0 bytes"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "begins at byte"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "begins at byte"},
      {R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})",
       1, "'a' twice"},
      {R"({"__metadata__":{"a":1}})", 0, "is no text"},
      {R"({"__metadata__":[]})", 0, "no object"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(Parse(c.json, c.data_bytes),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(c.why)))
        << c.json;
  }
}

TEST(Safetensors, ADeepHeaderIsRefusedWithoutADeepStack) {
  EXPECT_THAT(Parse("{\"a\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}", 0),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("in each other")));
  EXPECT_THAT(Parse("{\"a\":" + std::string(1'000'000, '['), 0),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(Safetensors, ALengthThatTheFileDoesNotHaveIsRefused) {
  const auto refused = [](const std::string& prefix, std::int64_t file_bytes) {
    EXPECT_THAT(SafetensorsHeadBytes(prefix, file_bytes), StatusIs(absl::StatusCode::kDataLoss));
  };
  refused("", 0);
  refused(std::string("\2\0\0\0\0\0\0", 7), 7);
  refused(std::string("\3\0\0\0\0\0\0\0", 8), 10);
  refused(std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8), INT64_MAX);
  refused(std::string("\1\xe1\xf5\5\0\0\0\0", 8), INT64_MAX);  // 100 000 001
  EXPECT_EQ(*SafetensorsHeadBytes(std::string("\0\xe1\xf5\5\0\0\0\0", 8), INT64_MAX),
            100'000'008);
}

TEST(Safetensors, ChangedHeadersAreReadAsWhatTheySayOrRefused) {
  const std::vector<TensorSpec> tensors = {{"first", DType::kFloat32, {2, 3}},
                                           {"second", DType::kBfloat16, {7}}};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const SafetensorsLayout layout,
                                LayOutSafetensors({{"step", "12"}}, tensors));
  const auto file_bytes = static_cast<std::int64_t>(layout.head.size()) + 24 + 14;
  Prng prng(11);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string head = layout.head;
    for (std::int64_t n = prng.Between(1, 3); n > 0; --n) {
      switch (prng.Below(3)) {
        case 0:
          head[prng.Below(head.size())] ^= static_cast<char>(1 << prng.Below(8));
          break;
        case 1:
          head[prng.Below(head.size())] = "0123456789[]{},:\"- e."[prng.Below(21)];
          break;
        default:
          head.erase(prng.Below(head.size()), 1);
          break;
      }
      if (head.empty()) break;
    }
    const auto parsed = ParseSafetensors(head, file_bytes);
    if (!parsed.ok()) {
      ++refused;
      ASSERT_THAT(parsed, StatusIs(absl::StatusCode::kDataLoss));
      continue;
    }
    for (const SafetensorsEntry& entry : parsed->entries) {
      ASSERT_GE(entry.begin, static_cast<std::int64_t>(layout.head.size()));
      ASSERT_LE(entry.begin + entry.tensor.bytes(), file_bytes);
    }
  }
  EXPECT_GT(refused, 10'000);
  EXPECT_LT(refused, 20'000);
}

}  // namespace
}  // namespace lockstep

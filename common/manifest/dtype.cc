#include "common/manifest/dtype.h"

#include <cstddef>

namespace lockstep {
namespace {

struct Row {
  absl::string_view name;
  int bytes;
};

// By number.
constexpr Row kRows[] = {
    {"unspecified", 0}, {"bool", 1},          {"int8", 1},
    {"int16", 2},       {"int32", 4},         {"int64", 8},
    {"uint8", 1},       {"uint16", 2},        {"uint32", 4},
    {"uint64", 8},      {"float16", 2},       {"bfloat16", 2},
    {"float32", 4},     {"float64", 8},       {"complex32", 4},
    {"complex64", 8},   {"complex128", 16},   {"float8_e4m3fn", 1},
    {"float8_e5m2", 1}, {"float8_e4m3fnuz", 1}, {"float8_e5m2fnuz", 1},
    {"float8_e8m0fnu", 1},
};
constexpr std::int64_t kRowCount = sizeof(kRows) / sizeof(kRows[0]);
static_assert(kRowCount == static_cast<std::int64_t>(DType::kFloat8E8m0fnu) + 1);

const Row& RowOf(DType dtype) {
  const auto number = static_cast<std::int64_t>(dtype);
  return kRows[number > 0 && number < kRowCount ? number : 0];
}

}  // namespace

int ElementBytes(DType dtype) { return RowOf(dtype).bytes; }

absl::string_view DTypeName(DType dtype) { return RowOf(dtype).name; }

bool IsTrainable(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBfloat16 || dtype == DType::kFloat16;
}

std::optional<DType> DTypeFromNumber(std::int64_t number) {
  if (number < 1 || number >= kRowCount) return std::nullopt;
  return static_cast<DType>(number);
}

}  // namespace lockstep

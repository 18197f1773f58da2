#include "worker/combine/naive_reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "common/base/check.h"
#include "common/base/prng.h"

namespace lockstep {
namespace {

// A binary floating type. Codes up to `largest` are its finite numbers without a
// sign, in order.
struct Format {
  int bytes;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  std::uint64_t largest;
  std::uint64_t beyond;  // what a larger number becomes
  std::uint64_t nan;
  bool has_signed_zero = true;  // no: its place is that of the one NaN

  std::uint64_t sign() const { return std::uint64_t{1} << (exponent_bits + mantissa_bits); }

  // `magnitude` up to largest + 1, which stands for the next number if there were
  // one more.
  double Finite(std::uint64_t magnitude) const {
    const auto exponent = static_cast<int>(magnitude >> mantissa_bits);
    const std::uint64_t hidden = std::uint64_t{1} << mantissa_bits;
    const std::uint64_t mantissa = magnitude & (hidden - 1);
    if (exponent == 0) return std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return std::ldexp(mantissa + hidden, exponent - bias - mantissa_bits);
  }

  double Decode(std::uint64_t code) const {
    const bool negative = (code & sign()) != 0;
    const std::uint64_t magnitude = code & (sign() - 1);
    if (!has_signed_zero && code == nan) return std::numeric_limits<double>::quiet_NaN();
    double value = 0;
    if (magnitude <= largest) {
      value = Finite(magnitude);
    } else {
      value = magnitude == beyond && beyond != nan ? std::numeric_limits<double>::infinity()
                                                   : std::numeric_limits<double>::quiet_NaN();
    }
    return negative ? -value : value;
  }

  // To nearest, ties to the even code.
  std::uint64_t Encode(double value) const {
    if (std::isnan(value)) return nan;
    const double size = std::fabs(value);
    std::uint64_t low = 0;
    std::uint64_t high = largest + 1;
    while (low + 1 < high) {
      const std::uint64_t middle = (low + high) / 2;
      (Finite(middle) <= size ? low : high) = middle;
    }
    const double to_low = size - Finite(low);  // both exact: of neighbours
    const double to_high = Finite(high) - size;
    std::uint64_t code = to_low < to_high || (to_low == to_high && low % 2 == 0) ? low : high;
    if (size >= Finite(largest + 1)) code = largest + 1;
    if (code > largest) code = beyond;
    if (std::signbit(value) && (has_signed_zero || (code != 0 && code != nan))) code |= sign();
    return code;
  }
};

// Of the type itself, or of a component.
std::optional<Format> FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kComplex32:
      return Format{2, 5, 10, 15, 0x7bff, 0x7c00, 0x7e00};
    case DType::kBfloat16:
      return Format{2, 8, 7, 127, 0x7f7f, 0x7f80, 0x7fc0};
    case DType::kFloat32:
    case DType::kComplex64:
      return Format{4, 8, 23, 127, 0x7f7fffff, 0x7f800000, 0x7fc00000};
    case DType::kFloat8E4m3fn:
      return Format{1, 4, 3, 7, 0x7e, 0x7e, 0x7f};
    case DType::kFloat8E5m2:
      return Format{1, 5, 2, 15, 0x7b, 0x7c, 0x7f};
    case DType::kFloat8E4m3fnuz:
      return Format{1, 4, 3, 8, 0x7f, 0x80, 0x80, false};
    case DType::kFloat8E5m2fnuz:
      return Format{1, 5, 2, 16, 0x7f, 0x80, 0x80, false};
    default:
      return std::nullopt;
  }
}

bool IsDouble(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kComplex128;
}
bool IsFloating(DType dtype) { return IsDouble(dtype) || FormatOf(dtype).has_value(); }

// Of the type itself, or of a component.
int ScalarBytes(DType dtype) {
  if (IsDouble(dtype)) return 8;
  const std::optional<Format> format = FormatOf(dtype);
  return format.has_value() ? format->bytes : ElementBytes(dtype);
}

double Decode(DType dtype, std::uint64_t code) {
  if (IsDouble(dtype)) return std::bit_cast<double>(code);
  return FormatOf(dtype)->Decode(code);
}

std::uint64_t Encode(DType dtype, double value) {
  if (!IsDouble(dtype)) return FormatOf(dtype)->Encode(value);
  return std::bit_cast<std::uint64_t>(
      std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value);
}

bool IsSigned(DType dtype) { return dtype >= DType::kInt8 && dtype <= DType::kInt64; }

std::uint64_t CodeAt(const Bytes& bytes, int size, std::int64_t i) {
  std::uint64_t code = 0;
  std::memcpy(&code, bytes.data() + i * size, size);
  return code;
}

std::uint64_t Add(DType dtype, ReduceOp op, const std::vector<double>& weights,
                  const std::vector<std::uint64_t>& codes) {
  if (dtype == DType::kBool) {
    return std::any_of(codes.begin(), codes.end(), [](std::uint64_t code) { return code != 0; });
  }
  if (!IsFloating(dtype)) {
    std::uint64_t sum = 0;
    for (const std::uint64_t code : codes) sum += code;
    return sum;  // its low bytes are stored
  }
  std::optional<double> sum;
  double count = 0;
  for (std::size_t r = 0; r < codes.size(); ++r) {
    const double weight = weights.empty() ? 1 : weights[r];
    count += weight;
    if (weight == 0) continue;
    const double part = weight * Decode(dtype, codes[r]);
    sum = sum.has_value() ? *sum + part : part;
  }
  return Encode(dtype, op == ReduceOp::kMean ? *sum / count : *sum);
}

bool IsNan(DType dtype, std::uint64_t code) {
  if (dtype == DType::kFloat8E8m0fnu) return code == 0xff;
  return IsFloating(dtype) && std::isnan(Decode(dtype, code));
}

bool Less(DType dtype, std::uint64_t a, std::uint64_t b) {
  if (IsFloating(dtype)) return Decode(dtype, a) < Decode(dtype, b);
  // Signed numbers are ordered like unsigned ones with the sign turned around.
  const std::uint64_t sign =
      IsSigned(dtype) ? std::uint64_t{1} << (8 * ElementBytes(dtype) - 1) : 0;
  return (a ^ sign) < (b ^ sign);
}

std::uint64_t Select(DType dtype, ReduceOp op, const std::vector<std::uint64_t>& codes) {
  for (const std::uint64_t code : codes) {
    if (IsNan(dtype, code)) return code;
  }
  std::uint64_t selected = codes[0];
  for (const std::uint64_t code : codes) {
    if (op == ReduceOp::kMin ? Less(dtype, code, selected) : Less(dtype, selected, code)) {
      selected = code;
    }
  }
  return selected;
}

}  // namespace

Bytes NaiveReduce(DType dtype, ReduceOp op, const std::vector<double>& weights,
                  const std::vector<Bytes>& sources) {
  LOCKSTEP_CHECK(IsReducible(dtype, op));
  Bytes result(sources[0].size());
  const int size = ScalarBytes(dtype);
  for (std::size_t i = 0; i < result.size() / size; ++i) {
    std::vector<std::uint64_t> codes;
    for (const Bytes& source : sources) codes.push_back(CodeAt(source, size, i));
    const std::uint64_t code = op == ReduceOp::kSum || op == ReduceOp::kMean
                                   ? Add(dtype, op, weights, codes)
                                   : Select(dtype, op, codes);
    std::memcpy(result.data() + i * size, &code, size);
  }
  return result;
}

void FillHard(DType dtype, std::uint64_t seed, std::span<std::byte> into) {
  // Sums of them depend on their order, and lie next to a tie between two numbers
  // of one of the types.
  constexpr double kHard[] = {0,        -0.0,     1,        -1,       3,        0.1,     1.5,
                              0x1p-4,   0x1p-8,   0x1p-11,  0x1p-12,  0x1p-24,  -0x1p-24, 0x1p-25,
                              0x1p-53,  0x1p-60,  0x1p60,   -0x1p60,  0x1p100,  -0x1p100, 240,
                              448,      57344,    65504,    -65504,   0x1p-133, 0x1p-149};
  Prng prng(seed);
  const int size = ScalarBytes(dtype);
  for (std::size_t i = 0; i < into.size() / size; ++i) {
    std::uint64_t code = prng.Next();
    if (IsFloating(dtype) && prng.Below(4) != 0) {
      code = Encode(dtype, kHard[prng.Below(std::size(kHard))]);
    }
    if (dtype == DType::kBool) code &= 1;
    std::memcpy(into.data() + i * size, &code, size);
  }
}

}  // namespace lockstep

#include "worker/transport/nccl/fake/arithmetic.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace lockstep::fake_nccl {
namespace {

template <typename T>
T Combine(ncclRedOp_t op, T a, T b) {
  // Signed overflow wraps on GPUs.
  if constexpr (std::is_integral_v<T>) {
    const auto ua = static_cast<std::uint64_t>(a);
    const auto ub = static_cast<std::uint64_t>(b);
    if (op == ncclSum) return static_cast<T>(ua + ub);
    if (op == ncclProd) return static_cast<T>(ua * ub);
    return (op == ncclMax) == (a < b) ? b : a;
  } else {
    // Sums and products of 16-bit types in float, rounded, are those of the type.
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const auto wa = static_cast<Wide>(a);
    const auto wb = static_cast<Wide>(b);
    if (op == ncclSum) return static_cast<T>(wa + wb);
    if (op == ncclProd) return static_cast<T>(wa * wb);
    return static_cast<T>(op == ncclMax ? std::fmax(wa, wb) : std::fmin(wa, wb));
  }
}

template <typename T>
void FoldOf(ncclRedOp_t op, const std::vector<const void*>& sources, void* into,
            std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    T result{};
    for (std::size_t rank = 0; rank < sources.size(); ++rank) {
      T value{};
      std::memcpy(&value, static_cast<const std::byte*>(sources[rank]) + i * sizeof(T), sizeof(T));
      result = rank == 0 ? value : Combine(op, result, value);
    }
    std::memcpy(static_cast<std::byte*>(into) + i * sizeof(T), &result, sizeof(T));
  }
}

}  // namespace

std::size_t ElementBytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

const char* NameOf(ncclDataType_t type) {
  constexpr const char* kNames[] = {"int8",    "uint8",   "int32",   "uint32",
                                    "int64",   "uint64",  "float16", "float32",
                                    "float64", "bfloat16", "float8e4m3", "float8e5m2"};
  return ElementBytes(type) == 0 ? "?" : kNames[type];
}

bool CanReduce(ncclDataType_t type, ncclRedOp_t op) {
  const bool known = op == ncclSum || op == ncclProd || op == ncclMax || op == ncclMin;
  return known && ElementBytes(type) != 0 && type != ncclFloat8e4m3 && type != ncclFloat8e5m2;
}

void Fold(ncclDataType_t type, ncclRedOp_t op, const std::vector<const void*>& sources, void* into,
          std::size_t count) {
  switch (type) {
    case ncclInt8:
      return FoldOf<std::int8_t>(op, sources, into, count);
    case ncclUint8:
      return FoldOf<std::uint8_t>(op, sources, into, count);
    case ncclInt32:
      return FoldOf<std::int32_t>(op, sources, into, count);
    case ncclUint32:
      return FoldOf<std::uint32_t>(op, sources, into, count);
    case ncclInt64:
      return FoldOf<std::int64_t>(op, sources, into, count);
    case ncclUint64:
      return FoldOf<std::uint64_t>(op, sources, into, count);
    case ncclFloat16:
      return FoldOf<__half>(op, sources, into, count);
    case ncclBfloat16:
      return FoldOf<__nv_bfloat16>(op, sources, into, count);
    case ncclFloat32:
      return FoldOf<float>(op, sources, into, count);
    case ncclFloat64:
      return FoldOf<double>(op, sources, into, count);
    default:
      return;
  }
}

}  // namespace lockstep::fake_nccl

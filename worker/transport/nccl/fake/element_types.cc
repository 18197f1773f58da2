#include "worker/transport/nccl/fake/element_types.h"

namespace lockstep::fake_nccl {

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

}  // namespace lockstep::fake_nccl

// libFuzzer's entry: the target's promises hold for any bytes.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/promises.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const absl::StatusOr<lockstep::Reached> reached =
      lockstep::CheckPromises({reinterpret_cast<const char*>(data), size});
  if (!reached.ok()) {
    std::fprintf(stderr, "%s\n", reached.status().ToString().c_str());
    std::abort();
  }
  return 0;
}

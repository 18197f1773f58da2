// libFuzzer's entry: any bytes keep the promises of policy_promises.h.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "tests/fuzz/policy_promises.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const absl::StatusOr<lockstep::Reached> reached =
      lockstep::CheckPolicyPromises({reinterpret_cast<const char*>(data), size});
  if (!reached.ok()) {
    std::fprintf(stderr, "%s\n", reached.status().ToString().c_str());
    std::abort();
  }
  return 0;
}

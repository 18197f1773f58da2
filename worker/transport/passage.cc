#include "worker/transport/passage.h"

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "worker/transport/transfer.h"

namespace lockstep {

std::uint64_t PassagesDigest(std::span<const Passage> passages) {
  Digester digester;
  for (const Passage& passage : passages) {
    digester.Add(std::int64_t{passage.from}).Add(std::int64_t{passage.to});
    digester.Add(static_cast<std::int64_t>(LayoutDigest({&passage.view, 1})));
  }
  return digester.Finish();
}

std::vector<LayoutLine> LinesOf(std::span<const Passage> passages) {
  std::vector<LayoutLine> lines;
  for (const Passage& passage : passages) {
    lines.push_back({passage.view.spec.name,
                     absl::StrCat(passage.view.spec.ToString(), " from rank ", passage.from,
                                  " to rank ", passage.to)});
  }
  return lines;
}

absl::Status CheckPassages(std::span<const Passage> passages, int rank, int world_size) {
  const auto exists = [&](int each) { return each >= 0 && each < world_size; };
  for (const Passage& passage : passages) {
    if (!exists(passage.from) || !exists(passage.to) || passage.from == passage.to) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor '", passage.view.spec.name, "' is to go from rank ", passage.from, " to rank ",
          passage.to, "; they must be two of the ranks 0 to ", world_size - 1));
    }
    if (passage.from != rank && passage.to != rank) continue;
    const Transfer alone = {.views = {&passage.view, 1}};
    LOCKSTEP_RETURN_IF_ERROR(CheckViews({&alone, 1}));
  }
  return absl::OkStatus();
}

}  // namespace lockstep

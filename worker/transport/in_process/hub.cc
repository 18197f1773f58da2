#include "worker/transport/in_process/hub.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "worker/transport/call.h"

namespace lockstep {

Hub::Hub(std::vector<std::string> members)
    : members_(std::move(members)), payloads_(members_.size()), present_(members_.size()) {}

absl::Status Hub::Meet(int rank, void* payload, absl::Duration timeout,
                       const std::function<void(std::span<void* const>)>& act) {
  MutexLock lock(&mu_);
  if (!broken_.ok()) return broken_;
  payloads_[rank] = payload;
  present_[rank] = true;
  if (++came_ == members_.size()) {
    act(payloads_);
    came_ = 0;
    present_.assign(members_.size(), false);
    ++meeting_;
    changed_.SignalAll();
    return absl::OkStatus();
  }

  const std::int64_t mine = meeting_;
  changed_.AwaitFor(&mu_, timeout, [&] { return meeting_ != mine || !broken_.ok(); });
  // A meeting that took place counts, also if the hub broke right after.
  if (meeting_ != mine) return absl::OkStatus();
  if (broken_.ok()) {
    std::vector<std::string> missing;
    for (std::size_t r = 0; r < members_.size(); ++r) {
      if (!present_[r]) missing.push_back(MemberText(members_, static_cast<int>(r)));
    }
    broken_ = absl::DeadlineExceededError(absl::StrCat(
        ListNames(missing), " did not come within ", absl::FormatDuration(timeout)));
    changed_.SignalAll();
  }
  return broken_;
}

void Hub::Break(const absl::Status& why) {
  MutexLock lock(&mu_);
  if (!broken_.ok()) return;
  broken_ = why;
  changed_.SignalAll();
}

}  // namespace lockstep

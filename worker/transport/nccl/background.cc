#include "worker/transport/nccl/background.h"

#include <utility>

#include "absl/time/time.h"

namespace lockstep::nccl_link {

Background::~Background() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mu_);
    ending_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void Background::Start(Work work) {
  busy_ = true;
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  MutexLock lock(&mu_);
  queue_.push_back(std::move(work));
  changed_.SignalAll();
}

absl::Status Background::Join() {
  MutexLock lock(&mu_);
  changed_.AwaitFor(&mu_, absl::InfiniteDuration(), [&] { return queue_.empty(); });
  busy_ = false;
  return std::exchange(status_, absl::OkStatus());
}

void Background::Run() {
  MutexLock lock(&mu_);
  while (true) {
    changed_.AwaitFor(&mu_, absl::InfiniteDuration(),
                      [&] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    if (status_.ok()) {
      const Work& work = queue_.front();
      mu_.Unlock();
      absl::Status status = work();
      mu_.Lock();
      status_ = std::move(status);
    }
    queue_.pop_front();
    changed_.SignalAll();
  }
}

}  // namespace lockstep::nccl_link

#include "worker/transport/star/forming_stop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace lockstep {

FormingStop::FormingStop() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

FormingStop::~FormingStop() {
  if (fd_ >= 0) close(fd_);
}

void FormingStop::Stop(const absl::Status& why) {
  MutexLock lock(&mu_);
  if (!why_.ok()) return;
  why_ = why;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
}

absl::Status FormingStop::why() const {
  MutexLock lock(&mu_);
  return why_;
}

}  // namespace lockstep

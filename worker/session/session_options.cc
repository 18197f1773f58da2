#include "worker/session/session_options.h"

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "absl/strings/string_view.h"
#include "worker/transport/gloo/gloo_transport.h"

namespace lockstep {
namespace {

absl::Status Refuse(absl::string_view option, absl::string_view value,
                    absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("the session's option ", option, " is '", value, "'; ", allowed));
}

// "host:port", "[::1]:port".
bool IsHostAndPort(absl::string_view text) {
  const std::size_t colon = text.rfind(':');
  std::int32_t port = 0;
  return colon != absl::string_view::npos && colon > 0 &&
         absl::SimpleAtoi(text.substr(colon + 1), &port) && port > 0 && port < 65536;
}

}  // namespace

absl::Status SessionOptions::Validate() const {
  if (join_timeout <= absl::ZeroDuration()) {
    return Refuse("join_timeout", absl::FormatDuration(join_timeout), "allowed is more than 0");
  }
  if (operation_timeout <= absl::ZeroDuration()) {
    return Refuse("operation_timeout", absl::FormatDuration(operation_timeout),
                  "allowed is more than 0");
  }
  if (rejoin_timeout < absl::ZeroDuration()) {
    return Refuse("rejoin_timeout", absl::FormatDuration(rejoin_timeout),
                  "allowed is 0 (never) or more");
  }
  LOCKSTEP_RETURN_IF_ERROR(checkpoints.Validate());
  if (coordinator.empty()) return lockstep::Validate(policy);
  if (!IsHostAndPort(coordinator)) {
    return Refuse("coordinator", coordinator,
                  "expected host:port, or nothing to train alone (world size 1)");
  }
  if (job.empty()) return Refuse("job", job, "name the training run that the coordinator holds");
  if (worker.empty()) {
    return Refuse("worker", worker, "give this worker a name that is unique in its job");
  }
  if (transport != "shm" && transport != "gloo" && transport != "nccl") {
    return Refuse("transport", transport,
                  "allowed are 'shm' (ranks of one host), 'gloo' (ranks of several) and 'nccl' "
                  "(ranks on GPUs)");
  }
  if (transport != "shm" && interface.empty()) {
    return Refuse("interface", interface,
                  "name the network interface that the peers can reach, as lo or eth0");
  }
  if (gpu < 0) return Refuse("gpu", absl::StrCat(gpu), "allowed is 0 or more");
  if (transport == "gloo" && !IsBucketSize(gloo_bucket_bytes)) {
    return Refuse("gloo_bucket_bytes", absl::StrCat(gloo_bucket_bytes),
                  absl::StrCat("allowed are multiples of 16 from ", kMinBucketBytes, " to ",
                               kMaxBucketBytes));
  }
  return absl::OkStatus();
}

}  // namespace lockstep

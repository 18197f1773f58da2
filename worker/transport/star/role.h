// Role: what a rank says and how it answers, which differs between rank 0 and the others.
//
// Knows neither threads nor waits: a star calls it under its lock. Every error that a
// function returns ends the epoch.
#ifndef LOCKSTEP_WORKER_TRANSPORT_STAR_ROLE_H_
#define LOCKSTEP_WORKER_TRANSPORT_STAR_ROLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/transport/star/socket.h"
#include "worker/transport/transport.h"

namespace lockstep::star {

struct Peer {
  int rank = 0;
  Connection connection;
  bool left = false;  // it said goodbye
};

class Role {
 public:
  virtual ~Role() = default;

  // An exchange starts with this rank's record.
  virtual void Begin(absl::string_view mine) = 0;
  // Of any kind but kEnd.
  virtual absl::Status OnFrame(Peer& peer, const Frame& frame) = 0;
  // After all that has come was taken in.
  virtual absl::Status Advance() = 0;
  // The deadline of the exchange has passed. OK, at most once: an answer of rank 0 may
  // still come, within kAnswerTime.
  virtual absl::Status OnDeadline() = 0;

  bool has_result() const { return result_.has_value(); }
  std::vector<std::string> TakeResult();

 protected:
  std::optional<std::vector<std::string>> result_;
};

// `group` and `peers` outlive the role; peers by rank, without this rank.
std::unique_ptr<Role> MakeRootRole(const Group& group, std::span<Peer> peers);
std::unique_ptr<Role> MakeLeafRole(const Group& group, Peer& root);

}  // namespace lockstep::star

#endif  // LOCKSTEP_WORKER_TRANSPORT_STAR_ROLE_H_

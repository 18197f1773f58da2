#include "worker/transport/gloo/relay.h"

#include <algorithm>
#include <vector>

#include "common/base/status_macros.h"
#include "worker/transport/gloo/pipeline.h"

namespace lockstep::gloo_links {
namespace {

constexpr std::int32_t kTag = 2 * kRoundsUnderWay;  // apart from those of pipelines

}  // namespace

absl::Status Relay(Links& links, int rank, int world_size, int root, Messages& messages,
                   MonoTime deadline) {
  const bool in_ring = messages.count() > 1;
  const int place = (rank - root + world_size) % world_size;  // behind the root
  std::vector<int> to;
  for (int next = place + 1; next < world_size && (in_ring || place == 0); ++next) {
    to.push_back((root + next) % world_size);
    if (in_ring) break;
  }
  const int from = in_ring ? (rank + world_size - 1) % world_size : root;

  std::vector<Links::Ticket> received(kRoundsUnderWay);
  std::vector<std::vector<Links::Ticket>> sent(kRoundsUnderWay);
  const auto finish = [&](std::int64_t message) -> absl::Status {
    for (const Links::Ticket ticket : sent[message % kRoundsUnderWay]) {
      LOCKSTEP_RETURN_IF_ERROR(links.Await(ticket, deadline));
    }
    sent[message % kRoundsUnderWay].clear();
    return absl::OkStatus();
  };
  // Receives are asked for ahead of what is passed on by kRoundsAhead.
  const std::int64_t ahead = place == 0 ? 0 : kRoundsAhead;
  for (std::int64_t step = 0; step < messages.count() + ahead; ++step) {
    if (step < messages.count()) {
      if (step >= kRoundsUnderWay) LOCKSTEP_RETURN_IF_ERROR(finish(step - kRoundsUnderWay));
      if (place == 0) {
        messages.Pack(step);
      } else {
        LOCKSTEP_ASSIGN_OR_RETURN(
            received[step % kRoundsUnderWay],
            links.Receive(from, kTag, messages.data(step), messages.bytes(step)));
      }
    }
    const std::int64_t passed = step - ahead;
    if (passed < 0) continue;
    if (place > 0) {
      LOCKSTEP_RETURN_IF_ERROR(links.Await(received[passed % kRoundsUnderWay], deadline));
    }
    for (const int peer : to) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          const Links::Ticket ticket,
          links.Send(peer, kTag, messages.data(passed), messages.bytes(passed)));
      sent[passed % kRoundsUnderWay].push_back(ticket);
    }
    if (place > 0) messages.Unpack(passed);
  }
  for (std::int64_t message = std::max<std::int64_t>(0, messages.count() - kRoundsUnderWay);
       message < messages.count(); ++message) {
    LOCKSTEP_RETURN_IF_ERROR(finish(message));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::gloo_links

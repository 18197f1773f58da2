// Gather: a small record of each rank, on all ranks.
//
// Pure but for the transport; used by one thread.
#ifndef LOCKSTEP_WORKER_ENGINE_GATHER_H_
#define LOCKSTEP_WORKER_ENGINE_GATHER_H_

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "worker/transport/transport.h"

namespace lockstep {

// Collective. By rank; `what` names the record in errors, which are those of Transport.
template <typename Record>
absl::StatusOr<std::vector<Record>> Gather(Transport* transport, absl::string_view what,
                                           const Record& mine) {
  static_assert(std::is_trivially_copyable_v<Record>);
  std::vector<Record> records(transport->world_size());
  records[transport->rank()] = mine;
  std::vector<TensorView> views;
  for (int rank = 0; rank < transport->world_size(); ++rank) {
    views.push_back({.spec = {.name = absl::StrCat(what, " of rank ", rank),
                              .dtype = DType::kUint8,
                              .shape = {sizeof(Record)}},
                     .data = reinterpret_cast<std::byte*>(&records[rank])});
  }
  std::vector<Transfer> transfers;
  for (int rank = 0; rank < transport->world_size(); ++rank) {
    transfers.push_back({.root = rank, .views = std::span(&views[rank], 1)});
  }
  LOCKSTEP_RETURN_IF_ERROR(transport->Exchange(transfers));
  return records;
}

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_GATHER_H_

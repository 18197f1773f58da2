// Strong ids: numbers that cannot be mixed up with each other.
//
// Zero is never a valid id, and no id is used twice. Thread-compatible values.
#ifndef LOCKSTEP_COMMON_BASE_IDS_H_
#define LOCKSTEP_COMMON_BASE_IDS_H_

#include <compare>
#include <cstdint>

namespace lockstep {

template <typename Tag>
class StrongId {
 public:
  constexpr StrongId() = default;  // not valid
  constexpr explicit StrongId(std::int64_t value) : value_(value) {}

  constexpr std::int64_t value() const { return value_; }
  constexpr bool valid() const { return value_ > 0; }
  constexpr StrongId next() const { return StrongId(value_ + 1); }

  friend constexpr auto operator<=>(StrongId, StrongId) = default;

 private:
  std::int64_t value_ = 0;
};

// One fenced membership of a job. Grows, also over coordinator restarts.
using Epoch = StrongId<struct EpochTag>;
// One start of a worker process.
using Incarnation = StrongId<struct IncarnationTag>;
// One start of the coordinator on its store.
using Generation = StrongId<struct GenerationTag>;
// Position of an entry in a job's control log; the first entry has number 1.
using LogNumber = StrongId<struct LogNumberTag>;
// Version of a job's sync policy; the policy a job is created with has 1.
using Revision = StrongId<struct RevisionTag>;

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_IDS_H_

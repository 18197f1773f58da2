#include "worker/transport/checked_transport.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "worker/transport/combine.h"

namespace lockstep {
namespace {

// Of the text that explains a disagreement; more is cut off.
constexpr std::int64_t kMaxLayoutBytes = 64 << 20;
// Of one arena; keeps bytes within 63 bits.
constexpr std::int64_t kMaxArenaElements = std::int64_t{1} << 48;

TensorView BytesView(void* data, std::int64_t bytes) {
  return {.spec = {.name = "layout", .dtype = DType::kUint8, .shape = {bytes}},
          .data = static_cast<std::byte*>(data)};
}

std::uint64_t DigestOf(const std::vector<LayoutLine>& lines) {
  return Digester().Add(absl::string_view(EncodeLayout(std::span(lines)))).Finish();
}

absl::Status CheckViews(std::span<const TensorView> views) {
  if (views.size() > kMaxTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat(views.size(), " tensors exceed the limit of ", kMaxTensors));
  }
  for (const TensorView& view : views) {
    if (ElementBytes(view.spec.dtype) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", view.spec.name, "' has no dtype"));
    }
    const bool negative = std::any_of(view.spec.shape.begin(), view.spec.shape.end(),
                                      [](std::int64_t size) { return size < 0; });
    if (negative || (view.data == nullptr && view.bytes() > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", view.spec.name, "' (", view.spec.ToString(),
                       negative ? ") has a negative dimension" : ") has no data"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const Group& group) {
  const int size = static_cast<int>(group.members.size());
  if (size == 0 || group.rank < 0 || group.rank >= size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", group.rank, " is not in a group of ", size, " members"));
  }
  if (group.deadline <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the deadline of operations is ", absl::FormatDuration(group.deadline),
        "; it must be positive"));
  }
  return absl::OkStatus();
}

CheckedTransport::CheckedTransport(Group group) : group_(std::move(group)) {}

absl::Status CheckedTransport::Broadcast(std::span<const TensorView> views, int root) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  if (absl::Status s = CheckViews(views); !s.ok()) return Fail(std::move(s));
  Call call = {.kind = CallKind::kBroadcast, .argument = root, .layout = LayoutDigest(views)};
  std::vector<TensorView> private_views;
  std::span<const TensorView> moved = views;
  if (has_shared_arena_) {
    // What lies in memory that all ranks share is there already; ranks must
    // agree on what that is.
    Digester digester;
    digester.Add(static_cast<std::int64_t>(call.layout));
    for (const TensorView& view : views) {
      const std::string place = SharedPlace(view);
      digester.Add(absl::string_view(place));
      if (place.empty()) private_views.push_back(view);
    }
    call.layout = digester.Finish();
    moved = private_views;
  }
  LOCKSTEP_RETURN_IF_ERROR(Meet(call, [&] { return LinesOf(views); }).status());
  if (root < 0 || root >= world_size()) {
    return Refuse(absl::InvalidArgumentError(absl::StrCat(
        "the root of a broadcast is rank ", root, ", but ranks are 0 to ", world_size() - 1)));
  }
  const bool empty = std::all_of(moved.begin(), moved.end(),
                                 [](const TensorView& view) { return view.bytes() == 0; });
  if (empty || world_size() == 1) return absl::OkStatus();
  return Fail(MoveBroadcast(moved, root));
}

absl::Status CheckedTransport::AllReduce(std::span<const TensorView> views, ReduceOp op) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  if (absl::Status s = CheckViews(views); !s.ok()) return Fail(std::move(s));
  const Call call = {.kind = CallKind::kAllReduce,
                     .argument = static_cast<std::int32_t>(op),
                     .layout = LayoutDigest(views)};
  LOCKSTEP_RETURN_IF_ERROR(Meet(call, [&] { return LinesOf(views); }).status());
  for (const TensorView& view : views) {
    if (!IsReducible(view.spec.dtype)) {
      return Refuse(absl::InvalidArgumentError(absl::StrCat(
          "tensor '", view.spec.name, "' is ", DTypeName(view.spec.dtype),
          ", which is not reduced; broadcast it, or reduce a float32 copy")));
    }
  }
  for (const TensorView& view : views) {
    if (!SharedPlace(view).empty()) {
      return Fail(absl::InvalidArgumentError(
          absl::StrCat("tensor '", view.spec.name,
                       "' lies in memory that all ranks share and cannot be reduced in place")));
    }
  }
  const bool empty = std::all_of(views.begin(), views.end(),
                                 [](const TensorView& view) { return view.bytes() == 0; });
  if (empty || world_size() == 1) return absl::OkStatus();
  return Fail(MoveAllReduce(views, op));
}

absl::StatusOr<Arena> CheckedTransport::Allocate(ArenaUse use, std::int64_t elements) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  Call call = {.kind = CallKind::kAllocate,
               .argument = static_cast<std::int32_t>(use),
               .layout = static_cast<std::uint64_t>(elements)};
  const auto lines = [&] {
    return std::vector<LayoutLine>{{"arena", absl::StrCat("float32[", elements, "]")}};
  };
  LOCKSTEP_RETURN_IF_ERROR(Meet(call, lines).status());
  if (elements < 0 || elements > kMaxArenaElements) {
    return Refuse(absl::InvalidArgumentError(absl::StrCat(
        "an arena of ", elements, " elements; it must be 0 to ", kMaxArenaElements)));
  }
  absl::StatusOr<Arena> arena =
      MakeArena(static_cast<int>(arenas_.size()), use, elements);
  if (!arena.ok() && !absl::IsResourceExhausted(arena.status())) return Fail(arena.status());

  // One rank without memory is an error on all.
  call.failed = arena.ok() ? 0 : 1;
  absl::StatusOr<std::vector<Call>> calls = Meet(call, lines);
  if (!calls.ok()) return calls.status();
  std::vector<std::string> without;
  for (int r = 0; r < world_size(); ++r) {
    if ((*calls)[r].failed != 0) without.push_back(MemberText(group_.members, r));
  }
  if (!without.empty()) {
    return Refuse(absl::ResourceExhaustedError(
        absl::StrCat("no memory for an arena of ", elements, " float32 on ", ListNames(without),
                     arena.ok() ? "" : absl::StrCat(": ", arena.status().message()))));
  }
  arenas_.push_back(*arena);
  has_shared_arena_ = has_shared_arena_ || arena->shared;
  return arena;
}

absl::Status CheckedTransport::ReduceToOwners(const Arena& gradients,
                                              std::span<const Shard> shards, float weight) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  const int index = ArenaIndex(gradients);
  const std::vector<LayoutLine> lines = LinesOf(index, shards);
  const Call call = {
      .kind = CallKind::kReduceToOwners, .layout = DigestOf(lines), .weight = weight};
  absl::StatusOr<std::vector<Call>> calls = Meet(call, [&] { return lines; });
  if (!calls.ok()) return calls.status();
  absl::Status valid = CheckShards(gradients, shards);
  if (valid.ok() && gradients.shared) {
    valid = absl::InvalidArgumentError(
        "an arena that all ranks share holds no gradients of each; allocate one for gradients");
  }
  if (!valid.ok()) return Refuse(std::move(valid));
  std::vector<float> weights;
  for (const Call& each : *calls) weights.push_back(each.weight);
  return Fail(MoveToOwners(index, shards, weights));
}

absl::Status CheckedTransport::BroadcastFromOwners(const Arena& parameters,
                                                   std::span<const Shard> shards) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  const std::vector<LayoutLine> lines = LinesOf(ArenaIndex(parameters), shards);
  const Call call = {.kind = CallKind::kBroadcastFromOwners, .layout = DigestOf(lines)};
  LOCKSTEP_RETURN_IF_ERROR(Meet(call, [&] { return lines; }).status());
  if (absl::Status s = CheckShards(parameters, shards); !s.ok()) return Refuse(std::move(s));
  // Owners wrote for all, and all have met: nothing is left to move.
  if (parameters.shared || world_size() == 1) return absl::OkStatus();
  return Fail(MoveFromOwners(parameters, shards));
}

absl::StatusOr<Agreement> CheckedTransport::Agree(const ControlWord& mine) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  absl::StatusOr<std::vector<Call>> calls =
      Meet({.kind = CallKind::kAgree, .word = mine}, [] { return std::vector<LayoutLine>(); });
  if (!calls.ok()) return calls.status();
  std::vector<ControlWord> words;
  for (const Call& call : *calls) words.push_back(call.word);
  absl::StatusOr<Agreement> agreement = Combine(words, group_.members);
  if (!agreement.ok()) return Refuse(agreement.status());
  return agreement;
}

void CheckedTransport::Abort(absl::Status why) {
  Fail(absl::AbortedError(absl::StrCat(MemberText(group_.members, group_.rank), " aborted epoch ",
                                       group_.epoch.value(), ": ", why.ToString())))
      .IgnoreError();
}

absl::Status CheckedTransport::MoveFromOwners(const Arena& arena,
                                              std::span<const Shard> shards) {
  for (int owner = 0; owner < world_size(); ++owner) {
    const Shard& shard = shards[owner];
    if (shard.elements() == 0) continue;
    const TensorView view = {
        .spec = {.name = "shard", .dtype = DType::kFloat32, .shape = {shard.elements()}},
        .data = reinterpret_cast<std::byte*>(arena.values.data() + shard.begin)};
    LOCKSTEP_RETURN_IF_ERROR(MoveBroadcast(std::span(&view, 1), owner));
  }
  return absl::OkStatus();
}

absl::Status CheckedTransport::BeginOperation() {
  StartDeadline();
  MutexLock lock(&mu_);
  if (death_.ok()) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("the transport of epoch ", group_.epoch.value(),
                                         " is over since: ", death_.message(),
                                         "; a new epoch makes a new one"));
}

absl::StatusOr<std::vector<Call>> CheckedTransport::Meet(const Call& mine, const Lines& lines) {
  absl::StatusOr<std::vector<Call>> calls = ExchangeCalls(mine);
  if (!calls.ok()) return Fail(calls.status());
  if (absl::Status s = CompareCalls(*calls, group_.members); !s.ok()) return Refuse(std::move(s));
  if (!SameLayout(*calls)) return ExplainLayouts(mine.kind, lines());
  return calls;
}

absl::Status CheckedTransport::ExplainLayouts(CallKind kind,
                                              const std::vector<LayoutLine>& lines) {
  std::string mine = EncodeLayout(std::span(lines));
  mine.resize(std::min<std::size_t>(mine.size(), kMaxLayoutBytes));
  std::vector<std::string> layouts(world_size());
  for (int r = 0; r < world_size(); ++r) {
    std::int64_t size = static_cast<std::int64_t>(mine.size());
    const TensorView size_view = BytesView(&size, sizeof(size));
    if (absl::Status s = MoveBroadcast(std::span(&size_view, 1), r); !s.ok()) return Fail(s);
    if (size < 0 || size > kMaxLayoutBytes) {
      return Fail(absl::InternalError(absl::StrCat(MemberText(group_.members, r),
                                                   " sent a layout of ", size, " bytes")));
    }
    layouts[r] = r == rank() ? mine : std::string(size, '\0');
    if (size == 0) continue;
    const TensorView text_view = BytesView(layouts[r].data(), size);
    if (absl::Status s = MoveBroadcast(std::span(&text_view, 1), r); !s.ok()) return Fail(s);
  }
  std::string difference = DescribeDisagreement(layouts, group_.members);
  if (difference.empty()) difference = "their digests; do all ranks run the same build?";
  return Refuse(absl::InvalidArgumentError(
      absl::StrCat("ranks disagree on a ", CallName(kind), ": ", difference)));
}

absl::Status CheckedTransport::Fail(absl::Status error) {
  if (error.ok()) return error;
  {
    MutexLock lock(&mu_);
    if (!death_.ok()) return error;
    death_ = error;
  }
  Interrupt(error);
  return error;
}

absl::Status CheckedTransport::Refuse(absl::Status error) {
  MutexLock lock(&mu_);
  if (death_.ok()) death_ = error;
  return error;
}

int CheckedTransport::ArenaIndex(const Arena& arena) const {
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    if (arenas_[i].values.data() == arena.values.data() &&
        arenas_[i].values.size() == arena.values.size()) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

std::string CheckedTransport::SharedPlace(const TensorView& view) const {
  for (std::size_t i = 0; has_shared_arena_ && i < arenas_.size(); ++i) {
    if (!arenas_[i].shared) continue;
    const auto* begin = reinterpret_cast<const std::byte*>(arenas_[i].values.data());
    const auto* end = begin + arenas_[i].values.size_bytes();
    if (view.data >= begin && view.data < end && view.bytes() <= end - view.data) {
      return absl::StrCat(" in arena ", i, " at byte ", view.data - begin);
    }
  }
  return "";
}

std::vector<LayoutLine> CheckedTransport::LinesOf(std::span<const TensorView> views) const {
  std::vector<LayoutLine> lines = LayoutOf(views);
  for (std::size_t i = 0; i < views.size(); ++i) lines[i].view += SharedPlace(views[i]);
  return lines;
}

std::vector<LayoutLine> CheckedTransport::LinesOf(int arena,
                                                  std::span<const Shard> shards) const {
  std::vector<LayoutLine> lines = {
      {"arena", arena < 0 ? "not one of this transport" : absl::StrCat("number ", arena)}};
  for (std::size_t r = 0; r < shards.size(); ++r) {
    lines.push_back({absl::StrCat("shard ", r),
                     absl::StrCat("[", shards[r].begin, ", ", shards[r].end, ")")});
  }
  return lines;
}

absl::Status CheckedTransport::CheckShards(const Arena& arena,
                                           std::span<const Shard> shards) const {
  if (ArenaIndex(arena) < 0) {
    return absl::InvalidArgumentError("the arena is not one that this transport allocated");
  }
  if (static_cast<int>(shards.size()) != world_size()) {
    return absl::InvalidArgumentError(absl::StrCat(shards.size(), " shards for ", world_size(),
                                                   " ranks; there must be one for each rank"));
  }
  std::int64_t end = 0;
  for (std::size_t r = 0; r < shards.size(); ++r) {
    if (shards[r].begin < end || shards[r].end < shards[r].begin ||
        shards[r].end > static_cast<std::int64_t>(arena.values.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard ", r, " is [", shards[r].begin, ", ", shards[r].end,
                       "); shards must follow each other within the arena's ",
                       arena.values.size(), " elements"));
    }
    end = shards[r].end;
  }
  return absl::OkStatus();
}

}  // namespace lockstep

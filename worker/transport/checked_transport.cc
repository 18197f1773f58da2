#include "worker/transport/checked_transport.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/digits.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

// Of the text that explains a disagreement; more is cut off.
constexpr std::int64_t kMaxLayoutBytes = 64 << 20;
constexpr std::size_t kLineOverheadBytes = 16;  // at most
// Of one arena; keeps bytes within 63 bits.
constexpr std::int64_t kMaxArenaElements = std::int64_t{1} << 48;

TensorView BytesView(void* data, std::int64_t bytes) {
  return {.spec = {.name = "layout", .dtype = DType::kUint8, .shape = {bytes}},
          .data = static_cast<std::byte*>(data)};
}

// Of what LinesOf() says in words.
std::uint64_t ShardsDigest(std::span<const int> arenas, std::span<const Shard> shards,
                           std::span<const float> weights) {
  Digester digester;
  for (const int arena : arenas) digester.Add(std::int64_t{arena});
  for (const Shard& shard : shards) digester.Add(shard.begin).Add(shard.end);
  for (const float weight : weights) {
    digester.Add(std::int64_t{std::bit_cast<std::int32_t>(weight)});
  }
  return digester.Finish();
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

absl::Status CheckedTransport::Exchange(std::span<const Transfer> transfers) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  if (absl::Status s = CheckViews(transfers); !s.ok()) return Fail(std::move(s));
  const bool any_shared = AnyShared(transfers);
  const Call call = {.kind = CallKind::kExchange, .layout = DigestOf(transfers, any_shared)};
  LOCKSTEP_RETURN_IF_ERROR(Meet(call, [&] { return LayoutsOf(transfers); }).status());
  absl::Status valid = CheckManner(transfers, world_size());
  if (valid.ok() && any_shared) valid = CheckPlaces(transfers);
  if (!valid.ok()) return Refuse(std::move(valid));
  if (world_size() == 1) return absl::OkStatus();
  for (const Transfer& transfer : transfers) {
    LOCKSTEP_RETURN_IF_ERROR(Fail(Move(transfer, any_shared)));
  }
  return absl::OkStatus();
}

absl::Status CheckedTransport::Pass(std::span<const Passage> passages) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  if (absl::Status s = CheckPassages(passages, rank(), world_size()); !s.ok()) {
    return Fail(std::move(s));
  }
  const Call call = {.kind = CallKind::kPass, .layout = PassagesDigest(passages)};
  LOCKSTEP_RETURN_IF_ERROR(
      Meet(call, [&] { return Layouts{lockstep::LinesOf(passages)}; }).status());
  return Fail(MovePassages(passages));
}

absl::Status CheckedTransport::Move(const Transfer& transfer, bool any_shared) {
  const auto has_bytes = [](const TensorView& view) { return view.bytes() > 0; };
  if (std::ranges::none_of(transfer.views, has_bytes)) return absl::OkStatus();
  if (transfer.reduce.has_value()) {
    return MoveAllReduce(transfer.views, *transfer.reduce, transfer.weights);
  }
  if (!any_shared) return MoveBroadcast(transfer.views, transfer.root);
  // What lies in memory that all ranks share is there already.
  std::vector<TensorView> apart;
  for (const TensorView& view : transfer.views) {
    if (has_bytes(view) && !SharedPlace(view).has_value()) apart.push_back(view);
  }
  return apart.empty() ? absl::OkStatus() : MoveBroadcast(apart, transfer.root);
}

absl::StatusOr<Arena> CheckedTransport::Allocate(ArenaUse use, DType dtype,
                                                 std::int64_t elements) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  const std::string text = absl::StrCat(DTypeName(dtype), "[", elements, "]");
  Digester digester;
  digester.Add(absl::string_view(text));
  Call call = {.kind = CallKind::kAllocate,
               .argument = static_cast<std::int32_t>(use),
               .layout = digester.Finish()};
  const auto lines = [&] { return Layouts{{{"arena", text}}}; };
  LOCKSTEP_RETURN_IF_ERROR(Meet(call, lines).status());
  if (!IsTrainable(dtype) || elements < 0 || elements > kMaxArenaElements) {
    return Refuse(absl::InvalidArgumentError(
        absl::StrCat("an arena of ", text, "; it must be of 0 to ", kMaxArenaElements,
                     " elements of float32, bfloat16 or float16")));
  }
  absl::StatusOr<Arena> arena =
      MakeArena(static_cast<int>(arenas_.size()), use, dtype, elements);
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
        absl::StrCat("no memory for an arena of ", text, " on ", ListNames(without),
                     arena.ok() ? "" : absl::StrCat(": ", arena.status().message()))));
  }
  arenas_.push_back(*arena);
  has_shared_arena_ = has_shared_arena_ || arena->shared;
  return arena;
}

absl::Status CheckedTransport::ReduceToOwners(const Arena& gradients,
                                              std::span<const Shard> shards,
                                              std::span<const float> weights,
                                              const ConsumeSums& consume) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  const int index = ArenaIndex(gradients);
  LOCKSTEP_RETURN_IF_ERROR(
      MeetAbout(CallKind::kReduceToOwners, std::span(&index, 1), shards, weights));
  absl::Status valid = CheckShards(gradients, shards);
  if (valid.ok()) valid = CheckReducible(gradients, weights);
  if (valid.ok()) valid = CheckBegun(index, shards, weights);
  if (!valid.ok()) return Refuse(std::move(valid));
  return Fail(MoveToOwners(index, shards, weights, consume));
}

absl::Status CheckedTransport::BroadcastFromOwners(const Arena& parameters,
                                                   std::span<const Shard> shards) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  const int index = ArenaIndex(parameters);
  LOCKSTEP_RETURN_IF_ERROR(
      MeetAbout(CallKind::kBroadcastFromOwners, std::span(&index, 1), shards, {}));
  if (absl::Status s = CheckShards(parameters, shards); !s.ok()) return Refuse(std::move(s));
  // Owners wrote for all, and all have met: nothing is left to move.
  if (parameters.shared) return absl::OkStatus();
  return Fail(MoveFromOwners(parameters, shards));
}

absl::Status CheckedTransport::UpdateShards(const Arena& gradients, const Arena& parameters,
                                            std::span<const Shard> shards,
                                            std::span<const float> weights,
                                            const ConsumeSums& update) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  const int indices[] = {ArenaIndex(gradients), ArenaIndex(parameters)};
  LOCKSTEP_RETURN_IF_ERROR(MeetAbout(CallKind::kUpdateShards, indices, shards, weights));
  absl::Status valid = CheckShards(gradients, shards);
  if (valid.ok()) valid = CheckReducible(gradients, weights);
  if (valid.ok()) valid = CheckShards(parameters, shards);
  if (valid.ok()) valid = CheckBegun(indices[0], shards, weights);
  if (!valid.ok()) return Refuse(std::move(valid));
  return Fail(MoveUpdates(indices[0], parameters, shards, weights, update));
}

absl::Status CheckedTransport::BeginReduction(std::span<const ArenaShards> parts, float weight) {
  LOCKSTEP_RETURN_IF_ERROR(CheckAlive());
  std::vector<BegunPart> begun;
  std::set<int> arenas;
  for (const ArenaShards& part : parts) {
    absl::Status valid = CheckShards(part.gradients, part.shards);
    if (valid.ok() && part.gradients.shared) {
      valid = absl::InvalidArgumentError(
          "an arena that all ranks share holds no gradients of each; allocate one for gradients");
    }
    const int index = ArenaIndex(part.gradients);
    if (valid.ok() && !arenas.insert(index).second) {
      valid = absl::InvalidArgumentError(
          absl::StrCat("arena ", index, " is to be reduced twice at once; name it once"));
    }
    if (!valid.ok()) return Fail(std::move(valid));
    begun.push_back({index, {part.shards.begin(), part.shards.end()}});
  }
  return Fail(StartReduction(std::move(begun), weight));
}

absl::Status CheckedTransport::ReduceBegun(
    std::span<const BegunPart> parts, float weight,
    const std::function<absl::Status(std::vector<float> weights)>& reduce) {
  std::vector<int> arenas;
  std::vector<Shard> shards;
  for (const BegunPart& part : parts) {
    arenas.push_back(part.arena);
    shards.insert(shards.end(), part.shards.begin(), part.shards.end());
  }
  Call call = {.kind = CallKind::kBeginReduction, .layout = ShardsDigest(arenas, shards, {})};
  call.word.weight = weight;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::vector<Call> calls,
      Meet(call, [&] { return Layouts{LinesOf(arenas, shards, {})}; }));
  std::vector<float> weights;
  for (const Call& each : calls) weights.push_back(each.word.weight);
  return Fail(reduce(std::move(weights)));
}

absl::StatusOr<Agreement> CheckedTransport::Agree(const ControlWord& mine) {
  LOCKSTEP_RETURN_IF_ERROR(BeginOperation());
  absl::StatusOr<std::vector<Call>> calls =
      Meet({.kind = CallKind::kAgree, .word = mine}, [] { return Layouts(); });
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

absl::Status CheckedTransport::MovePassages(std::span<const Passage> passages) {
  for (const Passage& passage : passages) {
    const std::int64_t bytes = passage.view.bytes();
    if (bytes == 0) continue;
    TensorView view = passage.view;
    std::vector<std::byte> unread;
    if (passage.from != rank() && passage.to != rank()) {
      unread.resize(bytes);
      view.data = unread.data();
      view.on_device = false;
    }
    LOCKSTEP_RETURN_IF_ERROR(MoveBroadcast({&view, 1}, passage.from));
  }
  return absl::OkStatus();
}

absl::Status CheckedTransport::MoveFromOwners(const Arena& arena,
                                              std::span<const Shard> shards) {
  if (world_size() == 1) return absl::OkStatus();
  for (int owner = 0; owner < world_size(); ++owner) {
    const Shard& shard = shards[owner];
    if (shard.elements() == 0) continue;
    const TensorView view = {
        .spec = {.name = "shard", .dtype = arena.dtype, .shape = {shard.elements()}},
        .data = arena.at(shard.begin)};
    LOCKSTEP_RETURN_IF_ERROR(MoveBroadcast(std::span(&view, 1), owner));
  }
  return absl::OkStatus();
}

absl::Status CheckedTransport::MoveUpdates(int gradients, const Arena& parameters,
                                           std::span<const Shard> shards,
                                           std::span<const float> weights,
                                           const ConsumeSums& update) {
  LOCKSTEP_RETURN_IF_ERROR(MoveToOwners(gradients, shards, weights, update));
  // Owners write for all, and are done when all have met again.
  if (parameters.shared) return ExchangeCalls({.kind = CallKind::kUpdateShards}).status();
  return MoveFromOwners(parameters, shards);
}

absl::Status CheckedTransport::MeetAbout(CallKind kind, std::span<const int> arenas,
                                         std::span<const Shard> shards,
                                         std::span<const float> weights) {
  const Call call = {.kind = kind, .layout = ShardsDigest(arenas, shards, weights)};
  return Meet(call, [&] { return Layouts{LinesOf(arenas, shards, weights)}; }).status();
}

absl::Status CheckedTransport::BeginOperation() {
  // Until then the deadline is read by another thread.
  LOCKSTEP_RETURN_IF_ERROR(JoinReduction());
  StartDeadline();
  return CheckAlive();
}

absl::Status CheckedTransport::CheckAlive() {
  MutexLock lock(&mu_);
  if (death_.ok()) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("the transport of epoch ", group_.epoch.value(),
                                         " is over since: ", death_.message(),
                                         "; a new epoch makes a new one"));
}

absl::StatusOr<std::vector<Call>> CheckedTransport::Meet(
    const Call& mine, const std::function<Layouts()>& layouts) {
  absl::StatusOr<std::vector<Call>> calls = ExchangeCalls(mine);
  if (!calls.ok()) return Fail(calls.status());
  if (absl::Status s = CompareCalls(*calls, group_.members); !s.ok()) return Refuse(std::move(s));
  if (!SameLayout(*calls)) return ExplainLayouts(mine.kind, layouts());
  return calls;
}

absl::Status CheckedTransport::ExplainLayouts(CallKind kind, const Layouts& layouts) {
  std::string difference;
  for (const std::vector<LayoutLine>& lines : layouts) {
    absl::StatusOr<std::string> compared = CompareLayouts(lines);
    if (!compared.ok()) return Fail(compared.status());
    difference = *std::move(compared);
    if (!difference.empty()) break;
  }
  if (difference.empty()) difference = "their digests; do all ranks run the same build?";
  return Refuse(absl::InvalidArgumentError(
      absl::StrCat("ranks disagree on the ", CallName(kind), ": ", difference)));
}

absl::StatusOr<std::string> CheckedTransport::CompareLayouts(
    const std::vector<LayoutLine>& lines) {
  std::size_t kept = 0;
  std::size_t bytes = 0;
  for (const LayoutLine& line : lines) {
    bytes += line.name.size() + line.view.size() + kLineOverheadBytes;
    if (static_cast<std::int64_t>(bytes) > kMaxLayoutBytes) break;
    ++kept;
  }
  const std::string mine = EncodeLayout(std::span(lines).first(kept));
  std::vector<std::string> layouts(world_size());
  for (int r = 0; r < world_size(); ++r) {
    std::int64_t size = static_cast<std::int64_t>(mine.size());
    const TensorView size_view = BytesView(&size, sizeof(size));
    LOCKSTEP_RETURN_IF_ERROR(MoveBroadcast(std::span(&size_view, 1), r));
    if (size < 0 || size > kMaxLayoutBytes) {
      return absl::InternalError(absl::StrCat(MemberText(group_.members, r),
                                              " sent a layout of ", size, " bytes"));
    }
    layouts[r] = r == rank() ? mine : std::string(size, '\0');
    if (size == 0) continue;
    const TensorView text_view = BytesView(layouts[r].data(), size);
    LOCKSTEP_RETURN_IF_ERROR(MoveBroadcast(std::span(&text_view, 1), r));
  }
  return DescribeDisagreement(layouts, group_.members);
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
    if (arenas_[i].data == arena.data && arenas_[i].elements == arena.elements &&
        arenas_[i].dtype == arena.dtype) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

std::string CheckedTransport::Place::ToString() const {
  return absl::StrCat(" in arena ", arena, " at byte ", byte);
}

std::optional<CheckedTransport::Place> CheckedTransport::SharedPlace(
    const TensorView& view) const {
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    if (!arenas_[i].shared) continue;
    const std::byte* begin = arenas_[i].data;
    const std::byte* end = begin + arenas_[i].bytes();
    if (view.data >= begin && view.data < end && view.bytes() <= end - view.data) {
      return Place{static_cast<std::int64_t>(i), view.data - begin};
    }
  }
  return std::nullopt;
}

bool CheckedTransport::AnyShared(std::span<const Transfer> transfers) const {
  if (!has_shared_arena_) return false;
  return std::ranges::any_of(transfers, [this](const Transfer& transfer) {
    return std::ranges::any_of(
        transfer.views, [this](const TensorView& view) { return SharedPlace(view).has_value(); });
  });
}

std::uint64_t CheckedTransport::DigestOf(std::span<const Transfer> transfers,
                                         bool any_shared) const {
  Digester digester;
  for (const Transfer& transfer : transfers) {
    digester.Add(static_cast<std::int64_t>(TransferDigest(transfer)));
    if (!any_shared) continue;
    std::int64_t shared = 0;
    for (std::size_t i = 0; i < transfer.views.size(); ++i) {
      const std::optional<Place> place = SharedPlace(transfer.views[i]);
      if (!place.has_value()) continue;
      digester.Add(static_cast<std::int64_t>(i)).Add(place->arena).Add(place->byte);
      ++shared;
    }
    digester.Add(shared);
  }
  return digester.Finish();
}

// The tensors of all transfers; where they agree, the transfers.
CheckedTransport::Layouts CheckedTransport::LayoutsOf(
    std::span<const Transfer> transfers) const {
  Layouts layouts(2);
  for (const Transfer& transfer : transfers) {
    const std::string manner = absl::StrCat(" by ", MannerText(transfer));
    for (const TensorView& view : transfer.views) {
      const std::optional<Place> place = SharedPlace(view);
      layouts[0].push_back(
          {view.spec.name, absl::StrCat(view.spec.ToString(),
                                        place.has_value() ? place->ToString() : "", manner)});
    }
    layouts[1].push_back({absl::StrCat("(transfer ", layouts[1].size() + 1, ")"),
                          absl::StrCat(transfer.views.size(), " tensors", manner)});
  }
  return layouts;
}

std::vector<LayoutLine> CheckedTransport::LinesOf(std::span<const int> arenas,
                                                  std::span<const Shard> shards,
                                                  std::span<const float> weights) const {
  std::vector<LayoutLine> lines;
  for (const int arena : arenas) {
    lines.push_back({"arena", arena < 0 ? "not one of this transport"
                                        : absl::StrCat("number ", arena)});
  }
  for (std::size_t r = 0; r < shards.size(); ++r) {
    lines.push_back({absl::StrCat("shard ", r),
                     absl::StrCat("[", shards[r].begin, ", ", shards[r].end, ")")});
  }
  for (std::size_t r = 0; r < weights.size(); ++r) {
    lines.push_back({absl::StrCat("weight ", r), Digits(weights[r])});
  }
  return lines;
}

absl::Status CheckedTransport::CheckReducible(const Arena& gradients,
                                              std::span<const float> weights) const {
  if (gradients.shared) {
    return absl::InvalidArgumentError(
        "an arena that all ranks share holds no gradients of each; allocate one for gradients");
  }
  if (static_cast<int>(weights.size()) != world_size()) {
    return absl::InvalidArgumentError(absl::StrCat(weights.size(), " weights for ", world_size(),
                                                   " ranks; there must be one for each rank"));
  }
  return absl::OkStatus();
}

absl::Status CheckedTransport::CheckPlaces(std::span<const Transfer> transfers) const {
  for (const Transfer& transfer : transfers) {
    if (!transfer.reduce.has_value()) continue;
    for (const TensorView& view : transfer.views) {
      if (!SharedPlace(view).has_value()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor '", view.spec.name, "' lies in memory that all ranks share and cannot be ",
          "reduced in place by ", ReduceOpName(*transfer.reduce), "; reduce a copy"));
    }
  }
  return absl::OkStatus();
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
        shards[r].end > arena.elements) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard ", r, " is [", shards[r].begin, ", ", shards[r].end,
                       "); shards must follow each other within the arena's ",
                       arena.elements, " elements"));
    }
    end = shards[r].end;
  }
  return absl::OkStatus();
}

}  // namespace lockstep

#include "worker/transport/nccl/nccl_transport.h"

#include <unistd.h>

#include <atomic>
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/mono_time.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "worker/transport/begun_reduction.h"
#include "worker/transport/checked_transport.h"
#include "worker/transport/nccl/background.h"
#include "worker/transport/nccl/communicator.h"
#include "worker/transport/nccl/device.h"
#include "worker/transport/nccl/device_memory.h"
#include "worker/transport/nccl/early_reduction.h"
#include "worker/transport/nccl/errors.h"
#include "worker/transport/nccl/owner_exchange.h"
#include "worker/transport/nccl/staging.h"
#include "worker/transport/nccl/traffic.h"
#include "worker/transport/nccl/version_exchange.h"
#include "worker/transport/nccl/view_mover.h"
#include "worker/transport/nccl/waiter.h"
#include "worker/transport/nccl/watchdog.h"
#include "worker/transport/star/forming_stop.h"
#include "worker/transport/star/star.h"

namespace lockstep {
namespace {

using nccl_link::Background;
using nccl_link::Communicator;
using nccl_link::Device;
using nccl_link::DeviceMemory;
using nccl_link::EarlyReduction;
using nccl_link::MemoryKind;
using nccl_link::OwnerExchange;
using nccl_link::Staging;
using nccl_link::Traffic;
using nccl_link::VersionExchange;
using nccl_link::ViewMover;
using nccl_link::Waiter;
using nccl_link::Watchdog;

// NCCL may notice a broken connection before the others do. What it says of it may also be
// about something else.
constexpr absl::Duration kTimeToNameTheLost = absl::Seconds(1);
constexpr absl::Duration kTimeToNameAnother = absl::Milliseconds(200);
// For the others to be through with the last operation.
constexpr absl::Duration kTimeToLeave = absl::Seconds(2);

// Of what travels during backward: enough for the network, and little enough that not much is
// left when backward is over.
constexpr std::int64_t kMaxSliceBytes = 4 << 20;

// What ranks must have alike before they form a communicator. Zero-initialised, without
// padding.
struct Setup {
  std::int64_t nccl_version = 0;
  std::int64_t piece_bytes = 0;
};

std::string VersionText(std::int64_t version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// All that a GPU may still be working with; left alone if it cannot be stopped.
struct OnDevice {
  // By arena.
  std::vector<DeviceMemory> memory;
  std::unique_ptr<Staging> staging;
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<ViewMover> views;
  std::unique_ptr<VersionExchange> versions;
  std::unique_ptr<OwnerExchange> owners;
  std::unique_ptr<EarlyReduction> early;
};

class NcclTransport final : public CheckedTransport {
 public:
  NcclTransport(const Group& group, const NcclOptions& options, std::shared_ptr<Waiter> waiter,
                std::shared_ptr<Watchdog> watchdog,
                std::shared_ptr<std::atomic<const Transport*>> math_user)
      : CheckedTransport(group),
        options_(options),
        math_user_(std::move(math_user)),
        waiter_(std::move(waiter)),
        watchdog_(std::move(watchdog)),
        on_device_(std::make_unique<OnDevice>()) {}

  ~NcclTransport() override {
    if (background_.busy()) {
      Fail(absl::AbortedError(absl::StrCat(MemberText(group().members, rank()), " left epoch ",
                                           group().epoch.value(),
                                           " while gradients were under way")))
          .IgnoreError();
      background_.Join().IgnoreError();
    }
    // What is through here may still be under way to others, and an abort would end it.
    if (moved_) MeetToLeave();
    StopDevice();
    const Watchdog::Scope watched = watchdog_->Watch(clock_.Now() + options_.abort_timeout);
    if (on_device_ != nullptr && on_device_->device != nullptr) {
      on_device_->device->MakeCurrent().IgnoreError();
      // Its stream goes; the arithmetic may be used before the next transport's comes.
      const Transport* user = this;
      if (math_user_->compare_exchange_strong(user, nullptr)) {
        options_.math->UseStream(nullptr).IgnoreError();
      }
    }
    on_device_.reset();
  }

  // Rank 0 gives its listener.
  absl::Status Form(std::unique_ptr<StarListener> listener, const std::string& address) {
    LOCKSTEP_RETURN_IF_ERROR(Fail(FormStar(std::move(listener), address)));
    StartDeadline();
    return End(Watched([this] { return TryToForm(); }));
  }

  TrafficCounters traffic() const override {
    return {.sent_bytes = traffic_.sent_bytes, .received_bytes = traffic_.received_bytes};
  }

  void GradientsReady(const Arena& gradients, std::int64_t begin, std::int64_t end) override {
    const Watchdog::Scope watched =
        watchdog_->Watch(clock_.Now() + group().deadline + options_.abort_timeout);
    Fail(early_->MarkReady(gradients, begin, end)).IgnoreError();
  }

  void DropReduction() override { early_->begun().Drop(); }

 private:
  absl::Status FormStar(std::unique_ptr<StarListener> listener, const std::string& address) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        std::unique_ptr<Star> star,
        Star::Form(
            group(), std::move(listener), address,
            [waiter = waiter_, watchdog = watchdog_,
             patience = options_.abort_timeout](const absl::Status& why) {
              waiter->Interrupt(why);
              watchdog->Hasten(RealClock().Now() + patience);
            },
            &forming_stop_));
    MutexLock lock(&mu_);
    star_ = std::move(star);
    // Who stopped too late for the forming found no star.
    const absl::Status stopped = forming_stop_.why();
    if (!stopped.ok()) star_->Abort(stopped);
    return stopped;
  }

  absl::Status TryToForm() {
    LOCKSTEP_RETURN_IF_ERROR(CompareSetups());
    OnDevice& on = *on_device_;
    const NcclApi* const api = &options_.api;
    LOCKSTEP_ASSIGN_OR_RETURN(on.device,
                              Device::Open(api, options_.device, options_.caller_stream));
    // Made when all have come: its maker waits for all in a thread, without end.
    ncclUniqueId id = {};
    if (rank() == 0) {
      LOCKSTEP_RETURN_IF_ERROR(
          nccl_link::FromNccl(*api, api->GetUniqueId(&id), "making of an id", nullptr));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<ncclUniqueId> ids, ExchangeRecords(id));
    on.communicator = std::make_unique<Communicator>(on.device.get(), waiter_.get());
    LOCKSTEP_RETURN_IF_ERROR(on.communicator->Form(world_size(), rank(), ids[0]));
    on.staging = std::make_unique<Staging>(
        api, options_.managed_arenas ? MemoryKind::kManaged : MemoryKind::kDevice,
        options_.piece_bytes);
    on.views = std::make_unique<ViewMover>(on.device.get(), on.communicator.get(),
                                           on.staging.get(), &traffic_, rank(), world_size());
    math_user_->store(this);
    LOCKSTEP_ASSIGN_OR_RETURN(
        on.versions,
        VersionExchange::Create(on.device.get(), on.communicator.get(), on.staging.get(),
                                &traffic_, options_.math.get(), rank(), world_size()));
    LOCKSTEP_ASSIGN_OR_RETURN(
        on.owners, OwnerExchange::Create(on.device.get(), on.communicator.get(), on.staging.get(),
                                         &traffic_, on.versions.get(), rank(), world_size()));
    on.early = std::make_unique<EarlyReduction>(
        on.device.get(), on.communicator.get(), on.versions.get(), options_.math.get(), rank(),
        world_size(), std::min(on.staging->BytesOf(world_size() - 1), kMaxSliceBytes));
    early_ = on.early.get();
    // Either all have formed or none goes on.
    return ExchangeRecords(std::int64_t{0}).status();
  }

  absl::Status CompareSetups() {
    int version = 0;
    LOCKSTEP_RETURN_IF_ERROR(nccl_link::FromNccl(
        options_.api, options_.api.GetVersion(&version), "question for its version", nullptr));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const std::vector<Setup> setups,
        ExchangeRecords(Setup{.nccl_version = version, .piece_bytes = options_.piece_bytes}));
    // By rank, if they differ.
    const auto differ = [&](auto text) -> std::optional<std::string> {
      std::vector<std::string> views;
      bool equal = true;
      for (int r = 0; r < world_size(); ++r) {
        equal = equal && text(setups[r]) == text(setups[0]);
        views.push_back(absl::StrCat(text(setups[r]), " on ", MemberText(group().members, r)));
      }
      return equal ? std::nullopt : std::optional(ListNames(views));
    };
    if (const auto found = differ([](const Setup& s) { return VersionText(s.nccl_version); })) {
      return absl::FailedPreconditionError(
          absl::StrCat("ranks have different versions of NCCL: ", *found,
                       "; install the same libnccl for all workers"));
    }
    if (const auto found = differ([](const Setup& s) { return absl::StrCat(s.piece_bytes); })) {
      return absl::InvalidArgumentError(absl::StrCat(
          "ranks disagree on the bytes of a piece: ", *found, "; give all workers the same"));
    }
    return absl::OkStatus();
  }

  // Each rank's `mine`, by rank.
  template <typename Record>
  absl::StatusOr<std::vector<Record>> ExchangeRecords(const Record& mine) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> records,
                              star_->Exchange(std::as_bytes(std::span(&mine, 1)),
                                              reducing_ ? MonoTime::Infinite() : deadline()));
    std::vector<Record> all(records.size());
    for (std::size_t r = 0; r < records.size(); ++r) {
      std::memcpy(&all[r], records[r].data(), sizeof(Record));
    }
    return all;
  }

  absl::StatusOr<std::vector<Call>> ExchangeCalls(const Call& mine) override {
    LOCKSTEP_ASSIGN_OR_RETURN(std::vector<Call> calls, ExchangeRecords(mine));
    moved_ = false;
    for (int r = 0; r < world_size(); ++r) {
      if (calls[r].kind != CallKind::kNone) continue;
      return absl::UnavailableError(absl::StrCat(MemberText(group().members, r),
                                                 " has left epoch ", group().epoch.value()));
    }
    return calls;
  }

  absl::Status MoveBroadcast(std::span<const TensorView> views, int root) override {
    return OnTheDevice([&] { return on_device_->views->Broadcast(views, root); });
  }

  absl::Status MoveAllReduce(std::span<const TensorView> views, ReduceOp op,
                             std::span<const double> weights) override {
    return OnTheDevice([&] { return on_device_->views->AllReduce(views, op, weights); });
  }

  absl::StatusOr<Arena> MakeArena(int index, ArenaUse use, DType dtype,
                                  std::int64_t elements) override {
    Arena arena = {.dtype = dtype, .elements = elements};
    absl::Status out_of_memory;
    const absl::Status made = OnTheDevice([&]() -> absl::Status {
      OnDevice& on = *on_device_;
      absl::StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(
          &options_.api, options_.managed_arenas ? MemoryKind::kManaged : MemoryKind::kNccl,
          arena.bytes());
      if (absl::IsResourceExhausted(memory.status())) {
        out_of_memory = memory.status();
        return absl::OkStatus();
      }
      LOCKSTEP_RETURN_IF_ERROR(memory.status());
      arena.data = memory->data();
      on.memory.push_back(*std::move(memory));
      LOCKSTEP_RETURN_IF_ERROR(on.device->Zero(arena.data, arena.bytes()));
      if (on.memory.back().kind() == MemoryKind::kNccl) {
        LOCKSTEP_RETURN_IF_ERROR(on.communicator->Register(on.memory.back()));
      }
      return on.communicator->AwaitAll("clearing of an arena");
    });
    LOCKSTEP_RETURN_IF_ERROR(made);
    LOCKSTEP_RETURN_IF_ERROR(out_of_memory);
    arenas_.push_back(arena);
    return arena;
  }

  absl::Status MoveToOwners(int gradients, std::span<const Shard> shards,
                            std::span<const float> weights,
                            const ConsumeSums& consume) override {
    return ReduceAnd(gradients, nullptr, shards, weights, consume);
  }

  absl::Status MoveFromOwners(const Arena& arena, std::span<const Shard> shards) override {
    return OnTheDevice([&] { return on_device_->owners->Spread(arena, shards); });
  }

  absl::Status MoveUpdates(int gradients, const Arena& parameters, std::span<const Shard> shards,
                           std::span<const float> weights, const ConsumeSums& update) override {
    return ReduceAnd(gradients, &parameters, shards, weights, update);
  }

  absl::Status ReduceAnd(int gradients, const Arena* parameters, std::span<const Shard> shards,
                         std::span<const float> weights, const ConsumeSums& consume) {
    return OnTheDevice([&] {
      OwnerExchange& owners = *on_device_->owners;
      if (!early_->begun().Has(gradients)) {
        return owners.Reduce(arenas_[gradients], parameters, shards, weights, consume);
      }
      return owners.HandOver(early_->begun().UseUp(gradients), parameters, shards, consume);
    });
  }

  absl::Status StartReduction(std::vector<BegunPart> parts, float weight) override {
    if (reducing_ || early_->begun().has_parts()) {
      return absl::FailedPreconditionError(
          "another reduction was begun and neither used up nor dropped");
    }
    if (world_size() == 1) return absl::OkStatus();
    std::vector<BegunReduction::Part> begun;
    for (const BegunPart& part : parts) {
      begun.push_back(
          {.arena = part.arena, .gradients = arenas_[part.arena], .shards = part.shards});
    }
    early_->Begin(std::move(begun));
    reducing_ = true;
    background_.Start([this, parts = std::move(parts), weight] {
      return End(Unhurried([&] {
        return ReduceBegun(parts, weight, [this](std::vector<float> weights) {
          moved_ = true;
          return early_->Run(std::move(weights), [this](std::int64_t mine) {
            return SmallestOf(mine);
          });
        });
      }));
    });
    return absl::OkStatus();
  }

  absl::Status JoinReduction() override {
    if (!reducing_) return absl::OkStatus();
    const absl::Status all_ready = Fail(early_->CheckAllReady());
    SetLatest(clock_.Now() + group().deadline);
    const absl::Status reduced = background_.Join();
    reducing_ = false;
    SetLatest(MonoTime::Infinite());
    return all_ready.ok() ? reduced : all_ready;
  }

  absl::Status CheckBegun(int gradients, std::span<const Shard> shards,
                          std::span<const float> weights) const override {
    return early_->begun().CheckEnd(gradients, shards, weights);
  }

  // On the communication thread: `act` may take as long as backward, until somebody waits for it.
  absl::Status Unhurried(const std::function<absl::Status()>& act) {
    const Watchdog::Scope watched = [this] {
      MutexLock lock(&mu_);
      waiter_->SetDeadline(latest_);
      return watchdog_->Watch(latest_ + options_.abort_timeout);
    }();
    return act();
  }

  // When the communication thread must be through.
  void SetLatest(MonoTime latest) {
    MutexLock lock(&mu_);
    latest_ = latest;
    waiter_->SetDeadline(latest);
    watchdog_->Hasten(latest + options_.abort_timeout);
    star_->Hasten(latest);
  }

  absl::StatusOr<std::int64_t> SmallestOf(std::int64_t mine) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::int64_t> all, ExchangeRecords(mine));
    return std::ranges::min(all);
  }

  absl::Status OnTheDevice(const std::function<absl::Status()>& act) {
    moved_ = true;
    return End(Watched([&]() -> absl::Status {
      LOCKSTEP_RETURN_IF_ERROR(on_device_->device->Enter());
      // Here, since an abort does not end what the caller's stream has to do.
      LOCKSTEP_RETURN_IF_ERROR(on_device_->communicator->Await("work before the operation",
                                                               on_device_->device->entered()));
      return act();
    }));
  }

  // `act` waits until the operation's deadline, and for no library much longer.
  absl::Status Watched(const std::function<absl::Status()>& act) {
    if (reducing_) return act();
    waiter_->SetDeadline(deadline());
    const Watchdog::Scope watched = watchdog_->Watch(deadline() + options_.abort_timeout);
    return act();
  }

  // What an operation returns, after which nothing is under way.
  absl::Status End(absl::Status status) {
    if (status.ok()) return status;
    if (absl::IsUnavailable(status) || absl::IsInternal(status)) {
      const absl::Status named = waiter_->AwaitInterruption(
          absl::IsUnavailable(status) ? kTimeToNameTheLost : kTimeToNameAnother);
      if (!named.ok()) status = named;
    }
    Fail(status).IgnoreError();
    moved_ = false;
    StopDevice();
    return status;
  }

  void MeetToLeave() {
    const Call leaving = {.kind = CallKind::kNone};
    star_->Exchange(std::as_bytes(std::span(&leaving, 1)), clock_.Now() + kTimeToLeave)
        .IgnoreError();
  }

  void StopDevice() {
    if (on_device_ == nullptr || on_device_->communicator == nullptr) return;
    // It has a time of its own, but for the calls around NCCL's.
    const Watchdog::Scope watched = watchdog_->Watch(clock_.Now() + 2 * options_.abort_timeout);
    if (on_device_->communicator->Abort(options_.abort_timeout)) return;
    static_cast<void>(on_device_.release());
    options_.end_process(absl::StrCat(
        "NCCL did not abort epoch ", group().epoch.value(), " within ",
        absl::FormatDuration(options_.abort_timeout), " on ", MemberText(group().members, rank()),
        ", and GPU ", options_.device,
        " may go on writing: the process ends, and must be started anew"));
  }

  void Interrupt(const absl::Status& why) override {
    waiter_->Interrupt(why);
    watchdog_->Hasten(clock_.Now() + options_.abort_timeout);
    const absl::Status told =
        absl::IsAborted(why) ? why
                             : absl::AbortedError(absl::StrCat(
                                   MemberText(group().members, rank()), " failed: ", why.message()));
    forming_stop_.Stop(told);
    MutexLock lock(&mu_);
    if (star_ != nullptr) star_->Abort(told);
  }

  const NcclOptions options_;
  const std::shared_ptr<std::atomic<const Transport*>> math_user_;
  const RealClock clock_;
  const std::shared_ptr<Waiter> waiter_;
  const std::shared_ptr<Watchdog> watchdog_;
  FormingStop forming_stop_;
  std::unique_ptr<Star> star_;  // Interrupt() may look for it before it is there: under mu_
  std::unique_ptr<OnDevice> on_device_;  // null if it could not be stopped
  std::vector<Arena> arenas_;
  Traffic traffic_;
  // Whether bytes moved since the ranks met last.
  bool moved_ = false;

  EarlyReduction* early_ = nullptr;  // of on_device_; once formed it stays
  // From StartReduction() to JoinReduction(): the communication thread has all of the above but
  // for arenas_.
  bool reducing_ = false;
  Mutex mu_;
  MonoTime latest_ ABSL_GUARDED_BY(mu_) = MonoTime::Infinite();
  Background background_;
};

}  // namespace

void EndProcess(absl::string_view message) {
  constexpr int kExitCode = 70;
  LogError(message);
  _exit(kExitCode);
}

absl::StatusOr<std::unique_ptr<Transport>> NcclFactory::Create(const Group& group,
                                                               const ExchangeEndpoint& exchange) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(group));
  if (!IsNcclPieceSize(options_.piece_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("pieces of ", options_.piece_bytes,
                     " bytes; they must have 16 to 2^30, a multiple of 16"));
  }
  if (options_.math == nullptr) {
    return absl::InvalidArgumentError("there is no DeviceMath for the GPU's memory");
  }
  std::unique_ptr<StarListener> listener;
  std::optional<std::string> mine;
  if (group.rank == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(listener, StarListener::Listen(options_.interface));
    mine = listener->address();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string address, exchange(mine));
  const auto waiter = std::make_shared<Waiter>(MemberText(group.members, group.rank),
                                               group.deadline);
  const auto watchdog = std::make_shared<Watchdog>(
      [end_process = options_.end_process,
       message = absl::StrCat(
           "a call of NCCL or CUDA did not come back on ", MemberText(group.members, group.rank),
           ", GPU ", options_.device, ", in epoch ", group.epoch.value(), ", ",
           absl::FormatDuration(options_.abort_timeout),
           " after the operation should have ended: the process ends, and must be started anew")] {
        end_process(message);
      });
  auto transport = std::make_unique<NcclTransport>(group, options_, waiter, watchdog, math_user_);
  if (group.on_forming) group.on_forming(transport.get());
  const absl::Status formed = transport->Form(std::move(listener), address);
  if (formed.ok()) return transport;
  if (group.on_forming) group.on_forming(nullptr);
  return formed;
}

}  // namespace lockstep

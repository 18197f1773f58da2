#include "worker/transport/gloo/gloo_transport.h"

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "worker/memory/host_memory.h"
#include "worker/transport/checked_transport.h"
#include "worker/transport/combine/combine.h"
#include "worker/transport/pieces.h"

namespace lockstep {
namespace {

// Of one message, from each rank or to each owner: large enough for the network,
// small enough that a few for each rank fit in memory.
constexpr std::int64_t kPieceBytes = 1 << 20;
constexpr std::int64_t kPieceElements = kPieceBytes / sizeof(float);
// How long after a fault ranks may take to say that they are there.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(500);
// Gloo's own deadline, which closes its connections, should end a wait first.
constexpr absl::Duration kGlooGrace = absl::Milliseconds(200);

std::chrono::milliseconds ToMillis(absl::Duration duration) {
  // Below 1 ms Gloo takes it for "no timeout".
  return std::chrono::milliseconds(
      std::clamp<std::int64_t>(absl::ToInt64Milliseconds(duration), 1, 24 * 3600 * 1000));
}

// Gloo and c10d throw; what they throw ends here. Gloo reports lost peers and
// timeouts by text only.
template <typename Fn>  // Fn: () -> void
absl::Status GuardTorch(absl::string_view what, Fn&& fn) {
  try {
    fn();
    return absl::OkStatus();
  } catch (const std::exception& e) {
    const absl::string_view reason = e.what();
    const std::string text = absl::StrCat(what, ": ", reason.substr(0, reason.find('\n')));
    if (absl::StrContains(reason, "imed out") || absl::StrContains(reason, "imeout")) {
      return absl::DeadlineExceededError(text);
    }
    return absl::UnavailableError(text);
  }
}

// Gloo writes to connections whose peer may have been killed. The signal for that
// ends the process, unless it is ignored or handled: then the write fails.
void KeepBrokenPipesFromKilling() {
  struct sigaction action = {};
  if (sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

absl::StatusOr<std::string> AddressOf(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return absl::InternalError("the network interfaces cannot be listed");
  std::optional<std::string> address;
  for (const ifaddrs* each = list; each != nullptr && !address.has_value();
       each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET ||
        interface != each->ifa_name) {
      continue;
    }
    char text[INET_ADDRSTRLEN] = {};
    sockaddr_in ipv4;
    std::memcpy(&ipv4, each->ifa_addr, sizeof(ipv4));
    inet_ntop(AF_INET, &ipv4.sin_addr, text, sizeof(text));
    address = text;
  }
  freeifaddrs(list);
  if (!address.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is no network interface '", interface, "' with an IPv4 address"));
  }
  return *address;
}

// Says which ranks are alive after a fault: each sets a key and looks for the
// others'. The first rank's code counts for all, as one rank's timeout closes
// the connections of the others.
struct RollCall {
  absl::StatusCode code;
  std::vector<int> missing;
};

RollCall CallRoll(c10d::Store& store, int rank, int world_size, absl::StatusCode code,
                  std::chrono::steady_clock::time_point until) {
  const auto key = [](int r) { return absl::StrCat("alive/", r); };
  try {
    store.set(key(rank), std::vector<std::uint8_t>{1});
    const std::vector<std::uint8_t> first = store.compareSet(
        "fault", std::vector<std::uint8_t>{}, {static_cast<std::uint8_t>(code)});
    if (first.size() == 1) code = static_cast<absl::StatusCode>(first[0]);
    std::vector<int> missing;
    do {
      missing.clear();
      for (int r = 0; r < world_size; ++r) {
        if (!store.check({key(r)})) missing.push_back(r);
      }
      if (missing.empty()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } while (std::chrono::steady_clock::now() < until);
    return {code, missing};
  } catch (const std::exception&) {
    return {absl::StatusCode::kUnavailable, {0}};  // who serves the store
  }
}

class GlooTransport final : public CheckedTransport {
 public:
  GlooTransport(Group group, c10::intrusive_ptr<c10d::Store> store)
      : CheckedTransport(std::move(group)), store_(std::move(store)) {}

  ~GlooTransport() override {
    if (!abandoned_) return;
    // Its destructor waits for what is under way, and nothing can end that early.
    std::thread([gloo = std::move(gloo_)]() mutable { gloo.reset(); }).detach();
  }

  absl::Status Form(const std::string& interface) {
    StartDeadline();
    const absl::Status formed = GuardTorch("connecting all ranks by Gloo", [&] {
      auto options = c10d::ProcessGroupGloo::Options::create(ToMillis(group().deadline));
      options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(interface));
      gloo_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
          c10::make_intrusive<c10d::PrefixStore>("gloo", store_), rank(), world_size(),
          options);
    });
    return formed.ok() ? formed : Explain(formed);
  }

 private:
  using Work = c10::intrusive_ptr<c10d::Work>;

  // What the waiting thread sleeps on; Gloo's threads may outlive the transport.
  struct Signal {
    Mutex mu;
    CondVar changed;
    std::int64_t finished ABSL_GUARDED_BY(mu) = 0;  // works, in the order of their start
    absl::Status interruption ABSL_GUARDED_BY(mu);
  };

  // Starts one collective and waits for it. `start` gets Gloo's deadline.
  template <typename Start>
  absl::Status Run(absl::string_view what, Start start) {
    const std::int64_t number = ++started_;
    Work work;
    absl::Status status = GuardTorch(what, [&] {
      work = start(ToMillis(TimeLeft()));
      work->getFuture()->addCallback([signal = signal_, number](c10::ivalue::Future&) {
        MutexLock lock(&signal->mu);
        signal->finished = number;
        signal->changed.SignalAll();
      });
    });
    if (!status.ok()) return Explain(status);
    bool finished;
    absl::Status interruption;
    {
      MutexLock lock(&signal_->mu);
      signal_->changed.AwaitFor(&signal_->mu, TimeLeft() + kGlooGrace, [&] {
        return signal_->finished == number || !signal_->interruption.ok();
      });
      finished = signal_->finished == number;
      interruption = signal_->interruption;
    }
    if (!finished) {
      abandoned_ = true;
      if (!interruption.ok()) return interruption;
      return Explain(absl::DeadlineExceededError(absl::StrCat(what, " timed out")));
    }
    status = GuardTorch(what, [&] { work->wait(); });
    return status.ok() ? status : Explain(status);
  }

  // The fault with the ranks that are missing.
  absl::Status Explain(const absl::Status& fault) {
    struct Answer {
      Mutex mu;
      CondVar changed;
      std::optional<RollCall> roll ABSL_GUARDED_BY(mu);
    };
    auto answer = std::make_shared<Answer>();
    // In a thread of its own: the store has no deadline if its host hangs.
    std::thread([answer, store = store_, r = rank(), n = world_size(), code = fault.code()] {
      const auto until =
          std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(kAnswerTime);
      RollCall roll = CallRoll(*store, r, n, code, until);
      MutexLock lock(&answer->mu);
      answer->roll = std::move(roll);
      answer->changed.SignalAll();
    }).detach();
    RollCall roll;
    {
      MutexLock lock(&answer->mu);
      answer->changed.AwaitFor(&answer->mu, 2 * kAnswerTime,
                               [&] { return answer->roll.has_value(); });
      roll = answer->roll.value_or(RollCall{fault.code(), {0}});
    }
    std::vector<std::string> names;
    for (const int r : roll.missing) names.push_back(MemberText(group().members, r));
    const std::string who =
        names.empty() ? "all ranks answer, one of them came late or broke off"
                      : absl::StrCat(ListNames(names), roll.code == absl::StatusCode::kUnavailable
                                                           ? " is gone"
                                                           : " did not come in time");
    return absl::Status(roll.code, absl::StrCat(who, " (", fault.message(), ")"));
  }

  // `bytes` of the scratch tensor; it grows as needed.
  static at::Tensor Scratch(at::Tensor* tensor, std::int64_t bytes) {
    if (!tensor->defined() || tensor->numel() < bytes) *tensor = at::empty({bytes}, at::kByte);
    return tensor->narrow(0, 0, bytes);
  }
  static std::byte* BytesOf(const at::Tensor& tensor) {
    return static_cast<std::byte*>(tensor.data_ptr());
  }

  // Each rank's `mine`, one behind the other by rank, in `all`.
  absl::Status AllGather(at::Tensor mine, at::Tensor all) {
    return Run("all-gather", [&](std::chrono::milliseconds timeout) {
      c10d::AllgatherOptions options;
      options.timeout = timeout;
      return gloo_->all_gather_single(all, mine, options);
    });
  }

  absl::StatusOr<std::vector<Call>> ExchangeCalls(const Call& mine) override {
    const auto bytes = static_cast<std::int64_t>(sizeof(Call));
    const at::Tensor send = Scratch(&send_, bytes);
    const at::Tensor receive = Scratch(&receive_, bytes * world_size());
    std::memcpy(BytesOf(send), &mine, sizeof(Call));
    LOCKSTEP_RETURN_IF_ERROR(AllGather(send, receive));
    std::vector<Call> calls(world_size());
    std::memcpy(calls.data(), BytesOf(receive), calls.size() * sizeof(Call));
    return calls;
  }

  absl::Status MoveBroadcast(std::span<const TensorView> views, int root) override {
    for (PieceCutter cutter(views, kPieceBytes); cutter.Next();) {
      std::vector<at::Tensor> piece = {Scratch(&send_, cutter.bytes())};
      if (rank() == root) cutter.Pack(BytesOf(piece[0]));
      LOCKSTEP_RETURN_IF_ERROR(Run("broadcast", [&](std::chrono::milliseconds timeout) {
        c10d::BroadcastOptions options;
        options.rootRank = root;
        options.timeout = timeout;
        return gloo_->broadcast(piece, options);
      }));
      if (rank() != root) cutter.Unpack(BytesOf(piece[0]));
    }
    return absl::OkStatus();
  }

  absl::Status MoveAllReduce(std::span<const TensorView> views, ReduceOp op,
                             std::span<const double> weights) override {
    for (PieceCutter cutter(views, kPieceBytes); cutter.Next();) {
      const at::Tensor mine = Scratch(&send_, cutter.bytes());
      const at::Tensor all = Scratch(&receive_, cutter.bytes() * world_size());
      cutter.Pack(BytesOf(mine));
      LOCKSTEP_RETURN_IF_ERROR(AllGather(mine, all));
      std::vector<const std::byte*> pieces;
      for (int r = 0; r < world_size(); ++r) pieces.push_back(BytesOf(all) + r * cutter.bytes());
      ReducePieces(cutter.fragments(), op, weights, pieces);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Arena> MakeArena(int index, ArenaUse use, DType dtype,
                                  std::int64_t elements) override {
    LOCKSTEP_ASSIGN_OR_RETURN(HostMemory memory,
                              HostMemory::Allocate(elements * ElementBytes(dtype)));
    arenas_.push_back({.dtype = dtype, .data = memory.data(), .elements = elements});
    memory_.push_back(std::move(memory));
    return arenas_.back();
  }

  // The part of a shard that moves in round `round`.
  static Shard Slice(const Shard& shard, std::int64_t round) {
    return {std::min(shard.begin + round * kPieceElements, shard.end),
            std::min(shard.begin + (round + 1) * kPieceElements, shard.end)};
  }
  static std::int64_t Rounds(std::span<const Shard> shards) {
    std::int64_t longest = 0;
    for (const Shard& shard : shards) longest = std::max(longest, shard.elements());
    return (longest + kPieceElements - 1) / kPieceElements;
  }

  // Every rank sends each owner its part, and the owner adds up: P(N-1)/N bytes out
  // and in for each rank, as little as a reduction can do.
  absl::Status MoveToOwners(int gradients, std::span<const Shard> shards,
                            std::span<const float> weights,
                            const ConsumeSums& consume) override {
    const Arena& arena = arenas_[gradients];
    const std::int64_t element_bytes = ElementBytes(arena.dtype);
    for (std::int64_t round = 0; round < Rounds(shards); ++round) {
      const Shard mine = Slice(shards[rank()], round);
      const std::int64_t mine_bytes = mine.elements() * element_bytes;
      std::vector<std::int64_t> sent;
      std::int64_t sent_bytes = 0;
      for (const Shard& shard : shards) {
        sent.push_back(Slice(shard, round).elements() * element_bytes);
        sent_bytes += sent.back();
      }
      std::vector<std::int64_t> received(world_size(), mine_bytes);
      at::Tensor send = Scratch(&send_, sent_bytes);
      at::Tensor receive = Scratch(&receive_, mine_bytes * world_size());
      std::byte* out = BytesOf(send);
      for (int r = 0; r < world_size(); ++r) {
        if (sent[r] > 0) std::memcpy(out, arena.at(Slice(shards[r], round).begin), sent[r]);
        out += sent[r];
      }
      LOCKSTEP_RETURN_IF_ERROR(Run("all-to-all", [&](std::chrono::milliseconds timeout) {
        c10d::AllToAllOptions options;
        options.timeout = timeout;
        return gloo_->all_to_all_single(receive, send, received, sent, options);
      }));
      std::vector<const std::byte*> sources;
      for (int r = 0; r < world_size(); ++r) sources.push_back(BytesOf(receive) + r * mine_bytes);
      const std::int64_t begin = mine.begin - shards[rank()].begin;
      WeightedSum(arena.dtype, sources, weights, mine.elements(),
                  [&](std::int64_t offset, std::span<const float> sums) {
                    consume(begin + offset, sums);
                  });
    }
    return absl::OkStatus();
  }

  // All-gathers of equal slices, the shorter ones padded: shards differ by a cache
  // line at most where the plan balanced them.
  absl::Status MoveFromOwners(const Arena& arena, std::span<const Shard> shards) override {
    for (std::int64_t round = 0; round < Rounds(shards); ++round) {
      std::int64_t longest = 0;
      for (const Shard& shard : shards) {
        longest = std::max(longest, Slice(shard, round).elements());
      }
      const std::int64_t bytes = longest * ElementBytes(arena.dtype);
      const at::Tensor send = Scratch(&send_, bytes);
      const at::Tensor receive = Scratch(&receive_, bytes * world_size());
      const Shard mine = Slice(shards[rank()], round);
      std::memcpy(BytesOf(send), arena.at(mine.begin), mine.elements() * ElementBytes(arena.dtype));
      LOCKSTEP_RETURN_IF_ERROR(AllGather(send, receive));
      for (int r = 0; r < world_size(); ++r) {
        const Shard slice = Slice(shards[r], round);
        if (r == rank() || slice.elements() == 0) continue;
        std::memcpy(arena.at(slice.begin), BytesOf(receive) + r * bytes,
                    slice.elements() * ElementBytes(arena.dtype));
      }
    }
    return absl::OkStatus();
  }

  void Interrupt(const absl::Status& why) override {
    MutexLock lock(&signal_->mu);
    signal_->interruption = why;
    signal_->changed.SignalAll();
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  bool abandoned_ = false;  // an operation is still under way
  std::int64_t started_ = 0;
  at::Tensor send_;
  at::Tensor receive_;
  std::vector<Arena> arenas_;
  std::vector<HostMemory> memory_;  // by arena
};

absl::StatusOr<c10::intrusive_ptr<c10d::Store>> OpenStore(const Group& group,
                                                          const std::string& interface,
                                                          const ExchangeEndpoint& exchange) {
  c10d::TCPStoreOptions options;
  options.waitWorkers = false;
  options.timeout = ToMillis(group.deadline);
  c10::intrusive_ptr<c10d::TCPStore> store;
  if (group.rank == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string address, AddressOf(interface));
    options.port = 0;
    options.isServer = true;
    LOCKSTEP_RETURN_IF_ERROR(GuardTorch("serving the rendezvous", [&] {
      store = c10::make_intrusive<c10d::TCPStore>(address, options);
    }));
    LOCKSTEP_RETURN_IF_ERROR(exchange(absl::StrCat(address, ":", store->getPort())).status());
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string endpoint, exchange(std::nullopt));
    const std::vector<std::string> fields = absl::StrSplit(endpoint, ':');
    int port = 0;
    if (fields.size() != 2 || !absl::SimpleAtoi(fields[1], &port) || port < 1 || port > 65535) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank 0's endpoint is no address: '", endpoint, "'; do all ranks use gloo?"));
    }
    options.port = static_cast<std::uint16_t>(port);
    LOCKSTEP_RETURN_IF_ERROR(GuardTorch(
        absl::StrCat("connecting to ", MemberText(group.members, 0), " at ", endpoint),
        [&] { store = c10::make_intrusive<c10d::TCPStore>(fields[0], options); }));
  }
  return c10::make_intrusive<c10d::PrefixStore>(absl::StrCat("epoch", group.epoch.value()),
                                                store);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> GlooFactory::Create(const Group& group,
                                                               const ExchangeEndpoint& exchange) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(group));
  KeepBrokenPipesFromKilling();
  LOCKSTEP_ASSIGN_OR_RETURN(c10::intrusive_ptr<c10d::Store> store,
                            OpenStore(group, options_.interface, exchange));
  auto transport = std::make_unique<GlooTransport>(group, std::move(store));
  LOCKSTEP_RETURN_IF_ERROR(transport->Form(options_.interface));
  return transport;
}

}  // namespace lockstep

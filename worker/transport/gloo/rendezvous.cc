#include "worker/transport/gloo/rendezvous.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "worker/transport/call.h"
#include "worker/transport/gloo/torch_guard.h"
#include "worker/transport/interface_address.h"

namespace lockstep::gloo_links {
namespace {

// How long after a fault ranks may take to say that they are there.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(500);

// "::1" of "[::1]".
std::string HostOf(absl::string_view address) {
  if (absl::ConsumePrefix(&address, "[")) absl::ConsumeSuffix(&address, "]");
  return std::string(address);
}

}  // namespace

// What the thread that asks the store tells the one that waits for it.
struct RollCall::Roll {
  Mutex mu;
  CondVar changed;
  bool announced ABSL_GUARDED_BY(mu) = false;
  bool complete ABSL_GUARDED_BY(mu) = false;
  // As the first rank met with it.
  absl::StatusCode code ABSL_GUARDED_BY(mu) = absl::StatusCode::kUnavailable;
  std::string abort ABSL_GUARDED_BY(mu);
  // Who serves the store, as long as it has not answered.
  std::vector<int> missing ABSL_GUARDED_BY(mu) = {0};

  // Each rank sets a key and looks for the others'.
  void Ask(c10d::Store& store, int rank, int world_size, const absl::Status& fault) {
    const auto key = [](int r) { return absl::StrCat("alive/", r); };
    const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(kAnswerTime);
    store.set(key(rank), std::vector<std::uint8_t>{1});
    // The code, and the words of an abort.
    std::vector<std::uint8_t> mine = {static_cast<std::uint8_t>(fault.code())};
    if (absl::IsAborted(fault)) {
      mine.insert(mine.end(), fault.message().begin(), fault.message().end());
    }
    std::vector<std::uint8_t> first = store.compareSet("fault", std::vector<std::uint8_t>{}, mine);
    if (first.empty()) first = mine;
    {
      MutexLock lock(&mu);
      code = static_cast<absl::StatusCode>(first[0]);
      abort.assign(first.begin() + 1, first.end());
      announced = true;
      changed.SignalAll();
    }
    std::vector<int> absent;
    do {
      absent.clear();
      for (int r = 0; r < world_size; ++r) {
        if (!store.check({key(r)})) absent.push_back(r);
      }
      if (absent.empty()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } while (std::chrono::steady_clock::now() < until);
    MutexLock lock(&mu);
    missing = std::move(absent);
    complete = true;
    changed.SignalAll();
  }
};

RollCall::RollCall(c10::intrusive_ptr<c10d::Store> store, const Group& group, absl::Status fault)
    : members_(group.members), fault_(std::move(fault)), roll_(std::make_shared<Roll>()) {
  // In a thread of its own: the store has no deadline if its host hangs.
  std::thread([roll = roll_, store = std::move(store), rank = group.rank,
               n = static_cast<int>(group.members.size()), fault = fault_] {
    const absl::Status asked =
        GuardTorch("asking who is there", [&] { roll->Ask(*store, rank, n, fault); });
    MutexLock lock(&roll->mu);
    if (!asked.ok()) roll->code = absl::StatusCode::kUnavailable;
    roll->announced = roll->complete = true;
    roll->changed.SignalAll();
  }).detach();
  MutexLock lock(&roll_->mu);
  roll_->changed.AwaitFor(&roll_->mu, kAnswerTime, [&] { return roll_->announced; });
}

absl::Status RollCall::Result() {
  MutexLock lock(&roll_->mu);
  roll_->changed.AwaitFor(&roll_->mu, 2 * kAnswerTime, [&] { return roll_->complete; });
  if (absl::IsAborted(absl::Status(roll_->code, "")) && !roll_->abort.empty()) {
    return absl::AbortedError(roll_->abort);
  }
  std::vector<std::string> names;
  for (const int r : roll_->missing) names.push_back(MemberText(members_, r));
  const std::string who =
      names.empty() ? "all ranks answer, one of them came late or broke off"
                    : absl::StrCat(ListNames(names), roll_->code == absl::StatusCode::kUnavailable
                                                         ? " is gone"
                                                         : " did not come in time");
  return absl::Status(roll_->code, absl::StrCat(who, " (", fault_.message(), ")"));
}

absl::StatusOr<c10::intrusive_ptr<c10d::Store>> OpenStore(const Group& group,
                                                          const std::string& interface,
                                                          const ExchangeEndpoint& exchange) {
  c10d::TCPStoreOptions options;
  options.waitWorkers = false;
  options.timeout = ToMillis(group.deadline);
  c10::intrusive_ptr<c10d::TCPStore> store;
  if (group.rank == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string address, InterfaceAddress(interface));
    options.port = 0;
    options.isServer = true;
    LOCKSTEP_RETURN_IF_ERROR(GuardTorch("serving the rendezvous", [&] {
      store = c10::make_intrusive<c10d::TCPStore>(HostOf(address), options);
    }));
    LOCKSTEP_RETURN_IF_ERROR(exchange(absl::StrCat(address, ":", store->getPort())).status());
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string endpoint, exchange(std::nullopt));
    const std::size_t colon = endpoint.rfind(':');
    int port = 0;
    if (colon == endpoint.npos || !absl::SimpleAtoi(endpoint.substr(colon + 1), &port) ||
        port < 1 || port > 65535) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank 0's endpoint is no address: '", endpoint, "'; do all ranks use gloo?"));
    }
    options.port = static_cast<std::uint16_t>(port);
    const std::string host = HostOf(endpoint.substr(0, colon));
    LOCKSTEP_RETURN_IF_ERROR(GuardTorch(
        absl::StrCat("connecting to ", MemberText(group.members, 0), " at ", endpoint),
        [&] { store = c10::make_intrusive<c10d::TCPStore>(host, options); }));
  }
  return c10::make_intrusive<c10d::PrefixStore>(absl::StrCat("epoch", group.epoch.value()),
                                                store);
}

}  // namespace lockstep::gloo_links

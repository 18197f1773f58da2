// Ranks of a star for tests: real ones in threads, and ones that a test plays by hand.
#ifndef LOCKSTEP_WORKER_TRANSPORT_STAR_STAR_TESTING_H_
#define LOCKSTEP_WORKER_TRANSPORT_STAR_STAR_TESTING_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/digest.h"
#include "common/base/mono_time.h"
#include "common/base/mutex.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/transport/star/frame.h"
#include "worker/transport/star/socket.h"
#include "worker/transport/star/star.h"

namespace lockstep::star {

inline MonoTime In(absl::Duration duration) { return RealClock().Now() + duration; }
// Longer than any test: what ends before it was ended by something else.
inline MonoTime Far() { return In(absl::Seconds(60)); }

// Runs `body` for each rank in a thread of its own; the results by rank.
template <typename Result>
std::vector<Result> OnEach(const std::vector<int>& ranks, std::function<Result(int)> body) {
  std::vector<std::optional<Result>> slots(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] { slots[i].emplace(body(ranks[i])); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Result> results;
  for (auto& slot : slots) results.push_back(*std::move(slot));
  return results;
}

// What on_loss said.
class Loss {
 public:
  void Set(const absl::Status& why) {
    MutexLock lock(&mu_);
    EXPECT_FALSE(why_.has_value()) << "on_loss was called twice";
    why_ = why;
    changed_.SignalAll();
  }
  absl::Status Await() {
    MutexLock lock(&mu_);
    changed_.AwaitFor(&mu_, absl::Seconds(20), [&] { return why_.has_value(); });
    return why_.value_or(absl::OkStatus());
  }
  bool called() {
    MutexLock lock(&mu_);
    return why_.has_value();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::optional<absl::Status> why_ ABSL_GUARDED_BY(mu_);
};

// "w0", "w1", ... on "lo".
struct Meeting {
  explicit Meeting(int n, absl::Duration deadline = absl::Seconds(30))
      : losses(std::make_unique<Loss[]>(n)), stop(std::make_unique<FormingStop[]>(n)), stars(n) {
    for (int rank = 0; rank < n; ++rank) {
      groups.push_back({.epoch = Epoch(3), .rank = rank, .deadline = deadline});
      for (int r = 0; r < n; ++r) groups.back().members.push_back(absl::StrCat("w", r));
      all.push_back(rank);
    }
    auto made = StarListener::Listen("lo");
    EXPECT_THAT(made, IsOk());
    listener = *std::move(made);
    address = listener->address();
  }

  // Only rank 0 uses the listener.
  absl::Status Form(int rank) {
    auto star = Star::Form(groups[rank], rank == 0 ? std::move(listener) : nullptr, address,
                           [this, rank](const absl::Status& why) { losses[rank].Set(why); },
                           &stop[rank]);
    if (star.ok()) stars[rank] = *std::move(star);
    return star.status();
  }
  std::vector<absl::Status> Form(const std::vector<int>& ranks) {
    return OnEach<absl::Status>(ranks, [this](int rank) { return Form(rank); });
  }
  void FormAll() {
    for (const absl::Status& status : Form(all)) ASSERT_THAT(status, IsOk());
  }

  absl::StatusOr<std::vector<std::string>> Exchange(int rank, absl::string_view mine,
                                                    MonoTime deadline = Far()) {
    return stars[rank]->Exchange(std::as_bytes(std::span(mine.data(), mine.size())), deadline);
  }
  std::vector<absl::Status> ExchangeOn(const std::vector<int>& ranks, MonoTime deadline = Far()) {
    return OnEach<absl::Status>(
        ranks, [&](int rank) { return Exchange(rank, "record", deadline).status(); });
  }

  std::vector<Group> groups;
  std::vector<int> all;
  std::unique_ptr<StarListener> listener;
  std::string address;
  std::unique_ptr<Loss[]> losses;
  std::unique_ptr<FormingStop[]> stop;  // outlive the stars, which call them
  std::vector<std::unique_ptr<Star>> stars;
};

// The next frame, or none if the peer ended or said nothing for long.
inline std::optional<Frame> AwaitFrame(Connection& connection) {
  const MonoTime deadline = In(absl::Seconds(20));
  while (true) {
    auto frame = connection.Receive();
    if (!frame.ok() || frame->has_value() || connection.ended() ||
        RealClock().Now() > deadline) {
      return frame.ok() ? *frame : std::nullopt;
    }
    pollfd readable = {.fd = connection.fd(), .events = POLLIN, .revents = 0};
    Poll({&readable, 1}, deadline);
  }
}

inline Connection ConnectTo(const std::string& address) {
  auto socket =
      Connect(std::vector<std::string>(absl::StrSplit(address, ' '))[0], /*stop=*/-1,
              In(absl::Seconds(20)));
  EXPECT_THAT(socket, IsOk());
  return Connection(*std::move(socket), 1 << 20);
}

inline Hello HelloOf(const Group& group, const std::string& address) {
  Digester members;
  for (const std::string& name : group.members) members.Add(name);
  Hello hello = {
      .members = members.Finish(), .epoch = group.epoch.value(), .rank = group.rank};
  EXPECT_TRUE(absl::SimpleHexAtoi(std::vector<std::string>(absl::StrSplit(address, ' '))[1],
                                  &hello.nonce));
  return hello;
}

// A rank that the test plays by hand, from its hello on.
inline Connection PlayRank(const Meeting& meeting, int rank) {
  Connection connection = ConnectTo(meeting.address);
  connection.Send(FrameKind::kHello, Encode(HelloOf(meeting.groups[rank], meeting.address)));
  return connection;
}

}  // namespace lockstep::star

#endif  // LOCKSTEP_WORKER_TRANSPORT_STAR_STAR_TESTING_H_

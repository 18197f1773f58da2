// Buffer synchronisation of whole sessions against a naive model of the policy:
// random modules, policies and sequences of events; after each event every byte of
// every buffer on every rank is compared.
//
// LOCKSTEP_SEED=N runs that seed only.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "c10/core/GradMode.h"
#include "common/base/prng.h"
#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "common/policy/model_check.h"
#include "common/sharding/shard_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/oracle/naive_policy.h"
#include "tests/oracle/random_module.h"
#include "tests/oracle/random_policy.h"
#include "torch/nn/module.h"
#include "worker/engine/manual_link.h"
#include "worker/session/session.h"
#include "worker/torch/module_model.h"
#include "worker/torch/named_tensors.h"
#include "worker/transport/in_process/in_process_transport.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kSeeds = 600;

std::string Hex(const Bytes& bytes, std::size_t at, std::size_t count) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()) + at, count));
}

// How a buffer lies in memory: what a sync must keep.
struct Layout {
  const void* tensor;
  const void* storage;
  std::int64_t offset;
  at::ScalarType type;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  bool is_conj;
  bool is_neg;

  explicit Layout(const at::Tensor& of)
      : tensor(of.unsafeGetTensorImpl()),
        storage(of.storage().data()),
        offset(of.storage_offset()),
        type(of.scalar_type()),
        sizes(of.sizes().vec()),
        strides(of.strides().vec()),
        is_conj(of.is_conj()),
        is_neg(of.is_neg()) {}
  bool operator==(const Layout&) const = default;
};

std::string Describe(const at::Tensor& tensor) {
  return absl::StrCat(c10::toString(tensor.scalar_type()), "[",
                      absl::StrJoin(tensor.sizes(), ", "), "] with strides [",
                      absl::StrJoin(tensor.strides(), ", "), "]", tensor.is_conj() ? " conj" : "",
                      tensor.is_neg() ? " neg" : "");
}

// The memory of one rank's buffers, all that lies around them included.
struct Memory {
  std::vector<NamedBuffer> buffers;
  std::vector<Layout> layouts;
  std::map<const void*, Bytes> storages;

  explicit Memory(std::vector<NamedBuffer> of) : buffers(std::move(of)) {
    for (const auto& [name, tensor] : buffers) {
      layouts.emplace_back(tensor);
      const auto* data = static_cast<const std::byte*>(tensor.storage().data());
      storages[data].assign(data, data + tensor.storage().nbytes());
    }
  }
};

// The ranks of one job, their replicas, and what the naive model expects of them.
class World {
 public:
  explicit World(std::uint64_t seed)
      : prng_(seed), module_(prng_, static_cast<int>(prng_.Between(2, 4))) {
    for (int rank = 0; rank < module_.world_size(); ++rank) {
      members_.push_back(absl::StrCat("worker", rank));
    }
    sessions_.resize(members_.size());
    links_.resize(members_.size());
    delivered_.resize(members_.size());
  }

  ~World() { OnEachRank([&](int rank) { sessions_[rank].reset(); }); }

  void Run() {
    Join();
    const std::int64_t events = prng_.Between(5, 15);
    for (std::int64_t i = 0; i < events && !testing::Test::HasFailure(); ++i) {
      if (prng_.Below(4) != 0) module_.Mutate(prng_);
      DeliverSome();
      SomeEvent();
    }
    OnEachRank([&](int rank) { sessions_[rank]->Leave(absl::OkStatus()); });
  }

 private:
  void OnEachRank(const std::function<void(int rank)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < module_.world_size(); ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }

  // A policy that the coordinator would accept; and one that it would not.
  SyncPolicy DrawPolicy() {
    const NaiveBuffers buffers = module_.Values();
    const Manifest manifest = module_.BufferManifest();
    SyncPolicy policy = RandomPolicy(prng_, buffers, members_);
    EXPECT_THAT(CheckOperations(policy, manifest), IsOk());
    const SyncPolicy illegal = WithIllegalRule(prng_, policy, buffers);
    const std::vector<std::string> refused = NaiveIllegal(illegal, buffers);
    if (!refused.empty()) {
      EXPECT_THAT(CheckOperations(illegal, manifest),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           HasSubstr(absl::StrCat("'", refused[0], "'"))));
    }
    return policy;
  }

  void Join() {
    const SyncPolicy policy = DrawPolicy();
    naive_.emplace(policy, members_);
    const auto transports = std::make_shared<InProcessFactory>();
    Event("joining", [&](NaiveBuffers& buffers) { naive_->Start(buffers); }, [&](int rank) {
      return JoinRank(rank, policy, transports);
    });
  }

  absl::Status JoinRank(int rank, const SyncPolicy& policy,
                        std::shared_ptr<TransportFactory> transports) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Manifest manifest,
                              ModuleModel(TensorsOf(module_.replica(rank))).Describe());
    LOCKSTEP_ASSIGN_OR_RETURN(ShardPlan plan, PlanShards(manifest, module_.world_size()));
    auto link = std::make_unique<ManualLink>(&board_);
    links_[rank] = link.get();
    link->Propose({.epoch = Epoch(1),
                   .members = members_,
                   .plan = std::move(plan),
                   .revision = Revision(1),
                   .policy = policy,
                   .ready_timeout = absl::Seconds(60)});
    LOCKSTEP_ASSIGN_OR_RETURN(
        sessions_[rank],
        Session::JoinBy(std::move(link), std::move(transports),
                        {.worker = members_[rank], .operation_timeout = absl::Seconds(20)},
                        module_.replica(rank), Sgd{.lr = 0.1}));
    return absl::OkStatus();
  }

  void SomeEvent() {
    switch (prng_.Below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Event("a training forward",
                     [&](NaiveBuffers& buffers) { naive_->Forward(buffers); },
                     [&](int rank) { return sessions_[rank]->BeforeForward(); });
      case 4:
        return Event("a forward under NoSync()", [](NaiveBuffers&) {}, [&](int rank) {
          const auto no_sync = sessions_[rank]->NoSync();
          return sessions_[rank]->BeforeForward();
        });
      case 5:
        return Event("a forward without autograd", [](NaiveBuffers&) {}, [&](int rank) {
          const c10::AutoGradMode no_grad(false);
          return sessions_[rank]->BeforeForward();
        });
      case 6:
      case 7:
      case 8:
      case 9:
        return Step();
      case 10:
        return Event("an evaluation",
                     [&](NaiveBuffers& buffers) { naive_->Evaluation(buffers); },
                     [&](int rank) { return sessions_[rank]->BeforeEvaluation(); });
      case 11:
        return Event("a checkpoint",
                     [&](NaiveBuffers& buffers) { naive_->Checkpoint(buffers); },
                     [&](int rank) { return sessions_[rank]->BeforeCheckpoint(); });
      case 12:
        return Event("SyncBuffers()",
                     [&](NaiveBuffers& buffers) { naive_->SyncBuffers(buffers); },
                     [&](int rank) { return sessions_[rank]->SyncBuffers(); });
      case 13: {
        const auto root = static_cast<int>(prng_.Below(members_.size()));
        return Event(absl::StrCat("BroadcastBuffers(", root, ")"),
                     [&](NaiveBuffers& buffers) {
                       naive_->BroadcastBuffers(RootRank{root}, buffers);
                     },
                     [&](int rank) { return sessions_[rank]->BroadcastBuffers(root); });
      }
      case 14:
        return Decide();
      default: {
        const std::string name = module_.Reassign(prng_);
        return Event(absl::StrCat("a training forward after reassigning ", name),
                     [&](NaiveBuffers& buffers) { naive_->Forward(buffers); },
                     [&](int rank) { return sessions_[rank]->BeforeForward(); });
      }
    }
  }

  void Step() {
    std::vector<std::int64_t> samples;
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      samples.push_back(prng_.Below(3) == 0 ? 0 : prng_.Between(1, 9));
    }
    const std::size_t agreed = *std::min_element(delivered_.begin(), delivered_.end());
    const std::vector<ControlEntry> entries(log_.begin() + applied_, log_.begin() + agreed);
    bool is_taken = true;
    Event(absl::StrCat("a step with samples ", absl::StrJoin(samples, ", "), " and ",
                       entries.size(), " control entries"),
          [&](NaiveBuffers& buffers) { is_taken = naive_->Step(samples, entries, buffers); },
          [&](int rank) {
            module_.weight(rank).sum().backward();
            const absl::Status status = sessions_[rank]->Step({.samples = samples[rank]});
            return !is_taken && absl::IsInvalidArgument(status) ? absl::OkStatus() : status;
          });
    if (is_taken) applied_ = agreed;
  }

  // One more control entry, which some ranks learn of later.
  void Decide() {
    ControlEntry entry = {.number = LogNumber(static_cast<std::int64_t>(log_.size()) + 1)};
    if (prng_.Below(3) == 0) {
      SyncOnce once;
      if (prng_.Below(2) == 0) once.root = RandomRoot(prng_, members_);
      entry.decision = once;
    } else {
      ++revisions_;
      entry.decision = PolicyRevised{Revision(revisions_), DrawPolicy()};
    }
    log_.push_back(std::move(entry));
  }

  void DeliverSome() {
    const bool to_all = prng_.Below(2) == 0;
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      if (!to_all && prng_.Below(3) == 0) continue;
      while (delivered_[rank] < log_.size()) links_[rank]->Append(log_[delivered_[rank]++]);
    }
  }

  // Lets all ranks and the naive model do the same, and compares what came of it.
  void Event(const std::string& what, const std::function<void(NaiveBuffers&)>& naive,
             const std::function<absl::Status(int rank)>& real) {
    ++event_;
    SCOPED_TRACE(absl::StrCat("event ", event_, ", ", what, ", under ",
                              Describe(naive_->policy())));
    const NaiveBuffers before = module_.Values();
    NaiveBuffers expected = before;
    naive(expected);
    std::vector<Memory> memories;
    for (int rank = 0; rank < module_.world_size(); ++rank) {
      memories.emplace_back(module_.Buffers(rank));
    }
    std::vector<absl::Status> statuses(members_.size());
    OnEachRank([&](int rank) { statuses[rank] = real(rank); });
    for (int rank = 0; rank < module_.world_size(); ++rank) {
      ASSERT_THAT(statuses[rank], IsOk()) << "on rank " << rank;
      ASSERT_EQ(sessions_[rank]->revision(), naive_->revision()) << "on rank " << rank;
      ASSERT_EQ(sessions_[rank]->step(), naive_->step()) << "on rank " << rank;
      Compare(rank, before, expected, memories[rank]);
      if (testing::Test::HasFatalFailure()) return;
    }
  }

  void Compare(int rank, const NaiveBuffers& before, const NaiveBuffers& expected,
               Memory& memory) const {
    const std::vector<NamedBuffer> now = module_.Buffers(rank);
    ASSERT_EQ(now.size(), expected.names.size());
    for (std::size_t i = 0; i < now.size(); ++i) {
      const auto& [name, tensor] = now[i];
      const std::size_t index = expected.names[i].tensor;
      const Bytes& values = expected.tensors[index].by_rank[rank];
      ASSERT_EQ(name, expected.names[i].name);
      ASSERT_EQ(Layout(tensor), memory.layouts[i])
          << "buffer '" << name << "' on rank " << rank << " lies in another way: "
          << Describe(tensor);
      const auto* data = static_cast<const std::byte*>(tensor.storage().data());
      CompareValues(absl::StrCat("buffer '", name, "', ", Describe(tensor), ", on rank ", rank),
                    ReadValues(tensor, data), values, before.tensors[index],
                    tensor.element_size());
      if (testing::Test::HasFatalFailure()) return;
      WriteValues(tensor, values, memory.storages[data].data());
    }
    for (const auto& [data, bytes] : memory.storages) {
      const auto* actual = static_cast<const std::byte*>(data);
      ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), actual))
          << "memory next to a buffer was written on rank " << rank;
    }
  }

  static void CompareValues(const std::string& whose, const Bytes& actual, const Bytes& expected,
                            const NaiveBuffers::Tensor& before, std::size_t element_bytes) {
    if (actual == expected) return;
    ASSERT_EQ(actual.size(), expected.size()) << whose;
    const auto differs = std::mismatch(actual.begin(), actual.end(), expected.begin()).first;
    const std::size_t element = (differs - actual.begin()) / element_bytes;
    std::vector<std::string> all;
    for (const Bytes& bytes : before.by_rank) {
      all.push_back(Hex(bytes, element * element_bytes, element_bytes));
    }
    FAIL() << whose << ": element " << element << " is "
           << Hex(actual, element * element_bytes, element_bytes) << ", expected "
           << Hex(expected, element * element_bytes, element_bytes)
           << "; it was on the ranks " << absl::StrJoin(all, ", ") << " (bytes in memory)";
  }

  Prng prng_;
  RandomModule module_;
  std::vector<std::string> members_;
  EndpointBoard board_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<ManualLink*> links_;  // the sessions own them
  std::optional<NaivePolicy> naive_;
  std::int64_t event_ = -1;
  std::int64_t revisions_ = 1;
  std::vector<ControlEntry> log_;
  std::size_t applied_ = 0;
  std::vector<std::size_t> delivered_;  // by rank, as applied_ a number of entries
};

std::vector<std::uint64_t> Seeds() {
  if (const char* seed = std::getenv("LOCKSTEP_SEED")) return {std::strtoull(seed, nullptr, 10)};
  std::vector<std::uint64_t> seeds;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) seeds.push_back(seed);
  return seeds;
}

class Oracle : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Oracle, EveryEventLeavesTheBytesThatTheNaiveModelExpects) {
  SCOPED_TRACE(absl::StrCat("to run this alone: LOCKSTEP_SEED=", GetParam()));
  World(GetParam()).Run();
}

INSTANTIATE_TEST_SUITE_P(Seeds, Oracle, testing::ValuesIn(Seeds()),
                         [](const auto& info) { return absl::StrCat("Seed", info.param); });

}  // namespace
}  // namespace lockstep

// NaivePolicy: what a sync policy means for the values of buffers, written down a
// second time. It asks, buffer by buffer, what the policy says, and computes.
//
// It uses the policy as a value, and none of the code that compiles patterns, finds
// rules, tells what is due or reduces. Pure; thread-compatible.
#ifndef LOCKSTEP_TESTS_ORACLE_NAIVE_POLICY_H_
#define LOCKSTEP_TESTS_ORACLE_NAIVE_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/manifest/dtype.h"
#include "common/policy/sync_policy.h"
#include "common/protocol/control_log.h"
#include "worker/combine/naive_reduce.h"

namespace lockstep {

// The buffers of all ranks.
struct NaiveBuffers {
  struct Tensor {
    DType dtype = DType::kUnspecified;
    std::vector<Bytes> by_rank;  // values in the order of the indices
  };
  struct Name {
    std::string name;
    std::size_t tensor = 0;  // several names may share one
  };
  std::vector<Name> names;  // in the model's order
  std::vector<Tensor> tensors;
};

bool NaiveMatches(absl::string_view pattern, const std::string& name);

// Whether values of that type can be synchronised so.
bool NaiveIsDefined(Operation operation, DType dtype);

// The rule that decides on the buffer; policy.rules.size(): the policy's own words;
// nothing: the buffer is excluded.
std::optional<std::size_t> NaiveRuleOf(const SyncPolicy& policy, const std::string& name);

// That of one of the rules, or of policy.rules.size().
Operation NaiveOperationOf(const SyncPolicy& policy, std::size_t rule);

// One job's policy from the start of an epoch on. Each function is an occasion
// that all ranks reach together, and does to the buffers what is due there.
class NaivePolicy {
 public:
  NaivePolicy(SyncPolicy policy, std::vector<std::string> members);

  void Start(NaiveBuffers& buffers);
  void Forward(NaiveBuffers& buffers);  // with autograd, not under NoSync()
  // Of which all ranks know the control entries `agreed`, new since the last step.
  // Returns false if the step is refused: no rank has samples.
  bool Step(const std::vector<std::int64_t>& samples, const std::vector<ControlEntry>& agreed,
            NaiveBuffers& buffers);
  void Evaluation(NaiveBuffers& buffers);
  void Checkpoint(NaiveBuffers& buffers);
  void SyncBuffers(NaiveBuffers& buffers);
  void BroadcastBuffers(const Root& root, NaiveBuffers& buffers);

  const SyncPolicy& policy() const { return policy_; }
  Revision revision() const { return revision_; }
  std::int64_t step() const { return steps_; }

 private:
  using IsDue = std::function<bool(const Schedule&)>;
  struct Manner {
    Operation operation = Operation::kBroadcast;
    int root = 0;
    std::vector<double> weights;
  };

  void PutInForce(Revision revision, const SyncPolicy& policy);
  int RankOf(const Root& root) const;
  const Schedule& ScheduleOf(std::size_t rule) const;
  const Root& RootOf(std::size_t rule) const;
  Manner AsRuled(std::size_t rule) const;
  void Sync(const IsDue& is_due, const std::function<Manner(std::size_t rule)>& manner_of,
            NaiveBuffers& buffers);
  // A sync that only happens while the master switch is on.
  void SyncIfOn(const IsDue& is_due, NaiveBuffers& buffers);
  void SyncOne(const std::string& name, const Manner& manner, NaiveBuffers::Tensor& tensor);

  const std::vector<std::string> members_;
  SyncPolicy policy_;
  Revision revision_;
  std::int64_t forwards_ = 0;
  std::int64_t steps_ = 0;
  bool forward_seen_ = false;  // in this step
  // By rule, then by rank: samples since the rule's last sync.
  std::vector<std::vector<std::int64_t>> samples_;
  // By name: what it was when skip_unchanged last saw it made equal.
  std::map<std::string, Bytes> equal_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_ORACLE_NAIVE_POLICY_H_

// Sync policies for a model, drawn from a seed.
#ifndef LOCKSTEP_TESTS_ORACLE_RANDOM_POLICY_H_
#define LOCKSTEP_TESTS_ORACLE_RANDOM_POLICY_H_

#include <string>
#include <vector>

#include "common/base/prng.h"
#include "common/policy/sync_policy.h"
#include "tests/oracle/naive_policy.h"

namespace lockstep {

// Legal for these buffers: no operation is given to a type that does not have it.
SyncPolicy RandomPolicy(Prng& prng, const NaiveBuffers& buffers,
                        const std::vector<std::string>& members);

// `policy` with one more rule, in front, which gives a buffer an operation that its
// type does not have; unchanged if there is no such buffer.
SyncPolicy WithIllegalRule(Prng& prng, SyncPolicy policy, const NaiveBuffers& buffers);

// The names of buffers whose type does not have the operation they are given.
std::vector<std::string> NaiveIllegal(const SyncPolicy& policy, const NaiveBuffers& buffers);

Root RandomRoot(Prng& prng, const std::vector<std::string>& members);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_ORACLE_RANDOM_POLICY_H_

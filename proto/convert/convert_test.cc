#include "proto/convert/convert.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "common/manifest/random_manifest.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// As the other side gets it.
template <typename Proto>
Proto OverTheWire(const Proto& proto) {
  Proto received;
  EXPECT_TRUE(received.ParseFromString(proto.SerializeAsString()));
  return received;
}

std::string RandomText(Prng& prng, int most) {
  std::string text = "n";
  for (std::int64_t n = prng.Between(0, most - 1); n > 0; --n) {
    text += static_cast<char>(prng.Between('a', 'z'));
  }
  return text;
}

std::int64_t RandomNumber(Prng& prng, std::int64_t least) {
  switch (prng.Below(3)) {
    case 0:
      return least;
    case 1:
      return prng.Between(least, 100);
    default:
      return static_cast<std::int64_t>(prng.Next() >> 1) | 1;
  }
}

absl::Duration RandomDuration(Prng& prng) {
  return absl::Nanoseconds(prng.Between(1, std::int64_t{1} << 50));
}

absl::Status RandomStatus(Prng& prng) {
  const auto code = static_cast<absl::StatusCode>(prng.Between(0, 16));
  return absl::Status(code, RandomText(prng, 30));
}

Root RandomRoot(Prng& prng) {
  switch (prng.Below(3)) {
    case 0:
      return LowestRank{};
    case 1:
      return RootRank{RandomNumber(prng, 0)};
    default:
      return RootWorker{RandomText(prng, 253)};
  }
}

Schedule RandomSchedule(Prng& prng) {
  return {.at_start = prng.Below(2) == 0,
          .every_forwards = RandomNumber(prng, 0),
          .every_steps = RandomNumber(prng, 0),
          .before_evaluation = prng.Below(2) == 0,
          .before_checkpoint = prng.Below(2) == 0};
}

SyncPolicy RandomPolicy(Prng& prng) {
  SyncPolicy policy{
      .broadcast_buffers = prng.Below(2) == 0,
      .operation = static_cast<Operation>(prng.Between(1, 7)),
      .root = RandomRoot(prng),
      .schedule = RandomSchedule(prng),
      .skip_unchanged = prng.Below(2) == 0,
      .broadcast_parameters_at_start = prng.Below(2) == 0,
      .broadcast_parameters_every_steps = RandomNumber(prng, 0),
      .check_parameters_every_steps = RandomNumber(prng, 0),
  };
  for (std::int64_t n = prng.Below(3); n > 0; --n) {
    policy.allow_list.push_back("**." + RandomText(prng, 9));
  }
  for (std::int64_t n = prng.Below(3); n > 0; --n) {
    policy.ignore_list.push_back("re:" + RandomText(prng, 9) + "|größe");
  }
  for (std::int64_t n = prng.Below(3); n > 0; --n) {
    SyncRule rule = {.pattern = RandomText(prng, 9)};
    if (prng.Below(2) == 0) rule.operation = static_cast<Operation>(prng.Between(1, 7));
    if (prng.Below(2) == 0) rule.root = RandomRoot(prng);
    if (prng.Below(2) == 0) rule.schedule = RandomSchedule(prng);
    policy.rules.push_back(rule);
  }
  return policy;
}

ControlEntry RandomEntry(Prng& prng, LogNumber number) {
  if (prng.Below(2) == 0) {
    return {number, PolicyRevised{Revision(RandomNumber(prng, 1)), RandomPolicy(prng)}};
  }
  if (prng.Below(3) == 0) return {number, CheckpointOnce{}};
  if (prng.Below(3) == 0) return {number, Regroup{prng.Below(2) == 0 ? "" : RandomText(prng, 253)}};
  SyncOnce once = {.buffers = prng.Below(2) == 0, .parameters = prng.Below(2) == 0};
  if (prng.Below(2) == 0) once.root = RandomRoot(prng);
  return {number, once};
}

Endpoint RandomEndpoint(Prng& prng) {
  Endpoint endpoint{.epoch = Epoch(RandomNumber(prng, 1))};
  for (std::int64_t n = prng.Between(1, 200); n > 0; --n) {
    endpoint.bytes += static_cast<char>(prng.Below(256));
  }
  return endpoint;
}

WorkerMessage RandomWorkerMessage(Prng& prng, std::size_t kind) {
  const Epoch epoch(RandomNumber(prng, 1));
  switch (kind) {
    case 0:
      return Hello{.job = RandomText(prng, 63),
                   .worker = RandomText(prng, 253),
                   .incarnation = Incarnation(RandomNumber(prng, 1)),
                   .manifest = RandomManifest(prng),
                   .transport = RandomText(prng, 6),
                   .epoch = Epoch(RandomNumber(prng, 0)),
                   .log_number = LogNumber(RandomNumber(prng, 0))};
    case 1: {
      Heartbeat heartbeat{.epoch = Epoch(RandomNumber(prng, 0)),
                          .step = RandomNumber(prng, 0),
                          .phase = static_cast<Phase>(prng.Between(1, 3))};
      for (std::int64_t n = prng.Below(kMaxMetrics + 1); n > 0; --n) {
        heartbeat.metrics[absl::StrCat("metric_", n)] = prng.Unit() * 1e9 - 1e8;
      }
      return heartbeat;
    }
    case 2:
      return RandomEndpoint(prng);
    case 3:
      return Ready{.epoch = epoch,
                   .plan_digest = prng.Next(),
                   .optimizer_bytes = RandomNumber(prng, 0)};
    case 4:
      return Applied{.epoch = epoch,
                     .number = LogNumber(RandomNumber(prng, 1)),
                     .step = RandomNumber(prng, 0)};
    case 5:
      return Leave{.epoch = Epoch(RandomNumber(prng, 0)), .why = RandomStatus(prng)};
    default:
      return EpochStopped{.epoch = epoch,
                          .step = RandomNumber(prng, 0),
                          .why = RandomStatus(prng)};
  }
}

CoordinatorMessage RandomCoordinatorMessage(Prng& prng, std::size_t kind) {
  const Epoch epoch(RandomNumber(prng, 1));
  switch (kind) {
    case 0:
      return Welcome{.generation = Generation(RandomNumber(prng, 1)),
                     .lease = RandomDuration(prng),
                     .heartbeat_interval = RandomDuration(prng)};
    case 1: {
      Proposal proposal{.epoch = epoch,
                        .log_number = LogNumber(RandomNumber(prng, 0)),
                        .revision = Revision(RandomNumber(prng, 1)),
                        .policy = RandomPolicy(prng),
                        .ready_timeout = RandomDuration(prng),
                        .optimizer_replicas = static_cast<int>(prng.Between(1, 2))};
      const int world_size = static_cast<int>(prng.Between(1, 9));
      for (int i = 0; i < world_size; ++i) proposal.members.push_back(absl::StrCat("w", i));
      proposal.plan = *PlanShards(RandomManifest(prng), world_size);
      return proposal;
    }
    case 2:
      return RandomEndpoint(prng);
    case 3:
      return Start{.epoch = epoch};
    case 4: {
      NewEntries entries;
      LogNumber number(prng.Between(1, 1000));
      for (std::int64_t n = prng.Between(1, 4); n > 0; --n, number = number.next()) {
        entries.entries.push_back(RandomEntry(prng, number));
      }
      return entries;
    }
    case 5:
      return AbortEpoch{.epoch = epoch, .why = RandomStatus(prng)};
    default:
      return Waiting{.detail = absl::StrCat("1 of ", RandomNumber(prng, 2), " workers attend")};
  }
}

TEST(Convert, EveryWorkerMessageComesBackEqual) {
  constexpr std::size_t kKinds = std::variant_size_v<WorkerMessage>;
  for (std::uint64_t seed = 1; seed <= 100 * kKinds; ++seed) {
    Prng prng(seed);
    const WorkerMessage sent = RandomWorkerMessage(prng, seed % kKinds);
    ASSERT_EQ(sent.index(), seed % kKinds);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const WorkerMessage received,
                                  FromProto(OverTheWire(ToProto(sent))));
    EXPECT_TRUE(received == sent) << seed << ToProto(sent).DebugString();
  }
}

TEST(Convert, EveryCoordinatorMessageComesBackEqual) {
  constexpr std::size_t kKinds = std::variant_size_v<CoordinatorMessage>;
  for (std::uint64_t seed = 1; seed <= 100 * kKinds; ++seed) {
    Prng prng(seed);
    const CoordinatorMessage sent = RandomCoordinatorMessage(prng, seed % kKinds);
    ASSERT_EQ(sent.index(), seed % kKinds);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const CoordinatorMessage received,
                                  FromProto(OverTheWire(ToProto(sent))));
    EXPECT_TRUE(received == sent) << seed << ToProto(sent).DebugString();
  }
}

TEST(Convert, ValuesByThemselvesComeBackEqual) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Prng prng(seed);
    const SyncPolicy policy = RandomPolicy(prng);
    EXPECT_TRUE(FromProto(OverTheWire(ToProto(policy))).value() == policy) << seed;
    const Manifest manifest = RandomManifest(prng);
    EXPECT_TRUE(FromProto(OverTheWire(ToProto(manifest))).value() == manifest) << seed;
    const ShardPlan plan = *PlanShards(manifest, static_cast<int>(prng.Between(1, 9)));
    EXPECT_TRUE(FromProto(OverTheWire(ToProto(plan))).value() == plan) << seed;
    EXPECT_EQ(FromProto(ToProto(plan))->Digest(), plan.Digest()) << seed;
    const ControlEntry entry = RandomEntry(prng, LogNumber(RandomNumber(prng, 1)));
    EXPECT_TRUE(FromProto(OverTheWire(ToProto(entry))).value() == entry) << seed;
  }
}

TEST(Convert, WhatIsNotSetGetsItsDefault) {
  EXPECT_EQ(FromProto(v1::SyncPolicy()).value(), SyncPolicy{});
  // In a schedule that is given, what is not set is off, but for the start.
  EXPECT_EQ(FromProto(v1::Schedule()).value(), (Schedule{.every_forwards = 0}));
  EXPECT_EQ(FromProto(v1::Root()).value(), Root(LowestRank{}));
  v1::SyncPolicy never;
  never.mutable_schedule()->set_before_evaluation(true);
  EXPECT_EQ(FromProto(never)->schedule.every_forwards, 0);
  EXPECT_TRUE(FromProto(never)->schedule.at_start);
  v1::AttendRequest heartbeat;
  heartbeat.mutable_heartbeat();
  EXPECT_EQ(FromProto(heartbeat).value(), WorkerMessage(Heartbeat{}));
  v1::AttendRequest leave;
  leave.mutable_leave();
  EXPECT_EQ(FromProto(leave).value(), WorkerMessage(Leave{}));
}

TEST(Convert, ARequestThatIsOutOfRangeIsRefusedByField) {
  struct Case {
    std::size_t kind;
    void (*change)(v1::AttendRequest&);
    std::string words;
  };
  const std::vector<Case> cases = {
      {0, [](auto& m) { m.Clear(); }, "message: is missing"},
      {0, [](auto& m) { m.mutable_hello()->clear_job(); }, "hello.job: is missing"},
      {0, [](auto& m) { m.mutable_hello()->set_job(std::string(64, 'j')); }, "hello.job: is 'jjj"},
      {0, [](auto& m) { m.mutable_hello()->clear_worker(); }, "hello.worker: is missing"},
      {0, [](auto& m) { m.mutable_hello()->set_worker("a\tb"); }, "hello.worker: is 'a\\tb'"},
      {0, [](auto& m) { m.mutable_hello()->clear_incarnation(); },
       "hello.incarnation: is 0; expected at least 1"},
      {0, [](auto& m) { m.mutable_hello()->clear_manifest(); }, "hello.manifest: is missing"},
      {0, [](auto& m) { m.mutable_hello()->clear_transport(); }, "hello.transport: is missing"},
      {0, [](auto& m) { m.mutable_hello()->set_epoch(-1); }, "hello.epoch: is -1"},
      {0, [](auto& m) { m.mutable_hello()->set_log_number(-1); }, "hello.log_number: is -1"},
      {0,
       [](auto& m) {
         auto* tensor = m.mutable_hello()->mutable_manifest()->add_buffers();
         tensor->set_name("q");
         tensor->set_dtype(99);
       },
       "].dtype: is the unknown number 99 (tensor 'q')"},
      {0,
       [](auto& m) { m.mutable_hello()->mutable_manifest()->add_parameters()->set_name("q"); },
       "parameter 'q' has the unknown dtype number 0"},
      {0,
       [](auto& m) {
         auto* tensor = m.mutable_hello()->mutable_manifest()->add_parameters();
         tensor->set_dtype(12);
         tensor->mutable_shape()->Resize(65, 1);
       },
       "].shape: has 65 entries; at most 64"},
      {0,
       [](auto& m) {
         auto* tensor = m.mutable_hello()->mutable_manifest()->add_buffers();
         tensor->set_dtype(12);
         tensor->set_frozen(true);
       },
       "].frozen: is set"},
      {0,
       [](auto& m) {
         auto* tensor = m.mutable_hello()->mutable_manifest()->add_buffers();
         tensor->set_name("q");
         tensor->set_dtype(12);
         tensor->add_shape(-3);
       },
       "hello.manifest: buffer 'q' is float32[-3]"},
      {1, [](auto& m) { m.mutable_heartbeat()->set_epoch(-1); }, "heartbeat.epoch: is -1"},
      {1, [](auto& m) { m.mutable_heartbeat()->set_step(-1); }, "heartbeat.step: is -1"},
      {1, [](auto& m) { m.mutable_heartbeat()->set_phase(4); },
       "heartbeat.phase: is the unknown number 4"},
      {1, [](auto& m) { m.mutable_heartbeat()->set_phase(-1); }, "heartbeat.phase"},
      {1,
       [](auto& m) {
         for (int i = 0; i < 33; ++i) {
           (*m.mutable_heartbeat()->mutable_metrics())[absl::StrCat("x", i)] = 1;
         }
         while (m.heartbeat().metrics().size() > 33) {
           m.mutable_heartbeat()->mutable_metrics()->erase(
               m.heartbeat().metrics().begin()->first);
         }
       },
       "heartbeat.metrics: has 33 entries; at most 32"},
      {1,
       [](auto& m) {
         m.mutable_heartbeat()->clear_metrics();
         (*m.mutable_heartbeat()->mutable_metrics())[""] = 1;
       },
       "heartbeat.metrics.key: is missing"},
      {2, [](auto& m) { m.mutable_endpoint()->clear_epoch(); }, "endpoint.epoch: is 0"},
      {2, [](auto& m) { m.mutable_endpoint()->clear_bytes(); }, "endpoint.bytes: is missing"},
      {2, [](auto& m) { m.mutable_endpoint()->set_bytes(std::string(4097, 'x')); },
       "endpoint.bytes: has 4097 bytes; at most 4096"},
      {3, [](auto& m) { m.mutable_ready()->clear_epoch(); }, "ready.epoch: is 0"},
      {3, [](auto& m) { m.mutable_ready()->set_optimizer_bytes(-1); }, "ready.optimizer_bytes"},
      {4, [](auto& m) { m.mutable_applied()->clear_epoch(); }, "applied.epoch: is 0"},
      {4, [](auto& m) { m.mutable_applied()->clear_log_number(); }, "applied.log_number: is 0"},
      {4, [](auto& m) { m.mutable_applied()->set_step(-1); }, "applied.step: is -1"},
      {5, [](auto& m) { m.mutable_leave()->set_epoch(-1); }, "leave.epoch: is -1"},
      {6, [](auto& m) { m.mutable_epoch_stopped()->clear_epoch(); }, "epoch_stopped.epoch: is 0"},
      {6, [](auto& m) { m.mutable_epoch_stopped()->set_step(-1); }, "epoch_stopped.step: is -1"},
  };
  for (const Case& c : cases) {
    Prng prng(1);
    v1::AttendRequest request = ToProto(RandomWorkerMessage(prng, c.kind));
    LOCKSTEP_ASSERT_OK(FromProto(request));
    c.change(request);
    EXPECT_THAT(FromProto(request),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.words)))
        << c.words;
  }
}

TEST(Convert, AResponseThatIsOutOfRangeIsRefusedByField) {
  struct Case {
    std::size_t kind;
    void (*change)(v1::AttendResponse&);
    std::string words;
  };
  const std::vector<Case> cases = {
      {0, [](auto& m) { m.Clear(); }, "message: is missing"},
      {0, [](auto& m) { m.mutable_welcome()->clear_generation(); }, "welcome.generation: is 0"},
      {0, [](auto& m) { m.mutable_welcome()->clear_lease(); }, "welcome.lease: is missing"},
      {0, [](auto& m) { m.mutable_welcome()->mutable_lease()->Clear(); },
       "welcome.lease: is 0; expected a positive duration"},
      {0, [](auto& m) { m.mutable_welcome()->mutable_lease()->set_nanos(1'000'000'000); },
       "welcome.lease.nanos: is 1000000000"},
      {0, [](auto& m) { m.mutable_welcome()->clear_heartbeat_interval(); },
       "welcome.heartbeat_interval: is missing"},
      {1, [](auto& m) { m.mutable_proposal()->clear_epoch(); }, "proposal.epoch: is 0"},
      {1, [](auto& m) { m.mutable_proposal()->clear_members(); }, "proposal.members: is missing"},
      {1, [](auto& m) { m.mutable_proposal()->set_members(0, ""); },
       "proposal.members[0]: is missing"},
      {1, [](auto& m) { m.mutable_proposal()->add_members("late"); },
       "proposal.plan.shards: has "},
      {1,
       [](auto& m) {
         for (int i = 0; i < 10001; ++i) m.mutable_proposal()->add_members("w");
       },
       "at most 10000"},
      {1, [](auto& m) { m.mutable_proposal()->clear_plan(); }, "proposal.plan: is missing"},
      {1, [](auto& m) { m.mutable_proposal()->mutable_plan()->set_flat_elements(-16); },
       "proposal.plan: the flat space has -16 elements"},
      {1,
       [](auto& m) { m.mutable_proposal()->mutable_plan()->mutable_shards(0)->set_begin(16); },
       "proposal.plan: the shard of rank 0"},
      {1, [](auto& m) { m.mutable_proposal()->set_log_number(-1); }, "proposal.log_number: is -1"},
      {1, [](auto& m) { m.mutable_proposal()->clear_revision(); }, "proposal.revision: is 0"},
      {1, [](auto& m) { m.mutable_proposal()->clear_policy(); }, "proposal.policy: is missing"},
      {1,
       [](auto& m) {
         m.mutable_proposal()->mutable_policy()->clear_allow_list();
         m.mutable_proposal()->mutable_policy()->add_allow_list("re:(");
       },
       "proposal.policy.allow_list[0]: the pattern 're:('"},
      {1,
       [](auto& m) {
         for (int i = 0; i < 1001; ++i) {
           m.mutable_proposal()->mutable_policy()->add_ignore_list("x");
         }
       },
       "proposal.policy.ignore_list: has "},
      {1,
       [](auto& m) {
         m.mutable_proposal()->mutable_policy()->set_operation(static_cast<v1::Operation>(8));
       },
       "proposal.policy.operation: is the unknown number 8"},
      {1,
       [](auto& m) { m.mutable_proposal()->mutable_policy()->mutable_root()->set_rank(-1); },
       "proposal.policy.root.rank: is -1"},
      {1,
       [](auto& m) { m.mutable_proposal()->mutable_policy()->mutable_root()->set_worker(""); },
       "proposal.policy.root.worker: is missing"},
      {1,
       [](auto& m) {
         m.mutable_proposal()->mutable_policy()->mutable_schedule()->set_every_steps(-1);
       },
       "proposal.policy.schedule.every_steps: is -1"},
      {1, [](auto& m) { m.mutable_proposal()->clear_ready_timeout(); },
       "proposal.ready_timeout: is missing"},
      {1, [](auto& m) { m.mutable_proposal()->set_optimizer_replicas(3); },
       "proposal.optimizer_replicas: is 3; expected 1 to 2"},
      {1, [](auto& m) { m.mutable_proposal()->set_optimizer_replicas(-1); },
       "proposal.optimizer_replicas: is -1"},
      {2, [](auto& m) { m.mutable_endpoint()->set_bytes(std::string(4097, 'x')); },
       "endpoint.bytes: has 4097"},
      {3, [](auto& m) { m.mutable_start()->clear_epoch(); }, "start.epoch: is 0"},
      {4, [](auto& m) { m.mutable_new_entries()->clear_entries(); },
       "new_entries.entries: is missing"},
      {4, [](auto& m) { m.mutable_new_entries()->mutable_entries(0)->clear_number(); },
       "new_entries.entries[0].number: is 0"},
      {4, [](auto& m) { m.mutable_new_entries()->mutable_entries(0)->clear_decision(); },
       "new_entries.entries[0].decision: is missing"},
      {4,
       [](auto& m) {
         *m.mutable_new_entries()->add_entries() = m.new_entries().entries(0);
       },
       "expected consecutive numbers"},
      {4,
       [](auto& m) {
         auto* entry = m.mutable_new_entries()->mutable_entries(0);
         entry->mutable_policy_revised()->set_revision(1);
         entry->mutable_policy_revised()->clear_policy();
       },
       "new_entries.entries[0].policy_revised.policy: is missing"},
      {4,
       [](auto& m) {
         m.mutable_new_entries()->mutable_entries(0)->mutable_sync_once()->mutable_root()->set_rank(
             -2);
       },
       "new_entries.entries[0].sync_once.root.rank: is -2"},
      {4,
       [](auto& m) {
         m.mutable_new_entries()->mutable_entries(0)->mutable_regroup()->set_drain("a\nb");
       },
       "new_entries.entries[0].regroup.drain: is 'a\\nb'"},
      {4,
       [](auto& m) {
         while (m.new_entries().entries_size() <= kMaxEntriesPerMessage) {
           m.mutable_new_entries()->add_entries();
         }
       },
       "new_entries.entries: has 10001 entries; at most 10000"},
      {5, [](auto& m) { m.mutable_abort_epoch()->clear_epoch(); }, "abort_epoch.epoch: is 0"},
      {5, [](auto& m) { m.mutable_abort_epoch()->clear_why(); }, "abort_epoch.why: is missing"},
  };
  for (const Case& c : cases) {
    Prng prng(3);
    v1::AttendResponse response = ToProto(RandomCoordinatorMessage(prng, c.kind));
    LOCKSTEP_ASSERT_OK(FromProto(response));
    c.change(response);
    EXPECT_THAT(FromProto(response),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.words)))
        << c.words;
  }
}

TEST(Convert, AProposalOfACoordinatorWithoutReplicasHasOne) {
  Prng prng(4);
  v1::AttendResponse response = ToProto(RandomCoordinatorMessage(prng, 1));
  response.mutable_proposal()->clear_optimizer_replicas();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const CoordinatorMessage message, FromProto(response));
  EXPECT_EQ(std::get<Proposal>(message).optimizer_replicas, 1);
}

TEST(StatusMessage, AnUnknownCodeIsStillAnError) {
  v1::Status proto;
  proto.set_message("from the future");
  for (const int code : {17, -1, 1000}) {
    proto.set_code(code);
    EXPECT_THAT(FromProto(proto),
                StatusIs(absl::StatusCode::kUnknown, HasSubstr("from the future")));
  }
}

TEST(StatusMessage, IsMadeFitToSend) {
  EXPECT_EQ(SendableMessage("größe\nnext"), "größe\nnext");
  EXPECT_EQ(SendableMessage("a\xff" "b\xc3"), "a?b?");
  EXPECT_EQ(SendableMessage("\xed\xa0\x80"), "???");  // a surrogate
  const std::string cut = SendableMessage("x" + std::string(5000, '\xff'));
  EXPECT_EQ(cut.size(), static_cast<std::size_t>(kMaxStatusMessageBytes));
  EXPECT_THAT(cut, ::testing::EndsWith("..."));
  std::string umlauts;
  while (umlauts.size() < 5000) umlauts += "ü";
  const v1::Status sent = ToProto(absl::InternalError(umlauts));
  EXPECT_LE(sent.message().size(), static_cast<std::size_t>(kMaxStatusMessageBytes));
  EXPECT_EQ(OverTheWire(sent).message(), sent.message());
}

}  // namespace
}  // namespace lockstep

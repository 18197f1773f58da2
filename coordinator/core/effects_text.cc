#include "coordinator/core/effects_text.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep {
namespace {

std::string Text(const absl::Status& status) {
  if (status.ok()) return "OK";
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ",
                      absl::string_view(status.message()));
}

std::string Text(const PolicyRevised& revised) {
  return absl::StrCat("policy revision ", revised.revision.value());
}
std::string Text(const SyncOnce& once) {
  return absl::StrCat("sync once", once.buffers ? " buffers" : "",
                      once.parameters ? " parameters" : "",
                      once.root ? absl::StrCat(" from ", Describe(*once.root)) : "");
}
std::string Text(const Regroup& regroup) {
  return regroup.drain.empty() ? "regroup" : absl::StrCat("regroup without ", regroup.drain);
}
std::string Text(const CheckpointOnce&) { return "checkpoint once"; }
std::string Text(const ControlEntry& entry) {
  return absl::StrCat("entry ", entry.number.value(), " = ",
                      std::visit([](const auto& decision) { return Text(decision); },
                                 entry.decision));
}

std::string Text(const GenerationStarted& r) {
  return absl::StrCat("generation ", r.generation.value());
}
std::string Text(const JobCreated& r) { return absl::StrCat("job ", r.spec.name, " created"); }
std::string Text(const JobDeleted& r) { return absl::StrCat("job ", r.job, " deleted"); }
std::string Text(const ManifestAgreed& r) {
  return absl::StrCat("model of ", r.job, " agreed: ", r.manifest.parameters.size(),
                      " parameters, ", r.manifest.buffers.size(), " buffers");
}
std::string Text(const EpochProposed& r) {
  return absl::StrCat("epoch ", r.epoch.value(), " proposed: ",
                      absl::StrJoin(r.members, ", ", [](std::string* out, const Member& member) {
                        absl::StrAppend(out, member.worker, "#", member.incarnation.value());
                      }));
}
std::string Text(const EpochStarted& r) {
  return absl::StrCat("epoch ", r.epoch.value(), " started");
}
std::string Text(const MemberLeft& r) {
  return absl::StrCat(r.worker, " left epoch ", r.epoch.value());
}
std::string Text(const EpochEnded& r) {
  return absl::StrCat("epoch ", r.epoch.value(), " ended: ", r.why);
}
std::string Text(const EntryAppended& r) { return Text(r.entry); }
std::string Text(const EntryApplied& r) {
  return absl::StrCat("entry ", r.number.value(), " took effect on ", r.worker, " after step ",
                      r.step);
}

std::string Text(const Waiting& m) { return absl::StrCat("Waiting: ", m.detail); }

std::string Text(const Welcome& m) {
  return absl::StrCat("Welcome lease=", absl::FormatDuration(m.lease),
                      " heartbeat=", absl::FormatDuration(m.heartbeat_interval),
                      " generation=", m.generation.value());
}
std::string Text(const Proposal& m) {
  return absl::StrCat("Proposal epoch=", m.epoch.value(), " members=",
                      absl::StrJoin(m.members, ","), " shards=", m.plan.shards.size(),
                      " policy=", m.revision.value(), " log=", m.log_number.value(),
                      m.missed.valid() ? absl::StrCat(" missed=", m.missed.value()) : "");
}
std::string Text(const Endpoint& m) {
  return absl::StrCat("Endpoint epoch=", m.epoch.value(), " bytes=", m.bytes);
}
std::string Text(const Start& m) { return absl::StrCat("Start epoch=", m.epoch.value()); }
std::string Text(const NewEntries& m) {
  return absl::StrCat("NewEntries ", absl::StrJoin(m.entries, ", ",
                                                   [](std::string* out, const ControlEntry& entry) {
                                                     absl::StrAppend(out, Text(entry));
                                                   }));
}
std::string Text(const AbortEpoch& m) {
  return absl::StrCat("AbortEpoch epoch=", m.epoch.value(), " ", Text(m.why));
}

std::string Text(const Reply& reply) {
  if (const auto* revision = std::get_if<PolicyHistoryEntry>(&reply)) {
    return absl::StrCat("OK revision ", revision->revision.value(), ", entry ",
                        revision->number.value());
  }
  if (const auto* number = std::get_if<LogNumber>(&reply)) {
    return absl::StrCat("OK entry ", number->value());
  }
  return "OK";
}

}  // namespace

std::string RecordText(const Record& record) {
  return std::visit([](const auto& r) { return Text(r); }, record);
}

std::vector<std::string> EffectLines(const Effects& effects,
                                     const std::function<std::string(StreamId)>& stream_name) {
  std::vector<std::string> lines;
  for (const Record& record : effects.persist) {
    lines.push_back(absl::StrCat("store      ", RecordText(record)));
  }
  for (const Outgoing& out : effects.send) {
    lines.push_back(absl::StrCat("to ", stream_name(out.stream), "    ",
                                 std::visit([](const auto& m) { return Text(m); }, *out.message)));
  }
  for (const EndStream& end : effects.end) {
    lines.push_back(absl::StrCat("end ", stream_name(end.stream), "   ", Text(end.why)));
  }
  for (const Answer& answer : effects.answers) {
    lines.push_back(absl::StrCat(
        "answer     ", answer.reply.ok() ? Text(*answer.reply) : Text(answer.reply.status())));
  }
  return lines;
}

}  // namespace lockstep

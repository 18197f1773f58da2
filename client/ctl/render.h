// What lockstepctl prints of the coordinator's answers: tables for people, JSON
// for programs. Pure; thread-safe.
#ifndef LOCKSTEP_CLIENT_CTL_RENDER_H_
#define LOCKSTEP_CLIENT_CTL_RENDER_H_

#include <string>
#include <vector>

#include "client/ctl/style.h"
#include "google/protobuf/message.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/policy.pb.h"

namespace lockstep {

enum class JsonLayout { kPretty, kOneLine };

// Protobuf's JSON with the field names of the .proto files; ends with a line break.
std::string RenderJson(const google::protobuf::Message& message,
                       JsonLayout layout = JsonLayout::kPretty);

std::string RenderJobs(const std::vector<v1::Job>& jobs, Color color = Color::kOff);
std::string RenderJob(const v1::Job& job, Color color = Color::kOff);
std::string RenderWorkers(const std::vector<v1::Worker>& workers, Color color = Color::kOff);
std::string RenderShardPlan(const v1::GetShardPlanResponse& plan);
std::string RenderRevision(const v1::SyncPolicyRevision& revision, Color color = Color::kOff);
std::string RenderHistory(const std::vector<v1::SyncPolicyRevision>& revisions,
                          Color color = Color::kOff);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_RENDER_H_

#include "client/ctl/policy_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/ctl/json_text.h"
#include "common/base/status_macros.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "proto/convert/convert.h"

namespace lockstep {
namespace {

// Fields are explained in the order of policy.proto.
constexpr char kExplanation[] =
    R"(#
# broadcast_buffers: true        the master switch; false: no buffer is due while training runs
# allow_list: "**.running_*"     buffers that take part (one line each); none: all
# ignore_list: "bn1.*"           buffers that do not; wins over allow_list
# operation: OPERATION_MEAN      for buffers that no rule matches; default OPERATION_BROADCAST
# root { rank: 2 }               whose value wins: a rank, or { worker: "w1" }; default: the
#                                lowest rank
# schedule { ... }               when. at_start: true, every_forwards: 1, every_steps: 100,
#                                before_evaluation: true, before_checkpoint: true. In a schedule
#                                that is given, what is not named is off, but for at_start;
#                                without one: at start and before every forward
# broadcast_parameters_at_start: true
# broadcast_parameters_every_steps: 1000    0: never
# check_parameters_every_steps: 1000        compare them among ranks; 0: never
# skip_unchanged: true           send no buffer that no rank has changed
# rules { pattern: "**.count" operation: OPERATION_SUM schedule { every_steps: 100 } }
#                                the first that matches a buffer decides; operation, root and
#                                schedule that a rule does not name are the policy's
#
# Operations:
#   OPERATION_BROADCAST          the root's value wins; any element type
#   OPERATION_MEAN               floating and complex types only
#   OPERATION_MEAN_BY_SAMPLES    the same, a rank counts by its samples since the last sync
#   OPERATION_SUM                of what the ranks hold: reset the buffer after each sync
#   OPERATION_MIN, OPERATION_MAX
#   OPERATION_NONE               each rank keeps its own
# Patterns, on full buffer names: * within a component, ** across, a leading "**." also none;
#   re:EXPRESSION is a regular expression on the whole name.
)";

// Keeps the first complaint.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  explicit FirstError(const std::string& source) : source_(source) {}

  // Lines and columns count from 0; a line below 0: unknown.
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (!text_.empty()) return;
    text_ = line < 0 ? absl::StrCat(source_, ": ", message)
                     : absl::StrCat(source_, ":", line + 1, ":", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  const std::string source_;
  std::string text_;
};

absl::StatusOr<v1::SyncPolicy> ParseText(const std::string& text, const std::string& source) {
  FirstError error(source);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  v1::SyncPolicy policy;
  if (parser.ParseFromString(text, &policy)) return policy;
  return absl::InvalidArgumentError(error.text());
}

absl::StatusOr<v1::SyncPolicy> ParseJson(const std::string& text, const std::string& source) {
  // Protobuf's reader does not tell where JSON is malformed.
  LOCKSTEP_RETURN_IF_ERROR(ParseJsonText(text, source).status());
  v1::SyncPolicy policy;
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &policy);
  if (parsed.ok()) return policy;
  return absl::InvalidArgumentError(absl::StrCat(source, " is not a SyncPolicy in JSON: ",
                                                 std::string(parsed.message())));
}

}  // namespace

absl::StatusOr<v1::SyncPolicy> ParsePolicy(const std::string& text, const std::string& source) {
  const bool is_json = absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{");
  LOCKSTEP_ASSIGN_OR_RETURN(v1::SyncPolicy policy,
                            is_json ? ParseJson(text, source) : ParseText(text, source));
  const absl::Status valid = FromProto(policy).status();
  if (valid.ok()) return policy;
  return absl::InvalidArgumentError(absl::StrCat(source, ": ", valid.message()));
}

std::string PolicyText(const std::string& job, const v1::SyncPolicyRevision& revision) {
  v1::SyncPolicy policy = revision.policy();
  if (policy.root().root_case() == v1::Root::ROOT_NOT_SET) policy.clear_root();
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseUtf8StringEscaping(true);
  std::string text;
  printer.PrintToString(policy, &text);
  return absl::StrCat("# Sync policy of job ", job, ", revision ", revision.revision(), ".\n",
                      kExplanation, "\n", text);
}

bool IsEmptied(const std::string& text) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripLeadingAsciiWhitespace(line);
    if (!line.empty() && line[0] != '#') return false;
  }
  return true;
}

}  // namespace lockstep

#include "client/ctl/policy_diff.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/strings/str_cat.h"
#include "client/ctl/policy_words.h"
#include "client/ctl/preview_table.h"
#include "common/base/status_macros.h"
#include "common/policy/sync_policy.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"
#include "nlohmann/json.hpp"
#include "proto/convert/convert.h"

namespace lockstep {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Kind = FieldChange::Kind;

constexpr std::size_t kMaxBuffersShown = 20;

enum class Naming { kByField, kByIndex };

// A list changes by what is not in the longest common subsequence.
void DiffLists(const std::string& field, Naming naming, const std::vector<std::string>& before,
               const std::vector<std::string>& after, std::vector<FieldChange>& changes) {
  const auto name = [&](std::size_t index) {
    return naming == Naming::kByIndex ? absl::StrCat(field, "[", index, "]") : field;
  };
  // common[i][j]: length for before[i..] and after[j..].
  std::vector<std::vector<int>> common(before.size() + 1, std::vector<int>(after.size() + 1, 0));
  for (std::size_t i = before.size(); i-- > 0;) {
    for (std::size_t j = after.size(); j-- > 0;) {
      common[i][j] = before[i] == after[j] ? common[i + 1][j + 1] + 1
                                           : std::max(common[i + 1][j], common[i][j + 1]);
    }
  }
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < before.size() || j < after.size()) {
    if (i < before.size() && j < after.size() && before[i] == after[j]) {
      ++i, ++j;
    } else if (j == after.size() ||
               (i < before.size() && common[i + 1][j] >= common[i][j + 1])) {
      changes.push_back({.kind = Kind::kRemoved, .field = name(i), .before = before[i]});
      ++i;
    } else {
      changes.push_back({.kind = Kind::kAdded, .field = name(j), .after = after[j]});
      ++j;
    }
  }
}

std::vector<std::string> Items(const Message& message, const FieldDescriptor* field) {
  std::vector<std::string> items;
  for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      items.push_back(message.GetReflection()->GetRepeatedString(message, field, i));
    } else {
      const auto& rule = static_cast<const v1::SyncRule&>(
          message.GetReflection()->GetRepeatedMessage(message, field, i));
      items.push_back(RuleText(*FromProto(rule)));
    }
  }
  return items;
}

std::string Value(const Message& message, const FieldDescriptor* field) {
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    return OperationWord(
        static_cast<v1::Operation>(message.GetReflection()->GetEnumValue(message, field)));
  }
  if (field->message_type() == v1::Root::descriptor()) {
    const auto& root =
        static_cast<const v1::Root&>(message.GetReflection()->GetMessage(message, field));
    return Describe(*FromProto(root));
  }
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(message, field, -1, &text);
  return text;
}

// Over all fields that the messages have, so that a new one is not forgotten. Of
// messages that ToProto() made, so that FromProto() takes all parts of them.
void DiffMessages(const std::string& prefix, const Message& before, const Message& after,
                  std::vector<FieldChange>& changes) {
  for (int i = 0; i < before.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = before.GetDescriptor()->field(i);
    const std::string name = absl::StrCat(prefix, field->name());
    if (field->is_repeated()) {
      const bool are_rules = field->message_type() == v1::SyncRule::descriptor();
      DiffLists(name, are_rules ? Naming::kByIndex : Naming::kByField, Items(before, field),
                Items(after, field), changes);
      continue;
    }
    if (field->message_type() == v1::Schedule::descriptor()) {
      DiffMessages(absl::StrCat(name, "."), before.GetReflection()->GetMessage(before, field),
                   after.GetReflection()->GetMessage(after, field), changes);
      continue;
    }
    FieldChange change = {
        .field = name, .before = Value(before, field), .after = Value(after, field)};
    if (change.before != change.after) changes.push_back(std::move(change));
  }
}

std::string Line(const FieldChange& change) {
  switch (change.kind) {
    case Kind::kRemoved:
      return absl::StrCat("- ", change.field, ": ", change.before, "\n");
    case Kind::kAdded:
      return absl::StrCat("+ ", change.field, ": ", change.after, "\n");
    case Kind::kChanged:
      break;
  }
  return absl::StrCat("~ ", change.field, ": ", change.before, " -> ", change.after, "\n");
}

std::string RenderBuffers(const std::optional<std::vector<BufferChange>>& buffers) {
  if (!buffers) return "no worker has told the model yet: buffers were not compared\n";
  if (buffers->empty()) return "no buffer of the model is treated differently\n";
  const bool is_one = buffers->size() == 1;
  std::string text = absl::StrCat(buffers->size(), is_one ? " buffer is" : " buffers are",
                                  " treated differently:\n");
  for (std::size_t i = 0; i < std::min(buffers->size(), kMaxBuffersShown); ++i) {
    const BufferChange& change = (*buffers)[i];
    absl::StrAppend(&text, "  ", change.name, ": ", change.before, " -> ", change.after, "\n");
  }
  if (buffers->size() > kMaxBuffersShown) {
    absl::StrAppend(&text, "  and ", buffers->size() - kMaxBuffersShown, " more\n");
  }
  return text;
}

const char* KindWord(Kind kind) {
  switch (kind) {
    case Kind::kRemoved:
      return "removed";
    case Kind::kAdded:
      return "added";
    case Kind::kChanged:
      break;
  }
  return "changed";
}

}  // namespace

absl::StatusOr<std::vector<FieldChange>> DiffPolicies(const v1::SyncPolicy& before,
                                                      const v1::SyncPolicy& after) {
  LOCKSTEP_ASSIGN_OR_RETURN(const SyncPolicy from, FromProto(before));
  LOCKSTEP_ASSIGN_OR_RETURN(const SyncPolicy to, FromProto(after));
  std::vector<FieldChange> changes;
  DiffMessages("", ToProto(from), ToProto(to), changes);
  return changes;
}

std::vector<BufferChange> DiffTreatments(const v1::PreviewSyncPolicyResponse& before,
                                         const v1::PreviewSyncPolicyResponse& after) {
  std::map<std::string, std::string> treatments;
  for (const v1::BufferPreview& buffer : before.buffers()) {
    treatments[buffer.name()] = DescribeTreatment(buffer);
  }
  std::vector<BufferChange> changes;
  for (const v1::BufferPreview& buffer : after.buffers()) {
    const auto found = treatments.find(buffer.name());
    if (found == treatments.end()) continue;
    BufferChange change = {
        .name = buffer.name(), .before = found->second, .after = DescribeTreatment(buffer)};
    if (change.before != change.after) changes.push_back(std::move(change));
  }
  return changes;
}

std::string RenderDiff(const PolicyDiff& diff) {
  std::string text = absl::StrCat(diff.before, " -> ", diff.after, "\n");
  if (diff.fields.empty()) return absl::StrCat(text, "no difference\n");
  for (const FieldChange& change : diff.fields) absl::StrAppend(&text, Line(change));
  return absl::StrCat(text, RenderBuffers(diff.buffers));
}

std::string RenderDiffJson(const PolicyDiff& diff) {
  // Ordered as the text is.
  nlohmann::ordered_json json = {{"before", diff.before}, {"after", diff.after}};
  json["fields"] = nlohmann::ordered_json::array();
  for (const FieldChange& change : diff.fields) {
    nlohmann::ordered_json entry = {{"field", change.field}, {"change", KindWord(change.kind)}};
    if (change.kind != Kind::kAdded) entry["before"] = change.before;
    if (change.kind != Kind::kRemoved) entry["after"] = change.after;
    json["fields"].push_back(entry);
  }
  json["buffers"] = nullptr;
  if (diff.buffers) {
    json["buffers"] = nlohmann::ordered_json::array();
    for (const BufferChange& change : *diff.buffers) {
      json["buffers"].push_back(
          {{"name", change.name}, {"before", change.before}, {"after", change.after}});
    }
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep

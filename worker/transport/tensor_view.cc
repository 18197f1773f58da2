#include "worker/transport/tensor_view.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

// Each text as its length (4 bytes, host order: ranks of one job share it) and
// its bytes; a line is its name and its view.
void AppendText(const std::string& text, std::string* out) {
  const auto size = static_cast<std::uint32_t>(text.size());
  out->append(reinterpret_cast<const char*>(&size), sizeof(size));
  out->append(text);
}

bool TakeText(absl::string_view* in, std::string* text) {
  std::uint32_t size = 0;
  if (in->size() < sizeof(size)) return false;
  std::memcpy(&size, in->data(), sizeof(size));
  in->remove_prefix(sizeof(size));
  if (in->size() < size) return false;
  text->assign(in->data(), size);
  in->remove_prefix(size);
  return true;
}

std::optional<std::vector<LayoutLine>> DecodeLayout(absl::string_view bytes) {
  std::vector<LayoutLine> lines;
  while (!bytes.empty()) {
    LayoutLine line;
    if (!TakeText(&bytes, &line.name) || !TakeText(&bytes, &line.view)) return std::nullopt;
    lines.push_back(std::move(line));
  }
  return lines;
}

using Layouts = std::vector<std::vector<LayoutLine>>;

std::string MemberAt(const std::vector<std::string>& members, std::size_t rank) {
  return absl::StrCat(members[rank], " (rank ", rank, ")");
}

// "float32[64] on w0 (rank 0), w2 (rank 2), absent on w1 (rank 1)".
std::string ListViews(const std::vector<std::string>& views,
                      const std::vector<std::string>& members) {
  std::vector<std::string> groups;
  std::vector<std::string> seen;
  for (const std::string& view : views) {
    if (std::find(seen.begin(), seen.end(), view) != seen.end()) continue;
    seen.push_back(view);
    std::vector<std::string> holders;
    for (std::size_t rank = 0; rank < views.size(); ++rank) {
      if (views[rank] == view) holders.push_back(MemberAt(members, rank));
    }
    groups.push_back(absl::StrCat(view, " on ", ListNames(holders)));
  }
  return ListNames(groups);
}

// Each rank's view of the tensor of that name from position `from` on.
std::vector<std::string> ViewsOf(const std::string& name, const Layouts& layouts,
                                 std::size_t from) {
  std::vector<std::string> views;
  for (const auto& lines : layouts) {
    const auto start = lines.begin() + std::min(from, lines.size());
    const auto line = std::find_if(start, lines.end(),
                                   [&](const LayoutLine& l) { return l.name == name; });
    views.push_back(line == lines.end() ? "absent" : line->view);
  }
  return views;
}

bool AllEqual(const std::vector<std::string>& texts) {
  return std::all_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return text == texts[0]; });
}

}  // namespace

std::uint64_t LayoutDigest(std::span<const TensorView> views) {
  Digester digester;
  for (const TensorView& view : views) {
    digester.Add(absl::string_view(view.spec.name));
    digester.Add(static_cast<std::int64_t>(view.spec.dtype));
    digester.Add(std::as_bytes(std::span(view.spec.shape)));
  }
  return digester.Finish();
}

std::vector<LayoutLine> LayoutOf(std::span<const TensorView> views) {
  std::vector<LayoutLine> lines;
  lines.reserve(views.size());
  for (const TensorView& view : views) lines.push_back({view.spec.name, view.spec.ToString()});
  return lines;
}

std::string EncodeLayout(std::span<const LayoutLine> lines) {
  std::string bytes;
  for (const LayoutLine& line : lines) {
    AppendText(line.name, &bytes);
    AppendText(line.view, &bytes);
  }
  return bytes;
}

std::string EncodeLayout(std::span<const TensorView> views) {
  return EncodeLayout(std::span<const LayoutLine>(LayoutOf(views)));
}

std::string DescribeDisagreement(const std::vector<std::string>& layouts,
                                 const std::vector<std::string>& members) {
  LOCKSTEP_CHECK(layouts.size() == members.size());
  Layouts decoded;
  std::size_t longest = 0;
  for (std::size_t rank = 0; rank < layouts.size(); ++rank) {
    std::optional<std::vector<LayoutLine>> lines = DecodeLayout(layouts[rank]);
    if (!lines.has_value()) {
      return absl::StrCat("the layout that ", MemberAt(members, rank),
                          " sent cannot be read; do all ranks run the same build?");
    }
    longest = std::max(longest, lines->size());
    decoded.push_back(*std::move(lines));
  }

  for (std::size_t position = 0; position < longest; ++position) {
    std::vector<std::string> names;  // at this position, by rank
    for (const auto& lines : decoded) {
      names.push_back(position < lines.size() ? lines[position].name : "");
    }
    // Of the tensors here, the one that ranks see differently; if all see them
    // alike, they come in another order.
    for (const std::string& name : names) {
      if (name.empty()) continue;
      const std::vector<std::string> views = ViewsOf(name, decoded, position);
      if (AllEqual(views)) continue;
      return absl::StrCat("tensor '", name, "': ", ListViews(views, members));
    }
    if (!AllEqual(names)) {
      for (std::string& name : names) {
        name = name.empty() ? "nothing" : absl::StrCat("'", name, "'");
      }
      return absl::StrCat("order of tensors, position ", position, ": ",
                          ListViews(names, members));
    }
  }
  return "";
}

}  // namespace lockstep

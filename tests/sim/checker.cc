#include "tests/sim/checker.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/text.h"

namespace lockstep::sim {
namespace {

// Bit for bit: the first difference, or empty.
std::string Difference(const std::vector<std::vector<float>>& expected,
                       const std::vector<std::vector<float>>& actual) {
  for (std::size_t p = 0; p < expected.size(); ++p) {
    for (std::size_t i = 0; i < expected[p].size(); ++i) {
      if (std::memcmp(&expected[p][i], &actual[p][i], sizeof(float)) == 0) continue;
      return absl::StrCat(ParameterNames()[p], "[", i, "] is ", actual[p][i],
                          ", in the serial reference ", expected[p][i]);
    }
  }
  return "";
}

}  // namespace

void Checker::Break(const std::string& checker, const std::string& what) {
  trace_.Say("VIOLATION of ", checker, ": ", what);
  if (violation_.empty()) violation_ = absl::StrCat(checker, ": ", what);
}

void Checker::OnState(const ClusterState& state) {
  if (const absl::Status kept = CheckInvariants(state); !kept.ok()) {
    Break("coordinator", std::string(kept.message()));
  }
  for (const auto& [name, job] : state.jobs) {
    for (const auto& [revision, policy] : answered_) {
      const std::size_t at = static_cast<std::size_t>(revision.value()) - 1;
      if (at >= job.policies.size() || job.policies[at].policy != policy) {
        Break("the word", absl::StrCat("revision ", revision.value(),
                                       " was answered to a client and is forgotten"));
      }
    }
    // Who is drained as an epoch starts is one that the job went on without before.
    for (const auto& [worker, incarnation] : job.drained) {
      if (job.stage != JobStage::kRunning) drained_[worker] = incarnation;
    }
    if (job.last_number() < entries_) {
      Break("the word", absl::StrCat("entry ", entries_.value(),
                                     " was answered to a client and is forgotten"));
    }
    std::string text = absl::StrCat(job.last_epoch.value(), " ", static_cast<int>(job.stage));
    if (text == last_epoch_text_) continue;
    last_epoch_text_ = std::move(text);
    if (job.epoch.has_value()) {
      std::vector<std::string> members;
      for (const Member& member : job.epoch->members) members.push_back(member.worker);
      trace_.Say("coordinator: epoch ", job.epoch->id.value(),
                 job.stage == JobStage::kRunning ? " starts with " : " is proposed to ",
                 ListNames(members));
    } else {
      trace_.Say("coordinator: the job waits for workers",
                 job.last_end.empty() ? "" : absl::StrCat("; ", job.last_end));
    }
  }
}

void Checker::OnProposal(const Life& life, const Proposal& proposal) {
  const auto [it, is_new] = epochs_.try_emplace(proposal.epoch);
  EpochSeen& seen = it->second;
  if (is_new) seen.members = proposal.members;
  if (seen.members != proposal.members) {
    Break("epochs", absl::StrCat("epoch ", proposal.epoch.value(), " has the members ",
                                 ListNames(seen.members), " and ", ListNames(proposal.members)));
  }
  if (const absl::Status valid = Validate(proposal.plan); !valid.ok()) {
    Break("owners", std::string(valid.message()));
  }
  seen.heard[life.worker] = life.incarnation;
}

Checker::Line* Checker::LineOf(Epoch epoch) {
  for (auto line = lines_.rbegin(); line != lines_.rend(); ++line) {
    if (line->first <= epoch) return &*line;
  }
  return nullptr;
}

bool Checker::MayBeLost(Epoch epoch, const std::string& whose) {
  const auto whole = epochs_.find(whole_);
  if (whole == epochs_.end()) return true;
  // A member of an older history came late: nothing of this one is lost.
  if (lines_.size() > 1 && last_step() == 0) return true;
  const EpochSeen& before = whole->second;
  if (replicas_ < 2 || before.members.size() < 2) return true;
  // Whoever comes back after the job has gone on without them comes too late.
  if (given_up_ == whole_) return true;
  const EpochSeen& now = epochs_.at(epoch);
  int missing = 0, out = 0, keepers = 0;
  for (const auto& [worker, incarnation] : before.joined) {
    // Who is drained hands over what it has.
    const auto drained = drained_.find(worker);
    if (drained != drained_.end() && incarnation <= drained->second) continue;
    ++keepers;
    const auto heard = now.heard.find(worker);
    if (heard != now.heard.end() && heard->second == incarnation) continue;
    ++missing;
    if (is_out_({worker, incarnation})) ++out;
  }
  if (out >= std::min(keepers, 2)) {
    given_up_ = whole_;
    return true;
  }
  Break(missing > 1 ? "needless loss" : "one history",
        absl::StrCat(whose, " loses the state in epoch ", epoch.value(), ", where ", missing,
                     " members of epoch ", whole_.value(), " are missing, of which ", out,
                     " cannot take part"));
  return false;
}

void Checker::OnAttempt(const Life& life, const Attempt& attempt) {
  const auto [it, is_new] = attempts_.try_emplace({attempt.epoch, attempt.step}, attempt);
  if (it->second.revision != attempt.revision) {
    Break("lockstep", absl::StrCat(life.worker, " takes step ", attempt.step, " of epoch ",
                                   attempt.epoch.value(), " under revision ",
                                   attempt.revision.value(), ", another rank under ",
                                   it->second.revision.value()));
  }
}

void Checker::OnApplied(const Life& life, Epoch epoch, LogNumber number, std::int64_t step) {
  const auto [it, is_new] = applied_.try_emplace({epoch, number}, step);
  if (it->second != step) {
    Break("lockstep", absl::StrCat("entry ", number.value(), " takes effect behind step ", step,
                                   " on ", life.worker, ", elsewhere behind step ", it->second));
  }
}

void Checker::OnJoined(const Life& life, const Place& place) {
  EpochSeen& seen = epochs_[place.epoch];
  const bool is_first = seen.joined.empty();
  if (is_first) seen.step = place.step;
  if (seen.step != place.step) {
    Break("epochs", absl::StrCat(life.worker, " begins epoch ", place.epoch.value(),
                                 " behind step ", place.step, ", another rank behind step ",
                                 seen.step));
  }
  seen.joined[life.worker] = life.incarnation;
  if (lines_.empty()) lines_.push_back({place.epoch});
  Line* line = LineOf(place.epoch);
  if (line == nullptr) line = &lines_.front();
  if (is_first) {
    std::int64_t last = 0;
    for (std::size_t step = 1; step < line->taken_in.size(); ++step) {
      if (line->taken_in[step] < place.epoch) last = static_cast<std::int64_t>(step);
    }
    if (place.step < last) {
      if (!MayBeLost(place.epoch, life.worker)) return;
      trace_.Say("steps 1 to ", last, " were lost; the job begins anew in epoch ",
                 place.epoch.value());
      if (place.step > 0) {
        return Break("one history", absl::StrCat(life.worker, " goes on behind step ", place.step,
                                                 " in epoch ", place.epoch.value(),
                                                 ", though the job came to step ", last));
      }
      lines_.push_back({place.epoch, {line->steps.front()}, {line->taken_in.front()}});
    }
  }
  Compare(life, place, /*exact=*/false);
  if (seen.joined.size() == seen.members.size()) whole_ = std::max(whole_, place.epoch);
}

void Checker::OnCommitted(const Life& life, const Place& place) {
  // Without replicas a step goes with a rank that is left behind, which may yet finish it.
  const bool went_on = std::ranges::any_of(epochs_, [&](const auto& each) {
    return each.first > place.epoch && !each.second.joined.empty() &&
           each.second.step < place.step;
  });
  if (went_on && replicas_ < 2) return;
  Compare(life, place, /*exact=*/true);
}

void Checker::Compare(const Life& life, const Place& place, bool exact) {
  Line* const line = LineOf(place.epoch);
  if (line == nullptr) return Break("one history", "an epoch of no history");
  if (line->steps.empty()) {
    line->steps.push_back(std::make_shared<SerialReference>(training_));
    line->taken_in.push_back(line->first);
  }
  const auto size = static_cast<std::int64_t>(line->steps.size());
  const std::string where = absl::StrCat(life.worker, " behind step ", place.step, " in epoch ",
                                         place.epoch.value());
  if (place.step > size) {
    return Break("one history", absl::StrCat(where, ": nobody has taken step ", size));
  }
  if (place.step == size) {
    // The newest first: a step is completed by the last who tried it.
    std::string difference = "nobody tried it";
    for (auto it = attempts_.rbegin(); it != attempts_.rend(); ++it) {
      const Attempt& attempt = it->second;
      if (attempt.step != place.step || attempt.epoch < line->first) continue;
      if (exact ? attempt.epoch != place.epoch : attempt.epoch > place.epoch) continue;
      std::unique_ptr<SerialReference> next = line->steps.back()->Next(attempt.world_size);
      difference = Difference(next->parameters(), place.parameters);
      if (next->samples() != place.samples) {
        difference = absl::StrCat(place.samples, " samples were committed, in the reference ",
                                  next->samples());
      }
      if (!difference.empty()) continue;
      line->steps.push_back(std::move(next));
      line->taken_in.push_back(attempt.epoch);
      return;
    }
    return Break("one history", absl::StrCat(where, ": ", difference));
  }
  const SerialReference& reference = *line->steps[place.step];
  std::string difference = Difference(reference.parameters(), place.parameters);
  if (reference.samples() != place.samples) {
    difference = absl::StrCat(place.samples, " samples were committed, in the reference ",
                              reference.samples());
  }
  if (!difference.empty()) return Break("one history", absl::StrCat(where, ": ", difference));
  const bool is_once = attempts_.contains({line->taken_in[place.step], place.step});
  if (exact && is_once && line->taken_in[place.step] > place.epoch) {
    Break("one history", absl::StrCat(where, ": the step was also taken in epoch ",
                                      line->taken_in[place.step].value()));
  }
}

void Checker::OnDataLoss(const Life& life) {
  Epoch epoch;
  for (const auto& [each, seen] : epochs_) {
    const auto heard = seen.heard.find(life.worker);
    if (heard != seen.heard.end() && heard->second == life.incarnation) epoch = each;
  }
  MayBeLost(epoch, life.worker);
}

std::int64_t Checker::last_step() const {
  return lines_.empty() || lines_.back().steps.empty()
             ? 0
             : static_cast<std::int64_t>(lines_.back().steps.size()) - 1;
}

std::int64_t Checker::epochs_begun() const {
  return std::ranges::count_if(epochs_, [](const auto& each) { return !each.second.joined.empty(); });
}

std::vector<Life> Checker::Holders() const {
  std::vector<Life> lives;
  const auto whole = epochs_.find(whole_);
  if (whole == epochs_.end()) return lives;
  for (const auto& [worker, incarnation] : whole->second.joined) {
    lives.push_back({worker, incarnation});
  }
  return lives;
}

}  // namespace lockstep::sim

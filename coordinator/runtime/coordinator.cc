#include "coordinator/runtime/coordinator.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/mailbox.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "coordinator/core/coordinator_fsm.h"
#include "coordinator/runtime/change_log.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxPendingItems = 100'000;
constexpr std::size_t kMaxStreams = 20'000;
constexpr std::size_t kMaxWatches = 10'000;
// Without a wake_at there is nothing to do before the next item.
constexpr absl::Duration kLongestWait = absl::Seconds(60);

absl::Status TooManyWatches() {
  return absl::ResourceExhaustedError(absl::StrCat(
      "the coordinator serves ", kMaxWatches, " watches, its limit; try again later"));
}

using Done = std::function<void(absl::StatusOr<Reply>)>;
using Look = std::function<void(const ClusterState*)>;

struct Submitted {
  Request request;
  Done done;
};
struct Looked {
  Look look;
};
struct Opened {
  StreamId stream;
  std::shared_ptr<AttendSink> sink;
};
struct Said {
  StreamId stream;
  WorkerMessage message;
};
struct Broke {
  StreamId stream;
};
// A message of this stream found the mailbox full.
struct Overflowed {
  StreamId stream;
};
struct WatchBegan {
  Coordinator::WatchId watch;
};
using Item = std::variant<Submitted, Looked, Opened, Said, Broke, Overflowed, WatchBegan>;

struct WatchEntry {
  std::string job;
  std::function<void(const JobState*)> changed;
  std::function<void(const absl::Status&)> ended;
};

}  // namespace

class Coordinator::Impl {
 public:
  Impl(std::unique_ptr<Store> store, const Clock* clock, CoordinatorFsm fsm)
      : store_(std::move(store)),
        clock_(clock),
        fsm_(std::move(fsm)),
        log_([](LogLevel level, const std::string& text, const LogFields& fields) {
          Log(level, text, fields);
        }),
        mailbox_(kMaxPendingItems) {}

  ~Impl() {
    Shutdown();
    if (thread_.joinable()) thread_.join();
  }

  // Makes the new generation durable before anyone can ask.
  absl::Status Begin() {
    const Effects effects = Collect(fsm_.Begin());
    LOCKSTEP_RETURN_IF_ERROR(Persist(std::span(&effects, 1)));
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  void Submit(Request request, Done done) {
    PostOr(Submitted{std::move(request), done}, [&](const absl::Status& why) { done(why); });
  }

  void Read(Look look) {
    // From a callback, as when a request that was done is answered with the job: it
    // must not be told to try again because the mailbox is full or just closed.
    if (std::this_thread::get_id() == owner_.load()) {
      look(health().ok() ? &fsm_.state() : nullptr);
      return;
    }
    PostOr(Looked{look}, [&](const absl::Status&) { look(nullptr); });
  }

  absl::StatusOr<StreamId> OpenStream(std::shared_ptr<AttendSink> sink) {
    const StreamId stream(next_stream_.fetch_add(1));
    if (!mailbox_.PostAboveLimit(Opened{stream, std::move(sink)}).ok()) return Stopped();
    return stream;
  }

  void PostMessage(StreamId stream, WorkerMessage message) {
    if (absl::IsResourceExhausted(mailbox_.Post(Said{stream, std::move(message)}))) {
      (void)mailbox_.PostAboveLimit(Overflowed{stream});
    }
  }

  void PostStreamBroke(StreamId stream) { (void)mailbox_.PostAboveLimit(Broke{stream}); }

  WatchId Watch(std::string job, std::function<void(const JobState*)> changed,
                std::function<void(const absl::Status&)> ended) {
    auto entry = std::make_shared<const WatchEntry>(
        WatchEntry{std::move(job), std::move(changed), std::move(ended)});
    WatchId watch;
    bool too_late = false, too_many = false;
    {
      MutexLock lock(&mu_);
      watch = next_watch_;
      next_watch_ = next_watch_.next();
      too_late = watches_ended_;
      too_many = watches_.size() >= kMaxWatches;
      if (!too_late && !too_many) watches_.emplace(watch, entry);
    }
    if (too_late || too_many) {
      if (entry->ended) entry->ended(too_late ? Stopped() : TooManyWatches());
    } else {
      (void)mailbox_.PostAboveLimit(WatchBegan{watch});
    }
    return watch;
  }

  void CloseWatch(WatchId watch) {
    // Declared first, so that what the callback holds is released without the lock.
    decltype(watches_)::node_type closed;
    MutexLock lock(&mu_);
    closed = watches_.extract(watch);
    // A callback that closes its own watch cannot wait for itself.
    if (std::this_thread::get_id() == owner_.load()) return;
    changed_.AwaitFor(&mu_, absl::InfiniteDuration(), [&] { return running_watch_ != watch; });
  }

  absl::Status health() const {
    MutexLock lock(&mu_);
    return health_;
  }

  void AwaitEnd() {
    MutexLock lock(&mu_);
    changed_.AwaitFor(&mu_, absl::InfiniteDuration(), [this] { return ended_; });
  }

  void Shutdown() {
    stopping_ = true;
    mailbox_.Close();
    if (thread_.joinable() && std::this_thread::get_id() != thread_.get_id()) AwaitEnd();
  }

 private:
  // What one turn of the loop gathered before anything of it became visible.
  struct Turn {
    std::vector<Event> events;
    std::vector<Effects> effects;
    std::vector<Look> looks;
    std::vector<WatchId> new_watches;
  };

  template <typename Refused>
  void PostOr(Item item, Refused refused) {
    const absl::Status posted = mailbox_.Post(std::move(item));
    if (posted.ok()) return;
    refused(absl::IsUnavailable(posted)
                ? Stopped()
                : absl::ResourceExhaustedError(absl::StrCat(
                      "the coordinator has ", kMaxPendingItems,
                      " requests and messages waiting, its limit; try again later")));
  }

  absl::Status Stopped() const {
    const absl::Status why = health();
    return absl::UnavailableError(
        why.ok() ? "the coordinator is stopping; try again when it is back"
                 : absl::StrCat("the coordinator has stopped: ", why.message()));
  }

  void Run() {
    owner_ = std::this_thread::get_id();
    while (Once()) {
    }
    End();
  }

  // One turn: step all that came, make it durable, then let it be seen.
  bool Once() {
    std::vector<Item> items = mailbox_.Drain(UntilWake());
    if (stopping_) {
      for (Item& item : items) Refuse(item);
      return false;
    }
    Turn turn;
    for (Item& item : items) {
      std::visit([&](auto& i) { On(i, turn); }, item);
    }
    const MonoTime now = clock_->Now();
    if (!turn.events.empty()) turn.effects.push_back(Collect(fsm_.Step(now, turn.events)));
    if (wake_at_.has_value() && *wake_at_ <= now) {
      turn.effects.push_back(Collect(fsm_.Step(now, Tick{})));
    }
    const absl::Status persisted = Persist(turn.effects);
    if (!persisted.ok()) {
      {
        MutexLock lock(&mu_);
        health_ = persisted;
      }
      LogError("stopping: ", persisted.message());
      mailbox_.Close();
      for (Look& look : turn.looks) look(nullptr);
      return false;
    }
    for (Effects& effects : turn.effects) Dispatch(std::move(effects));
    for (Look& look : turn.looks) look(&fsm_.state());
    for (WatchId watch : turn.new_watches) Notify(watch);
    NotifyChanged();
    return true;
  }

  absl::Duration UntilWake() const {
    if (!wake_at_.has_value()) return kLongestWait;
    return std::clamp(*wake_at_ - clock_->Now(), absl::ZeroDuration(), kLongestWait);
  }

  Effects Collect(Effects effects) {
    wake_at_ = effects.wake_at;
    return effects;
  }

  void On(Submitted& item, Turn& turn) {
    const RequestId id = next_request_;
    next_request_ = next_request_.next();
    pending_.emplace(id, std::move(item.done));
    turn.events.push_back(RequestReceived{id, clock_->WallNow(), std::move(item.request)});
  }
  void On(Looked& item, Turn& turn) { turn.looks.push_back(std::move(item.look)); }
  void On(Opened& item, Turn& turn) {
    if (streams_.size() >= kMaxStreams) {
      item.sink->End(absl::ResourceExhaustedError(
          absl::StrCat("the coordinator serves ", kMaxStreams, " workers, its limit")));
      return;
    }
    streams_.emplace(item.stream, std::move(item.sink));
  }
  void On(Said& item, Turn& turn) {
    if (streams_.contains(item.stream)) {
      turn.events.push_back(MessageReceived{item.stream, std::move(item.message)});
    }
  }
  void On(Broke& item, Turn& turn) {
    if (streams_.erase(item.stream) > 0) turn.events.push_back(StreamBroke{item.stream});
  }
  void On(Overflowed& item, Turn& turn) {
    const auto it = streams_.find(item.stream);
    if (it == streams_.end()) return;
    it->second->End(absl::ResourceExhaustedError(
        absl::StrCat("the coordinator has ", kMaxPendingItems,
                     " requests and messages waiting, its limit; attend again later")));
    streams_.erase(it);
    turn.events.push_back(StreamBroke{item.stream});
  }
  void On(WatchBegan& item, Turn& turn) { turn.new_watches.push_back(item.watch); }

  // On stopping, whoever asked still gets an answer.
  void Refuse(Item& item) {
    if (auto* submitted = std::get_if<Submitted>(&item)) {
      submitted->done(absl::CancelledError("the coordinator is stopping; nothing was changed"));
    } else if (auto* looked = std::get_if<Looked>(&item)) {
      looked->look(nullptr);
    } else if (auto* opened = std::get_if<Opened>(&item)) {
      opened->sink->End(Stopped());
    }
  }

  // One append for the whole turn: many requests cost one sync of the disk.
  absl::Status Persist(std::span<const Effects> turn) {
    std::vector<Record> records;
    for (const Effects& effects : turn) {
      records.insert(records.end(), effects.persist.begin(), effects.persist.end());
    }
    if (records.empty()) return absl::OkStatus();
    const absl::Status appended = store_->Append(records);
    if (!appended.ok()) {
      return absl::Status(appended.code(),
                          absl::StrCat("a decision could not be stored: ", appended.message()));
    }
    for (const Record& record : records) log_.OnRecord(record);
    return absl::OkStatus();
  }

  void Dispatch(Effects effects) {
    for (const Outgoing& out : effects.send) {
      const auto it = streams_.find(out.stream);
      if (it != streams_.end()) it->second->Send(out.message);
    }
    for (const EndStream& end : effects.end) {
      const auto it = streams_.find(end.stream);
      if (it == streams_.end()) continue;
      it->second->End(end.why);
      streams_.erase(it);
    }
    for (Answer& answer : effects.answers) {
      auto request = pending_.extract(answer.id);
      if (!request.empty()) request.mapped()(std::move(answer.reply));
    }
    changed_jobs_.insert(effects.changed_jobs.begin(), effects.changed_jobs.end());
    settled_jobs_.insert(effects.settled_jobs.begin(), effects.settled_jobs.end());
  }

  const JobState* Find(const std::string& job) const {
    const auto it = fsm_.state().jobs.find(job);
    return it == fsm_.state().jobs.end() ? nullptr : &it->second;
  }

  void NotifyChanged() {
    if (changed_jobs_.empty()) return;
    std::vector<WatchId> concerned;
    {
      MutexLock lock(&mu_);
      for (const auto& [watch, entry] : watches_) {
        if (changed_jobs_.contains(entry->job)) concerned.push_back(watch);
      }
    }
    for (WatchId watch : concerned) Notify(watch);
    for (const std::string& job : settled_jobs_) log_.OnJob(job, Find(job));
    changed_jobs_.clear();
    settled_jobs_.clear();
  }

  void Notify(WatchId watch) {
    CallWatch(watch, [this](const WatchEntry& entry) { entry.changed(Find(entry.job)); });
  }

  // The callback runs outside the lock; `running_watch_` keeps CloseWatch() waiting.
  template <typename Call>
  void CallWatch(WatchId watch, Call call) {
    std::shared_ptr<const WatchEntry> entry;
    {
      MutexLock lock(&mu_);
      const auto it = watches_.find(watch);
      if (it == watches_.end()) return;
      entry = it->second;
      running_watch_ = watch;
    }
    call(*entry);
    // What the callback holds is released before CloseWatch() returns.
    entry.reset();
    {
      MutexLock lock(&mu_);
      running_watch_ = WatchId();
    }
    changed_.SignalAll();
  }

  void EndWatches(const absl::Status& why) {
    std::vector<WatchId> open;
    {
      MutexLock lock(&mu_);
      watches_ended_ = true;
      for (const auto& [watch, entry] : watches_) open.push_back(watch);
    }
    for (WatchId watch : open) {
      CallWatch(watch, [&](const WatchEntry& entry) {
        if (entry.ended) entry.ended(why);
      });
    }
  }

  void End() {
    const absl::Status why = Stopped();
    for (auto& [stream, sink] : streams_) sink->End(why);
    streams_.clear();
    EndWatches(why);
    const absl::Status health_now = health();
    for (auto& [id, done] : pending_) {
      done(health_now.ok()
               ? absl::CancelledError("the coordinator is stopping")
               : absl::UnavailableError(absl::StrCat(
                     "the coordinator has stopped: ", health_now.message(),
                     "; look whether the change was made when it is back")));
    }
    pending_.clear();
    // Items that came between the last turn and the closing of the mailbox.
    for (Item& item : mailbox_.Drain(absl::ZeroDuration())) Refuse(item);
    {
      MutexLock lock(&mu_);
      ended_ = true;
    }
    changed_.SignalAll();
  }

  const std::unique_ptr<Store> store_;
  const Clock* const clock_;

  // The coordinator thread's own.
  CoordinatorFsm fsm_;
  ChangeLog log_;
  std::optional<MonoTime> wake_at_;
  RequestId next_request_{1};
  std::map<RequestId, Done> pending_;
  std::map<StreamId, std::shared_ptr<AttendSink>> streams_;
  std::set<std::string> changed_jobs_;
  std::set<std::string> settled_jobs_;

  Mailbox<Item> mailbox_;
  std::atomic<std::int64_t> next_stream_{1};
  std::atomic<bool> stopping_{false};
  std::atomic<std::thread::id> owner_{};  // the coordinator thread, once it runs

  mutable Mutex mu_;
  CondVar changed_;
  std::map<WatchId, std::shared_ptr<const WatchEntry>> watches_ ABSL_GUARDED_BY(mu_);
  WatchId next_watch_ ABSL_GUARDED_BY(mu_){1};
  WatchId running_watch_ ABSL_GUARDED_BY(mu_);
  bool watches_ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status health_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(std::unique_ptr<Store> store,
                                                                const Clock* clock) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Record> records, store->Load());
  LOCKSTEP_ASSIGN_OR_RETURN(CoordinatorFsm fsm, CoordinatorFsm::Recover(records, clock->Now()));
  auto impl = std::make_unique<Impl>(std::move(store), clock, std::move(fsm));
  LOCKSTEP_RETURN_IF_ERROR(impl->Begin());
  return std::unique_ptr<Coordinator>(new Coordinator(std::move(impl)));
}

Coordinator::Coordinator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Coordinator::~Coordinator() = default;

void Coordinator::Submit(Request request, std::function<void(absl::StatusOr<Reply>)> done) {
  impl_->Submit(std::move(request), std::move(done));
}
void Coordinator::Read(std::function<void(const ClusterState*)> look) {
  impl_->Read(std::move(look));
}
absl::StatusOr<StreamId> Coordinator::OpenStream(std::shared_ptr<AttendSink> sink) {
  return impl_->OpenStream(std::move(sink));
}
void Coordinator::PostMessage(StreamId stream, WorkerMessage message) {
  impl_->PostMessage(stream, std::move(message));
}
void Coordinator::PostStreamBroke(StreamId stream) { impl_->PostStreamBroke(stream); }
Coordinator::WatchId Coordinator::Watch(std::string job,
                                        std::function<void(const JobState*)> changed,
                                        std::function<void(const absl::Status&)> ended) {
  return impl_->Watch(std::move(job), std::move(changed), std::move(ended));
}
void Coordinator::CloseWatch(WatchId watch) { impl_->CloseWatch(watch); }
absl::Status Coordinator::health() const { return impl_->health(); }
void Coordinator::AwaitEnd() { impl_->AwaitEnd(); }
void Coordinator::Shutdown() { impl_->Shutdown(); }

}  // namespace lockstep

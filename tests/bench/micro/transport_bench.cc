// Operations of the transports, ranks as threads of this process. Beside them the
// copy of as many bytes by one thread, which bounds a copying broadcast.
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "common/base/check.h"
#include "worker/transport/gloo/gloo_transport.h"
#include "worker/transport/in_process/in_process_transport.h"
#include "worker/transport/shm/shm_transport.h"

namespace lockstep {
namespace {

// Ranks that wait for work: Run() has all of them do `body` once.
class Ranks {
 public:
  Ranks(TransportFactory& factory, int world_size)
      : begin_(world_size + 1), end_(world_size + 1), transports_(world_size) {
    std::promise<std::string> endpoint;
    const std::shared_future<std::string> published = endpoint.get_future().share();
    std::vector<std::string> members;
    for (int rank = 0; rank < world_size; ++rank) members.push_back(absl::StrCat("rank-", rank));
    for (int rank = 0; rank < world_size; ++rank) {
      threads_.emplace_back([&, rank, members, published] {
        const auto exchange = [&](const std::optional<std::string>& mine)
            -> absl::StatusOr<std::string> {
          if (mine) endpoint.set_value(*mine);
          return published.get();
        };
        auto made = factory.Create({.epoch = Epoch(1), .rank = rank, .members = members}, exchange);
        LOCKSTEP_CHECK(made.ok());
        transports_[rank] = *std::move(made);
        end_.arrive_and_wait();
        Serve(rank);
      });
    }
    end_.arrive_and_wait();
  }

  ~Ranks() {
    body_ = nullptr;
    begin_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }

  double Seconds(const std::function<void(Transport&)>& body) {
    body_ = body;
    const auto start = std::chrono::steady_clock::now();
    begin_.arrive_and_wait();
    end_.arrive_and_wait();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  void Serve(int rank) {
    while (true) {
      begin_.arrive_and_wait();
      if (body_ == nullptr) return;
      body_(*transports_[rank]);
      end_.arrive_and_wait();
    }
  }

  std::barrier<> begin_;
  std::barrier<> end_;
  std::function<void(Transport&)> body_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::thread> threads_;
};

std::unique_ptr<TransportFactory> MakeFactory(const std::string& name) {
  if (name == "shm") return std::make_unique<ShmFactory>();
  if (name == "gloo") return std::make_unique<GlooFactory>(GlooOptions{});
  return std::make_unique<InProcessFactory>();
}

// Each rank its own tensors: `count` of `bytes` each.
void Broadcast(benchmark::State& state, const std::string& transport, int count,
               std::int64_t bytes) {
  const auto world_size = static_cast<int>(state.range(0));
  const std::unique_ptr<TransportFactory> factory = MakeFactory(transport);
  Ranks ranks(*factory, world_size);
  std::vector<std::vector<std::byte>> memory(world_size, std::vector<std::byte>(count * bytes));
  std::vector<std::vector<TensorView>> views(world_size);
  for (int rank = 0; rank < world_size; ++rank) {
    for (int i = 0; i < count; ++i) {
      views[rank].push_back({{.name = absl::StrCat("t", i), .dtype = DType::kUint8, .shape = {bytes}},
                             memory[rank].data() + i * bytes});
    }
  }
  for (auto _ : state) {
    state.SetIterationTime(ranks.Seconds([&](Transport& rank) {
      LOCKSTEP_CHECK(rank.Broadcast(views[rank.rank()], 0).ok());
    }));
  }
  state.SetBytesProcessed(state.iterations() * count * bytes);
}

void Agree(benchmark::State& state, const std::string& transport) {
  const std::unique_ptr<TransportFactory> factory = MakeFactory(transport);
  Ranks ranks(*factory, static_cast<int>(state.range(0)));
  for (auto _ : state) {
    state.SetIterationTime(ranks.Seconds([](Transport& rank) {
      LOCKSTEP_CHECK(rank.Agree({.step = 1, .samples = 1}).ok());
    }));
  }
}

void Copy(benchmark::State& state) {
  const std::vector<std::byte> from(state.range(0));
  std::vector<std::byte> to(state.range(0));
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

constexpr std::int64_t kLarge = 64 << 20;
// About the buffers of a ResNet-50: 159 tensors, 213 KB.
constexpr int kBuffers = 159;
constexpr std::int64_t kBufferBytes = 1344;

void Ranges(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(2)->Arg(4)->UseManualTime()->Unit(benchmark::kMicrosecond)->ArgName("ranks");
}

BENCHMARK(Copy)->Arg(kLarge)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Broadcast, large_shm, "shm", 1, kLarge)->Apply(Ranges);
BENCHMARK_CAPTURE(Broadcast, large_gloo, "gloo", 1, kLarge)->Apply(Ranges);
BENCHMARK_CAPTURE(Broadcast, large_in_process, "in-process", 1, kLarge)->Apply(Ranges);
BENCHMARK_CAPTURE(Broadcast, buffers_shm, "shm", kBuffers, kBufferBytes)->Apply(Ranges);
BENCHMARK_CAPTURE(Broadcast, buffers_gloo, "gloo", kBuffers, kBufferBytes)->Apply(Ranges);
BENCHMARK_CAPTURE(Agree, shm, "shm")->Apply(Ranges);
BENCHMARK_CAPTURE(Agree, gloo, "gloo")->Apply(Ranges);

}  // namespace
}  // namespace lockstep

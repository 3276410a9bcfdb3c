// Saving a checkpoint, while the steps wait and behind them, and reading it back, against plain
// sequential I/O of the same bytes on the same disk in the same run.
// Usage: bench_checkpoint [MEGABYTES [DIRECTORY]]. Torch-free.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/files/posix_files.h"
#include "engine/checkpoint/background_save.h"
#include "engine/checkpoint/reader.h"
#include "engine/checkpoint/writer.h"
#include "engine/kernels/copy.h"

namespace {

using dsj::Status;

double seconds_of(const std::function<Status()>& action) {
  const auto start = std::chrono::steady_clock::now();
  const Status done = action();
  if (!done) {
    std::fprintf(stderr, "bench_checkpoint: %s\n", done.error().to_string().c_str());
    std::exit(1);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The shape of a transformer's shard: large matrices with small vectors between them.
struct Shard {
  std::vector<std::vector<float>> values;
  std::vector<dsj::checkpoint::Piece> pieces;
  dsj::checkpoint::Publication publication;
  int64_t bytes = 0;

  explicit Shard(int64_t bytes_wanted) {
    for (int layer = 0; bytes < bytes_wanted; ++layer) {
      for (const int64_t elements : {int64_t{4} << 20, int64_t{4096}}) {
        values.emplace_back(size_t(elements), float(layer));
        const std::string name = "p" + std::to_string(values.size());
        pieces.push_back({"master", name, 0, values.back(), true});
        publication.extents.push_back({"master", name, elements});
        bytes += elements * int64_t(sizeof(float));
      }
    }
    for (size_t i = 0; i < pieces.size(); ++i) pieces[i].data = values[i];
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int64_t bytes_wanted = (argc > 1 ? std::atoll(argv[1]) : 512) << 20;
  const std::string root =
      std::string(argc > 2 ? argv[2] : ".") + "/bench_checkpoint." + std::to_string(getpid());
  dsj::PosixFiles files;
  Shard shard(bytes_wanted);
  const dsj::checkpoint::WriteOptions options{.checkpoints_dir = root + "/checkpoints", .step = 1};

  const auto write_plain = [&]() -> Status {
    DSJ_TRY_STATUS(files.make_dirs(root));
    DSJ_TRY(const auto file, files.create_write(root + "/plain"));
    for (const auto& values : shard.values) {
      DSJ_TRY_STATUS(file->append(std::as_bytes(std::span(values))));
    }
    DSJ_TRY_STATUS(file->sync());
    return file->close();
  };
  const auto save = [&]() -> Status {
    DSJ_TRY_STATUS(dsj::checkpoint::write_rank(files, options, shard.pieces));
    DSJ_TRY_STATUS(dsj::checkpoint::publish(files, options, shard.publication));
    return {};
  };
  std::vector<float> copy(static_cast<size_t>(shard.bytes) / sizeof(float));
  const auto past_caches = [](std::span<float> to, std::span<const float> from) {
    dsj::kernels::copy_past_caches(to.data(), from.data(), int64_t(from.size()));
  };
  dsj::checkpoint::BackgroundSave behind(files, copy,
                                         {.waiting = past_caches, .beside = past_caches});
  // `forward`: what the step has to compute before its update.
  double hurried_s = 0, stall_s = 0;
  const auto save_behind = [&](int64_t step, std::chrono::milliseconds forward,
                               double& waited) -> Status {
    waited = seconds_of([&]() -> Status {
      behind.begin({.checkpoints_dir = root + "/behind", .step = step}, shard.publication,
                   [&](const dsj::checkpoint::EmitPiece& emit) -> Status {
                     for (const auto& piece : shard.pieces) DSJ_TRY_STATUS(emit(piece));
                     return {};
                   });
      return {};
    });
    std::this_thread::sleep_for(forward);
    waited += seconds_of([&]() -> Status {
      behind.settle();
      return {};
    });
    DSJ_TRY_STATUS(behind.finish([](const dsj::checkpoint::SaveVotes& mine) { return mine; }));
    return {};
  };
  const auto read_plain = [&]() -> Status {
    DSJ_TRY(const auto file, files.open_read(root + "/plain"));
    int64_t at = 0;
    for (auto& values : shard.values) {
      DSJ_TRY_STATUS(file->read(at, std::as_writable_bytes(std::span(values))));
      at += int64_t(values.size() * sizeof(float));
    }
    return {};
  };
  const auto load = [&]() -> Status {
    DSJ_TRY(auto reader, dsj::checkpoint::Reader::open(files, root + "/checkpoints/step-1"));
    for (size_t i = 0; i < shard.pieces.size(); ++i) {
      DSJ_TRY_STATUS(reader.read("master", shard.pieces[i].param, 0, shard.values[i]));
    }
    return {};
  };

  const double plain_write_s = seconds_of(write_plain), save_s = seconds_of(save);
  using std::chrono::milliseconds;
  const double behind_s = seconds_of([&] { return save_behind(1, milliseconds(0), hurried_s); });
  seconds_of([&] { return save_behind(2, milliseconds(200), stall_s); });
  const double plain_read_s = seconds_of(read_plain), load_s = seconds_of(load);
  const Status cleaned = files.remove_all(root);
  const double mb = double(shard.bytes) / 1e6;
  std::printf("save  %7.0f MB  %6.2f s  %6.0f MB/s   plain write+fsync %6.2f s   ratio %.2f\n", mb,
              save_s, mb / save_s, plain_write_s, save_s / plain_write_s);
  std::printf("behind %6.0f MB  %6.2f s  %6.0f MB/s   the steps wait  %6.3f s   of save's  %.3f\n",
              mb, behind_s, mb / behind_s, stall_s, stall_s / save_s);
  std::printf(
      "without a forward pass before the update      they wait  %6.3f s   of save's  %.3f\n",
      hurried_s, hurried_s / save_s);
  std::printf("load  %7.0f MB  %6.2f s  %6.0f MB/s   plain read (cached) %6.2f s  ratio %.2f\n", mb,
              load_s, mb / load_s, plain_read_s, load_s / plain_read_s);
  return cleaned ? 0 : 1;
}

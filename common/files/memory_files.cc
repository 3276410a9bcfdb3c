#include "common/files/memory_files.h"

#include <cstring>
#include <random>
#include <set>

#include "common/check.h"

namespace dsj {
namespace {

using Node = MemoryFiles::Node;
using Tree = MemoryFiles::Tree;
using Change = MemoryFiles::Change;

std::string clean(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

bool is_inside(const std::string& path, const std::string& directory) {
  return path.size() > directory.size() && path.starts_with(directory) &&
         (directory == "/" || path[directory.size()] == '/');
}

/// Removes an entry, with everything below it, from the tree.
Tree extract(Tree& tree, const std::string& path) {
  Tree taken;
  for (auto at = tree.lower_bound(path); at != tree.end();) {
    if (at->first != path && !at->first.starts_with(path)) break;
    if (at->first == path || is_inside(at->first, path)) {
      taken[at->first.substr(path.size())] = at->second;
      at = tree.erase(at);
    } else {
      ++at;
    }
  }
  return taken;
}

void insert(Tree& tree, const std::string& path, const Tree& entries) {
  for (const auto& [suffix, node] : entries) tree[path + suffix] = node;
}

void apply_change(Tree& tree, const Change& change) {
  switch (change.kind) {
    case Change::Kind::Put:
      tree[change.a] = change.node;
      return;
    case Change::Kind::Remove:
      extract(tree, change.a);
      return;
    case Change::Kind::Rename: {
      const Tree moved = extract(tree, change.a);
      extract(tree, change.b);
      insert(tree, change.b, moved);
      return;
    }
    case Change::Kind::Exchange: {
      const Tree a = extract(tree, change.a), b = extract(tree, change.b);
      insert(tree, change.a, b);
      insert(tree, change.b, a);
      return;
    }
  }
}

std::unexpected<Error> missing(const std::string& operation, const std::string& path) {
  return bad_input(operation + ": No such file or directory", path);
}
std::unexpected<Error> refused(const std::string& what, const std::string& path) {
  return fail(ErrorKind::Environment, what, path);
}

class MemoryReadFile final : public ReadFile {
 public:
  MemoryReadFile(std::shared_ptr<Node> node, std::shared_ptr<std::mutex> mutex, std::string path)
      : node_(std::move(node)),
        mutex_(std::move(mutex)),
        path_(std::move(path)),
        size_(int64_t(node_->data.size())) {}
  Status read(int64_t offset, std::span<std::byte> out) const override {
    const std::lock_guard lock(*mutex_);
    if (offset < 0 || offset + int64_t(out.size()) > int64_t(node_->data.size())) {
      return refused("the file ends after " + std::to_string(node_->data.size()) + " bytes, " +
                         std::to_string(offset + int64_t(out.size())) + " are needed",
                     path_);
    }
    if (!out.empty()) std::memcpy(out.data(), node_->data.data() + offset, out.size());
    return {};
  }
  int64_t size() const override { return size_; }

 private:
  std::shared_ptr<Node> node_;
  std::shared_ptr<std::mutex> mutex_;
  std::string path_;
  int64_t size_;
};

class MemoryWriteFile final : public WriteFile {
 public:
  MemoryWriteFile(std::shared_ptr<Node> node, std::shared_ptr<std::mutex> mutex)
      : node_(std::move(node)), mutex_(std::move(mutex)) {}
  Status append(std::span<const std::byte> bytes) override {
    const std::lock_guard lock(*mutex_);
    node_->data.insert(node_->data.end(), bytes.begin(), bytes.end());
    return {};
  }
  Status rewrite(int64_t offset, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(*mutex_);
    DSJ_CHECK(offset >= 0 && size_t(offset) + bytes.size() <= node_->data.size());
    if (!bytes.empty()) std::memcpy(node_->data.data() + offset, bytes.data(), bytes.size());
    return {};
  }
  Status sync() override {
    const std::lock_guard lock(*mutex_);
    node_->durable_bytes = node_->data.size();
    return {};
  }
  Status close() override { return {}; }

 private:
  std::shared_ptr<Node> node_;
  std::shared_ptr<std::mutex> mutex_;
};

}  // namespace

MemoryFiles::MemoryFiles() : mutex_(std::make_shared<std::mutex>()) {
  live_["/"] = live_["."] = std::make_shared<Node>(Node{.kind = EntryKind::Directory});
  durable_base_ = live_;
}

void MemoryFiles::change(Change change) {
  apply_change(live_, change);
  log_.push_back(std::move(change));
}

std::shared_ptr<Node> MemoryFiles::find(const std::string& path) const {
  const auto found = live_.find(path);
  return found == live_.end() ? nullptr : found->second;
}

bool MemoryFiles::is_empty_dir(const std::string& path) const {
  for (auto at = live_.upper_bound(path); at != live_.end() && at->first.starts_with(path); ++at) {
    if (is_inside(at->first, path)) return false;
  }
  return true;
}

Status MemoryFiles::need_parent(const std::string& path) const {
  const auto parent = find(path_parent(path));
  if (!parent || parent->kind != EntryKind::Directory) return missing("creating", path);
  return {};
}

MemoryFiles::Tree MemoryFiles::names_after_power_loss(uint64_t seed) const {
  std::mt19937_64 random(seed);
  const auto from_to = [&](size_t least, size_t most) {
    return least + size_t(random() % (most - least + 1));
  };
  const bool journal = random() % 2;
  const size_t kept = from_to(durable_changes_, log_.size());
  std::map<std::string, size_t> kept_in;
  const auto survives = [&](size_t index, const std::string& path) {
    const std::string directory = path_parent(path);
    if (!kept_in.contains(directory)) {
      const auto synced = durable_in_.find(directory);
      kept_in[directory] = from_to(synced == durable_in_.end() ? 0 : synced->second, log_.size());
    }
    return index < kept_in[directory];
  };
  Tree tree = durable_base_;
  for (size_t i = 0; i < log_.size(); ++i) {
    const Change& change = log_[i];
    if (journal ? i >= kept
                : !survives(i, change.a) || (!change.b.empty() && !survives(i, change.b))) {
      continue;
    }
    // Its directory may be lost. The order within a directory is kept, so a rename has its source.
    if (tree.contains(path_parent(change.a))) apply_change(tree, change);
  }
  return tree;
}

void MemoryFiles::power_loss(uint64_t seed) {
  const std::lock_guard lock(*mutex_);
  Tree tree = names_after_power_loss(seed);
  std::mt19937_64 random(~seed);
  const auto up_to = [&](size_t most) { return size_t(random() % (most + 1)); };
  std::set<Node*> seen;
  for (auto& [path, node] : tree) {
    if (node->kind != EntryKind::File || !seen.insert(node.get()).second) continue;
    const size_t survived = node->durable_bytes + up_to(node->data.size() - node->durable_bytes);
    if (random() % 2) {  // the length is durable, the content is not
      std::fill(node->data.begin() + ptrdiff_t(node->durable_bytes), node->data.end(), std::byte{});
    } else {
      node->data.resize(survived);
    }
    node->durable_bytes = node->data.size();
  }
  live_ = tree;
  durable_base_ = std::move(tree);
  log_.clear();
  durable_changes_ = 0;
  durable_in_.clear();
}

Result<std::unique_ptr<ReadFile>> MemoryFiles::open_read(const std::string& raw) {
  const std::lock_guard lock(*mutex_);
  const std::string path = clean(raw);
  const auto node = find(path);
  if (!node) return missing("opening for reading", path);
  if (node->kind == EntryKind::Directory) {
    return bad_input("is a directory, a file is expected", path);
  }
  return std::make_unique<MemoryReadFile>(node, mutex_, path);
}

Result<std::unique_ptr<WriteFile>> MemoryFiles::create_write(const std::string& raw) {
  const std::lock_guard lock(*mutex_);
  const std::string path = clean(raw);
  DSJ_TRY_STATUS(need_parent(path));
  if (const auto old = find(path); old && old->kind == EntryKind::Directory) {
    return refused("creating: Is a directory", path);
  }
  auto node = std::make_shared<Node>();
  change({Change::Kind::Put, path, "", node});
  return std::make_unique<MemoryWriteFile>(node, mutex_);
}

Status MemoryFiles::rename(const std::string& raw_from, const std::string& raw_to) {
  const std::lock_guard lock(*mutex_);
  const std::string from = clean(raw_from), to = clean(raw_to);
  const auto source = find(from), target = find(to);
  if (!source) return missing("renaming to " + to, from);
  DSJ_TRY_STATUS(need_parent(to));
  if (target && target->kind != source->kind) {
    return refused("renaming to " + to + ": one is a directory, the other is not", from);
  }
  if (target && target->kind == EntryKind::Directory && !is_empty_dir(to)) {
    return refused("renaming to " + to + ": Directory not empty", from);
  }
  if (from != to) change({Change::Kind::Rename, from, to, nullptr});
  return {};
}

Result<bool> MemoryFiles::exchange(const std::string& raw_a, const std::string& raw_b) {
  const std::lock_guard lock(*mutex_);
  const std::string a = clean(raw_a), b = clean(raw_b);
  if (!find(a) || !find(b)) return missing("swapping with " + b, a);
  change({Change::Kind::Exchange, a, b, nullptr});
  return true;
}

Status MemoryFiles::remove(const std::string& raw) {
  const std::lock_guard lock(*mutex_);
  const std::string path = clean(raw);
  const auto node = find(path);
  if (!node) return missing("removing", path);
  if (node->kind == EntryKind::Directory && !is_empty_dir(path)) {
    return refused("removing: Directory not empty", path);
  }
  change({Change::Kind::Remove, path, "", nullptr});
  return {};
}

Status MemoryFiles::make_dir(const std::string& raw) {
  const std::lock_guard lock(*mutex_);
  const std::string path = clean(raw);
  if (const auto node = find(path)) {
    if (node->kind == EntryKind::Directory) return {};
    return refused("creating the directory: File exists", path);
  }
  DSJ_TRY_STATUS(need_parent(path));
  change({Change::Kind::Put, path, "", std::make_shared<Node>(Node{.kind = EntryKind::Directory})});
  return {};
}

Result<std::vector<DirEntry>> MemoryFiles::list_dir(const std::string& raw) {
  const std::lock_guard lock(*mutex_);
  const std::string path = clean(raw);
  const auto node = find(path);
  if (!node || node->kind != EntryKind::Directory) return missing("listing", path);
  std::vector<DirEntry> entries;
  for (const auto& [name, child] : live_) {
    if (name != "." && name != "/" && path_parent(name) == path) {
      entries.push_back({name.substr(name.rfind('/') + 1), child->kind});
    }
  }
  return entries;
}

Result<EntryKind> MemoryFiles::kind(const std::string& raw) {
  const std::lock_guard lock(*mutex_);
  const auto node = find(clean(raw));
  return node ? node->kind : EntryKind::Absent;
}

Status MemoryFiles::sync_dir(const std::string& raw) {
  const std::lock_guard lock(*mutex_);
  const std::string path = clean(raw);
  if (!find(path)) return missing("opening the directory", path);
  durable_in_[path] = log_.size();
  for (size_t i = log_.size(); i > durable_changes_; --i) {
    const Change& change = log_[i - 1];
    if (path_parent(change.a) == path || (!change.b.empty() && path_parent(change.b) == path)) {
      durable_changes_ = i;
    }
  }
  return {};
}

}  // namespace dsj

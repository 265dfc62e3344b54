// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/catalog.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/dataset/class_numbers.h"
#include "server/dataset/image_folder.h"
#include "server/dataset/index_work.h"
#include "server/dataset/roots.h"
#include "server/dataset/snapshot_store.h"

namespace loaderd::dataset {
namespace {

constexpr std::chrono::milliseconds kProgressEvery{100};
constexpr size_t kMaxNamesTold = 20;
constexpr size_t kFingerprintDigits = 64;

using Lease = std::shared_ptr<const Dataset>;

// Makes sure of the dataset of one path. shared_ptr: its thread and those who wait hold it. `name`
// and what follows is guarded by Core's lock.
struct Opening {
  std::string key;
  IndexWork work;

  std::string name;
  int waiters = 0;
  bool done = false;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;
  Lease lease;  // null with kOk: there is no such snapshot
  std::thread thread;
};

// The path alone, where the rules are the default ones, so that all who read it so share one.
std::string KeyOf(const std::string& path, HiddenRule hidden) {
  return hidden == HiddenRule::kSkip ? path + std::string("\0skip", 5) : path;
}

// Snapshots stand beside the current dataset.
std::string KeyOfSnapshot(const std::string& key, const std::string& order) {
  return order.empty() ? key : key + std::string("\0order", 6) + order;
}

Status CheckFingerprint(const std::string& order) {
  const bool is_one = order.size() == kFingerprintDigits &&
                      std::all_of(order.begin(), order.end(), [](unsigned char c) {
                        return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
                      });
  if (order.empty() || is_one) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "expected_order_fingerprint: must be the ", kFingerprintDigits,
      " hexadecimal digits that the daemon gave, is \"", Printable(order.substr(0, 100)), "\""));
}

// The current dataset of a path.
struct Known {
  std::shared_ptr<const ImageFolder> folder;  // shared_ptr: with its lease and an Opening
  ImageFolder::State state;
  std::weak_ptr<const Dataset> lease;  // what the users hold
  std::string name;
  uint64_t idle_since = 0;  // 0: in use
};

// A dataset that is in use, while a newer index of its folder has taken its place.
struct Replaced {
  std::weak_ptr<const Dataset> lease;
  std::string name;
  std::string key;
  std::string order;
  const Roots* roots = nullptr;  // of the lease's folder
};

// shared_ptr (Catalog::Impl's), because leases may outlive the catalog: their weak_ptr finds it
// gone.
class Core : public std::enable_shared_from_this<Core> {
 public:
  explicit Core(Catalog::Options options);

  StatusOr<Lease> Open(const DatasetSpec& spec, std::stop_token stop,
                       const Catalog::Progress& progress, const std::string& expected_order);
  std::vector<Catalog::Entry> List() const;
  void Flush();
  void SetNamed(std::vector<std::pair<std::string, std::string>> named);
  void Stop();  // ends what nobody waits for, and joins all threads

 private:
  StatusOr<std::string> FolderOf(const DatasetSpec& spec) const;
  std::shared_ptr<const Roots> CurrentRoots();
  // As it was with that order; null where nobody keeps it.
  StatusOr<Lease> OpenAsItWas(const std::string& path, const DatasetSpec& spec,
                              const std::shared_ptr<const Roots>& roots, const std::string& order,
                              const std::stop_token& stop, const Catalog::Progress& progress);
  Lease InMemory(const std::string& key, const std::string& order, const Roots* roots)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status OtherOrder(const Dataset& dataset, const std::string& expected_order) const;
  std::shared_ptr<Opening> Join(const std::string& path, const DatasetSpec& spec,
                                std::shared_ptr<const Roots> roots, const std::string& order);
  StatusOr<Lease> Await(Opening& opening, const std::stop_token& stop,
                        const Catalog::Progress& progress);
  void Abandon(Opening& opening) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(const std::shared_ptr<Opening>& opening);
  void Finish(Opening& opening, StatusOr<ImageFolder::Indexed> indexed);
  Lease MakeLease(Known& known, const std::string& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Returned(const Dataset* dataset, const std::string& key);
  // Those over the number that is kept, for the caller to destroy when it has let the lock go.
  std::vector<Known> TakeSurplus() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void JoinEnded();

  const Catalog::Options options_;
  std::unique_ptr<SnapshotStore> store_;  // null: none are kept; reset by Stop
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::pair<std::string, std::string>> named_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Roots> roots_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Known> known_
      ABSL_GUARDED_BY(mutex_);  // by KeyOf canonical path
  std::vector<Replaced> replaced_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::shared_ptr<Opening>> openings_ ABSL_GUARDED_BY(mutex_);
  uint64_t ticks_ ABSL_GUARDED_BY(mutex_) = 0;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> ended_ ABSL_GUARDED_BY(mutex_);
};

Core::Core(Catalog::Options options)
    : options_(std::move(options)),
      named_(options_.named),
      roots_(options_.restrict_to_roots ? Roots::Only(options_.roots, options_.roots_field)
                                        : Roots::Unrestricted()) {
  if (options_.state_dir.empty()) return;
  store_ = std::make_unique<SnapshotStore>(SnapshotStore::Options{
      .state_dir = options_.state_dir, .max_bytes = options_.snapshot_bytes});
}

StatusOr<std::string> Core::FolderOf(const DatasetSpec& spec) const {
  if (spec.name.empty()) return spec.image_folder;
  MutexLock lock(mutex_);
  std::string names;
  size_t told = 0;
  for (const auto& [name, folder] : named_) {
    if (name == spec.name) return folder;
    if (told++ < kMaxNamesTold) absl::StrAppend(&names, names.empty() ? "" : ", ", Printable(name));
  }
  return absl::NotFoundError(absl::StrCat(
      "dataset.name: the daemon's configuration defines no dataset \"", Printable(spec.name),
      "\"; it defines ", names.empty() ? "none" : names, told > kMaxNamesTold ? ", ..." : ""));
}

std::shared_ptr<const Roots> Core::CurrentRoots() {
  std::shared_ptr<const Roots> roots;
  {
    MutexLock lock(mutex_);
    roots = roots_;
  }
  if (roots->Current()) return roots;
  // A folder was mounted, or replaced.
  roots = Roots::Only(options_.roots, options_.roots_field);
  MutexLock lock(mutex_);
  roots_ = roots;
  return roots;
}

StatusOr<Lease> Core::Open(const DatasetSpec& spec, std::stop_token stop,
                           const Catalog::Progress& progress, const std::string& expected_order) {
  JoinEnded();
  RETURN_IF_ERROR(CheckFingerprint(expected_order));
  ASSIGN_OR_RETURN(const std::string folder, FolderOf(spec));
  if (folder.empty() || folder[0] != '/') {
    return absl::InvalidArgumentError(absl::StrCat(
        "dataset.image_folder.path: must be absolute, is \"", Printable(folder), "\""));
  }
  const std::shared_ptr<const Roots> roots = CurrentRoots();
  StatusOr<std::string> path = roots->Canonical(folder);
  if (!path.ok()) {
    if (absl::IsFailedPrecondition(path.status()))
      return absl::InvalidArgumentError(path.status().message());
    return std::move(path).status();
  }
  Lease lease;
  if (!expected_order.empty()) {
    ASSIGN_OR_RETURN(lease, OpenAsItWas(*path, spec, roots, expected_order, stop, progress));
  }
  if (lease == nullptr) {
    const std::shared_ptr<Opening> opening = Join(*path, spec, roots, "");
    ASSIGN_OR_RETURN(lease, Await(*opening, stop, progress));
    if (!expected_order.empty() && lease->order_fingerprint() != expected_order) {
      return OtherOrder(*lease, expected_order);
    }
  }
  return WithClassNumbers(std::move(lease), spec.class_to_idx);
}

StatusOr<Lease> Core::OpenAsItWas(const std::string& path, const DatasetSpec& spec,
                                  const std::shared_ptr<const Roots>& roots,
                                  const std::string& order, const std::stop_token& stop,
                                  const Catalog::Progress& progress) {
  {
    MutexLock lock(mutex_);
    if (Lease lease = InMemory(KeyOf(path, spec.hidden), order, roots.get())) return lease;
  }
  const std::shared_ptr<Opening> opening = Join(path, spec, roots, order);
  return Await(*opening, stop, progress);
}

Lease Core::InMemory(const std::string& key, const std::string& order, const Roots* roots) {
  for (const std::string& each : {key, KeyOfSnapshot(key, order)}) {
    const auto it = known_.find(each);
    if (it != known_.end() && it->second.folder->order_fingerprint() == order &&
        it->second.folder->roots() == roots) {
      return MakeLease(it->second, each);
    }
  }
  for (const Replaced& replaced : replaced_) {
    if (replaced.key != key || replaced.order != order || replaced.roots != roots) continue;
    if (Lease lease = replaced.lease.lock()) return lease;  // never to be dropped under the lock
  }
  return nullptr;
}

Status Core::OtherOrder(const Dataset& dataset, const std::string& expected_order) const {
  return absl::FailedPreconditionError(absl::StrCat(
      dataset.path(), ": has the order fingerprint ", dataset.order_fingerprint(),
      ", and this job began with ", expected_order,
      store_ == nullptr
          ? ", of which this daemon keeps no snapshot: it has no state directory (state_dir)"
          : absl::StrCat(", of which there is no snapshot any more in ",
                         Printable(options_.state_dir)),
      "; files or classes were added, removed or renamed since: put the names back as they were, "
      "or begin the job anew"));
}

// The Opening that is under way, or a new one; the caller is one of those who wait for it.
std::shared_ptr<Opening> Core::Join(const std::string& path, const DatasetSpec& spec,
                                    std::shared_ptr<const Roots> roots, const std::string& order) {
  const std::string& name = spec.name;
  const std::string key = KeyOfSnapshot(KeyOf(path, spec.hidden), order);
  auto opening = std::make_shared<Opening>();
  {
    MutexLock lock(mutex_);
    if (const auto it = openings_.find(key); it != openings_.end()) {
      ++it->second->waiters;
      if (!name.empty()) it->second->name = name;
      return it->second;
    }
    opening->work.path = path;
    opening->key = key;
    opening->work.hidden = spec.hidden;
    opening->work.order = order;
    opening->name = name;
    opening->work.roots = std::move(roots);
    opening->waiters = 1;
    if (const auto it = known_.find(key); it != known_.end()) {
      opening->work.known = it->second.folder;
      opening->work.known_state = it->second.state;
    }
    openings_[key] = opening;
    ++running_;
    try {
      opening->thread = std::thread([this, opening] { Run(opening); });
      return opening;
    } catch (const std::system_error&) {
      // No thread to be had: the caller's does it, though its `stop` is then not heard.
    }
  }
  Run(opening);
  return opening;
}

StatusOr<Lease> Core::Await(Opening& opening, const std::stop_token& stop,
                            const Catalog::Progress& progress) {
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(mutex_);
    changed_.NotifyAll();
  });
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!opening.done && !stop.stop_requested()) changed_.WaitFor(mutex_, kProgressEvery);
      const bool last = opening.waiters == 1;
      if (opening.done) {
        --opening.waiters;
        if (opening.code != absl::StatusCode::kOk) return Status(opening.code, opening.message);
        return last ? std::exchange(opening.lease, nullptr) : opening.lease;
      }
      if (stop.stop_requested()) {
        if (--opening.waiters == 0) Abandon(opening);
        return absl::CancelledError(
            absl::StrCat(Printable(opening.work.path), ": opening was cancelled"));
      }
    }
    if (progress) progress(opening.work.found);
  }
}

void Core::Abandon(Opening& opening) {
  opening.work.stop.request_stop();
  openings_.erase(opening.key);  // who comes now begins anew
}

// One Opening's thread.
void Core::Run(const std::shared_ptr<Opening>& opening) {
  const IndexLimits limits = {.max_sample_bytes = options_.max_sample_bytes,
                              .index_threads = options_.index_threads};
  Finish(*opening, MakeIndex(opening->work, limits, store_.get()));
}

void Core::Finish(Opening& opening, StatusOr<ImageFolder::Indexed> indexed) {
  std::optional<Known> dropped;  // destroyed when the lock has been let go
  MutexLock lock(mutex_);
  --running_;
  opening.done = true;
  if (opening.thread.joinable()) ended_.push_back(std::move(opening.thread));
  changed_.NotifyAll();
  if (opening.work.stop.stop_requested()) {
    opening.code = absl::StatusCode::kCancelled;
    opening.message = absl::StrCat(Printable(opening.work.path), ": indexing was cancelled");
    return;
  }
  openings_.erase(opening.key);
  if (!indexed.ok()) {
    opening.code = indexed.status().code();
    opening.message = std::string(indexed.status().message());
    return;
  }
  if (indexed->folder == nullptr && !opening.work.order.empty()) return;  // no such snapshot
  Known& known = known_[opening.key];
  if (indexed->folder == nullptr) {
    if (known.folder == nullptr) {  // let go while it was looked at
      known.folder = opening.work.known;
      known.state = opening.work.known_state;
    }
  } else if (known.folder != nullptr && known.folder->Same(*indexed->folder)) {
    known.state = std::move(indexed->state);
  } else {
    if (!known.lease.expired()) {
      replaced_.push_back({.lease = known.lease,
                           .name = known.name,
                           .key = opening.key,
                           .order = known.folder->order_fingerprint(),
                           .roots = known.folder->roots()});
    }
    dropped = std::exchange(known, Known{});
    known.folder = std::move(indexed->folder);
    known.state = std::move(indexed->state);
  }
  if (!opening.name.empty()) known.name = opening.name;
  if (store_ != nullptr) {
    store_->Keep({opening.work.path, opening.work.hidden}, {known.folder, &known.folder->index()});
  }
  opening.lease = MakeLease(known, opening.key);
}

Lease Core::MakeLease(Known& known, const std::string& key) {
  if (Lease lease = known.lease.lock()) return lease;
  known.idle_since = 0;
  // The control block lives on in `known.lease`, and this deleter in it: it lets the folder go
  // itself.
  auto back = [core = weak_from_this(), folder = known.folder,
               key](const Dataset* dataset) mutable {
    if (const auto alive = core.lock()) alive->Returned(dataset, key);
    folder.reset();
  };
  Lease lease(known.folder.get(), std::move(back));
  known.lease = lease;
  return lease;
}

// The last user has let `dataset` go.
void Core::Returned(const Dataset* dataset, const std::string& key) {
  std::vector<Known> surplus;  // destroyed when the lock has been let go
  MutexLock lock(mutex_);
  std::erase_if(replaced_, [](const Replaced& replaced) { return replaced.lease.expired(); });
  const auto it = known_.find(key);
  // Another user may have come since, or a newer index.
  if (it == known_.end() || it->second.folder.get() != dataset || !it->second.lease.expired())
    return;
  it->second.idle_since = ++ticks_;
  surplus = TakeSurplus();
}

std::vector<Known> Core::TakeSurplus() {
  std::vector<std::pair<uint64_t, std::string>> idle;
  for (const auto& [path, known] : known_) {
    if (known.idle_since != 0) idle.emplace_back(known.idle_since, path);
  }
  std::sort(idle.begin(), idle.end());
  std::vector<Known> surplus;
  const auto kept = static_cast<size_t>(std::max(options_.idle_kept, 0));
  for (size_t i = 0; i + kept < idle.size(); ++i) {
    const auto it = known_.find(idle[i].second);
    surplus.push_back(std::move(it->second));
    known_.erase(it);
  }
  return surplus;
}

std::vector<Catalog::Entry> Core::List() const {
  std::vector<Catalog::Entry> entries;
  const auto add = [&](const std::weak_ptr<const Dataset>& lease, const std::string& name,
                       Lease idle) {
    const auto users = static_cast<uint32_t>(lease.use_count());
    Lease dataset = lease.lock();
    if (dataset == nullptr) dataset = std::move(idle);
    if (dataset != nullptr) entries.push_back({std::move(dataset), users, name});
  };
  {
    MutexLock lock(mutex_);
    for (const auto& [path, known] : known_) add(known.lease, known.name, known.folder);
    for (const Replaced& replaced : replaced_) add(replaced.lease, replaced.name, nullptr);
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Catalog::Entry& a, const Catalog::Entry& b) {
                     return a.dataset->path() < b.dataset->path();
                   });
  return entries;
}

void Core::SetNamed(std::vector<std::pair<std::string, std::string>> named) {
  MutexLock lock(mutex_);
  named_ = std::move(named);
}

void Core::Stop() {
  {
    MutexLock lock(mutex_);
    for (const auto& [path, opening] : openings_) opening->work.stop.request_stop();
    while (running_ > 0) changed_.Wait(mutex_);
  }
  JoinEnded();
  store_.reset();  // what waits to be written is written first
}

void Core::Flush() {
  if (store_ != nullptr) store_->Flush();
}

void Core::JoinEnded() {
  std::vector<std::thread> ended;
  {
    MutexLock lock(mutex_);
    ended.swap(ended_);
  }
  for (std::thread& thread : ended) thread.join();
}

}  // namespace

struct Catalog::Impl {
  std::shared_ptr<Core> core;
};

Catalog::Catalog(Options options) : impl_(new Impl{std::make_shared<Core>(std::move(options))}) {}

Catalog::~Catalog() { impl_->core->Stop(); }

StatusOr<std::shared_ptr<const Dataset>> Catalog::Open(const DatasetSpec& spec,
                                                       std::stop_token stop,
                                                       const Progress& progress,
                                                       const std::string& expected_order) {
  return impl_->core->Open(spec, std::move(stop), progress, expected_order);
}

std::vector<Catalog::Entry> Catalog::List() const { return impl_->core->List(); }

void Catalog::Flush() { impl_->core->Flush(); }

void Catalog::SetNamed(std::vector<std::pair<std::string, std::string>> named) {
  impl_->core->SetNamed(std::move(named));
}

}  // namespace loaderd::dataset

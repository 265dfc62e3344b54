// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/config.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "loaderd/config/v1/config.pb.h"
#include "server/base/unique_fd.h"
#include "server/daemon/config_text.h"

namespace loaderd::daemon {
namespace {

using config::v1::DaemonConfig;
using google::protobuf::TextFormat;

constexpr size_t kMostFileBytes = 1 << 20;

StatusOr<std::string> ReadFile(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.ok()) return ErrnoStatus(errno, absl::StrCat("open ", Printable(path)));
  std::string text(kMostFileBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, absl::StrCat("read ", Printable(path)));
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > kMostFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat("longer than ", kMostFileBytes, " bytes"));
  }
  text.resize(size);
  return text;
}

// One file's message with the places of its fields.
class Reader {
 public:
  Reader(std::string file, std::vector<ConfigError>* errors)
      : file_(std::move(file)), errors_(errors) {
    const StatusOr<std::string> text = ReadFile(file_);
    if (!text.ok()) {
      errors_->push_back({file_, 0, "", std::string(text.status().message())});
      return;
    }
    tree_ = ParseText(file_, *text, &message_, errors_);
  }

  bool ok() const { return tree_ != nullptr; }

  const DaemonConfig& message() const { return message_; }

  // `path` is made of field names, each with an index for a repeated field, e.g. {{"dataset", 2},
  // {"name", -1}}.
  using Path = std::vector<std::pair<std::string, int>>;
  void Error(const Path& path, std::string message) const {
    errors_->push_back({file_, Line(path), Text(path), std::move(message)});
  }
  std::string Place(const Path& path) const {
    return absl::StrCat(Printable(file_), ":", Line(path));
  }

 private:
  static std::string Text(const Path& path) {
    return absl::StrJoin(path, ".", [](std::string* out, const std::pair<std::string, int>& part) {
      absl::StrAppend(out, part.first);
      if (part.second >= 0) absl::StrAppend(out, "[", part.second, "]");
    });
  }
  int Line(const Path& path) const {
    const TextFormat::ParseInfoTree* tree = tree_.get();
    const google::protobuf::Descriptor* type = DaemonConfig::descriptor();
    int line = -1;
    for (const auto& [name, index] : path) {
      const google::protobuf::FieldDescriptor* field = type->FindFieldByName(name);
      const TextFormat::ParseLocation location = tree->GetLocation(field, index);
      if (location.line < 0) break;  // a default: the message around it is the place
      line = location.line;
      if (field->message_type() == nullptr) break;
      tree = tree->GetTreeForNested(field, index);
      type = field->message_type();
      if (tree == nullptr) break;
    }
    return line + 1;
  }

  const std::string file_;
  std::vector<ConfigError>* const errors_;
  DaemonConfig message_;
  std::unique_ptr<const TextFormat::ParseInfoTree> tree_;
};

bool IsDatasetName(const std::string& name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

// Says what is wrong with a folder's path, or nothing. Whether it exists is not asked: it may be
// mounted later.
std::string PathFault(const std::string& path) {
  if (path.empty()) return "is missing";
  if (path[0] != '/')
    return absl::StrCat("'", Printable(path), "' must be an absolute path (begin with '/')");
  if (path.find('\0') != std::string::npos) return "has a NUL byte";
  return "";
}

class Checker {
 public:
  explicit Checker(const ConfigSource& source) : source_(source) {
    config_.socket_mode = source.user_mode ? 0600 : 0660;
  }

  void Main(const Reader& reader) {
    if (!reader.ok()) return;
    const DaemonConfig& message = reader.message();
    Listen(reader);
    FleetAndLimits(reader);
    for (int i = 0; i < message.dataset_root_size(); ++i) {
      const std::string fault = PathFault(message.dataset_root(i));
      if (!fault.empty()) reader.Error({{"dataset_root", i}}, fault);
      config_.dataset_roots.push_back(message.dataset_root(i));
    }
    Datasets(reader);
    if (message.has_stop_deadline_s()) {
      config_.stop_deadline_s =
          InRange(reader, {{"stop_deadline_s", -1}}, message.stop_deadline_s(), 1u, 3600u);
    }
    if (!message.state_dir().empty()) {
      const std::string fault = PathFault(message.state_dir());
      if (!fault.empty()) reader.Error({{"state_dir", -1}}, fault);
      config_.state_dir = message.state_dir();
    }
    if (message.snapshot_bytes() != 0) {
      config_.snapshot_bytes = InRange<uint64_t>(reader, {{"snapshot_bytes", -1}},
                                                 message.snapshot_bytes(), 1 << 20, 1ull << 50);
    }
    if (!config::v1::LogLevel_IsValid(message.log_level())) {
      reader.Error({{"log_level", -1}}, absl::StrCat(message.log_level(), " is no log level"));
    }
    switch (message.log_level()) {
      case config::v1::LOG_LEVEL_DEBUG: config_.log_level = LogLevel::kDebug; break;
      case config::v1::LOG_LEVEL_WARNING: config_.log_level = LogLevel::kWarning; break;
      case config::v1::LOG_LEVEL_ERROR: config_.log_level = LogLevel::kError; break;
      default: config_.log_level = LogLevel::kInfo;
    }
  }

  void DatasetsOnly(const Reader& reader) {
    if (!reader.ok()) return;
    std::vector<const google::protobuf::FieldDescriptor*> fields;
    reader.message().GetReflection()->ListFields(reader.message(), &fields);
    for (const auto* field : fields) {
      if (field->name() == "dataset") continue;
      reader.Error({{field->name(), field->is_repeated() ? 0 : -1}},
                   "a file in datasets.d may hold only `dataset`");
    }
    Datasets(reader);
  }

  Config& config() { return config_; }

 private:
  template <typename T>
  T InRange(const Reader& reader, const Reader::Path& path, T value, T least, T most) {
    if (value < least || value > most) {
      reader.Error(path, absl::StrCat(value, " is out of range: ", least, " to ", most));
    }
    return value;
  }

  void Listen(const Reader& reader) {
    const auto& listen = reader.message().listen();
    if (!listen.socket().empty()) {
      const StatusOr<SocketPaths> paths = PathsFor(listen.socket());
      if (!paths.ok()) {
        reader.Error({{"listen", -1}, {"socket", -1}}, std::string(paths.status().message()));
      } else if (source_.socket.empty()) {
        config_.paths = *paths;
      }
    }
    if (listen.has_mode()) {
      // Write is the right to connect; a socket that its own user cannot reach serves nobody.
      if (listen.mode() > 0777 || (listen.mode() & 0600) != 0600) {
        reader.Error({{"listen", -1}, {"mode", -1}},
                     absl::StrFormat("0%o (decimal %u) is no mode for a socket: write it in octal "
                                     "with a leading 0, from 0600 to 0777",
                                     listen.mode(), listen.mode()));
      }
      config_.socket_mode = listen.mode();
    }
    if (!listen.group().empty()) Group(reader, listen.group());
  }

  void Group(const Reader& reader, const std::string& name) {
    gid_t number;
    if (absl::SimpleAtoi(name, &number)) {
      config_.socket_group = number;
      return;
    }
    std::vector<char> room(1 << 16);
    group entry;
    group* found = nullptr;
    const int error = ::getgrnam_r(name.c_str(), &entry, room.data(), room.size(), &found);
    if (found == nullptr) {
      reader.Error({{"listen", -1}, {"group", -1}},
                   absl::StrCat("no group '", Printable(name), "' on this machine",
                                error == 0 ? "; make it with `groupadd --system`"
                                           : absl::StrCat(" (errno ", error, ")")));
      return;
    }
    config_.socket_group = found->gr_gid;
  }

  void FleetAndLimits(const Reader& reader) {
    const auto& fleet = reader.message().fleet();
    const auto& limits = reader.message().limits();
    const auto set = [&](const char* group, const char* field, auto value, auto& target, auto least,
                         auto most) {
      using T = std::decay_t<decltype(target)>;
      if (value == 0) return;  // the default
      target = InRange<T>(reader, {{group, -1}, {field, -1}}, value, static_cast<T>(least),
                          static_cast<T>(most));
    };
    set("fleet", "threads", fleet.threads(), config_.fleet_threads, 1, 1024);
    set("fleet", "reader_threads", fleet.reader_threads(), config_.reader_threads, 1, 1024);
    set("limits", "max_sessions", limits.max_sessions(), config_.max_sessions, 1, 1000000);
    set("limits", "max_sessions_per_uid", limits.max_sessions_per_uid(),
        config_.max_sessions_per_uid, 1, 1000000);
    set("limits", "slot_bytes", limits.slot_bytes(), config_.slot_bytes, 1u << 20, 1ull << 50);
    set("limits", "slot_bytes_per_uid", limits.slot_bytes_per_uid(), config_.slot_bytes_per_uid,
        1u << 20, 1ull << 50);
    if (limits.has_prefaulted_bytes()) {
      config_.prefaulted_bytes =
          InRange<uint64_t>(reader, {{"limits", -1}, {"prefaulted_bytes", -1}},
                            limits.prefaulted_bytes(), 0, uint64_t{1} << 30);
    }
    set("limits", "max_connections", limits.max_connections(), config_.max_connections, 1, 1000000);
    set("limits", "descriptor_reserve", limits.descriptor_reserve(), config_.descriptor_reserve, 1,
        1000000);
    set("limits", "max_pixels", limits.max_pixels(), config_.max_pixels, 1, 65535ull * 65535);
    set("limits", "max_decode_ms", limits.max_decode_ms(), config_.max_decode_ms, 1, 3600000);
    set("limits", "max_sample_bytes", limits.max_sample_bytes(), config_.max_sample_bytes, 1,
        1ull << 40);
    set("limits", "max_storage_failures", limits.max_storage_failures(),
        config_.max_storage_failures, 1, 1000000000);
    set("limits", "max_reads_in_flight", limits.max_reads_in_flight(), config_.max_reads_in_flight,
        1, 1000000);
    if (config_.max_sessions_per_uid > config_.max_sessions) {
      reader.Error(
          {{"limits", -1}, {"max_sessions_per_uid", -1}},
          absl::StrCat(config_.max_sessions_per_uid, " is more than limits.max_sessions, which is ",
                       config_.max_sessions));
    }
    if (config_.slot_bytes != 0 && config_.slot_bytes_per_uid > config_.slot_bytes) {
      reader.Error({{"limits", -1}, {"slot_bytes_per_uid", -1}},
                   absl::StrCat(config_.slot_bytes_per_uid,
                                " is more than limits.slot_bytes, which is ", config_.slot_bytes));
    }
  }

  void Datasets(const Reader& reader) {
    for (int i = 0; i < reader.message().dataset_size(); ++i) {
      const auto& dataset = reader.message().dataset(i);
      const Reader::Path name_path = {{"dataset", i}, {"name", -1}};
      if (!IsDatasetName(dataset.name())) {
        reader.Error(name_path, absl::StrCat("'", Printable(dataset.name()),
                                             "' is no name: 1 to 64 of A-Z a-z 0-9 . _ -"));
      } else if (const auto [first, added] =
                     places_.try_emplace(dataset.name(), reader.Place(name_path));
                 !added) {
        reader.Error(name_path,
                     absl::StrCat("'", dataset.name(), "' is defined already at ", first->second));
      }
      const std::string fault = PathFault(dataset.image_folder());
      if (!fault.empty()) reader.Error({{"dataset", i}, {"image_folder", -1}}, fault);
      config_.datasets.emplace_back(dataset.name(), dataset.image_folder());
    }
  }

  const ConfigSource& source_;
  Config config_;
  std::map<std::string, std::string> places_;
};

// datasets.d/*.txtpb beside `file`, in the order of their names. A missing folder holds none.
std::vector<std::string> DatasetFiles(const std::string& file, std::vector<ConfigError>* errors) {
  const size_t slash = file.rfind('/');
  const std::string folder =
      absl::StrCat(slash == std::string::npos ? "." : file.substr(0, slash), "/datasets.d");
  std::vector<std::string> files;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), &::closedir);
  if (entries == nullptr) {
    if (errno != ENOENT)
      errors->push_back({folder, 0, "", std::string(ErrnoStatus(errno, "open").message())});
    return files;
  }
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string name = entry->d_name;
    if (name[0] != '.' && absl::EndsWith(name, ".txtpb"))
      files.push_back(absl::StrCat(folder, "/", name));
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

StatusOr<Config> LoadConfig(const ConfigSource& source) {
  std::vector<ConfigError> errors;
  Checker checker(source);
  const std::string& socket = source.socket.empty() ? source.default_socket : source.socket;
  const StatusOr<SocketPaths> paths = PathsFor(socket);
  if (paths.ok()) {
    checker.config().paths = *paths;
  } else {
    errors.push_back({source.socket.empty() ? "the default socket" : "--socket", 0, "",
                      std::string(paths.status().message())});
  }
  if (!source.file.empty()) {
    checker.Main(Reader(source.file, &errors));
    if (!source.user_mode) {
      for (const std::string& file : DatasetFiles(source.file, &errors))
        checker.DatasetsOnly(Reader(file, &errors));
    }
  }
  if (errors.empty()) return std::move(checker.config());
  return absl::InvalidArgumentError(absl::StrJoin(
      errors, "\n",
      [](std::string* out, const ConfigError& error) { absl::StrAppend(out, error.ToString()); }));
}

}  // namespace loaderd::daemon

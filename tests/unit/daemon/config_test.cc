// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace loaderd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "config-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(folder_, "/", name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
    return path;
  }
  StatusOr<Config> Load(const std::string& text, bool user_mode = false) {
    file_ = Write("loaderd.txtpb", text);
    return LoadConfig({.user_mode = user_mode, .file = file_});
  }
  // The lines of the message, with the folder taken out.
  std::vector<std::string> Errors(const std::string& text) {
    const StatusOr<Config> config = Load(text);
    if (config.ok()) return {};
    std::vector<std::string> lines = absl::StrSplit(std::string(config.status().message()), '\n');
    for (std::string& line : lines) {
      for (size_t at; (at = line.find(folder_ + "/")) != std::string::npos;)
        line.erase(at, folder_.size() + 1);
    }
    return lines;
  }

  std::string folder_;
  std::string file_;
};

TEST_F(ConfigTest, EmptyFileGivesTheDefaults) {
  const StatusOr<Config> config = Load("");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->paths.socket, "/run/loaderd/loaderd.sock");
  EXPECT_EQ(config->paths.segment_socket, "/run/loaderd/loaderd-segment.sock");
  EXPECT_EQ(config->socket_mode, 0660u);
  EXPECT_EQ(config->max_sessions, 1000u);
  EXPECT_EQ(config->max_pixels, 178956970u);
  EXPECT_EQ(config->max_sample_bytes, 268435456u);
  EXPECT_EQ(config->max_storage_failures, 100u);
  EXPECT_EQ(config->stop_deadline_s, 10u);
  EXPECT_EQ(config->fleet_threads, 0u);
  EXPECT_EQ(config->state_dir, "");
  EXPECT_EQ(config->snapshot_bytes, 4ull << 30);
}

TEST_F(ConfigTest, UserModeNeedsNoFileAndItsSocketIsItsOwn) {
  const StatusOr<Config> config =
      LoadConfig({.user_mode = true, .default_socket = "/tmp/x/loaderd.sock"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->socket_mode, 0600u);
  EXPECT_EQ(config->paths.lock, "/tmp/x/loaderd.lock");
}

TEST_F(ConfigTest, EveryFieldIsTaken) {
  const StatusOr<Config> config = Load(R"(
    listen { socket: "/run/a.sock" mode: 0666 group: "0" }
    fleet { threads: 3 reader_threads: 7 }
    limits {
      max_sessions: 5 max_sessions_per_uid: 2 slot_bytes: 2097152 slot_bytes_per_uid: 1048576 prefaulted_bytes: 0
      max_connections: 9
      descriptor_reserve: 50 max_pixels: 1000 max_sample_bytes: 2000 max_storage_failures: 7 max_reads_in_flight: 11
    }
    dataset_root: "/data" dataset_root: "/more"
    dataset { name: "one" image_folder: "/data/one" }
    stop_deadline_s: 3
    state_dir: "/srv/state" snapshot_bytes: 1048576
    log_level: LOG_LEVEL_WARNING)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->paths.segment_socket, "/run/a-segment.sock");
  EXPECT_EQ(config->socket_mode, 0666u);
  EXPECT_EQ(config->socket_group, 0u);
  EXPECT_EQ(config->fleet_threads, 3u);
  EXPECT_EQ(config->reader_threads, 7u);
  EXPECT_EQ(config->max_sessions, 5u);
  EXPECT_EQ(config->max_sessions_per_uid, 2u);
  EXPECT_EQ(config->slot_bytes, 2097152u);
  EXPECT_EQ(config->slot_bytes_per_uid, 1048576u);
  EXPECT_EQ(config->prefaulted_bytes, 0u);
  EXPECT_EQ(config->max_connections, 9u);
  EXPECT_EQ(config->descriptor_reserve, 50u);
  EXPECT_EQ(config->max_pixels, 1000u);
  EXPECT_EQ(config->max_sample_bytes, 2000u);
  EXPECT_EQ(config->max_storage_failures, 7u);
  EXPECT_EQ(config->max_reads_in_flight, 11u);
  EXPECT_THAT(config->dataset_roots, ElementsAre("/data", "/more"));
  EXPECT_THAT(config->datasets, ElementsAre(Pair("one", "/data/one")));
  EXPECT_EQ(config->state_dir, "/srv/state");
  EXPECT_EQ(config->snapshot_bytes, 1048576u);
  EXPECT_EQ(config->stop_deadline_s, 3u);
  EXPECT_EQ(config->log_level, LogLevel::kWarning);
}

TEST_F(ConfigTest, AllErrorsAreToldAtOnceWithFileLineAndField) {
  const std::vector<std::string> errors = Errors(
      "fleet {\n"
      "  threads: \"many\"\n"
      "  thread: 3\n"
      "}\n"
      "limits { max_sessions: -1 max_pixels: 99999999999 }\n"
      "stop_deadline_s: 0\n"
      "dataset_root: \"relative\"\n"
      "dataset {\n"
      "  name: \"a b\"\n"
      "  image_folder: \"/x\"\n"
      "}\n"
      "log_level: LOUD\n");
  EXPECT_THAT(
      errors,
      UnorderedElementsAre(
          HasSubstr("loaderd.txtpb:2: fleet.threads: Expected integer"),
          HasSubstr("loaderd.txtpb:3: fleet.thread: Message type"),
          HasSubstr("loaderd.txtpb:5: limits.max_sessions: Expected integer"),
          HasSubstr(
              "loaderd.txtpb:5: limits.max_pixels: 99999999999 is out of range: 1 to 4294836225"),
          HasSubstr("loaderd.txtpb:6: stop_deadline_s: 0 is out of range: 1 to 3600"),
          HasSubstr("loaderd.txtpb:7: dataset_root[0]: 'relative' must be an absolute path"),
          HasSubstr("loaderd.txtpb:9: dataset[0].name: 'a b' is no name"),
          HasSubstr("loaderd.txtpb:12: log_level: Unknown enumeration value")));
}

TEST_F(ConfigTest, NumberThatIsNoLogLevelIsAnError) {
  EXPECT_THAT(Errors("\nlog_level: 9"),
              ElementsAre(HasSubstr("loaderd.txtpb:2: log_level: 9 is no log level")));
}

TEST_F(ConfigTest, FieldGivenTwiceIsAnError) {
  EXPECT_THAT(Errors("stop_deadline_s: 3\nstop_deadline_s: 4\n"),
              ElementsAre(HasSubstr("loaderd.txtpb:2: stop_deadline_s: Non-repeated field")));
}

TEST_F(ConfigTest, ValueBeyondItsTypeIsAnErrorAndTabsDoNotMisleadIt) {
  EXPECT_THAT(
      Errors(
          "fleet {\n\t\tthreads: 4294967296 \tthreeds: 1 # threads: 1\n}\nstop_deadline_s: 9999\n"),
      UnorderedElementsAre(HasSubstr("loaderd.txtpb:2: fleet.threads: Integer out of range"),
                           HasSubstr("loaderd.txtpb:2: fleet.threeds: "),
                           HasSubstr("loaderd.txtpb:4: stop_deadline_s: 9999 is out of range")));
}

TEST_F(ConfigTest, BrokenSyntaxNamesItsLine) {
  EXPECT_THAT(Errors("fleet {\n  threads: 3\n"), ElementsAre(HasSubstr("loaderd.txtpb:3: fleet")));
  EXPECT_THAT(Errors("}\n"), ElementsAre(HasSubstr("loaderd.txtpb:1: ")));
  EXPECT_THAT(Errors("fleet: \"\n"), testing::Not(testing::IsEmpty()));
}

TEST_F(ConfigTest, SocketModeMustLetItsOwnUserConnect) {
  EXPECT_THAT(Errors("listen { mode: 0066 }"),
              ElementsAre(HasSubstr("listen.mode: 066 (decimal 54)")));
  EXPECT_THAT(Errors("listen { mode: 0 }"), ElementsAre(HasSubstr("listen.mode: ")));
  EXPECT_THAT(Errors("listen { mode: 660 }"),
              ElementsAre(HasSubstr("listen.mode: 01224 (decimal 660)")));
  EXPECT_TRUE(Load("listen { mode: 432 }").ok());
}

TEST_F(ConfigTest, UnknownGroupIsNamed) {
  EXPECT_THAT(Errors("listen {\n group: \"nosuchgroup\" }"),
              ElementsAre(HasSubstr("loaderd.txtpb:2: listen.group: no group 'nosuchgroup'")));
}

TEST_F(ConfigTest, SocketPathMustBeAbsoluteAndFitWithItsSegmentSocket) {
  EXPECT_THAT(Errors("listen { socket: \"loaderd.sock\" }"),
              ElementsAre(HasSubstr("listen.socket: ")));
  EXPECT_THAT(Errors(absl::StrCat("listen { socket: \"/", std::string(120, 'x'), "\" }")),
              ElementsAre(HasSubstr("has 121 bytes, and a Unix socket's path at most 107")));
}

TEST_F(ConfigTest, SharesAboveTheWholeAreErrors) {
  EXPECT_THAT(
      Errors("limits { max_sessions: 4 max_sessions_per_uid: 5 slot_bytes: 1048576 "
             "slot_bytes_per_uid: 1048577 }"),
      UnorderedElementsAre(
          HasSubstr("limits.max_sessions_per_uid: 5 is more than limits.max_sessions, which is 4"),
          HasSubstr("limits.slot_bytes_per_uid: 1048577 is more")));
}

TEST_F(ConfigTest, DatasetsComeFromTheFolderBesideTheFileToo) {
  Write("datasets.d/b.txtpb", "dataset { name: \"b\" image_folder: \"/b\" }");
  Write("datasets.d/a.txtpb", "dataset { name: \"a\" image_folder: \"/a\" }");
  Write("datasets.d/a.txtpb.old", "nonsense");
  Write("datasets.d/.hidden.txtpb", "nonsense");
  const StatusOr<Config> config = Load("dataset { name: \"z\" image_folder: \"/z\" }");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->datasets, ElementsAre(Pair("z", "/z"), Pair("a", "/a"), Pair("b", "/b")));
  const StatusOr<Config> user = Load("", /*user_mode=*/true);
  ASSERT_TRUE(user.ok());
  EXPECT_THAT(user->datasets, testing::IsEmpty());
}

TEST_F(ConfigTest, DatasetFileHoldsDatasetsOnlyAndNamesAreUniqueOverAllFiles) {
  Write("datasets.d/a.txtpb",
        "fleet { threads: 1 }\ndataset {\n  name: \"z\"\n  image_folder: \"z\"\n}");
  EXPECT_THAT(
      Errors("dataset { name: \"z\" image_folder: \"/z\" }"),
      UnorderedElementsAre(
          HasSubstr("datasets.d/a.txtpb:1: fleet: a file in datasets.d may hold only `dataset`"),
          HasSubstr(
              "datasets.d/a.txtpb:3: dataset[0].name: 'z' is defined already at loaderd.txtpb:1"),
          HasSubstr(
              "datasets.d/a.txtpb:4: dataset[0].image_folder: 'z' must be an absolute path")));
}

TEST_F(ConfigTest, MissingFieldOfADatasetIsToldAtTheDatasetsLine) {
  EXPECT_THAT(
      Errors("\n\ndataset { }"),
      UnorderedElementsAre(HasSubstr("loaderd.txtpb:3: dataset[0].name: '' is no name"),
                           HasSubstr("loaderd.txtpb:3: dataset[0].image_folder: is missing")));
}

TEST_F(ConfigTest, FileThatCannotBeReadIsNamed) {
  const StatusOr<Config> missing = LoadConfig({.file = folder_ + "/none.txtpb"});
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("none.txtpb"));
  const StatusOr<Config> is_folder = LoadConfig({.file = folder_});
  EXPECT_THAT(std::string(is_folder.status().message()), HasSubstr(folder_));
  EXPECT_THAT(Errors(std::string((1 << 20) + 1, '#')),
              ElementsAre(HasSubstr("longer than 1048576 bytes")));
}

// Whatever bytes stand in the file, the answer is a status.
TEST_F(ConfigTest, HostileBytesAreRefusedAndNoMore) {
  std::mt19937 random(7);
  const std::string seed =
      "listen { socket: \"/a\" mode: 0660 }\nfleet < threads: [1, 2] >\nlimits: { slot_bytes: -0x1 "
      "} # c\n";
  for (int round = 0; round < 2000; ++round) {
    std::string text = seed;
    for (int change = 0; change < 4; ++change) {
      text[random() % text.size()] = static_cast<char>(
          random() % 3 == 0 ? random() % 256 : "{}<>:[]\"'#\\\t\n -"[random() % 15]);
    }
    const StatusOr<Config> config = Load(text);
    if (!config.ok()) {
      EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST_F(ConfigTest, StateDirAndItsBoundsAreChecked) {
  EXPECT_THAT(Errors("state_dir: \"state\"\nsnapshot_bytes: 1000"),
              ElementsAre(AllOf(HasSubstr("loaderd.txtpb:1: state_dir: "),
                                HasSubstr("must be an absolute path")),
                          AllOf(HasSubstr("loaderd.txtpb:2: snapshot_bytes: "),
                                HasSubstr("1000 is out of range: 1048576 to"))));
}

}  // namespace
}  // namespace loaderd::daemon

// SPDX-License-Identifier: Apache-2.0
// What a catalog that is restricted to roots opens, and what not.
#include "server/dataset/roots.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/dataset/catalog.h"
#include "tests/support/dataset_builder.h"
#include "tests/support/status_matchers.h"

namespace loaderd::dataset {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr auto kDenied = absl::StatusCode::kPermissionDenied;

class RestrictedCatalogTest : public testing::Test {
 protected:
  RestrictedCatalogTest() {
    allowed_.File("data/c/1.jpg", "inside").File("data/c/2.jpg", "inside too");
    outside_.File("data/c/1.jpg", "secret");
  }
  StatusOr<std::shared_ptr<const Dataset>> Open(const std::string& path) {
    return catalog_.Open({.image_folder = path, .name = {}}, {}, nullptr);
  }
  static std::string Read(const Dataset& dataset, uint64_t index) {
    ByteBuffer buffer;
    const Status status = dataset.Read(index, buffer);
    if (!status.ok()) return status.ToString();
    return std::string(buffer.bytes().begin(), buffer.bytes().end());
  }

  DatasetBuilder allowed_, outside_;
  Catalog catalog_{{.restrict_to_roots = true, .roots = {allowed_.root() + "/"}}};
};

TEST_F(RestrictedCatalogTest, OpensWhatIsUnderARoot) {
  ASSERT_OK_AND_ASSIGN(const auto dataset, Open(allowed_.Path("data")));
  EXPECT_EQ(dataset->size(), 2u);
  EXPECT_EQ(Read(*dataset, 0), "inside");
}

TEST_F(RestrictedCatalogTest, RefusesAllElseAndNamesTheField) {
  EXPECT_THAT(Open(outside_.Path("data")),
              StatusIs(kDenied, AllOf(StartsWith(outside_.Path("data") + ": "),
                                      HasSubstr("dataset_root"), HasSubstr(allowed_.root()))));
  // What does not exist looks as what does.
  EXPECT_THAT(Open(outside_.Path("none")), StatusIs(kDenied));
  EXPECT_THAT(Open(allowed_.root() + "x/data"), StatusIs(kDenied));
  EXPECT_THAT(Open(allowed_.Path("none")), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(RestrictedCatalogTest, RefusesAllWhereNoRootIsNamed) {
  Catalog closed({.restrict_to_roots = true});
  EXPECT_THAT(closed.Open({.image_folder = allowed_.Path("data"), .name = {}}, {}, nullptr),
              StatusIs(kDenied, HasSubstr("it names none")));
}

TEST_F(RestrictedCatalogTest, DotsDoNotLeadOut) {
  const std::string up = allowed_.Path("data/../..");
  EXPECT_THAT(Open(up + outside_.root().substr(outside_.root().rfind('/')) + "/data"),
              StatusIs(kDenied));
  EXPECT_THAT(Open(allowed_.Path("data/../../../../../../../etc")), StatusIs(kDenied));
  EXPECT_THAT(Open(allowed_.Path("data/c/../../data")), IsOk());
}

TEST_F(RestrictedCatalogTest, LinksInsideTheRootsAreFollowed) {
  allowed_.Link("relative", "data").Link("absolute", allowed_.Path("data"));
  outside_.Link("in", allowed_.Path("data"));
  EXPECT_THAT(Open(allowed_.Path("relative")), IsOk());
  EXPECT_THAT(Open(allowed_.Path("absolute")), IsOk());
  EXPECT_THAT(Open(outside_.Path("in")), IsOk());
  allowed_.Link("more/c/1.jpg", allowed_.Path("data/c/1.jpg"))
      .Link("more/c/2.jpg", "../../data/c/2.jpg");
  allowed_.Link("more/d", allowed_.Path("data/c"));
  ASSERT_OK_AND_ASSIGN(const auto dataset, Open(allowed_.Path("more")));
  EXPECT_EQ(dataset->size(), 4u);
  EXPECT_EQ(Read(*dataset, 0), "inside");
  EXPECT_EQ(Read(*dataset, 1), "inside too");
  EXPECT_EQ(Read(*dataset, 2), "inside");
}

TEST_F(RestrictedCatalogTest, LinksThatLeadOutAreRefused) {
  allowed_.Link("out", outside_.Path("data"));
  EXPECT_THAT(Open(allowed_.Path("out")), StatusIs(kDenied, HasSubstr("dataset_root")));
  allowed_.File("class/c/1.jpg").Link("class/d", outside_.Path("data/c"));
  EXPECT_THAT(Open(allowed_.Path("class")),
              StatusIs(kDenied, StartsWith(allowed_.Path("class/d") + ": ")));
  allowed_.File("file/c/1.jpg").Link("file/c/2.jpg", outside_.Path("data/c/1.jpg"));
  EXPECT_THAT(Open(allowed_.Path("file")),
              StatusIs(kDenied, StartsWith(allowed_.Path("file/c/2.jpg") + ": ")));
}

TEST_F(RestrictedCatalogTest, ALinkMadeAfterTheIndexDoesNotLeadOut) {
  ASSERT_OK_AND_ASSIGN(const auto dataset, Open(allowed_.Path("data")));
  allowed_.Remove("data/c/1.jpg").Link("data/c/1.jpg", outside_.Path("data/c/1.jpg"));
  EXPECT_THAT(Read(*dataset, 0), AllOf(HasSubstr("PERMISSION_DENIED"), HasSubstr("data/c/1.jpg")));
  allowed_.Remove("data/c").Link("data/c", outside_.Path("data/c"));
  EXPECT_THAT(Read(*dataset, 0), HasSubstr("PERMISSION_DENIED"));
}

TEST_F(RestrictedCatalogTest, ARootThatIsALinkAdmitsWhatItLeadsTo) {
  DatasetBuilder links;
  links.Link("root", allowed_.root());
  Catalog catalog({.restrict_to_roots = true, .roots = {links.Path("root")}});
  for (const std::string& path : {links.Path("root/data"), allowed_.Path("data")}) {
    EXPECT_THAT(catalog.Open({.image_folder = path, .name = {}}, {}, nullptr), IsOk()) << path;
  }
}

TEST_F(RestrictedCatalogTest, ARootMayAppearLater) {
  Catalog catalog({.restrict_to_roots = true, .roots = {outside_.Path("later")}});
  const DatasetSpec spec{.image_folder = outside_.Path("later/data"), .name = {}};
  EXPECT_THAT(catalog.Open(spec, {}, nullptr), StatusIs(kDenied));
  outside_.File("later/data/c/1.jpg");
  EXPECT_THAT(catalog.Open(spec, {}, nullptr), IsOk());
  outside_.Remove("later").File("later/data/c/1.jpg").File("later/data/c/2.jpg");
  ASSERT_OK_AND_ASSIGN(const auto dataset, catalog.Open(spec, {}, nullptr));
  EXPECT_EQ(dataset->size(), 2u);
}

TEST(RootsTest, UnrestrictedRootsOpenAllAndRefuseNothing) {
  DatasetBuilder builder;
  builder.File("a", "x");
  EXPECT_THAT(Roots::Unrestricted()->Open(builder.Path("a"), O_RDONLY), IsOk());
  const auto missing = Roots::Unrestricted()->Open(builder.Path("b"), O_RDONLY);
  EXPECT_THAT(missing, StatusIs(absl::StatusCode::kNotFound, StartsWith(builder.Path("b"))));
  EXPECT_FALSE(Roots::Refused(missing.status()));
}

}  // namespace
}  // namespace loaderd::dataset

// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/config_text.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/status.h"

namespace loaderd::daemon {
namespace {

using google::protobuf::TextFormat;

constexpr size_t kMostErrors = 100;

// protobuf counts lines and columns from 0 and a tab as a step to the next multiple of 8.
size_t OffsetOf(std::string_view text, int line, int column) {
  size_t at = 0;
  for (; line > 0 && at < text.size(); ++at) {
    if (text[at] == '\n') --line;
  }
  for (int now = 0; now < column && at < text.size() && text[at] != '\n'; ++at) {
    now = text[at] == '\t' ? now + 8 - now % 8 : now + 1;
  }
  return at;
}

// Reads tokens only as far as is needed to say which field a place in the text belongs to.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  // The path of the field at `offset`.
  std::string FieldAt(size_t offset) {
    ScanTo(offset);
    std::vector<std::string> path = enclosing_;
    if (!name_.empty()) path.push_back(name_);
    return absl::StrJoin(path, ".");
  }

  // Where the last token before `offset` begins.
  size_t TokenBefore(size_t offset) {
    size_t begin = 0;
    while (Next() && begin_ < offset) begin = begin_;
    return begin;
  }

  // Where the scalar field at `offset` begins and ends; nothing when there is none.
  std::optional<std::pair<size_t, size_t>> ScalarAt(size_t offset) {
    ScanTo(offset);
    if (name_.empty()) return std::nullopt;
    const size_t begin = name_begin_;
    bool colon = false;
    size_t end = begin;
    at_ = begin;
    while (Next()) {
      if (token_ == ":") {
        colon = true;
      } else if (token_ == "{" || token_ == "<" || token_ == "}" || token_ == ">" ||
                 token_ == "[") {
        break;
      } else {
        end = at_;
        if (colon && token_ != "-") return std::make_pair(begin, end);
      }
    }
    return std::nullopt;
  }

 private:
  static bool IsWord(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '+';
  }

  bool Next() {
    while (at_ < text_.size() &&
           (std::isspace(static_cast<unsigned char>(text_[at_])) || text_[at_] == '#')) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        ++at_;
      }
    }
    if (at_ >= text_.size()) return false;
    begin_ = at_;
    const char first = text_[at_++];
    if (first == '"' || first == '\'') {
      while (at_ < text_.size() && text_[at_] != first && text_[at_] != '\n')
        at_ += text_[at_] == '\\' ? 2 : 1;
      at_ = std::min(at_ + 1, text_.size());
    } else if (IsWord(first)) {
      while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
    }
    token_ = text_.substr(begin_, at_ - begin_);
    return true;
  }

  // Up to and with the token that reaches `offset`.
  void ScanTo(size_t offset) {
    at_ = 0;
    bool value = false;
    while (Next() && begin_ <= offset) {
      if (token_ == "{" || token_ == "<") {
        enclosing_.push_back(name_);
        name_.clear();
        value = false;
      } else if (token_ == "}" || token_ == ">") {
        if (!enclosing_.empty()) enclosing_.pop_back();
        name_.clear();
        value = false;
      } else if (token_ == ":") {
        value = true;
      } else if (value) {
        if (token_ != "-" && at_ <= offset) {
          value = false;
          name_.clear();
        }
      } else if (IsWord(token_[0])) {
        name_ = std::string(token_);
        name_begin_ = begin_;
      }
    }
  }

  const std::string_view text_;
  size_t at_ = 0;
  size_t begin_ = 0;
  std::string_view token_;
  std::vector<std::string> enclosing_;
  std::string name_;
  size_t name_begin_ = 0;
};

class Collector : public google::protobuf::io::ErrorCollector {
 public:
  Collector(const std::string& file, std::string_view text) : file_(file), text_(text) {}

  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    size_t offset = OffsetOf(text_, std::max(line, 0), std::max(column, 0));
    // This one is found only when the parser stands behind the value already.
    if (absl::StartsWith(message, "Unknown enumeration value")) {
      offset = Scanner(text_).TokenBefore(offset);
      line = static_cast<int>(std::count(text_.begin(), text_.begin() + offset, '\n'));
    }
    fatal_ = offset;
    Add(line, offset, message);
  }
  // With unknown fields allowed, each is only a warning, and parsing goes on.
  void AddWarning(int line, google::protobuf::io::ColumnNumber column,
                  const std::string& message) override {
    Add(line, OffsetOf(text_, std::max(line, 0), std::max(column, 0)), message);
  }

  std::vector<ConfigError> errors;
  std::optional<size_t> fatal() const { return fatal_; }

 private:
  void Add(int line, size_t offset, const std::string& message) {
    errors.push_back({file_, line + 1, Scanner(text_).FieldAt(offset), Printable(message)});
  }

  const std::string& file_;
  const std::string_view text_;
  std::optional<size_t> fatal_;
};

// Blanks [begin, end), keeping the lines.
void Blank(std::string& text, size_t begin, size_t end) {
  std::replace_if(
      text.begin() + begin, text.begin() + end, [](char c) { return c != '\n'; }, ' ');
}

}  // namespace

std::string ConfigError::ToString() const {
  return absl::StrCat(Printable(file), line > 0 ? absl::StrCat(":", line) : "", ": ",
                      Printable(field), field.empty() ? "" : ": ", message);
}

std::unique_ptr<const TextFormat::ParseInfoTree> ParseText(const std::string& file,
                                                           std::string_view text,
                                                           google::protobuf::Message* message,
                                                           std::vector<ConfigError>* errors) {
  std::vector<ConfigError> found;
  std::string attempt(text);
  std::unique_ptr<TextFormat::ParseInfoTree> tree;
  while (true) {
    Collector collector(file, attempt);
    TextFormat::Parser parser;
    parser.RecordErrorsTo(&collector);
    parser.AllowUnknownField(true);
    parser.SetRecursionLimit(16);
    tree = std::make_unique<TextFormat::ParseInfoTree>();
    parser.WriteLocationsTo(tree.get());
    const bool parsed = parser.ParseFromString(attempt, message);
    if (!parsed && collector.errors.empty())
      collector.errors.push_back({file, 0, "", "cannot be parsed"});
    // Warnings come again in the next attempt; of this one only what stopped it is kept.
    const std::optional<size_t> at = parsed ? std::nullopt : collector.fatal();
    const auto field = at ? Scanner(attempt).ScalarAt(*at) : std::nullopt;
    if (!field || found.size() >= kMostErrors) {
      found.insert(found.end(), collector.errors.begin(), collector.errors.end());
      if (!parsed) tree.reset();
      break;
    }
    found.push_back(collector.errors.back());
    Blank(attempt, field->first, field->second);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const ConfigError& a, const ConfigError& b) { return a.line < b.line; });
  errors->insert(errors->end(), found.begin(), found.end());
  return tree;
}

}  // namespace loaderd::daemon

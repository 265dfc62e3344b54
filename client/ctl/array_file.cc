// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/array_file.h"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace loaderd::ctl {
namespace {

constexpr size_t kPrefixBytes = 10;  // magic, version, length of the header
constexpr size_t kAlignment = 64;

const char* Description(std::string_view dtype) {
  if (dtype == "uint8") return "|u1";
  if (dtype == "bool") return "|b1";
  if (dtype == "int64") return "<i8";
  if (dtype == "float32") return "<f4";
  if (dtype == "float16") return "<f2";
  if (dtype == "bfloat16") return "<u2";
  return nullptr;
}

}  // namespace

absl::Status WriteNpy(const std::string& path, std::string_view dtype,
                      std::span<const int64_t> shape, std::span<const std::byte> data) {
  const char* description = Description(dtype);
  if (description == nullptr)
    return absl::UnimplementedError(
        absl::StrCat(path, ": no .npy form for dtype ", std::string(dtype)));
  std::string header =
      absl::StrCat("{'descr': '", description, "', 'fortran_order': False, 'shape': (",
                   absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
  header.append(kAlignment - 1 - (kPrefixBytes + header.size()) % kAlignment, ' ').append("\n");
  std::string prefix("\x93NUMPY\x01\x00", 8);
  prefix += static_cast<char>(header.size() & 0xFF);
  prefix += static_cast<char>(header.size() >> 8);

  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr)
    return absl::InternalError(absl::StrCat("create ", path, ": ", std::strerror(errno)));
  const bool written = std::fwrite(prefix.data(), 1, prefix.size(), file) == prefix.size() &&
                       std::fwrite(header.data(), 1, header.size(), file) == header.size() &&
                       std::fwrite(data.data(), 1, data.size(), file) == data.size();
  const int error = errno;
  if (std::fclose(file) != 0)
    return absl::InternalError(absl::StrCat("write ", path, ": ", std::strerror(errno)));
  if (!written)
    return absl::InternalError(absl::StrCat("write ", path, ": ", std::strerror(error)));
  return absl::OkStatus();
}

}  // namespace loaderd::ctl

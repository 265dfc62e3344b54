// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace loaderd {

// Runs `check` (returning what it saw) in a child process as an unprivileged user, and returns
// that. Only root can; other users are told apart by CanBeOtherUser(). The caller has no other
// threads.
inline bool CanBeOtherUser() { return ::geteuid() == 0; }

template <typename Check>
std::string AsOtherUser(Check check) {
  constexpr unsigned kOther = 65534;
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    std::string seen = "could not change user";
    if (::setgroups(0, nullptr) == 0 && ::setgid(kOther) == 0 && ::setuid(kOther) == 0)
      seen = check();
    const ssize_t written = ::write(ends[1], seen.data(), seen.size());
    ::_exit(written == static_cast<ssize_t>(seen.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string seen;
  char buffer[4096];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof(buffer))) > 0;)
    seen.append(buffer, static_cast<size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return seen;
}

}  // namespace loaderd

# SPDX-License-Identifier: Apache-2.0
# Warnings are errors, and everything is hardened; one interface target carries it to all that is ours.
add_library(loaderd_options INTERFACE)
target_include_directories(loaderd_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(loaderd_options INTERFACE
  -Wall -Wextra -Werror -fstack-protector-strong -fstack-clash-protection
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
# GCC's -Wmaybe-uninitialized and -Wrestrict report inside std::variant and std::string of its own library when sanitizers are on.
target_compile_options(loaderd_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(LOADERD_SANITIZE)
  target_compile_options(loaderd_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_compile_options(loaderd_options INTERFACE -fsanitize=${LOADERD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(loaderd_options INTERFACE -fsanitize=${LOADERD_SANITIZE})
else()
  # A sanitizer build has its own checks; _FORTIFY_SOURCE hides calls from them.
  target_compile_options(loaderd_options INTERFACE $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=2>)
endif()
target_link_options(loaderd_options INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
include(CheckPIESupported)
check_pie_supported()

# SPDX-License-Identifier: Apache-2.0
# loaderd_module(NAME LINK TARGETS...): server/NAME/*.cc as the static library loaderd_NAME.
function(loaderd_module name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/server/${name}/*.cc)
  add_library(loaderd_${name} STATIC ${sources})
  target_link_libraries(loaderd_${name} PUBLIC loaderd_options ${ARG_LINK})
endfunction()

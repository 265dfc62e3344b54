# SPDX-License-Identifier: Apache-2.0
# Generated code goes to BUILD/gen and is compiled without our warnings: it is not ours.
find_program(PROTOC protoc REQUIRED)
set(LOADERD_GEN ${CMAKE_BINARY_DIR}/gen)
file(MAKE_DIRECTORY ${LOADERD_GEN})

function(loaderd_proto target)
  cmake_parse_arguments(ARG "GRPC" "" "PROTOS;LINK" ${ARGN})
  set(sources)
  foreach(proto ${ARG_PROTOS})
    string(REPLACE ".proto" "" stem ${proto})
    set(outputs ${LOADERD_GEN}/${stem}.pb.cc ${LOADERD_GEN}/${stem}.pb.h)
    set(flags --cpp_out=${LOADERD_GEN})
    if(ARG_GRPC)
      list(APPEND outputs ${LOADERD_GEN}/${stem}.grpc.pb.cc ${LOADERD_GEN}/${stem}.grpc.pb.h)
      list(APPEND flags --grpc_out=${LOADERD_GEN} --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN})
    endif()
    add_custom_command(OUTPUT ${outputs}
      COMMAND ${PROTOC} -I ${CMAKE_SOURCE_DIR}/proto ${flags} ${CMAKE_SOURCE_DIR}/proto/${proto}
      DEPENDS ${CMAKE_SOURCE_DIR}/proto/${proto} VERBATIM)
    list(APPEND sources ${outputs})
  endforeach()
  add_library(${target} STATIC ${sources})
  target_include_directories(${target} SYSTEM PUBLIC ${LOADERD_GEN})
  target_link_libraries(${target} PUBLIC ${ARG_LINK} PkgConfig::PROTOBUF)
  if(LOADERD_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${LOADERD_SANITIZE})
  endif()
endfunction()

loaderd_proto(loaderd_job_proto PROTOS loaderd/v1/job.proto)
if(LOADERD_GRPC)
  find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
  pkg_check_modules(GRPC REQUIRED IMPORTED_TARGET grpc++)
  loaderd_proto(loaderd_config_proto PROTOS loaderd/config/v1/config.proto)
  loaderd_proto(loaderd_service_proto GRPC PROTOS loaderd/v1/loader.proto loaderd/v1/admin.proto
                LINK loaderd_job_proto PkgConfig::GRPC)
endif()

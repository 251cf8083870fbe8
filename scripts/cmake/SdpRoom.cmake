# What every room shares: the language level, the warnings, the sanitizers, and how a room and its tests are
# declared.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

# Other compilers and other build types warn of other things: whoever only builds the product is not stopped.
option(SDP_WERROR "warnings are errors; the presets say so" OFF)
add_library(sdp_build_flags INTERFACE)
# GCC 12 takes the standard library's own copies of short strings for accesses out of bounds, in sources with
# precompiled headers: a warning, not an error.
target_compile_options(sdp_build_flags INTERFACE -Wall -Wextra $<$<BOOL:${SDP_WERROR}>:-Werror>
                       -fno-strict-aliasing $<$<CXX_COMPILER_ID:GNU>:-Wno-error=array-bounds>)
if(SDP_SANITIZE)
  target_compile_options(sdp_build_flags INTERFACE -fsanitize=${SDP_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(sdp_build_flags INTERFACE -fsanitize=${SDP_SANITIZE})
  # The check of an object's type opens a pipe for each type that it has not seen. Where a test leaves the
  # process no descriptor, it reports sound objects. The fuzz targets keep that check.
  if(NOT SDP_FUZZ)
    target_compile_options(sdp_build_flags INTERFACE -fno-sanitize=vptr)
  endif()
  # GCC's analysis is misled by the instrumentation, and warns inside abseil's inlined vectors.
  target_compile_options(sdp_build_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()

# What the daemon and the tools have against mistakes in what handles foreign bytes. libsdp.so and the rooms
# in it do without: there _FORTIFY_SOURCE would make functions of the very names that the library defines.
add_library(sdp_hardening INTERFACE)
if(NOT SDP_SANITIZE AND NOT SDP_FUZZ AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_options(sdp_hardening INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
                         -fstack-protector-strong)
  target_link_options(sdp_hardening INTERFACE -Wl,-z,relro,-z,now)
endif()
# For a first look (scripts/quickstart): the daemon and the tools compile in two thirds of the time.
option(SDP_QUICK "optimize the daemon and the tools less" OFF)
if(SDP_QUICK)
  target_compile_options(sdp_hardening INTERFACE -Og)
endif()

if(SDP_FUZZ)
  # The rooms report coverage to the fuzzers that link them.
  target_compile_options(sdp_build_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# The standard library's headers are parsed once for all rooms, Catch2's for all tests. A compiler cache does
# not know such files; with one, each source is compiled by itself.
if(CMAKE_CXX_COMPILER_LAUNCHER OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(precompile OFF)
else()
  set(precompile ON)
endif()
option(SDP_PRECOMPILE "precompile headers of tests and rooms" ${precompile})

# The sources of a room are compiled together, eight at a time: their headers are parsed once, and the product
# takes 0.4 of the time. Not so in Clang's tree, where check-syntax and check-rooms look at single sources,
# nor with a compiler cache.
option(SDP_TOGETHER "compile several sources of a room at once" ${precompile})

# sdp_together(<target>)
function(sdp_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${SDP_TOGETHER} UNITY_BUILD_BATCH_SIZE 8)
endfunction()

# sdp_precompiled(<target> <owner>): as <owner>'s headers are, whose compiler options must be the same.
function(sdp_precompiled target owner)
  if(SDP_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()

if(SDP_PRECOMPILE)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompile.cc CONTENT "int main() {}\n")
  add_library(sdp_precompiled_rooms OBJECT ${CMAKE_BINARY_DIR}/precompile.cc)
  target_link_libraries(sdp_precompiled_rooms PRIVATE sdp_build_flags)
  target_precompile_headers(sdp_precompiled_rooms
    PRIVATE <algorithm> <array> <atomic> <chrono> <functional> <memory> <mutex> <optional> <span> <string>
            <string_view> <variant> <vector> <absl/container/inlined_vector.h> <tl/expected.hpp>)
  # The same headers, as hardened code sees them.
  add_library(sdp_precompiled_hardened OBJECT ${CMAKE_BINARY_DIR}/precompile.cc)
  target_link_libraries(sdp_precompiled_hardened PRIVATE sdp_build_flags sdp_hardening)
  get_target_property(headers sdp_precompiled_rooms PRECOMPILE_HEADERS)
  target_precompile_headers(sdp_precompiled_hardened PRIVATE ${headers})
endif()

# sdp_room(<target> [HARDENED] SOURCES a.cc b.cc DEPENDS <other targets>): a static library; includes are
# written from the repository's root. A header-only room has no SOURCES. HARDENED: a room of the daemon's or
# the tools' alone. What a room may use stands in scripts/rooms.
function(sdp_room target)
  cmake_parse_arguments(ROOM "HARDENED" "" "SOURCES;DEPENDS" ${ARGN})
  if(ROOM_SOURCES)
    add_library(${target} STATIC ${ROOM_SOURCES})
    target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(${target} PUBLIC ${ROOM_DEPENDS} PRIVATE sdp_build_flags)
    if(ROOM_HARDENED)
      target_link_libraries(${target} PRIVATE sdp_hardening)
      sdp_precompiled(${target} sdp_precompiled_hardened)
    else()
      sdp_precompiled(${target} sdp_precompiled_rooms)
    endif()
    sdp_together(${target})
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${target} INTERFACE ${ROOM_DEPENDS})
  endif()
endfunction()

# sdp_command_line(<main.cc>): a source that only reads a command line. CLI11 takes longer to compile than a
# room; with less optimization half of that, and a quarter without any under a sanitizer.
function(sdp_command_line source)
  if(SDP_SANITIZE)
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-O0;-fno-sanitize=undefined")
  elseif(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND NOT SDP_QUICK)
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-O1;-g1")
  endif()
endfunction()

# A test's own files are compiled once and run once. The rooms they test are as they are shipped, or as the
# sanitizers want them: with them, a test file takes a third as long without optimization and UBSan.
add_library(sdp_test_flags INTERFACE)
if(SDP_SANITIZE)
  target_compile_options(sdp_test_flags INTERFACE -O0 -fno-sanitize=undefined)
elseif(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
  target_compile_options(sdp_test_flags INTERFACE -O1 -g1)
endif()

# sdp_test(<name> [AS_SHIPPED] SOURCES x_test.cc DEPENDS <rooms> LABELS <labels>): a Catch2 program,
# registered with ctest as one test. With AS_SHIPPED its own files are optimized like the rooms.
function(sdp_test name)
  cmake_parse_arguments(TEST "AS_SHIPPED" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  add_executable(${name} ${TEST_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${TEST_DEPENDS} sdp_test_main sdp_build_flags)
  if(NOT TEST_AS_SHIPPED)
    target_link_libraries(${name} PRIVATE sdp_test_flags)
    sdp_precompiled(${name} sdp_precompiled_tests)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 300)  # ten times what the longest takes under a sanitizer
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS "unit;${TEST_LABELS}")
endfunction()

set(SDP_FUZZ_SECONDS 20 CACHE STRING "how long ctest runs each fuzz target")

# sdp_fuzz(<name> SOURCES x_fuzz.cc DEPENDS <rooms>): a libFuzzer target, and a test (label fuzz) that runs it
# for SDP_FUZZ_SECONDS. Its seeds lie in test/fuzz/corpus/<name>/; what it finds goes to the build tree. The
# target sdp_fuzzers builds all of them.
function(sdp_fuzz name)
  if(NOT SDP_FUZZ)
    return()
  endif()
  cmake_parse_arguments(FUZZ "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${FUZZ_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE ${FUZZ_DEPENDS} sdp_build_flags)
  set_property(GLOBAL APPEND PROPERTY SDP_FUZZ_TARGETS ${name})
  if(NOT TARGET sdp_fuzzers)
    add_custom_target(sdp_fuzzers)
  endif()
  add_dependencies(sdp_fuzzers ${name})

  set(found ${CMAKE_CURRENT_BINARY_DIR}/${name}.found)
  file(MAKE_DIRECTORY ${found})
  set(seeds ${PROJECT_SOURCE_DIR}/test/fuzz/corpus/${name})
  if(NOT EXISTS ${seeds})
    set(seeds)
  endif()
  add_test(NAME fuzz_${name} COMMAND ${name} -max_total_time=${SDP_FUZZ_SECONDS} -timeout=10
           -rss_limit_mb=4096 -verbosity=1 -artifact_prefix=${found}/ ${found} ${seeds})
  math(EXPR limit "${SDP_FUZZ_SECONDS} * 3 + 60")
  set_tests_properties(fuzz_${name} PROPERTIES TIMEOUT ${limit} COST ${SDP_FUZZ_SECONDS} LABELS fuzz)
endfunction()

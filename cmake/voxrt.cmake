# How voxrt's targets are built: language level, warnings, sanitizers, and one function per kind of target.
include_guard()
include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_program(VOXRT_CCACHE ccache)
if(VOXRT_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${VOXRT_CCACHE})
endif()
find_package(Threads REQUIRED)

add_library(voxrt_flags INTERFACE)
target_include_directories(voxrt_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(voxrt_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  -Woverloaded-virtual -Wvla
  -Wno-missing-field-initializers>)  # designated initializers with defaults are how options are passed
# g++ 12 sees overlapping copies in string + string where there are none (GCC bug 105651).
target_compile_options(voxrt_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>)
if(VOXRT_WERROR)
  target_compile_options(voxrt_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(VOXRT_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${VOXRT_SANITIZE}> $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all> -g)
  add_link_options(-fsanitize=${VOXRT_SANITIZE})
endif()
if(VOXRT_WITH_FUZZ)
  # The libraries too: a fuzzer that does not see which branches the parser takes is blind.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
endif()

# voxrt_library(NAME SOURCES ... DEPS ...): one folder = one static library voxrt_NAME that links only what the layer table allows.
function(voxrt_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(voxrt_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(voxrt_${name} PUBLIC ${ARG_DEPS} PRIVATE voxrt_flags ${ARG_PRIVATE_DEPS})
  target_include_directories(voxrt_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
endfunction()

# voxrt_test(NAME SOURCES ... DEPS ... LABEL unit|conformance|golden|property|e2e|gpu [TIMEOUT s]): one GoogleTest binary = one CTest test.
# Tests find repository data through support/root.h, whose default is the macro VOXRT_SOURCE_DIR.
function(voxrt_test name)
  if(NOT VOXRT_WITH_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE voxrt_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE VOXRT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# voxrt_fuzz(NAME SOURCES ... DEPS ...): one libFuzzer binary; its seed corpus is fuzz/corpus/NAME.
function(voxrt_fuzz name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE voxrt_flags ${ARG_DEPS})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
endfunction()

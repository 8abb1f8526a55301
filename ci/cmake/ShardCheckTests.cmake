# One GoogleTest program per room, and the tests of the house itself: repo lint, format, installation.
# Every test has a timeout, so that nothing hangs CI.
include(GoogleTest)

# Builds what the sanitizer run needs, and nothing else.
add_custom_target(sanitized_tests)

# shardcheck_tests(NAME FOLDER dir SOURCES... [LINK ...] [SANITIZED]): helpers are included by their path in the
# folder; SANITIZED rooms also run under ASan and UBSan in ci/test (label "NAME.sanitized").
function(shardcheck_tests name)
  cmake_parse_arguments(ARG "SANITIZED" "FOLDER" "SOURCES;LINK" ${ARGN})
  if(NOT ARG_SOURCES)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} shardcheck_flags GTest::gmock GTest::gtest_main fmt::fmt
                        nlohmann_json::nlohmann_json)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/${ARG_FOLDER})
  target_compile_definitions(${name} PRIVATE SHARDCHECK_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                             SHARDCHECK_PROGRAM="$<TARGET_FILE:shardcheck>")
  add_dependencies(${name} shardcheck)
  # One label per test: discovery loses the rest of a list. Label filters are regular expressions.
  set(label ${name})
  if(ARG_SANITIZED)
    string(APPEND label ".sanitized")
    add_dependencies(sanitized_tests ${name})
  endif()
  gtest_discover_tests(${name} NO_PRETTY_VALUES PROPERTIES TIMEOUT 300 LABELS ${label} DISCOVERY_TIMEOUT 60)
endfunction()

file(GLOB_RECURSE lib_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lib/tests/*_test.cc)
list(FILTER lib_tests EXCLUDE REGEX "/(cli|consumer)/")
shardcheck_tests(lib_tests FOLDER lib/tests SOURCES ${lib_tests} LINK shardcheck_core SANITIZED)
foreach(room tolerance mutators properties)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${room}/tests/*_test.cc)
  shardcheck_tests(${room}_tests FOLDER ${room}/tests SOURCES ${sources} LINK shardcheck_${room})
endforeach()
file(GLOB cli_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lib/tests/cli/*_test.cc)
shardcheck_tests(cli_tests FOLDER lib/tests/cli SOURCES ${cli_tests} LINK shardcheck_properties SANITIZED)

# The house: rules no compiler checks. The distribution's interpreter first, not one of a user's environment.
find_program(SHARDCHECK_PYTHON python3 HINTS /usr/bin NO_DEFAULT_PATH)
find_program(SHARDCHECK_PYTHON python3 REQUIRED)
find_program(SHARDCHECK_CLANG_FORMAT clang-format-14)
add_test(NAME house.lint COMMAND ${SHARDCHECK_PYTHON} ${PROJECT_SOURCE_DIR}/ci/lint ${PROJECT_SOURCE_DIR})
add_test(NAME house.lint_fires_on_every_rule COMMAND ${SHARDCHECK_PYTHON} ${PROJECT_SOURCE_DIR}/ci/lint_test.py)
add_test(NAME house.documented_examples_compile
         COMMAND ${SHARDCHECK_PYTHON} ${PROJECT_SOURCE_DIR}/ci/doc_examples ${CMAKE_CXX_COMPILER}
                 ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md)
set(house_tests house.lint house.lint_fires_on_every_rule house.documented_examples_compile)
if(SHARDCHECK_CLANG_FORMAT)
  add_test(NAME house.format COMMAND ${PROJECT_SOURCE_DIR}/ci/format --check)
  list(APPEND house_tests house.format)
endif()
if(NOT SHARDCHECK_SANITIZE)
  add_test(NAME house.installed_package_builds_a_consumer
           COMMAND ${CMAKE_COMMAND} -DBUILD=${PROJECT_BINARY_DIR} -DCONSUMER=${PROJECT_SOURCE_DIR}/lib/tests/consumer
                   -DCXX=${CMAKE_CXX_COMPILER} -DGENERATOR=${CMAKE_GENERATOR}
                   -P ${PROJECT_SOURCE_DIR}/ci/cmake/ConsumerTest.cmake)
  list(APPEND house_tests house.installed_package_builds_a_consumer)
endif()
set_tests_properties(${house_tests} PROPERTIES TIMEOUT 300 LABELS house)

# Every recorded verdict of the corpus still holds.
add_test(NAME corpus.recorded_verdicts_hold COMMAND shardcheck replay ${PROJECT_SOURCE_DIR}/corpus)
set_tests_properties(corpus.recorded_verdicts_hold PROPERTIES TIMEOUT 120)

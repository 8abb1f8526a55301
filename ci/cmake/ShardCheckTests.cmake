# One GoogleTest program per room, and the tests of the house itself: repo lint, format, installation.
# Every test has a timeout, so that nothing hangs CI.
include(GoogleTest)

# shardcheck_tests(NAME FOLDER dir SOURCES... [LINK ...] [FILTER ...]): headers of a folder are included by their path in
# it. All but the heavy ones also run under ASan and UBSan in ci/test (CMakePresets.json names the heavy ones).
function(shardcheck_tests name)
  cmake_parse_arguments(ARG "" "FOLDER;FILTER" "SOURCES;LINK" ${ARGN})
  if(NOT ARG_SOURCES)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  shardcheck_join_sources(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} shardcheck_flags GTest::gmock GTest::gtest_main fmt::fmt
                        nlohmann_json::nlohmann_json)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/${ARG_FOLDER})
  target_compile_definitions(${name} PRIVATE SHARDCHECK_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                             SHARDCHECK_PROGRAM="$<TARGET_FILE:shardcheck>")
  # The optimiser would take most of the time of compiling a test, whose work is in the library.
  if(SHARDCHECK_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  else()
    target_compile_options(${name} PRIVATE -O1)
  endif()
  gtest_discover_tests(${name} TEST_FILTER "${ARG_FILTER}" NO_PRETTY_VALUES PROPERTIES TIMEOUT 300 LABELS ${name} DISCOVERY_TIMEOUT 60)
endfunction()

file(GLOB_RECURSE lib_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lib/tests/*_test.cc)
list(FILTER lib_tests EXCLUDE REGEX "/(cli|consumer)/")
shardcheck_tests(lib_tests FOLDER lib/tests SOURCES ${lib_tests} LINK shardcheck_core Boost::headers)
# Private headers include each other by their path in lib/src; tests of them too.
target_include_directories(lib_tests PRIVATE ${PROJECT_SOURCE_DIR}/lib/src)
foreach(room tolerance mutators properties fuzz)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${room}/tests/*_test.cc)
  shardcheck_tests(${room}_tests FOLDER ${room}/tests SOURCES ${sources} LINK shardcheck_${room})
  target_include_directories(${room}_tests PRIVATE ${PROJECT_SOURCE_DIR}/${room}/src)
endforeach()
file(GLOB cli_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lib/tests/cli/*_test.cc)
shardcheck_tests(cli_tests FOLDER lib/tests/cli SOURCES ${cli_tests} LINK shardcheck_properties)
add_dependencies(cli_tests shardcheck)

# The house: rules no compiler checks. The distribution's interpreter first, not one of a user's environment.
find_program(SHARDCHECK_PYTHON python3 HINTS /usr/bin NO_DEFAULT_PATH)
find_program(SHARDCHECK_PYTHON python3 REQUIRED)
find_program(SHARDCHECK_CLANG_FORMAT clang-format-14)
add_test(NAME house.lint COMMAND ${SHARDCHECK_PYTHON} ${PROJECT_SOURCE_DIR}/ci/lint ${PROJECT_SOURCE_DIR})
add_test(NAME house.lint_fires_on_every_rule COMMAND ${SHARDCHECK_PYTHON} ${PROJECT_SOURCE_DIR}/ci/lint_test.py)
add_test(NAME house.documented_examples_compile
         COMMAND ${SHARDCHECK_PYTHON} ${PROJECT_SOURCE_DIR}/ci/doc_examples ${CMAKE_CXX_COMPILER}
                 ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md)
add_test(NAME house.tidy_checks_every_file COMMAND ${SHARDCHECK_PYTHON} ${PROJECT_SOURCE_DIR}/ci/tidy_test.py)
add_test(NAME house.units_join_what_does_not_clash
         COMMAND ${SHARDCHECK_PYTHON} ${PROJECT_SOURCE_DIR}/ci/units_test.py)
add_test(NAME house.install_deps_needs_apt_alone
         COMMAND ${SHARDCHECK_PYTHON} ${PROJECT_SOURCE_DIR}/ci/install_deps_test.py)
add_test(NAME house.commit_is_of_the_source_tree
         COMMAND ${SHARDCHECK_PYTHON} ${PROJECT_SOURCE_DIR}/ci/commit_test.py $<TARGET_FILE:shardcheck>)
add_test(NAME house.nightly_finds_and_tells COMMAND ${SHARDCHECK_PYTHON} ${PROJECT_SOURCE_DIR}/ci/nightly_test.py)
add_test(NAME house.selftest_patches_apply COMMAND ${SHARDCHECK_PYTHON} ${PROJECT_SOURCE_DIR}/ci/selftest/apply_test.py)
set(house_tests house.nightly_finds_and_tells house.selftest_patches_apply house.lint house.lint_fires_on_every_rule house.documented_examples_compile
                house.tidy_checks_every_file house.units_join_what_does_not_clash house.install_deps_needs_apt_alone house.commit_is_of_the_source_tree)
if(SHARDCHECK_CLANG_FORMAT)
  add_test(NAME house.format COMMAND ${PROJECT_SOURCE_DIR}/ci/format --check)
  list(APPEND house_tests house.format)
endif()
if(NOT SHARDCHECK_SANITIZE AND NOT SHARDCHECK_FETCHED)
  add_test(NAME house.installed_package_builds_a_consumer
           COMMAND ${CMAKE_COMMAND} -DBUILD=${PROJECT_BINARY_DIR} -DCONSUMER=${PROJECT_SOURCE_DIR}/lib/tests/consumer
                   -DCXX=${CMAKE_CXX_COMPILER} -DGENERATOR=${CMAKE_GENERATOR}
                   -P ${PROJECT_SOURCE_DIR}/ci/cmake/ConsumerTest.cmake)
  list(APPEND house_tests house.installed_package_builds_a_consumer)
endif()
set_tests_properties(${house_tests} PROPERTIES TIMEOUT 300 LABELS house)

# Every file of the corpus is complete, canonical and no repetition, and every recorded verdict still holds.
add_test(NAME corpus.recorded_verdicts_hold COMMAND shardcheck corpus verify ${PROJECT_SOURCE_DIR}/corpus)
set_tests_properties(corpus.recorded_verdicts_hold PROPERTIES TIMEOUT 120)

# Every target holds on its seeds.
add_test(NAME fuzz.seeds_replay COMMAND fuzz_replay ${PROJECT_SOURCE_DIR}/corpus/seeds)
set_tests_properties(fuzz.seeds_replay PROPERTIES TIMEOUT 120)

# The threads of the laws and of the kill matrix, as the program uses them, and under ThreadSanitizer the tests of what
# threads share: what `ctest --preset tsan` runs.
add_test(NAME threads.laws_share_nothing COMMAND shardcheck run --law=sharded_equals_reference --cases=8 --jobs=4 --seed=1)
add_test(NAME threads.kill_matrix_shares_nothing
         COMMAND shardcheck kill --fault=slice_fused_qkv_contiguously --cases=2 --jobs=4 --seed=1)
set_tests_properties(threads.laws_share_nothing threads.kill_matrix_shares_nothing
                     PROPERTIES TIMEOUT 300 PROCESSORS 2 LABELS threads)
if(SHARDCHECK_SANITIZE MATCHES "thread")
  set(threaded lib/tests/arithmetic/gemm_test.cc lib/tests/tensor/tensor_test.cc mutators/tests/workers_test.cc)
  list(TRANSFORM threaded PREPEND ${PROJECT_SOURCE_DIR}/)
  shardcheck_tests(threads_tests FOLDER lib/tests SOURCES ${threaded} LINK shardcheck_mutators
                   FILTER "GemmThreads.*:Tensor.*Thread*:RunOnWorkers.*")
  add_dependencies(threads_tests shardcheck)
endif()

# Options and the interface target that carries compile flags; nothing is set globally.
option(SHARDCHECK_WERROR "Treat warnings as errors" OFF)
option(SHARDCHECK_BUILD_BENCH "Build the benchmarks (needs Google Benchmark)" OFF)
option(SHARDCHECK_ASSERTS "Keep assert() in every build type" OFF)
set(SHARDCHECK_SANITIZE "" CACHE STRING "Comma-separated sanitizers for -fsanitize=, e.g. address,undefined")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_program(SHARDCHECK_CCACHE ccache)
if(SHARDCHECK_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${SHARDCHECK_CCACHE}")
endif()

add_library(shardcheck_flags INTERFACE)
target_compile_features(shardcheck_flags INTERFACE cxx_std_20)
# No contraction: every fused multiply-add is written out, so that bits do not depend on the compiler.
target_compile_options(shardcheck_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
                       # A false positive of g++ 12 inside fmt when its asserts are on.
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow>
                       -ffp-contract=off -fno-fast-math
                       $<$<BOOL:${SHARDCHECK_WERROR}>:-Werror>
                       $<$<BOOL:${SHARDCHECK_ASSERTS}>:-UNDEBUG>)
if(SHARDCHECK_SANITIZE)
  target_compile_options(shardcheck_flags INTERFACE -fsanitize=${SHARDCHECK_SANITIZE} -fno-sanitize-recover=all
                         -fno-omit-frame-pointer -g1)
  target_link_options(shardcheck_flags INTERFACE -fsanitize=${SHARDCHECK_SANITIZE})
endif()

# shardcheck_join_sources(TARGET): under CMAKE_UNITY_BUILD, compiles files together whose names do not clash.
function(shardcheck_join_sources target)
  if(NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "^${CMAKE_BINARY_DIR}/")
  list(SORT sources)
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/ci/units.py ${sources} WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
                  OUTPUT_VARIABLE units OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE ";" "," units "${units}")
  string(REPLACE "\n" ";" units "${units}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  foreach(unit IN LISTS units)
    if(unit MATCHES "^([^,]+),")
      file(RELATIVE_PATH group ${PROJECT_SOURCE_DIR} ${CMAKE_MATCH_1})
      string(MAKE_C_IDENTIFIER ${group} group)
      string(REPLACE "," ";" unit "${unit}")
      set_source_files_properties(${unit} PROPERTIES UNITY_GROUP ${group})
    endif()
  endforeach()
endfunction()

# shardcheck_room(NAME ROOM_DIR SOURCES... [LINK ...]): a static library of one room.
function(shardcheck_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
                             $<INSTALL_INTERFACE:include>
                             PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC ${ARG_LINK} PRIVATE $<BUILD_INTERFACE:shardcheck_flags>)
  target_compile_features(${name} PUBLIC cxx_std_20)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  shardcheck_join_sources(${name})
endfunction()

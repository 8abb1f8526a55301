# Third-party packages: the distribution's where there is one (ci/install-deps installs them all on Debian 12), else the
# release that Debian 12 has, fetched and pinned by its hash. CMAKE_DISABLE_FIND_PACKAGE_<name>=ON asks for the fetched
# one of fmt, nlohmann_json, hwy, Boost, GTest or benchmark; FETCHCONTENT_SOURCE_DIR_<NAME> gives a folder instead of a
# download. A build that fetched something cannot be installed: its archives would need what nobody installs.
option(SHARDCHECK_FETCH "Fetch a third-party package that is not installed" ON)
include(FetchContent)

# shardcheck_fetch(NAME URL SHA256 [SETTING VALUE]...): the settings are the package's own variables.
function(shardcheck_fetch name url sha256)
  if(NOT SHARDCHECK_FETCH)
    message(FATAL_ERROR "${name} is not installed (on Debian: ci/install-deps) and SHARDCHECK_FETCH is off")
  endif()
  message(STATUS "${name} is not installed: taking ${url}")
  set_property(GLOBAL APPEND PROPERTY SHARDCHECK_FETCHED ${name})
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)     # their options yield to the settings
  set(CMAKE_POLICY_VERSION_MINIMUM 3.5)     # what they ask for is older than what CMake 4 accepts
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  set(BUILD_TESTING OFF)
  set(BUILD_SHARED_LIBS OFF)
  set(options ${ARGN})
  while(options)
    list(POP_FRONT options key value)
    string(REPLACE "," ";" value "${value}")
    set(${key} "${value}")
  endwhile()
  set(system "")
  if(CMAKE_VERSION VERSION_GREATER_EQUAL 3.25)
    set(system SYSTEM)  # our warnings are not theirs
  endif()
  FetchContent_Declare(${name} URL ${url} URL_HASH SHA256=${sha256} DOWNLOAD_EXTRACT_TIMESTAMP FALSE
                       SOURCE_SUBDIR "${SHARDCHECK_SUBDIR}" ${system})
  FetchContent_MakeAvailable(${name})
endfunction()

find_package(Threads REQUIRED)

find_package(fmt 9 QUIET)
if(NOT TARGET fmt::fmt)
  shardcheck_fetch(fmt https://github.com/fmtlib/fmt/archive/refs/tags/9.1.0.tar.gz
                   5dea48d1fcddc3ec571ce2058e13910a0d4a6bab4cc09a809d8b1dd1c88ae6f2)
endif()

find_package(nlohmann_json 3.11 QUIET)
if(NOT TARGET nlohmann_json::nlohmann_json)
  shardcheck_fetch(nlohmann_json https://github.com/nlohmann/json/releases/download/v3.11.2/json.tar.xz
                   8c4b26bf4b422252e13f332bc5e388ec0ab5c3443d24399acb675e68278d341f)
endif()

find_package(hwy 1.0 CONFIG QUIET)
if(NOT TARGET hwy::hwy)
  shardcheck_fetch(hwy https://github.com/google/highway/archive/refs/tags/1.0.3.tar.gz
                   566fc77315878473d9a6bd815f7de78c73734acdcb745c3dde8579560ac5440e
                   HWY_ENABLE_TESTS OFF HWY_ENABLE_EXAMPLES OFF HWY_ENABLE_CONTRIB OFF)
  add_library(hwy::hwy ALIAS hwy)
endif()

find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(XXHASH QUIET IMPORTED_TARGET GLOBAL libxxhash>=0.8)
endif()
if(NOT TARGET PkgConfig::XXHASH)
  shardcheck_fetch(xxhash https://github.com/Cyan4973/xxHash/archive/refs/tags/v0.8.1.tar.gz
                   3bb6b7d6f30c591dd65aaaff1c8b7a5b94d81687998ca9400082c739a690436c
                   SHARDCHECK_SUBDIR cmake_unofficial XXHASH_BUILD_XXHSUM OFF)
  add_library(PkgConfig::XXHASH ALIAS xxhash)
endif()

# Headers and program_options; the release of 1.84 is the smallest archive with a CMake build.
find_package(Boost 1.74 QUIET COMPONENTS program_options)
if(NOT TARGET Boost::program_options)
  shardcheck_fetch(Boost https://github.com/boostorg/boost/releases/download/boost-1.84.0/boost-1.84.0.tar.xz
                   2e64e5d79a738d0fa6fb546c6e5c2bd28f88d268a2a080546f74e5ff98f29d0e
                   BOOST_ENABLE_CMAKE ON BOOST_INCLUDE_LIBRARIES program_options,multiprecision)
  add_library(Boost::headers INTERFACE IMPORTED GLOBAL)
  target_link_libraries(Boost::headers INTERFACE Boost::multiprecision)
endif()

find_path(RAPIDCHECK_INCLUDE_DIR rapidcheck.h)
find_library(RAPIDCHECK_LIBRARY rapidcheck)
if(RAPIDCHECK_LIBRARY AND RAPIDCHECK_INCLUDE_DIR)
  add_library(rapidcheck::rapidcheck UNKNOWN IMPORTED)
  set_target_properties(rapidcheck::rapidcheck PROPERTIES IMPORTED_LOCATION "${RAPIDCHECK_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${RAPIDCHECK_INCLUDE_DIR}")
else()
  shardcheck_fetch(rapidcheck
                   https://github.com/emil-e/rapidcheck/archive/ff6af6fc683159deb51c543b065eba14dfcf329b.zip
                   60951dbc4de162622f51a4a34117c269a9921833a51dddce36f4cc80a5f7cf9f)
  add_library(rapidcheck::rapidcheck ALIAS rapidcheck)
endif()

if(BUILD_TESTING OR NOT DEFINED BUILD_TESTING)
  find_package(GTest 1.12 QUIET)
  if(NOT TARGET GTest::gmock)
    shardcheck_fetch(GTest https://github.com/google/googletest/archive/refs/tags/release-1.12.1.tar.gz
                     81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2)
  endif()
endif()
if(SHARDCHECK_BUILD_BENCH)
  find_package(benchmark QUIET)
  if(NOT TARGET benchmark::benchmark)
    shardcheck_fetch(benchmark https://github.com/google/benchmark/archive/refs/tags/v1.7.1.tar.gz
                     6430e4092653380d9dc4ccb45a1e2dc9259d581f4866dc0759713126056bc1d7
                     BENCHMARK_ENABLE_TESTING OFF)
  endif()
endif()

get_property(SHARDCHECK_FETCHED GLOBAL PROPERTY SHARDCHECK_FETCHED)

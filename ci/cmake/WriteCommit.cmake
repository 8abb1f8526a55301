# Writes a header with the commit of the source tree, when the content differs from what is there:
#   cmake -DSOURCE=DIR -DHEADER=FILE -P WriteCommit.cmake
# Runs with every build, so that a commit made after configuring is the one reported. "-dirty" says that the tree
# holds something that the commit does not; "unknown" that SOURCE is no git work tree of its own.
function(git out)
  execute_process(COMMAND ${GIT_EXECUTABLE} -c safe.directory=* -C ${SOURCE} ${ARGN} OUTPUT_VARIABLE text
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    set(text "failed")
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

find_package(Git QUIET)
set(commit "unknown")
if(GIT_FOUND)
  # An unpacked archive may lie inside somebody else's work tree, whose commit says nothing about it.
  git(prefix rev-parse --show-prefix)
  git(head rev-parse --verify --short=12 HEAD)
  git(changes status --porcelain)
  if(prefix STREQUAL "" AND head MATCHES "^[0-9a-f]+$")
    set(commit "${head}")
    if(NOT changes STREQUAL "")
      string(APPEND commit "-dirty")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT "${HEADER}" CONTENT "#pragma once\n#define SHARDCHECK_COMMIT \"${commit}\"\n" @ONLY)

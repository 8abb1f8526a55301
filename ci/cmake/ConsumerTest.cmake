# Installs a build into a fresh prefix, builds a project that knows only that prefix, and runs it.
# cmake -DBUILD=... -DCONSUMER=... -DCXX=... -DGENERATOR=... -P ConsumerTest.cmake
set(work ${BUILD}/consumer)
file(REMOVE_RECURSE ${work})

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/prefix)
run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${work}/build -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${work}/prefix)
run(${CMAKE_COMMAND} --build ${work}/build)
run(${work}/build/core_consumer)
run(${work}/build/testing_consumer)
run(${work}/prefix/bin/shardcheck list)
file(GLOB layouts ${work}/prefix/share/shardcheck/layouts/*.json)
if(NOT layouts)
  message(FATAL_ERROR "no layout table was installed")
endif()

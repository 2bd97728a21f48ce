# Programs with garbage-collected heaps; where a package is missing, the tests that need it are skipped.
find_path(GC_HEADER gc/gc.h)
find_library(GC_LIBRARY gc)
find_library(GC_STATIC_LIBRARY libgc.a)
if(GC_HEADER AND GC_LIBRARY)
  workload(gc_cases SOURCES gc_cases.c USES workload_main ${GC_LIBRARY})
  workload(gc_garbage SOURCES gc_garbage.c USES ${GC_LIBRARY})
  workload(gc_fork SOURCES gc_fork.c USES ${GC_LIBRARY})
endif()
if(GC_HEADER AND GC_STATIC_LIBRARY)
  workload(gc_cases_static SOURCES gc_cases.c USES workload_main ${GC_STATIC_LIBRARY} Threads::Threads)
  target_link_options(gc_cases_static PRIVATE -static)
  workload(gc_garbage_static SOURCES gc_garbage.c USES ${GC_STATIC_LIBRARY} Threads::Threads)
endif()

# What the compiler prints has the numbers of all types.
find_program(CRYSTAL crystal)
if(CRYSTAL)
  set(animals ${CMAKE_CURRENT_BINARY_DIR}/crystal_animals)
  set(crystal_cache ${CMAKE_CURRENT_BINARY_DIR}/crystal_cache)
  add_custom_command(OUTPUT ${animals} ${animals}.types
                     COMMAND ${CMAKE_COMMAND} -E env CRYSTAL_DUMP_TYPE_ID=1 CRYSTAL_CACHE_DIR=${crystal_cache}
                             sh -c "exec ${CRYSTAL} build -o ${animals} ${CMAKE_CURRENT_SOURCE_DIR}/crystal/animals.cr >${animals}.types"
                     DEPENDS crystal/animals.cr VERBATIM)
  set(crystal_builds ${animals})
  foreach(build "no_debug;--no-debug" "release;--release" "release_no_debug;--release;--no-debug")
    list(POP_FRONT build name)
    add_custom_command(OUTPUT ${animals}_${name}
                       COMMAND ${CMAKE_COMMAND} -E env CRYSTAL_CACHE_DIR=${crystal_cache}_${name}
                               ${CRYSTAL} build ${build} -o ${animals}_${name} ${CMAKE_CURRENT_SOURCE_DIR}/crystal/animals.cr
                       DEPENDS crystal/animals.cr VERBATIM)
    list(APPEND crystal_builds ${animals}_${name})
  endforeach()
  add_custom_target(crystal_workloads DEPENDS ${crystal_builds})
  add_dependencies(workloads crystal_workloads)
endif()

# A Go program that keeps a heap profile, whole and stripped.
find_program(GO go)
if(GO)
  set(go_heap ${CMAKE_CURRENT_BINARY_DIR}/go_heap)
  set(go_cache ${CMAKE_CURRENT_BINARY_DIR}/stacks/go)
  set(go_cgo ${CMAKE_CURRENT_BINARY_DIR}/go_cgo)
  set(go_environment ${CMAKE_COMMAND} -E env GO111MODULE=off GOCACHE=${go_cache} GOPATH=${go_cache} GOFLAGS=)
  set(go_build ${go_environment} CGO_ENABLED=0 ${GO} build)
  add_custom_command(OUTPUT ${go_heap} ${go_heap}_stripped ${go_cgo}
                     COMMAND ${go_environment} CGO_ENABLED=1 CC=${CMAKE_C_COMPILER} ${GO} build -o ${go_cgo} ${CMAKE_CURRENT_SOURCE_DIR}/go_cgo/go_cgo.go
                     COMMAND ${go_build} -o ${go_heap} ${CMAKE_CURRENT_SOURCE_DIR}/go_heap/go_heap.go
                     COMMAND ${go_build} -ldflags=-s\ -w -o ${go_heap}_stripped ${CMAKE_CURRENT_SOURCE_DIR}/go_heap/go_heap.go
                     DEPENDS go_heap/go_heap.go go_cgo/go_cgo.go VERBATIM)
  add_custom_target(go_heap_workloads DEPENDS ${go_heap})
  add_dependencies(workloads go_heap_workloads)
endif()

# The matrix of allocators: the cases of allocator_*_cases on each allocator that is installed, in each way in which a
# program can come to it. tests/workloads/allocators.jsonl in the build directory tells the tests what there is, one
# line a combination: {"allocator", "way", "program", "environment": [...], "without": [cases]}, or "missing": why not.
set(allocator_lines "")

function(matrix_entry allocator way program environment without)
  list(TRANSFORM environment REPLACE "(.+)" "\"\\1\"")
  list(TRANSFORM without REPLACE "(.+)" "\"\\1\"")
  list(JOIN environment "," environment)
  list(JOIN without "," without)
  string(CONCAT line "{\"allocator\":\"${allocator}\",\"way\":\"${way}\",\"program\":\"${program}\","
         "\"environment\":[${environment}],\"without\":[${without}]}\n")
  set(allocator_lines "${allocator_lines}${line}" PARENT_SCOPE)
endfunction()

function(matrix_missing allocator way reason)
  message(STATUS "tests: no ${allocator}, ${way}: ${reason}")
  set(line "{\"allocator\":\"${allocator}\",\"way\":\"${way}\",\"missing\":\"${reason}\"}\n")
  set(allocator_lines "${allocator_lines}${line}" PARENT_SCOPE)
endfunction()

# matrix_programs(ALLOCATOR WAY [LINK OPTIONS...] [LIBRARIES...] [WITHOUT C++-CASES...]): the C and the C++ program with
# that allocator inside.
function(matrix_programs allocator way)
  cmake_parse_arguments(MATRIX "" "" "LINK;LIBRARIES;WITHOUT" ${ARGN})
  string(MAKE_C_IDENTIFIER "${allocator}_${way}" suffix)
  foreach(kind c cxx)
    set(name allocator_${kind}_${suffix})
    if(kind STREQUAL c)
      set(sources allocator_cases.c)
      set(without "")
    else()
      set(sources allocator_cxx_cases.cpp)
      set(without "${MATRIX_WITHOUT}")
    endif()
    workload(${name} SOURCES ${sources} USES workload_main workload_threads ${MATRIX_LIBRARIES})
    target_link_options(${name} PRIVATE ${MATRIX_LINK})
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
    matrix_entry("${allocator}" "${way}" ${name} "" "${without}")
  endforeach()
  set(allocator_lines "${allocator_lines}" PARENT_SCOPE)
endfunction()

# Both programs as they are on the C library, with the library preloaded.
function(matrix_preloaded allocator library)
  cmake_parse_arguments(MATRIX "" "" "WITHOUT" ${ARGN})
  matrix_entry("${allocator}" preloaded allocator_c_glibc_linked "LD_PRELOAD=${library}" "")
  matrix_entry("${allocator}" preloaded allocator_cxx_glibc_linked "LD_PRELOAD=${library}" "${MATRIX_WITHOUT}")
  set(allocator_lines "${allocator_lines}" PARENT_SCOPE)
endfunction()

# foreign_workload(NAME COMPILER... SOURCES FILES... OPTIONS...): a C program by a compiler that is not CMake's.
function(foreign_workload name)
  cmake_parse_arguments(FOREIGN "" "" "COMPILER;SOURCES;OPTIONS" ${ARGN})
  list(TRANSFORM FOREIGN_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.h)
  add_custom_command(
    OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}
    COMMAND ${FOREIGN_COMPILER} -O2 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls -Wall -Wextra -Werror
            ${FOREIGN_OPTIONS} ${FOREIGN_SOURCES} -o ${CMAKE_CURRENT_BINARY_DIR}/${name}
    DEPENDS ${FOREIGN_SOURCES} ${headers}
    COMMENT "building workload ${name}"
    VERBATIM)
  add_custom_target(${name}_workload DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/${name})
  add_dependencies(workloads ${name}_workload)
endfunction()

# Position-independent all, so that one object fits each way of linking.
foreach(library workload_truth workload_main workload_threads)
  set_target_properties(${library} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endforeach()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# libstdc++'s nothrow forms throw and catch inside, and the exception allocates: cxx_cases counts that.
set(libstdcxx_differs new_nothrow_fails)
matrix_programs(glibc linked WITHOUT ${libstdcxx_differs})
matrix_programs(glibc static LINK -static WITHOUT ${libstdcxx_differs})
matrix_programs(glibc static-pie LINK -static-pie WITHOUT ${libstdcxx_differs})

find_library(JEMALLOC_LIBRARY jemalloc)
find_library(JEMALLOC_ARCHIVE libjemalloc_pic.a)
if(JEMALLOC_LIBRARY AND JEMALLOC_ARCHIVE)
  matrix_programs(jemalloc linked LIBRARIES ${JEMALLOC_LIBRARY})
  matrix_programs(jemalloc inside LIBRARIES ${JEMALLOC_ARCHIVE})
  matrix_programs(jemalloc static LINK -static LIBRARIES ${JEMALLOC_ARCHIVE})
  matrix_programs(jemalloc static-pie LINK -static-pie LIBRARIES ${JEMALLOC_ARCHIVE})
  matrix_preloaded(jemalloc ${JEMALLOC_LIBRARY})
  workload(jemalloc_api_linked SOURCES jemalloc_api_cases.c USES workload_main ${JEMALLOC_LIBRARY})
  matrix_entry(jemalloc "own functions, linked" jemalloc_api_linked "" "")
  workload(jemalloc_api_static SOURCES jemalloc_api_cases.c USES workload_main ${JEMALLOC_ARCHIVE})
  target_link_options(jemalloc_api_static PRIVATE -static)
  set_target_properties(jemalloc_api_static PROPERTIES LINKER_LANGUAGE CXX)
  matrix_entry(jemalloc "own functions, static" jemalloc_api_static "" "")
else()
  matrix_missing(jemalloc "all ways" "libjemalloc-dev is not installed")
endif()

foreach(allocator tcmalloc tcmalloc_minimal)
  string(TOUPPER ${allocator} upper)
  find_library(${upper}_LIBRARY ${allocator})
  find_library(${upper}_ARCHIVE lib${allocator}.a)
  if(NOT ${upper}_LIBRARY OR NOT ${upper}_ARCHIVE)
    matrix_missing(${allocator} "all ways" "libgoogle-perftools-dev is not installed")
    continue()
  endif()
  set(archive ${${upper}_ARCHIVE})
  if(allocator STREQUAL tcmalloc)
    list(APPEND archive unwind lzma)
  endif()
  matrix_programs(${allocator} linked LIBRARIES ${${upper}_LIBRARY})
  matrix_programs(${allocator} inside LIBRARIES ${archive})
  matrix_preloaded(${allocator} ${${upper}_LIBRARY})
  workload(${allocator}_api_linked SOURCES tcmalloc_api_cases.cpp USES workload_main ${${upper}_LIBRARY})
  matrix_entry(${allocator} "own functions, linked" ${allocator}_api_linked "" "")
  if(allocator STREQUAL tcmalloc)
    matrix_missing(tcmalloc static "Debian's libunwind.a and libgcc_eh.a define the same functions")
    continue()
  endif()
  matrix_programs(${allocator} static LINK -static LIBRARIES ${archive})
  matrix_programs(${allocator} static-pie LINK -static-pie LIBRARIES ${archive})
  workload(${allocator}_api_static SOURCES tcmalloc_api_cases.cpp USES workload_main ${archive})
  target_link_options(${allocator}_api_static PRIVATE -static)
  matrix_entry(${allocator} "own functions, static" ${allocator}_api_static "" "")
endforeach()

find_library(MIMALLOC_LIBRARY mimalloc)
if(MIMALLOC_LIBRARY)
  # Debian builds it as C, so that a failing operator new ends the program, traced or not.
  set(mimalloc_differs new_throws new_handler_allocates)
  matrix_programs(mimalloc linked LIBRARIES ${MIMALLOC_LIBRARY} WITHOUT ${mimalloc_differs})
  matrix_preloaded(mimalloc ${MIMALLOC_LIBRARY} WITHOUT ${mimalloc_differs})
  workload(mimalloc_api_linked SOURCES mimalloc_api_cases.c USES workload_main ${MIMALLOC_LIBRARY})
  matrix_entry(mimalloc "own functions, linked" mimalloc_api_linked "" "")
  matrix_missing(mimalloc static "libmimalloc-dev has no archive")
else()
  matrix_missing(mimalloc "all ways" "libmimalloc-dev is not installed")
endif()

matrix_missing(snmalloc "all ways" "Debian has no package")

set(foreign_sources allocator_cases.c workload.c truth.c)
find_program(MUSL_GCC musl-gcc)
if(MUSL_GCC)
  foreach(way linked static static-pie)
    set(options)
    if(NOT way STREQUAL linked)
      set(options -${way} -fPIE)
    endif()
    string(MAKE_C_IDENTIFIER "allocator_c_musl_${way}" name)
    foreign_workload(${name} COMPILER ${MUSL_GCC} SOURCES ${foreign_sources} threads.c OPTIONS ${options})
    matrix_entry(musl ${way} ${name} "" "")
  endforeach()
else()
  matrix_missing(musl "all ways" "musl-tools is not installed")
endif()

find_program(DIET diet)
if(DIET)
  foreign_workload(allocator_c_dietlibc COMPILER ${DIET} ${CMAKE_C_COMPILER} SOURCES ${foreign_sources})
  matrix_entry(dietlibc static allocator_c_dietlibc "" "")
else()
  matrix_missing(dietlibc static "dietlibc-dev is not installed")
endif()

# A program that defines malloc itself.
workload(allocator_c_own SOURCES allocator_cases.c bump_malloc.c USES workload_main workload_threads)
matrix_entry("own malloc" linked allocator_c_own "" "")
workload(allocator_c_own_static SOURCES allocator_cases.c bump_malloc.c USES workload_main workload_threads)
target_link_options(allocator_c_own_static PRIVATE -static)
matrix_entry("own malloc" static allocator_c_own_static "" "")
set_source_files_properties(bump_malloc.c PROPERTIES COMPILE_OPTIONS -fno-builtin)

# Plugins that hide an allocator of their own.
function(plugin name)
  cmake_parse_arguments(PLUGIN "" "" "SOURCES;LIBRARIES;ENVIRONMENT" ${ARGN})
  add_library(plugin_${name} SHARED plugin_library.c ${PLUGIN_SOURCES})
  workload_flags(plugin_${name})
  target_compile_options(plugin_${name} PRIVATE -fvisibility=hidden)
  target_link_libraries(plugin_${name} PRIVATE ${PLUGIN_LIBRARIES} -Wl,--exclude-libs,ALL)
  workload(plugin_${name}_cases SOURCES plugin_cases.c USES workload_main ${CMAKE_DL_LIBS})
  target_compile_definitions(plugin_${name}_cases PRIVATE PLUGIN="libplugin_${name}.so")
  add_dependencies(workloads plugin_${name})
  matrix_entry("${name} in a plugin" opened plugin_${name}_cases "${PLUGIN_ENVIRONMENT}" "")
  set(allocator_lines "${allocator_lines}" PARENT_SCOPE)
endfunction()
plugin(bump SOURCES bump_malloc.c)
if(JEMALLOC_ARCHIVE)
  # Its thread-local variables are of the kind that must be there from the start (initial-exec).
  plugin(jemalloc LIBRARIES ${JEMALLOC_ARCHIVE} m ENVIRONMENT GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384)
else()
  matrix_missing("jemalloc in a plugin" opened "libjemalloc-dev is not installed")
endif()

# A static program without symbols, and its debug file by .gnu_debuglink and by build-id.
function(stripped_workload name original)
  set(path ${CMAKE_CURRENT_BINARY_DIR}/${name})
  add_custom_command(
    OUTPUT ${path} ${path}.debug
    COMMAND ${CMAKE_OBJCOPY} --only-keep-debug $<TARGET_FILE:${original}> ${path}.debug
    COMMAND ${CMAKE_OBJCOPY} --strip-all --add-gnu-debuglink=${path}.debug $<TARGET_FILE:${original}> ${path}
    DEPENDS ${original}
    COMMENT "stripping workload ${name}"
    VERBATIM)
  add_custom_target(${name}_workload DEPENDS ${path})
  add_dependencies(workloads ${name}_workload)
endfunction()
target_link_options(allocator_c_glibc_static PRIVATE -Wl,--build-id)
stripped_workload(stripped_static allocator_c_glibc_static)

# prefixed_jemalloc(PREFIX): lib${PREFIX}jemalloc.a, jemalloc under names of a program's own. The workloads in C are
# compiled with the same names by the variable ${PREFIX}definitions.
function(prefixed_jemalloc prefix)
  set(archive ${CMAKE_CURRENT_BINARY_DIR}/lib${prefix}jemalloc.a)
  set(renames)
  set(definitions)
  foreach(name malloc calloc realloc free posix_memalign aligned_alloc memalign valloc malloc_usable_size mallctl
          mallocx rallocx xallocx sallocx dallocx sdallocx nallocx)
    list(APPEND renames --redefine-sym ${name}=${prefix}${name})
    list(APPEND definitions ${name}=${prefix}${name})
  endforeach()
  add_custom_command(
    OUTPUT ${archive}
    COMMAND ${CMAKE_OBJCOPY} ${renames} ${JEMALLOC_ARCHIVE} ${archive}
    COMMENT "renaming jemalloc's functions to ${prefix}*"
    VERBATIM)
  add_custom_target(${prefix}jemalloc DEPENDS ${archive})
  set(${prefix}definitions ${definitions} PARENT_SCOPE)
endfunction()

if(JEMALLOC_ARCHIVE)
  prefixed_jemalloc(app_)
  workload(prefixed_jemalloc_cases SOURCES jemalloc_api_cases.c
           USES workload_main ${CMAKE_CURRENT_BINARY_DIR}/libapp_jemalloc.a)
  target_compile_definitions(prefixed_jemalloc_cases PRIVATE ${app_definitions})
  set_target_properties(prefixed_jemalloc_cases PROPERTIES LINKER_LANGUAGE CXX)
  add_dependencies(prefixed_jemalloc_cases app_jemalloc)
endif()

# rust_workload(NAME [OPTIONS...] [DEPENDS...])
function(rust_workload name)
  cmake_parse_arguments(RUST "" "" "OPTIONS;DEPENDS" ${ARGN})
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/rust_cases.rs)
  add_custom_command(
    OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}
    COMMAND ${RUSTC} --edition 2021 -O -g -D warnings ${RUST_OPTIONS} ${source} -o ${CMAKE_CURRENT_BINARY_DIR}/${name}
    DEPENDS ${source} ${RUST_DEPENDS}
    COMMENT "building workload ${name}"
    VERBATIM)
  add_custom_target(${name}_workload DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/${name})
  add_dependencies(workloads ${name}_workload)
endfunction()

find_program(RUSTC rustc)
if(NOT RUSTC)
  matrix_missing(rust "all ways" "rustc is not installed")
else()
  rust_workload(rust_cases)
  matrix_entry(rust "on the C library" rust_cases "" "")
endif()
if(RUSTC AND JEMALLOC_ARCHIVE)
  # As the crates that bring a jemalloc name it.
  prefixed_jemalloc(_rjem_)
  set(archive ${CMAKE_CURRENT_BINARY_DIR}/lib_rjem_jemalloc.a)
  rust_workload(rust_jemalloc_cases OPTIONS --cfg jemalloc -C "link-args=${archive} -lm -lstdc++"
                DEPENDS ${archive} _rjem_jemalloc)
  matrix_entry(rust "on jemalloc with the prefix _rjem_" rust_jemalloc_cases "" "")
endif()

# A pool on top of malloc, in the program and in a library.
workload(pool_cases SOURCES pool_cases.c pool.c USES workload_main)
add_library(workload_pool SHARED pool.c)
workload_flags(workload_pool)
workload(pool_library_cases SOURCES pool_cases.c USES workload_main workload_pool)

file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/allocators.jsonl CONTENT "${allocator_lines}")

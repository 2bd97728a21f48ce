# bpf_object(NAME FILE.bpf.c): compiles it for BPF and makes its skeleton; link NAME_skel to include "NAME.skel.h".
# Headers are found by clang's own dependency file, so none is listed by hand. FILE is built without BTF of the build
# host: the kernel types it needs are declared in bpf/kernel_types.h.

find_program(BPF_CLANG NAMES clang clang-14 REQUIRED)
find_program(BPF_TOOL NAMES bpftool PATHS /usr/sbin /sbin REQUIRED)

function(bpf_object name source)
  set(directory ${CMAKE_BINARY_DIR}/bpf)
  set(object ${directory}/${name}.bpf.o)
  set(skeleton ${directory}/${name}.skel.h)
  file(MAKE_DIRECTORY ${directory})
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${BPF_CLANG} -target bpf -D__TARGET_ARCH_x86 -mcpu=v3 -g -O2 -Wall -Wextra -Wno-unused-parameter -Werror
            -idirafter /usr/include/${CMAKE_LIBRARY_ARCHITECTURE} -I${CMAKE_SOURCE_DIR}/include -I${CMAKE_SOURCE_DIR}/bpf -MD -MF ${object}.d -MT ${object}
            -c ${source} -o ${object}
    DEPENDS ${source}
    DEPFILE ${object}.d
    COMMENT "compiling BPF object ${name}"
    VERBATIM)
  add_custom_command(
    OUTPUT ${skeleton}
    COMMAND ${BPF_TOOL} gen skeleton ${object} name ${name}_bpf > ${skeleton}.new
    COMMAND ${CMAKE_COMMAND} -E rename ${skeleton}.new ${skeleton}
    DEPENDS ${object}
    COMMENT "making BPF skeleton ${name}"
    VERBATIM)
  add_custom_target(${name}_skel_files DEPENDS ${skeleton})
  add_library(${name}_skel INTERFACE)
  target_include_directories(${name}_skel SYSTEM INTERFACE ${directory})
  add_dependencies(${name}_skel ${name}_skel_files)
endfunction()

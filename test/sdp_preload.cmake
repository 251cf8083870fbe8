# SDP_PRELOAD: what LD_PRELOAD has to name for a program to run over SDP; empty if there is no such thing.
# SDP_PRELOAD_AHEAD: the part of it in front of libsdp.so.
#
# A sanitizer's run time stands in front of the C library too, as a shared object, which is what GCC links.
# ASan's wants to be the first: program, run time, libsdp.so, libc. TSan's has to stand behind libsdp.so,
# since what one of its functions calls (a lock, say) it does not see.
set(SDP_PRELOAD)
set(SDP_PRELOAD_AHEAD)
if(NOT TARGET sdp_library OR (SDP_SANITIZE AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU"))
  return()
endif()
set(behind)
foreach(sanitizer thread:tsan undefined:ubsan address:asan)
  string(REPLACE ":" ";" sanitizer ${sanitizer})
  list(GET sanitizer 0 flag)
  list(GET sanitizer 1 name)
  if(SDP_SANITIZE MATCHES ${flag})
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=lib${name}.so OUTPUT_VARIABLE path
                    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    file(REAL_PATH "${path}" path)
    if(flag STREQUAL "thread")
      set(behind ":${path}")
    else()
      string(PREPEND SDP_PRELOAD_AHEAD "${path}:")
    endif()
  endif()
endforeach()
set(SDP_PRELOAD ${SDP_PRELOAD_AHEAD}$<TARGET_FILE:sdp_library>${behind})

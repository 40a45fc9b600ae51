# Compile options shared by every target, as one interface library.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g") # sanitizers at -O0 are too slow for the larger tests
set(ECH_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize= (address,undefined | thread)")
option(ECH_WERROR "Warnings are errors" ON)
option(ECH_FUZZ "Build the libFuzzer targets of tests/fuzz (clang)" OFF)

add_library(ech_options INTERFACE)
target_compile_definitions(ech_options INTERFACE _GNU_SOURCE)
target_compile_options(ech_options INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
  -fstack-protector-strong -fno-math-errno -ffp-contract=off)
if(CMAKE_C_COMPILER_ID STREQUAL "Clang")
  # ECH_ASSERT(!"what cannot be") is how an impossible branch is named.
  target_compile_options(ech_options INTERFACE -Wdocumentation -Wno-string-conversion)
endif()
if(ECH_WERROR)
  target_compile_options(ech_options INTERFACE -Werror)
endif()
if(ECH_SANITIZE)
  target_compile_options(ech_options INTERFACE -fsanitize=${ECH_SANITIZE} -fno-omit-frame-pointer
                                               -fno-sanitize-recover=all)
  target_link_options(ech_options INTERFACE -fsanitize=${ECH_SANITIZE})
else()
  target_compile_options(ech_options INTERFACE $<$<CONFIG:Release>:-D_FORTIFY_SOURCE=2>)
endif()
if(ECH_FUZZ)
  target_compile_options(ech_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_link_options(ech_options INTERFACE -Wl,-z,relro,-z,now)

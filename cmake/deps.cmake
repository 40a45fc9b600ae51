# Every outside library is found here and nowhere else; docs/dependencies.md says why each is used.
find_package(PkgConfig REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)

add_library(ech_core_deps INTERFACE)
target_link_libraries(ech_core_deps INTERFACE PkgConfig::JANSSON PkgConfig::YAML PkgConfig::XXHASH
                      PkgConfig::PCRE2 PkgConfig::ZSTD PkgConfig::ZLIB PkgConfig::HWLOC m dl)

# Modules: a build without these lacks the module, and `echelon doctor` says so.
find_package(MPI COMPONENTS C)
find_library(CMOCKA_LIBRARY cmocka)

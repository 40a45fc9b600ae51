# A thin face over CMakePresets.json.  JOBS=n limits parallel work.
JOBS ?= $(shell nproc)
FUZZ_S ?= 4
SHELL = /bin/bash

.PHONY: help deps build demo check check-long format clean

help:
	@echo 'make deps        install the Debian packages that are missing (packages.txt)'
	@echo 'make build       build/echelon, release'
	@echo 'make demo        train, sample and measure on real text, 4 ranks'
	@echo 'make check       everything a change must pass'
	@echo 'make check-long  long tests and a minute of fuzzing per target'
	@echo 'make format      clang-format on every source'
	@echo 'make clean       remove all build folders'

deps:
	@scripts/deps

build: deps
	@scripts/build release $(JOBS)

demo: build
	@scripts/demo

check: deps
	@JOBS=$(JOBS) FUZZ_S=$(FUZZ_S) scripts/check

check-long: deps
	@JOBS=$(JOBS) FUZZ_S=60 scripts/check long

format: deps
	@git ls-files -z --cached --others --exclude-standard '*.c' '*.h' | xargs -0 clang-format -i

clean:
	rm -rf build build-asan build-tsan build-clang build-fuzz

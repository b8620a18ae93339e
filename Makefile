# The short front door: every target is one or two cmake, ctest or tools/ commands, printed as they run.
PREFIX ?= /usr/local
RELEASE := build/release/build.ninja
CUDA := build/cuda/build.ninja

.PHONY: all voxrt voxtral_realtime-cpu voxtral_realtime-cuda demo test check bench format install clean help

all: voxtral_realtime-cpu  ## (default) the release preset: build/release/bin/voxrt and its tests

voxrt: $(RELEASE)  ## only the program, without tests and benchmarks
	cmake --build build/release --target voxrt

voxtral_realtime-cpu: $(RELEASE)  ## program, tests and benchmarks for the CPU
	cmake --build build/release

voxtral_realtime-cuda: $(CUDA)  ## the same with the CUDA backend (needs the CUDA toolkit): build/cuda/bin/voxrt
	cmake --build build/cuda

demo: voxrt  ## transcribe a bundled clip with the bundled demo checkpoint
	build/release/bin/voxrt transcribe models/demo/clips/flite_slt_0.wav

test: all  ## build, then run every test
	ctest --preset release -j 2

check:  ## what CI runs: format, lint, layers, builds, tests, sanitizers, fuzzing
	tools/check

bench: voxrt  ## measure this machine and save the result under bench/results
	tools/bench --save

format:  ## apply clang-format to every source file
	tools/format

install: voxrt  ## install program, demo checkpoint, man page and completions under PREFIX (/usr/local)
	cmake --install build/release --prefix "$(PREFIX)"

clean:  ## remove everything that was built
	rm -rf build

help:  ## this list
	@awk -F ':.*  ## ' '/^[a-z_-]+:.*  ## / { printf "  make %-22s %s\n", $$1, $$2 }' Makefile

$(RELEASE):
	cmake --preset release
$(CUDA):
	cmake --preset cuda

# SPDX-License-Identifier: Apache-2.0
# Instructions of a small all-reduce on CPUs, counted by callgrind. Included by the Makefile.
#
# One compiler, so that the counts do not depend on the machine's own.

.PHONY: test-instructions

test-instructions: $(VENV)/installed-test ## instructions of a small all-reduce, counted by callgrind
	$(Q)$(MAKE) CXX=clang++-19 build/host-clang++-19/host_path
	$(Q)HOST_PATH=build/host-clang++-19/host_path $(IN_VENV)/pytest -s tests/instructions

$(BUILD)/host_path: tests/instructions/host_path.cpp $(RUNTIME_OBJECTS) $(HOST_OBJECTS) $(KERNEL_OBJECTS)
	@echo "  CXX   $<"
	$(Q)$(CXX) $(COMMON) -Wl,--strip-debug -o $@ $< $(filter %.o,$^)  # valgrind 3.19 cannot read its DWARF

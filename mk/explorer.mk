# SPDX-License-Identifier: Apache-2.0
# The explorer: the protocol's source under an adversary (docs/protocol.md). Included by the Makefile,
# whose variables it uses.
#
# Variables: SECONDS, how long schedules are tried. SEED, which scenarios and schedules they are. JOBS,
# processes.

EXPLORER_BUILD := build/explorer-$(notdir $(CXX))
EXPLORER := $(EXPLORER_BUILD)/explorer
EXPLORER_OBJECTS := $(patsubst tests/explorer/%.cpp,$(EXPLORER_BUILD)/%.o,$(wildcard tests/explorer/*.cpp))
# -U_FORTIFY_SOURCE: its check of longjmp() takes a switch to another stack for an error.
EXPLORER_FLAGS := -std=c++17 -O2 -g1 -ffp-contract=off -U_FORTIFY_SOURCE -Wall -Wextra -Werror \
                  -Wno-unknown-warning-option -Wno-maybe-uninitialized

# Of the command line; other makefiles have their own defaults for them.
EXPLORER_SECONDS = $(if $(filter command%,$(origin SECONDS)),$(SECONDS),$(1))
EXPLORER_SEED := $(or $(SEED),1)
EXPLORER_JOBS := $(or $(JOBS),2)

.PHONY: explore test-explorer

explore: $(EXPLORER) ## run the protocol under an adversary (SECONDS=600 SEED=1)
	$(Q)$(EXPLORER) explore --seconds $(call EXPLORER_SECONDS,60) --seed $(EXPLORER_SEED) --jobs $(EXPLORER_JOBS)

test-explorer: $(EXPLORER) $(VENV)/installed-test ## the explorer on the protocol and on planted faults
	$(Q)EXPLORER=$(EXPLORER) EXPLORER_SECONDS=$(call EXPLORER_SECONDS,180) EXPLORER_SEED=$(EXPLORER_SEED) \
	    EXPLORER_JOBS=$(EXPLORER_JOBS) CXX=$(CXX) $(IN_VENV)/pytest -s tests/explorer

$(EXPLORER): $(EXPLORER_OBJECTS)
	@echo "  LINK  $@"
	$(Q)$(CXX) -o $@ $^

$(EXPLORER_BUILD)/%.o: tests/explorer/%.cpp Makefile mk/explorer.mk
	@mkdir -p $(@D)
	@echo "  CXX   $<"
	$(Q)$(CXX) $(EXPLORER_FLAGS) -MMD -MP -c $< -o $@

-include $(wildcard $(EXPLORER_BUILD)/*.d)

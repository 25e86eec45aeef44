# flametop: `make run` and `make test` are all that is needed; `make help` lists the rest.

CARGO ?= cargo
PREFIX ?= /usr/local
ARGS ?=
ROW ?= all
VM ?=
ASK ?=
T ?=

# Where rustup puts cargo, for shells that have not read its profile yet.
export PATH := $(PATH):$(HOME)/.cargo/bin
export CARGO VM ASK

# `make run` and `make build` build quickly, in `release`. `make install` builds with more optimisation, in `dist`.
TARGET := $(or $(CARGO_TARGET_DIR),target)
QUICK := $(TARGET)/release/flametop
FLAMETOP := $(TARGET)/dist/flametop

# build.rs looks for `clang`; some distributions have it under a versioned name only. It is searched when a recipe runs, because
# setup may just have installed it.
WITH_CLANG = CLANG="$$(scripts/setup.sh clang)"

# Variables that describe the terminal; they are passed through sudo.
KEPT = $(foreach name,TERM COLORTERM LANG LC_ALL LC_CTYPE NO_COLOR,$${$(name)+$(name)="$$$(name)"})

.PHONY: run build dist arm64 check test test-all test-vm bench soak picture install uninstall help setup

run: build ## install what is missing, build, and start the live view (ARGS="-p 123" passes arguments)
	@if [ "$$(id -u)" = 0 ]; then exec $(QUICK) $(ARGS); \
	elif command -v sudo >/dev/null; then exec sudo env $(KEPT) $(QUICK) $(ARGS); \
	else echo "flametop: sampling the whole machine needs root, and there is no sudo here: start $(QUICK) as root" >&2; exit 1; fi

build: setup ## build the program for this machine, quickly
	@[ -e $(QUICK) ] || echo "flametop: the first build takes about three minutes on two cores: libraries first, then flametop itself"
	@$(WITH_CLANG) $(CARGO) build --release --locked

dist: setup ## build the program as it is installed, with more optimisation
	@[ -e $(FLAMETOP) ] || echo "flametop: this build takes about four minutes on two cores; in the last one, cargo says nothing new"
	@$(WITH_CLANG) $(CARGO) build --profile dist --locked

arm64: ## build the program for arm64, static, in target/aarch64-unknown-linux-gnu/dist (on x86_64 Debian)
	@scripts/setup.sh test-vm
	@tests/vm/cross-arm64 cargo build --profile dist --locked --features libbpf-rs/vendored

setup:
	@scripts/setup.sh build

check: ## without root, in a minute: formatting, lints, unit tests, architecture, documents
	@scripts/setup.sh check
	@$(WITH_CLANG) scripts/test.sh --check

test: ## install what is missing and run all tests, as CI does (T=name: those with this in their names, slow ones, too)
	@scripts/setup.sh test
	@$(WITH_CLANG) scripts/test.sh $(T)

test-all: ## the same, with the slow tests
	@scripts/setup.sh test-all
	@$(WITH_CLANG) scripts/test.sh --all

test-vm: ## boot kernels 6.1 to the newest on x86_64 and arm64, emulated, and look at stacks there (VM="arm64 6.12" chooses, ASK too)
	@scripts/setup.sh test-vm
	@$(WITH_CLANG) tests/vm/build $(filter x86_64 arm64,$(VM))
	@[ -n "$(ASK)" ] || $(WITH_CLANG) $(CARGO) test --locked --lib code_of_arm64 -- --ignored --nocapture
	@$(WITH_CLANG) $(CARGO) test --locked --test vm -- --include-ignored --nocapture

bench: dist ## measure flametop beside perf, flamelens and lightswitch (ROW=view,keys,live-keys,first,record,live,unwind,names,events,cold,languages,waiting,formats)
	@$(WITH_CLANG) scripts/bench-tools.sh $(TARGET)/bench-tools
	@$(WITH_CLANG) $(CARGO) bench --locked --bench table -- $(ROW)

soak: dist ## run the live view for an hour beside programs that come and go, as root; fail if it grows (ARGS=10: minutes)
	@scripts/soak $(or $(ARGS),60) $(FLAMETOP)

picture: build ## make the pictures in README.md anew
	@$(WITH_CLANG) scripts/picture.sh $(QUICK) assets/screen.svg
	@$(WITH_CLANG) PICTURE_LATE=16 PICTURE_WAIT=24s PICTURE_KEYS="d Down Down" scripts/picture.sh $(QUICK) assets/difference.svg
	@$(WITH_CLANG) PICTURE_KEYS="O Down Down Down Down Down Down Down" scripts/picture.sh $(QUICK) assets/python.svg python3 scripts/demo-shop.py
	@place=$$(mktemp -d); cp scripts/demo-shop.py $$place/shop.py; $(firstword $(wildcard /usr/bin/python3) python3) $$place/shop.py & shop=$$!; sleep 1; $(QUICK) record -F 97 -d 8 -p $$shop -o assets/saved.svg --force; kill $$shop; rm -r $$place
	@chmod 644 assets/saved.svg

install: dist ## copy the program and its manual page under PREFIX (/usr/local)
	install -D -m 755 $(FLAMETOP) $(DESTDIR)$(PREFIX)/bin/flametop
	install -D -m 644 assets/flametop.1 $(DESTDIR)$(PREFIX)/share/man/man1/flametop.1

uninstall: ## remove what install copied
	rm -f $(DESTDIR)$(PREFIX)/bin/flametop $(DESTDIR)$(PREFIX)/share/man/man1/flametop.1

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 18

.PHONY: help setup build demo test bench soak

help: ## show this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):.*## /  make \1|/' | column -t -s '|'

setup: ## install what is missing (as root), or say what to install
	@scripts/setup

build: setup ## build the binary: target/release/banksman
	cargo build --release -p banksman-cli

demo: build ## see it at work, in nine seconds
	target/release/banksman demo

# Most tests wait for processes, not for a core.
test: export RUST_TEST_THREADS ?= 4
test: setup ## formatting, lints, all tests, documentation
	scripts/check-docs
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo test --workspace --all-features
	BANKSMAN_TEST_STORE=postgres cargo test --workspace --all-features --test all
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps

bench: build ## the figures of docs/performance.md, measured here and now
	cargo run --release -p banksman-bench

soak: build ## the long tests: many processes, many seeds
	cargo test --release -p banksman-cli --test all -- --ignored --nocapture
	cargo run --release -p banksman-sim -- --count 100000

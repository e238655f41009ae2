.PHONY: help setup build demo quick test test-agents bench soak

help: ## show this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

setup: ## install what is missing (as root), or say what to install
	@scripts/setup

build: setup ## build the binary: target/release/banksman
	cargo build --release -p banksman-cli

demo: build ## see it at work, in nine seconds
	target/release/banksman demo

quick: ## the inner loop: machines, engine, store, and a few simulated histories
	cargo nextest run -p banksman-core -p banksman-engine -p banksman-store -p banksman-runbook --lib
	cargo run -q -p banksman-sim -- --count 120

test: setup ## formatting, lints, all tests, documentation
	scripts/check-docs
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	rm -rf target/doc/banksman
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps
	scripts/check-public-api
	cargo nextest run --workspace --all-features --no-run
	scripts/with-postgres scripts/run-tests

test-agents: setup ## the real agent programs, with a scripted model; installs them below target/
	scripts/test-agents

bench: build ## the figures of docs/performance.md, measured here and now
	cargo run --release -p banksman-bench

soak: build ## the long tests: many processes, many kills, many seeds, some of which nobody has seen before
	cargo test --release -p banksman-cli --test all -- --ignored --nocapture
	BANKSMAN_TEST_STORE=postgres scripts/with-postgres cargo test --release -p banksman-cli --test all -- --ignored --nocapture at_length
	BANKSMAN_TEST_LONG=1 scripts/test-agents forty
	cargo test --release -p banksman-sim --test all -- --ignored --nocapture
	cargo run --release -p banksman-sim -- --count 100000
	cargo run --release -p banksman-sim -- --count 20000 --from $$(date +%s%6N)
	cargo run --release -p banksman-sim -- --scenario people --count 20000 --from $$(date +%s%6N)
	scripts/with-postgres sh -c 'cargo run --release -p banksman-sim -- --count 200 --store "postgres:///postgres?host=$$BANKSMAN_TEST_POSTGRES&user=postgres"'
